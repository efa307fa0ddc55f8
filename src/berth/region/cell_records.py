"""What follows in the records of a region from those of a cell: from the progress of a saga run, the state of
a host, and the assignments of units.

It is always the whole run that is applied, so that it does not matter which of its versions were seen. What a
server is after a run follows from the run and its saga alone (``apply_end``): how it ended, and what is held.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from berth.ledger import next_number, remove_record, replace_record
from berth.model.commands import Enact, LabelAggregate, LedgerCommand, SetAggregates, SetHostStatus
from berth.model.events import AnyRecord, RecordChanged
from berth.model.formats import ADDED
from berth.model.ids import AggregateId, Index, ProviderId
from berth.model.placement import CELL, HEALTHY, Label
from berth.model.rejections import RecordMoved
from berth.model.saga_runs import (
    Agent,
    Assignment,
    ClaimSnapshot,
    Outbox,
    SagaRun,
    StepLog,
    SyncPosition,
)
from berth.model.servers import (
    NO_STATE,
    POWER,
    RUNNING,
    SHUT_DOWN,
    Action,
    ActionEvent,
    Fault,
    Host,
    Migration,
    Server,
    VmState,
)
from berth.sagas.conflicts import plus
from berth.sagas.deletion import begin_awaited, join_changes
from berth.sagas.hosts import cell_aggregate
from berth.sagas.proposals import remove_server
from berth.sagas.runner import (
    ABORTED,
    describe_progress,
    describe_refused_claims,
    find_outcome,
    hand_over,
    is_away,
    is_finished,
    is_unsettled,
    saga_of,
    step_of,
    tell_end,
)
from berth.sagas.saga import AS_BEFORE, GONE, UNCHANGED
from berth.view import ProviderRecord, View

_NOTHING: Final = ClaimSnapshot((), None)
_LASTING: Final[frozenset[VmState]] = frozenset(("stopped", "paused", "suspended", "rescued"))
"""What a server still is when something was done to it that leaves it as it was."""


def apply_progress(view: View, run: SagaRun, now_s: int) -> Enact | None:
    """The command that brings the records up to what a run says; None where they are."""
    if view.format < ADDED["Server.addresses"]:
        run = msgspec.structs.replace(run, addresses=())
    saga = saga_of(run)
    if saga.apply is not None:
        return saga.apply(view, run, now_s)
    action = view.records.get(Action, run.id)
    if action is None:
        # The region was restored from an older backup. Cells that wait for the run get it all the same.
        handed = _hand_over(view, run)
        return Enact(tuple(handed)) if handed else None
    if action.seen >= run.version:
        return None
    changes = [replace_record(view, _update_action(action, run, now_s)), *_hand_over(view, run)]
    outbox = view.records.get(Outbox, run.id)
    if outbox is not None and not is_away(run):
        changes.append(remove_record(view, outbox))
    server = view.records.get(Server, run.server)
    if server is None or server.run != run.id:
        return Enact(tuple(changes))
    if not is_finished(run):
        return Enact((*changes, *_apply_running(view, server, run, now_s)))
    commands = _count_builds(view, run)
    if saga.settle is not None:
        changes += saga.settle(view, run, now_s)
    migration = view.records.get(Migration, run.migration) if run.migration is not None else None
    if find_outcome(run).state == GONE:
        end = remove_server(view, server, now_s)
        return Enact(join_changes(changes, end.changes), (*end.commands, *commands))
    after, moved = apply_end(server, migration, run, now_s)
    if after.deletion is not None:
        follows = begin_awaited(view, now_s, after, moved, after.deletion)
        return Enact(join_changes(changes, follows.changes), (*follows.commands, *commands))
    changes.append(replace_record(view, after))
    if moved is not None:
        changes.append(replace_record(view, moved))
    return Enact(tuple(changes), commands)


def is_applied(view: View, run: SagaRun) -> bool:
    """Whether the records say what a run says: then a finished run need not be kept."""
    saga = saga_of(run)
    if saga.is_applied is not None:
        return saga.is_applied(view, run)
    action = view.records.get(Action, run.id)
    return action is None or action.seen >= run.version


def _hand_over(view: View, run: SagaRun) -> list[RecordChanged]:
    """The changes by which other cells get a run: the next one where it is away, all others when it has
    ended."""
    if is_away(run):
        later = hand_over(run)
        waiting = [Outbox(id=run.id, cell=later.cells[0], run=later)]
    elif is_finished(run):
        waiting = [
            Outbox(id=f"end {run.id} {cell}", cell=cell, run=ended) for cell, ended in tell_end(run).items()
        ]
    else:
        waiting = []
    return [replace_record(view, one) for one in waiting if view.records.get(Outbox, one.id) != one]


def _update_action(action: Action, run: SagaRun, now_s: int) -> Action:
    """The action in the server's history, as far as the run has come."""
    events = tuple(_make_event(entry) for entry in run.log)
    message = f"Error: {run.reason}" if run.phase == "failed" else None
    updated_at_s = run.log[-1].finished_ns // 1_000_000_000 if run.log else action.updated_at_s
    return msgspec.structs.replace(
        action,
        events=events,
        message=message,
        seen=run.version,
        updated_at_s=updated_at_s,
        state="running" if not is_finished(run) else "done" if run.phase == "done" else "failed",
        progress=describe_progress(run, now_s, action.progress),
    )


