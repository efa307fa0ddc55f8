"""Unshelve: run a shelved server again: where it is, or at a new place, built from what was kept of it.

SHELVED_OFFLOADED --(claim, build at the destination)--> ACTIVE
SHELVED --(start)--> ACTIVE
a failed build: the claim moves to the next alternate; without one: SHELVED_OFFLOADED, holding nothing
"""

import msgspec

from berth.model.commands import Enact, ReplaceAllocations
from berth.model.ids import ConsumerId
from berth.model.rejections import Rejection
from berth.model.servers import Server
from berth.sagas.conflicts import ServerHoldings, find_holdings
from berth.sagas.needs import find_wrong
from berth.sagas.proposals import (
    Context,
    find_startable,
    propose_in_place,
    renew_port_needs,
    start_at_place,
)
from berth.sagas.requests import ask_place, kept_needs
from berth.sagas.saga import BUILD, CLAIM_NEW, Outcome, Saga, Step, arrive, leave, states
from berth.scheduler.plan import plan
from berth.view import View

SAGA = Saga(
    name="unshelve",
    action="unshelve",
    task="unshelving",
    starts_in=states("shelved_offloaded"),
    steps=(CLAIM_NEW, BUILD),
    done=Outcome(state="active", on_hosts=("dest",), holds="dest"),
    failed=Outcome(state="shelved_offloaded", on_hosts=(), holds="nothing"),
    on_done=arrive,
    on_failed=leave,
    requested_by="`unshelve`",
)

SAGA_HERE = Saga(
    name="unshelve_here",
    action="unshelve",
    task="unshelving",
    starts_in=states("shelved"),
    steps=(Step("start", at="dest", do="start"),),
    done=Outcome(state="active", holds="dest"),
    failed=Outcome(state="shelved", holds="dest"),
    requested_by="`unshelve` of a server that is still on its host",
)


def propose(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    *,
    zone: str | msgspec.UnsetType | None = msgspec.UNSET,
    host: str | None = None,
) -> Enact | Rejection:
    """``zone``: the availability zone that it is bound to from now on; None: to none."""
    found = view.records.get(Server, id)
    if found is not None and found.state == "shelved":
        return propose_in_place(view, now_s, context, id, SAGA_HERE)
    server = find_startable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    holdings = find_holdings(view, server, context.rules, SAGA.action, now_s)
    if not isinstance(holdings, ServerHoldings):
        return holdings
    others = kept_needs(view, holdings.kept)
    server = renew_port_needs(server, context)
    wrong = find_wrong(view, server.needs)
    if wrong is not None:
        return wrong
    if not isinstance(zone, msgspec.UnsetType):
        server = msgspec.structs.replace(server, zone=zone)
    request = ask_place(
        view,
        server,
        context.scheduler.devices,
        others,
        host=host,
        alternates=context.alternates,
        generation=holdings.generation,
    )
    if isinstance(request, Rejection):
        return request
    planned = plan(view, request, context.scheduler, context.ids.rng, now_s)
    if isinstance(planned, Rejection):
        return planned
    (placement,) = planned.placements
    claim = request.claim(ConsumerId(id), placement.chosen.wanted, holdings.generation)
    return start_at_place(
        view,
        now_s,
        context,
        SAGA,
        msgspec.structs.replace(server, state_before=server.state),
        placement,
        generation=holdings.generation,
        others=others,
        commands=(ReplaceAllocations((claim,)),),
    )
