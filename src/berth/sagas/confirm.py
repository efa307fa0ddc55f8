"""Confirm: a resized or migrated server stays where it is; its migration releases the source.

VERIFY_RESIZE --(check, clean up at the source, release)--> what it was before the resize
a changed allocation or a failing host: VERIFY_RESIZE still; the user may confirm again
"""

from dataclasses import replace

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import Rejection, RevertBegun, ServerStateWrong
from berth.model.servers import Migration, Server
from berth.sagas.conflicts import ServerHoldings, adopt_holdings, adopt_migration_holdings, find_holdings
from berth.sagas.endings import arrive, keep
from berth.sagas.proposals import Context, find_startable, start_run
from berth.sagas.saga import AS_BEFORE, CHECK, RELEASE_MIGRATION, Outcome, Saga, Step, states
from berth.view import View

SAGA = Saga(
    name="confirm",
    action="confirmResize",
    task="resize_confirming",
    starts_in=states("resized", "error"),
    steps=(
        replace(CHECK, migration_stopped_as="finished"),
        Step("clean up", at="source", do="destroy"),
        RELEASE_MIGRATION,
    ),
    done=Outcome(state=AS_BEFORE, on_hosts=("dest",), holds="dest", migration="confirmed"),
    failed=Outcome(
        state="resized",
        on_hosts=("source", "dest"),
        holds="dest, migration source",
        migration="confirming",
    ),
    on_done=arrive,
    on_failed=keep,
    requested_by="`confirmResize`",
    migration_meanwhile="confirming",
)


def propose(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    found = find_resized(view, id, SAGA)
    if isinstance(found, Rejection):
        return found
    before, migration = found
    if migration.status not in ("finished", "confirming"):
        return RevertBegun(id)
    # A conflict is refused here already, where it can be told: the conductor would find the same.
    holdings = find_holdings(
        view, before, context.rules, SAGA.action, now_s, migration=migration, released=SAGA.released
    )
    if not isinstance(holdings, ServerHoldings):
        return holdings
    server = adopt_holdings(before, holdings)
    if not server.held:
        # Nothing is written for the server here. What it should hold is what the doctor claims again.
        server = msgspec.structs.replace(server, held=before.held, kept=before.kept)
    return start_run(
        view,
        now_s,
        context,
        SAGA,
        server,
        source=migration.source,
        dest=server.place,
        migration=adopt_migration_holdings(migration, holdings),
        runs=server.state_before != "stopped",
    )


def find_resized(view: View, id: str, saga: Saga) -> tuple[Server, Migration] | Rejection:
    """A server that waits for its resize to be confirmed or reverted, and its migration."""
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    if migration is None:
        return ServerStateWrong(id, saga.action, server.state, ("resized",))
    return server, migration
