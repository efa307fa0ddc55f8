"""Evacuate: build a server anew because its host is down. What it held there its migration holds, until the
host is back and has cleaned up."""

from berth.model.commands import Enact
from berth.model.rejections import HostNotDown, Rejection
from berth.sagas.hosts import is_down
from berth.sagas.move import propose_move
from berth.sagas.proposals import Context, find_startable, reject_unsettled
from berth.sagas.saga import BY_NAME
from berth.view import View

OPERATION = BY_NAME["evacuate"]


def propose(view: View, now_s: int, context: Context, id: str, host: str | None = None) -> Enact | Rejection:
    server = find_startable(view, id, OPERATION)
    if isinstance(server, Rejection):
        return server
    if server.place is None or server.migration is not None:
        return reject_unsettled(server, OPERATION)
    if not is_down(view, server.place):
        return HostNotDown(server.place.name)
    return propose_move(view, now_s, context, server, OPERATION.name, "evacuation", server, host=host)
