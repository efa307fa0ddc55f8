"""How a saga run advances: pure functions from one version of it to the next.

    forward --(last step done)--> done
       | a step failed: undo
       v
      back --(at the claim, with an alternate and an attempt left: the claim is moved there)--> forward
       \\--(everything undone)--> failed

Every transition is one append to the cell's journal. A crash between a step and its transition repeats the
step, which can be repeated.

A run whose hosts are in several cells goes from one to the other (decision 043). Its copy in each cell is a
version of it; the cell that does the next step has the latest. Where the next step is another cell's, the run
is *away*: nothing is done with this copy any more, and the region hands the run over to that cell.

A resize may stay on its host. The server is then both source and destination: nothing is prepared for it and
nothing of it destroyed, and it is resumed where it would be received.
"""

from typing import Final, NamedTuple

import msgspec

from berth.model.saga_runs import ClaimSnapshot, Destination, SagaRun, StepLog
from berth.model.servers import ActionProgress, FoundConflict, GuestAddress, Held, Place
from berth.sagas.saga import PLACEMENT, ClaimChange, Outcome, Saga, Step, Verb, find_saga, has_given_back

LOG_MAX: Final = 60
ABORTED: Final = "aborted"
"""Why a step has failed that was not begun, or given up, because an abort was requested."""
_MOVE_CLAIM: Final = "move the claim"
_ON_ONE_HOST: Final[dict[str, Verb | None]] = {"prepare": None, "destroy": None, "receive": "resume"}


class AgentTask(NamedTuple):
    """A command to the agent of a host. Its id is the same whenever the step is repeated."""

    id: str
    place: Place
    verb: Verb


class ClaimTask(NamedTuple):
    change: ClaimChange


class MoveClaim(NamedTuple):
    """Move the server's claim to an alternate."""

    destination: Destination


class Skip(NamedTuple):
    """There is nothing to do at this step."""


Task = AgentTask | ClaimTask | MoveClaim | Skip


def saga_of(run: SagaRun) -> Saga:
    return find_saga(run.saga)


def is_finished(run: SagaRun) -> bool:
    return run.phase in ("done", "failed")


def step_of(run: SagaRun) -> Step:
    return saga_of(run).steps[run.step]


def task_of(run: SagaRun) -> Task:
    """What is to be done now for a run that is not finished."""
    step = step_of(run)
    is_back = run.phase == "back"
    if is_back and run.step == 0 and _may_retry(run):
        return MoveClaim(run.alternates[0])
    does = find_verb(run)
    if does is None or does == "claimed" or (is_back and does == "start" and not run.runs):
        return Skip()
    if step.at == PLACEMENT:
        return ClaimTask(does)  # type: ignore[arg-type]
    place = run.source if step.at == "source" else run.dest
    if place is None:
        return Skip()
    if is_on_one_host(run):
        does = _ON_ONE_HOST.get(does, does)
        if does is None:
            return Skip()
    id = f"{run.id}.{run.attempt}.{run.step}.{'undo' if is_back else 'do'}"
    return AgentTask(id, place, does)  # type: ignore[arg-type]


def cell_of(run: SagaRun) -> str | None:
    """The cell that does what is next, of a run that goes through several: that of the host, or the source's
    where allocations change, because the assignments there follow them. None: whichever has the run."""
    if not run.cells or is_finished(run):
        return None
    match task_of(run):
        case Skip():
            return None
        case AgentTask(_, place, _):
            return place.cell
        case _:
            return None if run.source is None else run.source.cell


def is_away(run: SagaRun) -> bool:
    """Whether another cell than the one of this copy does what is next."""
    cell = cell_of(run)
    return cell is not None and cell != run.cells[0]


def hand_over(run: SagaRun) -> SagaRun:
    """The run for the cell that does what is next."""
    cell = cell_of(run)
    assert cell is not None, "only a run that is away is handed over"
    return _next_version(run, cells=tuple(dict.fromkeys((cell, *run.cells))))


def tell_end(run: SagaRun) -> dict[str, SagaRun]:
    """What the other cells that a finished run went through are told of it."""
    return {cell: msgspec.structs.replace(run, cells=(cell,)) for cell in run.cells[1:]}


def is_in_cell_of(run: SagaRun, place: Place) -> bool:
    """Whether a place is in the cell in whose journal a run stands."""
    return not run.cells or place.cell == run.cells[0]


def run_of_command(id: str) -> str:
    """The id of the run that a command belongs to."""
    return id.partition(".")[0]


