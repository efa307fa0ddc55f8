"""The process of the agents: many simulated hosts in one, or the machine at hand, each in its own task.

    a host:  dead <--(DATA/control)--> alive: its agent runs

A host that dies takes its agent with it, in the middle of whatever it does; a host that is healed starts as
after a power cut, with what is on its disk. An agent that crashes is restarted; the others go on.

The fleet is controlled through a folder while it runs (``Control``), which is read several times a second:

    DATA/control/HOST.dead        exists: the host is dead. Removed: it is healed
    DATA/control/behaviour.toml   how all of them behave, in place of how they were started

A behaviour (``SimBehaviour``) that cannot be read changes nothing.
"""

import asyncio
import hashlib
import logging
import random
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import uvloop
from msgspec import Meta

from berth.agent.conductor import ConductorClient
from berth.agent.credentials import Credential
from berth.agent.drivers.behaviour import BehaviourError, Behaviours, SimBehaviour, read_behaviour
from berth.agent.drivers.sim import NAME, SimDriver
from berth.agent.fleet import HOSTS_MAX, SimHost, register
from berth.agent.host import HostAgent, Pace, make_link
from berth.agent.machine import Machine
from berth.agent.metrics import AgentMetrics
from berth.agent.state import FOLDER, HOST_NAME, AgentState, StateError, state_path
from berth.cell.protocol import Register
from berth.client import Client
from berth.runtime import tracing
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging

REGISTRATIONS_MAX: Final = 20
"""Hosts that register at the same time: a conductor writes each into Placement."""

PROGRESS_EVERY_S: Final = 2.0
_COUNT_EVERY_S: Final = 1.0

CONTROL: Final = "control"
BEHAVIOUR: Final = "behaviour.toml"
LOOK_EVERY_S: Final = 0.2

_FILES_PER_HOST: Final = 4
_OTHER_FILES: Final = 256
_AGAIN_AFTER_S: Final = 1.0
_DEAD: Final = ".dead"
_BEHAVIOUR_BYTES_MAX: Final = 1 << 20
_NAMES_SHOWN: Final = 5
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``conductor`` is its endpoint. ``seed``: with the same one, the same commands in the same order have
    the same outcomes on each host. ``token``: the cell's join token, for hosts that have not joined yet."""

    conductor: str
    data: Path
    hosts: Annotated[tuple[SimHost, ...], Meta(max_length=HOSTS_MAX)] = ()
    machine: Machine | None = None
    """The machine at hand, which is a host too."""
    ca_file: Path | None = None
    """Certificates to check the conductor's with, in place of the system's."""
    token: str | None = None
    behaviour: SimBehaviour = SimBehaviour()
    seed: int | None = None
    pace: Pace = Pace()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"


def serve_agents(
    settings: AgentSettings,
    on_start: Callable[[asyncio.Event], None] = lambda stop: None,
    metrics: AgentMetrics | None = None,
) -> int:
    """Run the agents until told to stop; the exit status. ``on_start`` is called in the event loop, with what
    stops them."""
    configure_logging(Settings(log_level=settings.log_level, log_format=settings.log_format))
    _raise_file_limit(len(settings.hosts))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_run_until_signalled(settings, on_start, metrics or AgentMetrics()))
        except StateError as error:
            _log.error("%s", error)
            return 1
    _log.info("stopped")
    return 0


async def _run_until_signalled(
    settings: AgentSettings, on_start: Callable[[asyncio.Event], None], metrics: AgentMetrics
) -> None:
    stop = asyncio.Event()
    on_start(stop)
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    if settings.machine is not None:
        loop.add_signal_handler(signal.SIGHUP, settings.machine.look_soon)
    await run_agents(settings, stop, metrics)


