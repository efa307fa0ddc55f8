"""Clients of Placement alone, many at once, on the workers of one region; and everything they are told is
held against the history of the journal (``linear``).

There are few providers, little room and few consumers, so that clients are in each other's way: what they
read is old when they write, and some write what they read long ago. Providers are deleted and made again
under their old uuids. Most consumers are in groups, which the clients of Placement know nothing of.
"""

import asyncio
import random
from collections.abc import Awaitable, Iterable
from typing import Any, Final

from berth.journal import JournalRow
from berth.model.events import Batch
from berth.sim.cloud import HousePace, SimCloud
from berth.sim.linear import Linear
from berth.sim.nemesis import REGION_FAULTS
from berth.sim.simulation import Act, Simulation
from berth.sim.watcher import check_events, watch_events
from berth.sim.world import Process

WORKERS: Final = 3
PROJECTS: Final = ("project-1", "project-2")
CLASSES: Final = ("VCPU", "MEMORY_MB", "CUSTOM_GOLD")
TRAITS: Final = ("HW_CPU_X86_AVX", "CUSTOM_RED", "CUSTOM_BLUE")
PROVIDERS: Final = tuple(f"aaaaaaaa-0000-4000-8000-{number:012x}" for number in range(8))
CONSUMERS: Final = tuple(f"cccccccc-0000-4000-8000-{number:012x}" for number in range(20))
GROUPS: Final[dict[str, tuple[str, int | None, tuple[str, ...]]]] = {
    "bbbbbbbb-0000-4000-8000-000000000001": ("anti-affinity", 1, CONSUMERS[:5]),
    "bbbbbbbb-0000-4000-8000-000000000002": ("anti-affinity", 2, CONSUMERS[5:10]),
    "bbbbbbbb-0000-4000-8000-000000000003": ("affinity", None, CONSUMERS[10:13]),
}
"""Groups: the policy of each, how many members may share a host, and who is in it."""
AGGREGATES: Final = tuple(f"dddddddd-0000-4000-8000-{number:012x}" for number in range(3))
_VOCABULARY: Final = ("/traits/CUSTOM_RED", "/traits/CUSTOM_BLUE", "/resource_classes/CUSTOM_GOLD")
_GROUPS: Final = "/berth/v1/groups"
_OLD: Final = 0.1
"""How often a client writes on the strength of what it, or another, has read before."""
_BURST_MAX: Final = 12

Body = dict[str, Any]


class ClaimsProfile:
    name = "claims"
    every_s = 0.4
    is_ours = False

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(seed=seed, cells=0, hosts=0, workers=WORKERS, housekeeping=HousePace())

    async def prepare(self, simulation: Simulation) -> None:
        watch(simulation)
        users = simulation.users
        for path in _VOCABULARY:
            await users.must("PUT", path)
        inventories = {name: {"total": 16} for name in CLASSES}
        for provider in PROVIDERS[:6]:
            await users.must("POST", "/resource_providers", {"uuid": provider, "name": provider})
            body = {"resource_provider_generation": 0, "inventories": inventories}
            await users.must("PUT", f"/resource_providers/{provider}/inventories", body)
        for uuid, (policy, limit, members) in GROUPS.items():
            group = {"uuid": uuid, "name": policy, "policy": policy, "max_per_domain": limit}
            await users.must("POST", _GROUPS, {"group": {**group, "members": members}})
        watch_events(simulation)

    def choices(self) -> list[tuple[float, str, Act]]:
        faults = [(weight / 8, name, act) for weight, name, act in REGION_FAULTS]
        return [*ACTS, (15, "burst", burst), *faults]

    async def check_at_rest(self, simulation: Simulation) -> None:
        """Everybody is served again, by every worker, and everything is as the journal has it."""
        for path in _paths():
            for _ in range(WORKERS):
                await simulation.users.ask_until_served("GET", path)
        for number in range(WORKERS):
            consumer = f"eeeeeeee-0000-4000-8000-{number:012x}"
            body = make_claim({}, None, PROJECTS[0])
            await simulation.users.ask_until_served("PUT", f"/allocations/{consumer}", body)
        await check_events(simulation)


def watch(simulation: Simulation, *, judges_content: bool = True) -> Linear:
    """Hold what clients are told against the history, from now on."""
    linear = Linear(simulation.fail, judges_content=judges_content)

    def on_row(process: Process, row: JournalRow, batch: Batch) -> None:
        linear.take(simulation.world.loop.time(), batch.entries)

    simulation.cloud.database.appended.append(on_row)
    simulation.users.asked.append(linear.judge)
    return linear


