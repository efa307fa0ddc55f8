"""The compute API: Nova's routes, versions and shapes.

A refusal comes in Nova's envelope: {"conflictingRequest": {"code": 409, "message": "..."}}
"""

from typing import Final

import msgspec

from berth.api.compute import (
    aggregates,
    flavors,
    hypervisors,
    instance_actions,
    migrations,
    quotas,
    server_groups,
    services,
    unsupported,
    versions,
)
from berth.api.compute.servers import actions, create, show, update
from berth.api.compute.versions import PREFIX, V21
from berth.api.kernel.api import RoutedApi
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Handler, Services, json
from berth.api.kernel.http import JSON, Request, Response, read_origin
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route

ROUTES: Final[tuple[Route[Handler], ...]] = (
    *create.ROUTES,
    *show.ROUTES,
    *update.ROUTES,
    *actions.ROUTES,
    *migrations.ROUTES,
    *instance_actions.ROUTES,
    *flavors.ROUTES,
    *server_groups.ROUTES,
    *aggregates.ROUTES,
    *hypervisors.ROUTES,
    *services.ROUTES,
    *quotas.ROUTES,
    *unsupported.ROUTES,
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


class ComputeApi(RoutedApi):
    PREFIX = PREFIX

    def __init__(self, services: Services) -> None:
        super().__init__(services, ROUTES, below=V21, versions_at=(PREFIX, V21))

    def refuse(self, problem: Problem, request: Request) -> Response:
        name = _FAULTS.get(problem.status, "computeFault")
        body = {name: {"code": problem.status, "message": problem.text}}
        return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)

    async def handle(self, request: Request, caller: Caller) -> Response:
        response = await super().handle(request, caller)
        response.headers += versions.make_headers(request.headers)
        return response

    def version_of(self, request: Request) -> int:
        return versions.read_version(request.headers)

    def show_versions(self, request: Request) -> Response:
        document = versions.show_document(f"{read_origin(request)}{V21}")
        if request.path.rstrip("/") == PREFIX:
            return json({"versions": [document]})
        return json({"version": document})
