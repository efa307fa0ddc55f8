"""One HTTP exchange, as every API of Berth sees it: a request comes in whole, a response goes out whole.
Piece by piece come and go the contents of files, and responses that have no end.

This module knows ASGI so that nothing else has to. It refuses bodies above the limit before reading
them to the end, and knows nothing of routes, versions or errors beyond that. Of a stream it holds one
piece at a time: a client that does not take it for too long is left, never waited for.

The Accept header is judged as Placement judges it. A missing header, and a bare ``*/*``, mean JSON. Of
several media ranges that match a type the most specific one gives its weight. A header that cannot be read
refuses nothing.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Final, Literal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON: Final = "application/json"

_WITHOUT_LENGTH: Final = frozenset((204, 304))
"""Responses that have no body by definition. The length of a 304 would be that of the body it spares."""


class BodyTooLarge(Exception):
    """The request's body is longer than the limit; reading stopped there."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body is larger than {limit} bytes")
        self.limit = limit


class BodyCutShort(Exception):
    """The client left before it had sent its body to the end. Half of what was meant must not be done."""


REQUEST_ID_HEADER: Final = "x-openstack-request-id"
"""In an answer the id of the request; in a request the id of the one that it is part of. As in the services
of OpenStack, one that does not look like an id is ignored."""
_REQUEST_ID: Final = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)


