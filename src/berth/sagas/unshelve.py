"""Unshelve: choose a place again, and build the server there from what was kept of it."""

import msgspec

from berth.model.commands import Enact, ReplaceAllocations
from berth.model.ids import ConsumerId
from berth.model.rejections import Rejection
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import Server
from berth.sagas import in_place
from berth.sagas.conflicts import ServerHoldings, find_holdings
from berth.sagas.proposals import Context, find_startable, make_run, record_run
from berth.sagas.requests import ask_resources as needed_by
from berth.sagas.requests import drop_stale_hints, kept_needs, make_destination, make_request
from berth.sagas.saga import BY_NAME
from berth.scheduler.plan import plan
from berth.view import View

OPERATION = BY_NAME["unshelve"]


def propose(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    *,
    zone: str | msgspec.UnsetType | None = msgspec.UNSET,
    host: str | None = None,
) -> Enact | Rejection:
    """``zone`` is where it is bound to from now on; None: to none."""
    found = view.records.get(Server, id)
    if found is not None and found.state == "shelved":
        return in_place.propose(view, now_s, context, id, "unshelve_here")
    server = find_startable(view, id, OPERATION)
    if isinstance(server, Rejection):
        return server
    holdings = find_holdings(view, server, context.rules, OPERATION.action, now_s)
    if not isinstance(holdings, ServerHoldings):
        return holdings
    others = kept_needs(view, holdings.kept)
    if not isinstance(zone, msgspec.UnsetType):
        server = msgspec.structs.replace(server, zone=zone)
    needed = needed_by(server, others)
    if isinstance(needed, Rejection):
        return needed
    request = make_request(
        drop_stale_hints(view, server),
        needed,
        host=host,
        alternates=context.alternates if host is None else 0,
        generation=holdings.generation,
    )
    planned = plan(view, request, context.scheduler, context.ids.rng, now_s)
    if isinstance(planned, Rejection):
        return planned
    placement = planned.placements[0]
    chosen = make_destination(view, server, placement.chosen, others)
    snapshot = ClaimSnapshot(chosen.held, (holdings.generation or 0) + 1)
    after = msgspec.structs.replace(
        server,
        place=chosen.place,
        held=snapshot.held,
        generation=snapshot.generation,
        kept=chosen.kept,
        conflict=None,
        needs=chosen.needs,
        state_before=server.state,
        fault=None,
    )
    alternates = tuple(make_destination(view, server, other, others) for other in placement.alternates)
    run = make_run(context, after, OPERATION.name, snapshot, dest=chosen.place, alternates=alternates)
    claim = request.claim(ConsumerId(id), snapshot.held, holdings.generation)
    return record_run(
        view, context, after, run, chosen.place.cell, now_s, commands=(ReplaceAllocations((claim,)),)
    )
