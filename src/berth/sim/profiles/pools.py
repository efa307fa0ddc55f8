"""The operations of the lifecycle profile on servers that use shared pools, which are always nearly full.

Three of four racks can use the pools, so that a move stays in the pool or leaves it. After every command: of
no class a server and its migration have more in one pool than the larger of what the flavors ask for.
"""

import random
from collections.abc import Iterable
from typing import Any, Final

from berth.agent.fleet import aggregate_id, provider_id
from berth.model.events import Event
from berth.model.placement import STANDARD_CLASSES
from berth.model.servers import Flavor, Server
from berth.sim.profiles.lifecycle import COMPUTE, LifecycleProfile, Operation
from berth.sim.simulation import Act, Simulation

_RACKS: Final = ("rack1", "rack2", "rack3")
_POOLS: Final = {"nas": ("DISK_GB", 24), "segment": ("IPV4_ADDRESS", 6)}
_FLAVORS: Final = {"pooled": 3, "pooled-large": 5}
"""Names and disks."""
_SPECS: Final = {"berth:disk": "pool", "resources:IPV4_ADDRESS": "1"}


class PoolsProfile(LifecycleProfile):
    name = "pools"

    async def prepare(self, simulation: Simulation) -> None:
        await super().prepare(simulation)
        users = simulation.users
        for name, (kind, total) in _POOLS.items():
            aggregates = [aggregate_id(rack) for rack in _RACKS]
            pool = {"name": name, "inventories": {kind: {"total": total}}, "aggregates": aggregates}
            await users.must("PUT", f"/berth/v1/pools/{provider_id(name)}", {"pool": pool})
        for number, (name, disk) in enumerate(_FLAVORS.items(), 3):
            flavor: dict[str, Any] = {"id": str(number), "name": name, "vcpus": 1, "ram": 512, "disk": disk}
            await users.must("POST", f"{COMPUTE}/flavors", {"flavor": flavor})
            await users.must("POST", f"{COMPUTE}/flavors/{number}/os-extra_specs", {"extra_specs": _SPECS})
        simulation.facts["flavors"] = ("1", "3", "3", "4")
        simulation.ledger.judges.append(lambda index, events: _judge(simulation, index, events))

    def choices(self) -> list[tuple[float, str, Act]]:
        return [*super().choices(), (8, "resize in the pool", Operation("resize", _choose_flavor))]


def _choose_flavor(rng: random.Random, server: Server) -> dict[str, str]:
    return {"flavorRef": rng.choice(("1", "3", "4", "4"))}


def _judge(simulation: Simulation, index: int, events: Iterable[Event]) -> None:
    ledger = simulation.ledger
    for server in ledger.servers.values():
        for name, (kind, _) in _POOLS.items():
            holders = (server.id, *(() if server.migration is None else (server.migration,)))
            held = sum(_count(simulation, holder, name, kind) for holder in holders)
            flavors = (server.flavor, *(() if server.flavor_before is None else (server.flavor_before,)))
            if held > max(_ask(flavor, kind) for flavor in flavors):
                simulation.fail(f"region {index}: server {server.id} holds {held} {kind} of the pool {name}")


def _count(simulation: Simulation, consumer: str, pool: str, kind: str) -> int:
    """What a consumer holds of a pool."""
    provider, class_id = provider_id(pool), STANDARD_CLASSES.index(kind)
    held = (amounts for id, amounts in simulation.ledger.held(consumer) if id == provider)
    return sum(amount for amounts in held for id, amount in amounts if id == class_id)


def _ask(flavor: Flavor, kind: str) -> int:
    return flavor.disk_gb if kind == "DISK_GB" else int(flavor.extra_specs.get(f"resources:{kind}", "0"))
