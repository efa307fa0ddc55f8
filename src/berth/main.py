"""The composition of a server: what a worker process is made of, and in which order it starts and stops.

    settings -> journal -> engine (reads the journal, then writes) -> API -> ASGI

Nothing else in Berth knows all the parts: the simulation and the tests ``compose`` their regions here too. A
part that cannot be made (a bad policy file, a database in use) ends the start with its own message.
"""

import asyncio
import contextlib
import functools
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from berth.api.compute.api import ComputeApi
from berth.api.identity.api import IdentityApi
from berth.api.identity.directory import choose_issuer
from berth.api.identity.tokens import RevocableTokens, Revocations
from berth.api.image.api import ImageApi
from berth.api.image.contents import sweep
from berth.api.kernel.application import Api, Application, Cors
from berth.api.kernel.auth.caller import Authenticator, NoAuth
from berth.api.kernel.auth.keystone import Keystone
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.auth.tokens import Tokens
from berth.api.kernel.call import Services
from berth.api.kernel.health import Health
from berth.api.kernel.http import Receive, Scope, Send
from berth.api.kernel.image_store import FolderStore, ImageStore, StoreUnavailable
from berth.api.kernel.images import ImageSource
from berth.api.kernel.ports import PortSource, read_port_needs
from berth.api.kernel.problem import Problem
from berth.api.native.api import NativeApi
from berth.api.native.drains import word_rejection
from berth.api.placement.api import PlacementApi
from berth.cell.journal import name_database, open_cell
from berth.clusters.reconciler import reconcile_clusters
from berth.console.api import ConsoleApi
from berth.drains.reconciler import reconcile_drains
from berth.engine import Engine, Forks, Overloaded, Unavailable
from berth.engine.attachment import ProcessName
from berth.engine.engine import Observer
from berth.engine.figures import keep_figures
from berth.engine.journal_thread import JournalCalls
from berth.engine.startup import wait_for_database
from berth.journal import Address, Journal, JournalFailure, SqliteAddress, open_journal, parse_address
from berth.model.rejections import Rejection
from berth.model.servers import Need, Server
from berth.region.cell_links import CellLinks, OpenCell
from berth.region.figures import read_figures
from berth.runtime.clock import Clock, SystemClock, TimeShare
from berth.runtime.ids import Ids, describe_process
from berth.runtime.metrics import MetricsMemory
from berth.runtime.settings import Settings, cells_of
from berth.runtime.telemetry import Telemetry
from berth.runtime.turns import Turns
from berth.sagas.reclaim import forget_servers, reclaim_servers
from berth.sagas.saga import all_sagas
from berth.scheduler.plugins import SchedulerOptions, scheduler_options

FOLLOW_S: Final = 0.5
"""How often somebody who waits for news looks for what other processes have written."""
_EXPLANATIONS_SHARE: Final = 0.1
_SWEEP_EVERY_S: Final = 3600.0
_log = logging.getLogger(__name__)


def application(
    settings: Settings, turns: Turns | None = None, number: int = 1, memory: MetricsMemory | None = None
) -> "RegionServer":
    """The ASGI application of the worker of a number, which may take turns with others, and counts in the
    memory of all. It opens nothing before its startup."""
    return RegionServer(settings, turns, number, memory)


class RegionServer:
    """An ASGI application with a life: starts its parts, serves, stops them in reverse."""

    def __init__(
        self, settings: Settings, turns: Turns | None, number: int, memory: MetricsMemory | None
    ) -> None:
        self._settings = settings
        self._memory = memory
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
        settings, clock, ids = self._settings, SystemClock(), Ids()
        telemetry = Telemetry(settings, clock, memory=self._memory, number=self._number)
        open_engine = functools.partial(_open_engine, settings, self._turns, self._number, clock, ids)
        region = await compose(settings, open_engine, clock, ids, telemetry=telemetry)
        # What has been read stays: the garbage collector need not scan it each time.
        gc.freeze()
        self._application = region.application
        async with _at_work(region, is_ours=self._number == 1):
            await send({"type": "lifespan.startup.complete"})
            while (await receive())["type"] != "lifespan.shutdown":
                self._application.drain()
        await region.stop()
        await send({"type": "lifespan.shutdown.complete"})


OpenEngine = Callable[[Observer], Awaitable[Engine]]
"""Makes the engine of a region's journal, which an observer watches."""


