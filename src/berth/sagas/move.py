"""The first half of every move: the server claims a new place, and the migration takes over what it had at
the source, in one change (DESIGN: a move is one command).

What the server holds on a sharing provider and uses at the destination too stays with the server: of each
class of each such provider the larger of the two amounts is held, by both together, and never the sum. So

    shared    = overlap(what is held on sharing providers, what the way takes)
    migration = all that the server held - shared

and giving back restores ``migration + shared``. A way that uses another pool has no overlap: both are held.
"""

import msgspec

from berth.ledger import decide
from berth.model.commands import UNCHECKED, Claim, Enact, ReplaceAllocations
from berth.model.ids import ConsumerId, ProviderId
from berth.model.rejections import HostInAnotherCell, NoFit, Rejection, ServerChangedByOthers
from berth.model.requests import CandidatesRequest
from berth.model.saga_runs import ClaimSnapshot
from berth.model.scheduling import ANY_CELL, ScheduleRequest
from berth.model.servers import Held, Host, Migration, MigrationKind, Place, Server
from berth.model.vocabulary import MIGRATION, SHARES_VIA_AGGREGATE
from berth.sagas.conflicts import (
    ServerHoldings,
    describe_difference,
    drop_missing_providers,
    find_holdings,
    minus,
    overlap,
)
from berth.sagas.proposals import Context, make_run, next_number, record_run
from berth.sagas.requests import ask_resources as needed_by
from berth.sagas.requests import drop_stale_hints, kept_needs, make_destination, make_request
from berth.sagas.saga import BY_NAME
from berth.scheduler.plan import plan
from berth.view import View
from berth.view.trial import Trial


def propose_move(
    view: View,
    now_s: int,
    context: Context,
    server: Server,
    saga: str,
    kind: MigrationKind,
    after: Server,
    *,
    host: str | None = None,
    ignore_source: bool = True,
) -> Enact | Rejection:
    """Move a server that may be moved. ``after`` is the record as it shall be while it is under way: with
    another flavor, in a resize. ``host`` is the only one considered."""
    assert server.place is not None, "one that may be moved is somewhere"
    action = BY_NAME[saga].action
    known = view.records.find(Host, "name", host) if host is not None else []
    if known and known[0].cell != server.place.cell:
        return HostInAnotherCell(server.id, action, server.place.cell, known[0].name, known[0].cell)
    holdings = find_holdings(view, server, context.rules, action, now_s)
    if not isinstance(holdings, ServerHoldings):
        return holdings
    before, kept = holdings.held, holdings.kept
    if not _split(view, before, server.place)[0]:
        # It is on its host all the same: the migration claims there what the record says.
        before, kept = drop_missing_providers(view, server.held), drop_missing_providers(view, server.kept)
    tree, shared = _split(view, before, server.place)
    if not tree:
        found = describe_difference(holdings.held, server.held) or "nothing is held on its host"
        return ServerChangedByOthers(server.id, action, found, is_recorded=False)
    others = kept_needs(view, kept)
    needed = needed_by(after, others)
    if isinstance(needed, Rejection):
        return needed
    id = ConsumerId(context.ids.uuid())
    request = make_request(
        drop_stale_hints(view, after),
        needed,
        host=host,
        cell=server.place.cell or ANY_CELL,
        ignore_hosts=frozenset((server.place.id,)) if ignore_source else frozenset(),
        alternates=context.alternates if host is None else 0,
        generation=UNCHECKED,
        uses=frozenset(provider for provider, _ in shared),
    )

    def migration_claim(held: Held) -> Claim:
        return Claim(id, held, server.project, server.user, None, MIGRATION)

    with Trial(view) as trial:
        # What the server has in pools is free for the server. What is left of it to the migration needs no
        # more room than the server had.
        freed = request.claim(ConsumerId(server.id), minus(holdings.held, shared), UNCHECKED)
        verdict = decide(view, ReplaceAllocations((freed,)), now_s) if shared else []
        trial.apply([] if isinstance(verdict, Rejection) else verdict)
        planned = plan(
            view, request, context.scheduler, context.ids.rng, now_s, lambda _: (migration_claim(tree),)
        )
        if isinstance(planned, NoFit) and planned.refused is None:
            planned = msgspec.structs.replace(planned, refused=_full_pool(view, request, shared, now_s))
    if isinstance(planned, Rejection):
        return planned
    placement = planned.placements[0]
    chosen = make_destination(view, after, placement.chosen, others, shared)
    held_at_source = migration_claim(minus(before, overlap(shared, placement.chosen.wanted)))
    snapshot = ClaimSnapshot(chosen.held, (holdings.generation or 0) + 1)
    claim = request.claim(ConsumerId(server.id), snapshot.held, holdings.generation)
    counter = next_number(view, "migration")
    migration = Migration(
        id=id,
        number=counter.value,
        server=server.id,
        type=kind,
        status="accepted",
        source=server.place,
        dest=chosen.place,
        flavor_before=server.flavor,
        flavor_after=after.flavor,
        project=server.project,
        user=server.user,
        held=held_at_source.wanted,
        generation=1,
        shared=chosen.shared,
        kept=kept,
        needs=server.needs,
        created_at_s=now_s,
        updated_at_s=now_s,
    )
    after = msgspec.structs.replace(
        after,
        held=snapshot.held,
        generation=snapshot.generation,
        migration=id,
        kept=chosen.kept,
        conflict=None,
        needs=chosen.needs,
        state_before=server.state,
        fault=None,
    )
    run = make_run(
        context,
        after,
        saga,
        snapshot,
        source=server.place,
        dest=chosen.place,
        migration=migration,
        alternates=tuple(
            make_destination(view, after, other, others, shared) for other in placement.alternates
        ),
        runs=server.state != "stopped",
    )
    commands = (ReplaceAllocations((claim, held_at_source)),)
    changed = (migration, counter)
    return record_run(view, context, after, run, server.place.cell, now_s, changed=changed, commands=commands)


def _split(view: View, held: Held, place: Place) -> tuple[Held, Held]:
    """What is held on hosts, and what on providers that share with the server's host from outside its
    tree."""
    lenders = view.rows_with_trait(SHARES_VIA_AGGREGATE)

    def is_shared(provider: ProviderId) -> bool:
        record = view.providers[provider]
        return record.row in lenders and record.root.id != place.id

    shared = tuple(part for part in held if is_shared(part[0]))
    return minus(held, shared), shared


def _full_pool(view: View, request: ScheduleRequest, shared: Held, now_s: int) -> Rejection | None:
    """What the ledger says of the pools that the server uses, if they have too little for what it asks."""
    wanted = _amounts(request.ask)
    for provider, amounts in shared:
        context = tuple((name, wanted[name]) for name, _ in amounts if name in wanted)
        claim = request.claim(request.members[0], ((provider, context),), UNCHECKED)
        verdict = decide(view, ReplaceAllocations((claim,)), now_s) if context else []
        if isinstance(verdict, Rejection):
            return verdict
    return None


def _amounts(ask: CandidatesRequest) -> dict[str, int]:
    """What is asked for in all, by resource class."""
    total: dict[str, int] = {}
    for group in ask.groups:
        for name, amount in group.resources:
            total[name] = total.get(name, 0) + amount
    return total
