"""The HTTP client for Berth's own APIs: JSON over HTTP/1.1, with or without TLS, from an event loop.

Every request has a deadline for all of it, and every answer a size. Connections are kept and used again; a
GET that meets one which the server has closed meanwhile is sent once more, on a new connection. A caller that
gives ``retries`` has reads repeated that found the server unreachable or unavailable. Nothing else is sent
twice: whether the server has done it is not known.

Proxies and certificates are what the caller says, never what the environment says: a conductor's way to
Placement is in its configuration alone.
"""

import asyncio
import contextlib
import errno
import functools
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec

from berth.client.keystone import Token
from berth.client.transport import HttpTransport, Transport, WireRequest, parse_url

_ANSWER_BYTES_MAX: Final = 64 << 20
_EVENT_BYTES_MAX: Final = 64 << 20
_CONNECTIONS_KEPT_MAX: Final = 16


class PartOf(NamedTuple):
    """What a request is part of: the id of another, which servers keep beside their own, and a span of a
    trace."""

    request_id: str | None = None
    traceparent: str | None = None


PART_OF: Final[ContextVar[PartOf]] = ContextVar("part_of", default=PartOf())  # noqa: B039
"""What whatever this task asks for is part of."""

_TIMEOUT_S: Final = 30.0
_UNAUTHORIZED: Final = 401
_UNAVAILABLE: Final = (502, 503, 504)
_PAUSE_FIRST_S: Final = 0.25
_PAUSE_MAX_S: Final = 5.0
_TOKEN_HEADER: Final = "x-auth-token"
_WITH_LENGTH: Final = ("POST", "PUT", "PATCH")
"""Methods whose requests tell their length, also if they have no body."""

_NO_TLS: Final = "it does not speak TLS; is its address http://...?"
_PLAIN: Final = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)
_PATH: Final = re.compile(r"/[!-~]*")
_HEADER: Final = re.compile(r"[ -~]*")


class ClientError(Exception):
    """A request failed: the message says which, and why. ``status`` is the server's; None: no answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(ClientError):
    """There was no answer. Whether the server did what it was asked to is not known."""

    is_transient = True
    """Whether it may be there in a moment."""


class NoToken(Unreachable):
    """There is no token to show to the server."""

    is_transient = False


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any
    """Parsed, where it is JSON; else None."""

    @property
    def code(self) -> str:
        """The code of an error, as OpenStack's services write it."""
        return str(_first_error(self.body).get("code", ""))

    @property
    def detail(self) -> str:
        """What the server said of an error."""
        error = _first_error(self.body)
        return str(error.get("detail") or error.get("title") or f"status {self.status}").strip()


class StreamedEvent(NamedTuple):
    """``id``: whoever has it has everything up to here; ``data`` is parsed, and None if there is only an
    id."""

    name: str
    id: str | None
    data: Any