# -- reading ------------------------------------------------------------------------------------


def _paths() -> list[str]:
    about = ("", "/inventories", "/inventories/VCPU", "/usages", "/traits", "/aggregates", "/allocations")
    return [
        "/resource_providers",
        "/traits?name=startswith:CUSTOM_",
        *(f"/traits/{name}" for name in TRAITS),
        *(f"/resource_classes/{name}" for name in CLASSES),
        *(f"/usages?project_id={project}" for project in PROJECTS),
        *(f"/resource_providers/{id}{what}" for id in PROVIDERS for what in about),
        *(f"/allocations/{id}" for id in CONSUMERS),
        *(f"{_GROUPS}/{id}" for id in GROUPS),
    ]


async def read(simulation: Simulation, rng: random.Random) -> None:
    await simulation.users.ask("GET", rng.choice(_paths()))


async def read_candidates(simulation: Simulation, rng: random.Random) -> Any:
    wanted = ",".join(f"{name}:{amount}" for name, amount in _resources(rng).items())
    answer = await simulation.users.ask("GET", f"/allocation_candidates?resources={wanted}")
    return answer.body if answer is not None and answer.status == 200 else None


async def _look(simulation: Simulation, rng: random.Random, path: str) -> Any:
    """What is there, or what once was."""
    seen: dict[str, Any] = simulation.facts.setdefault("seen", {})
    if path in seen and rng.random() < _OLD:
        return seen[path]
    answer = await simulation.users.ask("GET", path)
    if answer is None or answer.status != 200:
        return None
    seen[path] = answer.body
    return answer.body


async def _look_at_generation(simulation: Simulation, rng: random.Random, provider: str) -> int:
    found = await _look(simulation, rng, f"/resource_providers/{provider}")
    return 0 if found is None else int(found["generation"])


async def _look_at_consumer(simulation: Simulation, rng: random.Random, consumer: str) -> Body:
    return await _look(simulation, rng, f"/allocations/{consumer}") or {"allocations": {}}


# -- what is asked for --------------------------------------------------------------------------


def _resources(rng: random.Random) -> dict[str, int]:
    names = rng.sample(CLASSES, rng.choice((1, 1, 2)))
    return {name: rng.choice((1, 1, 2, 3, 5)) for name in names}


def _inventory(rng: random.Random) -> Body:
    total = rng.choice((4, 16, 32))
    return {
        "total": total,
        "reserved": rng.choice((0, 0, 0, 1, total)),
        "max_unit": rng.choice((2, total, total)),
        "step_size": rng.choice((1, 1, 1, 2)),
        "allocation_ratio": rng.choice((1.0, 1.0, 2.0)),
    }


def _inventories(rng: random.Random) -> dict[str, Body]:
    return {name: _inventory(rng) for name in CLASSES if rng.random() < 0.8}


def make_claim(allocations: Body, generation: int | None, project: str, kind: str = "INSTANCE") -> Body:
    return {
        "allocations": {provider: {"resources": one["resources"]} for provider, one in allocations.items()},
        "project_id": project,
        "user_id": "user",
        "consumer_generation": generation,
        "consumer_type": kind,
    }


def _some(rng: random.Random) -> Body:
    """Something on one provider or two."""
    providers = rng.sample(PROVIDERS, rng.choice((1, 1, 2)))
    return {provider: {"resources": _resources(rng)} for provider in providers}


# -- providers ----------------------------------------------------------------------------------


async def create_provider(simulation: Simulation, rng: random.Random) -> None:
    id = rng.choice(PROVIDERS)
    body = {"uuid": id, "name": rng.choice((id, id, "one name for many"))}
    if rng.random() < 0.3:
        body["parent_provider_uuid"] = rng.choice(PROVIDERS)
    await simulation.users.ask("POST", "/resource_providers", body)
    inventories = {"resource_provider_generation": 0, "inventories": _inventories(rng)}
    await simulation.users.ask("PUT", f"/resource_providers/{id}/inventories", inventories)


async def update_provider(simulation: Simulation, rng: random.Random) -> None:
    id = rng.choice(PROVIDERS)
    body: Body = {"name": rng.choice((id, id, "one name for many"))}
    if rng.random() < 0.5:
        body["parent_provider_uuid"] = rng.choice((None, *PROVIDERS))
    await simulation.users.ask("PUT", f"/resource_providers/{id}", body)


