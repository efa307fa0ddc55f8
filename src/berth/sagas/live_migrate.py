"""Live migration: move a running server to another host without stopping it. It can be aborted until it is
over.

ACTIVE --(claim, prepare, live migrate, receive, clean up at the source, release)--> ACTIVE
any failure before it is received, or an abort: undone step by step, back to where it was
"""

from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.rejections import (
    MigrationNotAbortable,
    MigrationNotFound,
    Rejection,
    ServerNotFound,
)
from berth.model.saga_runs import Outbox
from berth.model.servers import Migration, Server
from berth.sagas.move import find_movable, propose_move
from berth.sagas.proposals import Context
from berth.sagas.saga import (
    AS_BEFORE,
    CLAIM_MOVE,
    PREPARE,
    RECEIVE,
    RELEASE_MIGRATION,
    Outcome,
    Saga,
    Step,
    arrive,
    return_to_source,
    states,
)
from berth.view import View

SAGA = Saga(
    name="live_migrate",
    action="live-migration",
    task="migrating",
    starts_in=states("active"),
    steps=(
        CLAIM_MOVE,
        PREPARE,
        Step(
            "live migrate",
            at="source",
            do="live_migrate",
            undo="resume",
            on_failure="undo",
        ),
        RECEIVE,
        Step("clean up", at="source", do="destroy", on_failure="skip"),
        RELEASE_MIGRATION,
    ),
    done=Outcome(state="active", on_hosts=("dest",), holds="dest", migration="completed"),
    failed=Outcome(state=AS_BEFORE, on_hosts=("source",), holds="source"),
    on_done=arrive,
    on_failed=return_to_source,
    requested_by="`os-migrateLive`",
    migration_meanwhile="migrating",
)


def propose(view: View, now_s: int, context: Context, id: str, host: str | None = None) -> Enact | Rejection:
    """``host``: the only one considered."""
    server = find_movable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    return propose_move(view, now_s, context, SAGA, "live-migration", server, server, host=host)


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