class Request:
    """What the client sent. Header names are lower case; the values of a repeated header are joined.

    ``route`` is the template of the path, once it is known: metrics must not grow with what is asked for.
    ``public_url`` is where clients find this server, if the operator has said so. ``global_id`` is the id
    that the caller has given the request, if it is one. ``stream`` is the body of a request that is not read
    before it is handled: its pieces; BodyCutShort if the end of it does not come.
    """

    __slots__ = (
        "body",
        "client",
        "global_id",
        "headers",
        "method",
        "path",
        "public_url",
        "query_string",
        "request_id",
        "route",
        "stream",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query_string: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        request_id: str = "",
        client: str = "-",
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers or {}
        self.body = body
        self.request_id = request_id
        self.client = client
        self.route = "unknown"
        self.stream: AsyncGenerator[bytes, None] | None = None
        self.public_url: str | None = None
        given = self.headers.get(REQUEST_ID_HEADER)
        self.global_id = given if given is not None and _REQUEST_ID.match(given) else None

    @property
    def ids(self) -> str:
        """Its id and, behind a space, the one that its caller has given it."""
        return self.request_id if self.global_id is None else f"{self.request_id} {self.global_id}"

    @property
    def has_body(self) -> bool:
        """Whether a body follows the headers."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    @property
    def told_length(self) -> int:
        """How long the headers say that the body is; 0 if they do not say."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() else 0


def read_origin(request: Request) -> str:
    """What links to this server begin with: its public URL, or else the scheme and the host by which the
    client reached it, or a proxy in front of it. A client of HTTP/1.0 that names no host gets links without
    one."""
    if request.public_url is not None:
        return request.public_url
    host = request.headers.get("host")
    if not host:
        return ""
    # Anybody can send this header: nothing but a scheme that we serve may get into a link.
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return f"{'https' if forwarded == 'https' else 'http'}://{host}"


class Response:
    """What the client gets. ``headers`` is mutable so that each layer can add its own."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)
        if content_type is not None:
            self.headers.append(("content-type", content_type))


class StreamResponse(Response):
    """A response that is sent piece by piece. Its ``body`` stays empty: ``pieces`` are what is sent. Without
    a ``length`` it is one of events, which has no foreseeable end.

    ``on_end`` is called once, however it ends, and also if it never began. A client that takes longer
    than ``write_seconds`` to accept a piece is dropped.
    """

    __slots__ = ("length", "on_end", "pieces", "write_seconds")

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        content_type: str,
        on_end: Callable[[], None],
        write_seconds: float,
        *,
        status: int = 200,
        length: int | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(status, b"", content_type, headers)
        self.pieces = pieces
        self.on_end = on_end
        self.write_seconds = write_seconds
        self.length = length


def request_from_scope(scope: Scope) -> Request:
    client = scope.get("client")
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    headers = dict(pairs)
    if len(headers) < len(pairs):
        headers = {name: ",".join(value for other, value in pairs if other == name) for name in headers}
    return Request(
        method=scope["method"],
        path=scope["path"],
        query_string=scope["query_string"].decode("latin-1"),
        headers=headers,
        client=client[0] if client else "-",
    )


async def read_body(receive: Receive, limit: int, told_length: int = 0) -> bytes:
    """The whole body; BodyTooLarge as soon as more than ``limit`` bytes have come, or at once if they are
    told to be more; BodyCutShort if the end of it does not come."""
    if told_length > limit:
        raise BodyTooLarge(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise BodyCutShort
    if not message.get("more_body", False) and len(body) <= limit:
        return body
    chunks = [body]
    size = len(body)
    while size <= limit and message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyCutShort
        chunk: bytes = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
    if size > limit:
        raise BodyTooLarge(limit)
    return b"".join(chunks)


async def stream_body(receive: Receive) -> AsyncGenerator[bytes, None]:
    """The pieces of a body, as they come. Of what has come the server holds a part: the next is not read from
    the socket before this one is taken."""
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyCutShort
        has_more = message.get("more_body", False)
        yield message.get("body", b"")


async def send_response(send: Send, response: Response) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    if response.status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def send_stream(receive: Receive, send: Send, response: StreamResponse) -> None:
    """Send pieces until there are no more, the client has gone, or it does not take them any longer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    if response.length is not None:
        headers.append((b"content-length", b"%d" % response.length))
    sending = asyncio.create_task(_send_pieces(send, response, headers))
    leaving = asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        sent, _ = await asyncio.gather(sending, leaving, return_exceptions=True)
        await response.pieces.aclose()
        response.on_end()
    if isinstance(sent, Exception) and not isinstance(sent, TimeoutError):
        raise sent


async def _send_pieces(send: Send, response: StreamResponse, headers: list[tuple[bytes, bytes]]) -> None:
    async def send_in_time(message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(response.write_seconds):
            await send(message)

    await send_in_time({"type": "http.response.start", "status": response.status, "headers": headers})
    async for piece in response.pieces:
        await send_in_time({"type": "http.response.body", "body": piece, "more_body": True})
    await send_in_time({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has left, or has been answered. What it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


# -- which media types a client accepts ----------------------------------------------------------


Format = Literal["html", "json", "plain"]

_RANGE = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)/([\w!#$%&'*+.^`|~-]+)\s*((?:;[^,]*)?)\Z")
_WEIGHT = re.compile(r";\s*q=(1(?:\.0{0,3})?|0(?:\.\d{0,3})?)\s*(?:;|\Z)", re.IGNORECASE)

_DISTINCT_HEADERS_MAX: Final = 256


def effective_accept(accept: str | None) -> str:
    """The header as it counts."""
    return JSON if not accept or accept == "*/*" else accept


@lru_cache(_DISTINCT_HEADERS_MAX)
def accepts_json(accept: str) -> bool:
    ranges = _parse(accept)
    return ranges is None or _weight(ranges, "application", "json") > 0


@lru_cache(_DISTINCT_HEADERS_MAX)
def error_format(accept: str) -> Format:
    """HTML where it is as welcome as JSON, plain text where neither is welcome."""
    ranges = _parse(accept)
    if ranges is None:
        return "html"
    html, json = _weight(ranges, "text", "html"), _weight(ranges, "application", "json")
    if html == json == 0:
        return "plain"
    return "html" if html >= json else "json"


_Range = tuple[str, str, bool, float]


def _parse(accept: str) -> list[_Range] | None:
    ranges: list[_Range] = []
    for element in accept.split(","):
        if not element.strip():
            continue
        match = _RANGE.match(element)
        if match is None:
            return None
        weight = _WEIGHT.search(match[3])
        has_parameters = bool(match[3].strip(" ;")) and (weight is None or weight.start() > 0)
        ranges.append(
            (match[1].lower(), match[2].lower(), has_parameters, float(weight[1]) if weight else 1.0)
        )
    return ranges


def _weight(ranges: list[_Range], kind: str, subtype: str) -> float:
    """The weight of the most specific range that matches, 0 if none does."""
    best, weight = -1, 0.0
    for range_kind, range_subtype, has_parameters, range_weight in ranges:
        # A range with parameters (text/html;level=1) asks for more than the plain type offers.
        if has_parameters:
            continue
        if (range_kind, range_subtype) == (kind, subtype):
            specificity = 2
        elif (range_kind, range_subtype) == (kind, "*"):
            specificity = 1
        elif (range_kind, range_subtype) == ("*", "*"):
            specificity = 0
        else:
            continue
        if specificity > best:
            best, weight = specificity, range_weight
    return weight
