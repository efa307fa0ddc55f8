"""Which images are in a list, and in which order, as Glance's clients write it.

    name=cirros   name=in:cirros,alpine   created_at=gte:2026-01-01T00:00:00Z   hw_disk_bus=scsi
    sort=name:asc,created_at:desc         sort_key=name&sort_dir=asc

Any field and any property of an image is a filter. Without an order images come newest first.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter, eq, ge, gt, le, lt, ne
from typing import Any, Final

from berth.api.kernel.problem import Problem
from berth.api.kernel.times import parse_time
from berth.model.servers import Image

Test = Callable[[Any], bool]
"""Of the value that an image shows under a name."""

_IN: Final = "in:"
_LISTED: Final = ("id", "name", "status", "container_format", "disk_format")
_TIMES: Final = ("created_at", "updated_at")
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "gt": gt,
    "gte": ge,
    "eq": eq,
    "neq": ne,
    "lt": lt,
    "lte": le,
}
_SORT_KEYS: Final[dict[str, Callable[[Image], Any]]] = {
    "name": attrgetter("name"),
    "status": attrgetter("status"),
    "container_format": attrgetter("container_format"),
    "disk_format": attrgetter("disk_format"),
    "size": attrgetter("size"),
    "id": attrgetter("id"),
    "created_at": attrgetter("created_at_s"),
    "updated_at": attrgetter("updated_at_s"),
}
_DIRECTIONS: Final = ("asc", "desc")
_KEYS_MAX: Final = 10

Order = list[tuple[str, str]]
"""Keys with their directions, the first one first."""


def test_of(name: str, value: str) -> Test:
    """The test that a filter makes."""
    if name in _TIMES:
        return _time_test(name, value)
    if name in _LISTED and value.startswith(_IN):
        names = [part.strip().strip('"') for part in value.removeprefix(_IN).split(",")]
        return lambda said: _text(said) in names
    return lambda said: _text(said) == value


def _time_test(name: str, value: str) -> Test:
    word, colon, rest = value.partition(":")
    compare = _COMPARISONS.get(word) if colon else None
    limit_s = parse_time(name, value if compare is None else rest)
    comparison = compare or eq
    return lambda said: bool(comparison(parse_time(name, said), limit_s))


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def order_of(pairs: Iterable[tuple[str, str]]) -> Order:
    given = {
        name: [value for other, value in pairs if other == name] for name in ("sort", "sort_key", "sort_dir")
    }
    if given["sort"] and (given["sort_key"] or given["sort_dir"]):
        raise Problem(400, "The order is given twice: use sort, or sort_key and sort_dir.")
    if given["sort"]:
        parts = [part.strip().partition(":") for part in given["sort"][0].split(",")]
        return _checked([(key, direction or "desc") for key, _, direction in parts])
    keys, directions = given["sort_key"] or ["created_at"], given["sort_dir"] or ["desc"]
    if len(directions) not in (1, len(keys)):
        raise Problem(400, f"There are {len(keys)} of sort_key and {len(directions)} of sort_dir.")
    if len(directions) == 1:
        directions = directions * len(keys)
    return _checked(list(zip(keys, directions, strict=True)))


def _checked(order: Order) -> Order:
    if len(order) > _KEYS_MAX:
        raise Problem(400, f"The list is sorted by {len(order)} keys; it may be by {_KEYS_MAX} at most.")
    for key, direction in order:
        if key not in _SORT_KEYS:
            raise Problem(400, f"The sort key is {key[:100]!r}; it must be one of {', '.join(_SORT_KEYS)}.")
        if direction not in _DIRECTIONS:
            raise Problem(400, f"The direction of {key} is {direction[:100]!r}; it must be asc or desc.")
    return order


def sorted_by(order: Order, images: list[Image]) -> list[Image]:
    """The images in order; those that are alike in it, newest first."""
    for key, direction in reversed([*order, ("created_at", "desc"), ("id", "desc")]):
        read = _SORT_KEYS[key]
        images = sorted(images, key=lambda image: _comparable(read(image)), reverse=direction == "desc")
    return images


def _comparable(value: Any) -> tuple[bool, Any]:
    """None comes before everything."""
    return (value is not None, value if value is not None else 0)
