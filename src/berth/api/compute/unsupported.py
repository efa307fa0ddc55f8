"""What Nova has and Berth does not, where clients ask for it all the same: empty lists, and a refusal for
whoever wants to add to them.
"""

from typing import Final

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import query_of
from berth.api.kernel.problem import Problem, not_found
from berth.api.kernel.router import Route


async def list_extensions(call: Call) -> Response:
    return json({"extensions": []})


async def list_keypairs(call: Call) -> Response:
    query_of(call, "key pairs", {"user_id": 10, "limit": 35, "marker": 35})
    return json({"keypairs": []})


async def refuse_keypair(call: Call) -> Response:
    raise not_found("Keypair", call.params[0])


async def refuse_new_keypair(call: Call) -> Response:
    raise Problem(
        501, "Keypairs are not kept here: agents put no keys on servers. Create the server without one."
    )


ROUTES: Final = (
    Route("GET", "/extensions", list_extensions, policy="os_compute_api:extensions"),
    Route("GET", "/os-keypairs", list_keypairs, policy="os_compute_api:os-keypairs:index"),
    Route("POST", "/os-keypairs", refuse_new_keypair, policy="os_compute_api:os-keypairs:create"),
    Route("GET", "/os-keypairs/{name}", refuse_keypair, policy="os_compute_api:os-keypairs:show"),
    Route("DELETE", "/os-keypairs/{name}", refuse_keypair, policy="os_compute_api:os-keypairs:delete"),
)
