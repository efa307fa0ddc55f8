"""A whole cloud in one process: a region, cells with their conductors, and simulated hosts, on real journals.

Nothing in it is a stand-in but the network between its parts and the hypervisors. Parts can be killed and
started again at any moment: what they knew is in the journals, or lost.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from berth.agent.conductor import ConductorClient
from berth.agent.credentials import Credential
from berth.agent.drivers.behaviour import Behaviours, SimBehaviour
from berth.agent.drivers.sim import SimDriver
from berth.agent.fleet import SimHost, register, simulated_fleet
from berth.agent.host import HostAgent, Pace
from berth.agent.state import AgentState, state_path
from berth.api.kernel.application import Application
from berth.api.kernel.http import Receive, Scope, Send
from berth.cell.agent_api import AgentApi
from berth.cell.conductor import Deadlines
from berth.cell.hosts import HostRegistry
from berth.cell.journal import make_cell_engine, open_cell
from berth.cell.placement import VERSION, ClaimWriter
from berth.cell.providers import HostTreeWriter
from berth.client import Unreachable, connect_directly
from berth.engine import Engine, Unavailable
from berth.engine.engine import Observer
from berth.journal import open_journal, parse_address
from berth.main import Composition, compose
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.rejections import Rejection
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import ConflictPolicy, Host, Server
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry
from berth.sagas.proposals import Context
from berth.scheduler.plugins import scheduler_options
from berth.sim.faults import FaultPlan, FaultyConductor, FaultyMailbox
from berth.view import View

T = TypeVar("T")

QUICK: Final = Deadlines(0.6, 0.6, 1.0)
_PATIENCE_S: Final = 30
_ORIGIN: Final = Origin("req-sim", "sim", None, "sim")
_HEADERS: Final = {"x-auth-token": "admin", "openstack-api-version": VERSION}

Begin = Callable[[View, int], Enact | Rejection]


class SimCell:
    """One cell: its journal, and a conductor that can be killed."""

    def __init__(self, cloud: "SimCloud", name: str) -> None:
        self.name = name
        self._cloud = cloud
        self._database = f"sqlite:///{cloud.folder / name}.db"
        self._api: AgentApi | None = None
        self._ending: list[asyncio.Task[None]] = []
        self._engine: Engine | None = None
        self.from_region = make_cell_engine(self._database, cloud.clock, cloud.ids)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What an agent reaches, if anything."""
        if self._api is None:
            raise Unreachable(f"the conductor of {self.name} is down")
        await self._api(scope, receive, send)

    async def open(self) -> Engine:
        """Another way into its journal, for the region; once there is one."""
        while self.name in self._cloud.unreachable:
            await asyncio.sleep(0.05)
        return await open_cell(self._database, self._cloud.clock, self._cloud.ids)

    async def start(self) -> None:
        cloud = self._cloud
        engine = self._engine = make_cell_engine(self._database, cloud.clock, cloud.ids)
        await engine.start()
        mailbox = FaultyMailbox()
        client = connect_directly(cloud.call_api, _HEADERS)
        conductor = FaultyConductor(
            engine, ClaimWriter(client), mailbox, cloud.clock, cloud.deadlines, cloud.plan, self._crash_soon
        )
        hosts = HostRegistry(
            engine,
            HostTreeWriter(client, self.name),
            mailbox,
            cloud.clock,
            cloud.ids,
            cloud.heartbeat_timeout_s,
            lambda: conductor.term,
        )
        telemetry = Telemetry(Settings(), cloud.clock)
        self._api = AgentApi(
            engine,
            hosts,
            mailbox,
            telemetry,
            cloud.clock,
            self.name,
            cloud.heartbeat_timeout_s,
            cloud.join_token,
        )
        await conductor.take_over()
        self._ending = [asyncio.create_task(conductor.run()), asyncio.create_task(hosts.watch())]

    async def kill(self) -> None:
        """End the conductor where it is."""
        self._api = None
        tasks, self._ending = self._ending, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._engine is not None:
            await self._engine.stop()
            self._engine = None

    def _crash_soon(self) -> None:
        self._api = None
        self._cloud.spawn(self._restart())

    async def _restart(self) -> None:
        await self.kill()
        await self.start()


