"""Pages of a list that changes while it is read: ordered by key, cut behind a key.

A page is the smallest keys behind the marker. So a walk repeats nothing, and skips nothing that was there
throughout, whatever comes and goes in between: a marker need not exist any more. Finding them costs one
look at every candidate, with as much memory as the page has entries; sorting all of a million consumers
for each page, or keeping them sorted for readers who may never come, was the alternative.
"""

import heapq
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from berth.api.http import Request

K = TypeVar("K", bound=str)


def first_keys(candidates: Iterable[K], marker: str | None, limit: int) -> tuple[list[K], bool]:
    """The ``limit`` smallest candidates behind the marker, in order, and whether there are more."""
    behind = candidates if marker is None else (key for key in candidates if key > marker)
    found = heapq.nsmallest(limit + 1, behind)
    return found[:limit], len(found) > limit


def next_link(request: Request, query: msgspec.Struct, marker: str) -> str:
    """The same question, behind ``marker``."""
    given = {
        field.name: getattr(query, field.name)
        for field in msgspec.structs.fields(query)
        if field.name != "marker" and getattr(query, field.name) not in (None, field.default)
    }
    return f"{request.path}?{urlencode({**given, 'marker': marker})}"
