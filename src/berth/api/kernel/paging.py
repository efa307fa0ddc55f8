"""Lists in pages: the parameters that ask for one, where it begins and ends, and the link to the next.

A page ends at so many entries, or at so many bytes: a thousand entries may be a thousand large ones. Its
first entry is always there, whatever its size, so a walk through the pages gets on.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from berth.api.kernel.call import Call
from berth.api.kernel.http import Request
from berth.api.kernel.problem import Problem

PAGE_BYTES_MAX: Final = 4 << 20

K = TypeVar("K", bound=str)
R = TypeVar("R")
T = TypeVar("T")

_encode: Final = msgspec.json.Encoder().encode


def render_page(entries: Iterable[T], render: Callable[[T], object]) -> list[msgspec.Raw]:
    """The entries as JSON, as many as fit. No more are rendered than it takes to know."""
    shown: list[msgspec.Raw] = []
    size = 0
    for entry in entries:
        body = _encode(render(entry))
        size += len(body)
        if shown and size > PAGE_BYTES_MAX:
            break
        shown.append(msgspec.Raw(body))
    return shown


def cut_page(entries: Sequence[T]) -> Sequence[T]:
    """The first entries, as many as fit."""
    return entries[: len(render_page(entries, lambda entry: entry))]


# -- parameters ---------------------------------------------------------------------------------

LIMIT_MAX: Final = 1_000
"""How many a page has at most, and if nothing is said."""

_NUMBER_MAX: Final = 2**31 - 1
YES: Final = frozenset(("1", "t", "true", "on", "y", "yes", ""))
NO: Final = frozenset(("0", "f", "false", "off", "n", "no"))


def read_query(
    call: Call, what: str, known: Mapping[str, int], repeatable: Sequence[str] = ()
) -> dict[str, str]:
    """The parameters of a request for ``what``, each of them known: by name, and since which microversion.
    With one that is not, the answer would be to another question than was asked. Those that are not
    ``repeatable`` are given once."""
    query = call.query_values()
    offered = [name for name, since in known.items() if call.version >= since]
    for name in query:
        if name not in offered:
            raise _unknown(name, what, known.get(name), offered)
    names = [name for name, _ in call.query_pairs() if name not in repeatable]
    if len(names) > len({*names}):
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem(400, f"Invalid input: {twice} is given more than once.")
    return query


def _unknown(name: str, what: str, since: int | None, offered: Sequence[str]) -> Problem:
    why = "is not supported" if since is None else f"is not supported before microversion 2.{since}"
    there = f"Supported: {', '.join(sorted(offered))}." if offered else "It takes no parameters."
    return Problem(400, f"Invalid input: {name[:100]!r} {why} in a request for {what}. {there}")


def read_parameter(query: dict[str, str], name: str, default: int) -> int:
    """A parameter that is a whole number, not less than 0."""
    return read_number(name, query[name], 0, _NUMBER_MAX) if name in query else default


def read_number(name: str, given: int | str, least: int, most: int) -> int:
    """A whole number, not less than 0. Nova's clients may give it in quotes."""
    text = str(given)
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most):
        raise Problem(
            400, f"Invalid input: {name} is {given!r}; it must be a whole number from {least} to {most}."
        )
    return int(text)


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """A parameter that is true or false; true if it is only named."""
    text = query.get(name, "false").strip().lower()
    if text not in YES | NO:
        raise Problem(400, f"Invalid input: {name} is {text!r}; it must be true or false.")
    return text in YES


def read_limit(query: dict[str, str]) -> int:
    """How many to show; 0 is as many as there may be, as in Nova's other lists."""
    return min(read_parameter(query, "limit", 0) or LIMIT_MAX, LIMIT_MAX)


def render_list(
    call: Call, items: Sequence[T], id_of: Callable[[T], str], render: Callable[[T], object]
) -> tuple[list[msgspec.Raw], list[dict[str, str]]]:
    """What is shown, and the links to the next page: none if there is no such page."""
    query = call.query_values()
    limit = read_limit(query)
    start = 0
    marker = query.get("marker")
    if marker is not None:
        places = [place for place, item in enumerate(items) if id_of(item) == marker]
        if not places:
            raise Problem(400, f"marker [{marker}] not found: it must be the id of an entry of the list.")
        start = places[0] + 1
    shown = render_page(items[start : start + limit], render)
    end = start + len(shown)
    return shown, make_next_links(call, id_of(items[end - 1])) if end < len(items) else []