async def delete_provider(simulation: Simulation, rng: random.Random) -> None:
    await simulation.users.ask("DELETE", f"/resource_providers/{rng.choice(PROVIDERS)}")


async def set_inventories(simulation: Simulation, rng: random.Random) -> None:
    id = rng.choice(PROVIDERS)
    generation = await _look_at_generation(simulation, rng, id)
    body = {"resource_provider_generation": generation, "inventories": _inventories(rng)}
    await simulation.users.ask("PUT", f"/resource_providers/{id}/inventories", body)


async def change_inventory(simulation: Simulation, rng: random.Random) -> None:
    path = f"/resource_providers/{rng.choice(PROVIDERS)}/inventories"
    name = rng.choice(CLASSES)
    match rng.randrange(4):
        case 0:
            await simulation.users.ask("POST", path, {"resource_class": name, **_inventory(rng)})
        case 1:
            found = await _look(simulation, rng, path) or {"resource_provider_generation": 0}
            generation = found["resource_provider_generation"]
            body = {"resource_provider_generation": generation, **_inventory(rng)}
            await simulation.users.ask("PUT", f"{path}/{name}", body)
        case 2:
            await simulation.users.ask("DELETE", f"{path}/{name}")
        case _:
            await simulation.users.ask("DELETE", path)


async def set_traits(simulation: Simulation, rng: random.Random) -> None:
    id = rng.choice(PROVIDERS)
    if rng.random() < 0.2:
        await simulation.users.ask("DELETE", f"/resource_providers/{id}/traits")
        return
    generation = await _look_at_generation(simulation, rng, id)
    traits = [name for name in TRAITS if rng.random() < 0.5]
    body = {"resource_provider_generation": generation, "traits": traits}
    await simulation.users.ask("PUT", f"/resource_providers/{id}/traits", body)


async def set_aggregates(simulation: Simulation, rng: random.Random) -> None:
    id = rng.choice(PROVIDERS)
    generation = await _look_at_generation(simulation, rng, id)
    aggregates = [one for one in AGGREGATES if rng.random() < 0.5]
    body = {"resource_provider_generation": generation, "aggregates": aggregates}
    await simulation.users.ask("PUT", f"/resource_providers/{id}/aggregates", body)


async def change_vocabulary(simulation: Simulation, rng: random.Random) -> None:
    await simulation.users.ask(rng.choice(("PUT", "PUT", "DELETE")), rng.choice(_VOCABULARY))


# -- allocations --------------------------------------------------------------------------------


async def claim_candidate(simulation: Simulation, rng: random.Random) -> None:
    """As Nova does: ask where there is room, and take it."""
    found = await read_candidates(simulation, rng)
    if found is None or not found["allocation_requests"]:
        return
    consumer = rng.choice(CONSUMERS)
    held = await _look_at_consumer(simulation, rng, consumer)
    chosen = rng.choice(found["allocation_requests"])
    body = make_claim(chosen["allocations"], held.get("consumer_generation"), rng.choice(PROJECTS))
    body["mappings"] = chosen["mappings"]
    await simulation.users.ask("PUT", f"/allocations/{consumer}", body)


async def put_allocations(simulation: Simulation, rng: random.Random) -> None:
    consumer = rng.choice(CONSUMERS)
    held = await _look_at_consumer(simulation, rng, consumer)
    wanted = {} if rng.random() < 0.1 else _some(rng)
    body = make_claim(wanted, held.get("consumer_generation"), rng.choice(PROJECTS))
    await simulation.users.ask("PUT", f"/allocations/{consumer}", body)


async def post_allocations(simulation: Simulation, rng: random.Random) -> None:
    """Several consumers in one go: some get something, some give it back."""
    body = {}
    for consumer in rng.sample(CONSUMERS, rng.randint(1, 4)):
        held = await _look_at_consumer(simulation, rng, consumer)
        wanted = {} if rng.random() < 0.3 else _some(rng)
        body[consumer] = make_claim(wanted, held.get("consumer_generation"), rng.choice(PROJECTS))
    await simulation.users.ask("POST", "/allocations", body)


