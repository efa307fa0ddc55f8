"""The first half of every move: the server claims a new place, and the migration takes over what it had at
the source, in one change.

What the server holds on a sharing provider and uses at the destination too stays with the server: of each
class of each such provider the larger of the two amounts is held, by both together, and never the sum. So

    shared    = overlap(what is held on sharing providers, what the candidate takes)
    migration = all that the server held - shared

and giving back restores ``migration + shared``. A candidate that uses another pool has no overlap: both
are held.
"""

from typing import Final, NamedTuple

import msgspec

from berth.ledger import decide, next_number
from berth.model.commands import UNCHECKED, Claim, Enact, ReplaceAllocations
from berth.model.formats import ADDITIONS
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import MIGRATION, SHARES_VIA_AGGREGATE
from berth.model.rejections import (
    ConstraintStep,
    HostInAnotherCell,
    HostIsDown,
    NoFit,
    PoolShortage,
    Rejection,
    ServerChangedByOthers,
)
from berth.model.saga_runs import Destination
from berth.model.scheduling import ANY_CELL, Plan, ScheduleRequest
from berth.model.servers import CellStatus, Held, Host, Migration, MigrationKind, Place, Server
from berth.sagas.conflicts import (
    ServerHoldings,
    describe_difference,
    drop_missing_providers,
    find_holdings,
    minus,
    overlap,
)
from berth.sagas.hosts import is_down
from berth.sagas.needs import find_wrong
from berth.sagas.proposals import (
    Context,
    find_startable,
    reject_unsettled,
    renew_port_needs,
    start_at_place,
)
from berth.sagas.requests import ask_place, kept_needs
from berth.sagas.saga import Saga
from berth.scheduler.plan import plan
from berth.view import Trial, View

CROSS_CELL_RULE: Final = "compute:servers:resize:cross_cell"
"""The policy rule that says who may move servers across cells, by Nova's name."""


def find_movable(view: View, id: str, saga: Saga) -> Server | Rejection:
    """The server, if it may be moved from its host now, which must be up."""
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    if server.place is None or server.migration is not None:
        return reject_unsettled(server, saga)
    return HostIsDown(server.place.name, saga.action) if is_down(view, server.place) else server


def propose_move(
    view: View,
    now_s: int,
    context: Context,
    saga: Saga,
    kind: MigrationKind,
    server: Server,
    after: Server,
    *,
    host: str | None = None,
    may_stay: bool = False,
) -> Enact | Rejection:
    """Move a server that may be moved. ``after`` is the record to write while the move runs: with
    another flavor, in a resize. ``host``: the only one considered. ``may_stay``: its own host is, too."""
    place = server.place
    assert place is not None, "a server that may be moved is on a host"
    known = view.records.find(Host, "name", host) if host is not None else []
    crosses = bool(known) and known[0].cell != place.cell
    if crosses:
        why = _refuse_crossing(view, context, saga, place.cell, known[0].cell)
        if why is not None:
            return HostInAnotherCell(server.id, saga.action, place.cell, known[0].name, known[0].cell, why)
    source = _find_source(view, now_s, context, saga, server, place)
    if not isinstance(source, _MoveSource):
        return source
    others = kept_needs(view, source.kept)
    after = renew_port_needs(after, context)
    wrong = find_wrong(view, after.needs)
    if wrong is not None:
        return wrong
    id = ConsumerId(context.ids.uuid())

    def claim_source(held: Held) -> Claim:
        return Claim(id, held, server.project, server.user, None, MIGRATION)

    def ask(cell: str, ignored: frozenset[str]) -> ScheduleRequest | Rejection:
        return ask_place(
            view,
            after,
            context.scheduler.devices,
            others,
            host=host,
            cell=cell,
            ignore_hosts=ignored if may_stay else ignored | {place.id},
            alternates=context.alternates,
            generation=UNCHECKED,
            uses=frozenset(provider for provider, _ in source.shared),
        )

    request = ask(ANY_CELL if crosses or not place.cell else place.cell, frozenset())
    if isinstance(request, Rejection):
        return request
    planned = _plan(view, now_s, context, request, source, claim_source(source.tree))
    if isinstance(planned, NoFit) and host is None:
        # A server leaves its cell only where that has no host for it.
        ignored = _find_hosts_beyond(view, context, saga, place.cell)
        wider = None if ignored is None else ask(ANY_CELL, ignored)
        if isinstance(wider, ScheduleRequest):
            request, planned = wider, _plan(view, now_s, context, wider, source, claim_source(source.tree))
    if isinstance(planned, Rejection):
        return planned
    (placement,) = planned.placements
    counter = next_number(view, "migration")
    source_claim = claim_source(minus(source.held, overlap(source.shared, placement.chosen.wanted)))

    def make_migration(dest: Destination) -> Migration:
        return Migration(
            id=id,
            number=counter.value,
            server=server.id,
            type=kind,
            status="accepted",
            source=place,
            dest=dest.place,
            flavor_before=server.flavor,
            flavor_after=after.flavor,
            project=server.project,
            user=server.user,
            held=source_claim.wanted,
            generation=1,
            shared=dest.shared,
            kept=source.kept,
            needs=server.needs,
            created_at_s=now_s,
            updated_at_s=now_s,
        )

    claim = request.claim(ConsumerId(server.id), placement.chosen.wanted, source.generation)
    return start_at_place(
        view,
        now_s,
        context,
        saga,
        msgspec.structs.replace(after, state_before=server.state),
        placement,
        generation=source.generation,
        others=others,
        shared=source.shared,
        source=place,
        make_migration=make_migration,
        runs=server.state != "stopped",
        changed=(counter,),
        commands=(ReplaceAllocations((claim, source_claim)),),
    )


