"""The compute API: Nova's routes, versions and shapes.

A refusal comes in Nova's envelope: {"conflictingRequest": {"code": 409, "message": "..."}}

What Nova has and Berth does not, and clients ask for all the same, is answered here: empty lists, and a
refusal for whoever wants to add to them.
"""

import dataclasses
from typing import Any, Final

import msgspec

from berth.api.compute import (
    aggregates,
    extensions,
    external_events,
    flavors,
    hosts,
    hypervisors,
    images,
    instance_actions,
    keypairs,
    migrations,
    quotas,
    server_groups,
    services,
    usage,
    versions,
)
from berth.api.compute.servers import actions, create, diagnostics, show, tags, topology, update
from berth.api.compute.servers.show import find_server
from berth.api.compute.versions import PREFIX, V21, require_version
from berth.api.kernel.application import RoutedApi
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Call, Handler, Services, json
from berth.api.kernel.http import JSON, Request, Response, read_origin
from berth.api.kernel.paging import read_query
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route, Router

# -- what is not offered -----------------------------------------------------------------------


# -- lists of a server --------------------------------------------------------------------------


def _list_nothing(body: dict[str, Any], since: int = 1, *, parameters: tuple[str, ...] = ()) -> Handler:
    """A list that is empty for every server: it belongs to services that are not here."""

    async def answer(call: Call) -> Response:
        require_version(call, since)
        read_query(call, next(iter(body)), dict.fromkeys(parameters, since))
        await call.read(lambda view: find_server(call, view, call.params[0]))
        return json(body)

    return answer


_NOT_OFFERED: Final = (
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
        _list_nothing({"volumeAttachments": []}, parameters=("limit", "offset")),
        policy="os_compute_api:os-volumes-attachments:index",
    ),
)


# -- the API ------------------------------------------------------------------------------------


ROUTES: Final[tuple[Route[Handler], ...]] = (
    *create.ROUTES,
    *show.ROUTES,
    *topology.ROUTES,
    *update.ROUTES,
    *tags.ROUTES,
    *actions.ROUTES,
    *migrations.ROUTES,
    *instance_actions.ROUTES,
    *flavors.ROUTES,
    *server_groups.ROUTES,
    *aggregates.ROUTES,
    *hypervisors.ROUTES,
    *services.ROUTES,
    *quotas.ROUTES,
    *keypairs.ROUTES,
    *diagnostics.ROUTES,
    *hosts.ROUTES,
    *images.ROUTES,
    *usage.ROUTES,
    *external_events.ROUTES,
    *extensions.ROUTES,
    *_NOT_OFFERED,
)

_FAULTS: Final = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    406: "notAcceptable",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    503: "serviceUnavailable",
}


def _refuse_unread_query(route: Route[Handler]) -> Route[Handler]:
    """A GET whose handler has not looked at its parameters takes none: Nova would ignore them."""

    async def answer(call: Call) -> Response:
        response = await route.handler(call)
        if not call.has_read_query:
            read_query(call, route.path, {})
        return response

    return dataclasses.replace(route, handler=answer) if route.method == "GET" else route


_ROUTER: Final = Router(map(_refuse_unread_query, ROUTES), below=V21)


class ComputeApi(RoutedApi):
    PREFIX = PREFIX

    def __init__(self, services: Services) -> None:
        super().__init__(services, _ROUTER, versions_at=(PREFIX, V21))

    def refuse(self, problem: Problem, request: Request) -> Response:
        name = _FAULTS.get(problem.status, "computeFault")
        body = {name: {"code": problem.status, "message": problem.text}}
        return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)

    async def handle(self, request: Request, caller: Caller) -> Response:
        response = await super().handle(request, caller)
        response.headers += versions.make_headers(request.headers)
        # Nova's own name for the id, from before all services had the same one.
        response.headers.append(("x-compute-request-id", request.request_id))
        return response

    def version_of(self, request: Request) -> int:
        return versions.read_version(request.headers)

    def show_versions(self, request: Request) -> Response:
        document = versions.show_document(f"{read_origin(request)}{V21}")
        if request.path.rstrip("/") == PREFIX:
            return json({"versions": [document]})
        return json({"version": document})
