"""What goes wrong in a simulation: acts that break something, and mend it after a while.

Each is a coroutine that ends when what it broke is whole again; the end of a simulation mends everything.
"""

import asyncio
import random
from typing import Any, Final, TypeVar, get_args

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.cell.protocol import POLL, AgentCommand
from berth.client import WireAnswer, WireRequest
from berth.model.events import Batch, RecordChanged
from berth.model.saga_runs import SagaRun
from berth.sagas.saga import Verb
from berth.sim.cloud import REGION, CloudPart, HostPart
from berth.sim.database import Condition, Database, Trouble
from berth.sim.network import Edge, Weather
from berth.sim.simulation import Act, Simulation
from berth.sim.world import Process

T = TypeVar("T")

_MEET_S: Final = 60.0
_LOOK_S: Final = 0.5
_SERVED_S: Final = 11.0
"""A poll that waits for longer is not served: it waits for a process that is stopped."""
_BACK_FULL: Final = 0.2
"""How many hosts that died are back with a full disk."""


async def kill_conductor(simulation: Simulation, rng: random.Random) -> None:
    await _kill(simulation, rng.choice(list(simulation.cloud.cells.values())), rng.uniform(0, 20))


async def replace_conductor(simulation: Simulation, rng: random.Random) -> None:
    """Another conductor takes a cell over, and the old one lives."""
    rng.choice(list(simulation.cloud.cells.values())).replace()


async def kill_worker(simulation: Simulation, rng: random.Random) -> None:
    await _kill(simulation, rng.choice(simulation.cloud.workers), rng.uniform(0, 10))


async def kill_at_write(simulation: Simulation, rng: random.Random) -> None:
    """A worker or a conductor dies at its next write: it got in, or not."""
    cloud = simulation.cloud
    part = rng.choice([*cloud.workers, *cloud.cells.values()])
    cloud.faults.doomed[part.name] = rng.choice(("before", "after"))


async def kill_at_await(simulation: Simulation, rng: random.Random) -> None:
    """A process dies at an await, whichever that is: soon after it has written something; an agent, soon
    after its driver has begun with a command."""
    part = _choose_part(simulation, rng)
    simulation.cloud.faults.doomed[part.name] = rng.randint(0, rng.choice((10, 100)))


async def kill_at_command(simulation: Simulation, rng: random.Random) -> None:
    """An agent dies when its driver has done something that the agent has not written down."""
    met = await _meet_command(simulation)
    if met is not None:
        host, _ = met
        host.kill_agent()
        await asyncio.sleep(rng.uniform(0, 10))
        host.revive()


async def outlive_conductor(simulation: Simulation, rng: random.Random) -> None:
    """A host dies as it carries something out, and its conductor stops with it. Another takes over, and the
    host is back, and is told something else of the server. Then the old one goes on, as the host polls it,
    and hands out what it still waits for."""
    cloud = simulation.cloud
    met = await _meet_command(simulation)
    if met is None:
        return
    host, command = met
    cell = cloud.cells[host.host.cell or ""]
    old = cell.process
    if old is None:
        return
    host.kill_agent()
    cell.freeze()
    application = cloud.network.leave(cell.name, old)
    cell.replace()
    await asyncio.sleep(cloud.heartbeat_timeout_s * rng.uniform(1.2, 2))
    host.revive()
    await _meet_next(simulation, host, command.server)
    if application is not None:
        cloud.network.listen(cell.name, old, application)
        await _meet_unanswered(simulation, host)
    old.thaw()


async def outlive_worker(simulation: Simulation, rng: random.Random) -> None:
    """The worker that dispatches stops as it hands something over to a cell, which does not get it. Another
    takes over. Then the old one goes on where it was, until somebody ends it."""
    worker = simulation.cloud.workers[0]
    old = await _meet_hand_over(simulation, worker)
    if old is None:
        return
    worker.replace()
    await asyncio.sleep(rng.choice((rng.uniform(1, 10), rng.uniform(10, 60))))
    old.thaw()
    await asyncio.sleep(rng.uniform(1, 30))
    old.kill()


async def _meet_command(simulation: Simulation) -> tuple[HostPart, AgentCommand] | None:
    """The next command that the driver of a host has carried out, where its agent stands still; None if
    there is none for a while."""
    faults = simulation.cloud.faults
    met: asyncio.Future[tuple[HostPart, AgentCommand]] = asyncio.get_running_loop().create_future()

    async def stop(host: str, command: AgentCommand, edge: Edge) -> None:
        if edge == "after" and not met.done():
            met.set_result((simulation.cloud.hosts[host], command))
            await asyncio.Event().wait()

    faults.at_driver.append(stop)
    try:
        return await _wait_for(met)
    finally:
        faults.at_driver.remove(stop)