def _refuse_crossing(view: View, context: Context, saga: Saga, source: str, dest: str) -> str | None:
    """Why a move may not go from one cell to another, in words; None if it may."""
    if not saga.may_cross:
        return "only a resize or a cold migration can leave its cell"
    if context.crosses_cells == "off":
        return "moves across cells are off here (the setting cross_cell_moves)"
    if context.crosses_cells == "denied":
        return f"your roles do not allow moves across cells (the policy rule {CROSS_CELL_RULE})"
    unready = next((cell for cell in (source, dest) if not _is_ready(view, cell)), None)
    if unready is None:
        return None
    return f"the cell {unready} cannot take part: it is out of reach now, or its upgrade is not finished"


def _is_ready(view: View, cell: str) -> bool:
    """Whether a cell can be reached, and its journal can hold a run that crosses cells."""
    status = view.records.get(CellStatus, cell)
    since = ADDITIONS.since("SagaRun.cells")
    return status is not None and status.is_reachable and min(status.format, view.format) >= since


def _find_hosts_beyond(view: View, context: Context, saga: Saga, cell: str) -> frozenset[str] | None:
    """The hosts that a move which may leave its cell cannot go to all the same; None if it may not leave."""
    if not saga.may_cross or context.crosses_cells != "on" or not _is_ready(view, cell):
        return None
    others = [name for name in view.records.keys(Host, "cell") if not _is_ready(view, name)]
    return frozenset(host.id for name in others for host in view.records.find(Host, "cell", name))


class _MoveSource(NamedTuple):
    """What a server holds before its move: ``tree`` on its host, ``shared`` on sharing providers, and both
    together; ``kept`` is the part that others have added. ``held_now`` is what Placement says."""

    tree: Held
    shared: Held
    held: Held
    kept: Held
    held_now: Held
    generation: int | None


def _find_source(
    view: View, now_s: int, context: Context, saga: Saga, server: Server, place: Place
) -> _MoveSource | Enact | Rejection:
    """What the migration takes over, or the refusal."""
    holdings = find_holdings(view, server, context.rules, saga.action, now_s)
    if not isinstance(holdings, ServerHoldings):
        return holdings
    before, kept = holdings.held, holdings.kept
    if not _split_shared(view, before, place)[0]:
        # It is on its host all the same: the migration claims there what the record says.
        before, kept = drop_missing_providers(view, server.held), drop_missing_providers(view, server.kept)
    tree, shared = _split_shared(view, before, place)
    if not tree:
        found = describe_difference(holdings.held, server.held) or "nothing is held on its host"
        return ServerChangedByOthers(server.id, saga.action, found, is_recorded=False)
    return _MoveSource(tree, shared, before, kept, holdings.held, holdings.generation)


def _plan(
    view: View, now_s: int, context: Context, request: ScheduleRequest, source: _MoveSource, claim: Claim
) -> Plan | Rejection:
    """The plan for the destination, beside the migration's ``claim`` on the source.

    What the server has in pools is free for the server. What is left of it to the migration needs no more
    room than the server had.
    """
    with Trial(view) as trial:
        freed = request.claim(request.members[0], minus(source.held_now, source.shared), UNCHECKED)
        verdict = decide(view, ReplaceAllocations((freed,)), now_s) if source.shared else []
        trial.apply([] if isinstance(verdict, Rejection) else verdict)
        planned = plan(view, request, context.scheduler, context.ids.rng, now_s, lambda _: (claim,))
        if isinstance(planned, NoFit):
            steps = tuple(_note_held(view, step, source.shared) for step in planned.steps)
            planned = msgspec.structs.replace(planned, steps=steps)
    return planned


def _note_held(view: View, step: ConstraintStep, shared: Held) -> ConstraintStep:
    """The step with what the server holds of each pool: a plan takes that for free."""
    held = {(view.providers[id].name, name): n for id, amounts in shared for name, n in amounts}

    def told(pool: PoolShortage) -> PoolShortage:
        own = held.get((pool.pool, pool.resource_class), 0)
        return msgspec.structs.replace(pool, free=max(pool.free - own, 0), held=own)

    return msgspec.structs.replace(step, pools=tuple(map(told, step.pools)))


def _split_shared(view: View, held: Held, place: Place) -> tuple[Held, Held]:
    """What is held on hosts, and what on providers that share with the server's host from outside its
    tree."""
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)

    def is_shared(provider: ProviderId) -> bool:
        record = view.providers[provider]
        return record.row in sharing and record.root.id != place.id

    shared = tuple(part for part in held if is_shared(part[0]))
    return minus(held, shared), shared
