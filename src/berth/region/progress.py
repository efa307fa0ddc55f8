"""What comes back up: an order as its cell has it now, into the records of the region.

It is always the whole order, so that it does not matter which of its versions were seen. What a server is
after its order follows from the order alone (``apply_end``): how it ended, and what stands in the books.
"""

import msgspec

from berth.ledger.records import remove_record, replace_record
from berth.model.commands import Enact, LedgerCommand, SetHostStatus
from berth.model.events import RecordChanged
from berth.model.placement import HEALTHY
from berth.model.saga_runs import ClaimSnapshot, Outbox, SagaRun, StepLog
from berth.model.servers import (
    NO_STATE,
    RUNNING,
    SHUT_DOWN,
    Action,
    ActionEvent,
    Fault,
    Migration,
    Server,
    VmState,
)
from berth.sagas.conflicts import plus
from berth.sagas.endings import has_given_back
from berth.sagas.proposals import remove_server
from berth.sagas.runner import find_outcome, is_finished, saga_of, step_of
from berth.sagas.saga import AS_BEFORE, GONE, UNCHANGED
from berth.view import View

_NOTHING = ClaimSnapshot((), None)
_POWER: dict[VmState, int] = {
    "active": RUNNING,
    "resized": RUNNING,
    "stopped": SHUT_DOWN,
    "shelved": SHUT_DOWN,
}


def apply_progress(view: View, run: SagaRun, now_s: int) -> Enact | None:
    """The command that brings the records up to an order; None where they are."""
    saga = saga_of(run)
    if saga.apply is not None:
        return saga.apply(view, run, now_s)
    action = view.records.get(Action, run.id)
    if action is None or action.seen >= run.version:
        return None
    changes = [replace_record(view, _told(action, run))]
    outbox = view.records.get(Outbox, run.id)
    if outbox is not None:
        changes.append(remove_record(view, outbox))
    server = view.records.get(Server, run.server)
    if server is None or server.run != run.id:
        return Enact(tuple(changes))
    if not is_finished(run):
        return Enact((*changes, *_under_way(view, server, run, now_s)))
    commands = _host_records(view, run)
    migration = view.records.get(Migration, run.migration) if run.migration is not None else None
    if find_outcome(run).state == GONE:
        end = remove_server(view, server)
        # The records of its actions go with it.
        left = [change for change in changes if not isinstance(change.before, Action)]
        return Enact((*left, *end.changes), (*end.commands, *commands))
    after, moved = apply_end(server, migration, run, now_s)
    changes.append(replace_record(view, after))
    if moved is not None:
        changes.append(replace_record(view, moved))
    return Enact(tuple(changes), commands)


def is_applied(view: View, run: SagaRun) -> bool:
    """Whether the records say what an order says: then it need not be kept."""
    saga = saga_of(run)
    if saga.is_applied is not None:
        return saga.is_applied(view, run)
    action = view.records.get(Action, run.id)
    return action is None or action.seen >= run.version


def _told(action: Action, run: SagaRun) -> Action:
    """The action, as far as the order has come."""
    events = tuple(_event(entry) for entry in run.log)
    message = f"Error: {run.reason}" if run.phase == "failed" else None
    updated_at_s = run.log[-1].finished_ns // 1_000_000_000 if run.log else action.updated_at_s
    return msgspec.structs.replace(
        action, events=events, message=message, seen=run.version, updated_at_s=updated_at_s
    )


def _event(entry: StepLog) -> ActionEvent:
    return ActionEvent(
        entry.step,
        entry.started_ns // 1_000_000_000,
        entry.finished_ns // 1_000_000_000,
        "Success" if entry.error is None else "Error",
        entry.host,
        entry.error,
    )


def _under_way(view: View, server: Server, run: SagaRun, now_s: int) -> list[RecordChanged]:
    """An order may move the claim to an alternate: server and migration say so at once."""
    changes = []
    saga = saga_of(run)
    place = run.dest if saga.is_placement else server.place
    after = msgspec.structs.replace(
        server,
        place=place,
        held=run.claim.held,
        kept=plus((run.kept, run.claim.kept)),
        generation=run.claim.generation,
        needs=run.needs,
    )
    if after != server:
        changes.append(replace_record(view, msgspec.structs.replace(after, updated_at_s=now_s)))
    migration = view.records.get(Migration, run.migration) if run.migration is not None else None
    if migration is not None and run.dest is not None:
        claim = run.migration_claim or _NOTHING
        moved = msgspec.structs.replace(
            migration,
            status=saga.migration_meanwhile or migration.status,
            dest=run.dest,
            held=claim.held,
            generation=claim.generation,
            shared=run.shared,
        )
        if moved != migration:
            changes.append(replace_record(view, msgspec.structs.replace(moved, updated_at_s=now_s)))
    return changes


