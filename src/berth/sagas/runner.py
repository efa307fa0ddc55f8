"""How an order goes on: pure functions from one version of it to the next.

    forward --(last step done)--> done
       | a step failed: back
       v
      back --(at the claim, an alternate left, attempts left: the claim moved there)--> forward
       \\--(undone to the bottom)--> failed

Every transition is one append to the cell's journal. A crash between a step and its transition repeats the
step, which can be repeated.

A resize may stay on its host. There the one server is what comes and what goes: nothing is prepared for it
and nothing of it destroyed, and it is resumed where it would be received.
"""

from typing import Final, NamedTuple

import msgspec

from berth.model.saga_runs import ClaimSnapshot, Destination, SagaRun, StepLog
from berth.model.servers import Conflict, Held, Place
from berth.sagas.saga import BY_NAME, PLACEMENT, ClaimChange, Saga, Step, Verb

LOG_MAX: Final = 60
ABORTABLE: Final = ("prepare", "live migrate")
_ON_ONE_HOST: Final[dict[str, Verb | None]] = {"prepare": None, "destroy": None, "receive": "resume"}


class AgentTask(NamedTuple):
    """An order to the agent of a place. Its id is the same whenever the step is repeated."""

    id: str
    place: Place
    verb: Verb


class ClaimTask(NamedTuple):
    entry: ClaimChange


class MoveClaim(NamedTuple):
    """Move the server's claim to an alternate."""

    way: Destination


class Skip(NamedTuple):
    """There is nothing to do at this step."""


Task = AgentTask | ClaimTask | MoveClaim | Skip


def operation_of(work: SagaRun) -> Saga:
    return BY_NAME[work.operation]


def is_finished(work: SagaRun) -> bool:
    return work.phase in ("done", "failed")


def step_of(work: SagaRun) -> Step:
    return operation_of(work).steps[work.step]


def task_of(work: SagaRun) -> Task:
    """What is to be done now for an order that is not finished."""
    step = step_of(work)
    is_back = work.phase == "back"
    if is_back and work.step == 0 and _may_retry(work):
        return MoveClaim(work.alternates[0])
    does = step.undo if is_back else step.does
    if does is None or does == "claimed" or (is_back and does == "start" and not work.runs):
        return Skip()
    if step.at == PLACEMENT:
        return ClaimTask(does)  # type: ignore[arg-type]
    place = work.source if step.at == "source" else work.dest
    if place is None:
        return Skip()
    if _is_on_one_host(work):
        does = _ON_ONE_HOST.get(does, does)
        if does is None:
            return Skip()
    id = f"{work.id}.{work.attempt}.{work.step}.{'undo' if is_back else 'do'}"
    return AgentTask(id, place, does)  # type: ignore[arg-type]


def must_be_made(work: SagaRun) -> bool:
    """Whether the change of the books at hand must be made for the order to end well: one that undoes, and
    one that follows what cannot be undone. A check may be refused."""
    return work.phase == "back" or step_of(work).does != "check"


def conflict_found(work: SagaRun, found: tuple[Held, Held] | None, now_ns: int) -> Conflict | None:
    """What a check has found, for the server's record."""
    if found is None:
        return None
    server, migration = found
    action, at_s = operation_of(work).action, now_ns // 1_000_000_000
    return Conflict(held=server, migration_held=migration, asked=action, at_s=at_s)


def succeeded(
    work: SagaRun,
    now_ns: int,
    books: ClaimSnapshot | None = None,
    migration_books: ClaimSnapshot | None = None,
    note: str | None = None,
) -> SagaRun:
    """The order after its step was done. ``note`` says what did not matter."""
    if books is not None or migration_books is not None:
        work = _next_version(
            work, books=books or work.books, migration_books=migration_books or work.migration_books
        )
    if work.phase == "back":
        return _further_back(_logged(work, now_ns, note))
    work = _logged(work, now_ns, note)
    if work.step + 1 == len(operation_of(work).steps):
        return _next_version(work, phase="done", since_ns=now_ns)
    return _next_version(work, step=work.step + 1, since_ns=now_ns)


def failed(work: SagaRun, now_ns: int, error: str, conflict: Conflict | None = None) -> SagaRun:
    """The order after its step was refused, failed, or took too long. ``conflict`` is what others were found
    to have changed."""
    step = step_of(work)
    if conflict is not None:
        work = msgspec.structs.replace(work, conflict=conflict)
    if work.phase == "back":
        # An agent that cannot undo: its host is swept later.
        return _further_back(_logged(work, now_ns, error))
    if step.failing == "skip":
        return succeeded(work, now_ns, note=error)
    if step.failing == "again":
        return _next_version(_logged(work, now_ns, error))
    work = _next_version(_logged(work, now_ns, error), reason=error, since_ns=now_ns)
    if step.failing == "stop":
        return _next_version(work, phase="failed")
    return _next_version(work, phase="back", retry=step.failing == "next" and not work.abort)


def claim_moved(
    work: SagaRun, now_ns: int, books: ClaimSnapshot, migration_books: ClaimSnapshot | None
) -> SagaRun:
    """The order after its claim stands at the first of the alternates."""
    way, *rest = work.alternates
    work = _logged(work, now_ns, None, "move the claim", way.place.name)
    return _next_version(
        work,
        dest=way.place,
        books=books,
        migration_books=migration_books,
        kept=way.kept,
        shared=way.shared,
        needs=way.needs,
        alternates=tuple(rest),
        attempt=work.attempt + 1,
        phase="forward",
        step=1,
        retry=False,
        since_ns=now_ns,
    )


def claim_refused(work: SagaRun, now_ns: int, error: str) -> SagaRun:
    """The order after its claim could not be moved to the first of the alternates."""
    way, *rest = work.alternates
    return _next_version(
        _logged(work, now_ns, error, "move the claim", way.place.name),
        alternates=tuple(rest),
        since_ns=now_ns,
    )


def has_given_back(work: SagaRun) -> bool:
    """Whether the migration has nothing left, in an order that may give back."""
    return work.migration_books is None or not work.migration_books.held


def _is_on_one_host(work: SagaRun) -> bool:
    return work.source is not None and work.dest is not None and work.source.id == work.dest.id


def _may_retry(work: SagaRun) -> bool:
    return work.retry and not work.abort and bool(work.alternates) and work.attempt < work.attempts_max


def _further_back(work: SagaRun) -> SagaRun:
    if work.step == 0:
        return _next_version(work, phase="failed")
    return _next_version(work, step=work.step - 1)


def _logged(
    work: SagaRun, now_ns: int, error: str | None, name: str | None = None, host: str | None = None
) -> SagaRun:
    task = task_of(work)
    if name is None and isinstance(task, Skip):
        return msgspec.structs.replace(work, since_ns=now_ns)
    step = step_of(work)
    if name is None:
        name = f"undo {step.name}" if work.phase == "back" else step.name
        host = task.place.name if isinstance(task, AgentTask) else None
    entry = StepLog(name, host, work.since_ns, now_ns, error)
    return msgspec.structs.replace(work, log=(*work.log, entry)[-LOG_MAX:], since_ns=now_ns)


def _next_version(work: SagaRun, **changes: object) -> SagaRun:
    return msgspec.structs.replace(work, version=work.version + 1, **changes)
