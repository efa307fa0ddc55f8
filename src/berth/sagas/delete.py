"""Delete: destroy the server wherever it may be, and let go of everything, its migration's part too."""

import msgspec

from berth.model.commands import ChangeMembers, DeleteAllocations, Enact, LedgerCommand
from berth.model.ids import ConsumerId
from berth.model.rejections import Rejection
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import Action, Migration, Server
from berth.sagas.conflicts import ServerHoldings, adopt_holdings, adopt_migration_holdings, find_holdings
from berth.sagas.proposals import Context, find_startable, make_run, record_run, remove_record
from berth.sagas.saga import BY_NAME, find_released
from berth.view import View

OPERATION = BY_NAME["delete"]


def propose(
    view: View, now_s: int, context: Context, id: str, *, is_forced: bool = False
) -> Enact | Rejection:
    """``is_forced``: whatever others have changed meanwhile."""
    server = find_startable(view, id, OPERATION)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    holdings = find_holdings(
        view,
        server,
        context.rules,
        OPERATION.action,
        now_s,
        migration=migration,
        released=find_released(OPERATION),
        is_forced=is_forced,
    )
    if not isinstance(holdings, ServerHoldings):
        return holdings
    if server.place is None and migration is None:
        # No host has it, and so no cell need be told.
        end = remove_server(view, server)
        held: tuple[LedgerCommand, ...] = (DeleteAllocations(ConsumerId(id)),) if holdings.held else ()
        return Enact(end.changes, (*held, *end.commands))
    cell = server.place.cell if server.place is not None else migration.source.cell if migration else ""
    source = migration.source if migration is not None else None
    dest = server.place
    if migration is not None:
        migration = adopt_migration_holdings(migration, holdings)
    if source == dest:
        source = None
    server = adopt_holdings(server, holdings)
    run = make_run(
        context,
        server,
        OPERATION.name,
        ClaimSnapshot(server.held, server.generation),
        source=source,
        dest=dest,
        migration=migration,
        is_forced=is_forced,
    )
    changed = () if migration is None else (migration,)
    shown = msgspec.structs.replace(server, fault=None)
    return record_run(view, context, shown, run, cell, now_s, changed=changed)


def remove_server(view: View, server: Server) -> Enact:
    """The command that takes a server's records away, when nothing is held for it any more."""
    changes = [remove_record(view, server)]
    changes += [remove_record(view, action) for action in view.records.find(Action, "server", server.id)]
    changes += [
        remove_record(view, migration)
        for migration in view.records.find(Migration, "server", server.id)
        if migration.status != "done"
    ]
    membership = view.groups.memberships.get(ConsumerId(server.id))
    commands: tuple[LedgerCommand, ...] = ()
    if membership is not None:
        commands = (ChangeMembers(membership.group, (), (ConsumerId(server.id),)),)
    return Enact(tuple(changes), commands)
