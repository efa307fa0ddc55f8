"""A whole cloud in one thread: the workers of a region, cells with their conductors, and hosts.

Every part is a process that can be killed at any moment and started again: what it knew is in the journals
and on the disks of hosts, or lost. The parts are composed by ``main`` and ``cell.application``, as in
production.
"""

import asyncio
import contextlib
import errno
import functools
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from berth.agent.conductor import ConductorClient
from berth.agent.credentials import Credential
from berth.agent.drivers.behaviour import Behaviours, SimBehaviour
from berth.agent.drivers.sim import NAME
from berth.agent.fleet import SimHost, register, simulated_fleet
from berth.agent.host import HostAgent, Pace
from berth.agent.state import AgentState, Files, StoredState, read_state, state_path
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.http import Receive, Scope, Send
from berth.api.kernel.image_store import MemoryStore
from berth.api.kernel.ports import PortSource
from berth.cell.application import Cell, CellSettings, Edges
from berth.cell.conductor import Deadlines
from berth.cell.journal import DATABASE, NoObserver, make_cell_engine, name_database
from berth.cell.placement import VERSION
from berth.cell.protocol import Register, ReportedProvider
from berth.client import Client
from berth.engine import Engine, Unavailable
from berth.engine.engine import Observer
from berth.engine.snapshots import is_due, take_snapshot
from berth.journal import JournalError
from berth.main import Composition, compose, make_engine
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.quotas import RESOURCES
from berth.model.rejections import Rejection
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import ConflictPolicy, Host, Server
from berth.runtime.clock import SystemClock
from berth.runtime.settings import Settings
from berth.sagas.proposals import Context
from berth.scheduler.plugins import scheduler_options
from berth.sim.database import Database, SimCalls
from berth.sim.faults import FaultyDriver, StepFaults
from berth.sim.network import FINE, Network
from berth.sim.world import Process, World
from berth.view import View

T = TypeVar("T")

REGION: Final = "region"
"""The address of the region's API."""

_PATIENCE_S: Final = 600.0
_LOOK_S: Final = 0.25
_LOOK_LONGEST_S: Final = 5.0
"""Also without a new row a view may change: when a standby that lacks rows is replaced."""
_RESTART_S: Final = 2.0
_FOLLOW_S: Final = 4.0
"""How often a part looks for what others write into its journal, where nothing else tells it."""
_ORIGIN: Final = Origin("req-sim", "sim", None, "sim")
_HEADERS: Final = {"x-auth-token": "admin", "openstack-api-version": VERSION}
_FOLDER: Final = Path("/")
_UNFINISHED: Final = 0.2
"""How many snapshots are not finished."""
_DRIFT_MAX: Final = 0.01
_AHEAD_MAX_S: Final = 120.0
"""How much too fast or too slowly a clock goes, and how much it is ahead or behind."""

NO_QUOTAS: Final[dict[str, Any]] = {f"quota_{name}": -1 for name in RESOURCES if name != "metadata_items"}

Begin = Callable[[View, int], Enact | Rejection]


@functools.cache
def _read_policy(defaults: Literal["legacy", "secure"]) -> Policy:
    """The rules without a file. They never change, and take longer to read than all else in a start."""
    return Policy(None, defaults, SystemClock())


