"""What comes back up: an order as its cell has it now, into the records of the region.

It is always the whole order, so that it does not matter which of its versions were seen. What a server is
after its order follows from the order alone (``finished``): how it ended, and what stands in the books.
"""

import msgspec

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
    MigrationStatus,
    Server,
    VmState,
)
from berth.sagas.conflicts import plus
from berth.sagas.delete import gone
from berth.sagas.proposals import removed, replaced
from berth.sagas.runner import has_given_back, is_finished, operation_of, step_of
from berth.sagas.saga import runs_again
from berth.view import View

_NOTHING = ClaimSnapshot((), None)
_POWER: dict[VmState, int] = {
    "active": RUNNING,
    "resized": RUNNING,
    "stopped": SHUT_DOWN,
    "shelved": SHUT_DOWN,
}


def absorb(view: View, work: SagaRun, now_s: int) -> Enact | None:
    """The command that brings the records up to an order; None where they are."""
    if work.operation == "sweep":
        return _swept(view, work, now_s)
    action = view.records.get(Action, work.id)
    if action is None or action.seen >= work.version:
        return None
    changes = [replaced(view, _told(action, work))]
    outbox = view.records.get(Outbox, work.id)
    if outbox is not None:
        changes.append(removed(view, outbox))
    server = view.records.get(Server, work.server)
    if server is None or server.work != work.id:
        return Enact(tuple(changes))
    if not is_finished(work):
        return Enact((*changes, *_under_way(view, server, work, now_s)))
    commands = _host_records(view, work)
    migration = view.records.get(Migration, work.migration) if work.migration is not None else None
    if work.operation == "delete" and work.phase == "done":
        end = gone(view, server)
        # The records of its actions go with it.
        left = [change for change in changes if not isinstance(change.before, Action)]
        return Enact((*left, *end.changes), (*end.commands, *commands))
    after, moved = finished(server, migration, work, now_s)
    changes.append(replaced(view, after))
    if moved is not None:
        changes.append(replaced(view, moved))
    return Enact(tuple(changes), commands)


def is_absorbed(view: View, work: SagaRun) -> bool:
    """Whether the records say what an order says: then it need not be kept."""
    if work.operation == "sweep":
        migration = view.records.get(Migration, work.migration or "")
        return not is_finished(work) or migration is None or migration.status not in ("migrating", "done")
    action = view.records.get(Action, work.id)
    return action is None or action.seen >= work.version


def _swept(view: View, work: SagaRun, now_s: int) -> Enact | None:
    migration = view.records.get(Migration, work.migration or "")
    if migration is None or work.phase != "done" or migration.status != "done":
        return None
    if view.records.get(Server, migration.server) is None:
        return Enact((removed(view, migration),))
    after = msgspec.structs.replace(
        migration, status="completed", held=(), generation=None, updated_at_s=now_s
    )
    return Enact((replaced(view, after),))


