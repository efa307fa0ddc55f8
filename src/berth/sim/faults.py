"""Faults at single steps of sagas, made at the edges of the parts: no part knows of them.

A fault is for one step of one server's saga run, forward or while undoing, and happens once:

* ``fail``: the driver fails; or Placement refuses: a change, going forward, until the conductor gives up, all
else once; or a check reads what another client had changed at that moment;
* ``repeat``: the agent's report, or the request to Placement, arrives twice;
* ``crash before`` and ``crash after``: the conductor dies before the step, or when it is done and not written
down;
* ``lose``: the agent's report, or Placement's answer, is lost on its way, once;
* ``late``: no report arrives before the deadline, or the request to Placement is lost.

Where a run stands is read off the rows that get into the cells' journals. A process that is ``doomed`` dies
at its next write, whatever that is about, or at an await soon after it.
"""

import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from berth.agent.drivers import DriverError
from berth.agent.drivers.behaviour import Behaviours
from berth.agent.drivers.sim import SimDriver
from berth.agent.state import AgentState
from berth.cell.protocol import REPORT, AgentCommand, ReportedProvider
from berth.client import WireRequest
from berth.journal import JournalRow
from berth.model.events import Batch, RecordChanged
from berth.model.saga_runs import Phase, SagaRun
from berth.sagas.runner import AgentTask, ClaimTask, Skip, is_away, is_finished, task_of
from berth.sim.database import Trouble
from berth.sim.network import Edge, Mishap
from berth.sim.world import Process

if TYPE_CHECKING:
    from berth.sim.cloud import SimCloud

Kind = Literal["fail", "repeat", "crash before", "crash after", "lose", "late"]
KINDS: Final[tuple[Kind, ...]] = ("fail", "repeat", "crash before", "crash after", "lose", "late")

_AT_AGENT: Final[dict[str, Mishap]] = {"repeat": "sent twice", "lose": "request lost", "late": "request lost"}
_AT_PLACEMENT: Final[dict[str, Mishap]] = {
    "fail": "refused",
    "repeat": "sent twice",
    "lose": "answer lost",
    "late": "request lost",
}


class StepFault(NamedTuple):
    """Where, and what. ``step`` is the number of the step."""

    server: str
    saga: str
    step: int
    phase: Phase
    kind: Kind


