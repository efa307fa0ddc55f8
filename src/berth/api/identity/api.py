"""The identity API: versions and logging in are for everybody, the rest for those who have logged in.

Refusals are in Keystone's shape: {"error": {"code": 401, "title": "Unauthorized", "message": "..."}}
"""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from berth.api.compute.api import Routes
from berth.api.compute.calls import Route, Services, json
from berth.api.identity.directory import Directory
from berth.api.identity.issuers import Issuer
from berth.api.identity.revocations import Revocations
from berth.api.identity.tokens import TokenDesk
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import JSON, Request, Response, origin_of
from berth.api.kernel.problem import Problem, outage_problem
from berth.engine import Overloaded, Unavailable

_PREFIX: Final = "/identity"
_V3: Final = f"{_PREFIX}/v3"
_VERSIONS: Final = frozenset((_PREFIX, _V3))
_TOKENS: Final = f"{_V3}/auth/tokens"


class IdentityApi:
    PREFIX = _PREFIX

    def __init__(self, services: Services, issuer: Issuer) -> None:
        self._services = services
        self._desk = TokenDesk(issuer, Revocations(services.engine), services.clock, services.ids)
        self.routes: Final = (
            *Directory(issuer).routes,
            Route("GET", "/auth/tokens", self._desk.show, "identity:validate_token"),
            Route("DELETE", "/auth/tokens", self._desk.revoke, "identity:revoke_token"),
        )
        self._routes = Routes(self.routes, below=_V3)

    def is_open(self, request: Request) -> bool:
        return request.path.rstrip("/") in _VERSIONS or _is_login(request)

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
        if path in _VERSIONS:
            request.route = path
            return _versions(request)
        if _is_login(request):
            request.route = _TOKENS
            return await self._desk.log_in(request)
        assert caller is not None, "the rest is for those who are known"
        route, params, template = self._routes.find(request.method, path)
        request.route = _V3 + template
        return await route.handler(route.admit(request, caller, params, 0, self._services))


def _is_login(request: Request) -> bool:
    return request.method == "POST" and request.path.rstrip("/") == _TOKENS


def _versions(request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise Problem(405, f"Not here: {request.method}. Allowed: GET.", headers=(("allow", "GET"),))
    version: dict[str, Any] = {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{origin_of(request)}{_V3}/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }
    if request.path.rstrip("/") == _PREFIX:
        return json({"versions": {"values": [version]}})
    return json({"version": version})


def _render(problem: Problem) -> Response:
    title = HTTPStatus(problem.status).phrase
    body = {"error": {"code": problem.status, "title": title, "message": problem.text}}
    return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)