def _told(action: Action, work: SagaRun) -> Action:
    """The action, as far as the order has come."""
    events = tuple(_event(entry) for entry in work.log)
    message = f"Error: {work.reason}" if work.phase == "failed" else None
    updated_at_s = work.log[-1].finished_ns // 1_000_000_000 if work.log else action.updated_at_s
    return msgspec.structs.replace(
        action, events=events, message=message, seen=work.version, updated_at_s=updated_at_s
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


def _under_way(view: View, server: Server, work: SagaRun, now_s: int) -> list[RecordChanged]:
    """An order may move the claim to an alternate: server and migration say so at once."""
    changes = []
    place = work.dest if work.operation in ("create", "unshelve") else server.place
    after = msgspec.structs.replace(
        server,
        place=place,
        held=work.books.held,
        kept=plus((work.kept, work.books.kept)),
        generation=work.books.generation,
        needs=work.needs,
    )
    if after != server:
        changes.append(replaced(view, msgspec.structs.replace(after, updated_at_s=now_s)))
    migration = view.records.get(Migration, work.migration) if work.migration is not None else None
    if migration is not None and work.dest is not None:
        status: MigrationStatus = {"confirm": "confirming", "revert": "reverting"}.get(  # type: ignore[assignment]
            work.operation, "migrating"
        )
        if work.operation == "delete":
            status = migration.status
        books = work.migration_books or _NOTHING
        moved = msgspec.structs.replace(
            migration,
            status=status,
            dest=work.dest,
            held=books.held,
            generation=books.generation,
            shared=work.shared,
        )
        if moved != migration:
            changes.append(replaced(view, msgspec.structs.replace(moved, updated_at_s=now_s)))
    return changes


# -- the end ------------------------------------------------------------------------------------


def finished(
    server: Server, migration: Migration | None, work: SagaRun, now_s: int
) -> tuple[Server, Migration | None]:
    """Server and migration when the order has come to its end, whichever."""
    is_done = work.phase == "done"
    server = msgspec.structs.replace(
        server,
        task=None,
        work=None,
        held=work.books.held,
        kept=plus((work.kept, work.books.kept)) if work.books.held else (),
        conflict=work.conflict or server.conflict,
        generation=work.books.generation,
        needs=work.needs,
        fault=None if is_done else Fault(work.reason or "unknown", now_s),
        updated_at_s=now_s,
    )
    state = _state_after(server, work)
    power = server.power if _is_untouched(work) else _power(state, work)
    ended = _moved(server, migration, work) if migration is not None else _in_place(server, work)
    launched_at_s = ended.launched_at_s or (now_s if is_done else None)
    ended = msgspec.structs.replace(ended, state=state, power=power, launched_at_s=launched_at_s)
    if migration is None:
        return ended, None
    return ended, _migration_after(migration, work, now_s)


def _state_after(server: Server, work: SagaRun) -> VmState:
    operation = operation_of(work)
    before = server.state_before or server.state
    if work.phase == "done":
        assert operation.state_done != "", "one that is gone has no state"
        return operation.state_done or ("stopped" if before == "stopped" else "active")
    is_move = operation.steps[0].undo == "give_back"
    if _undo_failed(work) or (is_move and not has_given_back(work)):
        return "error"
    if _is_untouched(work):
        return server.state
    # What was undone stands at its first step, and that is never one that stops as something.
    stopped_as = step_of(work).stopped_as
    assert stopped_as != "unchanged", "that is untouched"
    return stopped_as or operation.state_failed or before


def _is_untouched(work: SagaRun) -> bool:
    """Whether the order ended before anything was done to the server."""
    return work.phase == "failed" and step_of(work).stopped_as == "unchanged"


def _undo_failed(work: SagaRun) -> bool:
    """Whether the server could not be run again where it was."""
    names = {f"undo {step.name}" for step in operation_of(work).steps if runs_again(step)}
    return any(entry.error is not None and entry.step in names for entry in work.log)


def _power(state: VmState, work: SagaRun) -> int:
    if state == "resized":
        return RUNNING if work.runs else SHUT_DOWN
    return _POWER.get(state, NO_STATE)


def _in_place(server: Server, work: SagaRun) -> Server:
    match work.operation, work.phase:
        case (("create" | "unshelve"), "done"):
            return msgspec.structs.replace(server, place=work.dest, state_before=None)
        case (("create" | "unshelve"), _) | (("shelve_offload" | "shelve_away"), "done"):
            needs = tuple(msgspec.structs.replace(need, held=()) for need in server.needs)
            return msgspec.structs.replace(server, place=None, state_before=None, needs=needs)
    return msgspec.structs.replace(server, state_before=None)


def _moved(server: Server, migration: Migration, work: SagaRun) -> Server:
    """The server after an order that its migration has a part in."""
    at_dest = msgspec.structs.replace(server, place=work.dest, migration=None, flavor_before=None)
    at_source = msgspec.structs.replace(
        server,
        place=work.source,
        migration=None,
        flavor=server.flavor_before or server.flavor,
        flavor_before=None,
        kept=plus((migration.kept, work.books.kept)),
        needs=migration.needs,
    )
    match work.operation, work.phase:
        case (("resize" | "migrate"), "done"):
            return msgspec.structs.replace(
                at_dest, migration=work.migration, flavor_before=server.flavor_before
            )
        case (("confirm" | "live_migrate" | "evacuate"), "done"):
            return msgspec.structs.replace(at_dest, state_before=None)
        case (("resize" | "migrate" | "live_migrate" | "evacuate"), "failed") if not has_given_back(work):
            # What was to be undone in the books was refused. Both halves are held until somebody decides.
            return msgspec.structs.replace(server, state_before=None)
        case (("resize" | "migrate" | "live_migrate" | "evacuate"), "failed") | ("revert", "done"):
            return msgspec.structs.replace(at_source, state_before=None)
        case "revert", "failed" if has_given_back(work):
            return msgspec.structs.replace(at_source, state_before=None)
    return server


def _migration_after(migration: Migration, work: SagaRun, now_s: int) -> Migration:
    status: dict[tuple[str, str], MigrationStatus] = {
        ("resize", "done"): "finished",
        ("migrate", "done"): "finished",
        ("confirm", "done"): "confirmed",
        ("confirm", "failed"): "finished" if work.step == 0 else "confirming",
        ("revert", "done"): "reverted",
        ("live_migrate", "done"): "completed",
        ("evacuate", "done"): "done",
    }
    if work.abort and work.phase == "failed":
        ended = "cancelled"
    elif _is_untouched(work):
        ended = migration.status
    else:
        ended = status.get((work.operation, work.phase), "error")
    books = work.migration_books or _NOTHING
    return msgspec.structs.replace(
        migration,
        status=ended,
        dest=work.dest or migration.dest,
        held=books.held,
        generation=books.generation,
        shared=work.shared if books.held else (),
        updated_at_s=now_s,
    )


# -- hosts --------------------------------------------------------------------------------------


def _host_records(view: View, work: SagaRun) -> tuple[LedgerCommand, ...]:
    """A host where something could not be built is taken last, until something can."""
    failures: dict[str, int] = {}
    for entry in work.log:
        if entry.host is None or entry.step not in ("build", "prepare"):
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