class SimCloud:
    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        cells: int = 1,
        hosts: int = 5,
        racks: int = 0,
        behaviour: SimBehaviour | None = None,
        deadlines: Deadlines = QUICK,
        heartbeat_timeout_s: float = 1.0,
        join_token: str | None = None,
    ) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.ids = Ids(seed)
        self.deadlines = deadlines
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.join_token = join_token
        self.plan = FaultPlan()
        self.unreachable: set[str] = set()
        """Cells whose journals the region cannot open when it starts its links."""
        self.settings = Settings(
            cells=tuple(f"cell{number}=sqlite:///cell{number}.db" for number in range(1, cells + 1))
        )
        self.scheduler = scheduler_options(self.settings.scheduler_filters, self.settings.scheduler_weighers)
        quick = SimBehaviour(build_seconds=0, live_migrate_seconds=0.05, other_seconds=0)
        self.behaviours = Behaviours(behaviour or quick)
        self._seed = seed
        self._host_count = hosts
        self._rack_count = racks
        self._links: asyncio.Task[None] | None = None
        self._reconciler: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(20)
        self.fleet: dict[str, SimHost] = {}
        self.states: dict[str, AgentState] = {}
        self.parts: Composition
        self.region: Engine
        self.api: Application
        self.cells = {f"cell{number}": SimCell(self, f"cell{number}") for number in range(1, cells + 1)}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["SimCloud"]:
        """The cloud with all its hosts up."""
        await self._start_region()
        for cell in self.cells.values():
            await cell.from_region.start()
            await cell.start()
        self.start_links()
        self.start_reconciler()
        self._start_agents()
        try:
            await self.until(self._all_up)
            yield self
        finally:
            await self._stop()

    def spawn(self, run: Coroutine[Any, Any, None]) -> None:
        """Have something done beside everything else."""
        task = asyncio.create_task(run)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- asking ---------------------------------------------------------------------------------

    def context(self, policy: ConflictPolicy = "fail") -> Context:
        return Context(self.ids.request_id(), "project", "user", self.ids, self.scheduler, policy)

    async def begin(self, propose: Begin) -> Rejection | None:
        """Begin an operation; why not, if it is refused."""
        outcome = await self._asked(lambda: self.region.submit(propose, _ORIGIN, lambda view, changed: None))
        return outcome if isinstance(outcome, Rejection) else None

    async def read(self, answer: Callable[[View], T]) -> T:
        return await self._asked(lambda: self.region.read(answer))

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the region says, when there is one."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    return await ask()
                except Unavailable:
                    await asyncio.sleep(0.02)

    async def server(self, id: str) -> Server | None:
        return await self.read(lambda view: view.records.get(Server, id))

    async def until(self, holds: Callable[[View], bool], patience_s: float = _PATIENCE_S) -> None:
        """Wait until something holds in the region."""
        async with asyncio.timeout(patience_s):
            while not await self.read(holds):
                await asyncio.sleep(0.02)

    async def at_rest(self, id: str) -> Server | None:
        """The server when nothing is being done to it any more; None if it is gone."""
        await self.until(lambda view: _is_idle(view.records.get(Server, id)))
        return await self.server(id)

    async def all_at_rest(self) -> None:
        """Wait until nothing is under way anywhere, and every host has what it is to have."""
        await self.until(
            lambda view: all(map(_is_idle, view.records.all(Server))) and not view.records.count(Outbox)
        )
        async with asyncio.timeout(_PATIENCE_S):
            for cell in self.cells.values():
                while await cell.from_region.read(lambda view: view.records.count(SagaRun) > 0):
                    await asyncio.sleep(0.02)

    def hosts_with(self, server: str) -> set[str]:
        """The names of the hosts on whose disks a server is."""
        return {name for name, state in self.states.items() if server in state.disk}

    # -- hosts ----------------------------------------------------------------------------------

    async def kill_host(self, name: str) -> None:
        """The host dies in the middle of what it does. Its disk stays."""
        task = self._agents.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def is_alive(self, name: str) -> bool:
        return name in self._agents

    def start_host(self, name: str) -> None:
        host = self.fleet[name]
        rng = Ids(self._seed + list(self.fleet).index(name)).rng
        driver = SimDriver(name, self.states[name].disk, self.behaviours, rng)
        cell = self.cells[host.cell or ""]
        conductor = ConductorClient(connect_directly(cell), self.join_token)
        pace = Pace(first=0.05, longest=0.3, refused=1.0, restless_longest=0.05)
        agent = HostAgent(
            register(host, driver.name),
            driver,
            self.states[name],
            Credential(self.folder, name, host.id),
            conductor,
            rng,
            self._turns,
            pace,
        )
        self._agents[name] = asyncio.create_task(agent.run(), name=f"host {name}")

    # -- parts ----------------------------------------------------------------------------------

    async def _start_region(self) -> None:
        self.parts = await compose(self.settings, self._open_region, self.clock, self.ids)
        self.region, self.api = self.parts.services.engine, self.parts.application

    async def _open_region(self, observer: Observer) -> Engine:
        database = f"sqlite:///{self.folder / 'region.db'}"
        return Engine(open_journal(parse_address(database), shared=False), self.clock, self.ids, observer)

    async def call_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What reaches the region's API, whichever serves it now."""
        await self.api(scope, receive, send)

    async def restart_region(self) -> None:
        """The region's process ends, with all that is in it, and starts again on its journal."""
        await self.kill_reconciler()
        await self.kill_links()
        await self.region.stop()
        await self._start_region()
        self.start_links()
        self.start_reconciler()

    def start_links(self) -> None:
        cells = {name: cell.open for name, cell in self.cells.items()}
        self._links = asyncio.create_task(self.parts.link_cells(cells))

    async def kill_links(self) -> None:
        if self._links is not None:
            self._links.cancel()
            await asyncio.gather(self._links, return_exceptions=True)

    def start_reconciler(self) -> None:
        self._reconciler = asyncio.create_task(self.parts.reconcile_clusters())

    async def kill_reconciler(self) -> None:
        if self._reconciler is not None:
            self._reconciler.cancel()
            await asyncio.gather(self._reconciler, return_exceptions=True)

    def _start_agents(self) -> None:
        names = list(self.cells)
        for number, host in enumerate(simulated_fleet(self._host_count)):
            racks = (f"rack{number % self._rack_count + 1}",) if self._rack_count else ()
            placed = msgspec.structs.replace(host, cell=names[number % len(names)], aggregates=racks)
            self.fleet[host.name] = placed
            self.states[host.name] = AgentState(state_path(self.folder, host.name))
            self.start_host(host.name)

    def _all_up(self, view: View) -> bool:
        return view.records.count(Host) == self._host_count and not len(view.down)

    async def _stop(self) -> None:
        await self.kill_reconciler()
        await self.kill_links()
        for task in [*self._agents.values(), *self._background]:
            task.cancel()
        await asyncio.gather(*self._agents.values(), *self._background, return_exceptions=True)
        for cell in self.cells.values():
            await cell.kill()
            await cell.from_region.stop()
        await self.region.stop()


def _is_idle(server: Server | None) -> bool:
    return server is None or server.run is None
