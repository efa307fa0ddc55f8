"""A deletion is accepted whatever is being done to a server, at every step of every operation, forward and
while it is undone: the operation is aborted, the server goes, and nothing is left of either."""

from typing import Any

import pytest

from berth.doctor.findings import examine
from berth.model.rejections import ServerBusy
from berth.model.saga_runs import Assignment, Outbox, SagaRun
from berth.model.servers import Action, Migration
from berth.sagas.runner import ABORTED
from berth.sagas.saga import AS_BEFORE, Saga, all_sagas, find_saga
from tests.unit.sagas.regions import Faults, Region, S, prepared

pytestmark = pytest.mark.fast

GROUP = "60000000-0000-4000-8000-000000000001"
SAGAS = [saga for saga in all_sagas() if saga.task is not None and saga.name != "delete"]


def last_undone(saga: Saga) -> int | None:
    """The last step whose failure is undone."""
    found = [n for n, step in enumerate(saga.steps) if step.on_failure in ("undo", "next_alternate")]
    return found[-1] if found else None


PLACES = [
    *((saga.name, number, "forward") for saga in SAGAS for number in range(len(saga.steps))),
    *(
        (saga.name, number, "back")
        for saga in SAGAS
        if (last := last_undone(saga)) is not None
        for number in range(last + 1)
    ),
]


class _Deletion:
    """Asks for the deletion when a run is at a step. ``is_late``: the cell learns of it when that step is
    done."""

    def __init__(self, region: Region, number: int, phase: str, *, is_late: bool, is_forced: bool) -> None:
        self._region = region
        self._at = (number, phase)
        self._is_late = is_late
        self._is_forced = is_forced
        self.is_asked = False

    def __call__(self, run: SagaRun) -> None:
        if not self.is_asked and (run.step, run.phase) == self._at:
            assert self._region.begin("delete", S, is_forced=self._is_forced) is None
            self.is_asked = True
            if not self._is_late:
                self._region.hand_over_aborts()
        elif self.is_asked:
            self._region.hand_over_aborts()


def begin(name: str) -> Region:
    region = prepared(name, group=GROUP)
    more: dict[str, Any] = {"group": GROUP} if name == "create" else {}
    assert region.begin(name, S, **more) is None
    return region


def check_gone(region: Region) -> None:
    """Nothing is left, but what an evacuation that was over has left on a host that is down."""
    assert region.server_or_none(S) is None
    left = [one for one in region.view.records.all(Migration) if one.status == "done"]
    assert list(region.view.records.all(Migration)) == left
    assert set(region.view.consumers) == {one.id for one in left if one.held}
    assert S not in region.view.groups.memberships
    assert not list(region.view.records.all(Outbox))
    assert not list(region.view.records.all(Action))
    assert not list(region.cell.records.all(SagaRun))
    assert not list(region.cell.records.all(Assignment))
    assert region.instance(S).hosts == ()
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("is_late", [False, True], ids=["before the step", "during the step"])
@pytest.mark.parametrize(("name", "number", "phase"), PLACES)
def test_a_delete_at_every_step_of_every_operation(name: str, number: int, phase: str, is_late: bool) -> None:
    region = begin(name)
    watch = _Deletion(region, number, phase, is_late=is_late, is_forced=False)
    region.watch = watch
    last = last_undone(find_saga(name))
    fails = [find_saga(name).steps[last].name] if phase == "back" and last is not None else []
    run = region.carry_out(Faults(fails))
    region.hand_over_aborts()
    assert watch.is_asked
    region.watch = None
    if region.server_or_none(S) is not None:
        assert region.server(S).task == "deleting"
        assert region.carry_out().saga == "delete"
    check_gone(region)
    step = find_saga(name).steps[number]
    if phase == "forward" and not is_late and step.may_fail:
        assert (run.phase, run.reason) == ("failed", ABORTED)


@pytest.mark.parametrize("name", [saga.name for saga in SAGAS])
def test_a_host_that_was_told_to_give_a_build_up_has_not_failed_it(name: str) -> None:
    region = begin(name)
    number = min(1, len(find_saga(name).steps) - 1)
    region.watch = _Deletion(region, number, "forward", is_late=False, is_forced=False)
    region.carry_out()
    assert all(status.build_failures == 0 for status in region.view.hosts.values())


def test_a_server_is_shown_as_being_deleted_at_once_and_other_requests_are_refused() -> None:
    region = begin("resize")
    assert region.begin("delete", S) is None
    assert region.server(S).task == "deleting"
    refused = region.begin("stop", S)
    assert isinstance(refused, ServerBusy)
    assert refused.task == "deleting"


def test_a_delete_that_is_repeated_changes_nothing() -> None:
    region = begin("resize")
    assert region.begin("delete", S) is None
    before = region.view.state()
    assert region.begin("delete", S) is None
    assert region.view.state() == before
    region.carry_out()
    before = region.view.state()
    assert region.begin("delete", S) is None
    assert region.view.state() == before
    region.carry_out()
    check_gone(region)


def test_a_forced_delete_follows_a_delete_that_fails() -> None:
    region = prepared("stop", group=GROUP)
    assert region.begin("delete", S) is None

    def force(run: SagaRun) -> None:
        if (run.step, run.phase) == (1, "forward"):
            assert region.begin("delete", S, is_forced=True) is None
            assert not list(region.view.records.all(Outbox)), "a deletion is not aborted"

    region.watch = force
    run = region.carry_out(Faults(["destroy"]))
    assert run.phase == "failed"
    region.watch = None
    run = region.carry_out()
    assert (run.saga, run.is_forced) == ("delete", True)
    check_gone(region)


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_conflict_stops_a_deletion_that_has_waited_unless_it_is_forced(is_forced: bool) -> None:
    region = begin("stop")
    assert region.begin("delete", S, is_forced=is_forced) is None
    server = region.server(S)
    assert server.place is not None
    provider = server.held[0][0]
    region.claim(S, (provider, (("VCPU", 1),)))
    region.carry_out()
    if not is_forced:
        server = region.server(S)
        assert (server.run, server.task, server.deletion) == (None, None, None)
        assert server.state == "active"
        assert server.fault is not None
        assert "another client" in server.fault.message
        action = region.view.records.find(Action, "server", S)[-1]
        assert (action.name, action.state) == ("delete", "failed")
        # What was found is recorded: the next request proceeds.
        assert region.begin("delete", S) is None
    region.carry_out()
    check_gone(region)


def test_a_failed_create_that_is_deleted_meanwhile_goes_without_its_cell() -> None:
    region = begin("create")
    assert region.begin("delete", S) is None
    region.carry_out()
    check_gone(region)


def test_the_table_says_as_before_of_no_operation_that_a_delete_follows() -> None:
    assert find_saga("delete").failed.state != AS_BEFORE
    assert find_saga("delete").starts_in >= {state for saga in SAGAS for state in saga.starts_in}