class Client:
    """Talks to one server.

    ``token`` is asked for a token before the first request, and again when the server refuses the last one.
    ``ca_file`` has the certificates that a server's is checked with, in place of the system's; without
    ``verify`` it is not checked. ``certificate`` and its ``key`` are shown to servers that want one.
    ``retries`` is how often a read is repeated. ``transport`` is another way to the server than a network: an
    ASGI application in this process. An answer of more than ``answer_bytes_max`` is none.
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str] | None = None,
        *,
        token: Token | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
        certificate: Path | None = None,
        key: Path | None = None,
        retries: int = 0,
        transport: Transport | None = None,
        answer_bytes_max: int = _ANSWER_BYTES_MAX,
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an endpoint looks like http://HOST:PORT, not {endpoint!r}")
        self.endpoint = endpoint
        self._token = token
        self._last_token: str | None = None
        self._renewing = asyncio.Lock()
        self._transport = transport or HttpTransport(
            endpoint,
            httpx.AsyncHTTPTransport(
                verify=_trust(ca_file, verify, certificate, key),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=_CONNECTIONS_KEPT_MAX),
                trust_env=False,
            ),
            answer_bytes_max,
        )
        self._retries = retries
        self._headers: dict[bytes, bytes] = {}
        self.replace_headers(headers or {})

    def replace_headers(self, headers: Mapping[str, str]) -> None:
        """Send these headers with every request from now on, and no others that were set before."""
        self._headers = {
            b"host": parse_url(self.endpoint).netloc,
            b"accept": b"application/json",
            b"user-agent": b"berth",
        }
        for name, value in headers.items():
            self.set_header(name, value)

    def set_header(self, name: str, value: str) -> None:
        """Send a header with every request from now on."""
        if _HEADER.fullmatch(name + value) is None:
            raise ValueError(f"the header {name} cannot be sent: it may have printable ASCII alone")
        self._headers[name.lower().encode("ascii")] = value.encode("ascii")

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        timeout_s: float = _TIMEOUT_S,
        *,
        is_read: bool | None = None,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> Answer:
        """The server's answer, whatever its status; Unreachable without one. A ``body`` of bytes is sent as
        it is. ``is_read``: whether the request changes nothing; if left out, a GET does not."""
        if _PATH.fullmatch(path) is None:
            raise ValueError(f"the path {path!r} cannot be asked for")
        retries = self._retries if is_read or (is_read is None and method == "GET") else 0
        pause_s = _PAUSE_FIRST_S
        for _ in range(retries):
            try:
                answer = await self._ask_with_token(method, path, body, timeout_s, headers)
            except Unreachable as error:
                if not error.is_transient:
                    raise
            else:
                if answer.status not in _UNAVAILABLE:
                    return answer
                pause_s = max(pause_s, _read_retry_after(answer))
            await asyncio.sleep(min(pause_s, _PAUSE_MAX_S))
            pause_s *= 2
        return await self._ask_with_token(method, path, body, timeout_s, headers)

    async def _ask_with_token(
        self, method: str, path: str, body: object, timeout_s: float, headers: Mapping[bytes, bytes] | None
    ) -> Answer:
        if self._token is None:
            return await self._ask(method, path, body, timeout_s, headers)
        sent = self._last_token
        if sent is None:
            await self._renew_token(sent)
        answer = await self._ask(method, path, body, timeout_s, headers)
        if answer.status == _UNAUTHORIZED:
            await self._renew_token(sent)
            answer = await self._ask(method, path, body, timeout_s, headers)
        return answer

    async def fetch(self, method: str, path: str, body: object = None, *, is_read: bool | None = None) -> Any:
        """The body of an answer that says yes; ClientError if it says no."""
        answer = await self.ask(method, path, body, is_read=is_read)
        if answer.status >= 400:
            raise self._refuse(method, path, answer)
        if answer.body is None and answer.status not in (202, 204):
            reason = f"the answer is not JSON; is {self.endpoint} a Berth region?"
            raise ClientError(f"{method} {path}: {reason}", answer.status)
        return answer.body

    async def walk(self, path: str | None, key: str) -> AsyncIterator[Any]:
        """The entries of a list of /berth/v1, page by page."""
        while path is not None:
            page = await self.fetch("GET", path)
            for entry in page[key]:
                yield entry
            path = page["next"]

    async def follow(self, path: str) -> AsyncIterator[StreamedEvent]:
        """What comes on a stream of server-sent events. It ends when the server ends it; ClientError if the
        server refuses it, or says why it ends."""
        if self._token is not None and self._last_token is None:
            await self._renew_token(None)
        request = self._make_request("GET", path, None, {b"accept": b"text/event-stream"})
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(_TIMEOUT_S):
                    stream = await stack.enter_async_context(self._transport.stream(request))
                if stream.status != 200:
                    content = b"".join([piece async for piece in stream.pieces])
                    answer = Answer(stream.status, stream.headers, _parse(stream.headers, content))
                    raise self._refuse("GET", path, answer)
                async for event in _read_events(stream.pieces):
                    if event.name == "error":
                        raise ClientError(f"GET {path}: {self.endpoint} ended the stream: {event.data}")
                    yield event
        except TimeoutError:
            raise Unreachable(f"GET {path}: no answer from {self.endpoint} in {_TIMEOUT_S:g} s") from None
        except (httpx.HTTPError, OSError) as error:
            raise Unreachable(f"GET {path}: {self.endpoint} was lost: {_reason(error)}") from error

    def _refuse(self, method: str, path: str, answer: Answer) -> ClientError:
        return ClientError(
            f"{method} {path}: {self.endpoint} answered {answer.status}: {answer.detail}", answer.status
        )

    async def close(self) -> None:
        await self._transport.close()

    # -- one exchange ---------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        body: object,
        timeout_s: float,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> Answer:
        request = self._make_request(method, path, body, headers)
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    answer = await self._transport.exchange(request)
                except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                    if method != "GET":
                        raise
                    answer = await self._transport.exchange(request)
        except TimeoutError:
            reason = f"no answer from {self.endpoint} in {timeout_s:g} s"
            raise Unreachable(f"{method} {path}: {reason}") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = f"no answer from {self.endpoint}: {_reason(error)}"
            raise Unreachable(f"{method} {path}: {reason}") from error
        return Answer(answer.status, answer.headers, _parse(answer.headers, answer.content))

    def _make_request(
        self, method: str, path: str, body: object, headers: Mapping[bytes, bytes] | None = None
    ) -> WireRequest:
        is_file = isinstance(body, bytes)
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        sent = {**self._headers, **(headers or {})}
        part_of = PART_OF.get()
        if part_of.request_id is not None:
            sent[b"x-openstack-request-id"] = part_of.request_id.encode("ascii")
        if part_of.traceparent is not None:
            sent[b"traceparent"] = part_of.traceparent.encode("ascii")
        if content:
            sent[b"content-type"] = b"application/octet-stream" if is_file else b"application/json"
        if content or method in _WITH_LENGTH:
            sent[b"content-length"] = b"%d" % len(content)
        return WireRequest(method, path, list(sent.items()), content)

    async def _renew_token(self, refused: str | None) -> None:
        """Have another token than the one that was refused. Of several callers, one fetches it."""
        assert self._token is not None
        async with self._renewing:
            if self._last_token != refused:
                return
            try:
                token = await asyncio.to_thread(self._token)
                self.set_header(_TOKEN_HEADER, token)
            except Exception as error:
                raise NoToken(f"no token for {self.endpoint}: {error}") from error
            self._last_token = token


def connect_directly(application: Callable[..., Any], headers: Mapping[str, str] | None = None) -> Client:
    """A client whose server is an ASGI application in this process."""
    endpoint, carrier = "http://direct", httpx.ASGITransport(application, client=("direct", 0))
    return Client(endpoint, headers, transport=HttpTransport(endpoint, carrier, _ANSWER_BYTES_MAX))


@functools.lru_cache(maxsize=8)
def _trust(ca_file: Path | None, verify: bool, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Made once: a process may have a client for each of thousands of hosts."""
    context = ssl.create_default_context(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def _read_retry_after(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


async def _read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[StreamedEvent]:
    """The events of a stream; comments are left out."""
    name, id, data, rest = "message", None, list[bytes](), b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _EVENT_BYTES_MAX or sum(map(len, data)) > _EVENT_BYTES_MAX:
            raise httpx.TransportError(f"an event has more than {_EVENT_BYTES_MAX} bytes")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                name = value.decode()
            elif field == b"id":
                id = value.decode()
            elif field == b"data":
                data.append(value)
            elif not line.strip() and (data or id is not None):
                yield StreamedEvent(name, id, msgspec.json.decode(b"\n".join(data)) if data else None)
                name, id, data = "message", None, []


def _reason(error: Exception) -> str:
    """The error in words; some of httpx's have none of their own, and others hide what the system said."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return _NO_TLS if cause.reason == "WRONG_VERSION_NUMBER" else str(error)
        if isinstance(cause, OSError) and cause.errno in _PLAIN:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _parse(headers: Mapping[str, str], body: bytes) -> Any:
    if not body or "json" not in headers.get("content-type", ""):
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _first_error(body: Any) -> dict[str, Any]:
    match body:
        case {"errors": [dict() as first, *_]}:
            return first
        case dict() if len(body) == 1:
            # As Nova and Keystone have it: {"badRequest": {"message": ...}}.
            [only] = body.values()
            if isinstance(only, dict) and isinstance(only.get("message"), str):
                return {"detail": only["message"]}
    return {}
