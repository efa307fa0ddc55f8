"""Crashes at every step of every saga, of every process that takes part in it; and which of them there are.

A crash is of a role, where a saga run stands, and when. Roles, and where they take part:

* ``region worker``: serves the request that begins a saga (or aborts one), and the conductor's requests to
  Placement: at every step that is done there;
* ``reconciler``: begins what clusters need: servers deleted and created; and changes the clusters' records;
* ``dispatcher``: hands every run that the region has begun over to its cell, and clears the outbox; the same
  for an abort;
* ``conductor``: writes the outcome of every step, also where there is nothing to do, forward, while undoing,
  and when the claim is moved to an alternate; begins the sagas that a cell begins by itself;
* ``agent``: carries out every step that is done on a host;
* ``status sync``: brings up where a run stands at every step that does something, and its end; then it
  removes the run. A step with nothing to do passes in no time: nobody need see a run there.

A role is known by the origin of what it writes, and where a run stands by the rows that get into the
journals. What dies is the process that the role is part of: several roles of a region are one process.

When: ``before`` the row is written, it is not in; ``after`` it got in, and its writer has not heard of it. An
agent dies ``before`` the driver does anything, ``after`` that and before it is written down, or when it is
``saved`` and not reported. A worker that serves a read dies before it serves it, or when it has.

The table of all crashes follows from the sagas (``all_crashes``).
"""

import asyncio
from collections.abc import Callable, Collection, Container, Iterator
from typing import Final, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec

from berth.cell.protocol import REPORT, AgentCommand, Report
from berth.client import WireRequest
from berth.journal import JournalRow
from berth.model.clusters import Cluster
from berth.model.events import Batch, ConsumerChanged, Entry, RecordChanged
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Action, Migration, Server
from berth.sagas import create, delete, live_migrate, release
from berth.sagas.runner import (
    ClaimTask,
    MoveClaim,
    find_outcome,
    is_finished,
    saga_of,
    step_of,
    task_of,
)
from berth.sagas.saga import GONE, PLACEMENT, Saga, all_sagas
from berth.sim.cloud import HostPart, SimCloud
from berth.sim.database import Database, Trouble
from berth.sim.faults import StepFault
from berth.sim.network import Edge, Mishap
from berth.sim.world import Process

P = ParamSpec("P")
T = TypeVar("T")

Role = Literal["region worker", "reconciler", "dispatcher", "conductor", "agent", "status sync"]
When = Literal["before", "after", "saved"]

BEGIN: Final = "begin"
HAND_OVER: Final = "hand over"
CLEAR: Final = "clear the outbox"
END: Final = "end"
REMOVE: Final = "remove the run"
DROP: Final = "drop nodes"
"""What is done to a run, or a cluster, besides its steps."""

FORWARD: Final = "forward"
BACK: Final = "back"
ALTERNATE: Final = "alternate"
"""At the first step, when the claim is moved to the next alternate."""
ABORT: Final = "abort"
DONE: Final = "done"
FAILED: Final = "failed"

CLUSTER: Final = "cluster"
"""In place of a saga: the cluster's own record."""

_ROLES: Final[dict[str | None, Role]] = {
    "conductor": "conductor",
    "dispatcher": "dispatcher",
    "status-sync": "status sync",
}
_AT_WRITE: Final[tuple[When, ...]] = ("before", "after")
_AT_DRIVER: Final[tuple[When, ...]] = ("before", "after", "saved")
_HOLD_S: Final = 45.0
_LOOK_S: Final = 0.5


class Crash(NamedTuple):
    """``step``: the name of one, or what else is done to a run; ``phase``: where the run goes meanwhile."""

    role: Role
    saga: str
    step: str
    phase: str
    when: When

    def __str__(self) -> str:
        return f"{self.role} dies {self.when}: {self.saga}, {self.step}, {self.phase}"


# -- all of them --------------------------------------------------------------------------------


