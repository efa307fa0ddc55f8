"""One writer per process, and the rule that nothing is answered before it is durable.

The naive design gives every request a transaction of its own: read, decide, write, commit, retry. It
spends a disk flush per request and its writers chase each other on a hot provider. Here commands queue
while an append is in flight, and the next append takes them all:

    queued -> decided and applied to the view, in order -> appended as one batch -> answered

The view runs ahead of the journal by at most the one batch in flight. An answer, a read's too, waits
until what it saw is durable. If the append fails, its events are taken back (inverse, last first), the
journal is read again, and the commands are decided anew; readers that had seen them look again. Where the
outcome of an append is unknown, every batch that was tried for these commands is searched for by its id:
one that got in after all is kept, and its answers stand. A database that is away is waited for, for a
while; one that refuses to write is not.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from berth.engine.attachment import Attachment, ProcessName
from berth.engine.forks import Forks, GaveUp, NoPlace
from berth.engine.journal_thread import JournalCalls, JournalThread, NoAnswer
from berth.engine.snapshots import apply_batch, start_view
from berth.journal import (
    Conflict,
    Damaged,
    FileGone,
    Journal,
    JournalError,
    JournalFailure,
    JournalRow,
    NotWritten,
    Pruned,
    RowRefused,
    Snapshot,
    Snapshots,
    WrittenByNewer,
)
from berth.journal.body import (
    NOTHING,
    Deflated,
    Encoded,
    EncodedEntry,
    encode_entry,
    encode_events,
    join_entries,
)
from berth.ledger import decide
from berth.model.commands import Command, Enact, ReplaceAllocations
from berth.model.events import Batch, Entry, Event, Origin, RecordChanged, inverse
from berth.model.formats import ADDITIONS
from berth.model.ids import Index
from berth.model.rejections import CommandTooLarge, FormatTooOld, Rejection, RowTooLarge
from berth.runtime import tracing
from berth.runtime.backoff import Backoff, retry
from berth.runtime.clock import Clock
from berth.runtime.dependency import Dependency
from berth.runtime.ids import Ids
from berth.runtime.turns import Turns
from berth.view import UNLIMITED, OutOfSteps, View

_PAUSE_FIRST_S: Final = 0.05
_PAUSE_LONGEST_S: Final = 1.0
_DECIDING_NS: Final = 20_000_000
"""How long one batch may be decided, give or take its last command. Meanwhile nobody else is answered."""
_LARGE_BYTES: Final = 256 << 10
"""A command that writes more begins a batch: to judge and to apply a few thousand events takes 20 ms each."""
_RACING_NS: Final = 10_000_000_000
"""How long commands may lose the race for the journal before they are refused."""
_STEPS_MAX: Final = 10_000
"""How many steps one caller's work may take while all others wait: some 10 ms. What takes more is done in a
child process."""
_PLANS_MAX: Final = 3
"""How often a plan is made in a child, if what it chose is gone each time it is judged."""

_REHEARSED: Final = 50
"""How many claims of a plan are judged at once beforehand: a millisecond or so."""

_START_S: Final = 3600.0
"""How long a whole journal may be read."""

_AWAY: Final = "The database is unavailable. Retry later."
_SILENT: Final = "The database does not answer. Retry later."
_REFUSES: Final = "The database refuses writes: nothing was changed. Reads are served. Retry later."
_UNKNOWN: Final = "The database is unavailable. The outcome is unknown: read the state before you retry."
_LOST: Final = "The outcome is unknown and can no longer be found out: read the state before you retry."
_FILE_GONE: Final = "The database file is missing or was replaced. Writes are refused until it is back."
_DAMAGED: Final = "The journal is damaged. The log of this server names the entry."
_NEWER: Final = "The journal was written by a newer Berth than this server. Its log says what to do."
_BUG: Final = "Writes stopped after an internal error. Restart this server; its log has the error."
_STOPPING: Final = "This server is stopping. Retry."

_PROBE_NS: Final = 2_000_000_000
"""How often a database that refuses to write is asked whether it still does."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Overloaded(Exception):
    """The queue is full; the command was not taken. Try again in a moment."""


