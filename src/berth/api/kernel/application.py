"""The ASGI callable, and what the APIs behind it are: one request in, one response out, whatever happens in
between.

    request -> id -> health, or: caller -> an API -> cross-origin headers -> response -> log and metrics

Each API serves the paths below its prefix, such as /compute, and refuses in its own shape. All other paths
are those of the one without a prefix, the Placement API, but for what an API with a prefix claims: / as a
browser asks for it.

Nothing is decided here but who is asking. An unexpected exception becomes a 500 that names the
request, and a traceback in the log under the same name.
"""

import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from berth.api.kernel import codes
from berth.api.kernel.auth.caller import Authenticator, AuthUnavailable, Caller
from berth.api.kernel.call import Handler, Services, admit
from berth.api.kernel.compression import compress
from berth.api.kernel.health import PATHS as HEALTH_PATHS
from berth.api.kernel.health import Health
from berth.api.kernel.http import (
    REQUEST_ID_HEADER,
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
    stream_body,
    wait_for_disconnect,
)
from berth.api.kernel.problem import RETRY_SOON, Problem, outage_problem
from berth.api.kernel.router import Route, Router
from berth.engine import ASKER, Asker, Overloaded, Unavailable
from berth.runtime import tracing
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.telemetry import Telemetry

_log = logging.getLogger(__name__)

OPEN_BODY_BYTES_MAX: Final = 16 << 10
"""The largest body where no token is asked for: that of a login."""

_UNAUTHORIZED: Final = "The token in X-Auth-Token is missing or invalid, has expired or has been revoked."

NOBODY: Final = Caller(None, None, ())
"""Who asks what is open, without a token. No rule lets it do anything else."""

_METHODS: Final = frozenset(("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PATCH"))

_SIMPLE_HEADERS: Final = frozenset(
    (
        "accept",
        "accept-language",
        "content-type",
        "cache-control",
        "content-language",
        "expires",
        "last-modified",
        "pragma",
    )
)

_MAX_AGE_S: Final = 3600

_CLAIMABLE: Final = frozenset(("/", "/favicon.ico"))
"""Paths below no prefix that an API with a prefix may claim."""


# -- what an API is -----------------------------------------------------------------------------


class Api(ABC):
    PREFIX: ClassVar[str]

    def is_open(self, request: Request) -> bool:
        """Whether anybody may ask this, without a token."""
        return False

    def drain(self) -> None:  # noqa: B027
        """No more requests come: end what would go on for ever, if there is such a thing."""

    def claims(self, request: Request) -> bool:
        """Whether it serves this request although the path is not below its prefix."""
        return False

    def streams_body(self, method: str, path: str) -> bool:
        """Whether it takes the body of such a request piece by piece, however long it is."""
        return False

    @abstractmethod
    async def answer(self, request: Request, caller: Caller) -> Response:
        """The response; Problem if there is none."""

    @abstractmethod
    def refuse(self, problem: Problem, request: Request) -> Response:
        """The response to a request that is refused, in the API's own shape."""

    async def handle(self, request: Request, caller: Caller) -> Response:
        try:
            return await self.answer(request, caller)
        except Problem as problem:
            return self.refuse(problem, request)
        except (Overloaded, Unavailable) as outage:
            return self.refuse(outage_problem(outage, request), request)


class RoutedApi(Api):
    """One with a table of routes, as the services of OpenStack have them: paths end with or without a slash,
    HEAD is a GET, and anybody may read the versions."""

    def __init__(
        self, services: Services, router: Router[Route[Handler]], versions_at: Iterable[str]
    ) -> None:
        self._services = services
        self._router = router
        self._versions_at = frozenset(versions_at)

    def is_open(self, request: Request) -> bool:
        return request.path.rstrip("/") in self._versions_at

    @abstractmethod
    def show_versions(self, request: Request) -> Response: ...

    def version_of(self, request: Request) -> int:
        """The minor of the microversion that a request speaks, where there are such."""
        return 0

    async def answer(self, request: Request, caller: Caller) -> Response:
        version = self.version_of(request)
        path = request.path.rstrip("/")
        if path in self._versions_at:
            request.route = path
            return self.show_versions(request)
        method = "GET" if request.method == "HEAD" else request.method
        route, params, request.route = self._router.match(method, path)
        return await route.handler(admit(route, request, caller, params, self._services, version))


# -- what every request passes through ----------------------------------------------------------


class Cors:
    """Cross-origin requests: which pages of other sites may call the APIs from a browser.

    The behaviour is that of the OpenStack services: a preflight is always 200, and whether it allows anything
    is in its headers. With no origin allowed there is no such handling at all.
    """

    def __init__(self, allowed_origins: Iterable[str], allow_headers: Iterable[str]) -> None:
        self._origins = frozenset(allowed_origins)
        self._headers = _SIMPLE_HEADERS | {name.lower() for name in allow_headers}
        self.enabled: Final = bool(self._origins)

    def apply(self, request: Request, response: Response) -> Response:
        """The response with the headers that a browser looks for."""
        if request.method == "OPTIONS":
            return self._preflight(request, response)
        origin = self._allowed_origin(request)
        if origin is not None:
            headers = [(name, value) for name, value in response.headers if name != "vary"]
            vary = [value for name, value in response.headers if name == "vary"]
            headers.append(("vary", ",".join([*vary, "Origin"])))
            response.headers = [*headers, *_permission(origin)]
        return response

    def _preflight(self, request: Request, response: Response) -> Response:
        # Whatever the API made of OPTIONS (it knows no such method), a preflight is answered.
        if not 200 <= response.status < 300:
            response = Response(200)
        origin = self._allowed_origin(request)
        method = request.headers.get("access-control-request-method")
        if origin is None or method not in _METHODS:
            return response
        asked = request.headers.get("access-control-request-headers", "").split(",")
        wanted = [name.strip() for name in asked if name.strip()]
        if not all(name.lower() in self._headers for name in wanted):
            return response
        response.headers += [
            ("vary", "Origin"),
            *_permission(origin),
            ("access-control-max-age", str(_MAX_AGE_S)),
            ("access-control-allow-methods", method),
        ]
        if wanted:
            response.headers.append(("access-control-allow-headers", ",".join(wanted)))
        return response

    def _allowed_origin(self, request: Request) -> str | None:
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return origin
        return "*" if "*" in self._origins else None


