"""How a saga begins: whether it may, and the one change that starts a run of it.

Every proposal ends in ``start_run``: the server's record, the run in the outbox and the action in its history
are one command with what is claimed. A saga that needs a place asks for it (``requests.ask_place``), plans
(``scheduler.plan``) and starts at what was found (``start_at_place``): create, unshelve and every move alike.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from berth.ledger import remove_record, replace_record
from berth.model.commands import ChangeMembers, DeleteGroup, Enact, LedgerCommand
from berth.model.events import AnyRecord, RecordChanged
from berth.model.formats import ADDITIONS, TRACED
from berth.model.ids import ConsumerId, GroupId
from berth.model.quotas import RESOURCES, Quotas
from berth.model.rejections import (
    HostIsDown,
    Rejection,
    ServerBusy,
    ServerNotFound,
    ServerOutdated,
    ServerStateWrong,
    ServerUnsettled,
)
from berth.model.saga_runs import (
    ClaimSnapshot,
    Destination,
    Outbox,
    SagaRun,
    Spec,
    UnitsRequest,
)
from berth.model.scheduling import Placement
from berth.model.servers import (
    NOT_BEGUN,
    NOT_RUNNING,
    UNKNOWN,
    Action,
    ConflictPolicy,
    DeletedServer,
    Flavor,
    Held,
    Migration,
    Need,
    Place,
    Server,
)
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas.conflicts import ConflictRules, OnRepeat, ServerHoldings, adopt_holdings, find_holdings
from berth.sagas.hosts import is_down
from berth.sagas.requests import make_destination
from berth.sagas.runner import describe_progress
from berth.sagas.saga import GONE, PLACEMENT, Saga
from berth.scheduler.plugins import SchedulerOptions
from berth.scheduler.spec_table import read_properties
from berth.view import View

PAST_MAX: Final = 100
"""How many actions, and how many migrations that are over, are remembered of a server."""


CrossCell = Literal["on", "off", "denied"]
"""``off``: the setting ``cross_cell_moves`` is. ``denied``: the caller may not have it."""
DELETED_MAX: Final = 1_000
"""How many deleted servers are remembered at most."""


class RunRequest(Protocol):
    """Who asks for a run, and by which rules it is executed."""

    @property
    def request_id(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def policy(self) -> ConflictPolicy: ...
    @property
    def attempts_max(self) -> int: ...
    @property
    def quotas(self) -> Quotas | None: ...
    @property
    def global_id(self) -> str | None: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def rules(self) -> ConflictRules: ...
    def make_run_id(self) -> str: ...


class Context(NamedTuple):
    """The request that a proposal is made for, and the rules that apply to it."""

    request_id: str
    project: str
    user: str
    ids: Ids
    scheduler: SchedulerOptions
    policy: ConflictPolicy = "fail"
    attempts_max: int = 3
    alternates: int = 5
    resizes_in_place: bool = True
    """Whether a resize may stay on its host."""
    repeat: OnRepeat = "merge"
    """What ``fail`` does with a request that is repeated after a conflict was reported."""
    quotas: Quotas | None = None
    """The quotas of projects that have none of their own; None: no quota is checked."""
    crosses_cells: CrossCell = "off"
    """Whether a resize or a cold migration may go to another cell, or why it may not."""
    port_needs: tuple[Need, ...] = ()
    """What the ports of the server need, as they were read for this request: a move asks for that."""
    global_id: str | None = None
    """The id that the caller gave the request, if it did."""
    traceparent: str | None = None
    """What the request is part of, where requests are traced."""

    @property
    def rules(self) -> ConflictRules:
        return ConflictRules(self.policy, self.repeat)

    def make_run_id(self) -> str:
        return self.ids.uuid()


def read_quotas(settings: Settings) -> Quotas:
    """The quotas of projects that have none of their own."""
    return Quotas(**{name: getattr(settings, f"quota_{name}") for name in RESOURCES})


def renew_port_needs(server: Server, context: Context) -> Server:
    """The server with what its ports need now."""
    now = {need.name: need for need in context.port_needs}
    if not now:
        return server
    needs = tuple(now.get(need.name, need) if need.port else need for need in server.needs)
    return msgspec.structs.replace(server, needs=needs)


def find_startable(view: View, id: str, saga: Saga) -> Server | Rejection:
    """The server, if the saga may begin with it now."""
    server = view.records.get(Server, id)
    if server is None:
        return ServerNotFound(id)
    if server.run is not None:
        return ServerBusy(id, saga.action, server.task or "busy")
    if server.state not in saga.starts_in:
        return ServerStateWrong(id, saga.action, server.state, tuple(sorted(saga.starts_in)))
    if server.outdated not in (None, UNKNOWN) and saga.done.state != GONE:
        # Done where the record says, it would make the server a leftover where it is.
        return ServerOutdated(id, saga.action, server.outdated or "")
    return server


class Resized(NamedTuple):
    """A server that waits for its resize to be confirmed or reverted, its migration, and what both hold."""

    server: Server
    migration: Migration
    holdings: ServerHoldings


def find_resized(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    saga: Saga,
    refuse: Callable[[Migration], Rejection | None],
) -> Resized | Enact | Rejection:
    """A server whose resize may be confirmed or reverted now, by ``saga``. ``refuse`` says why not, where
    the migration is being settled the other way."""
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    if migration is None:
        return ServerStateWrong(id, saga.action, server.state, ("resized",))
    refused = refuse(migration)
    if refused is not None:
        return refused
    # A conflict is refused here already, where the user learns of it: the conductor would find the same.
    holdings = find_holdings(
        view, server, context.rules, saga.action, now_s, migration=migration, released=saga.released
    )
    return Resized(server, migration, holdings) if isinstance(holdings, ServerHoldings) else holdings


def settle_resize(
    view: View,
    now_s: int,
    context: Context,
    saga: Saga,
    server: Server,
    migration: Migration,
    *,
    flavor: Flavor | None = None,
    commands: tuple[LedgerCommand, ...] = (),
) -> Enact:
    """The command that starts a run which confirms or reverts a resize. ``server``, ``flavor`` and
    ``commands`` are as for ``start_run``."""
    return start_run(
        view,
        now_s,
        context,
        saga,
        server,
        source=migration.source,
        dest=server.place,
        flavor=flavor,
        migration=migration,
        runs=server.state_before != "stopped",
        commands=commands,
    )


def reject_unsettled(server: Server, saga: Saga) -> Rejection:
    """Why nothing can be done to a server where it is: it is on no host, or on two."""
    if server.migration is not None:
        return ServerUnsettled(server.id, saga.action, server.migration)
    state = f"{server.state}, on no host"
    return ServerStateWrong(server.id, saga.action, state, tuple(sorted(saga.starts_in)))


def start_run(
    view: View,
    now_s: int,
    context: RunRequest,
    saga: Saga,
    server: Server,
    *,
    source: Place | None = None,
    dest: Place | None = None,
    flavor: Flavor | None = None,
    migration: Migration | None = None,
    alternates: tuple[Destination, ...] = (),
    is_forced: bool = False,
    runs: bool = True,
    id: str | None = None,
    changed: tuple[AnyRecord, ...] = (),
    commands: tuple[LedgerCommand, ...] = (),
) -> Enact:
    """The command that starts a run: the server is busy, the run is in the outbox, and the history says so.

    ``server`` is the record to write, but for that: what it holds is what the run takes for its claim.
    ``flavor``: what agents build, where that is not the record's. ``runs``: whether the server is to run
    afterwards.
    """
    at = source or dest
    assert at is not None, "a run is about some host"
    run = SagaRun(
        id=id or context.make_run_id(),
        number=server.run_count + 1,
        server=server.id,
        saga=saga.key,
        request_id=context.request_id,
        spec=_make_spec(server, flavor or server.flavor),
        project=server.project,
        user=server.user,
        source=source,
        dest=dest,
        claim=ClaimSnapshot(server.held, server.generation),
        migration=None if migration is None else migration.id,
        migration_claim=None if migration is None else ClaimSnapshot(migration.held, migration.generation),
        kept=server.kept,
        shared=() if migration is None else migration.shared,
        needs=server.needs,
        alternates=alternates,
        attempts_max=context.attempts_max,
        policy=context.policy,
        is_forced=is_forced,
        runs=runs,
        global_id=context.global_id,
        traceparent=context.traceparent if view.format >= TRACED else None,
        cells=_find_cells(source, dest, alternates),
    )
    records: list[AnyRecord] = [
        msgspec.structs.replace(server, task=saga.task, run=run.id, run_count=run.number, updated_at_s=now_s),
        Outbox(id=run.id, cell=at.cell, run=run),
        Action(
            id=run.id,
            server=run.server,
            name=saga.action,
            request_id=context.request_id,
            project=context.project,
            user=context.user,
            started_at_s=now_s,
            updated_at_s=now_s,
            seen=-1,
            state="running",
            progress=describe_progress(run, now_s, NOT_BEGUN),
        ),
        *(() if migration is None else (migration,)),
        *changed,
    ]
    forgotten = (remove_record(view, record) for record in _find_forgettable(view, server))
    changes = (*(replace_record(view, record) for record in records), *forgotten)
    return Enact(changes, commands, quotas=context.quotas)


def _find_cells(
    source: Place | None, dest: Place | None, alternates: tuple[Destination, ...]
) -> tuple[str, ...]:
    """The cells that a run goes through, if there are several. Its source's has it first, and until its
    end."""
    if source is None or dest is None:
        return ()
    crosses = any(place.cell != source.cell for place in (dest, *(one.place for one in alternates)))
    return tuple(dict.fromkeys((source.cell, dest.cell))) if crosses else ()


def find_first_cell(view: View, server: Server) -> str | None:
    """The cell that a run of a server begins in, and that has it until its end."""
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    place = server.place if migration is None else migration.source
    return None if place is None else place.cell


def request_abort(view: View, server: Server, run: str) -> tuple[RecordChanged, ...]:
    """The changes by which the run that is under way for a server is aborted, in whichever cell it is."""
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    first = find_first_cell(view, server)
    assert first is not None, "a run is about some host"
    waiting = [Outbox(id=f"abort {run}", cell=first, abort=run)]
    if migration is not None and migration.dest.cell != first:
        other = migration.dest.cell
        waiting.append(Outbox(id=f"abort {run} {other}", cell=other, abort=run))
    return tuple(replace_record(view, one) for one in waiting)


def _make_spec(server: Server, flavor: Flavor) -> Spec:
    properties = read_properties(server.image_properties)
    return Spec(
        server.name, server.project, server.user, flavor, server.image, properties, server.ports, server.guest
    )


def request_units(view: View, server: Server) -> RecordChanged | None:
    """The change by which the units of a server that is not busy follow what its record says that it holds;
    None for a server without a place. ``server`` is the record as it will be. It is the cell that knows what
    the server has now, and whether anything changes: the region's copy may be late."""
    if server.place is None:
        return None
    return send_units(view, server, server.place, server.held, server.flavor)


