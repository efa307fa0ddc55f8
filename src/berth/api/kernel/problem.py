"""A refusal on its way out, of whichever API: a status, a text and a code. How it reads on the wire is each
API's own business, its ``render``.

A Problem is raised while a request is read or answered, and caught where the API hands its answer back. It
is never raised in the writer's turn: a proposal returns a rejection, and the table of rejections words it.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from berth.api.kernel import codes
from berth.api.kernel.access import policy_refusal
from berth.api.kernel.http import Request
from berth.engine import Overloaded, Unavailable
from berth.view import View

T = TypeVar("T")
Headers = tuple[tuple[str, str], ...]

RETRY_SOON: Final[Headers] = (("retry-after", "1"),)
_log = logging.getLogger(__name__)
_NO_MORE: Final[Mapping[str, object]] = MappingProxyType({})


class Problem(Exception):
    """``code`` None: none of its own. ``bare``: without the headers that go with the answers of handlers;
    upstream's Placement answers those outside of them. ``more``: fields that the API's own shape has."""

    def __init__(
        self,
        status: int,
        text: str = "",
        code: str | None = None,
        *,
        headers: Headers = (),
        bare: bool = False,
        more: Mapping[str, object] = _NO_MORE,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.code = code
        self.headers = headers
        self.bare = bare
        self.more = dict(more)


def catch_problems(answer: Callable[[View], T]) -> Callable[[View], T | Problem]:
    """The question, with what it raises as a Problem for an answer: it waits, like any, until what it saw is
    durable."""

    def answered(view: View) -> T | Problem:
        try:
            return answer(view)
        except Problem as problem:
            return problem

    return answered


def forbidden(rule: str) -> Problem:
    return Problem(403, policy_refusal(rule), codes.FORBIDDEN)


def not_found(what: str, id: str) -> Problem:
    """What Nova says of something that is not there, or not for the caller."""
    return Problem(404, f"{what} {id} could not be found.", codes.NOT_FOUND)


def outage_problem(outage: Overloaded | Unavailable, request: Request | None = None) -> Problem:
    """What a client is told if the engine cannot serve it now. The database's own words may name hosts, files
    and users: they go to the log, under the id of the request."""
    if isinstance(outage, Overloaded):
        text = f"Overloaded: {outage}. Retry later."
        return Problem(503, text, codes.OVERLOADED, headers=RETRY_SOON)
    if outage.detail:
        what = "the event feed" if request is None else f"{request.method} {request.path!r}"
        extra = {} if request is None else {"request_id": request.request_id}
        _log.warning("%s refused: %s", what, outage.detail, extra=extra)
    return Problem(503, str(outage), codes.UNAVAILABLE, headers=RETRY_SOON)