def all_crashes() -> tuple[Crash, ...]:
    """Every crash that there can be at a step of a saga, saga by saga."""
    found = [crash for saga in all_sagas() for crash in _crashes_of(saga)]
    found += _crashes("reconciler", CLUSTER, DROP, FORWARD)
    found += _crashes("reconciler", CLUSTER, END, FORWARD)
    return tuple(found)


def step_that_fails(saga: Saga, phase: str) -> int | None:
    """The step that must fail, so that a run of a saga comes through a phase; None: none of them."""
    if phase == ALTERNATE:
        return _last_with(saga, "next_alternate")
    if phase in (BACK, FAILED):
        undone = _last_with(saga, "undo", "next_alternate")
        return _last_with(saga, "stop") if undone is None else undone
    return None


def _last_with(saga: Saga, *on_failure: str) -> int | None:
    found = (n for n, step in enumerate(saga.steps) if step.on_failure in on_failure and step.do != "claimed")
    return max(found, default=None)


def _crashes_of(saga: Saga) -> Iterator[Crash]:
    if saga.task is None:
        yield from _crashes("conductor", saga.name, BEGIN, FORWARD)
    else:
        yield from _crashes("region worker", saga.name, BEGIN, FORWARD)
        yield from _crashes("dispatcher", saga.name, HAND_OVER, FORWARD)
        yield from _crashes("dispatcher", saga.name, CLEAR, FORWARD)
    if saga in (create.SAGA, delete.SAGA):
        yield from _crashes("reconciler", saga.name, BEGIN, FORWARD)
    if saga is live_migrate.SAGA:
        yield from _crashes("region worker", saga.name, BEGIN, ABORT)
        yield from _crashes("dispatcher", saga.name, HAND_OVER, ABORT)
        yield from _crashes("dispatcher", saga.name, CLEAR, ABORT)
    for place in _places_of(saga):
        yield from _crashes_at(saga, place)
    for phase in (DONE, FAILED):
        if phase == DONE or step_that_fails(saga, phase) is not None:
            yield from _crashes("status sync", saga.name, END, phase)
            yield from _crashes("status sync", saga.name, REMOVE, phase)


class _Place(NamedTuple):
    """A step in a phase. ``at``: where something is done then; None: there is nothing to do."""

    step: str
    phase: str
    at: str | None


def _places_of(saga: Saga) -> Iterator[_Place]:
    for step in saga.steps:
        yield _Place(step.name, FORWARD, None if step.do == "claimed" else step.at)
    if _last_with(saga, "next_alternate") is not None:
        yield _Place(saga.steps[0].name, ALTERNATE, PLACEMENT)
    last = _last_with(saga, "undo", "next_alternate")
    for step in () if last is None else saga.steps[: last + 1]:
        yield _Place(step.name, BACK, None if step.undo is None else step.at)


def _crashes_at(saga: Saga, place: _Place) -> Iterator[Crash]:
    yield from _crashes("conductor", saga.name, place.step, place.phase)
    if place.at is not None:
        # The end of a saga that a cell has begun by itself is all that the region is told of it.
        if saga.apply is None:
            yield from _crashes("status sync", saga.name, place.step, place.phase)
        if place.at == PLACEMENT:
            yield from _crashes("region worker", saga.name, place.step, place.phase)
        else:
            yield from _crashes("agent", saga.name, place.step, place.phase, _AT_DRIVER)


def _crashes(
    role: Role, saga: str, step: str, phase: str, when: tuple[When, ...] = _AT_WRITE
) -> Iterator[Crash]:
    return (Crash(role, saga, step, phase, one) for one in when)


# -- making them happen -------------------------------------------------------------------------


class _Armed(NamedTuple):
    """A crash that is to happen to one of some servers or clusters, by their names. ``failing``: the step
    that fails as soon as the run has begun, and how often."""

    subjects: frozenset[str]
    crash: Crash
    failing: tuple[int, int] | None


class _Point(NamedTuple):
    """What one entry of a batch is about."""

    subjects: tuple[str, ...]
    role: Role
    saga: str
    step: str
    phase: str


