"""Lists in pages, as Nova cuts them: ``limit`` of them behind the one that ``marker`` names."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from berth.api.compute.calls import Call
from berth.api.compute.errors import ComputeProblem
from berth.api.page_bytes import render_page

T = TypeVar("T")

LIMIT_MAX: Final = 1_000
"""How many a page has at most, and if nothing is said."""

_NUMBER_MAX: Final = 2**31 - 1


def number_in(query: dict[str, str], name: str, default: int) -> int:
    """A parameter that is a whole number, not less than 0."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _NUMBER_MAX):
        raise ComputeProblem(400, f"{name} is {text!r}; it must be a whole number from 0 to {_NUMBER_MAX}.")
    return int(text)


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
            raise ComputeProblem(400, f"marker [{marker}] not found: it must be the id of one in the list.")
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
