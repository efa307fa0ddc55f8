"""Lists in pages, as Nova cuts them: ``limit`` of them behind the one that ``marker`` names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from berth.api.compute.calls import Call
from berth.api.kernel.page_bytes import render_page
from berth.api.kernel.problem import Problem

T = TypeVar("T")

LIMIT_MAX: Final = 1_000
"""How many a page has at most, and if nothing is said."""

_NUMBER_MAX: Final = 2**31 - 1
_YES: Final = frozenset(("1", "t", "true", "on", "y", "yes", ""))
_NO: Final = frozenset(("0", "f", "false", "off", "n", "no"))


def query_of(call: Call, what: str, known: Mapping[str, int]) -> dict[str, str]:
    """The parameters of a request for a list, each of them known: by name, and since which microversion. One
    that is not would be a list of something else than was asked for."""
    query = call.query()
    offered = [name for name, since in known.items() if call.version >= since]
    for name in query:
        if name not in offered:
            raise _unknown(name, what, known.get(name), offered)
    names = [name for name, _ in call.query_pairs()]
    if len(names) > len(query):
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem(400, f"Invalid input: {twice} is given more than once: give it once.")
    return query


def _unknown(name: str, what: str, since: int | None, offered: Sequence[str]) -> Problem:
    why = "is not understood" if since is None else f"is not understood before microversion 2.{since}"
    there = f"What is: {', '.join(sorted(offered))}." if offered else "Nothing is."
    return Problem(400, f"Invalid input: {name[:100]!r} {why} in a list of {what}. {there}")


def number_in(query: dict[str, str], name: str, default: int) -> int:
    """A parameter that is a whole number, not less than 0."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _NUMBER_MAX):
        raise Problem(400, f"{name} is {text!r}; it must be a whole number from 0 to {_NUMBER_MAX}.")
    return int(text)


def flag_in(query: Mapping[str, str], name: str) -> bool:
    """A parameter that is true or false; true if it is only named."""
    text = query.get(name, "false").strip().lower()
    if text not in _YES | _NO:
        raise Problem(400, f"Invalid input: {name} is {text!r}; it must be true or false.")
    return text in _YES


def limit_of(query: dict[str, str]) -> int:
    """How many to show. 0 is no wish, as in Nova."""
    return min(number_in(query, "limit", 0) or LIMIT_MAX, LIMIT_MAX)


def page(
    call: Call, items: Sequence[T], id_of: Callable[[T], str], render: Callable[[T], object]
) -> tuple[list[msgspec.Raw], list[dict[str, str]]]:
    """What is shown, and the links to the next page: none if there is no such page."""
    query = call.query()
    limit = limit_of(query)
    start = 0
    marker = query.get("marker")
    if marker is not None:
        places = [place for place, item in enumerate(items) if id_of(item) == marker]
        if not places:
            raise Problem(400, f"marker [{marker}] not found: it must be the id of one in the list.")
        start = places[0] + 1
    shown = render_page(items[start : start + limit], render)
    end = start + len(shown)
    return shown, next_links(call, query, id_of(items[end - 1])) if end < len(items) else []


def next_links(call: Call, query: dict[str, str], marker: str) -> list[dict[str, str]]:
    """The same question, behind the marker."""
    href = f"{call.origin}{call.request.path}?{urlencode({**query, 'marker': marker})}"
    return [{"rel": "next", "href": href}]


def links_of(call: Call, what: str, id: str) -> list[dict[str, str]]:
    """Where one thing is to be found."""
    return [
        {"rel": "self", "href": f"{call.base}/{what}/{id}"},
        {"rel": "bookmark", "href": f"{call.origin}/compute/{what}/{id}"},
    ]
