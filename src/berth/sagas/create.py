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
from berth.sagas.proposals import Context, action_of, busy, order
from berth.sagas.requests import asked as needed_by
from berth.sagas.requests import place_of, schedule_request, way
from berth.scheduler.plan import plan
from berth.view import View

NAME = "create"


def begin(
    view: View,
    now_s: int,
    asked: Context,
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
    wanted = max(at_least, room_for(view, asked.quotas, project, each, len(servers)))
    servers = servers[:wanted]
    refused = beyond(view, asked.quotas, project, {name: at_least * amount for name, amount in each.items()})
    if refused is not None:
        return refused
    needed = needed_by(first)
    if isinstance(needed, Rejection):
        return needed
    request = schedule_request(
        first,
        needed,
        members=tuple(server.id for server in servers),
        at_least=at_least,
        host=host,
        alternates=asked.alternates,
    )
    if is_forced:
        hints = msgspec.structs.replace(request.hints, host_names=(), forced_host=host)
        request = msgspec.structs.replace(request, hints=hints)
    planned = plan(view, request, asked.scheduler, asked.ids.rng, now_s)
    if isinstance(planned, ConsumerGenerationConflict):
        return ServerHoldsAlready(planned.consumer)
    if isinstance(planned, Rejection):
        return planned
    if is_forced and host is not None and not place_of(view, planned.placements[0].chosen.host).cell:
        return HostUnknown(host)
    by_id = {server.id: server for server in servers}
    changes: list[RecordChanged] = []
    for placement in planned.placements:
        changes += placed(view, now_s, asked, by_id[placement.member], placement)
    return Enact(tuple(changes), (ReplaceAllocations(planned.claims),), quotas=asked.quotas)


def placed(
    view: View, now_s: int, asked: Context, server: Server, placement: Placement
) -> list[RecordChanged]:
    """The records of a server that has been given a place: itself, the order to build it, and the action."""
    view.steps.take(30 + 10 * len(placement.alternates))
    chosen = way(view, server, placement.chosen)
    books = ClaimSnapshot(chosen.held, 1)
    alternates = tuple(way(view, server, other) for other in placement.alternates)
    server = msgspec.structs.replace(
        server,
        place=chosen.place,
        held=books.held,
        generation=books.generation,
        needs=chosen.needs,
        created_at_s=now_s,
    )
    work = order(asked, server, NAME, books, dest=chosen.place, alternates=alternates)
    outbox = Outbox(id=work.id, cell=chosen.place.cell, work=work)
    action = action_of(asked, work, now_s)
    return [RecordChanged(None, record) for record in (busy(server, work, now_s), outbox, action)]


def unplaced(view: View, now_s: int, asked: Context, servers: tuple[Server, ...], why: str) -> Enact:
    """Servers for which there was no place: they are there to say so, and hold nothing."""
    changes = []
    for server in servers:
        fault = Fault(why, now_s)
        failed = msgspec.structs.replace(
            server, state="error", fault=fault, created_at_s=now_s, updated_at_s=now_s
        )
        event = ActionEvent("schedule", now_s, now_s, "Error", None, why)
        action = Action(
            id=asked.ids.uuid(),
            server=server.id,
            name=NAME,
            request_id=asked.request_id,
            project=asked.project,
            user=asked.user,
            started_at_s=now_s,
            updated_at_s=now_s,
            message=why,
            events=(event,),
        )
        changes += [RecordChanged(None, failed), RecordChanged(None, action)]
    return Enact(tuple(changes), quotas=asked.quotas)
