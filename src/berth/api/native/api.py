"""/berth/v1 as one object: a request of a known caller goes in, a response comes out.

    path -> method -> policy -> media type -> parameters -> handler

Every refusal on the way, whoever finds it, leaves through one door: a NativeProblem, rendered here.
"""

from berth.api.auth.caller import Caller
from berth.api.auth.policy import Policy
from berth.api.etags import StateTags
from berth.api.http import JSON, Request, Response
from berth.api.native import errors
from berth.api.native.calls import Call, Route
from berth.api.native.errors import RETRY_SOON, NativeProblem, render
from berth.api.native.events import EVENT_STREAM
from berth.api.native.feed import Feed
from berth.api.native.parameters import decode
from berth.api.native.routes import PREFIX, TABLE
from berth.api.placement.accept import accepts_json, effective
from berth.engine import Engine, Overloaded, Unavailable
from berth.runtime.settings import Settings


def is_native(path: str) -> bool:
    return path.startswith(PREFIX) and (len(path) == len(PREFIX) or path[len(PREFIX)] == "/")


class NativeApi:
    def __init__(self, engine: Engine, policy: Policy, settings: Settings) -> None:
        self._engine = engine
        self._policy = policy
        self._tags = StateTags(settings)
        self._feed = Feed(engine, settings.event_streams_max, settings.event_heartbeat_seconds)

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
        route = TABLE.get(request.path)
        if route is None:
            text = f"There is nothing here. Known are: {', '.join(TABLE)}."
            raise NativeProblem(404, errors.NOT_FOUND, text)
        request.route = request.path
        if request.method != "GET":
            text = f"{request.method} is not known here, only GET."
            raise NativeProblem(405, errors.METHOD_NOT_ALLOWED, text, headers=(("allow", "GET"),))
        if route.rule is not None and not self._policy.allows(route.rule, caller):
            raise NativeProblem(403, errors.FORBIDDEN, f"Policy does not allow {route.rule}.")
        _check_accept(route, request)
        query = decode(request.query_string, route.query)
        return await route.handler(Call(request, query, self._engine, self._feed, self._tags))


def _check_accept(route: Route, request: Request) -> None:
    accept = request.headers.get("accept")
    if accept is None or accept == JSON or accepts_json(effective(accept)):
        return
    if not (route.is_stream and EVENT_STREAM in accept):
        offered = f"{JSON} or {EVENT_STREAM}" if route.is_stream else JSON
        raise NativeProblem(406, errors.NOT_ACCEPTABLE, f"Only {offered} is provided.")
