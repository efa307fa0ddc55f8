"""Every step of every operation goes wrong in every way there is; afterwards everything is as the table says.

Each case is a server of its own in a cloud with real journals, a real conductor and simulated hosts. What
must be so afterwards does not depend on luck: a fault that is no failure (a repeated step, a crash, an answer
of Placement's that is lost) changes nothing in how the operation ends; one that is ends it as the step says.
"""

import asyncio
from typing import NamedTuple

import pytest

from berth.cell.conductor import Deadlines
from berth.doctor.findings import examine
from berth.model.events import Batch, RecordChanged
from berth.model.ids import ConsumerId
from berth.model.saga_runs import Instance, Phase, SagaRun, read_sheet
from berth.model.servers import Migration, Server
from berth.sagas.conflicts import held_now, same
from berth.sagas.saga import AS_BEFORE, GONE, PLACEMENT, Holds, Saga, Step, all_sagas, find_saga
from berth.sagas.table import Ending, find_failure, find_success
from berth.sim.cloud import SimCloud
from berth.sim.faults import KINDS, Kind, StepFault
from berth.view import View
from tests.lifecycle.stories import beginning, brought_before, cells_ready

SEED = 20261115


class Case(NamedTuple):
    """``broken``: the step that fails before, so that there is something to undo."""

    saga: str
    step: int
    phase: Phase
    kind: Kind
    broken: int | None = None

    @property
    def name(self) -> str:
        undoing = "" if self.broken is None else " while undoing"
        return f"{self.kind} at step {self.step}{undoing}"


def does_something(step: Step) -> bool:
    return step.do != "claimed"


def cases(saga: Saga) -> list[Case]:
    found = [
        Case(saga.name, number, "forward", kind)
        for number, step in enumerate(saga.steps)
        if does_something(step)
        for kind in KINDS
    ]
    breaking = [
        n
        for n, step in enumerate(saga.steps)
        if step.on_failure in ("undo", "next_alternate") and _is_failure(step, "fail")
    ]
    if breaking:
        last = breaking[-1]
        found += [
            Case(saga.name, number, "back", kind, last)
            for number, step in enumerate(saga.steps[: last + 1])
            if step.undo is not None
            for kind in KINDS
        ]
    return found


OPERATIONS = [saga.name for saga in all_sagas() if saga.task is not None]


@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_fault_at_every_step(name: str) -> None:
    # One that needs a dead host has the cloud to itself each time.
    for number, some in enumerate(_batches(name)):
        cloud = SimCloud(seed=SEED + number, hosts=6, deadlines=Deadlines(live_migrate=300))
        async with cloud.running():
            await asyncio.gather(*(_play(cloud, case) for case in some))


CROSSING = ("resize", "migrate", "confirm", "revert", "delete")
"""What may be done to a server that is, or comes to be, in two cells."""


@pytest.mark.parametrize("name", CROSSING)
async def test_every_fault_at_every_step_between_cells(name: str) -> None:
    """The cell of the server has one host, and so every move goes to the other cell."""
    for number, some in enumerate(_batches(name)):
        cloud = SimCloud(seed=SEED + number, hosts=3, cells=2)
        [lone] = [host.name for host in cloud.hosts.values() if host.host.cell == "cell2"]
        async with cloud.running():
            await cells_ready(cloud)
            await asyncio.gather(*(_play(cloud, case, lone) for case in some))


def _batches(name: str) -> list[list[Case]]:
    all_cases = cases(find_saga(name))
    if name == "evacuate":
        return [[case] for case in all_cases]
    # A crash makes a conductor forget whom it was not to hear: those have a cloud of their own.
    crashes = [case for case in all_cases if case.kind.startswith("crash")]
    return [crashes, [case for case in all_cases if case not in crashes]]


async def _play(cloud: SimCloud, case: Case, crossing_from: str | None = None) -> None:
    """``crossing_from``: the host that the server crosses cells from."""
    context = cloud.context()._replace(resizes_in_place=False, crosses_cells="on" if crossing_from else "off")
    is_resized = _is_of_resized(case) or (crossing_from is not None and case.saga == "delete")
    server = await brought_before(cloud, "confirm" if is_resized else case.saga, context, crossing_from)
    before = await cloud.server(server.id)
    if case.broken is not None:
        context = context._replace(attempts_max=1)
        cloud.faults.add(StepFault(server.id, case.saga, case.broken, "forward", "fail"))
    fault = StepFault(server.id, case.saga, case.step, case.phase, case.kind)
    cloud.faults.add(fault)
    refused = await cloud.begin(beginning(cloud, case.saga, server, context))
    assert refused is None, refused
    if crossing_from is not None:
        [migration] = await cloud.read(lambda view: view.records.find(Migration, "server", server.id))
        assert migration.source.cell != migration.dest.cell
    await cloud.at_rest(server.id)
    assert fault in cloud.faults.happened, f"{case.name} never happened"
    await _check(cloud, case, before, server.id, is_resized)


