"""Pages of a list that changes while it is read: ordered by key, cut behind a key.

A page is the smallest keys behind the marker. So a walk repeats nothing, and skips nothing that was there
throughout, whatever comes and goes in between: a marker need not exist any more.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from berth.api.http import Request

K = TypeVar("K", bound=str)


def behind(keys: Iterable[K], marker: str | None) -> list[K]:
    """The keys behind the marker, brought into order."""
    ordered = sorted(keys)
    return ordered if marker is None else ordered[bisect_right(ordered, marker) :]


def cut(keys: Iterable[K], limit: int) -> tuple[list[K], bool]:
    """The first of these, which are in order, and whether there are more. No more are made than it takes."""
    found = list(islice(keys, limit + 1))
    return found[:limit], len(found) > limit


def next_link(request: Request, query: msgspec.Struct, marker: str) -> str:
    """The same question, behind ``marker``."""
    given = {
        field.name: getattr(query, field.name)
        for field in msgspec.structs.fields(query)
        if field.name != "marker" and getattr(query, field.name) not in (None, field.default)
    }
    return f"{request.path}?{urlencode({**given, 'marker': marker})}"
