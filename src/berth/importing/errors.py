"""The root of what stops an import."""


class CannotImport(Exception):
    """The import cannot begin or go on. The message is for the operator, and says what to do."""
