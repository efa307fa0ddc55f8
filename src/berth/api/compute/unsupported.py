"""What Nova has and Berth does not, where clients ask for it all the same: empty lists, and a refusal for
whoever wants to add to them.
"""

from typing import Any, Final

from berth.api.compute.servers.show import find_server
from berth.api.compute.versions import require_version
from berth.api.kernel.call import Call, Handler, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query
from berth.api.kernel.problem import Problem, not_found
from berth.api.kernel.router import Route


async def list_extensions(call: Call) -> Response:
    return json({"extensions": []})


async def list_keypairs(call: Call) -> Response:
    read_query(call, "key pairs", {"user_id": 10, "limit": 35, "marker": 35})
    return json({"keypairs": []})


async def refuse_keypair(call: Call) -> Response:
    raise not_found("Keypair", call.params[0])


async def refuse_new_keypair(call: Call) -> Response:
    raise Problem(
        501, "Key pairs are not supported: agents put no keys on servers. Create the server without one."
    )


# -- lists of a server --------------------------------------------------------------------------


def _list_nothing(body: dict[str, Any], since: int = 1) -> Handler:
    """A list that is empty for every server: it belongs to services that are not here."""

    async def answer(call: Call) -> Response:
        require_version(call, since)
        await call.read(lambda view: find_server(call, view, call.params[0]))
        return json(body)

    return answer


ROUTES: Final = (
    Route("GET", "/extensions", list_extensions, policy="os_compute_api:extensions"),
    Route("GET", "/os-keypairs", list_keypairs, policy="os_compute_api:os-keypairs:index"),
    Route("POST", "/os-keypairs", refuse_new_keypair, policy="os_compute_api:os-keypairs:create"),
    Route("GET", "/os-keypairs/{name}", refuse_keypair, policy="os_compute_api:os-keypairs:show"),
    Route("DELETE", "/os-keypairs/{name}", refuse_keypair, policy="os_compute_api:os-keypairs:delete"),
    Route(
        "GET",
        "/servers/{id}/tags",
        _list_nothing({"tags": []}, since=26),
        policy="os_compute_api:os-server-tags:index",
    ),
    Route("GET", "/servers/{id}/ips", _list_nothing({"addresses": {}}), policy="os_compute_api:ips:index"),
    Route(
        "GET",
        "/servers/{id}/os-security-groups",
        _list_nothing({"security_groups": []}),
        policy="os_compute_api:os-security-groups:list",
    ),
    Route(
        "GET",
        "/servers/{id}/os-interface",
        _list_nothing({"interfaceAttachments": []}),
        policy="os_compute_api:os-attach-interfaces:list",
    ),
    Route(
        "GET",
        "/servers/{id}/os-volume_attachments",
        _list_nothing({"volumeAttachments": []}),
        policy="os_compute_api:os-volumes-attachments:index",
    ),
)