async def run_agents(
    settings: AgentSettings, stop: asyncio.Event, metrics: AgentMetrics | None = None
) -> None:
    """Run the agents of all hosts until ``stop`` is set. StateError if one's state cannot be read."""
    fleet = _Fleet(settings, metrics or AgentMetrics())
    _log.info("agents of %d hosts, driver sim, conductor %s", len(fleet.hosts), settings.conductor)
    work = asyncio.create_task(fleet.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        was_told = not work.done()
        work.cancel()
        await asyncio.gather(work, stopping, return_exceptions=True)
    if not was_told:
        work.result()


Host = SimHost | Machine


class _Fleet:
    def __init__(self, settings: AgentSettings, metrics: AgentMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.hosts: tuple[Host, ...] = settings.hosts
        if settings.machine is not None:
            self.hosts = (*self.hosts, settings.machine)
        self._control = Control(settings.data, settings.behaviour)
        self._turns = asyncio.Semaphore(REGISTRATIONS_MAX)
        self._registered: set[str] = set()
        self._link = make_link(f"the conductor {settings.conductor}", metrics.noticed)

    async def run(self) -> None:
        self._control.look()
        states = {host.name: await self._open_state(host) for host in self.hosts}
        await asyncio.gather(*(asyncio.to_thread(self._make_credential(host).header) for host in self.hosts))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._control.watch())
            group.create_task(self._count_spans())
            group.create_task(self._log_progress())
            for host in self.hosts:
                group.create_task(self._run_host(host, states[host.name]), name=f"host {host.name}")

    async def _open_state(self, host: Host) -> AgentState:
        """The state of a host. Its file is written at once: the host is known by it."""
        path = state_path(self._settings.data, host.name)
        state = AgentState(path)
        try:
            if not path.exists():
                await state.save()
        except OSError as error:
            raise StateError(f"{path}: the host's state cannot be written: {error.strerror}") from error
        return state

    async def _run_host(self, host: Host, state: AgentState) -> None:
        """Run the agent of one host whenever the host is not dead."""
        rng = _make_rng(self._settings.seed, host.name)
        while True:
            await self._control.wait_until(host.name, dead=False)
            await self._run_agent(host, state, rng)
            if self._control.is_dead(host.name):
                _log.info("simulated host %s is dead", host.name)
            else:
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _run_agent(self, host: Host, state: AgentState, rng: random.Random) -> None:
        agent = self._make_agent(host, state, rng)
        tasks = [
            asyncio.create_task(agent.run()),
            asyncio.create_task(self._control.wait_until(host.name, dead=True)),
            asyncio.create_task(self._note_registered(host, agent)),
        ]
        if isinstance(host, Machine):
            tasks.append(asyncio.create_task(host.watch(lambda: agent.renew(host.providers))))
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcome, *_ = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(outcome, Exception):
            _log.error("%s: agent crashed, restarting in %g s", host.name, _AGAIN_AFTER_S, exc_info=outcome)

    def _make_agent(self, host: Host, state: AgentState, rng: random.Random) -> HostAgent:
        settings = self._settings
        report = _make_register(host)
        driver = SimDriver(
            host.name,
            state.disk,
            self._control.behaviours,
            rng,
            state.units,
            lambda: host.providers if isinstance(host, Machine) else report.providers,
        )
        conductor = ConductorClient(Client(settings.conductor, ca_file=settings.ca_file), settings.token)
        return HostAgent(
            report,
            driver,
            state,
            self._make_credential(host),
            conductor,
            rng,
            self._turns,
            settings.pace,
            self._link,
            self._metrics,
        )

    def _make_credential(self, host: Host) -> Credential:
        return Credential(self._settings.data, host.name, host.id)

    async def _note_registered(self, host: Host, agent: HostAgent) -> None:
        await agent.registered.wait()
        self._registered.add(host.name)
        self._metrics.hosts_registered(len(self._registered))

    async def _count_spans(self) -> None:
        """Count the spans that the trace collector does not take, where there is one."""
        while tracing.is_on():
            self._metrics.spans_dropped(tracing.look())
            await asyncio.sleep(_COUNT_EVERY_S)

    async def _log_progress(self) -> None:
        """Log now and then how many hosts are registered, until all are."""
        count, told = len(self.hosts), -1
        while told < count:
            now = len(self._registered)
            if now != told and (now or told < 0):
                _log.info("%d of %d hosts are registered", now, count)
                told = now
            await asyncio.sleep(PROGRESS_EVERY_S)


def _make_register(host: Host) -> Register:
    if isinstance(host, Machine):
        return Register(host=host.id, name=host.name, driver=NAME, providers=host.providers)
    return register(host, NAME)


def _make_rng(seed: int | None, host: str) -> random.Random:
    """The random numbers of one host, which do not depend on what happens on others."""
    if seed is None:
        return Ids().rng
    return Ids(int.from_bytes(hashlib.sha256(f"{seed} {host}".encode()).digest())).rng


def _raise_file_limit(hosts: int) -> None:
    """Raise the limit of open files to what the agents of so many hosts may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hosts * _FILES_PER_HOST + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- the control folder ---------------------------------------------------------------------------


class ControlError(Exception):
    """What was asked of a simulated fleet cannot be done. The message is for the operator."""


def break_host(data: Path, name: str) -> None:
    """Stop a simulated host: it sends and executes nothing, and what is on its disk stays there."""
    path = _dead_path(data, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise ControlError(f"{path}: cannot be written: {error.strerror}") from error


def heal_host(data: Path, name: str) -> None:
    """Start a simulated host again, as it was. A host that is not dead stays as it is."""
    path = _dead_path(data, name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ControlError(f"{path}: cannot be removed: {error.strerror}") from error


def _dead_path(data: Path, name: str) -> Path:
    if re.match(HOST_NAME, name) is None or not state_path(data, name).exists():
        known = sorted(path.stem for path in (data / FOLDER).glob("*.json"))
        some = ", ".join(known[:_NAMES_SHOWN]) + (", ..." if len(known) > _NAMES_SHOWN else "")
        there = f"there are {some}" if known else "no agent has kept anything there"
        raise ControlError(f"there is no simulated host {name!r} in {data}: {there}")
    return data / CONTROL / f"{name}{_DEAD}"


class Control:
    """What the control folder says now. ``look`` reads it once; ``watch`` reads it for ever."""

    def __init__(self, data: Path, behaviour: SimBehaviour) -> None:
        self._folder = data / CONTROL
        self._first = behaviour
        self.behaviours = Behaviours(behaviour)
        self._marks: frozenset[str] = frozenset()
        self._seen: tuple[int, int, int] | None = None
        self._news = asyncio.Event()

    def is_dead(self, host: str) -> bool:
        return host in self._marks or self.behaviours.now.is_dead(host)

    async def wait_until(self, host: str, *, dead: bool) -> None:
        """Wait until a host is dead, or alive."""
        while self.is_dead(host) is not dead:
            await self._news.wait()

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        try:
            marks = frozenset(path.stem for path in self._folder.iterdir() if path.suffix == _DEAD)
        except FileNotFoundError:
            marks = frozenset()
        except OSError as error:
            _log.warning("%s: cannot be read: %s", self._folder, error)
            return
        is_new = marks != self._marks
        self._marks = marks
        if self._read_behaviour() or is_new:
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _read_behaviour(self) -> bool:
        """Whether the behaviour has changed."""
        path = self._folder / BEHAVIOUR
        try:
            about = path.stat()
            seen = (about.st_mtime_ns, about.st_size, about.st_ino)
            if seen == self._seen:
                return False
            self._seen = seen
            if about.st_size > _BEHAVIOUR_BYTES_MAX:
                raise BehaviourError(f"{about.st_size} bytes are more than {_BEHAVIOUR_BYTES_MAX}")
            behaviour = read_behaviour(path.read_bytes())
        except FileNotFoundError:
            if self._seen is None:
                return False
            self._seen = None
            behaviour = self._first
        except (OSError, BehaviourError) as error:
            _log.warning("%s: ignored, the behaviour is unchanged: %s", path, error)
            return False
        _log.info("simulated hosts behave as %s says", path if self._seen else "the command line")
        self.behaviours.replace(behaviour)
        return True
