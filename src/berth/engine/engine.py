"""One writer per process, and the rule that nothing is answered before it is durable.

The naive design gives every request a transaction of its own: read, decide, write, commit, retry. It
spends a disk flush per request and its writers chase each other on a hot provider. Here commands queue
while an append is in flight, and the next append takes them all:

    queued -> decided and applied to the view, in order -> appended as one batch -> answered

The view runs ahead of the journal by at most the one batch in flight. An answer, a read's too, waits
until what it saw is durable. If the append fails, its events are taken back (inverse, last first), the
journal is read again, and the batch is decided anew or, where the journal cannot be written, refused;
readers that had seen it look again. After a failure of unknown outcome the batch is searched for by its
id: what got in is kept, and its answers stand.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from berth.journal import Conflict, Journal, JournalFailure
from berth.ledger import decide
from berth.model.batches import Batch, Entry
from berth.model.commands import Command
from berth.model.events import inverse
from berth.model.ids import Index
from berth.model.origin import Origin
from berth.model.rejections import Rejection
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.view import View

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Overloaded(Exception):
    """The queue is full; the command was not taken. Try again in a moment."""


class Unavailable(Exception):
    """The journal cannot be read or written now. What was asked has not been done, as far as is known: if
    the journal is out of reach altogether, it may turn out to be in it after all."""


class Observer(Protocol):
    """Who wants to know how the writer is doing."""

    def appended(self, index: Index, commands: int, seconds: float) -> None: ...

    def queued(self, depth: int) -> None: ...

    def rejected(self, kind: str) -> None: ...


class _Pending:
    """A command on its way, with the question to ask the view once it is applied."""

    __slots__ = ("answer", "command", "future", "origin", "outcome")

    def __init__(
        self,
        command: Command,
        origin: Origin,
        answer: Callable[[View, bool], Any],
        future: asyncio.Future[Any],
    ) -> None:
        self.command = command
        self.origin = origin
        self.answer = answer
        self.future = future
        self.outcome: Any = None


def replay(journal: Journal, view: View) -> None:
    """Bring a view up to the end of the journal."""
    for batch in journal.read(view.index):
        _apply_batch(view, batch)


def _apply_batch(view: View, batch: Batch) -> None:
    for entry in batch.entries:
        for event in entry.events:
            view.apply(event)
    view.index = batch.index


class Engine:
    """Owns the view and the only path that changes it.

    ``shared`` says that other processes write to the same journal: then a read looks for their writes
    first, and reads that arrive together share one look.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        ids: Ids,
        observer: Observer,
        *,
        shared: bool = False,
        queue_commands_max: int = 4096,
        batch_commands_max: int = 512,
    ) -> None:
        self.view = View()
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._observer = observer
        self._shared = shared
        self._queue_max = queue_commands_max
        self._batch_max = batch_commands_max
        self._queue: deque[_Pending] = deque()
        self._work = asyncio.Event()
        self._stopping = False
        self._closed = False
        # Why the view cannot be trusted, if it cannot: the journal could not be read after a failure.
        self._doubt: str | None = None
        # What has put an end to this engine, if anything has.
        self._bug: str | None = None
        # Held by whoever moves the view: the writer, or a look at the journal's tail.
        self._turn = asyncio.Lock()
        # The append in flight: resolves to whether the batch stayed.
        self._in_flight: asyncio.Future[bool] | None = None
        self._next_look: asyncio.Task[None] | None = None
        # One thread, so that the journal is used by one thread at a time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._writer: asyncio.Task[None] | None = None

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the journal, then begin to write."""
        await self._on_thread(replay, self._journal, self.view)
        self._writer = asyncio.create_task(self._write_forever(), name="writer")

    async def stop(self) -> None:
        """Take no more commands, finish those taken, let go of the journal."""
        self._stopping = True
        self._work.set()
        if self._writer is not None:
            # A writer that a bug has stopped said so when it happened; what matters now is to let go.
            await asyncio.gather(self._writer, return_exceptions=True)
        # In turn, so that a look that has begun can end; one that has not finds the engine closed.
        async with self._turn:
            if not self._closed:
                self._closed = True
                await self._on_thread(self._journal.close)
                self._thread.shutdown()

    @property
    def ready(self) -> str | None:
        """None when the engine can answer, else why not."""
        if self._writer is None:
            return "starting: the journal is being read"
        return self._bug or self._doubt or ("stopping" if self._stopping else None)

    # -- asking ---------------------------------------------------------------------------------

    async def read(self, answer: Callable[[View], T]) -> T:
        """What ``answer`` says of a view that is current and durable."""
        while True:
            if self._bug is not None or self._shared or self._doubt is not None:
                self._refuse_if_stopped()
                await self._look()
            result = answer(self.view)
            if self._in_flight is None or await asyncio.shield(self._in_flight):
                return result

    async def submit(
        self, command: Command, origin: Origin, answer: Callable[[View, bool], T]
    ) -> T | Rejection:
        """Carry a command out, and answer from the view right after it; or say why not.

        ``answer`` gets the view and whether the command changed anything.
        """
        self._refuse_if_stopped()
        if len(self._queue) >= self._queue_max:
            raise Overloaded(f"{self._queue_max} commands are waiting already")
        future: asyncio.Future[T | Rejection] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(command, origin, answer, future))
        self._work.set()
        return await future

    def _refuse_if_stopped(self) -> None:
        if self._stopping or self._bug is not None or self._writer is None:
            raise Unavailable(self.ready or "stopping")

    # -- writing --------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        while True:
            await self._work.wait()
            while self._queue:
                taken = min(len(self._queue), self._batch_max)
                waiting = [self._queue.popleft() for _ in range(taken)]
                self._observer.queued(len(self._queue))
                async with self._turn:
                    await self._carry_out(waiting)
            if self._stopping:
                return
            self._work.clear()

    async def _carry_out(self, waiting: list[_Pending]) -> None:
        """Decide, append and answer these commands, as often as it takes to win the race."""
        try:
            while True:
                if self._doubt is not None or self._bug is not None:
                    await self._catch_up()
                batch = self._decide(waiting)
                if batch is None:
                    # No append has shown that the view was current. Others may have written what would
                    # turn these refusals around.
                    if not self._shared or not await self._catch_up():
                        break
                elif await self._append(batch, len(waiting)):
                    break
        except Unavailable as unavailable:
            _settle_all(waiting, unavailable)
        except Exception as bug:
            _settle_all(waiting, self._stop_for(bug))
            raise
        else:
            for pending in waiting:
                _settle(pending.future, pending.outcome)

    def _stop_for(self, bug: Exception) -> Unavailable:
        """An invariant is broken and the view may be half changed: nobody may see it. Every later request
        is refused, and a restart reads the truth from the journal."""
        self._bug = f"stopped by a bug, restart needed: {bug!r}"
        _log.critical("the writer is stopped by a bug; restart this process", exc_info=bug)
        stopped = Unavailable(self._bug)
        _settle_all(self._queue, stopped)
        self._queue.clear()
        return stopped

    def _decide(self, waiting: list[_Pending]) -> Batch | None:
        """Decide and apply each command in turn; None when nothing changed."""
        now_ns = self._clock.now_ns()
        now_s = now_ns // 1_000_000_000
        view = self.view
        entries = []
        for pending in waiting:
            verdict = decide(view, pending.command, now_s)
            if isinstance(verdict, Rejection):
                self._observer.rejected(type(verdict).__name__)
                pending.outcome = verdict
                continue
            for event in verdict:
                view.apply(event)
            if verdict:
                entries.append(Entry(pending.origin, tuple(verdict)))
            try:
                pending.outcome = pending.answer(view, bool(verdict))
            except Exception as bug:
                # The change stands; only its caller's answer is lost.
                pending.outcome = bug
        if not entries:
            return None
        view.index = Index(view.index + 1)
        return Batch(view.index, self._ids.batch_id(), now_ns, tuple(entries))

    async def _append(self, batch: Batch, commands: int) -> bool:
        """Whether the batch is in the journal; if not, the view is as if it had never been decided."""
        self._in_flight = asyncio.get_running_loop().create_future()
        started_ns = self._clock.monotonic_ns()
        stayed = False
        try:
            await self._on_thread(self._journal.append, batch)
            stayed = True
        except Conflict:
            self._take_back(batch)
            await self._catch_up()
        except JournalFailure as failure:
            self._take_back(batch)
            self._doubt = str(failure)
            stayed = batch.id in await self._catch_up()
            if not stayed:
                raise Unavailable(str(failure)) from failure
        finally:
            in_flight, self._in_flight = self._in_flight, None
            in_flight.set_result(stayed)
        if stayed:
            seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
            self._observer.appended(batch.index, commands, seconds)
        return stayed

    def _take_back(self, batch: Batch) -> None:
        for entry in reversed(batch.entries):
            for event in reversed(entry.events):
                self.view.apply(inverse(event))
        self.view.index = Index(batch.index - 1)

    # -- catching up ----------------------------------------------------------------------------

    async def _look(self) -> None:
        """Learn what others have written. Joins a look only if that has not begun yet: one that has may
        have missed a write that was acknowledged before this read arrived."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_in_turn())
        await asyncio.shield(self._next_look)

    async def _look_in_turn(self) -> None:
        async with self._turn:
            self._next_look = None
            await self._catch_up()

    async def _catch_up(self) -> set[str]:
        """Apply what the journal has beyond the view; the ids of the batches found there."""
        if self._bug is not None or self._closed:
            raise Unavailable(self.ready or "stopped")
        found = set()
        try:
            for batch in await self._on_thread(self._read_tail, self.view.index):
                _apply_batch(self.view, batch)
                found.add(batch.id)
        except JournalFailure as failure:
            self._doubt = str(failure)
            raise Unavailable(str(failure)) from failure
        except Exception as bug:
            raise self._stop_for(bug) from bug
        self._doubt = None
        return found

    def _read_tail(self, after: Index) -> list[Batch]:
        return list(self._journal.read(after))

    async def _on_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


def _settle_all(waiting: Iterable[_Pending], error: Exception) -> None:
    for pending in waiting:
        _settle(pending.future, error)


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return  # the caller is gone; what it asked for has been done all the same
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
