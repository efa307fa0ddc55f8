"""Resize and cold migration: to a new place, there to wait until it is confirmed or reverted."""

import msgspec

from berth.model.commands import Enact
from berth.model.rejections import HostIsDown, Rejection, SameFlavor
from berth.model.servers import Flavor
from berth.sagas.hosts import is_down
from berth.sagas.move import propose_move
from berth.sagas.proposals import Context, find_startable
from berth.sagas.saga import BY_NAME
from berth.view import View


def propose(
    view: View, now_s: int, context: Context, id: str, flavor: Flavor | None, host: str | None = None
) -> Enact | Rejection:
    """``flavor`` None migrates. A resize may stay on its host; a migration may not."""
    saga = BY_NAME["migrate" if flavor is None else "resize"]
    server = find_startable(view, id, saga)
    if isinstance(server, Rejection):
        return server
    if flavor is not None and flavor.id == server.flavor.id:
        return SameFlavor(flavor.id)
    assert server.place is not None, "one that is active or stopped is somewhere"
    if is_down(view, server.place):
        return HostIsDown(server.place.name, saga.action)
    after = msgspec.structs.replace(server, flavor=flavor or server.flavor, flavor_before=server.flavor)
    kind = "migration" if flavor is None else "resize"
    return propose_move(
        view,
        now_s,
        context,
        server,
        saga.name,
        kind,  # type: ignore[arg-type]
        after,
        host=host,
        ignore_source=flavor is None or not context.resizes_in_place,
    )