class MemoryFiles(Files):
    """The disk of a host: it survives its host. One that is full can be read, and not written."""

    def __init__(self) -> None:
        self._content: dict[Path, bytes] = {}
        self.is_full = False

    def read(self, path: Path) -> bytes:
        try:
            return self._content[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def remove(self, path: Path) -> None:
        self._content.pop(path, None)

    def replace(self, path: Path, content: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.write(path, content)

    def write(self, path: Path, content: bytes) -> None:
        """Write also where there is no room for others."""
        self._content[path] = content


class CloudPart:
    """Something that runs as a process: killed where it is, started on what it has left behind. Its machine
    has a clock of its own, which is ahead or behind, and goes too fast or too slowly."""

    def __init__(self, cloud: "SimCloud", name: str) -> None:
        self.cloud = cloud
        self.name = name
        self.process: Process | None = None
        rng = cloud.world.rng(f"clock of {name}")
        self._drift = rng.uniform(-_DRIFT_MAX, _DRIFT_MAX)
        self._ahead_s = rng.uniform(-_AHEAD_MAX_S, _AHEAD_MAX_S)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Begin; when it has started is another matter."""
        assert not self.is_alive, f"{self.name} runs already"
        self.process = self.cloud.world.process(self.name, drift=self._drift, ahead_s=self._ahead_s)
        self.process.spawn(self._live(self.process))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def revive(self) -> None:
        """Start again what is dead."""
        if not self.is_alive:
            self.start()

    def crash(self) -> None:
        """Die, and be started again by a supervisor."""
        self.kill()
        self.cloud.world.call_later(_RESTART_S, self.revive)

    def replace(self) -> None:
        """Start another process beside the one that lives, as a supervisor does that does not reach it. The
        old one is to notice, and to end."""
        if self.process is not None:
            self.cloud.replaced.append(self.process)
        self.process = None
        self.start()

    def freeze(self) -> None:
        """Stop what lives, until it is thawed."""
        if self.process is not None:
            self.process.freeze()

    def thaw(self) -> None:
        if self.process is not None:
            self.process.thaw()

    def restart(self) -> None:
        self.kill()
        self.start()

    async def _live(self, process: Process) -> None:
        """A process that ends by itself, because its database does not answer, or because another has
        replaced it, is started again by its supervisor."""
        try:
            await self._run(process)
        except (Unavailable, JournalError) as error:
            self.cloud.world.trace.note(self.name, f"ends: {error}")
        self.cloud.world.call_later(_RESTART_S, self.revive)
        process.kill()

    async def _run(self, process: Process) -> None:
        raise NotImplementedError


class RegionWorker(CloudPart):
    """One process of the region. The first one dispatches saga runs and reconciles clusters."""

    def __init__(self, cloud: "SimCloud", number: int) -> None:
        super().__init__(cloud, f"region-{number}")
        self._is_first = number == 1
        self.parts: Composition | None = None

    def find_engine(self) -> Engine | None:
        """Its engine, if it lives and has started."""
        return self.parts.services.engine if self.is_alive and self.parts is not None else None

    def kill(self) -> None:
        super().kill()
        self.parts = None

    def replace(self) -> None:
        self.parts = None
        super().replace()

    async def _run(self, process: Process) -> None:
        cloud = self.cloud
        parts = await compose(
            cloud.settings,
            lambda observer: self._open(process, observer),
            process.clock,
            process.ids,
            policy=_read_policy(cloud.settings.policy_defaults),
            ports=cloud.find_port_source(process),
            images=MemoryStore(cloud.image_files),
        )
        self.parts = parts
        cloud.network.listen(REGION, process, parts.application)
        if self._is_first and cloud.cells:
            cells = {name: cell.opener(process) for name, cell in cloud.cells.items()}
            async with asyncio.TaskGroup() as group:
                group.create_task(parts.link_cells(cells))
                group.create_task(parts.reconcile_clusters())
                group.create_task(parts.reconcile_drains())
        else:
            await process.ended

    async def _open(self, process: Process, observer: Observer) -> Engine:
        database = self.cloud.database
        return make_engine(
            self.cloud.settings,
            database.open(process),
            process.clock,
            process.ids,
            observer,
            shared=self.cloud.settings.workers > 1,
            calls=SimCalls(database, process),
            follow_every_s=_FOLLOW_S,
        )


class Housekeeper(CloudPart):
    """Takes snapshots of a journal and prunes it, now and then, as the process beside a server does. Some
    snapshots are not finished: what takes them dies with its statements half done."""

    def __init__(self, cloud: "SimCloud", database: Database, pace: "HousePace") -> None:
        super().__init__(cloud, f"housekeeper of {database.name}")
        self._database = database
        self._pace = pace

    async def _run(self, process: Process) -> None:
        database, pace = self._database, self._pace
        rng = process.ids.rng
        while True:
            await asyncio.sleep(pace.look_s)
            journal = database.open(process)
            calls = SimCalls(database, process)
            try:
                if await calls.call(is_due, journal, pace.every_batches):
                    if rng.random() < _UNFINISHED:
                        journal.fails_after = rng.randrange(30)
                    now_ns = process.clock.now_ns()
                    index = await calls.call(take_snapshot, journal, now_ns, pace.keep_batches)
                    self.cloud.world.trace.note(self.name, f"snapshot {index}")
            except JournalError as error:
                self.cloud.world.trace.note(self.name, f"no snapshot: {error}")
            finally:
                journal.close()


class HousePace(NamedTuple):
    """``look_s``: how often the journal is looked at. ``every_batches`` and ``keep_batches``: as the settings
    of these names say."""

    look_s: float = 10.0
    every_batches: int = 10
    keep_batches: int = 3


UNHURRIED: Final = HousePace(look_s=120.0, every_batches=100, keep_batches=30)
"""Of clouds in which other things matter more."""


class SimCell(CloudPart):
    """One cell: its journal, and the process of its conductor."""

    def __init__(self, cloud: "SimCloud", name: str) -> None:
        super().__init__(cloud, name)
        self.database = Database(cloud.world, name)
        self.engine: Engine | None = None
        self.application: Cell | None = None
        """Both its conductor's."""

    def find_engine(self) -> Engine | None:
        """Its conductor's engine, if that lives and has one."""
        return self.engine if self.is_alive else None

    def opener(self, process: Process) -> Callable[[], Awaitable[Engine]]:
        """How another process opens the cell's journal."""

        async def open() -> Engine:
            while self.name in self.cloud.unreachable:
                await asyncio.sleep(_LOOK_S)
            engine = self._engine(process, NoObserver(), name_database(self.name))
            await engine.start()
            return engine

        return open

    async def _run(self, process: Process) -> None:
        cloud = self.cloud
        settings = CellSettings(
            name=self.name,
            database="",
            placement="",
            placement_token=lambda: "admin",
            agent_token=cloud.join_token,
            heartbeat_timeout_seconds=cloud.heartbeat_timeout_s,
            deadlines=cloud.deadlines,
        )
        self.application = cell = Cell(settings, lambda _: self._edges(process))
        async with cell.running() as conducting:
            cloud.network.listen(self.name, process, cell)
            await conducting

    def _edges(self, process: Process) -> Edges:
        async def open_engine(observer: Observer) -> Engine:
            self.engine = engine = self._engine(process, observer)
            await engine.start()
            return engine

        client = self.cloud.network.client(process, REGION, dict(_HEADERS))
        return Edges(process.clock, process.ids, open_engine, client)

    def _engine(self, process: Process, observer: Observer, name: str = DATABASE) -> Engine:
        return make_cell_engine(
            self.database.open(process),
            process.clock,
            process.ids,
            observer,
            follow_every_s=_FOLLOW_S,
            calls=SimCalls(self.database, process),
            name=name,
        )


class HostPart(CloudPart):
    """One host with its agent. Its disk survives it."""

    def __init__(self, cloud: "SimCloud", host: SimHost) -> None:
        super().__init__(cloud, host.name)
        self.host = host
        self.files = MemoryFiles()
        self.state = AgentState(state_path(_FOLDER, host.name), self.files)

    def stored(self) -> StoredState:
        """What is on the disk."""
        return read_state(state_path(_FOLDER, self.host.name), self.files)

    def start(self) -> None:
        # What was not written to the disk is lost.
        self.state = AgentState(state_path(_FOLDER, self.host.name), self.files)
        super().start()

    def credential(self, rng: random.Random) -> Credential:
        """The host's credential, as its disk has it."""
        host = self.host
        return Credential(_FOLDER, host.name, host.id, self.files, lambda: f"{rng.getrandbits(256):064x}")

    def kill_agent(self) -> None:
        """The agent dies. What its hypervisor has done is on the disk, though the agent has not written down
        that it was told to."""
        done = msgspec.structs.replace(self.stored(), servers=self.state.disk, units=self.state.units)
        self.files.write(state_path(_FOLDER, self.host.name), msgspec.json.encode(done))
        self.kill()

    async def _run(self, process: Process) -> None:
        report = register(self.host, NAME)
        await self.make_agent(process, report, lambda: report.providers).run()

    def make_agent(
        self, process: Process, report: Register, tree: Callable[[], Iterable[ReportedProvider]]
    ) -> HostAgent:
        """``tree``: the providers that the host has now."""
        cloud, rng = self.cloud, process.ids.rng
        return HostAgent(
            report,
            FaultyDriver(self.host.name, self.state, cloud.behaviours, rng, tree, cloud.faults),
            self.state,
            self.credential(rng),
            ConductorClient(cloud.connect_agent(self, process), cloud.join_token),
            rng,
            asyncio.Semaphore(1),
            Pace(),
        )


class SimCloud:
    """Made in a running event loop whose time is virtual; ``running`` starts it. ``options`` are settings.
    ``fleet``: its hosts, in place of so many that are alike."""

    def __init__(
        self,
        *,
        seed: int,
        cells: int = 1,
        hosts: int = 5,
        fleet: Sequence[SimHost] = (),
        racks: int = 0,
        workers: int = 1,
        behaviour: SimBehaviour | None = None,
        deadlines: Deadlines | None = None,
        heartbeat_timeout_s: float = 30.0,
        join_token: str | None = None,
        housekeeping: HousePace | None = None,
        **options: Any,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.database = Database(self.world, REGION)
        self.image_files: dict[str, bytes] = {}
        self.deadlines = deadlines or Deadlines()
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.join_token = join_token
        self.unreachable: set[str] = set()
        """Cells whose journals the region cannot open when it starts its links."""
        names = [f"cell{number}" for number in range(1, cells + 1)]
        self.settings = Settings(
            cells=tuple(f"{name}=sqlite:///{name}.db" for name in names),
            workers=workers,
            log_level="error",
            **{**NO_QUOTAS, **options},
        )
        self.behaviours = Behaviours(behaviour or SimBehaviour())
        self.workers = [RegionWorker(self, number) for number in range(1, workers + 1)]
        self.cells = {name: SimCell(self, name) for name in names}
        self.housekeepers = [
            Housekeeper(self, database, housekeeping)
            for database in self.databases()
            if housekeeping is not None
        ]
        self.hosts: dict[str, HostPart] = {}
        for number, host in enumerate(fleet or simulated_fleet(hosts)):
            in_racks = (f"rack{number % racks + 1}",) if racks else ()
            placed = msgspec.structs.replace(host, cell=names[number % cells], aggregates=in_racks)
            self.hosts[host.name] = HostPart(self, placed)
        self.faults = StepFaults(self)
        self.scheduler = scheduler_options(
            self.settings.scheduler_filters,
            self.settings.scheduler_weighers,
            pci_aliases=self.settings.pci_aliases,
            device_profiles=self.settings.device_profiles,
        )
        self.connect_agent = self._connect_agent
        """How the agent of a host reaches its conductor."""
        self.outside = self.world.process("outside")
        """Where users and operators are."""
        self.ids = self.outside.ids
        self.readers: dict[str, Engine] = {}
        self.replaced: list[Process] = []
        """Processes beside which another was started in their place."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """The cloud with all its hosts up."""
        for part in self.parts():
            part.start()
        for cell in self.cells.values():
            self.readers[cell.name] = await cell.opener(self.outside)()
        await self.until(self._all_up)
        try:
            yield self
        finally:
            for part in self.parts():
                part.kill()
            for process in (*self.replaced, self.outside):
                process.kill()
            for database in self.databases():
                database.close()

    def heal(self) -> None:
        """Nothing goes wrong any more, and every part lives."""
        self.network.weather = FINE
        self.network.unblock_all()
        for database in self.databases():
            database.heal()
        self.faults.heal()
        for host in self.hosts.values():
            host.files.is_full = False
        for process in self.replaced:
            process.thaw()
            process.live_on()
        for part in self.parts():
            part.thaw()
            if part.process is not None:
                part.process.live_on()
            part.revive()

    def databases(self) -> list[Database]:
        return [self.database, *(cell.database for cell in self.cells.values())]

    def parts(self) -> list[CloudPart]:
        return [*self.workers, *self.housekeepers, *self.cells.values(), *self.hosts.values()]

    def _all_up(self, view: View) -> bool:
        return view.records.count(Host) == len(self.hosts) and not len(view.down)

    def find_port_source(self, process: Process) -> PortSource | None:
        """Where a worker reads ports, if the settings name a source by its address in the network."""
        url = self.settings.port_source_url
        if url is None:
            return None
        return PortSource(self.settings, self.network.connect(process, urlsplit(url).hostname or ""))

    def _connect_agent(self, host: HostPart, process: Process) -> Client:
        return self.network.client(process, host.host.cell or "")

    # -- asking ---------------------------------------------------------------------------------

    def client(self, headers: dict[str, str] | None = None) -> Client:
        """A client of the region's API, at its users'."""
        versions = f"{VERSION}, compute 2.94"
        given = headers or {**_HEADERS, "openstack-api-version": versions}
        return self.network.client(self.outside, REGION, dict(given))

    def context(self, policy: ConflictPolicy = "fail") -> Context:
        return Context(self.ids.request_id(), "project", "user", self.ids, self.scheduler, policy)

    @property
    def region(self) -> Engine:
        """The engine of a worker that lives; Unavailable if none does."""
        return self._find_worker()[1]

    def _find_worker(self) -> tuple[Process, Engine]:
        for worker in self.workers:
            engine = worker.find_engine()
            if worker.process is not None and engine is not None:
                return worker.process, engine
        raise Unavailable("no worker of the region lives")

    async def begin(self, propose: Begin) -> Rejection | None:
        """Begin an operation; why not, if it is refused."""
        outcome = await self._asked(
            lambda region: region.submit(propose, _ORIGIN, lambda view, changed: None)
        )
        return outcome if isinstance(outcome, Rejection) else None

    async def read(self, answer: Callable[[View], T]) -> T:
        return await self._asked(lambda region: region.read(answer))

    async def _asked(self, ask: Callable[[Engine], Awaitable[T]]) -> T:
        """What the region says, when there is one."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    return await self._ask(ask)
                except Unavailable:
                    await asyncio.sleep(_LOOK_S)

    async def _ask(self, ask: Callable[[Engine], Awaitable[T]]) -> T:
        """Unavailable, if the worker that is asked dies."""
        process, engine = self._find_worker()
        asking = asyncio.ensure_future(ask(engine))
        await asyncio.wait((asking, process.ended), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            raise Unavailable("the worker has died")
        return asking.result()

    async def server(self, id: str) -> Server | None:
        return await self.read(lambda view: view.records.get(Server, id))

    async def until(self, holds: Callable[[View], bool], patience_s: float = _PATIENCE_S) -> None:
        """Wait until something holds in the region."""
        async with asyncio.timeout(patience_s):
            written = self.database.written
            while not await self.read(holds):
                written = await _wait_for_rows(self.database, written)

    async def at_rest(self, id: str) -> Server | None:
        """The server when nothing is being done to it any more; None if it is gone."""
        await self.until(lambda view: _is_idle(view.records.get(Server, id)))
        return await self.server(id)

    async def all_at_rest(self, patience_s: float = _PATIENCE_S) -> None:
        """Wait until nothing is under way anywhere."""
        await self.until(
            lambda view: all(map(_is_idle, view.records.all(Server))) and not view.records.count(Outbox),
            patience_s,
        )
        async with asyncio.timeout(patience_s):
            for name, reader in self.readers.items():
                written = self.cells[name].database.written
                while await _may_have_runs(reader):
                    written = await _wait_for_rows(self.cells[name].database, written)

    def hosts_with(self, server: str) -> set[str]:
        """The names of the hosts on whose disks a server is."""
        return {name for name, host in self.hosts.items() if server in host.state.disk}

    async def call_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The region's API, without a network in between."""
        parts = next(worker.parts for worker in self.workers if worker.parts is not None)
        await parts.application(scope, receive, send)


async def _may_have_runs(reader: Engine) -> bool:
    """Whether saga runs are under way in a cell, or it cannot be read: a call may still hang."""
    try:
        return await reader.read(lambda view: view.records.count(SagaRun) > 0)
    except Unavailable:
        return True


async def _wait_for_rows(database: Database, written: int) -> int:
    """Wait until a view may have changed since so many rows were written, and a moment longer: rows rarely
    come alone. How many there are then."""
    await database.wait_beyond(written, _LOOK_LONGEST_S)
    await asyncio.sleep(_LOOK_S)
    return database.written


def _is_idle(server: Server | None) -> bool:
    return server is None or server.run is None
