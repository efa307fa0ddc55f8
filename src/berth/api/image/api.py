"""The image API: find the route, call the handler, and refuse in Glance's shape.

    {"code": "404 Not Found", "title": "Not Found", "message": "..."}

Calls and problems are the compute API's: the two are parts of one house and differ in what they say.
"""

from http import HTTPStatus
from typing import Final

import msgspec

from berth.api.compute.api import Routes
from berth.api.compute.calls import Services, json
from berth.api.image import contents, images, schemas
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import JSON, Request, Response, origin_of
from berth.api.kernel.problem import Problem, outage_problem
from berth.engine import Overloaded, Unavailable

_PREFIX: Final = "/image"
_V2: Final = f"{_PREFIX}/v2"
ROUTES: Final = (*images.ROUTES, *contents.ROUTES, *schemas.ROUTES)
_OPEN: Final = frozenset((_PREFIX, f"{_PREFIX}/versions", _V2))
"""What anybody may read without a token: the versions."""
_MINOR: Final = 9
"""The newest version of Glance's API whose calls are those of this one."""


class ImageApi:
    PREFIX = _PREFIX

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes = Routes(ROUTES, below=_V2)

    def is_open(self, request: Request) -> bool:
        return request.path.rstrip("/") in _OPEN

    def refuse(self, problem: Problem, request: Request) -> Response:
        return _render(problem)

    async def handle(self, request: Request, caller: Caller | None) -> Response:
        try:
            return await self._answer(request, caller)
        except Problem as problem:
            return _render(problem)
        except (Overloaded, Unavailable) as outage:
            return _render(outage_problem(outage, request))

    async def _answer(self, request: Request, caller: Caller | None) -> Response:
        path = request.path.rstrip("/")
        if path in _OPEN:
            request.route = path
            return _versions(request)
        assert caller is not None, "only the versions are for everybody"
        route, params, template = self._routes.find(request.method, path)
        request.route = _V2 + template
        return await route.handler(route.admit(request, caller, params, 0, self._services))


def _versions(request: Request) -> Response:
    href = f"{origin_of(request)}{_V2}/"
    return json(
        {
            "versions": [
                {
                    "id": f"v2.{minor}",
                    "status": "CURRENT" if minor == _MINOR else "SUPPORTED",
                    "links": [{"rel": "self", "href": href}],
                }
                for minor in range(_MINOR, -1, -1)
            ]
        }
    )


def _render(problem: Problem) -> Response:
    title = HTTPStatus(problem.status).phrase
    body = {"code": f"{problem.status} {title}", "title": title, "message": problem.text}
    return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)
