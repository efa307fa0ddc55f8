"""The conductor: executes the saga runs of its cell, each in its own task, one step after the other.

    run in the journal -> step -> its outcome in the journal -> next step -> ... -> done | failed

What is next, and what follows from an outcome, is decided by ``sagas.runner``; here it is done. A run that
another cell has the next step of is left alone until it comes back. Everything
that must survive is in the journal: a conductor that starts finds the runs that are not finished, and repeats
for each the step it is at.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from berth.cell import assignments, saga_runs
from berth.cell.assignments import UnitsMissing
from berth.cell.mailbox import CommandOutcome, Mailbox
from berth.cell.placement import ClaimRefused, ClaimWriter, PlacementUnavailable
from berth.cell.protocol import WITH_CREDENTIALS, WITH_UNITS, AgentCommand, find_newer
from berth.client import PART_OF, PartOf
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Command, Enact
from berth.model.events import Origin
from berth.model.formats import ADDITIONS
from berth.model.ids import Index
from berth.model.rejections import FormatTooOld, RecordMoved, Rejection
from berth.model.saga_runs import Agent, Assignment, SagaRun
from berth.model.servers import GuestAddress
from berth.runtime import tracing
from berth.runtime.backoff import Backoff, keep_running
from berth.runtime.clock import Clock
from berth.sagas.run_log import RunCounter, count_news, log_begun, log_news, log_resumed
from berth.sagas.runner import (
    ABORTED,
    AgentTask,
    ClaimTask,
    MoveClaim,
    Skip,
    describe_place,
    is_aborted,
    is_away,
    is_finished,
    make_conflict,
    must_succeed,
    name_step,
    record_claim_moved,
    record_claim_refused,
    record_failure,
    record_success,
    saga_of,
    step_of,
    task_of,
)
from berth.sagas.saga import Verb
from berth.view import View

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LONGEST_S: Final = 5.0
_FOLLOW_S: Final = 5.0
_FORGET_AFTER_S: Final = 3600
_REFUSALS_MAX: Final = 8
"""How often Placement may refuse a change that must be made before the run ends without it."""
_FORGET_EVERY_NS: Final = 60_000_000_000
_SIGN_EVERY_NS: Final = 60_000_000_000
"""How often a conductor says in the journal that it is at work."""
_WITH_ADDRESSES: Final = ADDITIONS.since("SagaRun.addresses")
_ORIGIN: Final = Origin("", "conductor", None, "conductor")


class Deadlines(NamedTuple):
    """How long an agent may take for a command, in seconds."""

    ordinary: float = 60
    build: float = 300
    live_migrate: float = 3600

    def of(self, verb: Verb) -> float:
        if verb in ("build", "rebuild", "snapshot"):
            return self.build
        return self.live_migrate if verb == "live_migrate" else self.ordinary


class Conductor:
    """Runs until its task is cancelled, or another conductor takes the cell over. There is one at a time:
    a conductor that starts writes a new term into the journal, and one that finds a later term than its
    own ends. One that finds that it cannot read its journal ends too: a newer release has written it, or it
    is damaged."""

    def __init__(
        self,
        engine: Engine,
        claims: ClaimWriter,
        mailbox: Mailbox,
        clock: Clock,
        deadlines: Deadlines,
        telemetry: RunCounter | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._engine = engine
        self._claims = claims
        self._mailbox = mailbox
        self._clock = clock
        self._deadlines = deadlines
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, int] = {}
        self.term = 0
        self._forgets_at_ns = 0
        self._signs_at_ns = 0
        self._is_replaced = False

    async def take_over(self) -> None:
        """Write a new term: from now on the conductor before this one does nothing more."""

        def written(view: View, changed: bool) -> None:
            self.term = saga_runs.term_of(view)

        await self._engine.submit(saga_runs.begin_term, _ORIGIN, written)
        self._signs_at_ns = self._clock.monotonic_ns() + _SIGN_EVERY_NS

    async def run(self) -> None:
        """Execute runs until another conductor has taken over; Unavailable if only a restart can help."""
        try:
            await keep_running(
                "conductor",
                self._follow,
                is_stopping=lambda: (
                    self._is_replaced or self._engine.stopping or self._engine.broken is not None
                ),
                outages=(Unavailable, Overloaded),
                log=_log,
                first_s=_PAUSE_S,
                longest_s=_PAUSE_S,
            )
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._engine.broken is not None:
            raise Unavailable(self._engine.outage or self._engine.broken)

    async def _follow(self) -> None:
        """Start what there is to do, and wait for more."""
        index = await self._engine.read_recent(self._start_runs)
        if index is None:
            # As after every restart of a cell: the conductor before may live for a moment longer.
            _log.warning("another conductor has taken over this cell, stopping")
            self._is_replaced = True
            return
        await self._forget()
        await self._sign()
        await self._engine.wait_beyond(index, _FOLLOW_S)

    def _start_runs(self, view: View) -> Index | None:
        """Start a task for each run that has none. None if another conductor has taken over."""
        if saga_runs.is_replaced(view, self.term):
            return None
        for run in view.records.all(SagaRun):
            if is_finished(run) or is_away(run):
                continue
            if run.id not in self._tasks:
                (log_resumed if run.version else log_begun)(_log, run)
                task = asyncio.create_task(self._carry_out(run), name=f"saga run {run.id}")
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
        if isinstance(task, AgentTask) and is_aborted(run):
            self._mailbox.abort(task.place.id, task.id)

    async def _forget(self) -> None:
        if self._clock.monotonic_ns() < self._forgets_at_ns:
            return
        self._forgets_at_ns = self._clock.monotonic_ns() + _FORGET_EVERY_NS
        before_s = self._clock.now_ns() // 1_000_000_000 - _FORGET_AFTER_S
        found = await self._engine.read_recent(lambda view: saga_runs.forget_instances(view, before_s))
        if found is not None:
            await self._submit(lambda view, _: saga_runs.forget_instances(view, before_s))

    async def _sign(self) -> None:
        """Say that this conductor is at work: once a minute for the whole cell, and not for every heartbeat
        (docs/decisions/028)."""
        if self._clock.monotonic_ns() < self._signs_at_ns:
            return
        self._signs_at_ns = self._clock.monotonic_ns() + _SIGN_EVERY_NS
        await self._submit(lambda view, now_s: saga_runs.sign_term(view, self.term, now_s))

    # -- one run --------------------------------------------------------------------------------

    async def _carry_out(self, begun: SagaRun) -> None:
        """Execute all steps of a run. An outage is waited out; a bug stops this run, and no other."""
        id, name = begun.id, saga_of(begun).name
        about = {"request_id": begun.ids or None, "server": begun.server}
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LONGEST_S)
        while True:
            try:
                run = await self._engine.read(lambda view: view.records.get(SagaRun, id))
                if run is None or is_finished(run) or is_away(run):
                    return
                await self._step_in_trace(run)
                backoff.reset()
                self._refused.pop(id, None)
            except (PlacementUnavailable, Unavailable, Overloaded) as error:
                pause_s = backoff.next_s()
                text = "server %s: %s waits, retrying in %g s: %s"
                _log.warning(text, begun.server, name, pause_s, error, extra=about)
                await asyncio.sleep(pause_s)
            except asyncio.CancelledError:
                raise
            except Exception:
                text = "server %s: %s: step failed unexpectedly, retrying in %g s"
                _log.exception(text, begun.server, name, _PAUSE_LONGEST_S, extra=about)
                await asyncio.sleep(_PAUSE_LONGEST_S)

    async def _step_in_trace(self, run: SagaRun) -> None:
        with tracing.span(name_step(run), _describe(run), within=run.traceparent) as span:
            # What it changes in Placement is found by the request that asked for it.
            PART_OF.set(PartOf(run.request_id or None, _find_traceparent(run)))
            error = await self.step(run)
            if error is not None:
                span.fail(error)

    async def step(self, run: SagaRun) -> str | None:
        """Execute the step that a run is at, and write its outcome. Why it has failed, if it has."""
        outcome = await self._step(run)

        def change(run: SagaRun) -> SagaRun:
            return self._set_deadline(outcome(run))

        is_written = await self._submit(
            lambda view, now_s: saga_runs.advance_run(view, self.term, run, change, now_s)
        )
        return self._note_progress(run, change(run)) if is_written else None

    def _note_progress(self, before: SagaRun, after: SagaRun) -> str | None:
        """Log and count what is new. Why the step has failed, if it has."""
        # A version adds one entry at most; a full log loses its first for it.
        seen = len(after.log) if after.log == before.log else len(after.log) - 1
        log_news(_log, after, seen)
        if self._telemetry is not None:
            count_news(self._telemetry, after, seen)
        return after.log[-1].error if seen < len(after.log) else None

    def _set_deadline(self, run: SagaRun) -> SagaRun:
        """The run with the time by which its next step should have ended."""
        if is_finished(run):
            return msgspec.structs.replace(run, deadline_ns=0)
        task = task_of(run)
        within_s = self._deadlines.of(task.verb) if isinstance(task, AgentTask) else self._deadlines.ordinary
        return msgspec.structs.replace(run, deadline_ns=run.since_ns + int(within_s * 1e9))

    async def _step(self, run: SagaRun) -> Callable[[SagaRun], SagaRun]:
        """Do what is next; how that changes the run."""
        task = task_of(run)
        now = self._clock.now_ns
        match task:
            case Skip():
                return lambda run: record_success(run, now())
            case _ if is_aborted(run):
                return lambda run: record_failure(run, now(), ABORTED)
            case ClaimTask(change):
                try:
                    claim, migration = await self._claims.write(run, change)
                except ClaimRefused as refused:
                    reason = str(refused)
                    if must_succeed(run) and self._may_retry_refused(run):
                        raise PlacementUnavailable(
                            f"Placement refuses a change that must be made: {reason}"
                        ) from refused
                    conflict = make_conflict(run, refused.found, now())
                    return lambda run: record_failure(run, now(), reason, conflict)
                return lambda run: record_success(run, now(), claim, migration)
            case MoveClaim(destination):
                try:
                    claim, migration = await self._claims.move(run, destination)
                except ClaimRefused as refused:
                    reason = str(refused)
                    return lambda run: record_claim_refused(run, now(), reason)
                return lambda run: record_claim_moved(run, now(), claim, migration)
            case AgentTask():
                return await self._run_command(run, task)

    def _may_retry_refused(self, run: SagaRun) -> bool:
        """Whether to try once more what Placement has refused: the cause may pass."""
        self._refused[run.id] = self._refused.get(run.id, 0) + 1
        return self._refused[run.id] < _REFUSALS_MAX

    async def _run_command(self, run: SagaRun, task: AgentTask) -> Callable[[SagaRun], SagaRun]:
        now = self._clock.now_ns
        agent = await self._engine.read(lambda view: view.records.get(Agent, task.place.id))
        if agent is None or agent.is_down:
            reason = f"the host {task.place.name} is down"
            if step_of(run).skip_if_down and run.phase == "forward":
                return lambda run: record_success(run, now(), note=f"skipped: {reason}")
            return lambda run: record_failure(run, now(), reason)
        assigned = await self._find_units(run, task, agent)
        if isinstance(assigned, UnitsMissing):
            return lambda run: record_failure(run, now(), assigned.reason)
        command = AgentCommand(
            id=task.id,
            fence=(run.number, run.version),
            verb=task.verb,
            server=run.server,
            spec=run.spec,
            runs=run.runs,
            to_host=run.dest.name if task.verb == "live_migrate" and run.dest is not None else None,
            units={} if assigned is None else assigned.units,
            counts={} if assigned is None else assigned.counts,
            request_ids=run.ids if agent.protocol >= WITH_CREDENTIALS else "",
            traceparent=_find_traceparent(run) if agent.protocol >= WITH_CREDENTIALS else None,
        )
        newer = find_newer(command, agent.protocol)
        if newer is not None:
            too_old = (
                f"the agent of the host {task.place.name} speaks version {agent.protocol} of the agent "
                f"protocol, which has no {newer}: upgrade it"
            )
            return lambda run: record_failure(run, now(), too_old)
        # The deadline counts from now, not from when the step began: without a conductor the agent could do
        # nothing.
        ended = await self._mailbox.deliver(task.place.id, command, self._deadlines.of(task.verb))
        if ended.error is None:
            addresses = self._list_addresses(ended)
            return lambda run: record_success(run, now(), addresses=addresses)
        error = ended.error
        return lambda run: record_failure(run, now(), error)

    def _list_addresses(self, ended: CommandOutcome) -> tuple[GuestAddress, ...]:
        """What is recorded of a server's addresses: nothing, in a journal that has no place for it."""
        if self._engine.view.format < _WITH_ADDRESSES:
            return ()
        return tuple(GuestAddress(one.network, one.address, one.mac) for one in ended.addresses)

    async def _find_units(
        self, run: SagaRun, task: AgentTask, agent: Agent
    ) -> Assignment | UnitsMissing | None:
        """What a server has at the place of a command. It was assigned with the step before; only where that
        could not be, it is assigned now."""
        if assignments.needs_units(run, task):
            if run.spec.ports and agent.protocol < WITH_UNITS:
                return UnitsMissing(
                    f"the agent of the host {task.place.name} is too old to know ports: upgrade it"
                )
            missing = await self._assign(run, task)
            if missing is not None:
                return missing
        found = await self._engine.read(lambda view: assignments.find_assignment(view, run, task))
        if found is None or agent.protocol >= WITH_UNITS:
            return found
        if found.units and assignments.needs_units(run, task):
            return UnitsMissing(
                f"the agent of the host {task.place.name} is too old to know units: upgrade it"
            )
        return None

    async def _assign(self, run: SagaRun, task: AgentTask) -> UnitsMissing | None:
        """Give a server the units of its claim, unless it has them."""

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            if saga_runs.is_replaced(view, self.term):
                return RecordMoved("Term", "")
            changes = assignments.assign(view, run, task.place)
            return None if isinstance(changes, UnitsMissing) else Enact(changes)

        found = await self._engine.read(lambda view: assignments.assign(view, run, task.place))
        if found and not isinstance(found, UnitsMissing):
            outcome = await self._engine.submit(propose, _ORIGIN, lambda view, changed: None)
            if isinstance(outcome, Rejection):
                raise Unavailable("the units of a server could not be assigned: another conductor took over")
            found = await self._engine.read(lambda view: assignments.assign(view, run, task.place))
        return found if isinstance(found, UnitsMissing) else None

    async def _submit(self, propose: Callable[[View, int], Command | Rejection | None]) -> bool:
        """Whether it was written. A rejection means that another conductor has advanced the run, or has taken
        over; unless the journal is too old for it."""
        outcome = await self._engine.submit(propose, _ORIGIN, lambda view, changed: changed)
        if isinstance(outcome, FormatTooOld):
            raise Unavailable(f"{outcome.part} cannot be written before the cell's upgrade is finished")
        return outcome is True


def _find_traceparent(run: SagaRun) -> str | None:
    """What the step at hand is part of: its own span, or else what the run says."""
    return tracing.current_traceparent() or run.traceparent


def _describe(run: SagaRun) -> tracing.Notes:
    return {
        "berth.request_id": run.request_id,
        "berth.server": run.server,
        "berth.host": describe_place(run),
        "berth.attempt": run.attempt,
    }
