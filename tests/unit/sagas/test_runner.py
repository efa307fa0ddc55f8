"""The runner by itself: whatever the outcomes of the steps, a run ends, goes forward in versions, and says
what it did in a log that does not grow without bound."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.model.ids import ProviderId
from berth.model.saga_runs import ClaimSnapshot, Destination, SagaRun, Spec
from berth.model.servers import Held, Place
from berth.sagas.runner import (
    LOG_MAX,
    AgentTask,
    ClaimTask,
    MoveClaim,
    Skip,
    describe_next,
    is_finished,
    mark_aborted,
    record_claim_moved,
    record_claim_refused,
    record_failure,
    record_success,
    saga_of,
    step_of,
    task_of,
)
from berth.sagas.saga import all_sagas, find_saga
from tests.unit.sagas.regions import SMALL

pytestmark = pytest.mark.fast

PLACES = [Place(f"host-{number}", f"host-{number}", "cell1") for number in range(8)]


def held(place: Place) -> Held:
    return ((ProviderId(place.id), (("VCPU", 1),)),)


def make_run(name: str, alternates: int = 3, attempts_max: int = 3, *, runs: bool = True) -> SagaRun:
    has_source = any(step.at == "source" for step in find_saga(name).steps) or name == "evacuate"
    return SagaRun(
        id="run",
        number=1,
        server="s",
        saga=name,
        request_id="req-1",
        spec=Spec("s", "project", "user", SMALL),
        project="project",
        user="user",
        source=PLACES[0] if has_source else None,
        dest=PLACES[1],
        claim=ClaimSnapshot(held(PLACES[1]), 1),
        migration="m" if has_source else None,
        migration_claim=ClaimSnapshot(held(PLACES[0]), 1) if has_source else None,
        alternates=tuple(Destination(place, held(place)) for place in PLACES[2 : 2 + alternates]),
        attempts_max=attempts_max,
        runs=runs,
    )


def next_version(run: SagaRun, is_good: bool, now_ns: int) -> SagaRun:
    match task_of(run):
        case Skip():
            return record_success(run, now_ns)
        case MoveClaim(way) if is_good:
            return record_claim_moved(run, now_ns, ClaimSnapshot(way.held, 2), run.migration_claim)
        case MoveClaim():
            return record_claim_refused(run, now_ns, "no room")
        case ClaimTask() if run.phase == "back":
            # Undoing in Placement is tried until it is done.
            return record_success(run, now_ns, ClaimSnapshot((), None), ClaimSnapshot((), None))
        case AgentTask() | ClaimTask():
            return record_success(run, now_ns) if is_good else record_failure(run, now_ns, "broken")


@given(
    st.sampled_from(all_sagas()),
    st.integers(0, 6),
    st.integers(1, 20),
    st.lists(st.booleans(), max_size=80),
    st.integers(0, 80),
    st.booleans(),
)
def test_every_path_ends(
    saga: object, alternates: int, attempts_max: int, outcomes: list[bool], abort_at: int, runs: bool
) -> None:
    run = make_run(saga.key, alternates, attempts_max, runs=runs)  # type: ignore[attr-defined]
    coming = iter(outcomes)
    tried = 0
    while not is_finished(run):
        if tried == abort_at:
            run = mark_aborted(run)
        before = run
        run = next_version(run, next(coming, True), tried)
        assert run.version > before.version
        assert len(run.log) <= LOG_MAX
        assert run.attempt <= max(attempts_max, 1)
        assert 0 <= run.step < len(saga_of(run).steps)
        assert len(run.alternates) <= len(before.alternates)
        tried += 1
        assert tried <= 400, "it goes in circles"
    if run.phase == "failed":
        assert run.reason == "broken"
    else:
        assert run.step == len(saga_of(run).steps) - 1


def test_the_id_of_a_step_is_its_own_in_every_attempt_and_direction() -> None:
    run, ids = make_run("resize"), []
    outcomes = iter([False, True, True, True, False, True])
    while not is_finished(run):
        task = task_of(run)
        if isinstance(task, AgentTask):
            ids.append(task.id)
            assert task == task_of(run), "however often it is asked for"
            run = next_version(run, next(outcomes, True), 0)
        else:
            run = next_version(run, True, 0)
    assert len(set(ids)) == len(ids) == 7
    assert ids[0] == "run.1.1.do"
    assert ids[1] == "run.1.1.undo"
    assert ids[2] == "run.2.1.do"


def test_a_log_keeps_the_newest() -> None:
    run = make_run("sweep")
    for number in range(LOG_MAX + 10):
        run = record_failure(run, number, f"refused {number}")
    assert len(run.log) == LOG_MAX
    assert run.log[-1].error == f"refused {LOG_MAX + 9}"
    assert record_success(run, 0).phase == "done"


def test_a_run_that_is_aborted_is_not_tried_elsewhere() -> None:
    run = mark_aborted(record_success(make_run("live_migrate"), 0))
    run = record_failure(run, 0, "aborted")
    assert (run.phase, run.retry) == ("back", False)
    tasks = []
    while not is_finished(run):
        tasks.append(task_of(run))
        run = next_version(run, True, 0)
    assert not any(isinstance(task, MoveClaim) for task in tasks)
    assert tasks[-1] == ClaimTask("give_back")
    assert run.dest == PLACES[1]


def test_what_was_stopped_is_not_started_by_undoing() -> None:
    for runs in (True, False):
        run = record_success(make_run("shelve", runs=runs), 0)
        assert step_of(run).name == "snapshot"
        run = record_success(record_failure(run, 0, "no room for it"), 0)
        task = task_of(run)
        if runs:
            assert isinstance(task, AgentTask)
            assert task.verb == "start"
        else:
            assert task == Skip()


def test_on_one_host_nothing_is_prepared_and_nothing_destroyed() -> None:
    verbs: dict[str, list[str]] = {}
    for name in ("resize", "confirm", "revert"):
        run = msgspec.structs.replace(make_run(name), source=PLACES[1])
        seen = verbs.setdefault(name, [])
        while not is_finished(run):
            task = task_of(run)
            if isinstance(task, AgentTask):
                seen.append(task.verb)
            run = next_version(run, True, 0)
    assert verbs == {"resize": ["send", "resume"], "confirm": [], "revert": ["resume"]}


def test_what_is_next_is_said_in_words() -> None:
    run = record_success(make_run("create", alternates=1), 0)
    assert describe_next(run) == "next: build"
    undoing = record_failure(run, 0, "no space left")
    assert describe_next(undoing) == "next: undo build"
    at_the_claim = record_failure(undoing, 0, "no space left")
    assert describe_next(at_the_claim) == f"next: alternate {at_the_claim.alternates[0].place.name}"
    last = msgspec.structs.replace(at_the_claim, alternates=())
    assert describe_next(record_success(last, 0)) == "ended as failed"
