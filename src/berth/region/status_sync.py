"""The status sync: brings the progress of saga runs, the state of hosts, and the assignments of units up from
a cell's journal.

It is always the whole run that is applied, so that it does not matter which of its versions were seen. What a
server is after a run follows from the run and its saga alone (``apply_end``): how it ended, and what is held.
A run stays in the cell until the region has its end, so the sync can be stopped anywhere and start anew.

Two of them do no harm. A run is brought up by its version. Hosts and assignments have none: which index of
the cell's journal they are brought up from is written first (``SyncPosition``), and each change of them is
refused once a later index is there. Otherwise the slower of two could put an older state in place of a newer.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from berth.cell import saga_runs
from berth.engine import Engine, Planned, Unavailable
from berth.ledger import next_number, remove_record, replace_record
from berth.model.commands import Enact, LabelAggregate, LedgerCommand, SetAggregates, SetHostStatus
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.ids import AggregateId, Index, ProviderId
from berth.model.placement import CELL, HEALTHY, Label
from berth.model.rejections import RecordMoved, Rejection
from berth.model.saga_runs import (
    Agent,
    Assignment,
    ClaimSnapshot,
    Instance,
    Outbox,
    SagaRun,
    StepLog,
    SyncPosition,
)
from berth.model.servers import (
    NO_STATE,
    RUNNING,
    SHUT_DOWN,
    Action,
    ActionEvent,
    Fault,
    Host,
    Migration,
    Record,
    Server,
    UnknownServer,
    VmState,
)
from berth.region import outdated
from berth.sagas.conflicts import plus
from berth.sagas.hosts import cell_aggregate
from berth.sagas.proposals import remove_server
from berth.sagas.run_log import RunCounter, count_news, log_news
from berth.sagas.runner import (
    LOG_MAX,
    describe_progress,
    describe_refused_claims,
    find_outcome,
    is_finished,
    saga_of,
    step_of,
)
from berth.sagas.saga import AS_BEFORE, GONE, UNCHANGED, has_given_back
from berth.view import ProviderRecord, View
from berth.view.records import Records

_log = logging.getLogger(__name__)
WAIT_S: Final = 5.0
"""How long a loop waits for a journal to change before it looks again."""
_AT_ONCE: Final = 64
"""How many changes are submitted together. A claim that comes meanwhile waits for these, and not for all the
runs of a cluster of a thousand nodes."""
_COMPARED: Final = 500
"""How many servers, or servers of how many hosts, are compared with their cell in one go."""
_LOOK_EVERY_S: Final = 60.0
"""How often runs are looked for that their cell does not have."""
ACTION: Final = "status-sync"
_ORIGIN: Final = Origin("", ACTION, None, ACTION)
_NOTHING: Final = ClaimSnapshot((), None)
_POWER: Final[dict[VmState, int]] = {
    "active": RUNNING,
    "resized": RUNNING,
    "stopped": SHUT_DOWN,
    "shelved": SHUT_DOWN,
}


def apply_progress(view: View, run: SagaRun, now_s: int) -> Enact | None:
    """The command that brings the records up to what a run says; None where they are."""
    saga = saga_of(run)
    if saga.apply is not None:
        return saga.apply(view, run, now_s)
    action = view.records.get(Action, run.id)
    if action is None or action.seen >= run.version:
        return None
    changes = [replace_record(view, _update_action(action, run, now_s))]
    outbox = view.records.get(Outbox, run.id)
    if outbox is not None:
        changes.append(remove_record(view, outbox))
    server = view.records.get(Server, run.server)
    if server is None or server.run != run.id:
        return Enact(tuple(changes))
    if not is_finished(run):
        return Enact((*changes, *_apply_running(view, server, run, now_s)))
    commands = _count_builds(view, run)
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
    """Whether the records say what a run says: then a finished run need not be kept."""
    saga = saga_of(run)
    if saga.is_applied is not None:
        return saga.is_applied(view, run)
    action = view.records.get(Action, run.id)
    return action is None or action.seen >= run.version


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
    # A run that was undone is at its first step, which has no state of its own for a stop.
    stopped_as = step_of(run).stopped_as
    assert stopped_as != UNCHANGED, "that is untouched"
    if stopped_as is not None:
        return stopped_as
    return before if outcome.state == AS_BEFORE else outcome.state


def _is_untouched(run: SagaRun) -> bool:
    """Whether the run ended before anything was done to the server."""
    return run.phase == "failed" and step_of(run).stopped_as == UNCHANGED


def _undo_failed(run: SagaRun) -> bool:
    """Whether the server could not be run again where it was."""
    undone = (saga_of(run).find_undone(entry.step) for entry in run.log if entry.error is not None)
    return any(step is not None and step.runs_again for step in undone)


def _find_power(state: VmState, run: SagaRun) -> int:
    if state == "resized":
        return RUNNING if run.runs else SHUT_DOWN
    return _POWER.get(state, NO_STATE)


def _end_migration(migration: Migration, run: SagaRun, now_s: int) -> Migration:
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


def _count_builds(view: View, run: SagaRun) -> tuple[LedgerCommand, ...]:
    """Count build failures against hosts: a host with failures is chosen last, until a build succeeds
    there."""
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


# -- the loop -----------------------------------------------------------------------------------


class _CellNews(NamedTuple):
    """What is to be brought up, and the index of the cell's journal that it is read at."""

    read_at: Index
    runs: list[SagaRun]
    agents: list[Agent]
    assigned: dict[str, list[Assignment]]
    servers: dict[str, outdated.CellKnows]