# -- deleted meanwhile --------------------------------------------------------------------------


class Meanwhile(NamedTuple):
    """A deletion that is asked for when a run has come to a step. ``broken``: as in ``Case``."""

    saga: str
    step: int
    phase: Phase
    broken: int | None = None


def deletions(saga: Saga) -> list[Meanwhile]:
    found = [Meanwhile(saga.name, number, "forward") for number in range(len(saga.steps))]
    breaking = [n for n, step in enumerate(saga.steps) if step.on_failure in ("undo", "next_alternate")]
    if breaking:
        last = breaking[-1]
        found += [Meanwhile(saga.name, number, "back", last) for number in range(last + 1)]
    return found


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "delete"])
async def test_a_delete_at_every_step(name: str) -> None:
    all_cases = deletions(find_saga(name))
    batches = [[case] for case in all_cases] if name == "evacuate" else [all_cases]
    for number, some in enumerate(batches):
        cloud = SimCloud(seed=SEED + number, hosts=6, deadlines=Deadlines(live_migrate=300))
        async with cloud.running():
            await asyncio.gather(*(_delete_meanwhile(cloud, case) for case in some))


@pytest.mark.parametrize("name", [name for name in CROSSING if name != "delete"])
async def test_a_delete_at_every_step_between_cells(name: str) -> None:
    cloud = SimCloud(seed=SEED, hosts=3, cells=2)
    [lone] = [host.name for host in cloud.hosts.values() if host.host.cell == "cell2"]
    async with cloud.running():
        await cells_ready(cloud)
        cases = deletions(find_saga(name))
        await asyncio.gather(*(_delete_meanwhile(cloud, case, lone) for case in cases))


async def _delete_meanwhile(cloud: SimCloud, case: Meanwhile, crossing_from: str | None = None) -> None:
    context = cloud.context()._replace(resizes_in_place=False, crosses_cells="on" if crossing_from else "off")
    server = await brought_before(cloud, case.saga, context, crossing_from)
    if case.broken is not None:
        context = context._replace(attempts_max=1)
        cloud.faults.add(StepFault(server.id, case.saga, case.broken, "forward", "fail"))
    asked: list[asyncio.Task[object]] = []

    def look(process: object, row: object, batch: Batch) -> None:
        for run in _runs_in(batch):
            if (run.server, run.step, run.phase) == (server.id, case.step, case.phase) and not asked:
                asked.append(asyncio.create_task(cloud.begin(beginning(cloud, "delete", server))))

    for cell in cloud.cells.values():
        cell.database.appended.append(look)
    refused = await cloud.begin(beginning(cloud, case.saga, server, context))
    assert refused is None, refused
    await cloud.at_rest(server.id)
    assert asked, f"{case} never happened"
    assert await asked[0] is None
    after = await cloud.at_rest(server.id)
    assert after is None, f"{case}: {after}"
    await cloud.read(lambda view: _check_nothing_left(view, server.id, str(case)))
    for host in cloud.hosts.values():
        # The one that it was to be evacuated from has it still, and destroys it when it is back.
        if not host.is_alive:
            host.revive()
    await _check_disks(cloud, server.id, None, str(case))


def _runs_in(batch: Batch) -> list[SagaRun]:
    events = [event for entry in batch.entries for event in entry.events]
    records = [event.after for event in events if isinstance(event, RecordChanged)]
    return [record for record in records if isinstance(record, SagaRun)]


def _check_nothing_left(view: View, id: str, about: str) -> None:
    """But for what an evacuation that was over has left on a host that is down."""
    assert held_now(view, id) == (), about
    migrations = view.records.find(Migration, "server", id)
    assert all(one.status == "done" for one in migrations), about
    wrong = [one for one in examine(view, 0) if one.subject in (id, *(one.id for one in migrations))]
    assert not wrong, f"{about}: {wrong}"


# -- what must be so afterwards -----------------------------------------------------------------


def _is_failure(step: Step, kind: Kind) -> bool:
    """Whether a fault makes a step fail. An answer that is lost is asked for again: an agent's while there is
    time, Placement's always."""
    return kind == "fail" or (kind == "late" and step.at != PLACEMENT)


def _is_of_resized(case: Case) -> bool:
    """Only one that waits for its confirmation is on two hosts when it is deleted."""
    return case.saga == "delete" and find_saga("delete").steps[case.step].at == "source"


