"""Live migration: to a new place without stopping. Until it is over it can be aborted."""

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import (
    HostIsDown,
    MigrationNotAbortable,
    MigrationNotFound,
    Rejection,
    ServerNotFound,
)
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Migration, Server
from berth.sagas.hosts import is_down
from berth.sagas.move import propose_move
from berth.sagas.proposals import Context, find_startable, replace_record
from berth.sagas.saga import BY_NAME
from berth.view import View

OPERATION = BY_NAME["live_migrate"]


def propose(view: View, now_s: int, context: Context, id: str, host: str | None = None) -> Enact | Rejection:
    server = find_startable(view, id, OPERATION)
    if isinstance(server, Rejection):
        return server
    assert server.place is not None, "one that is active is somewhere"
    if is_down(view, server.place):
        return HostIsDown(server.place.name, OPERATION.action)
    return propose_move(view, now_s, context, server, OPERATION.name, "live-migration", server, host=host)


def propose_abort(view: View, id: str, migration_id: str) -> Enact | Rejection:
    """Abort the migration of a server, by uuid or number, if that can still be: a live one that is under
    way."""
    server = view.records.get(Server, id)
    if server is None:
        return ServerNotFound(id)
    for migration in view.records.find(Migration, "server", id):
        if migration_id in (migration.id, str(migration.number)):
            break
    else:
        return MigrationNotFound(migration_id)
    if server.migration != migration.id or migration.type != "live-migration" or server.run is None:
        return MigrationNotAbortable(migration_id, migration.type, migration.status)
    outbox = Outbox(id=f"abort {server.run}", cell=migration.source.cell, abort=server.run)
    return Enact((replace_record(view, outbox),))


def mark_aborted(run: SagaRun) -> SagaRun:
    return msgspec.structs.replace(run, abort=True, version=run.version + 1)
