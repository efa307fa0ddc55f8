"""The identity API: versions and logging in are for everybody, the rest for those who have logged in.

Refusals are in Keystone's shape: {"error": {"code": 401, "title": "Unauthorized", "message": "..."}}
"""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from berth.api.identity.directory import Directory, Issuer
from berth.api.identity.tokens import Revocations, TokenHandlers
from berth.api.kernel.application import RoutedApi
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Services, json
from berth.api.kernel.http import JSON, Request, Response, read_origin
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route, Router

_PREFIX: Final = "/identity"
_V3: Final = f"{_PREFIX}/v3"
_TOKENS: Final = f"{_V3}/auth/tokens"


class IdentityApi(RoutedApi):
    PREFIX = _PREFIX

    def __init__(self, services: Services, issuer: Issuer) -> None:
        self._tokens = TokenHandlers(
            issuer,
            Revocations(services.engine),
            services.clock,
            services.ids,
            services.settings.image_endpoint,
        )
        self.routes: Final = (
            *Directory(issuer).routes,
            Route("GET", "/auth/tokens", self._tokens.show, policy="identity:validate_token"),
            Route("DELETE", "/auth/tokens", self._tokens.revoke, policy="identity:revoke_token"),
        )
        super().__init__(services, Router(self.routes, below=_V3), versions_at=(_PREFIX, _V3))

    def is_open(self, request: Request) -> bool:
        return super().is_open(request) or _is_login(request)

    async def answer(self, request: Request, caller: Caller) -> Response:
        if _is_login(request):
            request.route = _TOKENS
            return await self._tokens.log_in(request)
        return await super().answer(request, caller)

    def refuse(self, problem: Problem, request: Request) -> Response:
        title = HTTPStatus(problem.status).phrase
        body = {"error": {"code": problem.status, "title": title, "message": problem.text}}
        return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)

    def show_versions(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise Problem(
                405, f"{request.method} is not allowed here, only GET.", headers=(("allow", "GET"),)
            )
        version: dict[str, Any] = {
            "id": "v3.14",
            "status": "stable",
            "updated": "2020-04-07T00:00:00Z",
            "links": [{"rel": "self", "href": f"{read_origin(request)}{_V3}/"}],
            "media-types": [
                {"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}
            ],
        }
        if request.path.rstrip("/") == _PREFIX:
            return json({"versions": {"values": [version]}})
        return json({"version": version})


def _is_login(request: Request) -> bool:
    return request.method == "POST" and request.path.rstrip("/") == _TOKENS