class Unavailable(Exception):
    """The journal cannot be read or written now. What was asked has not been done, as far as is known: if
    the journal is out of reach altogether, it may turn out to be in it after all.

    The message is for every caller. What the database said is in ``detail``, which is for the log: it may
    name hosts, files and users."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class _BatchTooLarge(Exception):
    """The database takes no row of ``size`` bytes. Nothing of the batch was written, or ever will be."""

    def __init__(self, size: int, says: str) -> None:
        super().__init__(says)
        self.size = size


class Observer(Protocol):
    """Who wants to know how the writer is doing."""

    def appended(self, index: Index, commands: int, seconds: float) -> None: ...

    def queued(self, depth: int) -> None: ...

    def rejected(self, kind: str) -> None: ...

    def conflicted(self) -> None:
        """Another process has appended first."""

    def noticed(self, is_there: bool) -> None:
        """The database was lost, or is back."""


class Planned(NamedTuple):
    """A command, and the answer to its caller, made from the same view. It is given when the command is
    durable."""

    command: Command
    answer: Any


class _Plan(NamedTuple):
    """What comes out of a child: what was made there, and the records that it changes as they are written."""

    made: Command | Planned
    changes: Deflated


Proposal = Command | Callable[[View, int], Command | Planned | Rejection | None]
"""A command; or a function of the view of the moment, and of the time in seconds, that makes one: then
choosing and claiming are one act, and nobody can come in between. It may also return a rejection, or None if
there is nothing to do: then the caller is answered from the view as it is. It must not raise: an exception is
a bug. If the race for the journal is lost, what it made is
judged again; only if that is refused now is it asked again. Otherwise one that takes long would lose to those
that do not, every time. One that takes long is made in a child, on a copy of the view, and what it made
is judged in turn; then too it is asked again only if that is refused."""


class Asker(NamedTuple):
    """On whose behalf something is asked. ``gone`` returns when the answer is not waited for any more."""

    project: str
    gone: Callable[[], Awaitable[object]] | None = None


_NOBODY: Final = Asker("")
ASKER: Final[ContextVar[Asker]] = ContextVar("asker", default=_NOBODY)
"""Who asks, in the task that handles a request: whose share of the children is used, and until when."""


class _Pending:
    """A proposal on its way, with the question to ask the view once it is carried out."""

    __slots__ = (
        "answer",
        "asker",
        "encoded",
        "future",
        "is_alone",
        "made",
        "origin",
        "outcome",
        "plans",
        "proposal",
        "size",
        "trace_point",
    )

    def __init__(
        self,
        proposal: Proposal,
        origin: Origin,
        answer: Callable[[View, bool], Any] | None,
        future: asyncio.Future[Any],
        size: int,
    ) -> None:
        self.size = size
        self.proposal = proposal
        self.asker = ASKER.get()
        self.trace_point = tracing.CURRENT.get()
        self.made: Command | Planned | None = None
        # Of the events of what was made, those at the end that are encoded already.
        self.encoded = NOTHING
        self.plans = 0
        # Whether it goes into a batch of its own.
        self.is_alone = False
        self.origin = origin
        self.answer = answer
        self.future = future
        self.outcome: Any = None


_Look = asyncio.Future[Exception | bool]
"""A look at the journal's end: whether it was made, or how it failed."""


