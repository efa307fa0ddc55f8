"""Why a request fits where it does, or nowhere, and what would help."""
