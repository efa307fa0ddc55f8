"""GET /berth/v1/events: what has changed, who asked and when; in pages (``event_pages``) or as a stream.

Streams share one feed. The naive design lets every stream wait for news and read the journal by itself. The
journal has one thread, which appends: a hundred watchers would each take a turn on it for every append, and
slow down the writes that they watch. Here one follower reads what is new while a stream is open, and keeps
the newest of it, up to a number and a size. A stream holds nothing but its position:

    behind what is kept -> reads the journal, step by step, until it has caught up
    within it           -> takes it from there
    at its end          -> waits; nothing within a heartbeat: a comment, so that both sides notice a loss

A stream whose client does not read holds what was rendered for it until it is dropped. So a stream takes a
step at a time, limited in number and in bytes, and hands it over in small pieces; streams at the same index
share one rendering; and while all that is rendered takes too much memory, streams that are behind wait. A
stream with a filter reads what was rendered for all, and sends what is meant.

A stream ends when the server stops, when its client leaves or stops taking what is sent, and, with an error
event, when the journal cannot be read or no longer has what comes next. It can be resumed: an id is sent
with the last event of an index, never earlier, so a client has all events up to the id that it names.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Annotated, Final, Literal
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_PARAMETER, TOO_MANY_SEARCHES, TOO_MANY_STREAMS, UNEXPECTED
from berth.api.kernel.http import Request, Response, StreamResponse
from berth.api.kernel.problem import Problem, outage_problem
from berth.api.native import event_kinds as wire
from berth.api.native.calls import NativeCall, NativeRoute, make_refusal, respond
from berth.api.native.changes import Names, event_of, names_of
from berth.api.native.event_filters import EventFilter, FilterQuery
from berth.api.native.event_pages import (
    CHANGES_AT_ONCE,
    STEP_BATCHES,
    Span,
    find_index_before,
    find_oldest,
    make_newest_page,
    make_page,
    pruned_problem,
    reach,
    read_filter,
    read_time_ns,
)
from berth.api.native.fields import LIMIT_DEFAULT, Limit
from berth.engine import Engine, Pruned, Unavailable
from berth.model.events import Batch
from berth.model.ids import Index

_log = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(wire.Event).decode
_DATA: Final = b"data: "

EVENT_STREAM: Final = "text/event-stream"
LAST_EVENT_ID: Final = "last-event-id"
INDEX_MAX: Final = 2**63 - 1

_STEP_BYTES: Final = 256 << 10
"""The size of one rendered step; its last batch may go beyond it."""
_RENDERED_BYTES_MAX: Final = 16 << 20
"""The size of everything that is rendered; the last step may go beyond it."""

_PIECE_BYTES: Final = 64 << 10
_KEPT_BATCHES: Final = 1024
_KEPT_BYTES: Final = 4 << 20
_PACE_S: Final = 0.05
"""How long the follower pauses between reads; what is appended meanwhile is read together."""

_SEARCHES_MAX: Final = 4
"""How many pages may search the journal at a time. Each may decode 10,000 appends, on the loop that answers
everybody."""

_LOOK_AGAIN_S: Final = 60.0
_RECOVER_S: Final = 1.0

# -- queries ------------------------------------------------------------------------------------

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


Before = Annotated[
    int,
    Meta(ge=1, le=INDEX_MAX, description="Only what is before this index; with `newest=true` alone."),
]
Since = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        description="Only what was written at this time or later, such as 2026-01-31T09:30:00Z.",
    ),
]
Until = Annotated[
    str, Meta(min_length=1, max_length=40, description="Only what was written at this time or before.")
]
Newest = Annotated[
    Literal["true", "false"],
    Meta(description="`true`: the newest first, and backwards from there with `before`."),
]


class EventsQuery(FilterQuery, frozen=True, kw_only=True):
    after: After | None = None
    before: Before | None = None
    since: Since | None = None
    until: Until | None = None
    newest: Newest = "false"
    limit: Limit = LIMIT_DEFAULT
    stream: Stream = "false"


# -- the feed -----------------------------------------------------------------------------------


class Rendered:
    """A batch as server-sent events. Only its last event has the id: a client with the id has the batch."""

    __slots__ = ("__weakref__", "content", "index")

    def __init__(self, index: Index, content: bytes) -> None:
        self.index = index
        self.content = content

    def pieces(self) -> Iterator[bytes]:
        for start in range(0, len(self.content), _PIECE_BYTES):
            yield self.content[start : start + _PIECE_BYTES]


class Feed:
    """The places for streams, and what they share. The follower runs while a stream is open."""

    def __init__(self, engine: Engine, streams_max: int, heartbeat_s: float) -> None:
        self._engine = engine
        self._streams_max = streams_max
        self.heartbeat_s = heartbeat_s
        self._streams = 0
        self._searches = 0
        self._stopping = False
        self._follower: asyncio.Task[None] | None = None
        # The index that the follower has reached, and the newest batches up to it, without a gap.
        self._at = Index(0)
        self._kept: deque[Rendered] = deque()
        self._kept_bytes = 0
        # Every rendered batch that is still held, by its index; and the steps that are being read.
        self._rendered: WeakValueDictionary[Index, Rendered] = WeakValueDictionary()
        self._steps: dict[Index, asyncio.Task[list[Rendered]]] = {}
        # Why the follower has failed, until it retries.
        self._failure: Problem | None = None
        # Set, and replaced by a new one, when there is more to send or nothing more to come.
        self._news = asyncio.Event()

    # -- life -----------------------------------------------------------------------------------

    def open(self, current: Index) -> None:
        """Take a place for a stream, which ``close`` frees; Problem if all are taken."""
        if self._streams >= self._streams_max:
            raise Problem(
                503,
                f"{self._streams_max} streams are open already (event_streams_max). "
                "Read pages, or try again later.",
                TOO_MANY_STREAMS,
                headers=(("retry-after", "5"),),
            )
        self._streams += 1
        if self._streams == 1:
            self._at = current
            self._follower = asyncio.create_task(self._follow(), name="event feed")

    def close(self) -> None:
        self._streams -= 1
        if not self._streams:
            assert self._follower is not None, "the first stream started it"
            self._follower.cancel()
            self._forget()

    @contextlib.contextmanager
    def search(self) -> Iterator[None]:
        """A place for a page that searches the journal; Problem if all are taken."""
        if self._searches >= _SEARCHES_MAX:
            raise Problem(
                503,
                f"{_SEARCHES_MAX} searches of the journal are under way already. Try again in a moment.",
                TOO_MANY_SEARCHES,
                headers=(("retry-after", "1"),),
            )
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

    def stop(self) -> None:
        """End all streams, now and from now on."""
        self._stopping = True
        self._tell_news()

    # -- a stream -------------------------------------------------------------------------------

    async def pieces(
        self, after: Index, explain: Callable[[Problem], bytes], chosen: EventFilter | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Everything behind ``after`` that the filter chooses, until the client leaves. ``explain`` renders a
        refusal."""
        index = after
        yield b"retry: 1000\n: events after %d\n\n" % index
        try:
            while not self._stopping:
                news = self._news
                if self._failure is not None:
                    raise self._failure
                step = self._kept_after(index)
                if step is None:
                    if not await self._has_room():
                        yield b": waiting for room after %d\n\n" % index
                        continue
                    step = deque(await self._read(index))
                if not step and not await self._wait_for_news(news):
                    yield b": nothing new after %d\n\n" % index
                has_sent = not step
                while step:
                    # Free what was sent.
                    rendered = step.popleft()
                    content = rendered if chosen is None else await _narrow(rendered, chosen)
                    for piece in content.pieces():
                        has_sent = True
                        yield piece
                    index = rendered.index
                if not has_sent:
                    # The client need not look at this again when it reconnects.
                    yield b": nothing that matches\nid: %d\n\n" % index
        except Problem as problem:
            yield b"event: error\ndata: %b\n\n" % explain(problem)

    def _kept_after(self, index: Index) -> deque[Rendered] | None:
        """A step of what is kept behind an index; None if part of it is no longer kept."""
        missing = self._at - index
        step: deque[Rendered] = deque()
        if missing <= 0:
            return step
        if missing > len(self._kept):
            return None
        first, size = len(self._kept) - missing, 0
        for rendered in itertools.islice(self._kept, first, first + STEP_BATCHES):
            step.append(rendered)
            size += len(rendered.content)
            if size > _STEP_BYTES:
                break
        return step

    async def _has_room(self) -> bool:
        """Wait up to a heartbeat until more may be rendered for streams that are behind; False if not."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self.heartbeat_s
        while sum(len(rendered.content) for rendered in self._rendered.values()) > _RENDERED_BYTES_MAX:
            if self._stopping or loop.time() > end_s:
                return False
            await asyncio.sleep(_PACE_S)
        return True

    async def _wait_for_news(self, news: asyncio.Event) -> bool:
        """Wait up to a heartbeat for news; False if there is none."""
        try:
            async with asyncio.timeout(self.heartbeat_s):
                return await news.wait()
        except TimeoutError:
            return False

    # -- the follower ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        while not self._stopping:
            try:
                await self._take_news()
            except Problem as problem:
                await self._fail(problem)
            except Exception:
                _log.exception("the event feed failed, retrying in %s s", _RECOVER_S)
                await self._fail(Problem(500, "The log of the server has the reason.", UNEXPECTED))
            else:
                await asyncio.sleep(_PACE_S)

    async def _take_news(self) -> None:
        try:
            current = await self._engine.wait_beyond(self._at, _LOOK_AGAIN_S)
        except Unavailable as outage:
            raise outage_problem(outage) from outage
        finally:
            if self._engine.stopping:
                self.stop()
        while self._at < current:
            for rendered in await self._read(self._at):
                self._keep(rendered)
            self._tell_news()

    def _keep(self, rendered: Rendered) -> None:
        self._at = rendered.index
        self._kept.append(rendered)
        self._kept_bytes += len(rendered.content)
        while len(self._kept) > _KEPT_BATCHES or self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft().content)

    async def _fail(self, problem: Problem) -> None:
        """Tell the streams that wait why, and pause before the next attempt. Other streams go on."""
        self._failure = problem
        self._tell_news()
        await asyncio.sleep(_RECOVER_S)
        oldest = problem.more.get("oldest_index")
        if isinstance(oldest, int):
            self._forget()
            self._at = Index(oldest - 1)
        self._failure = None

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0
        self._failure = None

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _read(self, index: Index) -> list[Rendered]:
        """A step of what is behind an index. Streams that ask for the same step share one read."""
        step = self._steps.get(index)
        if step is None:
            step = self._steps[index] = asyncio.create_task(self._read_step(index), name="event feed step")
            step.add_done_callback(functools.partial(self._end_step, index))
        return await asyncio.shield(step)

    def _end_step(self, index: Index, step: asyncio.Task[list[Rendered]]) -> None:
        del self._steps[index]
        if not step.cancelled():
            step.exception()  # Its waiters get the exception; without waiters it is dropped.

    async def _read_step(self, index: Index) -> list[Rendered]:
        try:
            batches = await self._engine.history(index, STEP_BATCHES)
            names = await self._engine.read(names_of)
        except Pruned as too_old:
            raise pruned_problem(too_old.oldest) from too_old
        except Unavailable as outage:
            raise outage_problem(outage) from outage
        step: list[Rendered] = []
        size = 0
        for batch in batches:
            rendered = self._rendered.get(batch.index)
            if rendered is None:
                rendered = self._rendered[batch.index] = Rendered(batch.index, await _render(batch, names))
            step.append(rendered)
            size += len(rendered.content)
            if size > _STEP_BYTES:
                break
        return step


async def _render(batch: Batch, names: Names) -> bytes:
    lines = []
    changes = 0
    for entry in batch.entries:
        lines.append(b"event: change\ndata: %b\n" % _encode(event_of(batch, entry, names)))
        changes += len(entry.events)
        if changes > CHANGES_AT_ONCE:
            changes = 0
            await asyncio.sleep(0)
    if not lines:
        return b": nothing changed\nid: %d\n\n" % batch.index
    return _join(lines, batch.index)


async def _narrow(rendered: Rendered, chosen: EventFilter) -> Rendered:
    """Of a batch what is meant."""
    lines = []
    for number, line in enumerate(rendered.content.split(b"\n")):
        if line.startswith(_DATA):
            event = chosen.narrow(_decode(line[len(_DATA) :]))
            if event is not None:
                lines.append(b"event: change\ndata: %b\n" % _encode(event))
        if number % CHANGES_AT_ONCE == CHANGES_AT_ONCE - 1:
            await asyncio.sleep(0)
    return Rendered(rendered.index, _join(lines, rendered.index) if lines else b"")


def _join(lines: list[bytes], index: Index) -> bytes:
    """Only the last event has the id."""
    return b"\n".join([*lines[:-1], b"%bid: %d\n\n" % (lines[-1], index)])


# -- handlers -----------------------------------------------------------------------------------


async def list_events(call: NativeCall) -> Response:
    query: EventsQuery = call.query
    is_stream = query.stream == "true" or EVENT_STREAM in call.request.headers.get("accept", "")
    _refuse_unfit(query, is_stream=is_stream)
    chosen = await read_filter(call, query)
    current = await call.read(lambda view: view.index)
    if is_stream:
        after = _read_last_event_id(call.request)
        after = query.after if after is None else after
        return _respond_stream(call, current if after is None else reach(after, current), current, chosen)
    with contextlib.nullcontext() if chosen is None else call.feed.search():
        return respond(await _read_page(call, query, chosen, current))


async def _read_page(
    call: NativeCall, query: EventsQuery, chosen: EventFilter | None, current: Index
) -> wire.Events:
    engine = call.services.engine
    after = None if query.after is None else reach(query.after, current)
    start = await find_oldest(engine) if after is None else after
    last = current if query.before is None else Index(min(current, query.before - 1))
    since_ns = None if query.since is None else read_time_ns("since", query.since)
    until_ns = None if query.until is None else read_time_ns("until", query.until)
    span = Span(start, last, since_ns, until_ns)
    if query.newest == "true":
        if until_ns is not None:
            oldest = await find_oldest(engine)
            span.last = await find_index_before(engine, until_ns + 1, oldest, last)
        return await make_newest_page(call, chosen, span, current)
    if since_ns is not None and after is None:
        span.after = await find_index_before(engine, since_ns, start, last)
    return await make_page(call, chosen, span, current)


def _refuse_unfit(query: EventsQuery, *, is_stream: bool) -> None:
    """Refuse parameters that do not go together."""
    given = {"before": query.before, "since": query.since, "until": query.until}
    named = [name for name, value in given.items() if value is not None]
    if is_stream and (named or query.newest == "true"):
        unfit = (*named, "newest")[0]
        raise Problem(400, f"{unfit}: it is for pages; a stream goes on from `after`.", BAD_PARAMETER)
    if query.before is not None and query.newest == "false":
        raise Problem(400, "before: it goes with newest=true.", BAD_PARAMETER)


def _respond_stream(call: NativeCall, after: Index, current: Index, chosen: EventFilter | None) -> Response:
    feed = call.feed
    feed.open(current)
    pieces = feed.pieces(after, lambda problem: _encode(make_refusal(problem, call.request)), chosen)
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
        "`Last-Event-ID` misses nothing. Filters choose events; of an event that is chosen by `kind` or "
        "`subject` the changes that match are shown. A page looks at no more than 10,000 appends; the answer "
        "says how far it looked. A process searches for a few pages at a time, and more get 503 with "
        "`Retry-After`. `before`, `since`, `until`, `newest` and `limit` are for pages.",
    ),
)
