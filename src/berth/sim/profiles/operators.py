"""Operators at work while users' operations go on: they disable, drain and force down hosts, change what
Placement says of them, restart everything, rotate and revoke credentials, change quotas and repair; and other
clients of Placement write allocations behind Berth's back.

At rest, once operators have taken their measures back and the doctor has repaired what it can: the doctor
finds nothing, every server and migration holds what its record says and nobody else holds anything, and what
operators have set on hosts is as they have set it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from berth.agent.conductor import ConductorClient, ConductorRefuses, ConductorUnreachable
from berth.agent.credentials import rotate
from berth.agent.state import StateError
from berth.cell import agents
from berth.cell.conductor import Deadlines
from berth.client import Answer
from berth.engine import Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.servers import Server
from berth.sim.cloud import UNHURRIED, HostPart, SimCloud
from berth.sim.nemesis import FAULTS, bring_back
from berth.sim.profiles.lifecycle import (
    COMPUTE,
    OPERATIONS,
    LifecycleProfile,
    create,
    make_fleet,
)
from berth.sim.rest import check_disks, come_to_rest
from berth.sim.simulation import Act, Simulation
from berth.view import View

_CLASS: Final = "CUSTOM_LICENSE"
_TRAITS: Final = ("CUSTOM_GOLD", "CUSTOM_SILVER")
_AGGREGATE: Final = "a0000000-0000-4000-8000-00000000000{}"
_REPAIR: Final = "/berth/v1/doctor/repair"
_ROUNDS_MAX: Final = 60
_LOOK_S: Final = 30.0
_ORIGIN: Final = Origin("", "operator", None, "sim")

Where = tuple[str, str]
"""A host, and what of it an operator has set."""


class OperatorsProfile:
    name = "operators"
    every_s = 6.0
    is_ours = False

    def cloud(self, seed: int) -> SimCloud:
        fleet = make_fleet(10)
        return SimCloud(
            seed=seed,
            cells=2,
            fleet=fleet,
            racks=2,
            workers=2,
            deadlines=Deadlines(60, 300, 600),
            housekeeping=UNHURRIED,
        )

    async def prepare(self, simulation: Simulation) -> None:
        await LifecycleProfile().prepare(simulation)
        await simulation.users.must("PUT", f"/resource_classes/{_CLASS}")
        for name in _TRAITS:
            await simulation.users.must("PUT", f"/traits/{name}")
        simulation.facts["set"] = {}
        simulation.facts["locks"] = {id: asyncio.Lock() for id in simulation.cloud.hosts}

    def choices(self) -> list[tuple[float, str, Act]]:
        operators: list[tuple[float, str, Act]] = [
            (3, "disable", disable),
            (3, "drain", drain),
            (3, "force down", force_down),
            (4, "set an inventory", set_inventory),
            (2, "add a class", add_class),
            (2, "set traits", set_traits),
            (2, "set aggregates", set_aggregates),
            (2, "delete a provider", delete_provider),
            (4, "delete allocations", delete_allocations),
            (3, "add to allocations", add_to_allocations),
            (2, "allocate for nobody", allocate_for_nobody),
            (2, "rotate a credential", rotate_credential),
            (2, "revoke a credential", revoke_credential),
            (2, "set a quota", set_quota),
            (5, "repair", repair),
            (1, "restart all", restart_all),
        ]
        return [
            (20, "create", create),
            *((weight / 2, name, act) for weight, name, act in OPERATIONS),
            *operators,
            *((weight / 2, name, act) for weight, name, act in FAULTS),
        ]

    async def check_at_rest(self, simulation: Simulation) -> None:
        for host in simulation.cloud.hosts.values():
            await _change_agent(simulation.cloud, host, agents.readmit_agent)
            await _enable(simulation, host)
        await come_to_rest(simulation.cloud)
        await check_disks(simulation)
        await _repair_all(simulation)
        simulation.ledger.check_records()
        await check_settings(simulation)


# -- hosts --------------------------------------------------------------------------------------


async def disable(simulation: Simulation, rng: random.Random) -> None:
    host = _choose(simulation, rng)
    await _set_service(simulation, host, {"status": "disabled", "disabled_reason": "maintenance"})
    await asyncio.sleep(rng.uniform(1, 300))
    await _set_service(simulation, host, {"status": "enabled"})


async def drain(simulation: Simulation, rng: random.Random) -> None:
    """Have everything leave a host, by a drain or by hand, and enable it again."""
    host = _choose(simulation, rng)
    if rng.random() < 0.5:
        path = f"/berth/v1/hosts/{host.name}/drain"
        await simulation.users.ask("POST", path, {})
        await asyncio.sleep(rng.uniform(10, 120))
        await simulation.users.ask("GET", path)
        if rng.random() < 0.2:
            await simulation.users.ask("DELETE", path)
        await _set_service(simulation, host, {"status": "enabled"})
        return
    await _set_service(simulation, host, {"status": "disabled"})
    for server in _servers_on(simulation, host):
        action: dict[str, Any] = {"migrate": None}
        if server.state == "active":
            action = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
        await simulation.users.ask("POST", f"{COMPUTE}/servers/{server.id}/action", action)
    await asyncio.sleep(rng.uniform(10, 120))
    await _set_service(simulation, host, {"status": "enabled"})


async def force_down(simulation: Simulation, rng: random.Random) -> None:
    """Stop a host, or not; say that it is down, evacuate it, and have it come back."""
    host = _choose(simulation, rng)
    if rng.random() < 0.7:
        host.kill()
    await _set_service(simulation, host, {"forced_down": True})
    for server in _servers_on(simulation, host):
        await simulation.users.ask("POST", f"{COMPUTE}/servers/{server.id}/action", {"evacuate": {}})
    await asyncio.sleep(rng.uniform(1, 120))
    await bring_back(host, rng)
    await _set_service(simulation, host, {"forced_down": False})


async def _enable(simulation: Simulation, host: HostPart) -> None:
    """Take back what was said of a host; where its provider was deleted, once that is written again."""
    while not await _set_service(simulation, host, {"status": "enabled", "forced_down": False}):
        await asyncio.sleep(_LOOK_S)


async def _set_service(simulation: Simulation, host: HostPart, change: dict[str, Any]) -> bool:
    """Whether it was done."""
    return _is_done(await simulation.users.ask("PUT", f"{COMPUTE}/os-services/{host.host.id}", change))


def _choose(simulation: Simulation, rng: random.Random) -> HostPart:
    return rng.choice(list(simulation.cloud.hosts.values()))


def _servers_on(simulation: Simulation, host: HostPart) -> list[Server]:
    servers = simulation.ledger.servers.values()
    return [one for one in servers if one.place is not None and one.place.id == host.host.id]


async def restart_all(simulation: Simulation, rng: random.Random) -> None:
    """Restart every part, one after the other, as for an upgrade."""
    for part in simulation.cloud.parts():
        part.kill()
        await asyncio.sleep(rng.uniform(0, 5))
        part.revive()
        await asyncio.sleep(rng.uniform(0, 5))


# -- what Placement says of hosts ---------------------------------------------------------------


async def set_inventory(simulation: Simulation, rng: random.Random) -> None:
    """Another ratio and another reserved amount of a class that the agent reports."""
    host = _choose(simulation, rng)
    kind, reserved, ratio = rng.choice((("VCPU", 2, 8.0), ("MEMORY_MB", 8192, 1.5), ("DISK_GB", 10, 2.0)))
    reserved, ratio = reserved + rng.randint(0, 5), ratio + rng.randint(0, 3)

    def change(found: dict[str, Any]) -> dict[str, Any]:
        there = found["inventories"].get(kind)
        if there is None:
            return found
        changed = {**there, "reserved": reserved, "allocation_ratio": ratio}
        return {**found, "inventories": {**found["inventories"], kind: changed}}

    await _change(simulation, host, "inventories", {kind: (reserved, ratio)}, change)


async def add_class(simulation: Simulation, rng: random.Random) -> None:
    host, total = _choose(simulation, rng), rng.randint(1, 100)

    def change(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "inventories": {**found["inventories"], _CLASS: {"total": total}}}

    await _change(simulation, host, "inventories", {_CLASS: total}, change)


async def set_traits(simulation: Simulation, rng: random.Random) -> None:
    host, own = _choose(simulation, rng), rng.choice(((), _TRAITS[:1], _TRAITS))

    def change(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "traits": sorted({*found["traits"], *own} - (set(_TRAITS) - set(own)))}

    await _change(simulation, host, "traits", {"traits": own}, change)


async def set_aggregates(simulation: Simulation, rng: random.Random) -> None:
    """Now and then without those that the host is to be in: they are written again."""
    host, own = _choose(simulation, rng), _AGGREGATE.format(rng.randint(1, 3))
    keeps = rng.random() < 0.7

    def change(found: dict[str, Any]) -> dict[str, Any]:
        others = [id for id in found["aggregates"] if not id.startswith("a0000000")]
        return {**found, "aggregates": [*(others if keeps else ()), own]}

    await _change(simulation, host, "aggregates", {"aggregates": own}, change)


async def _change(
    simulation: Simulation,
    host: HostPart,
    kind: str,
    wanted: dict[str, Any],
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Read, change and write what a host has of a kind; remember what an answer has promised."""
    path = f"/resource_providers/{host.host.id}/{kind}"
    promised: dict[Where, Any] = simulation.facts["set"]
    async with simulation.facts["locks"][host.name]:
        found = await simulation.users.ask("GET", path)
        if found is None or found.status != 200:
            return
        body = change(found.body)
        if body == found.body:
            return
        for what in wanted:
            # Until it is known whether it is in.
            promised.pop((host.name, what), None)
        answer = await simulation.users.ask("PUT", path, body)
        if _is_done(answer):
            promised |= {(host.name, what): value for what, value in wanted.items()}


