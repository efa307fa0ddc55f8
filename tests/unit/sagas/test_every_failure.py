"""Every operation, with every one of its steps failing: the server is then what the table says, the ledger
holds exactly what the table says, and the doctor finds nothing."""

from typing import Literal

import pytest

from berth.doctor.findings import examine
from berth.model.servers import Held, Migration, Server, VmState
from berth.sagas.conflicts import as_dict, held_now
from berth.sagas.saga import AS_BEFORE, GONE, PLACEMENT, Holds, all_sagas, find_saga
from berth.sagas.table import Ending, find_failure, find_success, may_end_in_error
from tests.unit.sagas.regions import LARGE, SMALL, Faults, Region, S, prepared

pytestmark = pytest.mark.fast

NAMES = [saga.name for saga in all_sagas() if saga.task is not None]
STEPS = [
    (saga.name, number)
    for saga in all_sagas()
    for number, step in enumerate(saga.steps)
    if step.do != "claimed" and saga.task is not None
]
UNDONE = [(name, number) for name, number in STEPS if may_end_in_error(find_saga(name), number)]


class SagaCase:
    """One saga, begun in a region where it may be, and what there was when it began."""

    def __init__(
        self, name: str, state: Literal["active", "stopped"] = "active", *, is_resized: bool = False
    ) -> None:
        self.region: Region = prepared(name, state=state, is_resized=is_resized)
        server = self.region.view.records.get(Server, S)
        self.state_before: VmState = "active" if server is None else server.state_before or server.state
        self.held_before: Held = () if server is None else server.held
        assert self.region.begin(name, S) is None
        begun = self.region.server(S)
        self.dest: Held = begun.held
        migration = None if begun.migration is None else self.region.migration(S)
        self.source: Held = migration.held if migration is not None else self.held_before

    def ends(self, fails: str | None = None, *also: str) -> None:
        faults = Faults([fails, *also] if fails is not None else [])
        run = self.region.carry_out(faults)
        if fails is not None:
            assert fails in faults.met
        assert run.phase in ("done", "failed")
        if run.attempt > 1:
            self.dest = run.claim.held or self.dest

    def check(self, wanted: Ending) -> None:
        server = self.region.view.records.get(Server, S)
        if wanted.state == GONE:
            assert server is None
        else:
            assert server is not None
            assert (server.run, server.task) == (None, None)
            assert server.state == (self.state_before if wanted.state == AS_BEFORE else wanted.state)
            assert server.held == held_now(self.region.view, S)
            assert (server.place is None) == (wanted.holds == "nothing")
        own, others = self._parts(wanted.holds)
        assert self.region.held(S) == as_dict(own)
        assert self._held_by_migrations() == as_dict(others)
        assert len(self.region.view.consumers) == bool(own) + bool(others)
        assert examine(self.region.view, self.region.now_s) == ()

    def _parts(self, holds: Holds) -> tuple[Held, Held]:
        parts: dict[Holds, tuple[Held, Held]] = {
            "nothing": ((), ()),
            "source": (self.source, ()),
            "dest": (self.dest, ()),
            "dest, migration source": (self.dest, self.source),
        }
        return parts[holds]

    def _held_by_migrations(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for migration in self.region.view.records.all(Migration):
            assert migration.held == held_now(self.region.view, migration.id)
            found |= as_dict(migration.held)
        return found


@pytest.mark.parametrize("name", NAMES)
def test_every_saga_ends_as_its_table_says(name: str) -> None:
    case = SagaCase(name)
    case.ends()
    case.check(find_success(find_saga(name)))


@pytest.mark.parametrize(("name", "number"), STEPS)
def test_every_step_that_fails_ends_as_its_table_says(name: str, number: int) -> None:
    saga = find_saga(name)
    # One that is to be deleted has a source only while a resize waits.
    case = SagaCase(name, is_resized=name == "delete" and saga.steps[number].at == "source")
    wanted = find_failure(saga, number)
    if saga.steps[number].on_failure == "retry":
        case.region.carry_out(Faults(once=[saga.steps[number].name]))
    else:
        case.ends(saga.steps[number].name)
    case.check(wanted or find_success(saga))


@pytest.mark.parametrize(("name", "number"), UNDONE)
def test_a_step_that_fails_and_cannot_be_undone(name: str, number: int) -> None:
    """Allocations are undone all the same; what cannot be run again where it was is in error."""
    saga = find_saga(name)
    case = SagaCase(name)
    step = saga.steps[number]
    undoing = [f"undo {one.name}" for one in saga.steps[: number + 1] if one.at != PLACEMENT]
    case.ends(step.name, *undoing)
    wanted = find_failure(saga, number)
    assert wanted is not None
    case.check(Ending("error", wanted.holds))


@pytest.mark.parametrize("name", [name for name in NAMES if "stopped" in find_saga(name).starts_in])
def test_one_that_is_stopped_stays_so_where_it_is_to_be_as_before(name: str) -> None:
    case = SagaCase(name, "stopped")
    case.ends()
    case.check(find_success(find_saga(name)))
    for number, step in enumerate(find_saga(name).steps):
        wanted = find_failure(find_saga(name), number)
        if wanted is not None:
            case = SagaCase(name, "stopped", is_resized=name == "delete" and step.at == "source")
            case.ends(step.name)
            case.check(wanted)


@pytest.mark.parametrize("name", ["confirm", "revert"])
def test_a_resize_of_one_that_was_stopped_ends_stopped(name: str) -> None:
    case = SagaCase(name, "stopped")
    assert case.state_before == "stopped"
    case.ends()
    case.check(find_success(find_saga(name)))


@pytest.mark.parametrize("name", ["create", "resize", "migrate", "live_migrate", "evacuate", "unshelve"])
def test_the_next_alternate_is_taken_when_a_host_fails(name: str) -> None:
    case = SagaCase(name)
    first = case.dest
    case.region.carry_out(Faults(once=["build", "prepare"]))
    server = case.region.server(S)
    assert server.held != first
    assert server.place is not None
    assert case.region.hosts_of(S) == [server.place.name]
    case.dest = server.held
    case.check(find_success(find_saga(name)))


def test_an_alternate_that_is_refused_is_passed_over() -> None:
    case = SagaCase("create")
    run = case.region.carry_out(Faults(fails=["build"], once=["move the claim"]))
    assert [entry.step for entry in run.log].count("build") == 2
    case.check(Ending("error", "nothing"))


def test_attempts_are_counted() -> None:
    region = Region()
    run = region.run("create", S, Faults(["build"]), alternates=4)
    assert [entry.step for entry in run.log].count("build") == run.attempts_max == 3
    assert region.held(S) == {}


def test_an_evacuated_server_releases_its_source_when_that_is_clean() -> None:
    case = SagaCase("evacuate")
    case.ends()
    region = case.region
    source = region.migration(S).source
    number = int(source.name.removeprefix("host-"))
    region.set_down(number, down=False)
    assert examine(region.view, region.now_s) == ()
    (run,) = region.release(number)
    assert run.phase == "done"
    assert (region.migration(S).status, region.migration(S).held) == ("completed", ())
    case.check(Ending(AS_BEFORE, "dest"))
    assert region.release(number) == []


def test_a_server_that_was_deleted_after_its_evacuation_releases_its_source_too() -> None:
    case = SagaCase("evacuate")
    case.ends()
    region = case.region
    number = int(region.migration(S).source.name.removeprefix("host-"))
    region.run("delete", S)
    assert region.view.records.get(Server, S) is None
    assert region.held(region.migration(S).id) == as_dict(case.source)
    assert examine(region.view, region.now_s) == ()
    region.set_down(number, down=False)
    region.release(number)
    assert not region.view.consumers
    assert region.migrations(S) == []


@pytest.mark.parametrize("name", ["confirm", "revert", "delete"])
def test_a_resize_that_stays_on_its_host(name: str) -> None:
    """Nothing is destroyed there: it is the one server that comes and goes."""
    region = Region(hosts=1)
    region.run("create", S)
    run = region.run("resize", S)
    assert [entry.step for entry in run.log] == ["send", "receive"]
    assert region.hosts_of(S) == region.hosts_of(region.migration(S).id) == ["host-1"]
    run = region.run(name, S)
    destroyed = [entry.step for entry in run.log if entry.step in ("destroy", "clean up")]
    assert destroyed == (["destroy"] if name == "delete" else [])
    assert len(region.view.consumers) == (name != "delete")
    assert examine(region.view, region.now_s) == ()


def test_a_resize_that_stays_on_its_host_and_fails_is_resumed_there() -> None:
    region = Region(hosts=1)
    region.run("create", S)
    before = region.held(S)
    run = region.run("resize", S, Faults(["receive"]))
    assert [entry.step for entry in run.log] == ["send", "receive", "undo send", "undo claim"]
    assert region.held(S) == before
    assert region.server(S).state == "active"


def test_a_delete_that_stops_while_a_migration_waits_holds_both() -> None:
    case = SagaCase("confirm")
    case.region.carry_out(Faults(["clean up"]))
    region = case.region
    assert region.server(S).state == "resized"
    region.run("delete", S, Faults(["destroy at the source"]))
    assert region.server(S).state == "error"
    assert region.held(S)
    assert region.held(region.migration(S).id)
    assert examine(region.view, region.now_s) == ()
    region.run("delete", S)
    assert not region.view.consumers


def test_one_in_error_runs_again_when_it_was_evacuated() -> None:
    region = Region()
    region.run("create", S)
    region.run("rebuild", S, Faults(["rebuild"]))
    server = region.server(S)
    assert (server.state, server.fault is not None) == ("error", True)
    assert server.place is not None
    region.set_down(int(server.place.name.removeprefix("host-")))
    run = region.run("evacuate", S)
    assert run.runs
    assert (region.server(S).state, region.server(S).fault) == ("active", None)


def test_a_server_that_could_not_be_built_was_never_launched() -> None:
    region = Region()
    region.run("create", S, Faults(["build"]))
    assert region.server(S).launched_at_s is None
    assert region.server(S).fault is not None


def test_a_revert_has_the_flavor_to_go_back_to() -> None:
    region = Region()
    region.run("create", S)
    assert region.run("resize", S).spec.flavor == LARGE
    assert region.run("revert", S).spec.flavor == SMALL
    assert region.server(S).flavor == SMALL
