"""One call of /berth/v1: what a handler is given, and the forms of its answer.

A list is a function of the view alone, ``Reader``. Everything around it (the tag, the condition, the
encoding) is the same for all lists and stands here.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from berth.api.etags import CONDITION, StateTags, body_tag, names, tagged
from berth.api.etags import HEADER as ETAG
from berth.api.http import JSON, Request, Response
from berth.api.native.errors import NativeProblem
from berth.api.native.feed import Feed
from berth.engine import Engine
from berth.model.ids import Index
from berth.view import View

_NO_CACHE: Final = ("cache-control", "no-cache")
_encode: Final = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """``query`` is what the route's struct made of the query string."""

    request: Request
    query: Any
    engine: Engine
    feed: Feed
    tags: StateTags


Handler = Callable[[Call], Awaitable[Response]]


class Route(NamedTuple):
    """A path that can be read. ``rule`` is the policy's; None: for everybody whose token is known.

    ``answer`` None: a JSON object that no struct describes. ``is_stream``: it may be asked for as
    server-sent events instead.
    """

    handler: Handler
    rule: str | None
    query: type[msgspec.Struct]
    answer: type[msgspec.Struct] | None
    name: str
    summary: str
    description: str
    is_stream: bool = False


Reader = Callable[[View, Request, Any], msgspec.Struct]


def listing(reader: Reader) -> Handler:
    """The handler that answers with what a reader says of the view; 304 to whom has that already."""

    async def handle(call: Call) -> Response:
        request = call.request
        if CONDITION in request.headers:
            index = await call.engine.read(lambda view: view.index)
            tag = call.tags.tag(index, request)
            if names(request, tag):
                return Response(304, headers=[(ETAG, tag), _NO_CACHE])

        def answer(view: View) -> tuple[Index, bytes] | NativeProblem:
            # A refusal is an answer too: it waits, like any, until what it saw is durable.
            try:
                return view.index, _encode(reader(view, request, call.query))
            except NativeProblem as problem:
                return problem

        answered = await call.engine.read(answer)
        if isinstance(answered, NativeProblem):
            raise answered
        index, body = answered
        return tagged(request, json(body), call.tags.tag(index, request))

    return handle


def fixed(call: Call, body: bytes) -> Response:
    """A body that follows from the program alone."""
    return tagged(call.request, json(body), body_tag(body))


def json(body: bytes) -> Response:
    return Response(200, body, JSON, [_NO_CACHE])


def encoded(answer: msgspec.Struct) -> Response:
    return json(_encode(answer))
