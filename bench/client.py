"""A load client that costs little: raw HTTP/1.1 on kept connections, answers parsed no further than needed.

Closed loop: every connection sends its next request when the last one is answered. So the throughput it
sees is the server's, up to the client's own ceiling, which ``bench.run`` measures and prints.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast


class BenchAnswer(NamedTuple):
    status: int
    body: bytes


class BrokenServer(Exception):
    """The server closed the connection in the middle, or spoke no HTTP."""


class BenchConnection(asyncio.Protocol):
    """One kept connection with at most one request on it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: asyncio.Future[BenchAnswer] | None = None

    @classmethod
    async def open(cls, host: str, port: int) -> "BenchConnection":
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but name.
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes) -> BenchAnswer:
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            raise BrokenServer("the connection is closed")
        self._transport.write(request)
        return await self._waiting

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._waiting is None or self._waiting.done():
            return
        try:
            answer = self._whole_answer()
        except (BrokenServer, ValueError) as problem:
            self._waiting.set_exception(BrokenServer(str(problem)))
            return
        if answer is not None:
            self._received.clear()
            self._waiting.set_result(answer)

    def _whole_answer(self) -> BenchAnswer | None:
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return None
        head = bytes(self._received[:head_end]).lower()
        status = int(head[9:12])
        at = head.find(b"\r\ncontent-length:")
        length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if at < 0 and status != 204:
            raise BrokenServer("an answer without content-length")
        if len(self._received) < head_end + 4 + length:
            return None
        return BenchAnswer(status, bytes(self._received[head_end + 4 :]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(BrokenServer("the server hung up"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


Operation = Callable[[BenchConnection], Awaitable[int]]
"""One or more requests of a client; the status of the first that failed, or else of the last."""


class LoadResult(NamedTuple):
    """What a run of the closed loop saw."""

    latencies_ns: list[int]
    """Of operations that succeeded."""
    failures: Counter[int]
    """Others, by status; a connection that the server broke counts as status 0."""
    seconds: float
    client_busy: float
    """Which part of the time this process, which is one thread, was at work."""


def request_bytes(method: str, path: str, body: bytes = b"", version: str = "1.39") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Auth-Token: admin\r\n"
        f"OpenStack-API-Version: placement {version}\r\nAccept: application/json\r\n"
    )
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def load(host: str, port: int, operations: Sequence[Operation], *, seconds: float) -> LoadResult:
    """Let every operation be repeated on a connection of its own for a while."""
    latencies_ns: list[int] = []
    failures: Counter[int] = Counter()
    clock = time.perf_counter_ns

    async def one_client(connection: BenchConnection, operation: Operation, until_ns: int) -> None:
        while (begun_ns := clock()) < until_ns:
            try:
                status = await operation(connection)
            except BrokenServer:
                failures[0] += 1
                connection.close()
                connection = await BenchConnection.open(host, port)
                continue
            if status < 300:
                latencies_ns.append(clock() - begun_ns)
            else:
                failures[status] += 1
        connection.close()

    connections = [await BenchConnection.open(host, port) for _ in operations]
    begun_ns, begun_cpu_ns = clock(), time.process_time_ns()
    until_ns = begun_ns + int(seconds * 1e9)
    clients = zip(connections, operations, strict=True)
    await asyncio.gather(*(one_client(connection, operation, until_ns) for connection, operation in clients))
    spent_ns, spent_cpu_ns = clock() - begun_ns, time.process_time_ns() - begun_cpu_ns
    return LoadResult(latencies_ns, failures, spent_ns / 1e9, spent_cpu_ns / spent_ns)