def _permission(origin: str) -> list[tuple[str, str]]:
    return [("access-control-allow-origin", origin), ("access-control-allow-credentials", "true")]


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
            respond = self._respond_traced if tracing.is_on() else self._respond
            response = await respond(request, receive)
        except Exception:
            _log.exception("%s %r failed", request.method, request.path, extra={"request_id": request.ids})
            text = f"Internal error. The log has the details under {request.request_id}."
            response = self._api_of(request).refuse(Problem(500, text, codes.UNEXPECTED), request)
        response.headers.append((REQUEST_ID_HEADER, request.request_id))
        if isinstance(response, StreamResponse):
            # Counted when it begins: how long a client listens says nothing about this server.
            self._report(request, response, started_ns)
            await self._send_stream(receive, send, response)
        else:
            await compress(request, response)
            await send_response(send, response)
            self._report(request, response, started_ns)

    async def _send_stream(self, receive: Receive, send: Send, response: StreamResponse) -> None:
        if response.length is not None:
            await send_stream(receive, send, response)
            return
        self._telemetry.stream_begun()
        try:
            await send_stream(receive, send, response)
        finally:
            self._telemetry.stream_ended()

    def drain(self) -> None:
        """No more requests come: what would go on for ever ends."""
        for api in (self._default, *self._apis.values()):
            api.drain()

    def _report(self, request: Request, response: Response, started_ns: int) -> None:
        seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
        level = logging.DEBUG if request.path in HEALTH_PATHS else logging.INFO
        self._telemetry.request(request, response, request.route, seconds, level)

    async def _respond_traced(self, request: Request, receive: Receive) -> Response:
        """As ``_respond``, in a span. Probes of health have none: they come every second."""
        if request.path in HEALTH_PATHS:
            return await self._respond(request, receive)
        with tracing.request_span(request.headers.get(tracing.HEADER)) as span:
            status = 500
            try:
                response = await self._respond(request, receive)
                status = response.status
            finally:
                span.rename(f"{request.method} {request.route}")
                span.note(_describe(request, status))
            if status >= 500:
                span.fail(f"status {status}")
        return response

    async def _respond(self, request: Request, receive: Receive) -> Response:
        if request.path in HEALTH_PATHS:
            request.route = request.path
            return await self._health.handle(request)
        response = await self._call(self._api_of(request), request, receive)
        return self._cors.apply(request, response) if self._cors.enabled else response

    def _api_of(self, request: Request) -> Api:
        path = request.path
        if path in _CLAIMABLE:
            return next((api for api in self._apis.values() if api.claims(request)), self._default)
        api = self._apis.get(path[1:].partition("/")[0])
        if api is None or not (path == api.PREFIX or path.startswith(f"{api.PREFIX}/")):
            return self._default
        return api

    async def _call(self, api: Api, request: Request, receive: Receive) -> Response:
        try:
            caller = NOBODY if api.is_open(request) else await self._identify(request)
            if caller is None:
                return api.refuse(self._unauthorized(), request)
            if request.has_body and api.streams_body(request.method, request.path):
                request.stream = stream_body(receive)
            elif request.has_body:
                await self._read_body(request, receive, caller)
        except Problem as problem:
            return api.refuse(problem, request)
        except AuthUnavailable as outage:
            text = f"The caller cannot be identified: {outage}"
            return api.refuse(Problem(503, text, codes.UNAVAILABLE, headers=RETRY_SOON), request)
        except Unavailable as outage:
            return api.refuse(outage_problem(outage, request), request)
        # What comes of a body must not be taken by those who wait for the client to leave.
        _tell_asker(caller, receive if request.stream is None else None)
        return await api.handle(request, caller)

    async def _identify(self, request: Request) -> Caller | None:
        try:
            caller = await self._authenticator.identify(request.headers, request.client)
        except (AuthUnavailable, Unavailable):
            self._telemetry.token_validated("unavailable")
            raise
        self._telemetry.token_validated("invalid" if caller is None else "valid")
        return caller

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


def _describe(request: Request, status: int) -> tracing.Notes:
    """What a span tells of a request. The query may hold anything: it is left out."""
    notes: dict[str, tracing.Note] = {
        "http.request.method": request.method,
        "http.route": request.route,
        "http.response.status_code": status,
        "url.path": request.path,
        "client.address": request.client,
        "berth.request_id": request.request_id,
    }
    if request.global_id is not None:
        notes["berth.global_request_id"] = request.global_id
    return notes


def _tell_asker(caller: Caller, receive: Receive | None) -> None:
    """Tell the engine on whose behalf this task asks, and how it learns that the client has left."""
    project = caller.project_id or caller.user_id or ""
    ASKER.set(Asker(project, None if receive is None else functools.partial(wait_for_disconnect, receive)))
