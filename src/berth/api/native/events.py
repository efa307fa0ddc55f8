"""GET /berth/v1/events: what has changed, who asked and when; in pages or as a stream.

Events of one index were written together and are never on two pages: a page may have more than its limit
by those of its last index.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_PARAMETER, INDEX_AHEAD
from berth.api.kernel.http import Request, Response, StreamResponse
from berth.api.kernel.paging import PAGE_BYTES_MAX
from berth.api.kernel.problem import Problem
from berth.api.native import event_kinds as wire
from berth.api.native.calls import NativeCall, NativeRoute, make_refusal, respond
from berth.api.native.changes import class_names, events_of
from berth.api.native.feed import STEP_BATCHES, pruned_problem
from berth.api.native.fields import LIMIT_DEFAULT, Limit
from berth.engine import Engine, Pruned
from berth.model.events import Batch
from berth.model.ids import Index

INDEX_MAX: Final = 2**63 - 1
After = Annotated[
    int,
    Meta(
        ge=0,
        le=INDEX_MAX,
        description="The last index already known. Without it a page begins with the oldest event kept, "
        "and a stream with the next one to come.",
    ),
]
Stream = Annotated[
    Literal["true", "false"],
    Meta(description="`true`: server-sent events without end, as with `Accept: text/event-stream`."),
]


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: After | None = None
    limit: Limit = LIMIT_DEFAULT
    stream: Stream = "false"


EVENT_STREAM: Final = "text/event-stream"
LAST_EVENT_ID: Final = "last-event-id"
_encode: Final = msgspec.json.Encoder().encode


async def list_events(call: NativeCall) -> Response:
    query: EventsQuery = call.query
    current = await call.read(lambda view: view.index)
    if query.stream == "true" or EVENT_STREAM in call.request.headers.get("accept", ""):
        after = _read_last_event_id(call.request)
        after = query.after if after is None else after
        return _respond_stream(call, current if after is None else _reached(after, current), current)
    after = query.after
    return respond(await _respond_page(call, None if after is None else _reached(after, current), current))


def _reached(after: int, current: Index) -> Index:
    if after > current:
        raise Problem(400, f"after: the journal ends at index {current}; {after} is beyond it.", INDEX_AHEAD)
    return Index(after)


async def _respond_page(call: NativeCall, after: Index | None, current: Index) -> wire.Events:
    names = await call.read(class_names)
    events: list[wire.Event] = []
    start = Index(0) if after is None else after
    try:
        found = await call.services.engine.history(start, STEP_BATCHES)
    except Pruned as too_old:
        if after is not None:
            raise pruned_problem(too_old.oldest) from too_old
        start = Index(too_old.oldest - 1)
        found = await _read_history(call.services.engine, start)
    last = start
    size = 0
    while found:
        for batch in found:
            if len(events) >= call.query.limit or size > PAGE_BYTES_MAX:
                return wire.Events(events, last, max(current, last))
            more = events_of(batch, names)
            events += more
            size += len(_encode(more))
            last = batch.index
        found = await _read_history(call.services.engine, last)
    return wire.Events(events, last, max(current, last))


async def _read_history(engine: Engine, after: Index) -> list[Batch]:
    try:
        return await engine.history(after, STEP_BATCHES)
    except Pruned as too_old:
        raise pruned_problem(too_old.oldest) from too_old


def _respond_stream(call: NativeCall, after: Index, current: Index) -> Response:
    feed = call.feed
    feed.open(current)
    pieces = feed.pieces(after, lambda problem: _encode(make_refusal(problem, call.request)))
    response = StreamResponse(pieces, EVENT_STREAM, feed.close, feed.heartbeat_s)
    response.headers += [("cache-control", "no-store"), ("x-accel-buffering", "no")]
    return response


def _read_last_event_id(request: Request) -> int | None:
    """The index of the last event that a reconnecting client has received."""
    text = request.headers.get(LAST_EVENT_ID)
    if not text:
        return None
    try:
        return msgspec.convert(int(text) if text.isascii() and text.isdigit() else text, After)
    except (ValueError, msgspec.ValidationError):
        raise Problem(
            400, "last-event-id: it must be an index, the id of the last event received.", BAD_PARAMETER
        ) from None


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/events",
        list_events,
        policy="berth:events:list",
        name="list_events",
        query=EventsQuery,
        answer=wire.Events,
        is_stream=True,
        summary="Read the event feed",
        description="Every change since an index, with who asked for it. As JSON in pages, or as "
        "server-sent events without end: `id` is the index, and a client that reconnects with "
        "`Last-Event-ID` misses nothing. `limit` is for pages.",
    ),
)
