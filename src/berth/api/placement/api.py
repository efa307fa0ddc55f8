"""The Placement API as one object: a request of a known caller goes in, a response comes out.

Every refusal on the way, whoever finds it, leaves through one door: a Problem, rendered here.
"""

from collections.abc import Mapping
from typing import Final

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.etags import CONDITION, StateTags, body_tag, names, tagged
from berth.api.kernel.etags import HEADER as ETAG
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem, outage_problem
from berth.api.placement.accept import accepts_json, effective
from berth.api.placement.calls import Call
from berth.api.placement.error_bodies import render, render_outside
from berth.api.placement.routes import Route, find
from berth.api.placement.versions import HEADER, VARY_HEADER, VERSION_HEADER, negotiate
from berth.engine import Engine, Overloaded, Unavailable
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings

_OPEN: Final = frozenset(("/", ""))
"""What anybody may read without a token: the versions."""


class PlacementApi:
    PREFIX = ""

    def __init__(self, engine: Engine, policy: Policy, settings: Settings, clock: Clock, ids: Ids) -> None:
        self._engine = engine
        self._policy = policy
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._tags = StateTags(settings)

    def is_open(self, request: Request) -> bool:
        return request.path in _OPEN

    def refuse(self, problem: Problem, request: Request) -> Response:
        return render_outside(problem, request)

    async def handle(self, request: Request, caller: Caller | None) -> Response:
        """The response to a request. ``caller`` None: nobody in particular, who may see the root only."""
        try:
            version = negotiate(request.headers.get(HEADER))
        except Problem as problem:
            return render(problem, request, None)
        try:
            answer = await self._answer(request, caller, version)
        except Problem as problem:
            answer = problem
        except (Overloaded, Unavailable) as outage:
            answer = outage_problem(outage, request)
        if isinstance(answer, Problem):
            response = render(answer, request, version)
            response.headers.append(VERSION_HEADER[version])
            if not answer.bare:
                response.headers.append(VARY_HEADER)
            return response
        answer.headers += (VERSION_HEADER[version], VARY_HEADER)
        return answer

    async def _answer(self, request: Request, caller: Caller | None, version: int) -> Response | Problem:
        headers = request.headers
        _check_length(headers)
        found = find(request.path)
        if found is None:
            return Problem(404, bare=True)
        resource, params = found
        request.route = resource.template
        route = resource.routes.get(request.method)
        if route is None:
            return Problem(
                405,
                "The method specified is not allowed for this resource.",
                headers=(("allow", resource.allow),),
            )
        if route.media_first:
            _check_media(route, version, headers)
            _check_version(route, version)
        else:
            _check_version(route, version)
            _check_media(route, version, headers)
        call = Call(
            request,
            version,
            caller,
            params,
            resource.actions[request.method],
            self._engine,
            self._settings,
            self._clock,
            self._ids,
        )
        if route.rule is not None:
            self._check_policy(route.rule, call, call.query.get("project_id") if route.of_project else None)
        return await (self._read(route, call) if request.method == "GET" else route.handler(call))

    async def _read(self, route: Route, call: Call) -> Response | Problem:
        """The handler's answer with its tag, or 304 to a client that has it already."""
        request, version = call.request, call.version
        if route.is_search and CONDITION in request.headers:
            index = await self._engine.read(lambda view: view.index)
            tag = self._tags.tag(index, request, version)
            if names(request, tag):
                # The tag is of this very request: it was answered before, and the answer is still so.
                return call.dated(Response(304, headers=[(ETAG, tag)]), None)
        answer = await route.handler(call)
        if isinstance(answer, Problem) or answer.status != 200:
            return answer
        if not route.is_search:
            return tagged(request, answer, body_tag(answer.body))
        if self._settings.randomize_allocation_candidates or call.index is None:
            return answer
        return tagged(request, answer, self._tags.tag(call.index, request, version))

    def _check_policy(self, rule: str, call: Call, project_id: str | None) -> None:
        if call.caller is None or not self._policy.allows(rule, call.caller, project_id):
            raise Problem(403, f"Policy does not allow {rule} to be performed.", bare=True)


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


def _check_version(route: Route, version: int) -> None:
    if version < route.since:
        raise Problem(route.too_new)


def _check_media(route: Route, version: int, headers: Mapping[str, str]) -> None:
    if version <= route.json_until:
        sent = headers.get("content-type", "")
        if sent != JSON and sent.partition(";")[0].strip() != JSON:
            kind = sent.partition(";")[0].strip() or "None"
            raise Problem(415, f"The media type {kind} is not supported, use {JSON}")
    if route.checks_accept:
        accept = headers.get("accept")
        if accept is not None and accept != JSON and not accepts_json(effective(accept)):
            raise Problem(406, f"Only {JSON} is provided")
