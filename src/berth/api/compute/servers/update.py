"""PUT and DELETE /servers/{id}, and /servers/{id}/metadata: rename a server, delete it, keep notes on it.

A server that is locked cannot be changed by its owner until it is unlocked; an administrator can change it.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.metadata import Change, Items, check_named, make_removal, respond_item
from berth.api.compute.servers.fields import (
    SINCE,
    GuestBody,
    Metadata,
    Name,
    Text,
    change_guest,
    check_guest,
    check_name,
    find_excess,
    refuse_fields,
)
from berth.api.compute.servers.show import find_server, find_unlocked, get_server, show_changed
from berth.api.compute.versions import require_since
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.router import Route
from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.model.servers import Server
from berth.sagas import delete
from berth.view import View


class ChangedServer(GuestBody, kw_only=True, frozen=True):
    name: Name | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    pinned_availability_zone: Any = UNSET


class ChangedServerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: ChangedServer


class MetadataBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metadata: Metadata


class MetaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meta: Annotated[Metadata, Meta(min_length=1, max_length=1)]


async def update_server(call: Call) -> Response:
    id = call.params[0]
    asked = call.decode(ChangedServerBody).server
    require_since(call, asked, {**SINCE, "description": 19})
    refuse_fields("update", asked)
    check_name(asked.name)
    check_guest(call, asked)

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_server(call, view, id)
        if isinstance(server, Rejection):
            return server
        server = rename_server(change_guest(server, asked), asked.name, asked.description)
        return replace_server(view, server, now_s)

    return await call.submit(
        propose, lambda view: json({"server": show_changed(call, view, get_server(call, view, id))})
    )


def rename_server(
    server: Server, name: str | msgspec.UnsetType, description: str | msgspec.UnsetType | None
) -> Server:
    """The server with the name and the description that are given."""
    if isinstance(name, str):
        server = msgspec.structs.replace(server, name=name)
    if not isinstance(description, msgspec.UnsetType):
        server = msgspec.structs.replace(server, description=description)
    return server


async def delete_server(call: Call) -> Response:
    return await submit_delete(call, is_forced=False, status=204)


async def submit_delete(call: Call, *, is_forced: bool, status: int) -> Response:
    id, context = call.params[0], call.context()
    is_soft = not is_forced and call.services.settings.reclaim_instance_interval > 0

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_unlocked(call, view, id)
        if isinstance(server, Rejection):
            return server
        return delete.propose(view, now_s, context, id, is_forced=is_forced, is_soft=is_soft)

    return await call.submit(propose, lambda _: Response(status))


def replace_server(view: View, server: Server, now_s: int) -> Enact:
    """The command that replaces the record of a server."""
    return Enact((replace_record(view, msgspec.structs.replace(server, updated_at_s=now_s)),))


# -- metadata -----------------------------------------------------------------------------------


async def list_metadata(call: Call) -> Response:
    return json({"metadata": await _read_metadata(call)})


async def replace_metadata(call: Call) -> Response:
    asked = call.decode(MetadataBody).metadata
    return json({"metadata": await _change_metadata(call, lambda _: asked)})


async def add_metadata(call: Call) -> Response:
    asked = call.decode(MetadataBody).metadata
    return json({"metadata": await _change_metadata(call, lambda before: before | asked)})


async def show_metadata_item(call: Call) -> Response:
    return respond_item(call, await _read_metadata(call))


async def set_metadata_item(call: Call) -> Response:
    asked = call.decode(MetaBody).meta
    check_named(call, asked)
    await _change_metadata(call, lambda before: before | asked)
    return json({"meta": asked})


async def delete_metadata_item(call: Call) -> Response:
    await _change_metadata(call, make_removal(call))
    return Response(204)


async def _read_metadata(call: Call) -> Items:
    return await call.read(lambda view: get_server(call, view, call.params[0]).metadata)


async def _change_metadata(call: Call, change: Change) -> Items:
    id = call.params[0]

    def propose(view: View, now_s: int) -> Enact | Rejection:
        server = find_unlocked(call, view, id)
        if isinstance(server, Rejection):
            return server
        metadata = change(server.metadata)
        if isinstance(metadata, Rejection):
            return metadata
        too_large = find_excess(metadata)
        if too_large is not None:
            return too_large
        command = replace_server(view, msgspec.structs.replace(server, metadata=metadata), now_s)
        return msgspec.structs.replace(command, quotas=call.quotas)

    return await call.submit(propose, lambda view: get_server(call, view, id).metadata)


ROUTES: Final = (
    Route("PUT", "/servers/{id}", update_server, policy="os_compute_api:servers:update"),
    Route("DELETE", "/servers/{id}", delete_server, policy="os_compute_api:servers:delete"),
    Route("GET", "/servers/{id}/metadata", list_metadata, policy="os_compute_api:server-metadata:index"),
    Route(
        "PUT", "/servers/{id}/metadata", replace_metadata, policy="os_compute_api:server-metadata:update_all"
    ),
    Route("POST", "/servers/{id}/metadata", add_metadata, policy="os_compute_api:server-metadata:create"),
    Route(
        "GET",
        "/servers/{id}/metadata/{key}",
        show_metadata_item,
        policy="os_compute_api:server-metadata:show",
    ),
    Route(
        "PUT",
        "/servers/{id}/metadata/{key}",
        set_metadata_item,
        policy="os_compute_api:server-metadata:update",
    ),
    Route(
        "DELETE",
        "/servers/{id}/metadata/{key}",
        delete_metadata_item,
        policy="os_compute_api:server-metadata:delete",
    ),
)
