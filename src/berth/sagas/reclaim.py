"""Reclaim: servers that were soft-deleted long enough ago are deleted. Deleted servers are remembered for a
while and no longer."""

import logging
from typing import Final

from berth.engine import Engine
from berth.ledger import remove_record
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.rejections import Rejection
from berth.model.servers import DeletedServer, Server
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas import delete
from berth.sagas.proposals import Context
from berth.sagas.reconciler import Reconciler
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View

_log = logging.getLogger(__name__)
_STATE: Final = "soft-delete"
_ORIGIN: Final = Origin("", "reclaim", None, "reconciler")


def reclaim_servers(
    engine: Engine, clock: Clock, ids: Ids, scheduler: SchedulerOptions, settings: Settings
) -> Reconciler[Server]:
    """What deletes all servers of a region that are due."""
    after_s = settings.reclaim_instance_interval

    def find_waiting(view: View) -> list[Server]:
        return view.records.find(Server, "state", _STATE) if after_s else []

    def is_due(view: View, server: Server, now_s: int) -> bool:
        return server.run is None and now_s >= server.updated_at_s + after_s

    async def advance(server: Server) -> bool:
        context = Context(ids.request_id(), server.project, server.user, ids, scheduler)

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            known = view.records.get(Server, server.id)
            if known is None or known.state != _STATE or not is_due(view, known, now_s):
                return None
            return delete.propose(view, now_s, context, server.id, is_forced=True)

        origin = Origin(context.request_id, server.user, server.project, "reconciler")
        outcome = await engine.submit(propose, origin, lambda view, changed: changed)
        if isinstance(outcome, Rejection):
            _log.error("server %s: cannot be reclaimed, retrying later: %s", server.id, outcome)
        return outcome is True

    return Reconciler(engine, clock, Server, is_due, advance, find_waiting)


def forget_servers(engine: Engine, clock: Clock, settings: Settings) -> Reconciler[DeletedServer]:
    """What forgets deleted servers when their time is over."""

    def is_due(view: View, deleted: DeletedServer, now_s: int) -> bool:
        return now_s >= deleted.deleted_at_s + settings.deleted_servers_seconds

    async def advance(deleted: DeletedServer) -> bool:
        def propose(view: View, now_s: int) -> Enact | None:
            known = view.records.get(DeletedServer, deleted.id)
            return None if known is None else Enact((remove_record(view, known),))

        outcome = await engine.submit(propose, _ORIGIN, lambda view, changed: changed)
        return outcome is True

    return Reconciler(engine, clock, DeletedServer, is_due, advance)