def send_units(
    view: View, server: Server, place: Place, held: Held, flavor: Flavor, migration: str | None = None
) -> RecordChanged:
    """The change that tells a server's cell what it holds, or its migration, so that the units follow. Units
    of a server that may be running stay its own until a command tells its driver otherwise, and those of a
    migration are for a revert."""
    spec = _make_spec(server, flavor)
    may_release = migration is None and server.state in NOT_RUNNING
    asked = UnitsRequest(server.id, place, held, server.run_count, spec, migration, may_release)
    return replace_record(view, Outbox(id=f"units {asked.holder}", cell=place.cell, units=asked))


def start_at_place(
    view: View,
    now_s: int,
    context: Context,
    saga: Saga,
    server: Server,
    placement: Placement,
    *,
    generation: int | None = None,
    others: tuple[Need, ...] = (),
    shared: Held = (),
    source: Place | None = None,
    make_migration: Callable[[Destination], Migration] | None = None,
    runs: bool = True,
    changed: tuple[AnyRecord, ...] = (),
    commands: tuple[LedgerCommand, ...] = (),
) -> Enact:
    """The command that starts a run at the place that was planned for a server, with its alternates.

    ``generation`` is the server's before the claim, which is among the ``commands``. ``others``: what other
    clients have added and the plan has asked for; ``shared``: what the server held on sharing providers
    before. ``make_migration`` says, of a move, which migration holds the other half.
    """
    chosen = make_destination(view, server, placement.chosen, others, shared)
    migration = None if make_migration is None else make_migration(chosen)
    after = msgspec.structs.replace(
        server,
        place=server.place if saga.is_move else chosen.place,
        held=chosen.held,
        generation=(generation or 0) + 1,
        kept=chosen.kept,
        needs=chosen.needs,
        migration=None if migration is None else migration.id,
        conflict=None,
        fault=None,
    )
    return start_run(
        view,
        now_s,
        context,
        saga,
        after,
        source=source,
        dest=chosen.place,
        migration=migration,
        alternates=tuple(
            make_destination(view, server, other, others, shared) for other in placement.alternates
        ),
        runs=runs,
        changed=changed,
        commands=commands,
    )


