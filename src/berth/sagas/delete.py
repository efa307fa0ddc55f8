"""Delete: destroy the server on every host that may have it, and release everything, its migration's part
too.

any state --(check, destroy, release)--> gone
a changed allocation: refused, unchanged; a host that cannot destroy it: ERROR, still holding
"""

from dataclasses import replace

import msgspec

from berth.model.commands import DeleteAllocations, Enact, LedgerCommand
from berth.model.ids import ConsumerId
from berth.model.rejections import Rejection
from berth.model.saga_runs import SagaRun
from berth.model.servers import Migration, Server
from berth.sagas.conflicts import ServerHoldings, adopt_holdings, adopt_migration_holdings, find_holdings
from berth.sagas.proposals import Context, find_startable, remove_server, start_run
from berth.sagas.saga import CHECK, DESTROY, GONE, RELEASE, UNCHANGED, Outcome, Saga, Step, keep, states, stay
from berth.view import View


def stop_deleting(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server stays where it was; a resize still waits to be confirmed or reverted."""
    return stay(server, run, None) if migration is None else keep(server, run, migration)


SAGA = Saga(
    name="delete",
    action="delete",
    task="deleting",
    starts_in=states("active", "stopped", "resized", "shelved", "shelved_offloaded", "error"),
    steps=(
        replace(CHECK, stopped_as=UNCHANGED),
        DESTROY,
        Step("destroy at the source", at="source", do="destroy", skip_if_down=True),
        RELEASE,
    ),
    done=Outcome(state=GONE, on_hosts=(), holds="nothing"),
    failed=Outcome(state="error", holds="dest"),
    on_failed=stop_deleting,
    requested_by="`DELETE /servers/{id}`, `forceDelete`",
)


def propose(
    view: View, now_s: int, context: Context, id: str, *, is_forced: bool = False
) -> Enact | Rejection:
    """``is_forced``: whatever others have changed meanwhile."""
    server = find_startable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    holdings = find_holdings(
        view,
        server,
        context.rules,
        SAGA.action,
        now_s,
        migration=migration,
        released=SAGA.released,
        is_forced=is_forced,
    )
    if not isinstance(holdings, ServerHoldings):
        return holdings
    if server.place is None and migration is None:
        # No host has it, and so no cell need be told.
        end = remove_server(view, server)
        held: tuple[LedgerCommand, ...] = (DeleteAllocations(ConsumerId(id)),) if holdings.held else ()
        return Enact(end.changes, (*held, *end.commands))
    source = None
    if migration is not None:
        migration = adopt_migration_holdings(migration, holdings)
        source = None if migration.source == server.place else migration.source
    shown = msgspec.structs.replace(adopt_holdings(server, holdings), fault=None)
    return start_run(
        view,
        now_s,
        context,
        SAGA,
        shown,
        source=source,
        dest=server.place,
        migration=migration,
        is_forced=is_forced,
    )
