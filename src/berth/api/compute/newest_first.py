"""Pages of lists that are read from the newest on: which records they have, and the link to those behind.

A page costs one look at every record and no more, whatever its limit: records are not brought into order that
are not shown.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from berth.api.compute.calls import Call
from berth.api.compute.errors import ComputeProblem

R = TypeVar("R")
Key = tuple[int, str]
"""When a record came, and its id: no two have the same."""

LIMIT_MAX: Final = 1000
"""How many a page has at most, and if nothing is said."""


def limit_of(query: dict[str, str]) -> int:
    """How many to show."""
    text = query.get("limit", str(LIMIT_MAX))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ComputeProblem(
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


def next_links(call: Call, marker: str) -> list[dict[str, Any]]:
    """The same question, behind the marker."""
    query = urlencode({**call.query(), "marker": marker})
    return [{"rel": "next", "href": f"{call.origin}{call.request.path}?{query}"}]


def no_marker(marker: str) -> ComputeProblem:
    return ComputeProblem(400, f"marker [{marker}] not found: begin again without one.")