class Engine:
    """Owns the view and the only path that changes it.

    ``shared`` says that other processes write to the same journal: then a read looks for their writes first,
    and reads that arrive together share one look. With those of them that it shares ``turns`` with, it writes
    one after the other. ``answer_seconds``: how long the database may take to answer. ``follow_every_s``: how
    often the journal is looked at on behalf of all who wait for news of others, where nobody else has looked.
    ``forks``: what does the work that takes long; without it all of it is done in turn. ``calls``: who waits
    for the database; a thread, unless said. ``name``: what the log calls the database. ``process``: how
    operators see this process among those that use the journal; without it they do not.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        ids: Ids,
        observer: Observer,
        *,
        shared: bool = False,
        turns: Turns | None = None,
        queue_commands_max: int = 4096,
        batch_commands_max: int = 512,
        queue_bytes_max: int = 64 << 20,
        batch_bytes_max: int = 4 << 20,
        command_bytes_max: int = 8 << 20,
        outage_seconds: float = 10,
        answer_seconds: float = 30,
        follow_every_s: float = 0.5,
        forks: Forks | None = None,
        calls: JournalCalls | None = None,
        name: str = "the database",
        process: ProcessName | None = None,
    ) -> None:
        self.view = View()
        self._name = name
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._observer = observer
        # What spans tell of it.
        self._about = {"berth.database": name}
        self._shared = shared
        self._turns = turns
        self._queue_max = queue_commands_max
        self._batch_max = batch_commands_max
        self._queue_bytes_max = queue_bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._command_bytes_max = command_bytes_max
        self._outage_ns = int(outage_seconds * 1e9)
        self._follow_every_s = follow_every_s
        self._forks = forks
        self._steps_max = UNLIMITED if forks is None else _STEPS_MAX
        self._planning: set[asyncio.Task[None]] = set()
        self._queue: deque[_Pending] = deque()
        self._queue_bytes = 0
        self._work = asyncio.Event()
        self._stopping = False
        self._closed = False
        # Why the view cannot be trusted, if it cannot: the journal could not be read after a failure.
        self._doubt: str | None = None
        # What the database said then, or what was found in it.
        self._detail = ""
        # Whether the database was lost; whether it refused the last write, and when to ask it again.
        self._database = Dependency(name, _log, told=observer.noticed)
        self._writes = Dependency(
            name,
            _log,
            lost_as="refuses writes; writes get 503 until it accepts them, reads are served",
            back_as="accepts writes again",
            told=observer.noticed,
        )
        self._probe_due_ns = 0
        # What was refused because the journal's format is older than it, and logged.
        self._refused_parts: set[str] = set()
        # Whether others are known to have written what the view lacks.
        self._behind = False
        # Whether the journal was looked at since the commands in hand were taken.
        self._is_fresh = False
        # Whether its file is missing.
        self._file = Dependency(
            name,
            _log,
            lost_as="writes are refused with 503",
            back_as="its file is there again",
            told=observer.noticed,
        )
        # What has put an end to this engine, if anything has.
        self._bug: str | None = None
        # Held by whoever moves the view: the writer, or a look at the journal's tail.
        self._turn = asyncio.Lock()
        # The append in flight: resolves to whether the batch stayed.
        self._in_flight: asyncio.Future[bool] | None = None
        # The look that waits for its turn, and the one that has it.
        self._next_look: _Look | None = None
        self._this_look: _Look | None = None
        # Until when those who follow the journal do without a look of their own, by the event loop's clock:
        # it is that which wakes them.
        self._look_due_s = 0.0
        # How far the view has moved for good; and who waits for it to go on.
        self._durable = Index(0)
        self._waiting: dict[object, asyncio.Future[None]] = {}
        # The one of them that looks for what others write, when that is due.
        self._follower: object = None
        self._calls = calls or JournalThread(answer_seconds, name)
        self._attachment = None if process is None else Attachment(journal, self._calls, clock, ids, process)
        self._writer: asyncio.Task[None] | None = None

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the journal, then begin to write."""
        try:
            self.view = await self._retry(self._read_whole)
        except Unavailable as outage:
            # There are no callers yet: this is for the log.
            raise Unavailable(outage.detail) from outage
        self._tell_news()
        self._writer = asyncio.create_task(self._write_forever(), name="writer")
        if self._attachment is not None:
            self._attachment.begin()

    async def stop(self) -> None:
        """Take no more commands, finish those taken, close the journal."""
        self._stopping = True
        self._work.set()
        self._wake_waiting()
        if self._writer is not None:
            # A writer that a bug has stopped said so when it happened; what matters now is to let go.
            await asyncio.gather(self._writer, return_exceptions=True)
        for task in self._planning:
            task.cancel()
        if self._forks is not None:
            self._forks.stop()
        if self._attachment is not None:
            await self._attachment.end()
        # In turn, so that a look that has begun can end; one that has not finds the engine closed.
        async with self._turn:
            if not self._closed:
                self._closed = True
                # A call that hangs ends with the process.
                with contextlib.suppress(NoAnswer):
                    await self._calls.call(self._journal.close)
                self._calls.stop()

    @property
    def broken(self) -> str | None:
        """Why only a restart will help, if that is so."""
        return self._bug

    @property
    def queued(self) -> tuple[int, int]:
        """How many commands wait for their turn, and their bytes."""
        return len(self._queue), self._queue_bytes

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def ready(self) -> str | None:
        """None when the engine can answer, else why not."""
        if self._writer is None:
            return "starting: reading the journal"
        reason = self._bug or self._doubt
        if reason is not None:
            return reason
        if self._stopping:
            # It has closed its file, or is about to.
            return _STOPPING
        if self._calls.is_silent:
            return _SILENT
        if self._file.is_lost:
            return _FILE_GONE
        return _REFUSES if self._writes.is_lost else None

    @property
    def outage(self) -> str | None:
        """As ``ready``, with what the database said or what was found in it, which is for operators."""
        reason = self.ready
        return f"{reason} ({self._detail})" if reason and reason in (self._bug, self._doubt) else reason

    async def check_ready(self) -> str | None:
        """As ``ready``; but the database's file is looked for first, a database that refused to write is
        asked again, now and then, and one that could not be used is read: whoever is told that this is not
        ready asks for nothing, and nobody else would find out."""
        if self._stopping or self._writer is None:
            return self.ready
        with contextlib.suppress(JournalError):
            self._note_missing(await self._calls.call(self._journal.missing))
        now_ns = self._clock.monotonic_ns()
        if self._writes.is_lost and now_ns >= self._probe_due_ns:
            self._probe_due_ns = now_ns + _PROBE_NS
            with contextlib.suppress(JournalError):
                await self._calls.call(self._journal.probe)
                self._writes.regain()
        # Whoever has the turn finds out.
        if self._doubt is not None and not self._turn.locked():
            async with self._turn:
                with contextlib.suppress(JournalFailure, Unavailable):
                    await self._catch_up({})
        return self.ready

    def _note_refused(self, refusal: str) -> None:
        if not self._writes.is_lost:
            self._probe_due_ns = self._clock.monotonic_ns() + _PROBE_NS
        self._writes.lose(refusal)

    def _note_doubt(self, failure: JournalFailure) -> None:
        # That there is no answer is logged where it is waited for.
        is_silent = isinstance(failure, NoAnswer)
        self._database.lose(str(failure), level=logging.DEBUG if is_silent else logging.ERROR)
        self._doubt = _outage_of(failure)
        self._detail = str(failure)

    def _note_missing(self, missing: str | None) -> None:
        if missing is None:
            self._file.regain()
        else:
            self._file.lose(missing)

    # -- asking ---------------------------------------------------------------------------------

    async def look(self) -> None:
        """Make the view current. What it shows then may not be durable yet."""
        if self._must_look():
            await self._look()

    async def read(self, answer: Callable[[View], T]) -> T:
        """What ``answer`` says of a view that is current and durable."""
        await self.look()
        return await self._read_durable(answer)

    async def read_recent(self, answer: Callable[[View], T]) -> T:
        """As ``read``, but others may have written since ``follow_every_s`` ago: for those who come back, and
        whose changes are judged again when they are made."""
        await self._follow()
        return await self._read_durable(answer)

    async def _read_durable(self, answer: Callable[[View], T]) -> T:
        try:
            result = self._limited(answer)
        except OutOfSteps:
            return await self._ask_copy(answer, ASKER.get())
        if self._in_flight is None or await asyncio.shield(self._in_flight):
            return result
        # What it saw was taken back. In turn nothing is in flight: otherwise those who go on trying to write
        # what is refused could keep a reader waiting for ever.
        async with self._turn:
            if self._must_look():
                await self._retry(lambda: self._catch_up({}))
            return answer(self.view)

    def _must_look(self) -> bool:
        """Whether the view may lack what the journal has."""
        if self._bug is not None or self._shared or self._doubt is not None or self._writer is None:
            self._refuse_if_stopped()
            return True
        return False

    async def submit(
        self, proposal: Proposal, origin: Origin, answer: Callable[[View, bool], T] | None, size: int = 0
    ) -> T | Rejection:
        """Carry a proposal out, and answer from the view right after it; or say why not.

        ``answer`` gets the view and whether anything was changed; None: the proposal brings an answer of its
        own. ``size`` is what the command takes of memory while it waits, in bytes, roughly: the queue is
        bounded by it too.
        """
        self._refuse_if_stopped()
        if len(self._queue) >= self._queue_max:
            raise Overloaded(f"{self._queue_max} commands are queued already")
        if self._queue and self._queue_bytes + size > self._queue_bytes_max:
            raise Overloaded(f"{self._queue_bytes} bytes of commands are queued already")
        if not tracing.is_on():
            return await self._enqueue(proposal, origin, answer, size)
        with tracing.span("submit", self._about) as span:
            outcome = await self._enqueue(proposal, origin, answer, size)
            if isinstance(outcome, Rejection):
                span.note({"berth.rejection": type(outcome).__name__})
        return outcome

    def _enqueue(
        self, proposal: Proposal, origin: Origin, answer: Callable[[View, bool], T] | None, size: int
    ) -> asyncio.Future[T | Rejection]:
        """Have the writer take a proposal in its turn; what will come of it."""
        future: asyncio.Future[T | Rejection] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(proposal, origin, answer, future, size))
        self._queue_bytes += size
        self._work.set()
        return future

    async def history(self, after: Index, limit: int) -> list[Batch]:
        """What was appended behind an index, as far as it is kept: ``Pruned`` where it is not."""
        self._refuse_if_stopped()
        try:
            return await self._calls.call(lambda: list(self._journal.read(after, limit)))
        except Damaged as damage:
            raise Unavailable(_DAMAGED, str(damage)) from damage
        except WrittenByNewer as newer:
            raise Unavailable(_NEWER, str(newer)) from newer
        except JournalFailure as failure:
            raise Unavailable(_outage_of(failure), str(failure)) from failure

    async def newest_snapshot(self) -> Snapshot | None:
        """The newest snapshot of the journal, if there is one."""
        self._refuse_if_stopped()
        try:
            found = await self._calls.call(Snapshots(self._journal).all)
        except JournalFailure as failure:
            raise Unavailable(_outage_of(failure), str(failure)) from failure
        return found[0] if found else None

    async def wait_beyond(self, index: Index, timeout_s: float) -> Index:
        """The index of a view that is recent and durable, once it is beyond ``index``; after the timeout, or
        when the engine stops, whatever it is."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        caller = object()
        try:
            while True:
                self._follower = self._follower or caller
                await self._follow()
                if self._durable > index or loop.time() >= deadline_s or self._stopping:
                    return self._durable
                is_follower = self._shared and self._follower is caller
                await self._wait(caller, min(deadline_s, self._look_due_s) if is_follower else deadline_s)
        finally:
            if self._follower is caller:
                # Somebody else who waits takes its place.
                self._follower = None
                for waiting in self._waiting.values():
                    _wake(waiting)
                    break

    async def _wait(self, caller: object, until_s: float) -> None:
        """Wait for news, or until a moment of the event loop's clock."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting[caller] = loop.create_future()
        timer = loop.call_at(until_s, _wake, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            del self._waiting[caller]

    def _refuse_if_stopped(self) -> None:
        if self._stopping or self._bug is not None or self._writer is None:
            raise Unavailable(self.ready or _STOPPING)

    # -- writing --------------------------------------------------------------------------------

    async def _write_forever(self) -> None:
        while True:
            await self._work.wait()
            while self._queue:
                if self._turns is None:
                    await self._write()
                else:
                    await self._write_in_turn(self._turns)
            if self._stopping:
                return
            self._work.clear()

    async def _write(self) -> None:
        waiting = self._take()
        async with self._turn:
            await self._carry_out(waiting)

    async def _write_in_turn(self, turns: Turns) -> None:
        self._behind = await turns.take()
        try:
            await self._write()
        finally:
            turns.give()
        # The answers go out before the next turn is asked for: those who wait for theirs get it.
        await asyncio.sleep(0)

    def _take(self) -> list[_Pending]:
        """All that waits, as far as it fits one batch; at least one."""
        taken: list[_Pending] = []
        size = 0
        while self._queue and len(taken) < self._batch_max:
            if taken and (
                self._queue[0].is_alone
                or taken[0].is_alone
                or size + self._queue[0].size > self._batch_bytes_max
            ):
                break
            pending = self._queue.popleft()
            size += pending.size
            taken.append(pending)
        self._queue_bytes -= size
        self._observer.queued(len(self._queue))
        return taken

    async def _carry_out(self, waiting: list[_Pending]) -> None:
        """Decide, append and answer these commands, as often as it takes to win the race."""
        tried: dict[str, list[Any]] = {}
        self._is_fresh = False
        deadline_ns = self._clock.monotonic_ns() + _RACING_NS
        try:
            outcomes = await self._retry(lambda: self._attempt(waiting, tried))
            while outcomes is None:
                if self._clock.monotonic_ns() > deadline_ns:
                    raise Unavailable("Journal write contention: gave up after 10 s. Retry.")
                outcomes = await self._retry(lambda: self._attempt(waiting, tried))
        except Unavailable as outage:
            # A batch whose fate is unknown may turn up in the journal.
            _settle_all(waiting, Unavailable(_UNKNOWN, outage.detail) if tried else outage)
        except _BatchTooLarge as refused:
            self._refuse_or_split(waiting, refused)
        except Exception as bug:
            _settle_all(waiting, self._stop_for(bug))
            raise
        else:
            for pending, outcome in zip(waiting, outcomes, strict=True):
                if isinstance(outcome, OutOfSteps):
                    self._plan_in_child(pending)
                else:
                    _settle(pending.future, outcome)

    async def _attempt(self, waiting: list[_Pending], tried: dict[str, list[Any]]) -> list[Any] | None:
        """The outcomes of the commands, or None if another writer was first.

        ``tried`` holds the outcomes of each batch that was appended for them, by its id: one whose fate was
        unknown may turn up in the journal later.
        """
        if self._calls.is_silent:
            # What cannot be appended is not decided.
            raise NoAnswer("the database does not answer")
        if (
            self._doubt is not None
            or self._bug is not None
            or (self._behind and not self._catch_up_in_turn())
        ):
            got_in = await self._catch_up(tried)
            if got_in is not None:
                return got_in
        batch = await self._decide(waiting, may_put_off=not tried)
        outcomes = [pending.outcome for pending in waiting]
        if batch is None:
            if not self._shared or self._is_fresh:
                return outcomes
            # Nothing has shown that the view has what was written before these commands came, which might
            # turn their refusals around. Once is enough: what is written later comes later.
            before = self.view.index
            got_in = await self._catch_up(tried)
            return got_in or (outcomes if self.view.index == before else None)
        tried[batch.id] = outcomes
        points = (pending.trace_point for pending in waiting)
        with tracing.span_each("append", points, {"berth.index": batch.index, "berth.batch": len(waiting)}):
            return await self._append(batch, tried)

    async def _retry(self, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat a step while the database is away, as long as an outage may last. One that does not answer
        has been waited for."""

        def stop_early(failure: Exception, pause_s: float) -> None:
            if self._stopping or isinstance(failure, NoAnswer):
                raise failure

        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LONGEST_S)
        outage_s = self._outage_ns / 1e9
        try:
            return await retry(
                step, (JournalFailure,), backoff, clock=self._clock, within_s=outage_s, notice=stop_early
            )
        except JournalFailure as failure:
            raise Unavailable(_outage_of(failure), str(failure)) from failure

    def _stop_for(self, bug: Exception) -> Unavailable:
        """An invariant is broken and the view may be half changed: nobody may see it. Every later request
        is refused, and a restart reads the truth from the journal."""
        if isinstance(bug, Damaged):
            self._bug = _DAMAGED
            _log.critical("%s: writer stopped: %s", self._name, bug)
        elif isinstance(bug, WrittenByNewer):
            self._bug = _NEWER
            _log.critical("%s: stopped serving: %s", self._name, bug)
        else:
            self._bug = _BUG
            _log.critical("%s: writer stopped by a bug; restart this process", self._name, exc_info=bug)
        self._detail = str(bug) if isinstance(bug, JournalError) else repr(bug)
        stopped = Unavailable(self._bug, self._detail)
        _settle_all(self._queue, stopped)
        self._queue.clear()
        return stopped

    async def _decide(self, waiting: list[_Pending], *, may_put_off: bool) -> Batch | None:
        """Decide and apply each command in turn; None when nothing changed. When it has taken too long, or
        the batch is full, the rest is put off to the next batch and leaves the list, unless it may be in the
        journal already. A command that writes too much is refused before anything of it is applied.

        Between judging a large command and applying it others have their turn: they cannot change the view.
        That is done only while nothing of the batch is applied, for what readers see must be in flight."""
        end_ns = self._clock.monotonic_ns() + _DECIDING_NS
        now_ns = self._clock.now_ns()
        now_s = now_ns // 1_000_000_000
        view = self.view
        entries: list[Entry] = []
        bodies: list[EncodedEntry] = []
        size = 0
        for number, pending in enumerate(waiting):
            if may_put_off and number and self._clock.monotonic_ns() > end_ns:
                self._put_off(waiting, number)
                break
            try:
                verdict = self._judge_traced(pending, now_s)
            except OutOfSteps as too_long:
                pending.outcome = too_long
                continue
            except Exception as bug:
                # A rule that fails has changed nothing: this command is lost, the others are not.
                pending.outcome = bug
                continue
            if isinstance(verdict, Rejection):
                self._observer.rejected(type(verdict).__name__)
                pending.outcome = verdict
                continue
            newer = self._find_newer(verdict)
            if newer is not None:
                self._observer.rejected(FormatTooOld.__name__)
                pending.outcome = newer
                continue
            if verdict:
                body = encode_entry(pending.origin, verdict, self._command_bytes_max, pending.encoded)
                if body is None:
                    self._observer.rejected(CommandTooLarge.__name__)
                    pending.outcome = CommandTooLarge(len(verdict), self._command_bytes_max)
                    continue
                is_large = body.size > _LARGE_BYTES
                is_full = is_large or size + body.size > self._batch_bytes_max
                if may_put_off and bodies and is_full:
                    self._put_off(waiting, number)
                    break
                if is_large and not bodies:
                    # Twice: what has arrived is read the first time, and answered the second.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                size += body.size
                bodies.append(body)
                entries.append(Entry(pending.origin, tuple(verdict)))
            for event in verdict:
                view.apply(event)
            refused = _refusal(pending)
            if refused is not None:
                self._observer.rejected(type(refused).__name__)
                pending.outcome = refused
                continue
            try:
                pending.outcome = _answered(view, pending, bool(verdict))
            except Exception as bug:
                # The change stands; only its caller's answer is lost.
                pending.outcome = bug
        if not entries:
            return None
        view.index = Index(view.index + 1)
        return Batch(
            view.index, self._ids.batch_id(), now_ns, tuple(entries), join_entries(bodies), view.format
        )

    def _find_newer(self, events: Sequence[Event]) -> FormatTooOld | None:
        """Why events may not be written yet: older programs may share the journal."""
        format = self.view.format
        newer = ADDITIONS.find_newer(events, format)
        if newer is None:
            return None
        refusal = FormatTooOld(newer, ADDITIONS.since(newer), format)
        if newer not in self._refused_parts:
            self._refused_parts.add(newer)
            _log.warning(
                "refused, here and from now on until 'berth db upgrade --finish': %s needs format %d, the "
                "journal has format %d",
                newer,
                refusal.needed,
                format,
            )
        return refusal

    def _refuse_or_split(self, waiting: list[_Pending], refused: "_BatchTooLarge") -> None:
        """The database takes no row as large as these commands together: each is tried in a batch of its own.
        One that is alone already is refused."""
        if len(waiting) > 1:
            for pending in waiting:
                pending.is_alone = True
            self._put_off(waiting, 0)
            return
        self._observer.rejected(RowTooLarge.__name__)
        _log.warning(
            "request %s refused: a row of %d bytes is too large for the database: %s",
            waiting[0].origin.request_id,
            refused.size,
            refused,
        )
        _settle(waiting[0].future, RowTooLarge(refused.size))

    def _judge_traced(self, pending: _Pending, now_s: int) -> list[Event] | Rejection:
        if pending.trace_point is None:
            return self._judge(pending, now_s)
        with tracing.span("decide", within=pending.trace_point):
            try:
                return self._judge(pending, now_s)
            except OutOfSteps as too_long:
                # No failure: it is planned in a child.
                put_off = too_long
        raise put_off

    def _judge(self, pending: _Pending, now_s: int) -> list[Event] | Rejection:
        proposal, view = pending.proposal, self.view
        if not callable(proposal):
            return decide(view, proposal, now_s)
        if pending.made is not None:
            verdict = decide(view, _command(pending.made), now_s)
            if not isinstance(verdict, Rejection):
                return verdict
        made = self._limited(lambda view: proposal(view, now_s))
        if isinstance(made, Rejection):
            return made
        pending.made = made
        return [] if made is None else decide(view, _command(made), now_s)

    def _put_off(self, waiting: list[_Pending], number: int) -> None:
        """Put the commands from this number on back to the head of the queue."""
        self._queue.extendleft(reversed(waiting[number:]))
        self._queue_bytes += sum(pending.size for pending in waiting[number:])
        del waiting[number:]

    async def _append(self, batch: Batch, tried: dict[str, list[Any]]) -> list[Any] | None:
        """The outcomes of the batch if it is in the journal; if not, the view is as if it had never been."""
        self._in_flight = asyncio.get_running_loop().create_future()
        started_ns = self._clock.monotonic_ns()
        outcomes = None
        try:
            row = await self._calls.call(self._journal.append, batch)
            outcomes = tried[batch.id]
            if self._turns is not None:
                self._turns.leave(batch.index, msgspec.msgpack.encode(row))
        except Conflict:
            self._observer.conflicted()
            # Of this one it is known that it is not in.
            del tried[batch.id]
            self._take_back(batch)
            outcomes = await self._catch_up(tried)
        except NotWritten as refusal:
            self._take_back(batch)
            del tried[batch.id]
            if isinstance(refusal, RowRefused) and not tried:
                assert batch.body is not None, "a batch of ours is encoded"
                raise _BatchTooLarge(len(batch.body), str(refusal)) from refusal
            if isinstance(refusal, FileGone):
                self._note_missing(str(refusal))
                raise Unavailable(_FILE_GONE, str(refusal)) from refusal
            if not isinstance(refusal, RowRefused):
                self._note_refused(str(refusal))
            raise Unavailable(_REFUSES, str(refusal)) from refusal
        except JournalFailure as failure:
            self._take_back(batch)
            self._note_doubt(failure)
            outcomes = await self._catch_up(tried)
            if outcomes is None:
                raise
        finally:
            in_flight, self._in_flight = self._in_flight, None
            in_flight.set_result(outcomes is not None)
        if outcomes is not None:
            seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
            self._writes.regain()
            self._note_current()
            self._observer.appended(self.view.index, len(outcomes), seconds)
            self._tell_news()
        return outcomes

    def _take_back(self, batch: Batch) -> None:
        for entry in reversed(batch.entries):
            for event in reversed(entry.events):
                self.view.apply(inverse(event))
        self.view.index = Index(batch.index - 1)

    # -- what takes long ------------------------------------------------------------------------

    def _limited(self, work: Callable[[View], T]) -> T:
        """What comes of work on the view; OutOfSteps if it takes too many."""
        view = self.view
        view.steps.begin(self._steps_max)
        try:
            return work(view)
        finally:
            view.steps.end()

    async def _ask_copy(self, answer: Callable[[View], T], asker: Asker) -> T:
        """What ``answer`` says of a copy of the view that is current and durable, unless nobody waits for it
        any more."""
        asking = asyncio.ensure_future(self._ask_copy_in_turn(answer, asker.project))
        tasks: list[asyncio.Future[Any]] = [asking]
        if asker.gone is not None:
            tasks.append(asyncio.ensure_future(asker.gone()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise Overloaded("the client closed the connection")
        finally:
            for task in tasks:
                task.cancel()

    async def _ask_copy_in_turn(self, answer: Callable[[View], T], project: str) -> T:
        assert self._forks is not None, "steps are limited only where there are children"
        try:
            async with self._forks.place(project):
                # In turn nothing is in flight: what the copy has is durable.
                async with self._turn:
                    if self._must_look():
                        await self._retry(lambda: self._catch_up({}))
                    view = self.view
                    child = self._forks.start(lambda: answer(view))
                return await child.result()
        except NoPlace as refusal:
            raise Overloaded(str(refusal)) from refusal
        except GaveUp as refusal:
            raise Overloaded(f"the request was aborted: {refusal}") from refusal

    def _plan_in_child(self, pending: _Pending) -> None:
        """Have a proposal that takes long made in a child, and then judged like any other."""
        if pending.future.done():
            return
        task = asyncio.create_task(self._plan(pending), name="planning")
        self._planning.add(task)
        task.add_done_callback(self._planning.discard)
        pending.future.add_done_callback(lambda _: task.cancel())

    async def _plan(self, pending: _Pending) -> None:
        proposal, answer = pending.proposal, pending.answer
        assert callable(proposal), "a command needs no plan"
        try:
            if pending.plans == _PLANS_MAX:
                raise Overloaded(f"the plan was stale when it was claimed, {_PLANS_MAX} times")
            pending.plans += 1
            now_s = self._clock.now_ns() // 1_000_000_000
            bytes_max = self._command_bytes_max
            with tracing.span("plan", within=pending.trace_point):
                plan = await self._ask_copy(
                    lambda view: _plan_of(proposal(view, now_s), bytes_max), pending.asker
                )
            if plan is None and answer is not None:
                _settle(pending.future, await self.read(lambda view: answer(view, False)))
                return
            if isinstance(plan, _Plan):
                await self._rehearse(_command(plan.made), now_s)
            # Where nobody writes any more, nobody would judge it.
            self._refuse_if_stopped()
        except asyncio.CancelledError:
            _settle(pending.future, Unavailable(_STOPPING))
            raise
        except Exception as error:
            _settle(pending.future, error)
            return
        if isinstance(plan, Rejection):
            self._observer.rejected(type(plan).__name__)
            _settle(pending.future, plan)
            return
        if plan is not None:
            pending.made = plan.made
            pending.encoded = Encoded(_changes(plan.made), plan.changes)
        # Behind others it would be judged, found too large for their batch, and judged again in the next.
        pending.is_alone = True
        self._queue.append(pending)
        self._queue_bytes += pending.size
        self._work.set()

    async def _rehearse(self, command: Command, now_s: int) -> None:
        """Judge what was planned a piece at a time and to no effect, before it is judged as a whole. After a
        fork the first use of a page of memory is a fault. A thousand servers take some 3,000 of them, 10 ms
        or more; here others have their turn in between."""
        for part in command.commands if isinstance(command, Enact) else (command,):
            claims = part.claims if isinstance(part, ReplaceAllocations) else ()
            if len(claims) > _REHEARSED:
                for start in range(0, len(claims), _REHEARSED):
                    decide(self.view, ReplaceAllocations(claims[start : start + _REHEARSED]), now_s)
                    await asyncio.sleep(0)

    # -- catching up ----------------------------------------------------------------------------

    async def _look(self) -> None:
        """Learn what others have written. Joins a look only if that has not begun yet: one that has may
        have missed a write that was acknowledged before this read arrived."""
        while self._next_look is not None:
            if await _join(self._next_look):
                return
        await self._lead_look()

    async def _follow(self) -> None:
        """Learn what others had written some time ago. Joins whatever look there is."""
        if not self._must_look():
            return
        if self._doubt is None and asyncio.get_running_loop().time() < self._look_due_s:
            return
        look = self._this_look or self._next_look
        if look is None or not await _join(look):
            await self._look()

    async def _lead_look(self) -> None:
        """Look on behalf of all who join. It is no task of its own: to make one and to shield it takes longer
        than all the rest. A caller that is cancelled gives it up, and another of them leads the next."""
        look = self._next_look = asyncio.get_running_loop().create_future()
        outcome: Exception | bool = False
        try:
            # Others who arrive now can join.
            await asyncio.sleep(0)
            async with self._turn:
                self._this_look, self._next_look = look, None
                await self._retry(lambda: self._catch_up({}))
            outcome = True
        except Exception as error:
            outcome = error
            raise
        finally:
            if self._this_look is look:
                self._this_look = None
            if self._next_look is look:
                self._next_look = None
            look.set_result(outcome)

    async def _catch_up(self, tried: dict[str, list[Any]]) -> list[Any] | None:
        """Apply what the journal has beyond the view. If one of the tried batches is in it: its outcomes."""
        if self._bug is not None or self._closed:
            raise Unavailable(self.ready or _STOPPING)
        outcomes = None
        untold = False
        try:
            try:
                is_all = False
                while not is_all:
                    # A part at a time: a call has a deadline.
                    tail, is_all = await self._calls.call(self._journal.read_some, self.view.index)
                    for batch in tail:
                        apply_batch(self.view, batch)
                        outcomes = tried.get(batch.id, outcomes)
                    if tail:
                        self._tell_news()
            except Pruned:
                # This process has slept for longer than the journal is kept, and what it tried with it.
                self.view = await self._read_whole()
                self._tell_news()
                untold = bool(tried) and outcomes is None
        except JournalFailure as failure:
            self._note_doubt(failure)
            if outcomes is None:
                raise
            # What was found is in the journal, whatever comes behind it.
            return outcomes
        except Exception as bug:
            raise self._stop_for(bug) from bug
        self._database.regain()
        self._doubt = None
        self._behind = False
        self._is_fresh = True
        self._note_current()
        if untold:
            raise Unavailable(_LOST)
        return outcomes

    def _catch_up_in_turn(self) -> bool:
        """Apply what those whose turn it was before have left. Whether there was anything: if not, it is in
        the journal alone. Nothing relies on it: an append shows whether the view was current."""
        assert self._turns is not None, "only those who take turns are known to be behind"
        left = self._turns.left_behind(self.view.index)
        try:
            for content in left:
                batch = self._journal.take_over(msgspec.msgpack.decode(content, type=JournalRow))
                apply_batch(self.view, batch)
        except Exception as bug:
            raise self._stop_for(bug) from bug
        self._behind = False
        if left:
            self._tell_news()
        return bool(left)

    async def _read_whole(self) -> View:
        return await self._calls.call(start_view, self._journal, answer_s=_START_S)

    def _note_current(self) -> None:
        """The view has shown to lack nothing."""
        self._look_due_s = asyncio.get_running_loop().time() + self._follow_every_s

    def _tell_news(self) -> None:
        """The view has moved for good."""
        self._durable = self.view.index
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        for waiting in self._waiting.values():
            _wake(waiting)


async def _join(look: _Look) -> bool:
    """Wait for a look that another leads. Whether it was made."""
    outcome = await asyncio.shield(look)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _outage_of(failure: JournalFailure) -> str:
    """What callers are told of a failure."""
    return _SILENT if isinstance(failure, NoAnswer) else _AWAY


def _command(made: Command | Planned) -> Command:
    return made.command if isinstance(made, Planned) else made


def _changes(made: Command | Planned) -> tuple[RecordChanged, ...]:
    command = _command(made)
    return command.changes if isinstance(command, Enact) else ()


def _plan_of(made: Command | Planned | Rejection | None, bytes_max: int) -> _Plan | Rejection | None:
    """Prepare what was made in a child for its turn: records are written as they are, however the command is
    judged."""
    if made is None or isinstance(made, Rejection):
        return made
    changes = _changes(made)
    encoded = encode_events(changes, bytes_max)
    return CommandTooLarge(len(changes), bytes_max) if encoded is None else _Plan(made, encoded)


def _answered(view: View, pending: _Pending, changed: bool) -> Any:
    if isinstance(pending.made, Planned):
        return pending.made.answer
    assert pending.answer is not None, "a proposal that brings no answer is submitted with one"
    return pending.answer(view, changed)


def _refusal(pending: _Pending) -> Rejection | None:
    """The answer to a request that is refused, and whose change is the record of that."""
    command = pending.proposal if pending.made is None else _command(pending.made)
    return command.refused if isinstance(command, Enact) else None


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
