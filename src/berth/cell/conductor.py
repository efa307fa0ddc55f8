"""The conductor: carries the orders of its cell out, each in its own task, one step after the other.

    order in the journal -> step -> its outcome in the journal -> next step -> ... -> done | failed

What a step is and what follows from its outcome is said by ``operations``; here it is done. Everything that
must survive is in the journal: a conductor that starts finds the orders that are not finished, and repeats
for each the step it is at.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from berth.cell import saga_runs
from berth.cell.mailbox import Mailbox
from berth.cell.placement import ClaimRefused, ClaimWriter, PlacementUnavailable
from berth.cell.protocol import AgentCommand
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.batches import Origin
from berth.model.commands import Command
from berth.model.ids import Index
from berth.model.rejections import Rejection
from berth.model.saga_runs import Agent, SagaRun
from berth.runtime.clock import Clock
from berth.sagas.runner import (
    ABORTABLE,
    AgentTask,
    ClaimTask,
    MoveClaim,
    Skip,
    claim_moved,
    claim_refused,
    conflict_found,
    failed,
    is_finished,
    must_be_made,
    step_of,
    succeeded,
    task_of,
)
from berth.sagas.saga import Verb
from berth.view import View

_log = logging.getLogger(__name__)

_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LONGEST_S: Final = 5.0
_FOLLOW_S: Final = 5.0
_FORGET_AFTER_S: Final = 3600
_REFUSALS_MAX: Final = 8
"""How often an entry in the books that must be made may be refused before the order ends without it."""
_FORGET_EVERY_NS: Final = 60_000_000_000
_ORIGIN: Final = Origin("", "conductor", None, "conductor")


class Deadlines(NamedTuple):
    """How long an agent may take for an order, in seconds."""

    ordinary: float = 60
    build: float = 300
    live_migrate: float = 3600

    def of(self, verb: Verb) -> float:
        if verb in ("build", "rebuild", "snapshot"):
            return self.build
        return self.live_migrate if verb == "live_migrate" else self.ordinary


class Conductor:
    """Runs until its task is cancelled, or another takes the cell over. There is one at a time: who begins
    writes a term into the journal, and who finds a later one there than its own does nothing more."""

    def __init__(
        self, engine: Engine, books: ClaimWriter, desk: Mailbox, clock: Clock, deadlines: Deadlines
    ) -> None:
        self._engine = engine
        self._books = books
        self._desk = desk
        self._clock = clock
        self._deadlines = deadlines
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, int] = {}
        self.term = 0
        self._forgets_at_ns = 0

    async def take_over(self) -> None:
        """Begin to conduct."""

        def written(view: View, changed: bool) -> None:
            self.term = saga_runs.term_of(view)

        await self._engine.submit(lambda view, _: saga_runs.taken_over(view), _ORIGIN, written)

    async def run(self) -> None:
        """Look for orders until another has taken over."""
        try:
            while not self._engine.stopping:
                try:
                    index = await self._engine.read(self._look)
                    if index is None:
                        _log.error("another conductor has taken this cell over: this one ends")
                        return
                    await self._forget()
                    await self._engine.wait_beyond(index, _FOLLOW_S)
                except (Unavailable, Overloaded) as away:
                    _log.warning("the cell's journal is away: %s", away)
                    await asyncio.sleep(1)
                except Exception:
                    _log.exception("the conductor stumbled")
                    await asyncio.sleep(1)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _look(self, view: View) -> Index | None:
        """Begin with the orders that have not been begun with. None if they are not ours any more."""
        if saga_runs.is_replaced(view, self.term):
            return None
        for work in view.records.all(SagaRun):
            if is_finished(work):
                continue
            if work.id not in self._tasks:
                task = asyncio.create_task(self._carry_out(work.id), name=f"order {work.id}")
                self._tasks[work.id] = task
                task.add_done_callback(lambda _, id=work.id: self._forget_task(id))  # type: ignore[misc]
            elif work.abort:
                self._abort(work)
        return view.index

    def _forget_task(self, id: str) -> None:
        self._tasks.pop(id, None)
        self._refused.pop(id, None)

    def _abort(self, work: SagaRun) -> None:
        task = task_of(work)
        if isinstance(task, AgentTask) and work.phase == "forward" and step_of(work).name in ABORTABLE:
            self._desk.abort(task.place.id, task.id)

    async def _forget(self) -> None:
        if self._clock.monotonic_ns() < self._forgets_at_ns:
            return
        self._forgets_at_ns = self._clock.monotonic_ns() + _FORGET_EVERY_NS
        before_s = self._clock.now_ns() // 1_000_000_000 - _FORGET_AFTER_S
        if await self._engine.read(lambda view: saga_runs.forgotten(view, before_s)) is not None:
            await self._submit(lambda view, _: saga_runs.forgotten(view, before_s))

    # -- one order ------------------------------------------------------------------------------

    async def _carry_out(self, id: str) -> None:
        """All steps of an order. What is in the way of it is waited out; a bug stops this order, and no
        other."""
        pause_s = _PAUSE_FIRST_S
        while True:
            try:
                work = await self._engine.read(lambda view: view.records.get(SagaRun, id))
                if work is None or is_finished(work):
                    return
                await self._advance(work, await self._step(work))
                pause_s = _PAUSE_FIRST_S
                self._refused.pop(id, None)
            except (PlacementUnavailable, Unavailable, Overloaded) as away:
                _log.warning("order %s waits: %s", id, away)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_LONGEST_S)
            except asyncio.CancelledError:
                raise
            except Exception:
                _log.exception("order %s is stuck", id)
                await asyncio.sleep(_PAUSE_LONGEST_S)

    async def _advance(self, work: SagaRun, change: Callable[[SagaRun], SagaRun]) -> None:
        await self._submit(lambda view, now_s: saga_runs.advanced(view, self.term, work, change, now_s))

    async def _step(self, work: SagaRun) -> Callable[[SagaRun], SagaRun]:
        """Do what is next; what that makes of the order."""
        task = task_of(work)
        now = self._clock.now_ns
        match task:
            case Skip():
                return lambda order: succeeded(order, now())
            case ClaimTask(entry):
                try:
                    books, migration = await self._books.write(work, entry)
                except ClaimRefused as refused:
                    reason = str(refused)
                    if must_be_made(work) and self._insists(work):
                        raise PlacementUnavailable(f"what must be done is refused: {reason}") from refused
                    conflict = conflict_found(work, refused.found, now())
                    return lambda order: failed(order, now(), reason, conflict)
                return lambda order: succeeded(order, now(), books, migration)
            case MoveClaim(way):
                try:
                    books, migration = await self._books.move(work, way)
                except ClaimRefused as refused:
                    reason = str(refused)
                    return lambda order: claim_refused(order, now(), reason)
                return lambda order: claim_moved(order, now(), books, migration)
            case AgentTask():
                return await self._by_agent(work, task)

    def _insists(self, work: SagaRun) -> bool:
        """Whether to ask once more for what must be undone: something may be in its way for a moment."""
        self._refused[work.id] = self._refused.get(work.id, 0) + 1
        return self._refused[work.id] < _REFUSALS_MAX

    async def _by_agent(self, work: SagaRun, task: AgentTask) -> Callable[[SagaRun], SagaRun]:
        now = self._clock.now_ns
        if work.abort and work.phase == "forward" and step_of(work).name == ABORTABLE[0]:
            return lambda order: failed(order, now(), "aborted")
        agent = await self._engine.read(lambda view: view.records.get(Agent, task.place.id))
        if agent is None or agent.is_down:
            reason = f"the host {task.place.name} is down"
            if step_of(work).unless_down and work.phase == "forward":
                return lambda order: succeeded(order, now(), note=f"left out: {reason}")
            return lambda order: failed(order, now(), reason)
        order = AgentCommand(
            id=task.id,
            fence=(work.number, work.version),
            verb=task.verb,
            server=work.server,
            spec=work.spec,
            runs=work.runs,
            to_host=work.dest.name if task.verb == "live_migrate" and work.dest is not None else None,
        )
        # Counted from now, and not from when the step began: an agent cannot be blamed for the time in which
        # there was no conductor.
        error = await self._desk.carry_out(task.place.id, order, self._deadlines.of(task.verb))
        if error is None:
            return lambda order: succeeded(order, now())
        return lambda order: failed(order, now(), error)

    async def _submit(self, propose: Callable[[View, int], Command | Rejection | None]) -> None:
        # One who was first with the same order has done what was to be done.
        await self._engine.submit(propose, _ORIGIN, lambda view, changed: None)
