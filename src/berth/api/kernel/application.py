"""The ASGI callable: one request in, one response out, whatever happens in between.

    request -> id -> health, or: caller -> an API -> cross-origin headers -> response -> log and metrics

Each API serves the paths below its prefix, such as /compute, and refuses in its own shape. All other paths
are those of the one without a prefix, the Placement API.

Nothing is decided here but who is asking. An unexpected exception becomes a 500 that names the
request, and a traceback in the log under the same name.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Final

from berth.api.kernel import codes
from berth.api.kernel.api import NOBODY, Api
from berth.api.kernel.auth.caller import Authenticator, AuthUnavailable, Caller
from berth.api.kernel.cors import Cors
from berth.api.kernel.health import PATHS as HEALTH_PATHS
from berth.api.kernel.health import Health
from berth.api.kernel.http import (
    BodyCutShort,
    BodyTooLarge,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    StreamResponse,
    read_body,
    request_from_scope,
    send_response,
    send_stream,
    wait_for_disconnect,
)
from berth.api.kernel.problem import RETRY_SOON, Problem, outage_problem
from berth.engine import ASKER, Asker, Unavailable
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.telemetry import Telemetry

_log = logging.getLogger(__name__)

REQUEST_ID_HEADER: Final = "x-openstack-request-id"

OPEN_BODY_BYTES_MAX: Final = 16 << 10
"""The largest body where no token is asked for: that of a login."""

_UNAUTHORIZED: Final = "The token in X-Auth-Token is missing or invalid, has expired or has been revoked."


class Application:
    """Serves HTTP. Starting and stopping what it stands on is its composer's business."""

    def __init__(
        self,
        apis: Sequence[Api],
        health: Health,
        authenticator: Authenticator,
        cors: Cors,
        clock: Clock,
        ids: Ids,
        telemetry: Telemetry,
        *,
        body_bytes_max: int,
        public_url: str | None = None,
    ) -> None:
        self._default = next(api for api in apis if not api.PREFIX)
        self._health = health
        self._authenticator = authenticator
        self._cors = cors
        self._clock = clock
        self._ids = ids
        self._telemetry = telemetry
        self._body_bytes_max = body_bytes_max
        self._public_url = public_url
        self._apis = {api.PREFIX.split("/", 2)[1]: api for api in apis if api.PREFIX}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_ns = self._clock.monotonic_ns()
        request = request_from_scope(scope)
        request.request_id = self._ids.request_id()
        request.public_url = self._public_url
        try:
            response = await self._respond(request, receive)
        except Exception:
            _log.exception(
                "%s %r failed", request.method, request.path, extra={"request_id": request.request_id}
            )
            text = f"Internal error. The log has the details under {request.request_id}."
            response = self._api_of(request).refuse(Problem(500, text, codes.UNEXPECTED), request)
        response.headers.append((REQUEST_ID_HEADER, request.request_id))
        if isinstance(response, StreamResponse):
            # Counted when it begins: how long a client listens says nothing about this server.
            self._report(request, response, started_ns)
            await send_stream(receive, send, response)
        else:
            await send_response(send, response)
            self._report(request, response, started_ns)

    def drain(self) -> None:
        """No more requests come: what would go on for ever ends."""
        for api in (self._default, *self._apis.values()):
            api.drain()

    def _report(self, request: Request, response: Response, started_ns: int) -> None:
        seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
        self._telemetry.request(request, response, request.route, seconds)

    async def _respond(self, request: Request, receive: Receive) -> Response:
        if request.path in HEALTH_PATHS:
            request.route = request.path
            return await self._health.handle(request)
        response = await self._call(self._api_of(request), request, receive)
        return self._cors.apply(request, response) if self._cors.enabled else response

    def _api_of(self, request: Request) -> Api:
        path = request.path
        api = self._apis.get(path[1:].partition("/")[0])
        if api is None or not (path == api.PREFIX or path.startswith(f"{api.PREFIX}/")):
            return self._default
        return api

    async def _call(self, api: Api, request: Request, receive: Receive) -> Response:
        try:
            caller = (
                NOBODY
                if api.is_open(request)
                else await self._authenticator.identify(request.headers, request.client)
            )
            if caller is None:
                return api.refuse(self._unauthorized(), request)
            if request.has_body:
                await self._read_body(request, receive, caller)
        except Problem as problem:
            return api.refuse(problem, request)
        except AuthUnavailable as outage:
            text = f"The caller cannot be identified: {outage}"
            return api.refuse(Problem(503, text, codes.UNAVAILABLE, headers=RETRY_SOON), request)
        except Unavailable as outage:
            return api.refuse(outage_problem(outage, request), request)
        _tell_asker(caller, receive)
        return await api.handle(request, caller)

    def _unauthorized(self) -> Problem:
        challenge = self._authenticator.challenge
        headers = () if challenge is None else (("www-authenticate", challenge),)
        return Problem(401, _UNAUTHORIZED, codes.UNAUTHORIZED, headers=headers)

    async def _read_body(self, request: Request, receive: Receive, caller: Caller) -> None:
        limit = self._body_bytes_max if caller is not NOBODY else OPEN_BODY_BYTES_MAX
        try:
            request.body = await read_body(receive, limit, request.told_length)
        except BodyCutShort:
            # The client is gone: only the log has this.
            raise Problem(400, "The body ended before its length.", codes.UNEXPECTED) from None
        except BodyTooLarge:
            text = f"The body is larger than the limit of {limit} bytes. Send several smaller requests."
            raise Problem(413, text, codes.BODY_TOO_LARGE) from None


def _tell_asker(caller: Caller, receive: Receive) -> None:
    """Tell the engine on whose behalf this task asks, and how it learns that the client has left."""
    project = caller.project_id or caller.user_id or ""
    ASKER.set(Asker(project, functools.partial(wait_for_disconnect, receive)))
