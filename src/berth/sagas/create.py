"""Create: choose hosts, claim, and have the servers built; all of them, as many as are wanted at least, or
none."""

import msgspec

from berth.ledger.quotas import beyond, room_for
from berth.model.commands import Enact, ReplaceAllocations
from berth.model.events import RecordChanged
from berth.model.ids import ConsumerId
from berth.model.quotas import amounts_of
from berth.model.rejections import ConsumerGenerationConflict, HostUnknown, Rejection, ServerHoldsAlready
from berth.model.saga_runs import ClaimSnapshot, Outbox
from berth.model.scheduling import Placement
from berth.model.servers import Action, ActionEvent, Fault, Server
from berth.sagas.proposals import Context, make_action, make_run, mark_busy
from berth.sagas.requests import ask_resources as needed_by
from berth.sagas.requests import make_destination, make_request, place_of
from berth.scheduler.plan import plan
from berth.view import View

NAME = "create"


def propose(
    view: View,
    now_s: int,
    context: Context,
    servers: tuple[Server, ...],
    at_least: int,
    *,
    host: str | None = None,
    is_forced: bool = False,
) -> Enact | Rejection:
    """Create servers that differ in id and name alone: as many as fit and the project may have, ``at_least``
    so many. ``host`` is the only one considered; with ``is_forced`` no filter is asked about it."""
    taken = [server.id for server in servers if ConsumerId(server.id) in view.consumers]
    if taken:
        return ServerHoldsAlready(taken[0])
    first = servers[0]
    project, each = amounts_of(first)
    wanted = max(at_least, room_for(view, context.quotas, project, each, len(servers)))
    servers = servers[:wanted]
    refused = beyond(
        view, context.quotas, project, {name: at_least * amount for name, amount in each.items()}
    )
    if refused is not None:
        return refused
    needed = needed_by(first)
    if isinstance(needed, Rejection):
        return needed
    request = make_request(
        first,
        needed,
        members=tuple(server.id for server in servers),
        at_least=at_least,
        host=host,
        alternates=context.alternates,
    )
    if is_forced:
        hints = msgspec.structs.replace(request.hints, host_names=(), forced_host=host)
        request = msgspec.structs.replace(request, hints=hints)
    planned = plan(view, request, context.scheduler, context.ids.rng, now_s)
    if isinstance(planned, ConsumerGenerationConflict):
        return ServerHoldsAlready(planned.consumer)
    if isinstance(planned, Rejection):
        return planned
    if is_forced and host is not None and not place_of(view, planned.placements[0].chosen.host).cell:
        return HostUnknown(host)
    by_id = {server.id: server for server in servers}
    changes: list[RecordChanged] = []
    for placement in planned.placements:
        changes += record_placement(view, now_s, context, by_id[placement.member], placement)
    return Enact(tuple(changes), (ReplaceAllocations(planned.claims),), quotas=context.quotas)


def record_placement(
    view: View, now_s: int, context: Context, server: Server, placement: Placement
) -> list[RecordChanged]:
    """The records of a server that has been given a place: itself, the order to build it, and the action."""
    view.steps.take(30 + 10 * len(placement.alternates))
    chosen = make_destination(view, server, placement.chosen)
    snapshot = ClaimSnapshot(chosen.held, 1)
    alternates = tuple(make_destination(view, server, other) for other in placement.alternates)
    server = msgspec.structs.replace(
        server,
        place=chosen.place,
        held=snapshot.held,
        generation=snapshot.generation,
        needs=chosen.needs,
        created_at_s=now_s,
    )
    run = make_run(context, server, NAME, snapshot, dest=chosen.place, alternates=alternates)
    outbox = Outbox(id=run.id, cell=chosen.place.cell, run=run)
    action = make_action(context, run, now_s)
    return [RecordChanged(None, record) for record in (mark_busy(server, run, now_s), outbox, action)]


def record_unplaced(view: View, now_s: int, context: Context, servers: tuple[Server, ...], why: str) -> Enact:
    """Servers for which there was no place: they are there to say so, and hold nothing."""
    changes = []
    for server in servers:
        fault = Fault(why, now_s)
        failed = msgspec.structs.replace(
            server, state="error", fault=fault, created_at_s=now_s, updated_at_s=now_s
        )
        event = ActionEvent("schedule", now_s, now_s, "Error", None, why)
        action = Action(
            id=context.ids.uuid(),
            server=server.id,
            name=NAME,
            request_id=context.request_id,
            project=context.project,
            user=context.user,
            started_at_s=now_s,
            updated_at_s=now_s,
            message=why,
            events=(event,),
        )
        changes += [RecordChanged(None, failed), RecordChanged(None, action)]
    return Enact(tuple(changes), quotas=context.quotas)
