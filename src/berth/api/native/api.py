"""/berth/v1 as one object: a request of a known caller goes in, a response comes out.

    path -> method -> policy -> media types -> parameters -> body -> handler

Every refusal on the way, whoever finds it, leaves through one door: a NativeProblem, rendered here.
"""

import msgspec

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.etags import StateTags
from berth.api.kernel.http import JSON, Request, Response
from berth.api.native import bodies, errors
from berth.api.native.calls import Call, Route, Services
from berth.api.native.errors import RETRY_SOON, NativeProblem, forbidden, render
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


def is_native(path: str) -> bool:
    return path.startswith(PREFIX) and (len(path) == len(PREFIX) or path[len(PREFIX)] == "/")


class NativeApi:
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

    async def handle(self, request: Request, caller: Caller) -> Response:
        try:
            return await self._answer(request, caller)
        except NativeProblem as problem:
            return render(problem, request)
        except Overloaded as overload:
            text = f"Too busy: {overload}. Try again in a moment."
            return render(NativeProblem(503, errors.OVERLOADED, text, headers=RETRY_SOON), request)
        except Unavailable as outage:
            text = f"The ledger cannot be reached: {outage}"
            return render(NativeProblem(503, errors.UNAVAILABLE, text, headers=RETRY_SOON), request)

    async def _answer(self, request: Request, caller: Caller) -> Response:
        found = find(request.path)
        if found is None:
            text = f"There is nothing here. Known are: {', '.join(TABLE)}."
            raise NativeProblem(404, errors.NOT_FOUND, text)
        template, params = found
        request.route = template
        routes = TABLE[template]
        route = routes.get(request.method)
        if route is None:
            known = ", ".join(routes)
            text = f"{request.method} is not known here, only {known}."
            raise NativeProblem(405, errors.METHOD_NOT_ALLOWED, text, headers=(("allow", known),))
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
        raise NativeProblem(415, errors.UNSUPPORTED_MEDIA, text)
    return bodies.decode(request.body, kind)


def _check_accept(route: Route, request: Request) -> None:
    accept = request.headers.get("accept")
    if accept is None or accept == JSON or accepts_json(effective(accept)):
        return
    if not (route.is_stream and EVENT_STREAM in accept):
        offered = f"{JSON} or {EVENT_STREAM}" if route.is_stream else JSON
        raise NativeProblem(406, errors.NOT_ACCEPTABLE, f"Only {offered} is provided.")
