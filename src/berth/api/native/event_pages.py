"""Pages of events: forwards from an index or a time, or backwards from the newest.

Events of one index were written together and are never on two pages: a page may have more than its limit
by those of its last index.

A page that asks for few of many events looks at many. It ends after ``_LOOK_BATCHES`` appends, or
``_LOOK_S``, whatever it has found; the answer says how far it looked, and where to go on.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from berth.api.kernel.codes import BAD_PARAMETER, INDEX_AHEAD, PRUNED
from berth.api.kernel.paging import PAGE_BYTES_MAX
from berth.api.kernel.problem import Problem, outage_problem
from berth.api.kernel.times import show_time_ns
from berth.api.native import event_kinds as wire
from berth.api.native.calls import NativeCall
from berth.api.native.changes import Names, event_of, names_of
from berth.api.native.event_filters import EventFilter, FilterQuery, find_subjects
from berth.engine import Engine, Pruned, Unavailable
from berth.model.events import Batch
from berth.model.ids import Index

_encode: Final = msgspec.json.Encoder().encode

STEP_BATCHES: Final = 16
"""How many batches are read, decoded and rendered in one go, so that the loop is not blocked for long."""
CHANGES_AT_ONCE: Final = 256
"""How many changes are rendered before others have their turn; the changes of one request stay together."""

_LOOK_BATCHES: Final = 10_000
_LOOK_S: Final = 5.0


class Span:
    """What is asked for: behind ``after``, or from ``last`` backwards, and between two times."""

    def __init__(self, after: Index, last: Index, since_ns: int | None, until_ns: int | None) -> None:
        self.after = after
        self.last = last
        self.since_ns = since_ns
        self.until_ns = until_ns

    def has(self, batch: Batch) -> bool:
        return (self.since_ns is None or batch.at_ns >= self.since_ns) and (
            self.until_ns is None or batch.at_ns <= self.until_ns
        )


async def read_filter(call: NativeCall, query: FilterQuery) -> EventFilter | None:
    """The filter of a query; None if it asks for everything."""
    query.check()
    if query.is_everything:
        return None
    return EventFilter(query, await call.read(lambda view: find_subjects(view, query.subject)))


class EventPage:
    """One page, as it is being filled."""

    def __init__(self, call: NativeCall, names: Names, chosen: EventFilter | None) -> None:
        self._engine = call.services.engine
        self._clock = call.services.clock
        self._limit: int = call.query.limit
        self._names = names
        self._filter = chosen
        self._ends_ns = self._clock.monotonic_ns() + int(_LOOK_S * 1e9)
        self._looked = 0
        self._size = 0
        self._oldest: Batch | None = None
        self.events: list[wire.Event] = []

    @property
    def is_full(self) -> bool:
        return len(self.events) >= self._limit or self._size > PAGE_BYTES_MAX

    @property
    def has_looked_enough(self) -> bool:
        return self._looked >= _LOOK_BATCHES or self._clock.monotonic_ns() > self._ends_ns

    async def take(self, batch: Batch) -> None:
        """Add what is meant of a batch."""
        self._looked += 1
        if self._oldest is None or batch.index < self._oldest.index:
            self._oldest = batch
        rendered = 0
        for entry in batch.entries:
            origin = entry.origin
            if self._filter is not None and not self._filter.is_asked_by(
                origin.request_id, origin.global_id, origin.user, origin.project
            ):
                continue
            event: wire.Event | None = event_of(batch, entry, self._names)
            rendered += len(entry.events)
            if self._filter is not None and event is not None:
                event = self._filter.narrow(event)
            if event is not None:
                self.events.append(event)
                self._size += len(_encode(event))
            if rendered > CHANGES_AT_ONCE:
                rendered = 0
                await asyncio.sleep(0)

    def answer(self, next: int, index: Index, *, complete: bool) -> wire.Events:
        oldest = self._oldest
        return wire.Events(
            self.events,
            next,
            index,
            complete,
            None if oldest is None else oldest.index,
            None if oldest is None else show_time_ns(oldest.at_ns),
        )


async def make_page(call: NativeCall, chosen: EventFilter | None, span: Span, current: Index) -> wire.Events:
    """From the oldest on."""
    page = EventPage(call, await call.read(names_of), chosen)
    at = span.after
    async for batch in _read_forwards(call.services.engine, span.after):
        if page.is_full or page.has_looked_enough:
            return page.answer(at, max(current, at), complete=False)
        if span.until_ns is not None and batch.at_ns > span.until_ns:
            return page.answer(at, max(current, at), complete=True)
        if span.has(batch):
            await page.take(batch)
        at = batch.index
    return page.answer(at, max(current, at), complete=True)


async def make_newest_page(
    call: NativeCall, chosen: EventFilter | None, span: Span, current: Index
) -> wire.Events:
    """From the newest on, newest first. ``next`` is where the next page begins: before that index."""
    page = EventPage(call, await call.read(names_of), chosen)
    at = Index(span.last + 1)
    async for batch in _read_backwards(call.services.engine, span.after, span.last):
        if page.is_full or page.has_looked_enough:
            return page.answer(at, current, complete=False)
        if span.since_ns is not None and batch.at_ns < span.since_ns:
            return page.answer(at, current, complete=True)
        before = len(page.events)
        if span.has(batch):
            await page.take(batch)
            page.events[before:] = reversed(page.events[before:])
        at = batch.index
    return page.answer(at, current, complete=True)


async def _read_forwards(engine: Engine, after: Index) -> AsyncIterator[Batch]:
    while found := await read_history(engine, after, STEP_BATCHES):
        for batch in found:
            yield batch
        after = found[-1].index


async def _read_backwards(engine: Engine, after: Index, last: Index) -> AsyncIterator[Batch]:
    """What is kept behind ``after``, from ``last`` on."""
    while after < last:
        start = Index(max(after, last - STEP_BATCHES))
        try:
            found = await engine.history(start, last - start)
        except Pruned as too_old:
            if too_old.oldest > last:
                return
            after = Index(too_old.oldest - 1)
            found = await read_history(engine, after, last - after)
        for batch in reversed(found):
            yield batch
        last = start


# -- where a page begins and ends ---------------------------------------------------------------


def read_time_ns(name: str, text: str) -> int:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Problem(
            400, f"{name}: it must be a time such as 2026-01-31T09:30:00Z; it is {text!r}.", BAD_PARAMETER
        ) from None
    moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e9)


async def find_oldest(engine: Engine) -> Index:
    """The index before the oldest that is kept."""
    try:
        await engine.history(Index(0), 1)
    except Pruned as too_old:
        return Index(too_old.oldest - 1)
    return Index(0)


async def find_index_before(engine: Engine, at_ns: int, low: Index, high: Index) -> Index:
    """The last index, from ``low`` to ``high``, before which everything was written before a time: found in
    some 17 steps in a journal of 100,000 appends. Times are those of the writers' clocks."""
    while low < high:
        middle = Index((low + high) // 2)
        [batch] = await read_history(engine, middle, 1)
        if batch.at_ns < at_ns:
            low = batch.index
        else:
            high = middle
    return low


def reach(after: int, current: Index) -> Index:
    """An index that a reader names; Problem if the journal does not have it (any more)."""
    if after <= current:
        return Index(after)
    start_at = f"/berth/v1/events?after={current}"
    raise Problem(
        410,
        f"after: the journal ends at index {current}; {after} is beyond it. The region was restored from a "
        f"backup, or the index is another region's. Read the present state, then go on from {start_at}.",
        INDEX_AHEAD,
        more={"start_at": start_at},
    )


async def read_history(engine: Engine, after: Index, count: int) -> list[Batch]:
    try:
        return await engine.history(after, count)
    except Pruned as too_old:
        raise pruned_problem(too_old.oldest) from too_old
    except Unavailable as outage:
        raise outage_problem(outage) from outage


def pruned_problem(oldest: Index) -> Problem:
    start_at = f"/berth/v1/events?after={oldest - 1}"
    return Problem(
        410,
        f"Events are kept from index {oldest} on; what was asked for is older. Read the present state "
        f"(/berth/v1/consumers, /berth/v1/allocations, /resource_providers), then go on from {start_at}.",
        PRUNED,
        more={"oldest_index": oldest, "start_at": start_at},
    )