def _is_done(answer: Answer | None) -> bool:
    return answer is not None and answer.status < 300


async def delete_provider(simulation: Simulation, rng: random.Random) -> None:
    """Mostly of a host without servers: refused while something is held there. The host writes it again,
    without what operators had set."""
    empty = [one for one in simulation.cloud.hosts.values() if not _servers_on(simulation, one)]
    host = rng.choice(empty) if empty else _choose(simulation, rng)
    promised: dict[Where, Any] = simulation.facts["set"]
    async with simulation.facts["locks"][host.name]:
        for where in [where for where in promised if where[0] == host.name]:
            del promised[where]
        await simulation.users.ask("DELETE", f"/resource_providers/{host.host.id}")


# -- allocations, behind our back ---------------------------------------------------------------


def _choose_alone(simulation: Simulation, rng: random.Random) -> Server | None:
    """A server in no group: a member of one could lose its place to another."""
    alone = [one for one in simulation.ledger.servers.values() if one.group is None]
    return rng.choice(alone) if alone else None


async def delete_allocations(simulation: Simulation, rng: random.Random) -> None:
    server = _choose_alone(simulation, rng)
    if server is not None:
        await simulation.users.ask("DELETE", f"/allocations/{server.id}")


async def add_to_allocations(simulation: Simulation, rng: random.Random) -> None:
    """A little more, on whichever host."""
    server, host = _choose_alone(simulation, rng), _choose(simulation, rng)
    if server is None:
        return
    path = f"/allocations/{server.id}"
    found = await simulation.users.ask("GET", path)
    if found is None or found.status != 200 or not found.body["allocations"]:
        return
    held = {id: {"resources": part["resources"]} for id, part in found.body["allocations"].items()}
    there = held.setdefault(host.host.id, {"resources": {}})["resources"]
    there["DISK_GB"] = there.get("DISK_GB", 0) + 1
    given = ("project_id", "user_id", "consumer_generation", "consumer_type")
    body = {"allocations": held, **{field: found.body[field] for field in given}}
    await simulation.users.ask("PUT", path, body)


