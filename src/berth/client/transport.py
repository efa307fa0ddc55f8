"""How a client's requests get to its server, and the answers back.

A ``Transport`` carries one request at a time and knows nothing of tokens, retries or JSON. Production's is
httpx. Whatever else carries requests fails as httpx does, by an ``httpx.TransportError``.
"""

import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol

import httpx

_SILENCE_MAX_S: Final = 90.0
"""How long a stream may be silent: a server sends a comment at least every few seconds."""


class WireRequest(NamedTuple):
    """``path`` has the query, too, and is ASCII. Names of headers are lower case."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    content: bytes = b""


class WireAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


class WireStream(NamedTuple):
    """An answer that comes piece by piece."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Transport(Protocol):
    async def exchange(self, request: WireRequest) -> WireAnswer: ...

    def stream(self, request: WireRequest) -> AbstractAsyncContextManager[WireStream]: ...

    async def close(self) -> None: ...


class HttpTransport:
    """Over httpx, and its transport alone: what ``httpx.AsyncClient`` adds (redirects, cookies,
    authentication) is not wanted here, and would double the cost of a request. An answer of more than
    ``answer_bytes_max`` is none."""

    def __init__(self, endpoint: str, carrier: httpx.AsyncBaseTransport, answer_bytes_max: int) -> None:
        self._prefix = endpoint.rstrip("/")
        self._carrier = carrier
        self._answer_bytes_max = answer_bytes_max

    async def exchange(self, request: WireRequest) -> WireAnswer:
        response = await self._carrier.handle_async_request(self._format(request))
        # Said, and not looked for in all of them: what is read of them here is ASCII.
        response.headers.encoding = "iso-8859-1"
        try:
            pieces: list[bytes] = []
            size = 0
            async for piece in _read_pieces(response):
                size += len(piece)
                if size > self._answer_bytes_max:
                    # Not a ReadError: the same answer would be read a second time.
                    raise httpx.TransportError(f"the answer has more than {self._answer_bytes_max} bytes")
                pieces.append(piece)
        finally:
            await response.aclose()
        return WireAnswer(response.status_code, response.headers, b"".join(pieces))

    @contextlib.asynccontextmanager
    async def stream(self, request: WireRequest) -> AsyncGenerator[WireStream, None]:
        formatted = self._format(request)
        formatted.extensions["timeout"] = {"read": _SILENCE_MAX_S}
        response = await self._carrier.handle_async_request(formatted)
        try:
            yield WireStream(response.status_code, response.headers, _read_pieces(response))
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._carrier.aclose()

    def _format(self, request: WireRequest) -> httpx.Request:
        url, stream = parse_url(self._prefix + request.path), httpx.ByteStream(request.content)
        # Headers in bytes, and a stream: what httpx does with a mapping and a body takes four times as long.
        return httpx.Request(request.method, url, headers=request.headers, stream=stream)


def _read_pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes; decoded, where the server has encoded it though nobody has asked for that."""
    assert isinstance(response.stream, httpx.AsyncByteStream), "transports here are asynchronous"
    return response.aiter_bytes() if "content-encoding" in response.headers else aiter(response.stream)


@functools.lru_cache(maxsize=256)
def parse_url(text: str) -> httpx.URL:
    """Parsed once: an agent polls the same address for ever."""
    return httpx.URL(text)