async def _meet_next(simulation: Simulation, host: HostPart, server: str) -> None:
    """The next command for a server that the driver of a host begins with; or after a while."""
    faults = simulation.cloud.faults
    met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_command(name: str, command: AgentCommand, driver: object) -> None:
        if (name, command.server) == (host.name, server) and not met.done():
            met.set_result(None)

    faults.commanded.append(on_command)
    try:
        await _wait_for(met)
    finally:
        faults.commanded.remove(on_command)


async def _wait_for(met: asyncio.Future[T]) -> T | None:
    """None if that does not happen for a while."""
    try:
        async with asyncio.timeout(_MEET_S):
            return await met
    except TimeoutError:
        return None


async def _meet_unanswered(simulation: Simulation, host: HostPart) -> None:
    """The next moment when a poll of a host waits for longer than any that is served; or after a while."""
    network, loop = simulation.cloud.network, asyncio.get_running_loop()
    polled_s: list[float] = []

    def on_sent(source: str, request: WireRequest) -> None:
        if source == host.name and request.path == POLL:
            polled_s[:] = [loop.time()]

    def on_answered(source: str, request: WireRequest, response: WireAnswer, server: Process) -> None:
        if source == host.name:
            polled_s.clear()

    network.sent.append(on_sent)
    network.answered.append(on_answered)
    deadline_s = loop.time() + _MEET_S
    while loop.time() < deadline_s and not (polled_s and loop.time() > polled_s[0] + _SERVED_S):
        await asyncio.sleep(_LOOK_S)
    network.sent.remove(on_sent)
    network.answered.remove(on_answered)


async def _meet_hand_over(simulation: Simulation, worker: CloudPart) -> Process | None:
    """The process of a worker that has stopped as it hands something over; None if it does not for a
    while."""
    faults = simulation.cloud.faults
    met: asyncio.Future[Process] = asyncio.get_running_loop().create_future()

    def stop(process: Process, batch: Batch) -> Trouble | None:
        if process is not worker.process or met.done() or not _hands_over(batch):
            return None
        process.freeze()
        met.set_result(process)
        return "unknown out"

    faults.at_append.append(stop)
    try:
        return await _wait_for(met)
    finally:
        faults.at_append.remove(stop)


def _hands_over(batch: Batch) -> bool:
    """Whether a run is new to a cell by what is written."""
    events = (event for entry in batch.entries for event in entry.events)
    return any(
        isinstance(event, RecordChanged) and event.before is None and isinstance(event.after, SagaRun)
        for event in events
    )


async def kill_host(simulation: Simulation, rng: random.Random) -> None:
    """Shorter or longer than a heartbeat timeout: some are evacuated meanwhile."""
    host = rng.choice(list(simulation.cloud.hosts.values()))
    timeout_s = simulation.cloud.heartbeat_timeout_s
    away_s = rng.choice((rng.uniform(0, timeout_s), rng.uniform(2, 20) * timeout_s))
    host.kill()
    await asyncio.sleep(away_s)
    await bring_back(host, rng)


async def bring_back(host: HostPart, rng: random.Random) -> None:
    """Start a host that is dead. Now and then its disk is full, for a while."""
    if rng.random() < _BACK_FULL:
        await _fill(host, rng)
    else:
        host.revive()


async def fill_host(simulation: Simulation, rng: random.Random) -> None:
    """The disk of a host is full: what its agent must keep cannot be written."""
    await _fill(rng.choice(list(simulation.cloud.hosts.values())), rng)


async def _fill(host: HostPart, rng: random.Random) -> None:
    host.files.is_full = True
    host.revive()
    await asyncio.sleep(rng.uniform(1, 60))
    host.files.is_full = False


async def _kill(simulation: Simulation, part: CloudPart, away_s: float) -> None:
    part.kill()
    await asyncio.sleep(away_s)
    part.revive()


async def storm(simulation: Simulation, rng: random.Random) -> None:
    """Requests are lost, cut, delayed and sent twice, for a while."""
    network = simulation.cloud.network
    network.weather = Weather(mishaps=rng.choice((0.01, 0.1, 0.4)), delay_s=rng.choice((0.002, 0.5)))
    await asyncio.sleep(rng.uniform(1, 120))
    network.weather = Weather()


async def partition(simulation: Simulation, rng: random.Random) -> None:
    """A cell and the region, or a host and its cell, do not reach each other: one way, or both."""
    cloud = simulation.cloud
    cell = rng.choice(list(cloud.cells))
    host = rng.choice(list(cloud.hosts.values()))
    one, other = rng.choice(((cell, REGION), (host.name, host.host.cell or "")))
    ways = rng.choice((((one, other),), ((other, one),), ((one, other), (other, one))))
    for way in ways:
        cloud.network.block(*way)
    await asyncio.sleep(rng.uniform(1, 180))
    for way in ways:
        cloud.network.unblock(*way)