def _make_event(entry: StepLog) -> ActionEvent:
    return ActionEvent(
        entry.step,
        entry.started_ns // 1_000_000_000,
        entry.finished_ns // 1_000_000_000,
        "Success" if entry.error is None else "Error",
        entry.host,
        entry.error,
    )


def _apply_running(view: View, server: Server, run: SagaRun, now_s: int) -> list[RecordChanged]:
    """The changes of server and migration while a run is under way: it may move the claim to an alternate."""
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
    """Server and migration when a run has ended, well or not."""
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
        addresses=run.addresses or server.addresses,
        fault=None if is_done else _make_fault(run, now_s),
        updated_at_s=now_s,
    )
    state = _find_state(server, run)
    power = server.power if _is_untouched(run) else _find_power(state, run)
    saga = saga_of(run)
    ended = (saga.on_done if is_done else saga.on_failed)(server, run, migration)
    launched_at_s = ended.launched_at_s or (now_s if is_done else None)
    ended = msgspec.structs.replace(ended, state=state, power=power, launched_at_s=launched_at_s)
    if migration is None:
        return ended, None
    return ended, _end_migration(migration, run, now_s)


def _make_fault(run: SagaRun, now_s: int) -> Fault:
    return Fault(run.reason or "unknown", now_s, details=describe_refused_claims(run))


def _find_state(server: Server, run: SagaRun) -> VmState:
    outcome = find_outcome(run)
    before = server.state_before or server.state
    assert outcome.state != GONE, "a server that is gone has no state"
    if run.phase == "done":
        if outcome.state == AS_BEFORE:
            return before if before in _LASTING else "active"
        return outcome.state
    if is_unsettled(run):
        return "error"
    if _is_untouched(run):
        return server.state
    # A run that was undone is at its first step, which has no state of its own for a stop.
    stopped_as = step_of(run).stopped_as
    assert stopped_as != UNCHANGED, "that is untouched"
    if stopped_as is not None:
        return stopped_as
    return before if outcome.state == AS_BEFORE else outcome.state


def _is_untouched(run: SagaRun) -> bool:
    """Whether the run ended before anything was done to the server."""
    return run.phase == "failed" and step_of(run).stopped_as == UNCHANGED


def _find_power(state: VmState, run: SagaRun) -> int:
    if state == "resized":
        return RUNNING if run.runs else SHUT_DOWN
    return POWER.get(state, NO_STATE)


def _end_migration(migration: Migration, run: SagaRun, now_s: int) -> Migration:
    ended = find_outcome(run).migration
    if run.phase == "failed":
        ended = step_of(run).migration_stopped_as or ended
    if run.abort and run.phase == "failed" and saga_of(run).is_move:
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


def _count_builds(view: View, run: SagaRun) -> tuple[LedgerCommand, ...]:
    """Count build failures against hosts: a host with failures is chosen last, until a build succeeds
    there."""
    failures: dict[str, int] = {}
    for entry in run.log:
        step = saga_of(run).find_step(entry.step)
        if entry.host is None or step is None or not step.is_build or entry.error == ABORTED:
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


