"""A server for tests in this process, on a real socket, and the client's end of a connection to it."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from berth.serving.asgi import Application, Message, Receive, Scope, Send
from berth.serving.connections import Connections
from berth.serving.limits import Limits
from tests.waiting import until

HOST = "127.0.0.1"
PATIENCE_S = 10


class SocketAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        """What a refusal of the server's own says."""
        [error] = self.json["errors"]
        assert error["status"] == self.status
        assert self.headers["connection"] == "close"
        return str(error["detail"])


class SocketClient:
    """One connection. ``answer`` reads what comes as a careful client would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *lines: str, body: bytes = b"") -> None:
        """One request. HTTP/1.1 demands a Host: one is added unless the lines have it."""
        if lines[0].endswith("/1.1") and not any(line.lower().startswith("host:") for line in lines):
            lines = (*lines, "host: a")
        self.writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1") + body)

    def send_raw(self, data: bytes) -> None:
        self.writer.write(data)

    def reset(self) -> None:
        """Leave as a client does whose machine has gone: nothing is to be sent to it any more."""
        if not self.writer.transport.is_closing():
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()

    async def answer(self, to_head: bool = False) -> SocketAnswer:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *rest = head.strip().split("\r\n")
            pairs = [line.split(": ", 1) for line in rest]
            headers = dict(pairs)
            assert len(headers) == len(pairs), head
            status = int(first.split(" ")[1])
            if to_head or status in (100, 204, 304):
                return SocketAnswer(status, headers, b"")
            return SocketAnswer(status, headers, await self._body(headers))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            assert "transfer-encoding" not in headers
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.read()
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return body

    async def rest(self) -> bytes:
        """Everything until the server closes its side."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def answers(self) -> list[SocketAnswer]:
        """All answers until the server closes its side."""
        found = []
        while True:
            try:
                found.append(await self.answer())
            except asyncio.IncompleteReadError as end:
                if end.partial:
                    raise
                return found


class ServingWorld:
    """A server and those who connect to it."""

    def __init__(self, connections: Connections, server: asyncio.Server) -> None:
        self.connections = connections
        self._server = server
        self._clients: list[SocketClient] = []

    async def connect(self, limit: int = 1 << 20) -> SocketClient:
        port = self._server.sockets[0].getsockname()[1]
        client = SocketClient(*await asyncio.open_connection(HOST, port, limit=limit))
        self._clients.append(client)
        return client

    async def ask(self, *lines: str, body: bytes = b"") -> SocketAnswer:
        """The answer to one request on a connection of its own."""
        client = await self.connect()
        client.send(*lines, body=body)
        answer = await client.answer(to_head=lines[0].startswith("HEAD "))
        client.writer.close()
        return answer

    async def pass_seconds(self, seconds: int) -> None:
        """Have that many seconds pass, as far as the server can tell."""
        for _ in range(seconds):
            self.connections.pass_second()
        await asyncio.sleep(0)

    async def end(self) -> None:
        """Have all clients leave. Nothing of them may stay."""
        self._server.close()
        for client in self._clients:
            client.reset()
        await self.until_empty()
        self.connections.stop_ticking()

    async def until_empty(self) -> None:
        await until(lambda: len(self.connections) == 0)


@contextlib.asynccontextmanager
async def serving(application: Application, limits: Limits | None = None) -> AsyncIterator[ServingWorld]:
    loop = asyncio.get_running_loop()
    connections = Connections(application, loop, limits)
    server = await loop.create_server(connections.make, HOST, 0)
    world = ServingWorld(connections, server)
    before = asyncio.all_tasks()
    try:
        yield world
        leftover = asyncio.all_tasks() - before
        for task in leftover:
            task.cancel()
        await asyncio.gather(*leftover, return_exceptions=True)
    finally:
        await world.end()


# -- applications -------------------------------------------------------------------------------


async def read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        assert message["type"] == "http.request", "the client left"
        body += bytes(message["body"])
        if not message["more_body"]:
            return body


async def respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    start: Message = {"type": "http.response.start", "status": status, "headers": list(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers what it was asked."""
    seen = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode("latin-1"),
        "headers": {name.decode(): value.decode("latin-1") for name, value in scope["headers"]},
        "body": (await read(receive)).decode("latin-1"),
    }
    await respond(send, 200, json.dumps(seen).encode())