class _Before(NamedTuple):
    """What the region knew of a run: how many entries of its log; and how long ago it was asked for."""

    seen: int
    seconds: float | None


def _read_before(view: View, run: SagaRun, now_s: int) -> _Before:
    action = view.records.get(Action, run.id)
    if action is None:
        return _Before(0, None)
    # Of a log that is full the first entries are gone: what is new in it cannot be told from its length.
    return _Before(min(len(action.events), LOG_MAX - 1), now_s - action.started_at_s)


class StatusSync:
    """Brings up what changes in one cell. The cell's view says which records have changed, and only these are
    looked at: the cost of a change does not depend on the size of the cell. With a new view, all of them are.

        changed --(read)--> due --(brought up)--> nothing

    What was read may change again, or be taken back, before it is brought up: then it is changed once more.
    What could not be brought up stays due."""

    def __init__(self, region: Engine, cell: Engine, name: str, telemetry: RunCounter | None = None) -> None:
        self._telemetry = telemetry
        self._region = region
        self._cell = cell
        self._name = name
        self._index = Index(-1)
        self._view: View | None = None
        # By kind of record: ids of runs and agents, and of the hosts of assignments.
        self._changed: dict[tuple[type[Record], str], None] = {}
        self._due: dict[tuple[type[Record], str], None] = {}
        # Whether the view has not been searched yet for servers that the cell does not know.
        self._is_new = False
        self._looks_at_s = 0.0

    async def sync(self) -> None:
        """Wait until the cell has changed, and bring up what has."""
        index = await self._cell.wait_beyond(self._index, WAIT_S)
        due = await self._cell.read_recent(self._find_due)
        # Before the runs: a server that is not busy has the units that the region says. Where another sync is
        # ahead of this one, all of it stays due until this one has caught up.
        if await self._sync_state(due):
            await finish_all(self._sync_run(run) for run in due.runs)
        await self._compare_servers(due.servers)
        if self._is_new:
            await self._look_for_missing()
            self._is_new = False
        await self._look_for_lost()
        self._index = index

    def _find_due(self, view: View) -> _CellNews:
        """The runs and agents that are due, all assignments of the hosts that are, and what the cell knows of
        the servers that are."""
        records = view.records
        if view is not self._view:
            self._view = view
            self._is_new = True
            self._note_all(records)
            records.follow(self._note_change)
        self._due |= self._changed
        self._changed = {}
        runs = [run for kind, id in self._due if kind is SagaRun and (run := records.get(SagaRun, id))]
        agents = [agent for kind, id in self._due if kind is Agent and (agent := records.get(Agent, id))]
        hosts = [host for kind, host in self._due if kind is Assignment]
        servers = [id for kind, id in self._due if kind is Instance]
        # Of what is gone there is nothing to bring up.
        self._due = {(type(record), record.id): None for record in (*runs, *agents)}
        self._due |= {(Assignment, host): None for host in hosts}
        self._due |= {(Instance, id): None for id in servers}
        assigned = {host: records.find(Assignment, "host", host) for host in hosts}
        known = {id: outdated.CellKnows(records.get(Instance, id)) for id in servers}
        return _CellNews(view.index, runs, agents, assigned, known)

    def _note_all(self, records: Records) -> None:
        for run in records.all(SagaRun):
            self._note_change(run)
        for agent in records.all(Agent):
            self._note_change(agent)
            # It may have none here, and some in the region.
            self._changed[Assignment, agent.id] = None
        for assignment in records.all(Assignment):
            self._note_change(assignment)
        for instance in records.all(Instance):
            self._note_change(instance)

    def _note_change(self, record: Record) -> None:
        if isinstance(record, Assignment):
            self._changed[Assignment, record.host] = None
        elif isinstance(record, SagaRun | Agent | Instance):
            self._changed[type(record), record.id] = None

    async def _sync_state(self, due: _CellNews) -> bool:
        """Bring up assignments and hosts; False where another sync has begun to do so from a later index."""
        if not due.agents and not due.assigned:
            return True
        if not await self._advance(due.read_at):
            return False
        await self._sync_assignments(due)
        await finish_all(self._sync_host(agent, due.read_at) for agent in due.agents)
        return await self._region.read(lambda view: find_position(view, self._name) <= due.read_at)

    async def _advance(self, index: Index) -> bool:
        """Have it written that what was read at this index is brought up; False where a later one is."""
        if not await self._submit(lambda view, now_s: advance_position(view, self._name, index)):
            return True
        position = await self._region.read(lambda view: find_position(view, self._name))
        last = await self._cell.read(lambda view: view.index)
        if last >= position:
            return False
        _log.warning(
            "%s: its journal ends at index %d, and the region has read it up to %d: it was replaced, or "
            "restored from an older copy. The region takes over what it says now",
            self._name,
            last,
            position,
        )
        return not await self._submit(
            lambda view, now_s: advance_position(view, self._name, index, instead_of=position)
        )

    async def _sync_assignments(self, due: _CellNews) -> None:
        by_host = due.assigned
        if not by_host:
            return
        different = await self._region.read(
            lambda view: [host for host, now in by_host.items() if apply_assignments(view, host, now)]
        )
        for host in by_host.keys() - set(different):
            del self._due[Assignment, host]
        await finish_all(self._sync_units(host, by_host[host], due.read_at) for host in different)

    async def _sync_units(self, host: str, current: list[Assignment], index: Index) -> None:
        """Bring up a host's assignments. Where that is refused, they stay due; the rest of the cell goes
        on."""
        refused = await self._submit_read_at(
            index, lambda view, now_s: apply_assignments(view, host, current)
        )
        if refused is None:
            del self._due[Assignment, host]
        elif not isinstance(refused, RecordMoved):
            _log.warning("the assignments of host %s could not be written, retrying: %s", host, refused)

    async def _sync_host(self, agent: Agent, index: Index) -> None:
        refused = await self._submit_read_at(
            index, lambda view, now_s: apply_host(view, agent, self._name, now_s)
        )
        # A host joins before its provider is written: it stays due until that is there.
        is_there = await self._region.read(lambda view: ProviderId(agent.id) in view.providers)
        if is_there and refused is None:
            del self._due[Agent, agent.id]

    async def _sync_run(self, run: SagaRun) -> None:
        def propose(view: View, now_s: int) -> Planned | None:
            command = apply_progress(view, run, now_s)
            return None if command is None else Planned(command, _read_before(view, run, now_s))

        def answer_unchanged(view: View, changed: bool) -> _Before | None:
            return None

        # Of all who follow this cell, the one that brings the progress up logs it.
        origin = msgspec.structs.replace(_ORIGIN, ids=run.request_id)
        before = await self._region.submit(propose, origin, answer_unchanged)
        if isinstance(before, _Before):
            log_news(_log, run, before.seen, before.seconds)
            if self._telemetry is not None:
                count_news(self._telemetry, run, before.seen, before.seconds)
        if not await self._region.read(lambda view: is_applied(view, run)):
            raise Unavailable(f"the progress of saga run {run.id} ({run.saga}) could not be written")
        if is_finished(run):
            await self._cell.submit(
                lambda view, _: saga_runs.remove_finished(view, run.id), _ORIGIN, lambda view, changed: None
            )
        del self._due[SagaRun, run.id]

    # -- records that are older than the cell ----------------------------------------------------

    async def _compare_servers(self, servers: dict[str, outdated.CellKnows]) -> None:
        """Write down what the cell knows of servers, and the region does not: it was restored."""
        remaining = iter(servers.items())
        while some := dict(itertools.islice(remaining, _COMPARED)):
            await self._compare(some)

    async def _compare(self, servers: dict[str, outdated.CellKnows]) -> None:
        different = await self._region.read(
            lambda view: [id for id, knows in servers.items() if self._is_older(view, id, knows)]
        )
        for id in servers.keys() - set(different):
            del self._due[Instance, id]
        if not different:
            return
        # Once more, after the region was read: only what does not fit then was not seen in between.
        known = await self._cell.read(lambda view: outdated.read_cell(view, different))
        for id, knows in known.items():
            # While a run is under way, what is known is not final: the server stays due.
            if not knows.is_busy and await self._correct(id, knows):
                del self._due[Instance, id]

    def _is_older(self, view: View, id: str, knows: outdated.CellKnows) -> bool:
        return outdated.correct_record(view, self._name, id, knows, 0) is not None

    async def _correct(self, id: str, knows: outdated.CellKnows) -> bool:
        """Write down what the cell knows of a server. Whether that could be done."""

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            if outdated.is_waiting(view, id):
                return RecordMoved("Server", id)
            return outdated.correct_record(view, self._name, id, knows, now_s)

        return await self._submit(propose) is None

    async def _look_for_missing(self) -> None:
        """Write down which servers the cell does not know."""
        unknown = await self._region.read(lambda view: view.records.find(UnknownServer, "cell", self._name))
        self._changed |= {(Instance, one.id): None for one in unknown}
        hosts = await self._region.read(
            lambda view: [host.id for host in view.records.find(Host, "cell", self._name)]
        )
        for first in range(0, len(hosts), _COMPARED):
            await self._mark_missing(hosts[first : first + _COMPARED])

    async def _mark_missing(self, hosts: list[str]) -> None:
        servers = await self._region.read(lambda view: outdated.find_settled(view, hosts))
        known = await self._cell.read(
            lambda view: outdated.read_cell(view, (server.id for server in servers))
        )
        missing = [server for server in servers if known[server.id].instance is None]
        await finish_all(map(self._mark_one_missing, missing))

    async def _mark_one_missing(self, server: Server) -> None:
        await self._submit(lambda view, now_s: outdated.mark_missing(view, server, now_s))

    async def _look_for_lost(self) -> None:
        """End the runs that the region waits for, and the cell does not have any more."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._looks_at_s:
            return
        self._looks_at_s = now_s + _LOOK_EVERY_S
        waiting = await self._region.read(lambda view: outdated.find_waiting(view, self._name))
        if not waiting:
            return
        lost, known = await self._cell.read(
            lambda view: (
                [server for server in waiting if view.records.get(SagaRun, server.run or "") is None],
                outdated.read_cell(view, (server.id for server in waiting)),
            )
        )
        await finish_all(self._end_lost(server, known[server.id]) for server in lost)

    async def _end_lost(self, server: Server, knows: outdated.CellKnows) -> None:
        await self._submit(lambda view, now_s: outdated.end_lost_run(view, server, knows, now_s))

    async def _submit_read_at(
        self, index: Index, propose: Callable[[View, int], Enact | None]
    ) -> Rejection | None:
        """Have a change made of what was read at an index, unless something later is being brought up."""

        def judge(view: View, now_s: int) -> Enact | Rejection | None:
            if find_position(view, self._name) > index:
                return RecordMoved("SyncPosition", self._name)
            return propose(view, now_s)

        return await self._submit(judge)

    async def _submit(self, propose: Callable[[View, int], Enact | Rejection | None]) -> Rejection | None:
        """Have a change made that may turn out not to be needed; or why it was refused."""
        return await self._region.submit(propose, _ORIGIN, lambda view, changed: None)


async def finish_all(tasks: Iterable[Awaitable[None]]) -> None:
    """Finish all of them, some at a time, also if one fails; then raise the first failure."""
    failures: list[BaseException] = []
    remaining = iter(tasks)
    while some := list(itertools.islice(remaining, _AT_ONCE)):
        outcomes = await asyncio.gather(*some, return_exceptions=True)
        failures += (outcome for outcome in outcomes if isinstance(outcome, BaseException))
    if failures:
        raise failures[0]