class StepFaults:
    """The faults that are still to happen. ``happened`` are those that have."""

    def __init__(self, cloud: "SimCloud") -> None:
        self._cloud = cloud
        # By where they are to happen.
        self._waiting: dict[tuple[str, str, int, Phase], list[StepFault]] = {}
        self.happened: list[StepFault] = []
        self.commanded: list[Callable[[str, AgentCommand, object], None]] = []
        """Told of each command that a driver begins with: the host, the command, and the driver, of which an
        agent that is started again has another."""
        self._runs: dict[str, SagaRun] = {}
        # Commands whose outcome the conductor is never told.
        self._unheard: set[str] = set()
        # Runs whose change is refused for as long as they have this version.
        self._refused: set[tuple[str, int]] = set()
        self.at_driver: list[Callable[[str, AgentCommand, Edge], Awaitable[None]]] = []
        """Awaited by the driver of a host before and after it carries a command out."""
        self.at_append: list[Callable[[Process, Batch], Trouble | None]] = []
        """Asked what goes wrong with each append that is about to leave a process, before luck is."""
        self.doomed: dict[str, Edge | int] = {}
        """Workers and conductors that die at their next write: before it leaves, when it is in, or when they
        have gone on so many times after that. Agents go on so many times after their next command."""
        cloud.network.decide = self._on_request
        for cell in cloud.cells.values():
            cell.database.appended.append(functools.partial(self._on_appended, cell.name))
        for database in cloud.databases():
            database.appended.append(self._on_written)
            database.decide = self._on_call

    def add(self, fault: StepFault) -> None:
        self._waiting.setdefault(fault[:4], []).append(fault)

    def heal(self) -> None:
        """What has not happened yet does not happen any more."""
        self._waiting.clear()
        self.doomed.clear()

    # -- where runs stand -----------------------------------------------------------------------

    def _on_appended(self, cell: str, process: Process, row: JournalRow, batch: Batch) -> None:
        for before, run in _changes(batch):
            if run is None or is_finished(run):
                ended = run or before
                assert ended is not None, "a change has one side at least"
                known = self._runs.get(ended.server)
                # Of a run that crosses cells, each of them has a copy that ends.
                if known is not None and known.id == ended.id:
                    del self._runs[ended.server]
                continue
            if is_away(run):
                continue
            self._runs[run.server] = run
            if self._waiting and not isinstance(task_of(run), Skip) and self._take(run, "crash before"):
                self._cloud.cells[cell].crash()

    def _take(self, run: SagaRun, *kinds: Kind) -> StepFault | None:
        """The fault of one of these kinds that is due where a run stands, if one is."""
        due = self._waiting.get((run.server, run.saga, run.step, run.phase), [])
        for fault in due:
            if fault.kind in kinds:
                due.remove(fault)
                self.happened.append(fault)
                self._cloud.world.trace.note("faults", f"{fault.kind} at {run.saga} {run.step} {run.phase}")
                return fault
        return None

    # -- edges ----------------------------------------------------------------------------------

    def _die(self, process: Process, edge: Edge) -> bool:
        """Whether a process dies here."""
        if self.doomed.get(process.name) != edge:
            return False
        del self.doomed[process.name]
        self._end(process)
        return True

    def _end(self, process: Process) -> None:
        part = next(one for one in self._cloud.parts() if one.name == process.name)
        if part.process is process:
            part.crash()
        else:
            process.kill()

    def count_down(self, process: Process | None) -> None:
        """A process that is to die at an await soon after this is counted from now on."""
        steps = None if process is None else self.doomed.get(process.name)
        if process is not None and isinstance(steps, int):
            del self.doomed[process.name]
            self._cloud.world.trace.note(process.name, f"dies when it has gone on {steps} times")
            process.die_after(steps, functools.partial(self._end, process))

    def _on_written(self, process: Process, row: JournalRow, batch: Batch) -> None:
        if not self._die(process, "after"):
            self.count_down(process)

    def _on_call(self, process: Process, name: str, arguments: tuple[Any, ...]) -> Trouble | None:
        """A conductor that is to die after a step dies when it writes the step's outcome."""
        if name != "append":
            return None
        for asked in self.at_append:
            if trouble := asked(process, arguments[0]):
                return trouble
        if self._die(process, "before"):
            return "unsent"
        if process.name not in self._cloud.cells or not self._waiting:
            return None
        for run, after in _changes(arguments[0]):
            if run is None or after is None or after.log == run.log or isinstance(task_of(run), Skip):
                continue
            if self._take(run, "crash after"):
                self._cloud.cells[process.name].crash()
                return "unsent"
        return None

    def _on_request(self, source: str, address: str, request: WireRequest) -> Mishap | None:
        if request.path == REPORT:
            return self._on_report(request.content.decode())
        if source not in self._cloud.cells or not self._waiting:
            return None
        about = request.path + request.content.decode()
        for run in self._runs.values():
            is_about = run.server in about or (run.migration is not None and run.migration in about)
            if is_about and not isinstance(task_of(run), AgentTask | Skip):
                return self._on_claim(run, request)
        return None

    def _on_claim(self, run: SagaRun, request: WireRequest) -> Mishap | None:
        if (run.id, run.version) in self._refused:
            return "refused"
        is_check = task_of(run) == ClaimTask("check")
        # What every saga with a migration checks is what that holds.
        may_fail = not is_check or (run.migration or run.server) in request.path
        fault = self._take(run, *(("fail",) if may_fail else ()), "repeat", "lose", "late")
        if fault is None:
            return None
        if fault.kind == "fail":
            if is_check:
                return "changed"
            if run.phase == "forward":
                self._refused.add((run.id, run.version))
        return _AT_PLACEMENT[fault.kind]

    def _on_report(self, report: str) -> Mishap | None:
        if any(command in report for command in self._unheard):
            return "request lost"
        for run in self._runs.values() if self._waiting else ():
            task = task_of(run)
            if isinstance(task, AgentTask) and f'"{task.id}"' in report:
                fault = self._take(run, "repeat", "lose", "late")
                if fault is None:
                    return None
                if fault.kind == "late":
                    self._unheard.add(task.id)
                return _AT_AGENT[fault.kind]
        return None

    def on_command(self, host: str) -> None:
        """The driver of a host begins with a command."""
        self.count_down(self._cloud.hosts[host].process)

    def fails(self, command: AgentCommand) -> bool:
        """Whether a driver is to fail at a command."""
        run = self._runs.get(command.server)
        task = None if run is None else task_of(run)
        if run is None or not isinstance(task, AgentTask) or task.id != command.id:
            return False
        return self._take(run, "fail") is not None


class FaultyDriver(SimDriver):
    """A hypervisor that fails where it is told to."""

    def __init__(
        self,
        host: str,
        state: AgentState,
        behaviours: Behaviours,
        rng: random.Random,
        tree: Callable[[], Iterable[ReportedProvider]],
        faults: StepFaults,
    ) -> None:
        super().__init__(host, state.disk, behaviours, rng, state.units, tree)
        self._faults = faults

    async def carry_out(self, command: AgentCommand) -> None:
        for told in self._faults.commanded:
            told(self._host, command, self)
        self._faults.on_command(self._host)
        if self._faults.fails(command):
            raise DriverError("injected")
        for passed in tuple(self._faults.at_driver):
            await passed(self._host, command, "before")
        await super().carry_out(command)
        for passed in tuple(self._faults.at_driver):
            await passed(self._host, command, "after")


def _changes(batch: Batch) -> Iterator[tuple[SagaRun | None, SagaRun | None]]:
    """The saga runs that a batch changes, before and after."""
    for entry in batch.entries:
        for event in entry.events:
            if isinstance(event, RecordChanged):
                before, after = event.before, event.after
                if isinstance(before, SagaRun | None) and isinstance(after, SagaRun | None):
                    yield before, after
