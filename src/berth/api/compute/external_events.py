"""/os-server-external-events: other services say what has happened to a server's ports and volumes.

No operation waits for such an event: ports are read before each move. So events of networks are accepted, as
Nova accepts those that it does not wait for; of all others nothing here could happen, and each is refused.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.servers import Server
from berth.view import View

_EVENTS_MAX: Final = 100
_SINCE: Final = {
    "network-changed": 1,
    "network-vif-plugged": 1,
    "network-vif-unplugged": 1,
    "network-vif-deleted": 1,
    "volume-extended": 51,
    "power-update": 76,
    "accelerator-request-bound": 82,
    "volume-reimaged": 93,
}
_OF_NETWORKS: Final = "network-"
_NO_HOST: Final = 422
_NOT_FOUND: Final = 404
_REFUSED: Final = 400


class ExternalEvent(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: Annotated[str, Meta(max_length=64)]
    server_uuid: Annotated[str, Meta(pattern="^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\\Z")]
    status: Literal["failed", "completed", "in-progress"] = "completed"
    tag: Annotated[str, Meta(max_length=255)] | None = None


class ExternalEvents(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    events: Annotated[tuple[ExternalEvent, ...], Meta(min_length=1, max_length=_EVENTS_MAX)]


async def create_events(call: Call) -> Response:
    events = call.decode(ExternalEvents).events
    for event in events:
        if call.version < _SINCE.get(event.name, 1 << 16):
            known = ", ".join(name for name, since in _SINCE.items() if call.version >= since)
            raise Problem(400, f"Invalid input: name is {event.name!r}; it must be one of {known}.")

    def answer(view: View) -> Response:
        codes = [_judge(view, event) for event in events]
        if all(code == _NOT_FOUND for code in codes):
            raise Problem(404, "No instances found for any event")
        shown = [_show(event, code) for event, code in zip(events, codes, strict=True)]
        return json({"events": shown}, 200 if {*codes} == {200} else 207)

    return await call.read(answer)


def _judge(view: View, event: ExternalEvent) -> int:
    server = view.records.get(Server, event.server_uuid.lower())
    if server is None:
        return _NOT_FOUND
    if server.place is None:
        return _NO_HOST
    return 200 if event.name.startswith(_OF_NETWORKS) else _REFUSED


def _show(event: ExternalEvent, code: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": event.name,
        "server_uuid": event.server_uuid,
        "status": "completed" if code == 200 and event.status == "completed" else event.status,
        "code": code,
    }
    if code != 200:
        shown["status"] = "failed"
    return shown if event.tag is None else shown | {"tag": event.tag}


ROUTES: Final = (
    Route(
        "POST",
        "/os-server-external-events",
        create_events,
        policy="os_compute_api:os-server-external-events:create",
    ),
)
