"""/servers/{id}/metadata: what people note down about a server. Nothing here reads it."""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.api.compute import server_bodies as sent
from berth.api.compute.server_access import changed, unlocked, visible
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.commands import Enact
from berth.view import View

Metadata = dict[str, str]


async def show_all(call: Call) -> Response:
    return json({"metadata": await _read(call)})


async def replace_all(call: Call) -> Response:
    asked = call.decode(sent.MetadataBody).metadata
    return json({"metadata": await _change(call, lambda _: asked)})


async def add(call: Call) -> Response:
    asked = call.decode(sent.MetadataBody).metadata
    return json({"metadata": await _change(call, lambda before: before | asked)})


async def show(call: Call) -> Response:
    key = call.params[1]
    metadata = await _read(call)
    if key not in metadata:
        raise _no_item(key)
    return json({"meta": {key: metadata[key]}})


async def put(call: Call) -> Response:
    key = call.params[1]
    asked = call.decode(sent.MetaBody).meta
    if key not in asked:
        raise Problem(400, f"The body and the URI do not name the same item: {key} is in the URI.")
    await _change(call, lambda before: before | asked)
    return json({"meta": asked})


async def remove(call: Call) -> Response:
    key = call.params[1]

    def without(before: Metadata) -> Metadata:
        if key not in before:
            raise _no_item(key)
        return {name: value for name, value in before.items() if name != key}

    await _change(call, without)
    return Response(204)


async def _read(call: Call) -> Metadata:
    return await call.read(lambda view: visible(call, view, call.params[0]).metadata)


async def _change(call: Call, change: Callable[[Metadata], Metadata]) -> Metadata:
    id = call.params[0]

    def propose(view: View, now_s: int) -> Enact:
        server = unlocked(call, view, id)
        metadata = sent.checked_metadata(change(server.metadata))
        command = changed(view, msgspec.structs.replace(server, metadata=metadata), now_s)
        return msgspec.structs.replace(command, quotas=call.quotas)

    return await call.submit(propose, lambda view: visible(call, view, id).metadata)


def _no_item(key: str) -> Problem:
    return Problem(404, f"Metadata item {key} was not found.")


ROUTES: Final = (
    Route("GET", "/servers/{id}/metadata", show_all, policy="os_compute_api:server-metadata:index"),
    Route("PUT", "/servers/{id}/metadata", replace_all, policy="os_compute_api:server-metadata:update_all"),
    Route("POST", "/servers/{id}/metadata", add, policy="os_compute_api:server-metadata:create"),
    Route("GET", "/servers/{id}/metadata/{key}", show, policy="os_compute_api:server-metadata:show"),
    Route("PUT", "/servers/{id}/metadata/{key}", put, policy="os_compute_api:server-metadata:update"),
    Route("DELETE", "/servers/{id}/metadata/{key}", remove, policy="os_compute_api:server-metadata:delete"),
)