def make_next_links(call: Call, marker: str) -> list[dict[str, str]]:
    """The same question, behind the marker."""
    asked = [(name, value) for name, value in call.query_pairs() if name != "marker"]
    href = f"{call.origin}{call.request.path}?{urlencode([*asked, ('marker', marker)])}"
    return [{"rel": "next", "href": href}]


# -- from the newest on: a page costs one look at every record, whatever its limit ----------------

Key = tuple[int, str]
"""When a record came, and its id: no two have the same."""


def page_newest(
    call: Call,
    query: dict[str, str],
    records: Iterable[R],
    *,
    key: Callable[[R], Key],
    behind: Key | None,
    render: Callable[[R], object],
    id_of: Callable[[R], str],
) -> tuple[list[msgspec.Raw], list[dict[str, str]]]:
    """The newest records behind a key, and the links to the next page: none if there is no such page. A limit
    of 0 shows none of them, as in Nova's list of servers."""
    limit = min(read_parameter(query, "limit", LIMIT_MAX), LIMIT_MAX)
    left = (record for record in records if behind is None or key(record) < behind)
    found = heapq.nlargest(limit + 1, left, key)
    shown = render_page(found[:limit], render)
    has_more = 0 < len(shown) < len(found)
    return shown, make_next_links(call, id_of(found[len(shown) - 1])) if has_more else []


def page_sorted(
    call: Call,
    query: dict[str, str],
    records: Sequence[R],
    *,
    render: Callable[[R], object],
    id_of: Callable[[R], str],
) -> tuple[list[msgspec.Raw], list[dict[str, str]]]:
    """The same of records in any order, which is a new one whenever it is asked for. The marker is one of
    them."""
    limit = min(read_parameter(query, "limit", LIMIT_MAX), LIMIT_MAX)
    marker = query.get("marker")
    start = 0
    if marker is not None:
        start = 1 + next(place for place, record in enumerate(records) if id_of(record) == marker)
    shown = render_page(records[start : start + limit], render)
    end = start + len(shown)
    has_more = len(shown) > 0 and end < len(records)
    return shown, make_next_links(call, id_of(records[end - 1])) if has_more else []


def refuse_marker(marker: str) -> Problem:
    return Problem(400, f"marker [{marker}] not found: start again without one.")


# -- by key: nothing is repeated, and nothing skipped that was there throughout -------------------


def behind(keys: Iterable[K], marker: str | None) -> list[K]:
    """The keys behind the marker, brought into order."""
    ordered = sorted(keys)
    return ordered if marker is None else ordered[bisect_right(ordered, marker) :]


def take_first(keys: Iterable[K], limit: int) -> tuple[list[K], bool]:
    """The first of these, which are in order, and whether there are more. No more are made than it takes."""
    found = list(islice(keys, limit + 1))
    return found[:limit], len(found) > limit


def render_keys(
    request: Request, query: msgspec.Struct, keys: Sequence[K], more: bool, show: Callable[[K], T]
) -> tuple[list[T], str | None]:
    """What is shown of the keys, as many as one answer may have bytes for, and the link to the next page, if
    there is one. ``more``: there are keys behind these. What is shown is rendered once: to whoever encodes
    the answer it is JSON already, and no longer what ``show`` made."""
    shown = cast(list[T], render_page(keys, show))
    is_over = not more and len(shown) == len(keys)
    return shown, None if is_over else make_next_link(request, query, keys[len(shown) - 1])


def make_next_link(request: Request, query: msgspec.Struct, marker: str) -> str:
    """The same question, behind ``marker``."""
    given = {
        field.name: getattr(query, field.name)
        for field in msgspec.structs.fields(query)
        if field.name != "marker" and getattr(query, field.name) not in (None, field.default)
    }
    return f"{request.path}?{urlencode({**given, 'marker': marker})}"