def propose_in_place(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    saga: Saga,
    after: Server | None = None,
    *,
    run: str | None = None,
    changed: tuple[AnyRecord, ...] = (),
) -> Enact | Rejection:
    """Start a run for a server where it is. ``after`` is the record to write, ``run`` the id of the run where
    that is known already; ``changed`` are other records that are written with it."""
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    place = server.place
    if place is None or server.migration is not None:
        return reject_unsettled(server, saga)
    is_spared = all(step.skip_if_down or step.at == PLACEMENT for step in saga.steps)
    if is_down(view, place) and not is_spared:
        return HostIsDown(place.name, saga.action)
    if any(step.at == PLACEMENT for step in saga.steps):
        holdings = find_holdings(view, server, context.rules, saga.action, now_s, released=saga.released)
        if not isinstance(holdings, ServerHoldings):
            return holdings
        server = adopt_holdings(server, holdings)
    shown = msgspec.structs.replace(after or server, state_before=server.state, fault=None)
    return start_run(
        view,
        now_s,
        context,
        saga,
        shown,
        dest=place,
        runs=server.state != "stopped",
        id=run,
        changed=changed,
    )


def remove_server(view: View, server: Server, now_s: int) -> Enact:
    """The command that removes a server's records, when nothing is held for it any more. What it was is
    remembered for a while."""
    changes = [remove_record(view, server), *_remember(view, server, now_s)]
    changes += [remove_record(view, action) for action in view.records.find(Action, "server", server.id)]
    changes += [
        remove_record(view, migration)
        for migration in view.records.find(Migration, "server", server.id)
        if migration.status != "done"
    ]
    membership = view.groups.memberships.get(ConsumerId(server.id))
    commands: tuple[LedgerCommand, ...] = ()
    if membership is not None:
        commands = (ChangeMembers(membership.group, (), (ConsumerId(server.id),)),)
    return Enact(tuple(changes), commands)