class Composition(NamedTuple):
    """The parts of one process of a region. The engine has started; ``link_cells`` and the
    reconcilers run in one process of a region."""

    services: Services
    authenticator: Authenticator
    apis: tuple[Api, ...]
    application: Application
    telemetry: Telemetry

    async def link_cells(self, cells: Mapping[str, OpenCell]) -> None:
        """Dispatch saga runs to the cells and bring their progress up, until cancelled."""
        await CellLinks(self.services.engine, cells, self.services.clock, self.telemetry).run()

    async def reconcile_clusters(self) -> None:
        """Drive clusters to what they should be, until cancelled."""
        at = self.services
        await reconcile_clusters(at.engine, at.clock, at.ids, at.scheduler, at.settings).run()

    async def reconcile_drains(self) -> None:
        """Have servers leave the hosts that are drained, until cancelled."""
        at = self.services

        async def read_ports(server: Server) -> tuple[Need, ...] | str:
            try:
                needs = await read_port_needs(at.ports, server.ports, server.project, server.id)
            except Problem as unavailable:
                return unavailable.text
            return word_rejection(needs) if isinstance(needs, Rejection) else needs

        await reconcile_drains(
            at.engine, at.clock, at.ids, at.scheduler, at.settings, word_rejection, read_ports
        ).run()

    async def sweep_images(self) -> None:
        """Remove what uploads have left that died with their server."""
        if self.services.images is not None:
            await sweep(self.services.engine, self.services.images)

    async def reclaim_servers(self) -> None:
        """Delete what was soft-deleted long enough ago, until cancelled."""
        at = self.services
        await reclaim_servers(at.engine, at.clock, at.ids, at.scheduler, at.settings).run()

    async def forget_servers(self) -> None:
        """Forget deleted servers when their time is over, until cancelled."""
        at = self.services
        await forget_servers(at.engine, at.clock, at.settings).run()

    async def stop(self) -> None:
        await self.services.engine.stop()
        if self.services.images is not None:
            self.services.images.close()
        if self.services.glance is not None:
            await self.services.glance.close()
        if self.services.ports is not None:
            await self.services.ports.close()
        if isinstance(self.authenticator, Keystone):
            self.authenticator.close()


