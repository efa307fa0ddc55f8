"""/servers/{id}: look at a server, rename it, delete it; and the lists of what it has none of here."""

from typing import Any, Final

import msgspec

from berth.api.compute import server_bodies as sent
from berth.api.compute import server_create, server_list
from berth.api.compute.server_access import changed, require_since, require_version, unlocked, visible
from berth.api.compute.server_fields import refuse_fields
from berth.api.compute.server_wire import detail
from berth.api.kernel.call import Call, Handler, json
from berth.api.kernel.http import Response
from berth.api.kernel.router import Route
from berth.model.commands import Enact
from berth.model.rejections import Rejection, ServerBusy
from berth.model.servers import Server
from berth.sagas import delete as deleting
from berth.view import View


async def show(call: Call) -> Response:
    id = call.params[0]
    return json(await call.read(lambda view: {"server": detail(call, view, visible(call, view, id))}))


async def change(call: Call) -> Response:
    id = call.params[0]
    asked = call.decode(sent.ChangedServerBody).server
    require_since(call, asked, {"description": 19})
    refuse_fields("update", asked)

    def propose(view: View, now_s: int) -> Enact:
        return changed(view, renamed(visible(call, view, id), asked.name, asked.description), now_s)

    return await call.submit(
        propose, lambda view: json({"server": detail(call, view, visible(call, view, id))})
    )


def renamed(
    server: Server, name: str | msgspec.UnsetType, description: str | msgspec.UnsetType | None
) -> Server:
    """The server with what is given of these."""
    if isinstance(name, str):
        server = msgspec.structs.replace(server, name=sent.checked_name(name))
    if not isinstance(description, msgspec.UnsetType):
        server = msgspec.structs.replace(server, description=description)
    return server


async def delete(call: Call) -> Response:
    return await deleted(call, is_forced=False, status=204)


async def deleted(call: Call, *, is_forced: bool, status: int) -> Response:
    id, asked = call.params[0], call.context()

    def propose(view: View, now_s: int) -> Enact | Rejection:
        unlocked(call, view, id)
        return deleting.propose(view, now_s, asked, id, is_forced=is_forced)

    outcome = await call.try_submit(propose, lambda _: Response(status))
    if isinstance(outcome, ServerBusy) and outcome.task == "deleting" and not is_forced:
        # It is what was asked for, and it is being done.
        return Response(status)
    if isinstance(outcome, Rejection):
        raise call.problem_of(outcome)
    return outcome


def _always(body: dict[str, Any], since: int = 1) -> Handler:
    """A list that is the same for every server: it belongs to services that are not here, and clients ask for
    it."""

    async def answer(call: Call) -> Response:
        require_version(call, since)
        await call.read(lambda view: visible(call, view, call.params[0]))
        return json(body)

    return answer


ROUTES: Final = (
    *server_create.ROUTES,
    Route("GET", "/servers", server_list.page, policy="os_compute_api:servers:index"),
    Route("GET", "/servers/detail", server_list.page_with_details, policy="os_compute_api:servers:detail"),
    Route("GET", "/servers/{id}", show, policy="os_compute_api:servers:show"),
    Route("PUT", "/servers/{id}", change, policy="os_compute_api:servers:update"),
    Route("DELETE", "/servers/{id}", delete, policy="os_compute_api:servers:delete"),
    Route(
        "GET",
        "/servers/{id}/tags",
        _always({"tags": []}, since=26),
        policy="os_compute_api:os-server-tags:index",
    ),
    Route("GET", "/servers/{id}/ips", _always({"addresses": {}}), policy="os_compute_api:ips:index"),
    Route(
        "GET",
        "/servers/{id}/os-security-groups",
        _always({"security_groups": []}),
        policy="os_compute_api:os-security-groups:list",
    ),
    Route(
        "GET",
        "/servers/{id}/os-interface",
        _always({"interfaceAttachments": []}),
        policy="os_compute_api:os-attach-interfaces:list",
    ),
    Route(
        "GET",
        "/servers/{id}/os-volume_attachments",
        _always({"volumeAttachments": []}),
        policy="os_compute_api:os-volumes-attachments:index",
    ),
)
