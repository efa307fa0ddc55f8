"""How the compute API writes what several of its answers have."""

from datetime import UTC, datetime


def time_or_none(seconds: int) -> str | None:
    """A time as Nova writes it, in UTC without saying so; None for one that never was."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
