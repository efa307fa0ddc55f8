"""The compute API: Nova's routes, versions and shapes."""

from berth.api.compute import versions
from berth.api.compute.errors import render
from berth.api.compute.routes import ROUTES
from berth.api.compute.versions import PREFIX, V21
from berth.api.kernel.api import RoutedApi
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Services, json
from berth.api.kernel.http import Request, Response, origin_of
from berth.api.kernel.problem import Problem


class ComputeApi(RoutedApi):
    PREFIX = PREFIX

    def __init__(self, services: Services) -> None:
        super().__init__(services, ROUTES, below=V21, versions_at=(PREFIX, V21))

    def refuse(self, problem: Problem, request: Request) -> Response:
        return render(problem)

    async def handle(self, request: Request, caller: Caller) -> Response:
        response = await super().handle(request, caller)
        response.headers += versions.headers_of(request.headers)
        return response

    def version_of(self, request: Request) -> int:
        return versions.version_of(request.headers)

    def show_versions(self, request: Request) -> Response:
        document = versions.document(f"{origin_of(request)}{V21}")
        if request.path.rstrip("/") == PREFIX:
            return json({"versions": [document]})
        return json({"version": document})
