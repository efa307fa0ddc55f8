"""One call of /berth/v1: what a handler is given, and the forms of its answer.

A list is a function of the view alone, ``Reader``. Everything around it (the tag, the condition, the
encoding) is the same for all lists and stands here.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller
from berth.api.kernel.call import Call, Services
from berth.api.kernel.etags import CONDITION, StateTags, add_tag, is_named, make_body_tag
from berth.api.kernel.etags import HEADER as ETAG
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import berth_problem
from berth.api.kernel.router import Route
from berth.api.native.feed import Feed
from berth.api.native.fields import NoQuery
from berth.model.commands import Command
from berth.model.ids import Index
from berth.model.rejections import Rejection
from berth.view import View

T = TypeVar("T")

_NO_CACHE: Final = ("cache-control", "no-cache")
_VARY: Final = ("vary", TOKEN_HEADER)
"""Lists are not the same for every caller."""
_encode: Final = msgspec.json.Encoder().encode


class NativeCall(Call):
    """``query`` and ``body`` are what the route's structs made of them."""

    __slots__ = ("body", "feed", "query", "tags")

    def __init__(
        self,
        request: Request,
        caller: Caller,
        params: tuple[str, ...],
        services: Services,
        rules: tuple[str, ...],
        *,
        query: Any,
        body: Any,
        feed: Feed,
        tags: StateTags,
    ) -> None:
        super().__init__(request, caller, params, services, rules)
        self.query = query
        self.body = body
        self.feed = feed
        self.tags = tags

    def problem_of(self, rejection: Rejection) -> Problem:
        return berth_problem(rejection, names_hosts=self.access.sees_hosts)


NativeHandler = Callable[[NativeCall], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class NativeRoute(Route[NativeHandler]):
    """``answer`` None: a JSON object that no struct describes, or nothing at all where the ``status`` is 204.
    ``is_stream``: it may be asked for as server-sent events instead. ``is_tagged``: what a GET answers
    follows from the state alone, so that a client can ask whether it has it already.
    """

    name: str
    summary: str
    description: str
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    is_stream: bool = False
    is_tagged: bool = True


def change_found(
    call: NativeCall,
    find: Callable[[View, NativeCall], T | Rejection],
    change: Callable[[View, int, T], Command | Rejection],
) -> Callable[[View, int], Command | Rejection]:
    """The proposal to change what ``find`` finds for the caller, or to reject what it does not."""

    def propose(view: View, now_s: int) -> Command | Rejection:
        found = find(view, call)
        return found if isinstance(found, Rejection) else change(view, now_s, found)

    return propose


Reader = Callable[[View, NativeCall], msgspec.Struct]


def listing(reader: Reader) -> NativeHandler:
    """The handler that answers with what a reader says of the view; 304 to a client that has it already."""

    async def handle(call: NativeCall) -> Response:
        request = call.request
        if CONDITION in request.headers:
            index = await call.read(lambda view: view.index)
            tag = call.tags.tag(index, request, caller=call.caller)
            if is_named(request, tag):
                return Response(304, headers=[(ETAG, tag), _NO_CACHE, _VARY])

        def answer(view: View) -> tuple[Index, bytes]:
            return view.index, _encode(reader(view, call))

        index, body = await call.read(answer)
        response = json(body)
        response.headers.append(_VARY)
        return add_tag(request, response, call.tags.tag(index, request, caller=call.caller))

    return handle


def fixed(call: NativeCall, body: bytes) -> Response:
    """A body that follows from the program alone."""
    return add_tag(call.request, json(body), make_body_tag(body))


def json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, JSON, [_NO_CACHE])


def encoded(answer: msgspec.Struct, status: int = 200) -> Response:
    return json(_encode(answer), status)