def find_verb(run: SagaRun) -> Verb | ClaimChange | None:
    """What the step that a run is at does, or what undoes it, wherever that may be left out."""
    step = step_of(run)
    return step.undo if run.phase == "back" else step.do


def is_step_done(before: SagaRun, after: SagaRun) -> bool:
    """Whether what was to be done for a run was done when it became ``after``, or need not be done."""
    if isinstance(task_of(before), Skip):
        return True
    return after.log is not before.log and after.log[-1].error is None


def must_succeed(run: SagaRun) -> bool:
    """Whether the change of allocations at hand must be made: it undoes something, or follows what cannot
    be undone. A check may be refused."""
    return run.phase == "back" or step_of(run).do != "check"


def make_conflict(run: SagaRun, found: tuple[Held, Held] | None, now_ns: int) -> FoundConflict | None:
    """The conflict that a check has found, for the server's record."""
    if found is None:
        return None
    server, migration = found
    action, at_s = saga_of(run).action, now_ns // 1_000_000_000
    return FoundConflict(held=server, migration_held=migration, asked=action, at_s=at_s)


def record_success(
    run: SagaRun,
    now_ns: int,
    claim: ClaimSnapshot | None = None,
    migration_claim: ClaimSnapshot | None = None,
    note: str | None = None,
    addresses: tuple[GuestAddress, ...] = (),
) -> SagaRun:
    """The run after its step was done. ``note``: an error that was skipped. ``addresses``: those of the
    server, where its agent has reported any."""
    if addresses:
        run = msgspec.structs.replace(run, addresses=addresses)
    if claim is not None or migration_claim is not None:
        run = _next_version(
            run, claim=claim or run.claim, migration_claim=migration_claim or run.migration_claim
        )
    if run.phase == "back":
        return _undo_next(_log_step(run, now_ns, note))
    run = _log_step(run, now_ns, note)
    if run.step + 1 == len(saga_of(run).steps):
        return _next_version(run, phase="done", since_ns=now_ns)
    return _next_version(run, step=run.step + 1, since_ns=now_ns)


def record_failure(run: SagaRun, now_ns: int, error: str, conflict: FoundConflict | None = None) -> SagaRun:
    """The run after its step was refused, failed, or took too long. ``conflict``: what others were found
    to have changed."""
    step = step_of(run)
    if conflict is not None:
        run = msgspec.structs.replace(run, conflict=conflict)
    if run.phase == "back":
        # What an agent cannot undo is destroyed later, as a leftover of its host.
        return _undo_next(_log_step(run, now_ns, error))
    if step.on_failure == "skip":
        return record_success(run, now_ns, note=error)
    if step.on_failure == "retry":
        return _next_version(_log_step(run, now_ns, error))
    run = _next_version(_log_step(run, now_ns, error), reason=error, since_ns=now_ns)
    if step.on_failure == "stop":
        return _next_version(run, phase="failed")
    return _next_version(run, phase="back", retry=step.on_failure == "next_alternate" and not run.abort)


def record_claim_moved(
    run: SagaRun, now_ns: int, claim: ClaimSnapshot, migration_claim: ClaimSnapshot | None
) -> SagaRun:
    """The run after its claim was moved to the first of the alternates."""
    alternate, *rest = run.alternates
    run = _log_step(run, now_ns, None, _MOVE_CLAIM, alternate.place.name)
    return _next_version(
        run,
        dest=alternate.place,
        claim=claim,
        migration_claim=migration_claim,
        kept=alternate.kept,
        shared=alternate.shared,
        needs=alternate.needs,
        alternates=tuple(rest),
        attempt=run.attempt + 1,
        phase="forward",
        step=1,
        retry=False,
        since_ns=now_ns,
    )


def record_claim_refused(run: SagaRun, now_ns: int, error: str) -> SagaRun:
    """The run after its claim could not be moved to the first of the alternates."""
    alternate, *rest = run.alternates
    return _next_version(
        _log_step(run, now_ns, error, _MOVE_CLAIM, alternate.place.name),
        alternates=tuple(rest),
        since_ns=now_ns,
    )


def describe_refused_claims(run: SagaRun) -> str | None:
    """Why alternates could not be tried, in words: what they have was claimed by others meanwhile."""
    refused = (entry for entry in run.log if is_alternate(entry) and entry.error is not None)
    return "; ".join(f"{entry.host}: {' '.join((entry.error or '').split())}" for entry in refused) or None


def is_aborted(run: SagaRun) -> bool:
    """Whether the step at hand is not to be begun, or to be given up, because an abort was requested."""
    return run.abort and run.phase == "forward" and step_of(run).may_fail