async def trouble_database(simulation: Simulation, rng: random.Random) -> None:
    """Calls of a database fail with an unknown outcome, hang or take long."""
    database = _database(simulation, rng)
    database.condition = Condition(troubles=rng.choice((0.01, 0.1, 0.5)), delay_s=rng.choice((0.003, 2.0)))
    await asyncio.sleep(rng.uniform(1, 60))
    database.condition = Condition()


async def take_database_away(simulation: Simulation, rng: random.Random) -> None:
    database = _database(simulation, rng)
    database.is_away = True
    await asyncio.sleep(rng.uniform(0.1, 90))
    database.is_away = False


async def fill_disk(simulation: Simulation, rng: random.Random) -> None:
    """A database refuses to write."""
    database = _database(simulation, rng)
    database.refuses = True
    await asyncio.sleep(rng.uniform(0.1, 90))
    database.refuses = False


async def fail_over(simulation: Simulation, rng: random.Random) -> None:
    """A standby of a database takes over, which has every row."""
    _database(simulation, rng).fail_over()


async def fail_over_to_lagging(simulation: Simulation, rng: random.Random) -> None:
    """A standby takes over that lacks the last rows; then the primary is back."""
    database = _database(simulation, rng)
    database.fail_over(lacking=rng.randint(1, 5))
    await asyncio.sleep(rng.uniform(0.1, 60))
    database.fail_back()


async def freeze(simulation: Simulation, rng: random.Random) -> None:
    """A worker, a conductor or an agent is stopped, and goes on: soon, or when others take it for dead, and
    its place in the journal is pruned."""
    process = _choose_part(simulation, rng).process
    if process is not None:
        process.freeze()
        await asyncio.sleep(rng.choice((rng.uniform(0, 20), rng.uniform(60, 600))))
        process.thaw()


def _choose_part(simulation: Simulation, rng: random.Random) -> CloudPart:
    """Each kind as often as the others."""
    cloud = simulation.cloud
    kinds: list[list[CloudPart]] = [[*cloud.workers], [*cloud.cells.values()], [*cloud.hosts.values()]]
    return rng.choice(rng.choice([parts for parts in kinds if parts]))


async def trouble_drivers(simulation: Simulation, rng: random.Random) -> None:
    """The next commands, all of them, of one kind, or on some hosts, fail, hang or take long."""
    outcome: Any = rng.choice(("fail", "hang", "late"))
    verb: Any = rng.choice((None, None, *get_args(Verb)))
    hosts = rng.choice((None, f"*{rng.randrange(10)}")) if verb is None else None
    rule = Rule(
        outcome=outcome, verb=verb, host=hosts, seconds=rng.choice((5, 60, 700)), times=rng.randint(1, 5)
    )
    simulation.cloud.behaviours.replace(SimBehaviour(rules=(rule,)))
    await asyncio.sleep(rng.uniform(10, 120))
    simulation.cloud.behaviours.replace(SimBehaviour())


async def turn_clock(simulation: Simulation, rng: random.Random) -> None:
    """The clock of a host is set: forwards or backwards."""
    part = rng.choice(simulation.cloud.parts())
    if part.process is not None:
        part.process.clock.jump(rng.choice((-3600.0, -1.0, 1.0, 3600.0)))


def _database(simulation: Simulation, rng: random.Random) -> Database:
    return rng.choice(simulation.cloud.databases())


FAULTS: Final[list[tuple[float, str, Act]]] = [
    (2, "kill a conductor", kill_conductor),
    (1, "replace a conductor", replace_conductor),
    (1, "outlive a conductor", outlive_conductor),
    (1, "outlive a worker", outlive_worker),
    (2, "kill a worker", kill_worker),
    (3, "kill at a write", kill_at_write),
    (3, "kill at an await", kill_at_await),
    (2, "freeze", freeze),
    (4, "kill a host", kill_host),
    (2, "kill at a command", kill_at_command),
    (1, "fill a host", fill_host),
    (2, "storm", storm),
    (2, "partition", partition),
    (2, "trouble a database", trouble_database),
    (1, "take a database away", take_database_away),
    (1, "fill a disk", fill_disk),
    (1, "fail over", fail_over),
    (1, "fail over to a lagging standby", fail_over_to_lagging),
    (4, "trouble drivers", trouble_drivers),
    (1, "turn a clock", turn_clock),
]
"""Of a cloud with cells and hosts."""
REGION_FAULTS: Final[list[tuple[float, str, Act]]] = [
    (2, "kill a worker", kill_worker),
    (2, "kill at a write", kill_at_write),
    (2, "kill at an await", kill_at_await),
    (3, "freeze", freeze),
    (2, "storm", storm),
    (3, "trouble a database", trouble_database),
    (1, "take a database away", take_database_away),
    (1, "fill a disk", fill_disk),
    (1, "fail over", fail_over),
    (1, "fail over to a lagging standby", fail_over_to_lagging),
    (1, "turn a clock", turn_clock),
]
"""Of a region's workers and their database alone."""
