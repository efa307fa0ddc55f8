"""Pages of a list that changes while it is read: ordered by key, cut behind a key.

A page is the smallest keys behind the marker. So a walk repeats nothing, and skips nothing that was there
throughout, whatever comes and goes in between: a marker need not exist any more.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from berth.api.kernel.http import Request
from berth.api.kernel.page_bytes import cut_page

K = TypeVar("K", bound=str)
T = TypeVar("T")


def behind(keys: Iterable[K], marker: str | None) -> list[K]:
    """The keys behind the marker, brought into order."""
    ordered = sorted(keys)
    return ordered if marker is None else ordered[bisect_right(ordered, marker) :]


def cut(keys: Iterable[K], limit: int) -> tuple[list[K], bool]:
    """The first of these, which are in order, and whether there are more. No more are made than it takes."""
    found = list(islice(keys, limit + 1))
    return found[:limit], len(found) > limit


def shown_page(
    request: Request, query: msgspec.Struct, keys: Sequence[K], more: bool, show: Callable[[K], T]
) -> tuple[list[T], str | None]:
    """What is shown of the keys, as many as one answer may have bytes for, and the link to the next page, if
    there is one. ``more``: there are keys behind these."""
    shown = list(cut_page([show(key) for key in keys]))
    is_over = not more and len(shown) == len(keys)
    return shown, None if is_over else next_link(request, query, keys[len(shown) - 1])


def next_link(request: Request, query: msgspec.Struct, marker: str) -> str:
    """The same question, behind ``marker``."""
    given = {
        field.name: getattr(query, field.name)
        for field in msgspec.structs.fields(query)
        if field.name != "marker" and getattr(query, field.name) not in (None, field.default)
    }
    return f"{request.path}?{urlencode({**given, 'marker': marker})}"
