"""Faults at single steps of sagas: a conductor and a mailbox that go wrong where they are told to.

A fault is for one step of one server's saga run, forward or while undoing, and happens once:

* ``fail``: the step is refused;
* ``repeat``: it is done twice;
* ``crash before`` and ``crash after``: the conductor dies, before the step, or when it is done and not yet
written down;
* ``lose``: it is done, and the answer is lost on its way, once;
* ``late``: it is done, and no answer is heard before the deadline.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from berth.cell.conductor import Conductor, Deadlines
from berth.cell.mailbox import Mailbox
from berth.cell.placement import ClaimWriter, PlacementUnavailable
from berth.engine import Engine
from berth.model.saga_runs import Phase, SagaRun
from berth.runtime.clock import Clock
from berth.sagas.runner import AgentTask, Skip, record_failure, task_of

Kind = Literal["fail", "repeat", "crash before", "crash after", "lose", "late"]
KINDS: Final[tuple[Kind, ...]] = ("fail", "repeat", "crash before", "crash after", "lose", "late")


class StepFault(NamedTuple):
    """Where, and what. ``step`` is the number of the step."""

    server: str
    saga: str
    step: int
    phase: Phase
    kind: Kind


class FaultPlan:
    """The faults that are still to happen. ``happened`` are those that have."""

    def __init__(self) -> None:
        self._waiting: list[StepFault] = []
        self.happened: list[StepFault] = []

    def add(self, fault: StepFault) -> None:
        self._waiting.append(fault)

    def take(self, run: SagaRun) -> StepFault | None:
        """The fault that is due at the step of a run, if one is."""
        for fault in self._waiting:
            if (fault.server, fault.saga, fault.step, fault.phase) == (
                run.server,
                run.saga,
                run.step,
                run.phase,
            ):
                self._waiting.remove(fault)
                self.happened.append(fault)
                return fault
        return None


class FaultyMailbox(Mailbox):
    """Loses the answers to some commands: the next one, or all."""

    def __init__(self) -> None:
        super().__init__()
        self._deaf_once: set[str] = set()
        self._deaf: set[str] = set()

    def lose(self, command: str) -> None:
        self._deaf_once.add(command)

    def never_hear(self, command: str) -> None:
        self._deaf.add(command)

    def settle(self, host: str, command: str, error: str | None) -> bool:
        if command in self._deaf:
            return True
        if command in self._deaf_once:
            self._deaf_once.remove(command)
            return True
        return super().settle(host, command, error)


class FaultyConductor(Conductor):
    """``crashed`` is called where it dies: from then on it does nothing, until somebody buries it."""

    def __init__(
        self,
        engine: Engine,
        claim: ClaimWriter,
        mailbox: FaultyMailbox,
        clock: Clock,
        deadlines: Deadlines,
        plan: FaultPlan,
        crashed: Callable[[], None],
    ) -> None:
        super().__init__(engine, claim, mailbox, clock, deadlines)
        self._faulty_mailbox = mailbox
        self._plan = plan
        self._crashed = crashed

    async def _step(self, run: SagaRun) -> Callable[[SagaRun], SagaRun]:
        task = task_of(run)
        fault = None if isinstance(task, Skip) else self._plan.take(run)
        if fault is None:
            return await super()._step(run)
        is_agents = isinstance(task, AgentTask)
        match fault.kind:
            case "fail":
                if run.phase == "back" and not is_agents:
                    # Undoing in Placement is never refused; it may have to wait.
                    raise PlacementUnavailable("injected")
                return lambda run: record_failure(run, self._clock.now_ns(), "injected")
            case "repeat":
                await super()._step(run)
            case "crash before":
                await self._die()
            case "crash after":
                await super()._step(run)
                await self._die()
            case "lose" | "late" if isinstance(task, AgentTask):
                if fault.kind == "lose":
                    self._faulty_mailbox.lose(task.id)
                else:
                    self._faulty_mailbox.never_hear(task.id)
            case "lose":
                await super()._step(run)
                raise PlacementUnavailable("injected: the answer was lost")
            case "late":
                raise PlacementUnavailable("injected: no answer in time")
        return await super()._step(run)

    async def _die(self) -> None:
        self._crashed()
        await asyncio.Event().wait()