def _remember(view: View, server: Server, now_s: int) -> tuple[RecordChanged, ...]:
    """The changes by which a server that is gone is remembered, and the oldest one is not, where there are
    too many."""
    if view.format < ADDITIONS.since("DeletedServer") or server.launched_at_s is None:
        return ()
    was = msgspec.structs.replace(
        server,
        task=None,
        run=None,
        held=(),
        kept=(),
        needs=(),
        conflict=None,
        migration=None,
        deletion=None,
        flavor_before=None,
        updated_at_s=now_s,
    )
    known = view.records.all(DeletedServer)
    oldest = [next(iter(known))] if len(known) >= DELETED_MAX else []
    new = replace_record(view, DeletedServer(id=server.id, server=was, deleted_at_s=now_s))
    return (new, *(remove_record(view, one) for one in oldest if one.id != server.id))


def delete_group(view: View, id: GroupId, *, is_forced: bool) -> Enact:
    """The command that deletes a group; its servers stay, without a group."""
    return Enact(leave_group(view, id), (DeleteGroup(id, force=is_forced),))


def leave_group(view: View, id: GroupId) -> tuple[RecordChanged, ...]:
    """The changes of a group's servers when it is deleted: they are in no group any more."""
    record = view.groups.records.get(id)
    servers = (view.records.get(Server, member) for member in record.members) if record is not None else ()
    return tuple(
        RecordChanged(server, msgspec.structs.replace(server, group=None))
        for server in servers
        if server is not None and server.group == id
    )


def _find_forgettable(view: View, server: Server) -> list[Action | Migration]:
    """What is forgotten of a server's past, so that there is an end to it: the oldest, one at a time."""
    past: list[Action | Migration] = []
    actions = view.records.find(Action, "server", server.id)
    past += actions[:1] if len(actions) >= PAST_MAX else []
    over = [one for one in view.records.find(Migration, "server", server.id) if not one.held]
    past += over[:1] if len(over) >= PAST_MAX else []
    return past
