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
    AgentTask,
    ClaimTask,
    MoveClaim,
    Skip,
    is_aborted,
    is_finished,
    make_conflict,
    may_abort,
    must_succeed,
    record_claim_moved,
    record_claim_refused,
    record_failure,
    record_success,
    step_of,
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
        self, engine: Engine, claim: ClaimWriter, mailbox: Mailbox, clock: Clock, deadlines: Deadlines
    ) -> None:
        self._engine = engine
        self._claims = claim
        self._mailbox = mailbox
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

        await self._engine.submit(lambda view, _: saga_runs.begin_term(view), _ORIGIN, written)

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
        for run in view.records.all(SagaRun):
            if is_finished(run):
                continue
            if run.id not in self._tasks:
                task = asyncio.create_task(self._carry_out(run.id), name=f"order {run.id}")
                self._tasks[run.id] = task
                task.add_done_callback(lambda _, id=run.id: self._forget_task(id))  # type: ignore[misc]
            elif run.abort:
                self._abort(run)
        return view.index

    def _forget_task(self, id: str) -> None:
        self._tasks.pop(id, None)
        self._refused.pop(id, None)

    def _abort(self, run: SagaRun) -> None:
        task = task_of(run)
        if isinstance(task, AgentTask) and may_abort(run):
            self._mailbox.abort(task.place.id, task.id)

    async def _forget(self) -> None:
        if self._clock.monotonic_ns() < self._forgets_at_ns:
            return
        self._forgets_at_ns = self._clock.monotonic_ns() + _FORGET_EVERY_NS
        before_s = self._clock.now_ns() // 1_000_000_000 - _FORGET_AFTER_S
        if await self._engine.read(lambda view: saga_runs.forget_instances(view, before_s)) is not None:
            await self._submit(lambda view, _: saga_runs.forget_instances(view, before_s))

    # -- one order ------------------------------------------------------------------------------

    async def _carry_out(self, id: str) -> None:
        """All steps of an order. What is in the way of it is waited out; a bug stops this order, and no
        other."""
        pause_s = _PAUSE_FIRST_S
        while True:
            try:
                run = await self._engine.read(lambda view: view.records.get(SagaRun, id))
                if run is None or is_finished(run):
                    return
                await self._advance(run, await self._step(run))
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

    async def _advance(self, run: SagaRun, change: Callable[[SagaRun], SagaRun]) -> None:
        await self._submit(lambda view, now_s: saga_runs.advance_run(view, self.term, run, change, now_s))

    async def _step(self, run: SagaRun) -> Callable[[SagaRun], SagaRun]:
        """Do what is next; what that makes of the order."""
        task = task_of(run)
        now = self._clock.now_ns
        match task:
            case Skip():
                return lambda order: record_success(order, now())
            case ClaimTask(entry):
                try:
                    claim, migration = await self._claims.write(run, entry)
                except ClaimRefused as refused:
                    reason = str(refused)
                    if must_succeed(run) and self._insists(run):
                        raise PlacementUnavailable(f"what must be done is refused: {reason}") from refused
                    conflict = make_conflict(run, refused.found, now())
                    return lambda order: record_failure(order, now(), reason, conflict)
                return lambda order: record_success(order, now(), claim, migration)
            case MoveClaim(way):
                try:
                    claim, migration = await self._claims.move(run, way)
                except ClaimRefused as refused:
                    reason = str(refused)
                    return lambda order: record_claim_refused(order, now(), reason)
                return lambda order: record_claim_moved(order, now(), claim, migration)
            case AgentTask():
                return await self._by_agent(run, task)

    def _insists(self, run: SagaRun) -> bool:
        """Whether to ask once more for what must be undone: something may be in its way for a moment."""
        self._refused[run.id] = self._refused.get(run.id, 0) + 1
        return self._refused[run.id] < _REFUSALS_MAX

    async def _by_agent(self, run: SagaRun, task: AgentTask) -> Callable[[SagaRun], SagaRun]:
        now = self._clock.now_ns
        if is_aborted(run):
            return lambda order: record_failure(order, now(), "aborted")
        agent = await self._engine.read(lambda view: view.records.get(Agent, task.place.id))
        if agent is None or agent.is_down:
            reason = f"the host {task.place.name} is down"
            if step_of(run).skip_if_down and run.phase == "forward":
                return lambda order: record_success(order, now(), note=f"left out: {reason}")
            return lambda order: record_failure(order, now(), reason)
        order = AgentCommand(
            id=task.id,
            fence=(run.number, run.version),
            verb=task.verb,
            server=run.server,
            spec=run.spec,
            runs=run.runs,
            to_host=run.dest.name if task.verb == "live_migrate" and run.dest is not None else None,
        )
        # Counted from now, and not from when the step began: an agent cannot be blamed for the time in which
        # there was no conductor.
        error = await self._mailbox.carry_out(task.place.id, order, self._deadlines.of(task.verb))
        if error is None:
            return lambda order: record_success(order, now())
        return lambda order: record_failure(order, now(), error)

    async def _submit(self, propose: Callable[[View, int], Command | Rejection | None]) -> None:
        # One who was first with the same order has done what was to be done.
        await self._engine.submit(propose, _ORIGIN, lambda view, changed: None)
