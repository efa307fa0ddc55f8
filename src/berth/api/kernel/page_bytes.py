"""Pages end at so many entries, or at so many bytes: a thousand entries may be a thousand large ones.

The first entry is always there, whatever its size, so a walk through the pages gets on.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

PAGE_BYTES_MAX: Final = 4 << 20

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
