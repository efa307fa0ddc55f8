"""/berth/v1 as one object: a request of a known caller goes in, a response comes out.

path -> method -> policy -> media types -> parameters -> body -> handler
"""

from typing import Final

import msgspec

from berth.api.kernel import codes
from berth.api.kernel.application import Api
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Services
from berth.api.kernel.etags import StateTags
from berth.api.kernel.http import JSON, Request, Response, accepts_json, effective_accept
from berth.api.kernel.problem import Problem, forbidden
from berth.api.kernel.router import Router
from berth.api.native.calls import NativeCall, NativeRoute, decode_body, decode_query, render
from berth.api.native.events import EVENT_STREAM, Feed
from berth.api.native.overview import KeptOverview
from berth.api.native.routes import PREFIX, ROUTES
from berth.model.placement import NAME_LENGTH_MAX

_PART_MAX: Final = NAME_LENGTH_MAX
"""No id is longer, and no name."""
_ROUTER: Final = Router(ROUTES, below=PREFIX, part_max=_PART_MAX, names_paths=True)


class NativeApi(Api):
    PREFIX = PREFIX

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self._services = services
        self._tags = StateTags(settings)
        self._feed = Feed(services.engine, settings.event_streams_max, settings.event_heartbeat_seconds)
        self._overview = KeptOverview(services)

    def drain(self) -> None:
        self._feed.stop()
        self._overview.stop()

    def refuse(self, problem: Problem, request: Request) -> Response:
        return render(problem, request)

    async def answer(self, request: Request, caller: Caller) -> Response:
        route, params, request.route = _ROUTER.match(request.method, request.path)
        assert route.policy is not None, "nothing here is open"
        if not self._services.policy.allows(route.policy, caller):
            raise forbidden(route.policy)
        _check_accept(route, request)
        query = decode_query(request.query_string, route.query)
        body = None if route.body is None else _decoded_body(request, route.body)
        call = NativeCall(
            request,
            caller,
            params,
            self._services,
            (route.policy,),
            query=query,
            body=body,
            feed=self._feed,
            tags=self._tags,
            overview=self._overview,
        )
        return await route.handler(call)


def _decoded_body(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    sent = request.headers.get("content-type", JSON).partition(";")[0].strip()
    if sent != JSON:
        text = f"The body is {sent}; send {JSON}."
        raise Problem(415, text, codes.UNSUPPORTED_MEDIA)
    return decode_body(request.body, kind)


def _check_accept(route: NativeRoute, request: Request) -> None:
    accept = request.headers.get("accept")
    if accept is None or accept == JSON or accepts_json(effective_accept(accept)):
        return
    if not (route.is_stream and EVENT_STREAM in accept):
        offered = f"{JSON} or {EVENT_STREAM}" if route.is_stream else JSON
        raise Problem(406, f"Only {offered} is provided.", codes.NOT_ACCEPTABLE)
