"""The composition of a server: what a worker process is made of, and in which order it starts and stops.

    settings -> journal -> engine (reads the journal, then writes) -> API -> ASGI

Nothing else in Berth knows all the parts. One that cannot be made (a bad policy file, a database in use)
ends the start with its own message.
"""

import asyncio
import contextlib
import functools
import gc
import logging
from collections.abc import AsyncIterator

from berth.api.compute.api import ComputeApi
from berth.api.identity.api import IdentityApi
from berth.api.identity.issuers import issuer_of
from berth.api.identity.revocations import RevocableTokens, Revocations
from berth.api.image.api import ImageApi
from berth.api.kernel.api import Api
from berth.api.kernel.application import Application
from berth.api.kernel.auth.caller import Authenticator
from berth.api.kernel.auth.keystone import Keystone
from berth.api.kernel.auth.noauth import NoAuth
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.auth.tokens import Tokens
from berth.api.kernel.call import Services
from berth.api.kernel.cors import Cors
from berth.api.kernel.health import Health
from berth.api.kernel.http import Receive, Scope, Send
from berth.api.native.api import NativeApi
from berth.api.placement.api import PlacementApi
from berth.cell.journal import open_cell
from berth.clusters.reconciler import ClusterReconciler
from berth.engine import Engine, Forks
from berth.journal import Address, Journal, JournalFailure, SqliteAddress, open_journal, parse_address
from berth.region.cell_links import CellLinks
from berth.runtime.backoff import Backoff, retry
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings, cells_of
from berth.runtime.telemetry import Telemetry
from berth.runtime.turns import Turns
from berth.scheduler.options import SchedulerOptions, scheduler_options

_log = logging.getLogger(__name__)


def application(settings: Settings, turns: Turns | None = None, number: int = 1) -> "Server":
    """The ASGI application of the worker of a number, which may take turns with others. It opens nothing
    before its startup."""
    return Server(settings, turns, number)


class Server:
    """An ASGI application with a life: starts its parts, serves, stops them in reverse."""

    def __init__(self, settings: Settings, turns: Turns | None, number: int) -> None:
        self._settings = settings
        self._number = number
        self._turns = turns
        self._application: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            assert self._application is not None, "a request came before the startup was complete"
            await self._application(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        clock, ids = SystemClock(), Ids()
        telemetry = Telemetry(self._settings, clock)
        policy = Policy(self._settings.policy_file, self._settings.policy_defaults, clock)
        scheduler = _scheduler(self._settings)
        authenticator = _authenticator(self._settings, clock)
        engine = await _engine(self._settings, self._turns, clock, ids, telemetry)
        await engine.start()
        # What has been read stays: the garbage collector need not go through it again and again.
        gc.freeze()
        self._application = Application(
            _apis(Services(engine, ids, clock, scheduler, self._settings, policy), authenticator),
            Health(engine, telemetry.exposition),
            _honouring_revocations(authenticator, engine),
            Cors(self._settings.cors_allowed_origins, self._settings.cors_allow_headers),
            clock,
            ids,
            telemetry,
            body_bytes_max=self._settings.body_bytes_max,
            public_url=self._settings.public_url,
        )
        reconciler = ClusterReconciler(engine, clock, ids, scheduler, self._settings)
        async with _at_work(self._settings, engine, clock, ids, reconciler, is_ours=self._number == 1):
            await send({"type": "lifespan.startup.complete"})
            while (await receive())["type"] != "lifespan.shutdown":
                self._application.drain()
        await engine.stop()
        if isinstance(authenticator, Keystone):
            authenticator.close()
        await send({"type": "lifespan.shutdown.complete"})


@contextlib.asynccontextmanager
async def _at_work(
    settings: Settings,
    engine: Engine,
    clock: Clock,
    ids: Ids,
    reconciler: ClusterReconciler,
    *,
    is_ours: bool,
) -> AsyncIterator[None]:
    """The links to the cells and the reconciler at work, where there are cells. They run in one worker:
    the others need not know the cells."""
    if not settings.cells or not is_ours:
        yield
        return
    cells = {
        name: functools.partial(open_cell, database, clock, ids)
        for name, database in cells_of(settings.cells)
    }
    tasks = [
        asyncio.create_task(CellLinks(engine, cells, clock).run(), name="links to cells"),
        asyncio.create_task(reconciler.run(), name="reconciler"),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _apis(services: Services, authenticator: Authenticator) -> tuple[Api, ...]:
    """Placement and our own; and those around servers, where there are cells. Users and images are Keystone's
    and Glance's business where there is a Keystone."""
    always = PlacementApi(services), NativeApi(services)
    if not services.settings.cells:
        return always
    compute, issuer = ComputeApi(services), issuer_of(authenticator)
    if issuer is None:
        return *always, compute
    return *always, compute, ImageApi(services), IdentityApi(services, issuer)


def _honouring_revocations(authenticator: Authenticator, engine: Engine) -> Authenticator:
    """Tokens that are issued here can be revoked here; a Keystone keeps its own."""
    if isinstance(authenticator, Tokens):
        return RevocableTokens(authenticator, Revocations(engine))
    return authenticator


def _scheduler(settings: Settings) -> SchedulerOptions:
    return scheduler_options(
        settings.scheduler_filters, settings.scheduler_weighers, settings.scheduler_subset_size
    )


def _authenticator(settings: Settings, clock: Clock) -> Authenticator:
    match settings.auth:
        case "noauth":
            return NoAuth()
        case "tokens":
            assert settings.tokens_file is not None, "settings that do not go together were refused"
            return Tokens(settings.tokens_file, clock, issues=bool(settings.cells))
        case "keystone":
            return Keystone(settings, clock)


async def _engine(
    settings: Settings, turns: Turns | None, clock: Clock, ids: Ids, telemetry: Telemetry
) -> Engine:
    address = parse_address(settings.database)
    # Only a file can be known to be ours alone.
    shared = settings.workers > 1 or not isinstance(address, SqliteAddress)
    return Engine(
        await _opened(address, shared, settings.database_outage_seconds),
        clock,
        ids,
        telemetry,
        shared=shared,
        turns=turns,
        queue_commands_max=settings.queue_commands_max,
        batch_commands_max=settings.batch_commands_max,
        command_bytes_max=settings.command_bytes_max,
        outage_seconds=settings.database_outage_seconds,
        forks=Forks(ids),
    )


async def _opened(address: Address, shared: bool, outage_seconds: int) -> Journal:
    """The journal, once its database answers: it may be restarting too."""

    async def step() -> Journal:
        return open_journal(address, shared=shared)

    return await retry(
        step, (JournalFailure,), Backoff(1, 1), clock=SystemClock(), within_s=outage_seconds, notice=_notice
    )


def _notice(error: Exception, pause_s: float) -> None:
    _log.warning("the database does not answer, retrying in %g s: %s", pause_s, error)
