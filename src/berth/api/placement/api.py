"""The Placement API as one object: a request of a known caller goes in, a response comes out."""

from collections.abc import Mapping
from typing import Final

from berth.api.kernel.application import Api
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Services
from berth.api.kernel.etags import CONDITION, StateTags, add_tag, is_named, make_body_tag
from berth.api.kernel.etags import HEADER as ETAG
from berth.api.kernel.http import JSON, Request, Response, accepts_json, effective_accept
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Router
from berth.api.placement.calls import PlacementCall
from berth.api.placement.error_bodies import render
from berth.api.placement.routes import ROUTES, PlacementRoute
from berth.api.placement.versions import HEADER, VARY_HEADER, VERSION_HEADER, negotiate

_OPEN: Final = frozenset(("/", ""))
"""What anybody may read without a token: the versions."""
_ROUTER: Final = Router(ROUTES)


class PlacementApi(Api):
    PREFIX = ""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tags = StateTags(services.settings)

    def is_open(self, request: Request) -> bool:
        return request.path in _OPEN

    def refuse(self, problem: Problem, request: Request) -> Response:
        return render(problem, request)

    async def answer(self, request: Request, caller: Caller) -> Response:
        headers = request.headers
        version = negotiate(headers.get(HEADER))
        _check_length(headers)
        found = _ROUTER.find(request.path or "/")
        if found is None:
            raise Problem(404, bare=True)
        resource, params = found
        request.route = resource.template
        route = resource.routes.get(request.method)
        if route is None:
            text = "The method specified is not allowed for this resource."
            raise Problem(405, text, headers=(("allow", resource.allow),))
        if route.media_first:
            _check_media(route, version, headers)
            _check_version(route, version)
        else:
            _check_version(route, version)
            _check_media(route, version, headers)
        call = PlacementCall(request, caller, params, self._services, version)
        if route.policy is not None:
            project = call.query.get("project_id") if route.of_project else None
            if not self._services.policy.allows(route.policy, caller, project):
                raise Problem(403, f"Policy does not allow {route.policy} to be performed.", bare=True)
        answer = await (self._read(route, call) if request.method == "GET" else route.handler(call))
        if isinstance(answer, Problem):
            raise answer
        answer.headers += (VERSION_HEADER[version], VARY_HEADER)
        return answer

    async def _read(self, route: PlacementRoute, call: PlacementCall) -> Response | Problem:
        """The handler's answer with its tag, or 304 to a client that has it already."""
        request, version = call.request, call.version
        if route.is_search and CONDITION in request.headers:
            index = await self._services.engine.read(lambda view: view.index)
            tag = self._tags.tag(index, request, version)
            if is_named(request, tag):
                # The tag is of this request: it was answered before, and the answer is still the same.
                return call.dated(Response(304, headers=[(ETAG, tag)]), None)
        answer = await route.handler(call)
        if isinstance(answer, Problem) or answer.status != 200:
            return answer
        if not route.is_search:
            return add_tag(request, answer, make_body_tag(answer.body))
        if self._services.settings.randomize_allocation_candidates or call.index is None:
            return answer
        return add_tag(request, answer, self._tags.tag(call.index, request, version))


def _check_length(headers: Mapping[str, str]) -> None:
    length = headers.get("content-length")
    if not length:
        return
    try:
        has_body = int(length) > 0
    except ValueError:
        raise Problem(400, "content-length header must be an integer", bare=True) from None
    if has_body and not headers.get("content-type"):
        raise Problem(400, "content-type header required when content-length > 0", bare=True)


def _check_version(route: PlacementRoute, version: int) -> None:
    if version < route.since:
        raise Problem(route.too_new)


def _check_media(route: PlacementRoute, version: int, headers: Mapping[str, str]) -> None:
    if version <= route.json_until:
        sent = headers.get("content-type", "")
        if sent != JSON and sent.partition(";")[0].strip() != JSON:
            kind = sent.partition(";")[0].strip() or "None"
            raise Problem(415, f"The media type {kind} is not supported, use {JSON}")
    if route.checks_accept:
        accept = headers.get("accept")
        if accept is not None and accept != JSON and not accepts_json(effective_accept(accept)):
            raise Problem(406, f"Only {JSON} is provided")