def mark_aborted(run: SagaRun) -> SagaRun:
    """The run once an abort was requested."""
    return msgspec.structs.replace(run, abort=True, version=run.version + 1)


def describe_next(run: SagaRun) -> str:
    """What a run does next, in words."""
    if is_finished(run):
        return f"ended as {run.phase}"
    step = step_of(run)
    match task_of(run):
        case MoveClaim(destination):
            return f"next: alternate {destination.place.name}"
        case _:
            return f"next: {step.undo_name if run.phase == 'back' else step.name}"


def name_step(run: SagaRun) -> str:
    """The step that a run is at, with its saga: one of few names."""
    step = step_of(run)
    does = step.undo_name if run.phase == "back" else step.name
    return f"{saga_of(run).name}: {_MOVE_CLAIM if isinstance(task_of(run), MoveClaim) else does}"


def describe_place(run: SagaRun) -> str:
    """The name of the host that a run is about: the destination, where it has one."""
    place = run.dest or run.source
    return "Placement" if place is None else place.name


def seconds_of(run: SagaRun) -> float:
    """How long a run has taken, from its first step to its last."""
    return max(run.since_ns - run.log[0].started_ns, 0) / 1e9 if run.log else 0.0


def is_alternate(entry: StepLog) -> bool:
    """Whether an entry of a run's log is about moving the claim to an alternate."""
    return entry.step == _MOVE_CLAIM


def describe_progress(run: SagaRun, now_s: int, before: ActionProgress) -> ActionProgress:
    """How far a run is, for the server's history. A step began when it was first seen: ``before`` is what was
    seen last."""
    step, host = None, None
    if not is_finished(run):
        task = task_of(run)
        at = step_of(run)
        step = at.undo_name if run.phase == "back" else at.name
        if isinstance(task, MoveClaim):
            step, host = _MOVE_CLAIM, task.destination.place.name
        elif isinstance(task, AgentTask):
            host = task.place.name
    is_same = (step, host, run.attempt) == (before.step, before.host, before.attempt)
    since_s = before.since_s if is_same else now_s
    within_ns = run.deadline_ns - run.since_ns if run.deadline_ns else 0
    return ActionProgress(
        step=step,
        host=host,
        since_s=since_s,
        deadline_s=since_s + within_ns // 1_000_000_000 if within_ns else 0,
        attempt=run.attempt,
        source=None if run.source is None else run.source.name,
        destination=None if run.dest is None else run.dest.name,
    )


def find_outcome(run: SagaRun) -> Outcome:
    """What the saga says of a run that has ended as this one has."""
    saga = saga_of(run)
    return saga.done if run.phase == "done" else saga.failed


def is_unsettled(run: SagaRun) -> bool:
    """Whether the server of a run that has failed could not be run again where it was, or its claim not be
    given back: it is in error then, whatever its saga says."""
    saga = saga_of(run)
    undone = (saga.find_undone(entry.step) for entry in run.log if entry.error is not None)
    is_halted = any(step is not None and step.runs_again for step in undone)
    return is_halted or (saga.is_move and not has_given_back(run))


def is_on_one_host(run: SagaRun) -> bool:
    """Whether source and destination are the same host."""
    return run.source is not None and run.dest is not None and run.source.id == run.dest.id


def _may_retry(run: SagaRun) -> bool:
    return run.retry and not run.abort and bool(run.alternates) and run.attempt < run.attempts_max


def _undo_next(run: SagaRun) -> SagaRun:
    if run.step == 0:
        return _next_version(run, phase="failed")
    return _next_version(run, step=run.step - 1)


def _log_step(
    run: SagaRun, now_ns: int, error: str | None, name: str | None = None, host: str | None = None
) -> SagaRun:
    task = task_of(run)
    if name is None and isinstance(task, Skip):
        return msgspec.structs.replace(run, since_ns=now_ns)
    step = step_of(run)
    if name is None:
        name = step.undo_name if run.phase == "back" else step.name
        host = task.place.name if isinstance(task, AgentTask) else None
    # By the clock of another cell it may have begun later than it ended.
    entry = StepLog(name, host, min(run.since_ns, now_ns), now_ns, error)
    return msgspec.structs.replace(run, log=(*run.log, entry)[-LOG_MAX:], since_ns=now_ns)


def _next_version(run: SagaRun, **changes: object) -> SagaRun:
    return msgspec.structs.replace(run, version=run.version + 1, **changes)
