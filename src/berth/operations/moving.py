"""The first half of every move: the migration takes over what the server has, and the server claims a new
place, in one change (DESIGN: a move is one command)."""

import msgspec

from berth.model.commands import Claim, Enact, ReplaceAllocations
from berth.model.ids import ConsumerId
from berth.model.orders import Book
from berth.model.rejections import ConsumerGenerationConflict, Rejection, ServerChangedByOthers
from berth.model.scheduling import ANY_CELL
from berth.model.servers import Migration, MigrationKind, Server
from berth.operations.asking import MIGRATION, hinted, schedule_request, way
from berth.operations.asking import asked as needed_by
from berth.operations.beginning import Asked, begun, counted, order
from berth.operations.conflicts import plus, standing, with_kept
from berth.operations.steps import BY_NAME
from berth.scheduler.plan import plan
from berth.view import View


def begin_move(
    view: View,
    now_s: int,
    asked: Asked,
    server: Server,
    operation: str,
    kind: MigrationKind,
    after: Server,
    *,
    host: str | None = None,
    ignore_source: bool = True,
) -> Enact | Rejection:
    """Move a server that may be moved. ``after`` is the record as it shall be while it is under way: with
    another flavor, in a resize. ``host`` is the only one considered."""
    assert server.place is not None, "one that may be moved is somewhere"
    action = BY_NAME[operation].action
    stands = standing(view, server, asked.policy, action)
    if isinstance(stands, Rejection):
        return stands
    if not stands.own:
        # There is nothing that the migration could hold, and nothing to give back to the server later.
        return ServerChangedByOthers(server.id, action, stands.generation, server.generation)
    needed = needed_by(after)
    if isinstance(needed, Rejection):
        return needed
    id = ConsumerId(asked.ids.uuid())
    migrations = Claim(id, stands.own, server.project, server.user, None, MIGRATION)
    request = schedule_request(
        hinted(view, after),
        needed,
        host=host,
        cell=server.place.cell or ANY_CELL,
        ignore_hosts=frozenset((server.place.id,)) if ignore_source else frozenset(),
        alternates=asked.alternates if host is None else 0,
        generation=stands.generation,
        beside=(migrations,),
    )
    planned = plan(view, request, asked.scheduler, asked.ids.rng, now_s)
    if isinstance(planned, ConsumerGenerationConflict):
        return ServerChangedByOthers(server.id, action, planned.current, server.generation)
    if isinstance(planned, Rejection):
        return planned
    placement = planned.placements[0]
    chosen = way(view, after, placement.way)
    books = Book(plus((chosen.held, stands.kept)), (stands.generation or 0) + 1)
    claim = request.claim(ConsumerId(server.id), books.held, stands.generation)
    counter = counted(view, "migration")
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
        held=stands.own,
        generation=1,
        needs=server.needs,
        created_at_s=now_s,
        updated_at_s=now_s,
    )
    after = msgspec.structs.replace(
        after,
        held=books.held,
        generation=books.generation,
        migration=id,
        kept=stands.kept,
        needs=chosen.needs,
        state_before=server.state,
        fault=None,
    )
    work = order(
        asked,
        after,
        operation,
        books,
        source=server.place,
        dest=chosen.place,
        migration=migration,
        alternates=tuple(with_kept(way(view, after, other), stands.kept) for other in placement.alternates),
        runs=server.state != "stopped",
    )
    commands = (ReplaceAllocations((claim, migrations)),)
    changed = (migration, counter)
    return begun(view, asked, after, work, server.place.cell, now_s, changed=changed, commands=commands)
