"""How commands write numbers and times for people."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.text import Text

_UNITS: Final = {"MEMORY_MB": ("MiB", 1024, "GiB", 1024), "DISK_GB": ("GiB", 1024, "TiB", 102_400)}
"""The unit of a class, a larger one and how many make one of it, and from where on it is used."""
_NO_UNIT: Final = ("", 1, "", 2**63)
_FULL: Final = 0.9
_NEARLY_FULL: Final = 0.75
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
MAIN_CLASSES: Final = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")


def format_amount(name: str, amount: float) -> str:
    """An amount of a resource class, in a unit that reads well: 126 GiB."""
    small, step, large, limit = _UNITS.get(name, _NO_UNIT)
    if amount >= limit:
        return f"{_shorten(amount / step)} {large}"
    return f"{_shorten(amount)} {small}".strip()


def format_amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in amounts.items())


def format_use(name: str, use: Mapping[str, int] | None) -> Text:
    """What is used of a class and how much that is of all of it: 12/128 9%."""
    if use is None:
        return Text("-")
    used, capacity = use["used"], use["capacity"]
    share = used / capacity if capacity else 0.0
    _, step, _, limit = _UNITS.get(name, _NO_UNIT)
    left = _shorten(used / step if capacity >= limit else used)
    style = "red" if share >= _FULL else "yellow" if share >= _NEARLY_FULL else ""
    return Text(f"{left}/{format_amount(name, capacity)} {share:.0%}", style=style)


def find_share(usage: Mapping[str, Mapping[str, int]], name: str) -> float:
    """How much of a class is used, from 0 to 1 and beyond."""
    use = usage.get(name)
    return use["used"] / use["capacity"] if use and use["capacity"] else 0.0


def _shorten(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) or number >= 100 else f"{number:.1f}"


# -- times --------------------------------------------------------------------------------------


def read_time(text: str) -> datetime:
    """A time as our APIs write it, in UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def format_age(text: str | None, now_s: float) -> str:
    """How long ago: 5s, 12m, 3h, 4d."""
    if text is None:
        return "-"
    return format_duration(max(0.0, now_s - read_time(text).timestamp()))


def format_duration(seconds: float) -> str:
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "m")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.0f}{unit}"
    return f"{seconds:.0f}s"


def list_classes(usages: list[dict[str, Any]]) -> list[str]:
    """The main resource classes that any of the usages has."""
    return [name for name in MAIN_CLASSES if any(name in usage for usage in usages)]