def apply_host(view: View, agent: Agent, cell: str, now_s: int) -> Enact | None:
    """The command that brings a host's record up to what its cell says; None where it is.

    A host joins before its provider is written: without a provider it is known when it has complaints."""
    id = ProviderId(agent.id)
    provider = view.providers.get(id)
    known = view.records.get(Host, agent.id)
    if provider is None and known is None and not agent.complaints:
        return None
    name = _choose_name(view, agent, provider)
    counter = next_number(view, "host")
    host = known or Host(
        id=agent.id,
        number=counter.value,
        name=name,
        cell=cell,
        registered_at_s=now_s,
    )
    after = msgspec.structs.replace(
        host,
        name=name,
        cell=cell,
        driver=agent.driver,
        is_silent=agent.is_down,
        complaints=agent.complaints,
        unit_classes=agent.unit_classes,
        units_gone=agent.units_gone if view.format >= ADDED["Host.units_gone"] else (),
        heard_at_s=agent.heard_at_s,
    )
    commands: list[LedgerCommand] = []
    status = view.hosts.get(id, HEALTHY)
    down = after.is_silent or after.is_forced_down
    if provider is not None and status.down != down:
        commands.append(SetHostStatus(id, msgspec.structs.replace(status, down=down)))
    label = Label(CELL, cell)
    aggregate = cell_aggregate(cell)
    if view.groups.labels.get(aggregate) != label:
        commands.append(LabelAggregate(aggregate, label))
        commands += _remove_hosts_of_others(view, aggregate, cell)
    if after == known and not commands:
        return None
    changed: list[AnyRecord] = []
    if after != known:
        changed.append(msgspec.structs.replace(after, updated_at_s=now_s))
    if known is None:
        changed.append(counter)
    return Enact(tuple(replace_record(view, record) for record in changed), tuple(commands))


def _choose_name(view: View, agent: Agent, provider: ProviderRecord | None) -> str:
    """The name of a host. A name that another host has is not taken over: Placement has refused it."""
    if view.names.get(agent.name, provider) is not provider:
        return agent.id if provider is None else provider.name
    is_taken = provider is None and any(
        other.id != agent.id for other in view.records.find(Host, "name", agent.name)
    )
    return agent.id if is_taken else agent.name


def _remove_hosts_of_others(view: View, aggregate: AggregateId, cell: str) -> list[SetAggregates]:
    """Take hosts of other cells out of the aggregate of a new cell: its uuid follows from its name, so
    others may have used it before."""
    found = map(view.record, view.rows_in_aggregate(aggregate))
    others = [record for record in found if (host := view.records.get(Host, record.id)) and host.cell != cell]
    return [
        SetAggregates(record.id, record.generation, tuple(id for id in record.aggregates if id != aggregate))
        for record in others
    ]


def apply_assignments(view: View, host: str, current: Collection[Assignment]) -> Enact | None:
    """The command by which the region knows the assignments of a host as its cell has them; None where it
    does. All of a host's change together: no unit is in two of them in between."""
    ids = {one.id for one in current}
    known = view.records.find(Assignment, "host", host)
    changes = [remove_record(view, one) for one in known if one.id not in ids]
    changes += [replace_record(view, one) for one in current if view.records.get(Assignment, one.id) != one]
    return Enact(tuple(changes)) if changes else None


# -- two syncs at once --------------------------------------------------------------------------


def find_position(view: View, cell: str) -> int:
    """The last index of a cell's journal that hosts and assignments have been brought up from."""
    known = view.records.get(SyncPosition, cell)
    return -1 if known is None else known.index


def advance_position(
    view: View, cell: str, index: Index, instead_of: int | None = None
) -> Enact | RecordMoved | None:
    """The command by which hosts and assignments are brought up from an index, and from no earlier one any
    more. ``instead_of``: a later position that is wrong."""
    position = find_position(view, cell)
    if position > index and position != instead_of:
        return RecordMoved("SyncPosition", cell)
    if position == index:
        return None
    return Enact((replace_record(view, SyncPosition(id=cell, index=index)),))
