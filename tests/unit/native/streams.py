"""A client of /berth/v1/events that follows the stream, without a network."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from berth.api.kernel.application import Application
from tests.worlds import scope_of

PATIENCE_S = 5.0


class EventStream:
    """The client's end of a stream."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.sizes: list[int] = []
        self.ended = False
        self.reads = asyncio.Event()
        self.reads.set()
        self._gone = asyncio.Event()
        self._more = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.text += message["body"].decode()
            self.sizes.append(len(message["body"]))
            self.ended = not message["more_body"] if "more_body" in message else True
        self._more.set()

    def leave(self) -> None:
        self._gone.set()

    async def until(self, condition: Callable[["EventStream"], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self):
                self._more.clear()
                await self._more.wait()

    @property
    def events(self) -> list[dict[str, str]]:
        blocks = [block for block in self.text.split("\n\n") if "data: " in block]
        return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]

    @property
    def ids(self) -> list[int]:
        return [int(event["id"]) for event in self.events if "id" in event]


@asynccontextmanager
async def listening(
    application: Application, path: str = "", stream: EventStream | None = None, /, **headers: str
) -> AsyncIterator[tuple[EventStream, "asyncio.Task[None]"]]:
    stream = stream or EventStream()
    sent = {"x-auth-token": "admin", "accept": "text/event-stream"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = scope_of("GET", f"/berth/v1/events{path}", sent)
    task = asyncio.create_task(_exchange(application(scope, stream.receive, stream.send)))
    try:
        await stream.until(lambda stream: stream.status > 0)
        yield stream, task
    finally:
        stream.leave()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def _exchange(exchange: Awaitable[None]) -> None:
    await exchange