async def move(simulation: Simulation, rng: random.Random) -> None:
    """What a server holds becomes its migration's, and the server gets something elsewhere; or back."""
    server, migration = rng.sample(CONSUMERS, 2)
    held = await _look_at_consumer(simulation, rng, server)
    other = await _look_at_consumer(simulation, rng, migration)
    if not held["allocations"]:
        return
    body = {
        migration: make_claim(
            held["allocations"], other.get("consumer_generation"), PROJECTS[0], kind="MIGRATION"
        ),
        server: make_claim(
            rng.choice((_some(rng), other["allocations"])), held.get("consumer_generation"), PROJECTS[0]
        ),
    }
    await simulation.users.ask("POST", "/allocations", body)


async def delete_allocations(simulation: Simulation, rng: random.Random) -> None:
    await simulation.users.ask("DELETE", f"/allocations/{rng.choice(CONSUMERS)}")


async def reshape(simulation: Simulation, rng: random.Random) -> None:
    """An inventory of one provider becomes another's, with all that is held of it."""
    source, target = rng.sample(PROVIDERS, 2)
    name = rng.choice(CLASSES)
    found = [await _look(simulation, rng, f"/resource_providers/{id}/inventories") for id in (source, target)]
    holders = await _look(simulation, rng, f"/resource_providers/{source}/allocations")
    if None in found or holders is None or name not in found[0]["inventories"]:
        return
    moved = found[0]["inventories"].pop(name)
    found[1]["inventories"][name] = moved
    simulation.facts["seen"].clear()
    claims = {}
    for consumer in holders["allocations"]:
        held = await _look_at_consumer(simulation, rng, consumer)
        if not held["allocations"]:
            return
        wanted = _moved(held["allocations"], source, target, name)
        kind = held["consumer_type"]
        claims[consumer] = make_claim(wanted, held["consumer_generation"], held["project_id"], kind)
    body = {"inventories": {source: found[0], target: found[1]}, "allocations": claims}
    await simulation.users.ask("POST", "/reshaper", body)


def _moved(allocations: Body, source: str, target: str, name: str) -> Body:
    after: Body = {id: {"resources": dict(one["resources"])} for id, one in allocations.items()}
    amount = after.get(source, {"resources": {}})["resources"].pop(name, 0)
    if amount:
        resources = after.setdefault(target, {"resources": {}})["resources"]
        resources[name] = resources.get(name, 0) + amount
    return {id: one for id, one in after.items() if one["resources"]}


# -- groups -------------------------------------------------------------------------------------


async def change_members(simulation: Simulation, rng: random.Random) -> None:
    """Some join, some leave: members, or consumers in no group, or in another."""
    add, remove = (rng.sample(CONSUMERS, rng.randint(0, 2)) for _ in range(2))
    path = f"{_GROUPS}/{rng.choice(list(GROUPS))}/members"
    await simulation.users.ask("POST", path, {"add": add, "remove": remove})


async def change_limit(simulation: Simulation, rng: random.Random) -> None:
    path = f"{_GROUPS}/{rng.choice(list(GROUPS))}"
    await simulation.users.ask("PATCH", path, {"group": {"max_per_domain": rng.choice((1, 1, 2, 3))}})


# -- all together -------------------------------------------------------------------------------


async def burst(simulation: Simulation, rng: random.Random) -> None:
    """Many clients in the same moment."""
    await asyncio.gather(*_draw(simulation, rng, rng.randint(2, _BURST_MAX)))


def _draw(simulation: Simulation, rng: random.Random, count: int) -> Iterable[Awaitable[None]]:
    weights = [weight for weight, _, _ in ACTS]
    for _, _, act in rng.choices(ACTS, weights, k=count):
        yield act(simulation, random.Random(rng.getrandbits(64)))


ACTS: Final[list[tuple[float, str, Act]]] = [
    (30, "read", read),
    (10, "read candidates", read_candidates),
    (6, "create a provider", create_provider),
    (3, "update a provider", update_provider),
    (2, "delete a provider", delete_provider),
    (5, "set inventories", set_inventories),
    (5, "change an inventory", change_inventory),
    (4, "set traits", set_traits),
    (3, "set aggregates", set_aggregates),
    (3, "change vocabulary", change_vocabulary),
    (15, "claim a candidate", claim_candidate),
    (10, "put allocations", put_allocations),
    (8, "post allocations", post_allocations),
    (6, "move", move),
    (8, "delete allocations", delete_allocations),
    (5, "reshape", reshape),
    (2, "change members", change_members),
    (1, "change a limit", change_limit),
]