# -- the end ------------------------------------------------------------------------------------


def apply_end(
    server: Server, migration: Migration | None, run: SagaRun, now_s: int
) -> tuple[Server, Migration | None]:
    """Server and migration when the order has come to its end, whichever."""
    is_done = run.phase == "done"
    server = msgspec.structs.replace(
        server,
        task=None,
        run=None,
        held=run.claim.held,
        kept=plus((run.kept, run.claim.kept)) if run.claim.held else (),
        conflict=run.conflict or server.conflict,
        generation=run.claim.generation,
        needs=run.needs,
        fault=None if is_done else Fault(run.reason or "unknown", now_s),
        updated_at_s=now_s,
    )
    state = _state_after(server, run)
    power = server.power if _is_untouched(run) else _power(state, run)
    saga = saga_of(run)
    ended = (saga.on_done if is_done else saga.on_failed)(server, run, migration)
    launched_at_s = ended.launched_at_s or (now_s if is_done else None)
    ended = msgspec.structs.replace(ended, state=state, power=power, launched_at_s=launched_at_s)
    if migration is None:
        return ended, None
    return ended, _migration_after(migration, run, now_s)


def _state_after(server: Server, run: SagaRun) -> VmState:
    saga, outcome = saga_of(run), find_outcome(run)
    before = server.state_before or server.state
    assert outcome.state != GONE, "a server that is gone has no state"
    if run.phase == "done":
        if outcome.state == AS_BEFORE:
            return "stopped" if before == "stopped" else "active"
        return outcome.state
    if _undo_failed(run) or (saga.is_move and not has_given_back(run)):
        return "error"
    if _is_untouched(run):
        return server.state
    # What was undone stands at its first step, and that is never one that stops as something.
    stopped_as = step_of(run).stopped_as
    assert stopped_as != UNCHANGED, "that is untouched"
    if stopped_as is not None:
        return stopped_as
    return before if outcome.state == AS_BEFORE else outcome.state


def _is_untouched(run: SagaRun) -> bool:
    """Whether the order ended before anything was done to the server."""
    return run.phase == "failed" and step_of(run).stopped_as == UNCHANGED


def _undo_failed(run: SagaRun) -> bool:
    """Whether the server could not be run again where it was."""
    undone = (saga_of(run).find_undone(entry.step) for entry in run.log if entry.error is not None)
    return any(step is not None and step.runs_again for step in undone)


def _power(state: VmState, run: SagaRun) -> int:
    if state == "resized":
        return RUNNING if run.runs else SHUT_DOWN
    return _POWER.get(state, NO_STATE)


def _migration_after(migration: Migration, run: SagaRun, now_s: int) -> Migration:
    ended = find_outcome(run).migration
    if run.phase == "failed":
        ended = step_of(run).migration_stopped_as or ended
    if run.abort and run.phase == "failed":
        ended = "cancelled"
    elif _is_untouched(run):
        ended = migration.status
    claim = run.migration_claim or _NOTHING
    return msgspec.structs.replace(
        migration,
        status=ended,
        dest=run.dest or migration.dest,
        held=claim.held,
        generation=claim.generation,
        shared=run.shared if claim.held else (),
        updated_at_s=now_s,
    )


# -- hosts --------------------------------------------------------------------------------------


def _host_records(view: View, run: SagaRun) -> tuple[LedgerCommand, ...]:
    """A host where something could not be built is taken last, until something can."""
    failures: dict[str, int] = {}
    for entry in run.log:
        step = saga_of(run).find_step(entry.step)
        if entry.host is None or step is None or not step.is_build:
            continue
        failures[entry.host] = 0 if entry.error is None else failures.get(entry.host, 0) + 1
    commands: list[LedgerCommand] = []
    for name, count in failures.items():
        host = view.names.get(name)
        if host is None or host.parent is not None:
            continue
        status = view.hosts.get(host.id, HEALTHY)
        total = status.build_failures + count if count else 0
        if total != status.build_failures:
            commands.append(SetHostStatus(host.id, msgspec.structs.replace(status, build_failures=total)))
    return tuple(commands)
