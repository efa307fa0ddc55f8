"""/berth/v1 as one object: a request of a known caller goes in, a response comes out.

    path -> method -> policy -> media types -> parameters -> body -> handler

Every refusal on the way, whoever finds it, leaves through one door: a Problem, rendered here.
"""

import msgspec

from berth.api.kernel import codes
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.etags import StateTags
from berth.api.kernel.http import JSON, Request, Response
from berth.api.kernel.problem import Problem, forbidden, outage_problem
from berth.api.native import bodies
from berth.api.native.calls import Call, Route, Services
from berth.api.native.errors import render
from berth.api.native.events import EVENT_STREAM
from berth.api.native.feed import Feed
from berth.api.native.parameters import decode
from berth.api.native.routes import PREFIX, TABLE, find
from berth.api.placement.accept import accepts_json, effective
from berth.engine import Engine, Overloaded, Unavailable
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas.proposals import read_quotas
from berth.scheduler.options import SchedulerOptions


class NativeApi:
    PREFIX = PREFIX

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        settings: Settings,
        scheduler: SchedulerOptions,
        clock: Clock,
        ids: Ids,
    ) -> None:
        feed = Feed(engine, settings.event_streams_max, settings.event_heartbeat_seconds)
        self._services = Services(
            engine,
            feed,
            StateTags(settings),
            ids,
            clock,
            scheduler,
            policy,
            settings.conflict_policy,
            settings.build_attempts_max,
            settings.conflict_repeat,
            # Without cells there are no servers: nothing is counted, and nobody could set a quota.
            read_quotas(settings) if settings.cells else None,
        )

    def drain(self) -> None:
        """No more requests come: end the streams, which would go on for ever."""
        self._services.feed.stop()

    def is_open(self, request: Request) -> bool:
        return False

    def refuse(self, problem: Problem, request: Request) -> Response:
        return render(problem, request)

    async def handle(self, request: Request, caller: Caller | None) -> Response:
        assert caller is not None, "nothing here is open"
        try:
            return await self._answer(request, caller)
        except Problem as problem:
            return render(problem, request)
        except (Overloaded, Unavailable) as outage:
            return render(outage_problem(outage, request), request)

    async def _answer(self, request: Request, caller: Caller) -> Response:
        found = find(request.path)
        if found is None:
            text = f"There is nothing here. Known are: {', '.join(TABLE)}."
            raise Problem(404, text, codes.NOT_FOUND)
        template, params = found
        request.route = template
        routes = TABLE[template]
        route = routes.get(request.method)
        if route is None:
            known = ", ".join(routes)
            text = f"{request.method} is not known here, only {known}."
            raise Problem(405, text, codes.METHOD_NOT_ALLOWED, headers=(("allow", known),))
        if not self._services.policy.allows(route.rule, caller):
            raise forbidden(route.rule)
        _check_accept(route, request)
        query = decode(request.query_string, route.query)
        body = None if route.body is None else _decoded_body(request, route.body)
        return await route.handler(Call(request, caller, params, query, body, route.rule, self._services))


def _decoded_body(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    sent = request.headers.get("content-type", JSON).partition(";")[0].strip()
    if sent != JSON:
        text = f"The body is {sent}; send {JSON}."
        raise Problem(415, text, codes.UNSUPPORTED_MEDIA)
    return bodies.decode(request.body, kind)


def _check_accept(route: Route, request: Request) -> None:
    accept = request.headers.get("accept")
    if accept is None or accept == JSON or accepts_json(effective(accept)):
        return
    if not (route.is_stream and EVENT_STREAM in accept):
        offered = f"{JSON} or {EVENT_STREAM}" if route.is_stream else JSON
        raise Problem(406, f"Only {offered} is provided.", codes.NOT_ACCEPTABLE)
