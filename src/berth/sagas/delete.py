"""Delete: destroy the server on every host that may have it, and release everything, its migration's part
too. A deletion wins: it is accepted whatever is being done to the server, which is aborted first.

    any state --(check, destroy, release)--> gone
    something under way --(abort)--> undone, or done --> the same
    a changed allocation: refused, unchanged; a host that cannot destroy it: ERROR, still holding

What is under way ends before the deletion begins: nothing else knows how to undo it, and two runs would give
a server's hosts commands that contradict each other. Both are one change of the records, so that nothing can
come in between (decision 041).
"""

from dataclasses import replace
from typing import Final, get_args

import msgspec

from berth.ledger import replace_record
from berth.model.commands import DeleteAllocations, Enact, LedgerCommand
from berth.model.formats import ADDITIONS
from berth.model.ids import ConsumerId
from berth.model.rejections import Rejection, ServerBusy, ServerChangedByOthers, ServerNotFound
from berth.model.saga_runs import SagaRun
from berth.model.servers import (
    Deletion,
    Migration,
    Server,
    VmState,
)
from berth.sagas import soft_delete
from berth.sagas.conflicts import (
    ServerHoldings,
    adopt_holdings,
    adopt_migration_holdings,
    find_holdings,
)
from berth.sagas.proposals import (
    Context,
    RunRequest,
    find_startable,
    remove_server,
    request_abort,
    start_run,
)
from berth.sagas.saga import CHECK, DESTROY, GONE, RELEASE, UNCHANGED, Outcome, Saga, Step, keep, stay
from berth.view import View

_AWAITED: Final = ADDITIONS.since("Server.deletion")


def stop_deleting(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server stays where it was; a resize still waits to be confirmed or reverted."""
    return stay(server, run, None) if migration is None else keep(server, run, migration)


SAGA = Saga(
    name="delete",
    action="delete",
    task="deleting",
    starts_in=frozenset(get_args(VmState)),
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
    view: View, now_s: int, context: Context, id: str, *, is_forced: bool = False, is_soft: bool = False
) -> Enact | Rejection:
    """``is_forced``: whatever others have changed meanwhile. ``is_soft``: it can be restored for a while, if
    there is something to be restored."""
    known = view.records.get(Server, id)
    if known is None:
        return ServerNotFound(id)
    if known.run is not None:
        return _await_end(view, now_s, context, known, known.run, is_forced=is_forced, is_soft=is_soft)
    server = find_startable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    migration = None if server.migration is None else view.records.get(Migration, server.migration)
    return begin(view, now_s, context, server, migration, is_forced=is_forced, is_soft=is_soft)


def _await_end(
    view: View, now_s: int, context: Context, server: Server, run: str, *, is_forced: bool, is_soft: bool
) -> Enact | Rejection:
    """The command that aborts what is under way, and has the server deleted when that has ended. A deletion
    that is under way is not aborted: one that is forced follows it, in case it fails, or it was soft."""
    if _strength_of(is_forced=is_forced, is_soft=is_soft) <= _known_strength(server):
        return Enact(())
    if view.format < _AWAITED:
        return ServerBusy(server.id, SAGA.action, server.task or "busy")
    asked = Deletion(
        run=context.make_run_id(),
        request_id=context.request_id,
        project=context.project,
        user=context.user,
        asked_at_s=now_s,
        policy=context.policy,
        repeats_merge=context.repeat == "merge",
        is_forced=is_forced,
        is_soft=is_soft,
        global_id=context.global_id,
    )
    after = msgspec.structs.replace(server, task=SAGA.task, deletion=asked, updated_at_s=now_s)
    changes = [replace_record(view, after)]
    if server.deletion is None and server.task != SAGA.task:
        changes += request_abort(view, server, run)
    return Enact(tuple(changes))


def _strength_of(*, is_forced: bool, is_soft: bool) -> int:
    """Of two deletions of a server the stronger one counts."""
    return 3 if is_forced else 1 if is_soft else 2


def _known_strength(server: Server) -> int:
    """That of the deletion which is under way, or waits; 0 without any."""
    known = server.deletion
    if known is not None:
        return _strength_of(is_forced=known.is_forced, is_soft=known.is_soft)
    by_task = {SAGA.task: False, soft_delete.SAGA.task: True}
    is_deleting = server.task in by_task
    return _strength_of(is_forced=False, is_soft=by_task[server.task]) if is_deleting else 0


def begin(
    view: View,
    now_s: int,
    context: RunRequest,
    server: Server,
    migration: Migration | None,
    *,
    is_forced: bool,
    is_soft: bool,
) -> Enact | ServerChangedByOthers:
    """The command that deletes a server, whose record and migration are as they are given."""
    if is_soft and server.state == soft_delete.SAGA.done.state:
        return Enact(())
    if is_soft and soft_delete.may_begin(server):
        return soft_delete.begin(view, now_s, context, server)
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
        end = remove_server(view, server, now_s)
        consumer = ConsumerId(server.id)
        held: tuple[LedgerCommand, ...] = (DeleteAllocations(consumer),) if holdings.held else ()
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
