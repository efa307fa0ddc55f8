"""Migrate: move a server to another host, shut down meanwhile, and wait for the user to confirm or revert.

    ACTIVE or SHUTOFF --(claim, prepare, send from the source, receive at the destination)--> VERIFY_RESIZE
    any failure before the end: undone step by step, back to where it was

It is a resize to the same flavor that may not stay on its host.
"""

from dataclasses import replace

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.sagas import resize
from berth.sagas.move import find_movable, propose_move
from berth.sagas.proposals import Context
from berth.view import View

SAGA = replace(resize.SAGA, name="migrate", action="migrate", requested_by="`migrate`")


def propose(view: View, now_s: int, context: Context, id: str, host: str | None = None) -> Enact | Rejection:
    """``host``: the only one considered."""
    server = find_movable(view, id, SAGA)
    if isinstance(server, Rejection):
        return server
    after = msgspec.structs.replace(server, flavor_before=server.flavor)
    return propose_move(view, now_s, context, SAGA, "migration", server, after, host=host)