def _expected(saga: Saga, case: Case, is_resized: bool) -> Ending:
    step = saga.steps[case.step]
    if case.broken is not None:
        outcome = find_failure(saga, case.broken)
        assert outcome is not None
        cannot_run = _is_failure(step, case.kind) and step.runs_again
        return outcome._replace(state="error") if cannot_run else outcome
    if not _is_failure(step, case.kind) or step.on_failure == "next_alternate":
        # Where there are alternates, the next of them is as good.
        return find_success(saga)
    outcome = find_failure(saga, case.step)
    if outcome is None:
        return find_success(saga)
    return outcome._replace(holds="dest, migration source") if is_resized else outcome


def _ends_well(saga: Saga, case: Case) -> bool:
    """Whether the operation succeeds all the same."""
    step = saga.steps[case.step]
    is_failed = _is_failure(step, case.kind) and step.on_failure in ("undo", "stop")
    return case.broken is None and not is_failed


def _state_before(saga: Saga, before: Server | None) -> str:
    """What "as before" means: for the second half of a resize, before the first."""
    assert before is not None, "only what is there can be as before"
    return (before.state_before or before.state) if saga.name in ("confirm", "revert") else before.state


async def _check(cloud: SimCloud, case: Case, before: Server | None, id: str, is_resized: bool) -> None:
    saga = find_saga(case.saga)
    expected = _expected(saga, case, is_resized)
    after = await cloud.server(id)
    about = f"{saga.name}: {case.name}: {after}"
    if expected.state == GONE:
        assert after is None, about
    else:
        assert after is not None, about
        state = _state_before(saga, before) if expected.state == AS_BEFORE else expected.state
        assert after.state == state, about
        assert after.task is None, about
        assert (after.fault is None) == _ends_well(saga, case), about
    await cloud.read(lambda view: _check_books(view, id, after, expected.holds, about))
    await _check_disks(cloud, id, after, about)
    if after is not None and after.place is not None:
        await _check_sheet(cloud, after, about)


async def _check_sheet(cloud: SimCloud, after: Server, about: str) -> None:
    """A region that has forgotten the server could adopt it as it is."""
    assert after.place is not None
    instance = await cloud.readers[after.place.cell].read(lambda view: view.records.get(Instance, after.id))
    assert instance is not None, about
    sheet = read_sheet(instance.sheet)
    if not instance.hosts:
        assert sheet is None, about
        return
    assert sheet is not None, about
    state = {"resized": "active", "shelved": "stopped", "soft-delete": "stopped"}.get(
        after.state, after.state
    )
    assert (sheet.state, sheet.host, sheet.spec.flavor) == (state, after.place.id, after.flavor), about
    assert same(sheet.held, after.held), about


def _check_books(view: View, id: str, after: Server | None, holds: Holds, about: str) -> None:
    """The ledger holds exactly what the state says, and the records know it."""
    held = held_now(view, id)
    migrations = view.records.find(Migration, "server", id)
    moved = [one for one in migrations if held_now(view, one.id)]
    assert bool(held) == (holds != "nothing"), about
    assert bool(moved) == (holds == "dest, migration source"), about
    if after is not None:
        assert same(after.held, held), about
        record = view.consumers.get(ConsumerId(id))
        assert after.generation == (record.consumer.generation if record is not None else None), about
        if held:
            assert after.place is not None, about
            assert {view.providers[provider].root.id for provider, _ in held} == {after.place.id}, about
    for migration in moved:
        there = held_now(view, migration.id)
        assert same(migration.held, there), about
        assert {view.providers[provider].root.id for provider, _ in there} == {migration.source.id}, about
    wrong = [one for one in examine(view, 0) if one.subject in (id, *(one.id for one in migrations))]
    assert not wrong, f"{about}: {wrong}"


async def _check_disks(cloud: SimCloud, id: str, after: Server | None, about: str) -> None:
    """The server is where it says, and nowhere that it should not be, as soon as hosts have destroyed
    their leftovers."""
    async with asyncio.timeout(300):
        while True:
            allowed: set[str] = set()
            for reader in cloud.readers.values():
                instance = await reader.read(lambda view: view.records.get(Instance, id))
                hosts = () if instance is None else (*instance.hosts, *(e.host for e in instance.evacuated))
                allowed |= {host.name for host in cloud.hosts.values() if host.host.id in hosts}
            if cloud.hosts_with(id) <= allowed:
                break
            await asyncio.sleep(0.5)
    if after is not None and after.place is not None and after.state in ("active", "stopped", "resized"):
        assert after.place.name in cloud.hosts_with(id), about
