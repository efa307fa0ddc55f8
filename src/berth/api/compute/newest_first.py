"""Pages of lists that are read from the newest on: which records they have.

A page costs one look at every record and no more, whatever its limit: records are not brought into order that
are not shown.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar

from berth.api.compute.listing import LIMIT_MAX
from berth.api.kernel.problem import Problem

R = TypeVar("R")
Key = tuple[int, str]
"""When a record came, and its id: no two have the same."""


def limit_of(query: dict[str, str]) -> int:
    """How many to show."""
    text = query.get("limit", str(LIMIT_MAX))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Problem(
            400, f"Invalid input: limit is {text!r}; it must be a whole number from 0 to {LIMIT_MAX}."
        )
    return min(int(text), LIMIT_MAX)


def newest(
    records: Iterable[R], key: Callable[[R], Key], limit: int, behind: Key | None
) -> tuple[list[R], bool]:
    """The newest records behind a key, and whether there are more."""
    left = (record for record in records if behind is None or key(record) < behind)
    found = heapq.nlargest(limit + 1, left, key)
    return found[:limit], 0 < limit < len(found)


def no_marker(marker: str) -> Problem:
    return Problem(400, f"marker [{marker}] not found: begin again without one.")
