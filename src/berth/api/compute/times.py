"""Times of the compute API: as Nova writes them, in the two ways it does, and as clients send them."""

from datetime import UTC, datetime

from berth.api.kernel.problem import Problem


def zulu(at_s: int) -> str:
    """As servers have it: 2026-01-01T00:00:00Z."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def plain(at_s: int | None) -> str | None:
    """As migrations and actions have it: 2026-01-01T00:00:00.000000, and it is UTC all the same."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


def parsed(name: str, text: str) -> float:
    """The seconds since 1970 of a time in a query; one without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Problem(
            400, f"Invalid input: {name} is {text!r}; it must be a time such as 2026-01-01T00:00:00Z."
        ) from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
