"""Unshelve: choose a place again, and build the server there from what was kept of it."""

import msgspec

from berth.model.commands import Enact, ReplaceAllocations
from berth.model.ids import ConsumerId
from berth.model.rejections import Rejection
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import Server
from berth.sagas import in_place
from berth.sagas.conflicts import ServerHoldings, standing
from berth.sagas.proposals import Context, begun, order, startable
from berth.sagas.requests import asked as needed_by
from berth.sagas.requests import hinted, kept_needs, schedule_request, way
from berth.sagas.saga import BY_NAME
from berth.scheduler.plan import plan
from berth.view import View

OPERATION = BY_NAME["unshelve"]


def begin(
    view: View,
    now_s: int,
    asked: Context,
    id: str,
    *,
    zone: str | msgspec.UnsetType | None = msgspec.UNSET,
    host: str | None = None,
) -> Enact | Rejection:
    """``zone`` is where it is bound to from now on; None: to none."""
    found = view.records.get(Server, id)
    if found is not None and found.state == "shelved":
        return in_place.begin(view, now_s, asked, id, "unshelve_here")
    server = startable(view, id, OPERATION)
    if isinstance(server, Rejection):
        return server
    stands = standing(view, server, asked.rules, OPERATION.action, now_s)
    if not isinstance(stands, ServerHoldings):
        return stands
    others = kept_needs(view, stands.kept)
    if not isinstance(zone, msgspec.UnsetType):
        server = msgspec.structs.replace(server, zone=zone)
    needed = needed_by(server, others)
    if isinstance(needed, Rejection):
        return needed
    request = schedule_request(
        hinted(view, server),
        needed,
        host=host,
        alternates=asked.alternates if host is None else 0,
        generation=stands.generation,
    )
    planned = plan(view, request, asked.scheduler, asked.ids.rng, now_s)
    if isinstance(planned, Rejection):
        return planned
    placement = planned.placements[0]
    chosen = way(view, server, placement.chosen, others)
    books = ClaimSnapshot(chosen.held, (stands.generation or 0) + 1)
    after = msgspec.structs.replace(
        server,
        place=chosen.place,
        held=books.held,
        generation=books.generation,
        kept=chosen.kept,
        conflict=None,
        needs=chosen.needs,
        state_before=server.state,
        fault=None,
    )
    alternates = tuple(way(view, server, other, others) for other in placement.alternates)
    work = order(asked, after, OPERATION.name, books, dest=chosen.place, alternates=alternates)
    claim = request.claim(ConsumerId(id), books.held, stands.generation)
    return begun(view, asked, after, work, chosen.place.cell, now_s, commands=(ReplaceAllocations((claim,)),))
