"""Create: choose hosts, claim, and have the servers built; all of them, as many as are wanted at least, or
none.

(no record) --(claim, build at the destination)--> ACTIVE
a failed build: the claim moves to the next alternate; without one: ERROR, holding nothing
"""

import msgspec

from berth.ledger.quotas import count_room, find_exceeded
from berth.model.commands import Enact, ReplaceAllocations
from berth.model.events import RecordChanged
from berth.model.ids import ConsumerId
from berth.model.quotas import amounts_of
from berth.model.rejections import ConsumerGenerationConflict, HostUnknown, Rejection, ServerHoldsAlready
from berth.model.scheduling import Placement, ScheduleRequest
from berth.model.servers import Action, ActionEvent, Fault, Server
from berth.sagas.hosts import place_of
from berth.sagas.proposals import Context, start_at_place
from berth.sagas.requests import ask_resources, flavor_sizes, make_request
from berth.sagas.saga import BUILD, CLAIM_NEW, Outcome, Saga, arrive, leave, states
from berth.scheduler.flavors import wrong_guest
from berth.scheduler.plan import plan
from berth.view import View

SAGA = Saga(
    name="create",
    action="create",
    task="spawning",
    starts_in=states(),
    steps=(CLAIM_NEW, BUILD),
    done=Outcome(state="active", on_hosts=("dest",), holds="dest"),
    failed=Outcome(state="error", on_hosts=(), holds="nothing"),
    on_done=arrive,
    on_failed=leave,
    requested_by="`POST /servers`",
    unplaced="error",
)


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
    wanted = max(at_least, count_room(view, context.quotas, project, each, len(servers)))
    servers = servers[:wanted]
    refused = find_exceeded(
        view, context.quotas, project, {name: at_least * amount for name, amount in each.items()}
    )
    if refused is not None:
        return refused
    wrong = wrong_guest(flavor_sizes(first.flavor), first.image_properties)
    if wrong is not None:
        return wrong
    request = ask_places(context, servers, at_least, host=host, is_forced=is_forced)
    if isinstance(request, Rejection):
        return request
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
        changes += start_build(view, now_s, context, by_id[placement.member], placement)
    return Enact(tuple(changes), (ReplaceAllocations(planned.claims),), quotas=context.quotas)


def ask_places(
    context: Context,
    servers: tuple[Server, ...],
    at_least: int,
    *,
    host: str | None = None,
    is_forced: bool = False,
) -> ScheduleRequest | Rejection:
    """What new servers ask of the scheduler; ``host`` and ``is_forced`` as in ``propose``."""
    needed = ask_resources(servers[0], context.scheduler.devices)
    if isinstance(needed, Rejection):
        return needed
    request = make_request(
        servers[0],
        needed,
        members=tuple(server.id for server in servers),
        at_least=at_least,
        host=host,
        alternates=context.alternates,
    )
    if not is_forced:
        return request
    hints = msgspec.structs.replace(request.hints, host_names=(), forced_host=host)
    return msgspec.structs.replace(request, hints=hints)


def start_build(
    view: View, now_s: int, context: Context, server: Server, placement: Placement
) -> tuple[RecordChanged, ...]:
    """The records of a new server that has been given a place: itself, the run that builds it, and the
    action."""
    view.steps.take(30 + 10 * len(placement.alternates))
    new = msgspec.structs.replace(server, created_at_s=now_s)
    return start_at_place(view, now_s, context, SAGA, new, placement).changes


def record_unplaced(
    view: View,
    now_s: int,
    context: Context,
    servers: tuple[Server, ...],
    why: str,
    details: str | None = None,
    explained: str | msgspec.UnsetType = msgspec.UNSET,
) -> Enact:
    """Servers for which there was no place: they are there to say so, and hold nothing."""
    changes = []
    fault = Fault(why, now_s, details=details, explained=explained)
    for server in servers:
        failed = msgspec.structs.replace(
            server, state="error", fault=fault, created_at_s=now_s, updated_at_s=now_s
        )
        event = ActionEvent("schedule", now_s, now_s, "Error", None, why)
        action = Action(
            id=context.ids.uuid(),
            server=server.id,
            name=SAGA.action,
            request_id=context.request_id,
            project=context.project,
            user=context.user,
            started_at_s=now_s,
            updated_at_s=now_s,
            message=why,
            events=(event,),
            state="failed",
        )
        changes += [RecordChanged(None, failed), RecordChanged(None, action)]
    return Enact(tuple(changes), quotas=context.quotas)
