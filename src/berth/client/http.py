"""JSON over HTTP/1.1, for those who talk to a Berth server from an event loop.

Connections are kept and used again; one that turns out to be dead is replaced once, where nothing can have
been done through it. Every request has a deadline.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

_HEAD_BYTES_MAX: Final = 64 << 10
_BODY_BYTES_MAX: Final = 64 << 20
_IDLE_MAX: Final = 16
"""How many connections are kept for the next request."""

_PATH: Final = re.compile(r"/[!-~]*")
_HEADER: Final = re.compile(r"[ -~]*")


class Unreachable(Exception):
    """No answer: whether the server did what it was asked is not known."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
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


class HttpClient:
    def __init__(self, endpoint: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an endpoint looks like http://HOST:PORT, not {endpoint!r}")
        self.endpoint = endpoint
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/")
        self._shown: dict[str, str] = {}
        self._headers = ""
        for name, value in (headers or {}).items():
            self.show(name, value)
        self._idle: list[_Connection] = []

    def show(self, name: str, value: str) -> None:
        """Send a header with every request from now on."""
        if _HEADER.fullmatch(name + value) is None:
            raise ValueError(f"the header {name} cannot be sent: it may have printable ASCII alone")
        self._shown[name] = value
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in self._shown.items())

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 30) -> Answer:
        """The server's answer, whatever its status; Unreachable without one."""
        if _PATH.fullmatch(path) is None:
            raise ValueError(f"the path {path!r} cannot be asked for")
        content = b"" if body is None else msgspec.json.encode(body)
        host = f"[{self._host}]" if ":" in self._host else self._host
        head = (
            f"{method} {self._prefix}{path} HTTP/1.1\r\nhost: {host}:{self._port}\r\n"
            f"accept: application/json\r\n{self._headers}"
        )
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(f"{head}\r\n".encode("latin-1") + content)
        except TimeoutError:
            raise Unreachable(f"{method} {path}: no answer from {self.endpoint} in {timeout_s:g} s") from None
        except (OSError, EOFError, _NotHttp, asyncio.LimitOverrunError) as error:
            raise Unreachable(f"{method} {path}: no answer from {self.endpoint}: {error}") from error

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _exchange(self, request: bytes) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return await self._through(connection, request)
            connection.close()
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._ssl, limit=_HEAD_BYTES_MAX
        )
        return await self._through(_Connection(reader, writer), request)

    async def _through(self, connection: "_Connection", request: bytes) -> Answer:
        try:
            answer = await connection.exchange(request)
        except BaseException:
            connection.close()
            raise
        if answer.headers.get("connection", "") == "close" or len(self._idle) >= _IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)
        return answer


class _NotHttp(Exception):
    """This is not an answer that can be understood."""


def _number(words: list[str], base: int) -> int:
    """The number that there is to be."""
    try:
        number = int(words[0], base)
    except (LookupError, ValueError):
        raise _NotHttp(f"a number was expected, not {words}") from None
    if number < 0:
        raise _NotHttp(f"a number was expected, not {words}")
    return number


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, request: bytes) -> Answer:
        self._writer.write(request)
        await self._writer.drain()
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = _number(lines[0].split(" ", 2)[1:2], 10)
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        if status == 204:
            body = b""
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            body = await self._chunks()
        else:
            body = await self._exactly(_number([headers.get("content-length", "0")], 10))
        return Answer(status, headers, _parsed(headers, body))

    async def _chunks(self) -> bytes:
        """A body in pieces, as proxies send it."""
        chunks: list[bytes] = []
        total = 0
        while True:
            line = (await self._reader.readuntil(b"\r\n")).decode("latin-1")
            length = _number([line.partition(";")[0].strip()], 16)
            if length == 0:
                while await self._reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return b"".join(chunks)
            chunks.append(await self._exactly(length))
            total += length
            if total > _BODY_BYTES_MAX:
                raise _NotHttp(f"an answer of more than {_BODY_BYTES_MAX} bytes is too long")
            await self._reader.readuntil(b"\r\n")

    async def _exactly(self, length: int) -> bytes:
        if length > _BODY_BYTES_MAX:
            raise _NotHttp(f"an answer of {length} bytes is too long")
        return await self._reader.readexactly(length)

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()


def _parsed(headers: Mapping[str, str], body: bytes) -> Any:
    if not body or "json" not in headers.get("content-type", ""):
        return None
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _first_error(body: Any) -> dict[str, Any]:
    match body:
        case {"errors": [dict() as first, *_]}:
            return first
    return {}
