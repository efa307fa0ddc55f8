"""The composition of a cell's process: its journal, the conductor, and the agent API.

    journal -> engine -> conductor, hosts -> ASGI

Its whole configuration is ``CellSettings``: its own database, Placement's endpoint, and the address of the
agent API.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

import msgspec

from berth.api.kernel.http import Receive, Scope, Send
from berth.cell.agent_api import AgentApi
from berth.cell.conductor import Conductor, Deadlines
from berth.cell.hosts import HostRegistry
from berth.cell.journal import open_cell, retry_journal
from berth.cell.mailbox import Mailbox
from berth.cell.placement import VERSION, ClaimWriter
from berth.cell.providers import HostTreeWriter
from berth.client import Client, Token
from berth.engine import Engine, Unavailable
from berth.engine.attachment import ProcessName
from berth.engine.engine import Observer, Overloaded
from berth.engine.figures import keep_figures
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.ids import Ids, describe_process
from berth.runtime.metrics import MetricsMemory
from berth.runtime.settings import Settings
from berth.runtime.telemetry import CELL, Telemetry
from berth.sagas.saga import all_sagas


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


class Edges(NamedTuple):
    """What a cell's process stands on: time, randomness, its journal and its way to Placement."""

    clock: Clock
    ids: Ids
    open_engine: Callable[[Observer], Awaitable[Engine]]
    client: Client


def edges_of(settings: CellSettings) -> Edges:
    """The machine's, and those that the settings name."""
    clock, ids = SystemClock(), Ids()
    client = Client(
        settings.placement,
        {"openstack-api-version": VERSION},
        token=settings.placement_token,
        ca_file=settings.ca_file,
    )
    process = ProcessName(f"conductor of {settings.name}", describe_process())
    return Edges(
        clock,
        ids,
        lambda observer: open_cell(settings.database, clock, ids, observer, process=process),
        client,
    )


class Cell:
    """An ASGI application; the cell runs for as long as its lifespan. ``edges`` is called when it starts.
    ``memory``: where a conductor that is replaced has counted, and this one goes on."""

    def __init__(
        self,
        settings: CellSettings,
        edges: Callable[[CellSettings], Edges] = edges_of,
        memory: MetricsMemory | None = None,
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._edges = edges
        self._api: AgentApi | None = None
        self._figures: Callable[[], Coroutine[None, None, None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            assert self._api is not None, "a request came before the startup was complete"
            await self._api(scope, receive, send)
            return
        await receive()
        async with self.running() as conducting:
            await send({"type": "lifespan.startup.complete"})
            assert self._figures is not None, "it is running"
            beside = [
                asyncio.create_task(_stop_after(conducting, send), name="stop after the conductor"),
                asyncio.create_task(self._figures(), name="figures"),
            ]
            while (await receive())["type"] != "lifespan.shutdown":
                pass
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        await send({"type": "lifespan.shutdown.complete"})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """The cell at work. The conductor's task ends by itself when another conductor has replaced it, and
        fails when its journal cannot be read any more."""
        settings = self._settings
        clock, ids, open_engine, client = self._edges(settings)
        telemetry = Telemetry(Settings(), clock, families=CELL, memory=self._memory)
        telemetry.expect_operations(saga.name for saga in all_sagas())
        engine = await open_engine(telemetry)
        mailbox = Mailbox()
        providers = HostTreeWriter(client, settings.name)
        conductor = Conductor(engine, ClaimWriter(client), mailbox, clock, settings.deadlines, telemetry)
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
        await retry_journal(conductor.take_over, Unavailable, Overloaded)
        conducting = asyncio.create_task(conductor.run())
        self._figures = functools.partial(keep_figures, engine, telemetry)
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
    error = None if conducting.cancelled() else conducting.exception()
    await send({"type": "lifespan.stop", "failure": None if error is None else f"stopped: {error}"})
