"""Why a request fits where it does, or nowhere, and what would help."""

from berth.scheduler.explain.explanation import explain

__all__ = ["explain"]