class Crashes:
    """The crashes that are still to happen. ``hit`` are those that have; ``begun`` the sagas that have begun,
    each with the name of its server; ``clusters`` those that there are, by their names."""

    def __init__(self, cloud: SimCloud) -> None:
        self._cloud = cloud
        self._rng = cloud.world.rng("crashes")
        self._parts = {part.name: part for part in cloud.parts()}
        self._armed: list[_Armed] = []
        self.hit: dict[Crash, None] = {}
        self.begun: set[tuple[str, str]] = set()
        self.clusters: dict[str, Cluster] = {}
        # By the ids of servers.
        self._names: dict[str, str] = {}
        # The last versions of runs, of those that have not ended, and all versions.
        self._runs: dict[str, SagaRun] = {}
        self._unfinished: dict[str, SagaRun] = {}
        self._versions: dict[tuple[str, int], SagaRun] = {}
        for database in cloud.databases():
            database.appended.append(self._on_appended)
            _decide_first(database, self._on_call)
        cloud.network.decide = _first_of(self._on_request, cloud.network.decide)
        cloud.network.served = self._on_served
        cloud.faults.at_driver.append(self._at_driver)

    def arm(self, subjects: Collection[str], crash: Crash, failing: tuple[int, int] | None = None) -> None:
        self._armed.append(_Armed(frozenset(subjects), crash, failing))

    def disarm(self, subject: str) -> None:
        self._armed = [one for one in self._armed if subject not in one.subjects]

    # -- what is due ----------------------------------------------------------------------------

    def _take(self, points: Collection[_Point], when: When) -> bool:
        """Whether a process is to die here."""
        if not points:
            return False
        due = [one for one in self._armed for point in points if _is_due(one, point, when)]
        for one in due:
            self._armed.remove(one)
            self.hit[one.crash] = None
            self._cloud.world.trace.note("crashes", str(one.crash))
        return bool(due)

    def _kill(self, name: str, *, keeps_effects: bool = False) -> None:
        part = self._parts[name]
        if keeps_effects and isinstance(part, HostPart):
            part.kill_agent()
        else:
            part.kill()
        self._cloud.world.call_later(self._rng.uniform(0.5, 3), part.revive)

    def _must_wait(self, run: SagaRun) -> bool:
        """Whether a run is to stay at its step until the status sync has seen it there, and died."""
        point = self._at(run, "status sync")
        return any(_is_due(one, point, one.crash.when) for one in self._armed)

    # -- writes ---------------------------------------------------------------------------------

    def _on_call(self, process: Process, name: str, arguments: tuple[object, ...]) -> Trouble | None:
        if name != "append" or not isinstance(arguments[0], Batch):
            return None
        if not self._take(self._find_points(arguments[0]), "before"):
            return None
        self._kill(process.name)
        return "unsent"

    def _on_appended(self, process: Process, row: JournalRow, batch: Batch) -> None:
        if self._take(self._find_points(batch), "after"):
            self._kill(process.name)
        for entry in batch.entries:
            for event in entry.events:
                if isinstance(event, RecordChanged):
                    self._follow(event)

    def _follow(self, event: RecordChanged) -> None:
        if isinstance(event.before, Cluster):
            del self.clusters[event.before.name]
        match event.after:
            case Cluster() as cluster:
                self.clusters[cluster.name] = cluster
            case Outbox(run=SagaRun() as run) if event.before is None:
                self._runs[run.id] = run
                name = self._names[run.server]
                self.begun.add((name, saga_of(run).name))
                for one in self._armed:
                    if one.failing is not None and name in one.subjects:
                        self._have_fail(run, *one.failing)
            case SagaRun() as run:
                self._runs[run.id] = run
                self._versions[run.id, run.version] = run
                self._unfinished[run.id] = run
                if is_finished(run):
                    del self._unfinished[run.id]

    def _have_fail(self, run: SagaRun, step: int, times: int) -> None:
        for _ in range(times):
            self._cloud.faults.add(StepFault(run.server, run.saga, step, "forward", "fail"))

    # -- what an entry is about -----------------------------------------------------------------

    def _find_points(self, batch: Batch) -> list[_Point]:
        return [point for entry in batch.entries for point in self._points_of(entry)]

    def _points_of(self, entry: Entry) -> Iterator[_Point]:
        role = _role_of(entry)
        records = [event for event in entry.events if isinstance(event, RecordChanged)]
        for event in records:
            if isinstance(event.after, Server):
                self._names[event.after.id] = event.after.name
        clusters = tuple(event.before.name for event in records if isinstance(event.before, Cluster))
        is_beginning = False
        for event in records:
            match event.before or event.after:
                case SagaRun():
                    yield from self._of_run(role, event)
                case Outbox() as outbox:
                    is_beginning = True
                    yield from self._of_outbox(role, event, outbox, clusters)
                case Action() if role == "status sync":
                    yield from self._of_action(event)
                case Migration() if role == "status sync":
                    yield from self._of_evacuation(event)
                case Cluster() as cluster if role == "reconciler":
                    yield from _of_cluster(event, cluster)
        if role == "region worker" and not is_beginning:
            changed = {event.id for event in entry.events if isinstance(event, ConsumerChanged)}
            yield from self._of_claims(changed)

    def _of_run(self, role: Role, event: RecordChanged) -> Iterator[_Point]:
        match event.before, event.after:
            case None, SagaRun() as run:
                yield self._point(run, role, HAND_OVER if role == "dispatcher" else BEGIN, FORWARD)
            case SagaRun() as run, None:
                yield self._point(run, role, REMOVE, run.phase)
            case SagaRun() as run, _:
                if role == "dispatcher":
                    yield self._point(run, role, HAND_OVER, ABORT)
                else:
                    yield self._at(run, role)

    def _of_outbox(
        self, role: Role, event: RecordChanged, outbox: Outbox, clusters: tuple[str, ...]
    ) -> Iterator[_Point]:
        run = outbox.run or self._runs.get(outbox.abort or "")
        if run is None or role == "status sync":
            return
        phase = FORWARD if outbox.run is not None else ABORT
        step = BEGIN if event.before is None else CLEAR
        point = self._point(run, role, step, phase)
        yield point._replace(subjects=(*point.subjects, *clusters))

    def _of_action(self, event: RecordChanged) -> Iterator[_Point]:
        match event.before, event.after:
            case _, Action() as action:
                run = self._versions.get((action.id, action.seen))
                if run is not None and is_finished(run):
                    yield self._point(run, "status sync", END, run.phase)
                elif run is not None:
                    yield self._at(run, "status sync")
            case Action() as action, None:
                # All actions of a server that is gone are removed; the last one is of the run that ends.
                run = self._runs.get(action.id)
                if run is not None and is_finished(run) and find_outcome(run).state == GONE:
                    yield self._point(run, "status sync", END, run.phase)

    def _of_evacuation(self, event: RecordChanged) -> Iterator[_Point]:
        before = event.before
        if isinstance(before, Migration) and before.status == "done":
            for run in self._runs.values():
                if run.saga == release.SAGA.key and run.migration == before.id and is_finished(run):
                    yield self._point(run, "status sync", END, run.phase)

    def _of_claims(self, consumers: Collection[str]) -> Iterator[_Point]:
        for run in self._waiting_for_placement(consumers):
            yield self._at(run, "region worker")

    def _waiting_for_placement(self, consumers: Container[str]) -> Iterator[SagaRun]:
        """The runs whose step changes the allocations of one of these consumers; or of one that is named in
        a text."""
        for run in self._unfinished.values():
            is_about = any(one in consumers for one in _consumers_of(run))
            if is_about and isinstance(task_of(run), ClaimTask | MoveClaim):
                yield run

    def _at(self, run: SagaRun, role: Role) -> _Point:
        """Where a run stands."""
        phase = ALTERNATE if isinstance(task_of(run), MoveClaim) else run.phase
        return self._point(run, role, step_of(run).name, phase)

    def _point(self, run: SagaRun, role: Role, step: str, phase: str) -> _Point:
        return _Point((self._names.get(run.server, ""),), role, saga_of(run).name, step, phase)

    # -- requests -------------------------------------------------------------------------------

    def _on_request(self, source: str, address: str, request: WireRequest) -> Mishap | None:
        if not self._armed:
            return None
        if request.path == REPORT:
            report = msgspec.json.decode(request.content, type=Report)
            if self._take(self._of_command(report.command), "saved"):
                self._kill(source)
                return "request lost"
        elif source in self._cloud.cells and any(map(self._must_wait, self._runs_in(request))):
            return "request lost"
        return None

    def _on_served(self, client: Process, server: Process, request: WireRequest, edge: Edge) -> None:
        """A check only reads: no row tells of it."""
        if self._armed and client.name in self._cloud.cells:
            checked = [run for run in self._runs_in(request) if task_of(run) == ClaimTask("check")]
            if self._take([self._at(run, "region worker") for run in checked], edge):
                self._kill(server.name)

    def _runs_in(self, request: WireRequest) -> list[SagaRun]:
        """The runs whose step a request to Placement is for."""
        return list(self._waiting_for_placement(request.path + request.content.decode()))

    # -- commands -------------------------------------------------------------------------------

    async def _at_driver(self, host: str, command: AgentCommand, edge: Edge) -> None:
        if edge == "before":
            waited_s = 0.0
            while waited_s < _HOLD_S and any(map(self._must_wait, self._run_of(command.id))):
                await asyncio.sleep(_LOOK_S)
                waited_s += _LOOK_S
        if self._take(self._of_command(command.id), edge):
            self._kill(host, keeps_effects=edge == "after")
            await asyncio.Event().wait()

    def _of_command(self, id: str) -> list[_Point]:
        return [self._at(run, "agent") for run in self._run_of(id)]

    def _run_of(self, id: str) -> list[SagaRun]:
        """The run whose step a command is, if it is at that step still."""
        run = self._unfinished.get(id.partition(".")[0])
        if run is None:
            return []
        direction = "undo" if run.phase == "back" else "do"
        return [run] if id == f"{run.id}.{run.attempt}.{run.step}.{direction}" else []


