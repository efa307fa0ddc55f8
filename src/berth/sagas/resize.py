"""Resize: move a server to another flavor, on another host or its own, and wait for the user to confirm or
revert.

    ACTIVE or SHUTOFF --(claim, prepare, send from the source, receive at the destination)--> VERIFY_RESIZE
    any failure before the end: undone step by step, back to where it was

While it runs and until it is confirmed, the migration holds the source and the server holds the destination.
"""

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import Rejection, SameFlavor
from berth.model.servers import Flavor
from berth.sagas.move import find_movable, propose_move
from berth.sagas.proposals import Context
from berth.sagas.requests import flavor_sizes
from berth.sagas.saga import (
    AS_BEFORE,
    CLAIM_MOVE,
    PREPARE,
    RECEIVE,
    SEND,
    Outcome,
    Saga,
    await_confirmation,
    return_to_source,
    states,
)
from berth.scheduler.flavors import wrong_guest
from berth.view import View

SAGA = Saga(
    name="resize",
    action="resize",
    task="resize_prep",
    starts_in=states("active", "stopped"),
    steps=(CLAIM_MOVE, PREPARE, SEND, RECEIVE),
    done=Outcome(
        state="resized", on_hosts=("source", "dest"), holds="dest, migration source", migration="finished"
    ),
    failed=Outcome(state=AS_BEFORE, on_hosts=("source",), holds="source"),
    on_done=await_confirmation,
    on_failed=return_to_source,
    requested_by="`resize`",
    migration_meanwhile="migrating",
    may_cross=True,
)


def propose(
    view: View, now_s: int, context: Context, id: str, flavor: Flavor, host: str | None = None
) -> Enact | Rejection:
    """Claim the new place and hand the old one to a migration, in one change. ``host``: the only one
    considered."""
    server = find_movable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    if flavor.id == server.flavor.id:
        return SameFlavor(flavor.id)
    wrong = wrong_guest(flavor_sizes(flavor), server.image_properties)
    if wrong is not None:
        return wrong
    after = msgspec.structs.replace(server, flavor=flavor, flavor_before=server.flavor)
    may_stay = context.resizes_in_place
    return propose_move(view, now_s, context, SAGA, "resize", server, after, host=host, may_stay=may_stay)
