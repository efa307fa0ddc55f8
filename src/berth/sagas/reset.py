"""Reset: an operator says which state a server is in. Nothing is done to the server: only its record changes.

Nothing that is under way is cut off: every run ends by itself, and who does not want to wait deletes the
server. A server whose move waits to be settled, or that is on no host, is not active.
"""

from typing import Final, Literal

import msgspec

from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.rejections import Rejection, ServerBusy, ServerNotFound, ServerStateWrong, ServerUnsettled
from berth.model.servers import Server
from berth.view import View

_ASKED: Final = "os-resetState"


def propose(view: View, now_s: int, id: str, state: Literal["active", "error"]) -> Enact | Rejection:
    server = view.records.get(Server, id)
    if server is None:
        return ServerNotFound(id)
    if server.run is not None:
        return ServerBusy(id, _ASKED, server.task or "busy")
    if state == "active" and server.migration is not None:
        return ServerUnsettled(id, _ASKED, server.migration)
    if state == "active" and server.place is None:
        return ServerStateWrong(id, _ASKED, f"{server.state}, on no host", ("error",))
    after = msgspec.structs.replace(server, state=state, updated_at_s=now_s)
    if state == "active":
        after = msgspec.structs.replace(after, fault=None, state_before=None)
    return Enact((replace_record(view, after),))
