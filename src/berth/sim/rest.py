"""What must hold in a cloud that rests, whatever has happened in it before.

* Every process has the same view of a journal as one that reads it anew; and what a view derives from its
  facts is what follows from them.
* A server holds what its flavor says, at the place where it is, and nothing if it is nowhere.
* Each host has on its disk the servers that it should have, and the doctor finds nothing.
* Server and migration have as many units as they hold, of the right providers, and nobody else has any; the
  host's disk says the same.
* A migration holds something only while its server can still go back, and is not under way.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from berth.agent.drivers.sim import list_units
from berth.engine import Unavailable
from berth.engine.snapshots import start_view
from berth.model.ids import Index
from berth.model.saga_runs import Assignment, HostTree, Instance
from berth.model.servers import CellStatus, Host, Migration, Server
from berth.sim.audit import Ledger
from berth.sim.cloud import RegionWorker, SimCell, SimCloud
from berth.sim.database import Database
from berth.sim.simulation import Simulation
from berth.view import View
from berth.view.snapshot import dump, load

_LOOK_S: Final = 5.0
_UNDER_WAY: Final = ("accepted", "migrating")


async def hear_of_all(simulation: Simulation) -> None:
    """Wait until every host and every cell was heard of since all faults have stopped, and the region knows
    it. A host whose last heartbeats were lost before that may be marked down only then, and is up again with
    the next; and a cell is out of reach for as long as a call hangs that was made before."""
    since_s, heard_s = simulation.world.loop.time(), simulation.witness.heard_s
    answered_s = max(database.busy_until_s for database in simulation.cloud.databases())
    await asyncio.sleep(max(0.0, answered_s - since_s))
    while silent := [name for name in simulation.cloud.hosts if heard_s.get(name, 0) < since_s]:
        simulation.waits_for = f"not heard of: {', '.join(silent)}"
        await asyncio.sleep(_LOOK_S)
    # What was seen last may not be written yet.
    await asyncio.sleep(2 * _LOOK_S)
    cells = simulation.ledger.records(CellStatus)
    while lost := [cell.id for cell in cells.values() if not cell.is_reachable]:
        simulation.waits_for = f"out of reach: {', '.join(lost)}"
        await asyncio.sleep(_LOOK_S)
    simulation.waits_for = ""


async def come_to_rest(cloud: SimCloud) -> None:
    """Wait until every host is up, and nothing is under way or waits to be cleaned up."""
    await cloud.until(lambda view: not len(view.down), patience_s=float("inf"))
    await cloud.all_at_rest(patience_s=float("inf"))
    # A host that is back cleans up what was evacuated from it; then its migration is released.
    await cloud.until(_is_released, patience_s=float("inf"))
    await cloud.all_at_rest(patience_s=float("inf"))
    await cloud.until(
        lambda view: not any(host.complaints for host in view.records.all(Host)), patience_s=float("inf")
    )


def _is_released(view: View) -> bool:
    return all(migration.status != "done" for migration in view.records.all(Migration))


async def check_doctor(simulation: Simulation) -> None:
    """The doctor finds nothing."""
    answer = await simulation.users.must("GET", "/berth/v1/doctor")
    if answer["findings"]:
        simulation.fail(f"the doctor finds: {answer['findings']}")


async def check_disks(simulation: Simulation) -> None:
    """Each host has the servers that it should have, as soon as it has destroyed its leftovers."""
    while wrong := await find_wrong_disks(simulation.cloud):
        simulation.waits_for = "; ".join(sentence for _, sentence in wrong)
        await asyncio.sleep(_LOOK_S)


async def find_wrong_disks(cloud: SimCloud) -> list[tuple[str, str]]:
    """Servers on disks where they should not be, or missing where they should, each with a sentence."""
    names = {part.host.id: name for name, part in cloud.hosts.items()}
    expected: dict[str, set[str]] = {name: set() for name in cloud.hosts}
    for reader in cloud.readers.values():
        for instance in await reader.read(lambda view: list(view.records.all(Instance))):
            for host in instance.hosts:
                expected[names[host]].add(instance.id)
    wrong = [
        (server, f"{server} is on {name}")
        for name, part in cloud.hosts.items()
        for server in part.state.disk
        if server not in expected[name]
    ]
    running = await cloud.read(
        lambda view: [
            one for one in view.records.all(Server) if one.state in ("active", "stopped", "resized")
        ]
    )
    return wrong + [
        (server.id, f"{server.id} ({server.state}) is not on {server.place.name}")
        for server in running
        if server.place is not None and server.id not in cloud.hosts[server.place.name].state.disk
    ]


async def check_units(simulation: Simulation) -> None:
    """Assignments, allocations and disks agree, as soon as hosts were heard of without their leftovers."""
    while wrong := await find_wrong_units(simulation.cloud):
        simulation.waits_for = "; ".join(wrong)
        await asyncio.sleep(_LOOK_S)


async def find_wrong_units(cloud: SimCloud) -> list[str]:
    """Where assignments are not what servers and migrations hold, or disks say something else."""
    servers = await cloud.read(lambda view: list(view.records.all(Server)))
    moves = await cloud.read(lambda view: list(view.records.all(Migration)))
    owners: dict[str, Server | Migration] = {one.id: one for one in servers}
    owners.update({one.id: one for one in moves})
    assigned: dict[tuple[str, str], Assignment] = {}
    named: dict[tuple[str, str], set[str]] = {}
    hosts: dict[str, str] = {}
    for reader in cloud.readers.values():
        for one in await reader.read(lambda view: list(view.records.all(Assignment))):
            assigned[one.holder, one.host] = one
        for tree in await reader.read(lambda view: list(view.records.all(HostTree))):
            for provider in tree.providers:
                hosts[provider.id] = tree.id
                for kind, names in provider.units.items():
                    named[provider.id, kind] = set(names)
    wrong = []
    for (holder, host), one in assigned.items():
        owner = owners.get(holder)
        held = [part for part in (() if owner is None else owner.held) if hosts.get(part[0]) == host]
        counted = {
            (provider, kind): len(names)
            for provider, kinds in one.units.items()
            for kind, names in kinds.items()
        }
        wanted = {(id, kind): n for id, amounts in held for kind, n in amounts if (id, kind) in named}
        if counted != wanted:
            wrong.append(f"{holder} has {counted} on {host} and holds {wanted}")
    # A server that could not be deleted to the end is destroyed, and holds all the same.
    unsettled = {one.id for one in servers if one.state == "error"}
    settled: list[Server | Migration] = [one for one in servers if one.id not in unsettled]
    settled += [one for one in moves if one.server not in unsettled]
    for holding in settled:
        for host in {hosts[id] for id, amounts in holding.held for kind, _ in amounts if (id, kind) in named}:
            if (holding.id, host) not in assigned:
                wrong.append(f"{holding.id} holds units on {host} and has none")
    return wrong + _find_wrong_disk_units(cloud, assigned)


def _find_wrong_disk_units(cloud: SimCloud, assigned: dict[tuple[str, str], Assignment]) -> list[str]:
    wrong = []
    for name, part in cloud.hosts.items():
        here: dict[str, set[str]] = {}
        for (holder, host), one in assigned.items():
            # A server that has both halves on one host uses its own.
            if host == part.host.id and (holder == one.server or one.server not in here):
                here[one.server] = set(one.unit_names())
        for server in part.state.disk:
            has = set(list_units(part.state.units.get(server, {})))
            if has != here.get(server, set()):
                wrong.append(f"{server} has {sorted(has)} on {name} and should have {here.get(server)}")
        stale = part.state.units.keys() - part.state.disk.keys()
        wrong += [f"{server} is not on {name} and has units there" for server in stale]
    return wrong


async def check_views(simulation: Simulation) -> None:
    cloud = simulation.cloud
    await _check_views(simulation, cloud.database, cloud.workers)
    for cell in cloud.cells.values():
        await _check_views(simulation, cell.database, [cell])


async def _check_views(
    simulation: Simulation, database: Database, parts: Sequence[RegionWorker | SimCell]
) -> None:
    """Hold what each of these parts has of a journal against one that reads it anew, as soon as all have
    read it to its end."""
    seen: dict[str, tuple[Index, dict[str, object], dict[str, object]]] = {}
    truth: View | None = None
    while truth is None or any(part.name not in seen or seen[part.name][0] != truth.index for part in parts):
        for part in parts:
            engine = part.find_engine()
            if engine is not None:
                with contextlib.suppress(Unavailable):
                    seen[part.name] = await engine.read(_read)
        await asyncio.sleep(_LOOK_S)
        truth = start_view(database.open(simulation.cloud.outside))
    for name, anew in truth.state().items():
        for who, (_, found, derived) in seen.items():
            if found[name] != anew:
                simulation.fail(f"{who} has another view of {name} than the journal")
            if found[name] != derived[name]:
                simulation.fail(f"what {who} has of {name} does not follow from the facts")


def _read(view: View) -> tuple[Index, dict[str, object], dict[str, object]]:
    """Where a view is, what it has, and what one has that is made of its facts alone."""
    return view.index, view.state(), load(dump(view)).state()


async def check_holdings(simulation: Simulation) -> None:
    ledger = simulation.ledger
    for server in ledger.servers.values():
        for wrong in _judge_server(ledger, server):
            simulation.fail(f"server {server.id} ({server.state}) {wrong}")
    for migration in ledger.records(Migration).values():
        owner = ledger.servers.get(migration.server)
        may_return = owner is not None and owner.migration == migration.id
        # A deletion or a revert that stopped half-way leaves both in error, to be asked for again.
        if owner is not None and migration.status == "error":
            may_return = may_return and owner.state == "error"
        if ledger.held(migration.id) and not may_return:
            simulation.fail(f"migration {migration.id} ({migration.status}) holds something")
        if migration.status in _UNDER_WAY:
            simulation.fail(f"migration {migration.id} is {migration.status}, and nothing is under way")


def _judge_server(ledger: Ledger, server: Server) -> Iterator[str]:
    held = ledger.held(server.id)
    if server.place is None:
        if held:
            yield "is nowhere and holds something"
        return
    roots = ledger.hosts(server.id)
    if roots != {server.place.id} and server.migration is None:
        yield f"is at {server.place.id} and holds something at {sorted(roots)}"
    total = ledger.sum_held(server.id)
    said = {"VCPU": server.flavor.vcpus, "MEMORY_MB": server.flavor.memory_mb}
    asked = server.flavor.extra_specs.items()
    said |= {key.removeprefix("resources:"): int(n) for key, n in asked if key.startswith("resources:")}
    if any(total.get(name, 0) != amount for name, amount in said.items()):
        yield f"holds {total}, and its flavor says {said}"
