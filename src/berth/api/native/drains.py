"""/berth/v1/hosts/{host}/drain: have all servers leave a host, one after the other.

The plan is made from the view that the drain begins in, with the proposals that will make the moves. A dry
run answers with the plan alone.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.kernel.rejections import nova_problem
from berth.api.kernel.times import show_time
from berth.api.native.allocations import name_of_consumer
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, respond
from berth.api.native.fields import LIMIT_DEFAULT, KeyMarker, Limit, NativeBody, Next, Text, Time, Uuid
from berth.api.native.hosts import find_host_id
from berth.drains.plan import How, find_awaited, find_how, find_obstacle, plan_drain
from berth.drains.reconciler import is_unconfirmed
from berth.ledger import remove_record, replace_record
from berth.model.commands import Enact, SetHostStatus
from berth.model.drains import MOVES_MAX, Drain, DrainMove
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import HEALTHY
from berth.model.rejections import DrainNotFound, HostTooFull, ProviderNotFound, Rejection
from berth.model.servers import Migration, Server
from berth.view import View

STAYS_MAX: Final = 100
_STEPS_PER_SERVER: Final = 5
_REASON: Final = "drain"

# -- answers ------------------------------------------------------------------------------------

MoveState = Literal["planned", "moving", "waiting", "blocked"]


class DrainMoveDetail(msgspec.Struct):
    """A server that has not left yet. ``waiting``: it is busy with something else, or its last attempt has
    failed and the next comes at ``again_at``, or there is no place for it now. ``blocked``: somebody must do
    something; in a dry run also: there is no place for it. ``text`` says what."""

    server: Uuid
    name: str
    state: MoveState
    how: Annotated[
        How | None,
        Meta(
            description="`live`: migrated while it runs. `cold`: migrated while it is stopped, and "
            "confirmed. `offload`: offloaded, as it is shelved."
        ),
    ]
    destination: Annotated[str | None, Meta(description="The host that is tried first.")]
    attempts: int = 0
    again_at: Time | None = None
    text: str | None = None


class StayDetail(msgspec.Struct):
    """A consumer that holds something on the host and is not moved by the drain."""

    consumer: Uuid
    name: str | None
    text: str


class DrainDetail(msgspec.Struct, kw_only=True):
    """``moved`` is how many servers have left; ``moves`` are the others, in the order in which they are to.
    ``done``: no server is left there. Times are null in a dry run."""

    host_uuid: Uuid
    host_name: str
    state: Literal["planned", "draining", "done"]
    moved: int
    moves: list[DrainMoveDetail]
    stays: list[StayDetail]
    stays_total: int
    user_id: str
    request_id: str
    began_at: Time | None = None
    updated_at: Time | None = None


class OneDrain(msgspec.Struct):
    drain: DrainDetail


class Drains(msgspec.Struct):
    """A page of drains, in the order of the uuids of their hosts."""

    drains: list[DrainDetail]
    next: Next = None


# -- bodies and queries -------------------------------------------------------------------------


class NewDrain(NativeBody, frozen=True, kw_only=True):
    dry_run: Annotated[bool, Meta(description="Answer with the plan, and change nothing.")] = False
    reason: Annotated[
        Text | None,
        Meta(
            description="Why the host is disabled, for those who look at it. Without it the reason of a host "
            "that is disabled already stays."
        ),
    ] = None


class StartDrain(NativeBody, frozen=True, kw_only=True):
    drain: NewDrain = NewDrain()


class DrainsQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


# -- handlers -----------------------------------------------------------------------------------


async def start_drain(call: NativeCall) -> Response:
    asked: NewDrain = call.body.drain
    named = call.params[0]

    def dry_run(view: View) -> Response | Rejection:
        drain = _plan(view, call, call.now_s)
        if isinstance(drain, Rejection):
            return drain
        return respond(OneDrain(_describe(view, drain, is_begun=False)))

    if asked.dry_run:
        return await call.read(dry_run)

    def propose(view: View, now_s: int) -> Enact | Rejection:
        drain = _plan(view, call, now_s)
        if isinstance(drain, Rejection):
            return drain
        id = ProviderId(drain.id)
        before = view.hosts.get(id, HEALTHY)
        reason = asked.reason or (before.reason if before.disabled else None) or _REASON
        status = msgspec.structs.replace(before, disabled=True, reason=reason)
        return Enact((replace_record(view, drain),), (SetHostStatus(id, status),))

    return await call.submit(propose, lambda view: respond(_find(view, call, named), 202))


def _plan(view: View, call: NativeCall, now_s: int) -> Drain | Rejection:
    """A drain of the host as it would begin, or begin anew."""
    id = _find_host(view, call.params[0])
    if isinstance(id, Rejection):
        return id
    name = view.providers[id].name
    count = view.records.count_found(Server, "host", id)
    if count > MOVES_MAX:
        return HostTooFull(name, count, MOVES_MAX)
    plan = plan_drain(view, now_s, call.context(), word_rejection, id)
    before = view.records.get(Drain, id)
    under_way = {move.server: move for move in _list_under_way(view, before)}
    moves = [
        under_way.pop(move.server)
        if move.server in under_way
        else DrainMove(server=move.server, dest=move.dest, text=None if move.how is None else move.obstacle)
        for move in plan
    ]
    return Drain(
        id=id,
        name=name,
        project=call.project,
        user=call.user,
        request_id=call.request.request_id,
        moves=(*moves, *under_way.values()),
        moved=0 if before is None else before.moved,
        left=() if before is None else before.left,
        created_at_s=now_s if before is None else before.created_at_s,
        updated_at_s=now_s,
    )


def _list_under_way(view: View, drain: Drain | None) -> Iterator[DrainMove]:
    """What is being moved already, as if no attempt had failed."""
    for move in () if drain is None else drain.moves:
        server = view.records.get(Server, move.server)
        if server is not None and (move.run is not None or is_unconfirmed(server, move)):
            yield msgspec.structs.replace(move, attempts=0, again_at_s=0, text=None)


def word_rejection(rejection: Rejection) -> str:
    """What a rejection says to operators."""
    return nova_problem(rejection).text


def show_drain(view: View, call: NativeCall) -> OneDrain:
    return _find(view, call, call.params[0])


def list_drains(view: View, call: NativeCall) -> Drains:
    query: DrainsQuery = call.query
    ids = sorted(drain.id for drain in view.records.all(Drain))
    found, more = take_first(behind(ids, query.marker), query.limit)

    def describe(id: str) -> DrainDetail:
        drain = view.records.get(Drain, id)
        assert drain is not None, "it is among those there are"
        return _describe(view, drain)

    return Drains(*render_keys(call.request, query, found, more, describe))


async def stop_drain(call: NativeCall) -> Response:
    def propose(view: View, _: int) -> Enact | Rejection:
        id = _find_host(view, call.params[0])
        if isinstance(id, Rejection):
            return id
        drain = view.records.get(Drain, id)
        return (
            DrainNotFound(view.providers[id].name) if drain is None else Enact((remove_record(view, drain),))
        )

    return await call.submit(propose, lambda _: Response(204))


def _find_host(view: View, named: str) -> ProviderId | Rejection:
    id = find_host_id(view, named)
    if isinstance(id, Rejection):
        return id
    return id if id in view.providers else ProviderNotFound(id)


def _find(view: View, call: NativeCall, named: str) -> OneDrain:
    id = call.accept(_find_host(view, named))
    drain = view.records.get(Drain, id)
    if drain is None:
        raise call.problem_of(DrainNotFound(view.providers[id].name))
    return OneDrain(_describe(view, drain))


# -- what is shown ------------------------------------------------------------------------------


def _describe(view: View, drain: Drain, *, is_begun: bool = True) -> DrainDetail:
    view.steps.take(_STEPS_PER_SERVER * len(drain.moves))
    stays = list(_list_staying(view, drain))
    record = view.providers.get(ProviderId(drain.id))
    return DrainDetail(
        host_uuid=drain.id,
        host_name=drain.name if record is None else record.name,
        state=drain.state if is_begun else "planned",
        moved=drain.moved,
        moves=[_describe_move(view, move, is_begun=is_begun) for move in drain.moves],
        stays=stays[:STAYS_MAX],
        stays_total=len(stays),
        user_id=drain.user,
        request_id=drain.request_id,
        began_at=show_time(drain.created_at_s) if is_begun else None,
        updated_at=show_time(drain.updated_at_s) if is_begun else None,
    )


def _describe_move(view: View, move: DrainMove, *, is_begun: bool) -> DrainMoveDetail:
    server = view.records.get(Server, move.server)
    if server is None:
        return DrainMoveDetail(move.server, "", "waiting", None, None, text="it was deleted")
    obstacle, awaited = None, find_awaited(view, server)
    if move.run is not None or is_unconfirmed(server, move):
        state: MoveState = "moving"
    elif server.place is not None and (obstacle := find_obstacle(view, server)) is not None:
        state = "blocked"
    elif awaited is not None and (is_begun or awaited.run is not None):
        state, obstacle = "waiting", _say_what_it_waits_for(server, awaited)
    elif move.text is not None:
        # What finds no place is tried all the same, once the drain has begun.
        state = "waiting" if is_begun else "blocked"
    else:
        state = "planned"
    return DrainMoveDetail(
        move.server,
        server.name,
        state,
        find_how(server),
        move.dest,
        move.attempts,
        show_time(move.again_at_s) if move.again_at_s else None,
        obstacle or move.text,
    )


def _say_what_it_waits_for(server: Server, awaited: Server) -> str:
    if awaited.id == server.id:
        return f"it is busy: {server.task}"
    why = "must be offloaded first" if awaited.run is None else f"is busy: {awaited.task}"
    return f"it leaves together with {awaited.name}, which {why}"


def _list_staying(view: View, drain: Drain) -> Iterator[StayDetail]:
    record = view.providers.get(ProviderId(drain.id))
    moving = {move.server for move in drain.moves}
    holders = sorted({id for part in (() if record is None else record.tree()) for id in part.consumers})
    view.steps.take(len(holders))
    for id in holders:
        if id in moving:
            continue
        text = _say_why_it_stays(view, drain, id)
        if text is not None:
            yield StayDetail(id, name_of_consumer(view, id), text)


def _say_why_it_stays(view: View, drain: Drain, id: ConsumerId) -> str | None:
    migration = view.records.get(Migration, id)
    if migration is not None:
        is_own = any(move.migration == id or move.server == migration.server for move in drain.moves)
        if is_own:
            return None
        if migration.type == "evacuation":
            return f"server {migration.server} was evacuated: it is released when the host is up again"
        way = f"confirm or revert the {migration.type} of server {migration.server}"
        return f"it holds what the server would return to: {way}"
    if view.records.get(Server, id) is not None:
        return None
    return "it is no server of this region: whoever made it must move it"


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/drains",
        answer_from(list_drains),
        policy="berth:drains:list",
        name="list_drains",
        query=DrainsQuery,
        answer=Drains,
        summary="List drains",
        description="Hosts that their servers leave, or have left, with what is under way and what stands "
        "against it.",
    ),
    NativeRoute(
        "POST",
        "/hosts/{host}/drain",
        start_drain,
        policy="berth:drains:create",
        name="start_drain",
        body=StartDrain,
        example={"drain": {"dry_run": True}},
        answer=OneDrain,
        status=202,
        summary="Drain a host",
        description="Disables the host and has its servers leave one after the other: running ones are "
        "migrated live, stopped ones are migrated and confirmed, shelved ones are offloaded. All moves are "
        "planned together under all policies; members of a group that must share a host move together, to "
        "one host. With `dry_run` the plan is answered with 200 and nothing changes. "
        "Locked servers stay until they are unlocked. Asked for again, it plans anew and tries at "
        "once what has failed. Enabling the host ends the drain.",
    ),
    NativeRoute(
        "GET",
        "/hosts/{host}/drain",
        answer_from(show_drain),
        policy="berth:drains:list",
        name="show_drain",
        answer=OneDrain,
        summary="Show the drain of a host",
        description="How many servers have left, and of the others what is planned, under way or stands "
        "against it.",
    ),
    NativeRoute(
        "DELETE",
        "/hosts/{host}/drain",
        stop_drain,
        policy="berth:drains:delete",
        name="stop_drain",
        status=204,
        summary="Stop the drain of a host",
        description="The move that is under way goes on, no other begins. The host stays disabled.",
    ),
)