def _is_due(armed: _Armed, point: _Point, when: When) -> bool:
    # First what is mostly different, and cheap to tell.
    return not armed.subjects.isdisjoint(point.subjects) and armed.crash == (*point[1:], when)


def _consumers_of(run: SagaRun) -> tuple[str, ...]:
    """Whose allocations a run may change. While a migration releases, its server may be in another run."""
    if run.migration is None:
        return (run.server,)
    return (run.migration,) if run.saga == release.SAGA.key else (run.server, run.migration)


def _role_of(entry: Entry) -> Role:
    origin = entry.origin
    if origin.action == "reconciler":
        return "reconciler"
    return _ROLES.get(origin.user, "region worker")


def _of_cluster(event: RecordChanged, cluster: Cluster) -> Iterator[_Point]:
    if event.after is None:
        yield _Point((cluster.name,), "reconciler", CLUSTER, END, FORWARD)
    elif isinstance(event.after, Cluster) and len(event.after.nodes) < len(cluster.nodes):
        yield _Point((cluster.name,), "reconciler", CLUSTER, DROP, FORWARD)


Decide = Callable[[Process, str, tuple[object, ...]], Trouble | None]


def _decide_first(database: Database, decide: Decide) -> None:
    database.decide = _first_of(decide, database.decide)


def _first_of(one: Callable[P, T | None], other: Callable[P, T | None] | None) -> Callable[P, T | None]:
    """What the first of them decides; where it decides nothing, what the other does."""
    if other is None:
        return one
    rest = other

    def decide(*args: P.args, **kwargs: P.kwargs) -> T | None:
        return one(*args, **kwargs) or rest(*args, **kwargs)

    return decide
