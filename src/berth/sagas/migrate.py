"""Migrate: move a server to another host, shut down meanwhile, and wait for the user to confirm or revert.

    ACTIVE or SHUTOFF --(claim, prepare, send from the source, receive at the destination)--> VERIFY_RESIZE
    any failure before the end: undone step by step, back to where it was

It is a resize to the same flavor that may not stay on its host.
"""

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import HostIsDown, Rejection
from berth.sagas.endings import await_confirmation, return_to_source
from berth.sagas.hosts import is_down
from berth.sagas.move import propose_move
from berth.sagas.proposals import Context, find_startable
from berth.sagas.saga import AS_BEFORE, CLAIM_MOVE, PREPARE, RECEIVE, SEND, Outcome, Saga, states
from berth.view import View

SAGA = Saga(
    name="migrate",
    action="migrate",
    task="resize_prep",
    starts_in=states("active", "stopped"),
    steps=(CLAIM_MOVE, PREPARE, SEND, RECEIVE),
    done=Outcome(
        state="resized", on_hosts=("source", "dest"), holds="dest, migration source", migration="finished"
    ),
    failed=Outcome(state=AS_BEFORE, on_hosts=("source",), holds="source"),
    on_done=await_confirmation,
    on_failed=return_to_source,
    requested_by="`migrate`",
    migration_meanwhile="migrating",
)


def propose(view: View, now_s: int, context: Context, id: str, host: str | None = None) -> Enact | Rejection:
    """``host``: the only one considered."""
    server = find_startable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    assert server.place is not None, "a server that is active or stopped is on a host"
    if is_down(view, server.place):
        return HostIsDown(server.place.name, SAGA.action)
    after = msgspec.structs.replace(server, flavor_before=server.flavor)
    return propose_move(view, now_s, context, SAGA, "migration", server, after, host=host)
