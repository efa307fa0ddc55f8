"""Confirm: a resized or migrated server stays where it is; its migration releases the source.

VERIFY_RESIZE --(check, clean up at the source, release)--> what it was before the resize
a changed allocation or a failing host: VERIFY_RESIZE still; the user may confirm again
"""

from dataclasses import replace

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import Rejection, RevertBegun
from berth.model.servers import Migration
from berth.sagas.conflicts import adopt_holdings, adopt_migration_holdings
from berth.sagas.proposals import Context, Resized, find_resized, settle_resize
from berth.sagas.saga import AS_BEFORE, CHECK, RELEASE_MIGRATION, Outcome, Saga, Step, arrive, keep, states
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
    found = find_resized(view, now_s, context, id, SAGA, _refuse_reverted)
    if not isinstance(found, Resized):
        return found
    before, migration, holdings = found
    server = adopt_holdings(before, holdings)
    if not server.held:
        # Nothing is written for the server here. What it should hold is what the doctor claims again.
        server = msgspec.structs.replace(server, held=before.held, kept=before.kept)
    migration = adopt_migration_holdings(migration, holdings)
    return settle_resize(view, now_s, context, SAGA, server, migration)


def _refuse_reverted(migration: Migration) -> RevertBegun | None:
    return None if migration.status in ("finished", "confirming") else RevertBegun(migration.server)
