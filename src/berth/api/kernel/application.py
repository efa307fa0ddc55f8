"""The ASGI callable: one request in, one response out, whatever happens in between.

    request -> id -> health, or: caller -> an API -> cross-origin headers -> response -> log and metrics

Paths under /berth/v1 are the native API's; other APIs are mounted below a first part of their own, such as
/compute; all others are the Placement API's. Each refuses in its own words.

Nothing is decided here but who is asking. An exception that nobody expected becomes a 500 that names the
request, and a traceback in the log under the same name.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Final, Protocol

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
from berth.api.native import errors as native
from berth.api.native.api import NativeApi, is_native
from berth.api.native.errors import NativeProblem
from berth.api.placement.api import PlacementApi
from berth.api.placement.error_bodies import render, render_outside, render_unauthorized
from berth.api.placement.errors import Problem
from berth.engine import ASKER, Asker
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.telemetry import Telemetry

_log = logging.getLogger(__name__)

REQUEST_ID_HEADER: Final = "x-openstack-request-id"

OPEN_BODY_BYTES_MAX: Final = 16 << 10
"""The largest body where no token is asked for: that of a login."""

_UNAUTHORIZED: Final = "The token in X-Auth-Token is missing or invalid, has expired or has been revoked."

_OPEN_PATHS: Final = frozenset(("/", ""))
"""What anybody may read without a token."""


class MountedApi(Protocol):
    """An API of its own below a first part of the path. It refuses in its own shapes."""

    PREFIX: str

    def is_open(self, request: Request) -> bool:
        """Whether anybody may ask this, without a token."""

    async def handle(self, request: Request, caller: Caller | None) -> Response: ...

    def refuse(self, status: int, text: str) -> Response: ...


class Application:
    """Serves HTTP. Starting and stopping what it stands on is its composer's business."""

    def __init__(
        self,
        placement: PlacementApi,
        native_api: NativeApi,
        health: Health,
        authenticator: Authenticator,
        cors: Cors,
        clock: Clock,
        ids: Ids,
        telemetry: Telemetry,
        *,
        body_bytes_max: int,
        public_url: str | None = None,
        mounted: Sequence[MountedApi] = (),
    ) -> None:
        self._placement = placement
        self._native = native_api
        self._health = health
        self._authenticator = authenticator
        self._cors = cors
        self._clock = clock
        self._ids = ids
        self._telemetry = telemetry
        self._body_bytes_max = body_bytes_max
        self._public_url = public_url
        self._mounted = {api.PREFIX: api for api in mounted}

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
            response = _unexpected(request)
        response.headers.append((REQUEST_ID_HEADER, request.request_id))
        if isinstance(response, StreamResponse):
            # Counted when it begins: how long somebody listens says nothing about this server.
            self._report(request, response, started_ns)
            await send_stream(receive, send, response)
        else:
            await send_response(send, response)
            self._report(request, response, started_ns)

    def _report(self, request: Request, response: Response, started_ns: int) -> None:
        seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
        self._telemetry.request(request, response, request.route, seconds)

    async def _respond(self, request: Request, receive: Receive) -> Response:
        if request.path in HEALTH_PATHS:
            request.route = request.path
            return await self._health.handle(request)
        mounted = self._mounted.get("/" + request.path[1:].partition("/")[0]) if self._mounted else None
        if mounted is not None:
            response = await self._call_mounted(mounted, request, receive)
        else:
            response = await self._call_api(request, receive)
        return self._cors.apply(request, response) if self._cors.enabled else response

    async def _call_api(self, request: Request, receive: Receive) -> Response:
        caller: Caller | None = None
        if request.path not in _OPEN_PATHS:
            try:
                caller = await self._authenticator.identify(request.headers, request.client)
            except AuthUnavailable as outage:
                problem = Problem(503, f"The caller cannot be identified: {outage}")
                if is_native(request.path):
                    return _refuse(problem, native.UNAVAILABLE, request)
                return render(problem, request, None)
            if caller is None:
                return self._refuse_unknown(request)
        try:
            await self._read_body(request, receive, caller)
        except BodyCutShort:
            # Nobody will read this but the log.
            return _refuse(Problem(400, "The body ended early."), native.UNEXPECTED, request)
        except BodyTooLarge as error:
            text = f"The body is larger than the limit of {error.limit} bytes. Send it in smaller parts."
            return _refuse(Problem(413, text), native.BODY_TOO_LARGE, request)
        _tell_asker(caller, receive)
        if caller is not None and is_native(request.path):
            return await self._native.handle(request, caller)
        return await self._placement.handle(request, caller)

    async def _call_mounted(self, api: MountedApi, request: Request, receive: Receive) -> Response:
        caller: Caller | None = None
        if not api.is_open(request):
            try:
                caller = await self._authenticator.identify(request.headers, request.client)
            except AuthUnavailable as outage:
                return api.refuse(503, f"The caller cannot be identified: {outage}")
            if caller is None:
                return api.refuse(401, _UNAUTHORIZED)
        try:
            await self._read_body(request, receive, caller)
        except BodyCutShort:
            return api.refuse(400, "The body ended early.")
        except BodyTooLarge as error:
            return api.refuse(413, f"The body is larger than the limit of {error.limit} bytes.")
        _tell_asker(caller, receive)
        return await api.handle(request, caller)

    async def _read_body(self, request: Request, receive: Receive, caller: Caller | None) -> None:
        if request.has_body:
            limit = self._body_bytes_max if caller is not None else OPEN_BODY_BYTES_MAX
            request.body = await read_body(receive, limit, request.told_length)

    def _refuse_unknown(self, request: Request) -> Response:
        challenge = self._authenticator.challenge
        if not is_native(request.path):
            return render_unauthorized(request, challenge)
        headers = () if challenge is None else (("www-authenticate", challenge),)
        return native.render(NativeProblem(401, native.UNAUTHORIZED, _UNAUTHORIZED, headers=headers), request)


def _tell_asker(caller: Caller | None, receive: Receive) -> None:
    """Tell the engine on whose behalf this task asks, and how it learns that the client has left."""
    project = (caller.project_id or caller.user_id or "") if caller is not None else ""
    ASKER.set(Asker(project, functools.partial(wait_for_disconnect, receive)))


def _unexpected(request: Request) -> Response:
    text = f"An unexpected error prevented this. The log has it under {request.request_id}."
    return _refuse(Problem(500, text), native.UNEXPECTED, request)


def _refuse(problem: Problem, code: str, request: Request) -> Response:
    """A refusal before any API was reached, in the shape of the one that was called."""
    if is_native(request.path):
        return native.render(NativeProblem(problem.status, code, problem.text), request)
    return render_outside(problem, request)