async def compose(
    settings: Settings,
    open_engine: OpenEngine,
    clock: Clock,
    ids: Ids,
    *,
    authenticator: Authenticator | None = None,
    policy: Policy | None = None,
    ports: PortSource | None = None,
    images: ImageStore | None = None,
    glance: ImageSource | None = None,
    telemetry: Telemetry | None = None,
) -> Composition:
    """Make the parts of a region and start its engine. What the settings alone can refuse is refused
    before the journal is opened. ``authenticator``, ``policy``, ``ports`` and ``images`` replace those that
    the settings name."""
    telemetry = telemetry or Telemetry(settings, clock)
    if settings.cells:
        telemetry.expect_operations(saga.name for saga in all_sagas())
    policy = policy or Policy(settings.policy_file, settings.policy_defaults, clock)
    scheduler = _scheduler(settings)
    authenticator = authenticator or _authenticator(settings, clock)
    if ports is None and settings.port_source_url is not None:
        ports = PortSource(settings)
    if images is None and keeps_images(settings):
        images = FolderStore(Path(settings.image_folder))
    if glance is None and settings.image_endpoint is not None:
        glance = ImageSource(settings)
    engine = await open_engine(telemetry)
    await engine.start()
    explanations = TimeShare(clock, _EXPLANATIONS_SHARE)
    services = Services(engine, ids, clock, scheduler, settings, policy, explanations, ports, images, glance)
    apis = _apis(services, authenticator)

    def look() -> None:
        telemetry.look(read_figures(engine.view, settings, clock.now_ns() // 1_000_000_000))

    application = Application(
        apis,
        Health(engine, telemetry.exposition, look),
        _honouring_revocations(authenticator, engine),
        Cors(settings.cors_allowed_origins, settings.cors_allow_headers),
        clock,
        ids,
        telemetry,
        body_bytes_max=settings.body_bytes_max,
        public_url=settings.public_url,
    )
    return Composition(services, authenticator, apis, application, telemetry)


@contextlib.asynccontextmanager
async def _at_work(region: Composition, *, is_ours: bool) -> AsyncIterator[None]:
    """What a worker does beside serving. The links to the cells and the reconcilers, where there are cells,
    run in one worker: the others need not know the cells."""
    services = region.services
    tasks = [
        asyncio.create_task(keep_figures(services.engine, region.telemetry), name="figures"),
        asyncio.create_task(_sweep_images(region), name="sweep of images"),
    ]
    if isinstance(region.authenticator, Keystone):
        tasks.append(asyncio.create_task(region.authenticator.check(), name="Keystone"))
    if services.settings.cells and is_ours:
        tasks += _work_on_cells(region)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _sweep_images(region: Composition) -> None:
    """At the start, and now and then: another server may have died since."""
    while True:
        try:
            await region.sweep_images()
        except (Overloaded, StoreUnavailable, Unavailable) as outage:
            _log.warning("image contents: cannot look for leftovers, trying again later: %s", outage)
        await asyncio.sleep(_SWEEP_EVERY_S)


def _work_on_cells(region: Composition) -> list[asyncio.Task[None]]:
    services = region.services
    cells = {
        name: functools.partial(
            open_cell,
            database,
            services.clock,
            services.ids,
            name=name_database(name),
            process=ProcessName("region", describe_process()),
        )
        for name, database in cells_of(services.settings.cells)
    }
    return [
        asyncio.create_task(region.link_cells(cells), name="links to cells"),
        asyncio.create_task(region.reconcile_clusters(), name="cluster reconciler"),
        asyncio.create_task(region.reconcile_drains(), name="drain reconciler"),
        asyncio.create_task(region.reclaim_servers(), name="reclaim"),
        asyncio.create_task(region.forget_servers(), name="deleted servers"),
    ]


def keeps_images(settings: Settings) -> bool:
    """Whether images are kept here: users and images are Keystone's and Glance's business where there is a
    Keystone, and images are Glance's where one is named."""
    return bool(settings.cells) and settings.auth != "keystone" and settings.image_endpoint is None


def _apis(services: Services, authenticator: Authenticator) -> tuple[Api, ...]:
    """Placement, our own and the console; and those around servers, where there are cells."""
    always = PlacementApi(services), NativeApi(services), ConsoleApi(services.settings, authenticator)
    if not services.settings.cells:
        return always
    compute, issuer = ComputeApi(services), choose_issuer(authenticator)
    if issuer is None:
        return *always, compute
    identity = IdentityApi(services, issuer)
    if not keeps_images(services.settings):
        return *always, compute, identity
    return *always, compute, ImageApi(services), identity


def _honouring_revocations(authenticator: Authenticator, engine: Engine) -> Authenticator:
    """Tokens that are issued here can be revoked here; a Keystone keeps its own."""
    if isinstance(authenticator, Tokens):
        return RevocableTokens(authenticator, Revocations(engine))
    return authenticator


def _scheduler(settings: Settings) -> SchedulerOptions:
    return scheduler_options(
        settings.scheduler_filters,
        settings.scheduler_weighers,
        settings.scheduler_subset_size,
        pci_aliases=settings.pci_aliases,
        device_profiles=settings.device_profiles,
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


async def _open_engine(
    settings: Settings, turns: Turns | None, number: int, clock: Clock, ids: Ids, observer: Observer
) -> Engine:
    address = parse_address(settings.database)
    # Only a file can be known to be ours alone.
    shared = settings.workers > 1 or not isinstance(address, SqliteAddress)
    journal = await _opened(address, shared, settings.database_outage_seconds)
    return make_engine(
        settings,
        journal,
        clock,
        ids,
        observer,
        shared=shared,
        turns=turns,
        forks=Forks(ids),
        process=ProcessName(f"worker {number}", describe_process()),
    )


def make_engine(
    settings: Settings,
    journal: Journal,
    clock: Clock,
    ids: Ids,
    observer: Observer,
    *,
    shared: bool,
    turns: Turns | None = None,
    forks: Forks | None = None,
    calls: JournalCalls | None = None,
    follow_every_s: float = FOLLOW_S,
    process: ProcessName | None = None,
) -> Engine:
    """The engine of a region's journal."""
    return Engine(
        journal,
        clock,
        ids,
        observer,
        shared=shared,
        turns=turns,
        queue_commands_max=settings.queue_commands_max,
        queue_bytes_max=settings.queue_bytes_max,
        batch_commands_max=settings.batch_commands_max,
        command_bytes_max=settings.command_bytes_max,
        outage_seconds=settings.database_outage_seconds,
        forks=forks,
        calls=calls,
        follow_every_s=follow_every_s,
        process=process,
    )


async def _opened(address: Address, shared: bool, outage_seconds: int) -> Journal:
    """The journal, once its database answers: it may be restarting too."""

    async def step() -> Journal:
        return open_journal(address, shared=shared)

    return await wait_for_database(
        step,
        (JournalFailure,),
        name="the database",
        pause_s=1,
        clock=SystemClock(),
        within_s=outage_seconds,
    )
