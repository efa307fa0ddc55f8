"""Conditional reads: the tag of an answer, and whether the client has that answer already.

Two kinds of tag, both the same in every process that serves the same journal:

* of a body: a digest of the bytes. It survives every change that does not show, and cannot be wrong. For
  answers that are small and cheap to make.
* of the state: the journal's index, and everything else that an answer follows from: the URL, the
  microversion, the settings that shape answers, the program, and the caller where not every caller gets the
  same answer. It changes with every write, but a match is known before the answer is made. For lists and
  searches, where making the answer is the work.

The rejected third kind is made of generations and dates: a rename changes neither a provider's generation
nor, within the same second, its date.
"""

from hashlib import blake2b
from typing import Final

from berth import __version__
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import Request, Response
from berth.model.ids import Index
from berth.model.placement import STANDARD_CLASSES, STANDARD_TRAITS
from berth.runtime.settings import Settings

HEADER: Final = "etag"
CONDITION: Final = "if-none-match"

_DIGEST_BYTES: Final = 12
_KEPT: Final = frozenset(("cache-control", "etag", "last-modified", "vary"))
"""Headers of an answer that "not modified" keeps. What layers further out add, they add to both."""


class StateTags:
    """Tags of the state. Made once: what they share is digested here."""

    def __init__(self, settings: Settings) -> None:
        shaping = (
            __version__,
            STANDARD_CLASSES,
            sorted(STANDARD_TRAITS),
            settings.max_allocation_candidates,
            settings.randomize_allocation_candidates,
            settings.allocation_candidates_generation_strategy,
        )
        self._shared = _digest(repr(shaping).encode())

    def tag(self, index: Index, request: Request, version: int = 0, caller: Caller | None = None) -> str:
        url = f"{request.path}?{request.query_string}"
        asked = _digest(f"{self._shared} {version} {caller} {url}".encode(errors="replace"))
        return f'W/"{index}-{asked}"'


def make_body_tag(body: bytes) -> str:
    return f'"{_digest(body)}"'


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def is_named(request: Request, tag: str) -> bool:
    """Whether the request's condition names this very tag. Weakness does not matter for reading."""
    condition = request.headers.get(CONDITION)
    if condition is None:
        return False
    opaque = tag.removeprefix("W/")
    return any(_same_body(named.strip().removeprefix("W/")) == opaque for named in condition.split(","))


_COMPRESSED: Final = '-gzip"'


def mark_compressed(tag: str) -> str:
    """The tag of the same answer, compressed: a strong tag stands for the very bytes that are sent."""
    return tag if tag.startswith("W/") else tag.removesuffix('"') + _COMPRESSED


def _same_body(tag: str) -> str:
    """The tag of an answer as it is before it is compressed."""
    return tag.removesuffix(_COMPRESSED) + '"' if tag.endswith(_COMPRESSED) else tag


def add_tag(request: Request, response: Response, tag: str) -> Response:
    """The response with its tag; or, for a client that has it already, a 304 without the body."""
    response.headers.append((HEADER, tag))
    if not is_named(request, tag) and request.headers.get(CONDITION) != "*":
        return response
    return Response(304, headers=[pair for pair in response.headers if pair[0] in _KEPT])