async def allocate_for_nobody(simulation: Simulation, rng: random.Random) -> None:
    """As a server that no record knows."""
    host, id = _choose(simulation, rng), simulation.cloud.ids.uuid()
    body = {
        "allocations": {host.host.id: {"resources": {"VCPU": 1}}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    await simulation.users.ask("PUT", f"/allocations/{id}", body)


# -- credentials, quotas, repairs ---------------------------------------------------------------


async def rotate_credential(simulation: Simulation, rng: random.Random) -> None:
    host, cloud = _choose(simulation, rng), simulation.cloud
    conductor = ConductorClient(cloud.network.client(cloud.outside, host.host.cell or ""))
    try:
        await rotate(host.credential(rng), conductor)
    except (ConductorUnreachable, ConductorRefuses, StateError):
        # StateError: the disk of the host is full.
        simulation.count("credentials that could not be rotated")


async def revoke_credential(simulation: Simulation, rng: random.Random) -> None:
    host = _choose(simulation, rng)
    await _change_agent(simulation.cloud, host, agents.revoke_agent)
    await asyncio.sleep(rng.uniform(1, 120))
    await _change_agent(simulation.cloud, host, agents.readmit_agent)


async def _change_agent(cloud: SimCloud, host: HostPart, make: Callable[[View, str], Enact | None]) -> None:
    engine = cloud.readers[host.host.cell or ""]
    while True:
        try:
            changed: Awaitable[Any] = engine.submit(
                lambda view, now_s: make(view, host.host.id), _ORIGIN, lambda view, changed: None
            )
            await changed
            return
        except (Unavailable, Overloaded):
            await asyncio.sleep(_LOOK_S)


async def set_quota(simulation: Simulation, rng: random.Random) -> None:
    body = {"quota_set": {"instances": rng.choice((-1, 10, 40)), "cores": rng.choice((-1, 20, 80))}}
    await simulation.users.ask("PUT", f"{COMPUTE}/os-quota-sets/admin", body)


async def repair(simulation: Simulation, rng: random.Random) -> None:
    body = {"findings": "all", "dry_run": rng.random() < 0.2, "grace_s": rng.choice((0, 60))}
    await simulation.users.ask("POST", _REPAIR, body)


# -- what must hold at rest ---------------------------------------------------------------------


async def _repair_all(simulation: Simulation) -> None:
    """Repair until the doctor finds nothing; some of it is resolved by hosts, in time. A server that could
    not be deleted, and whose allocations somebody else has deleted, keeps its units: it is deleted again."""
    findings: list[Any] = []
    for _ in range(_ROUNDS_MAX):
        for server in [one for one in simulation.ledger.servers.values() if one.state == "error"]:
            if not server.held:
                await simulation.users.ask("DELETE", f"{COMPUTE}/servers/{server.id}")
        await simulation.users.must("POST", _REPAIR, {"findings": "all", "dry_run": False, "grace_s": 0})
        await come_to_rest(simulation.cloud)
        findings = (await simulation.users.must("GET", "/berth/v1/doctor"))["findings"]
        if not findings:
            return
        await asyncio.sleep(_LOOK_S)
    simulation.fail(f"the doctor finds, after its repairs: {findings}")


async def check_settings(simulation: Simulation) -> None:
    """What operators have set on hosts is as they have set it."""
    promised: dict[Where, Any] = simulation.facts["set"]
    simulation.counts["settings that stayed"] = len(promised)
    for name, host in simulation.cloud.hosts.items():
        path = f"/resource_providers/{host.host.id}"
        inventories = (await simulation.users.must("GET", f"{path}/inventories"))["inventories"]
        traits = (await simulation.users.must("GET", f"{path}/traits"))["traits"]
        aggregates = (await simulation.users.must("GET", f"{path}/aggregates"))["aggregates"]
        found: dict[str, Any] = {
            kind: one["total"] if kind == _CLASS else (one["reserved"], one["allocation_ratio"])
            for kind, one in inventories.items()
        }
        found["traits"] = tuple(trait for trait in _TRAITS if trait in traits)
        found["aggregates"] = next((id for id in aggregates if id.startswith("a0000000")), None)
        for (of, what), value in promised.items():
            if of == name and found.get(what) != value:
                simulation.fail(f"{name}: an operator has set {what} to {value}, and it is {found.get(what)}")
