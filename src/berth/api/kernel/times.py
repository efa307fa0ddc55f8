"""Times as the APIs write and read them. All of them are UTC."""

from datetime import UTC, datetime

from berth.api.kernel.problem import Problem


def show_time(at_s: int) -> str:
    """2026-01-01T00:00:00Z"""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def show_time_ns(at_ns: int) -> str:
    """2026-01-01T00:00:00.000Z"""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{show_time(seconds)[:-1]}.{rest // 1_000_000:03}Z"


def show_long_time(at_s: int) -> str:
    """2026-01-01T00:00:00.000000Z"""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def show_plain_time(at_s: int | None) -> str | None:
    """2026-01-01T00:00:00.000000, as Nova writes most of its times; None for one that never was."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") if at_s else None


def parse_time(name: str, text: str) -> float:
    """The seconds since 1970 of a time in a query; one without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Problem(
            400, f"Invalid input: {name} is {text!r}; it must be a time such as 2026-01-01T00:00:00Z."
        ) from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
