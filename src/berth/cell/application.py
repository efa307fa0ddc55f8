"""The composition of a cell's process: its journal, the conductor, and the agent API.

    journal -> engine -> conductor, hosts -> ASGI

Its whole configuration is ``CellSettings``: its own database, Placement's endpoint, and the address of the
agent API.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from berth.api.kernel.http import Receive, Scope, Send
from berth.cell.agent_api import AgentApi
from berth.cell.conductor import Conductor, Deadlines
from berth.cell.hosts import HostRegistry
from berth.cell.mailbox import Mailbox
from berth.cell.placement import VERSION, ClaimWriter
from berth.cell.providers import HostTreeWriter
from berth.client import Client, Token
from berth.engine import Engine, Unavailable
from berth.engine.engine import Observer, Overloaded
from berth.journal import JournalError, open_journal, parse_address
from berth.model.ids import Index
from berth.runtime.backoff import Backoff, retry
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry

_log = logging.getLogger(__name__)
_RETRY_S: Final = 2.0

T = TypeVar("T")

FOLLOW_S = 0.05
"""How often a cell looks for saga runs, which the region writes into its journal."""


class CellSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    database: str
    placement: str
    """Placement's endpoint."""
    placement_token: Token
    """Called for a token when there is none, or the last one has expired."""
    ca_file: Path | None = None
    """Certificates to check Placement's with, in place of the system's."""
    agent_token: str | None = None
    heartbeat_timeout_seconds: float = 30
    deadlines: Deadlines = Deadlines()


class NoObserver:
    """An observer that does not keep count."""

    def appended(self, index: Index, commands: int, seconds: float) -> None: ...

    def queued(self, depth: int) -> None: ...

    def rejected(self, kind: str) -> None: ...


def make_cell_engine(database: str, clock: Clock, ids: Ids, observer: Observer | None = None) -> Engine:
    """The engine of a cell's journal, which conductor and region share."""
    journal = open_journal(parse_address(database), shared=True)
    return Engine(journal, clock, ids, observer or NoObserver(), shared=True, follow_every_s=FOLLOW_S)


async def open_cell(database: str, clock: Clock, ids: Ids, observer: Observer | None = None) -> Engine:
    """The engine of a cell's journal, started, once its database answers. It may be unreachable, or wait
    for an upgrade: an operator mends either, and the other cells go on."""

    async def open_engine() -> Engine:
        engine = make_cell_engine(database, clock, ids, observer)
        try:
            await engine.start()
        except BaseException:
            await engine.stop()
            raise
        return engine

    return await _retry(open_engine, JournalError, Unavailable)


async def _retry(step: Callable[[], Awaitable[T]], *on: type[Exception]) -> T:
    def notice(error: Exception, pause_s: float) -> None:
        _log.error("cannot use the cell's journal, retrying in %g s: %s", pause_s, error)

    return await retry(step, on, Backoff(_RETRY_S, _RETRY_S), notice=notice)


class Cell:
    """An ASGI application; the cell runs for as long as its lifespan."""

    def __init__(self, settings: CellSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._api: AgentApi | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            assert self._api is not None, "a request came before the startup was complete"
            await self._api(scope, receive, send)
            return
        await receive()
        async with self.running() as conducting:
            await send({"type": "lifespan.startup.complete"})
            stopping = asyncio.create_task(_stop_after(conducting, send), name="stop after the conductor")
            while (await receive())["type"] != "lifespan.shutdown":
                pass
            stopping.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """The cell at work. The conductor's task ends by itself when another conductor has replaced it."""
        settings, clock, ids = self._settings, self._clock, Ids()
        telemetry = Telemetry(Settings(), clock)
        engine = await open_cell(settings.database, clock, ids, telemetry)
        client = Client(
            settings.placement,
            {"openstack-api-version": VERSION},
            token=settings.placement_token,
            ca_file=settings.ca_file,
        )
        mailbox = Mailbox()
        providers = HostTreeWriter(client, settings.name)
        conductor = Conductor(engine, ClaimWriter(client), mailbox, clock, settings.deadlines)
        hosts = HostRegistry(
            engine, providers, mailbox, clock, ids, settings.heartbeat_timeout_seconds, lambda: conductor.term
        )
        self._api = AgentApi(
            engine,
            hosts,
            mailbox,
            telemetry,
            clock,
            settings.name,
            settings.heartbeat_timeout_seconds,
            settings.agent_token,
        )
        await _retry(conductor.take_over, Unavailable, Overloaded)
        conducting = asyncio.create_task(conductor.run())
        tasks = [conducting, asyncio.create_task(hosts.watch())]
        try:
            yield conducting
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.stop()
            await client.close()


async def _stop_after(conducting: asyncio.Task[None], send: Send) -> None:
    """Ask to be stopped when the conductor has ended: one that was replaced must not go on listening to
    hosts."""
    await asyncio.wait({conducting})
    await send({"type": "lifespan.stop"})
