"""All operations on all kinds of servers, through the compute API, while everything breaks."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from berth.agent.fleet import SimHost, SimInventory, SimProvider, simulated_fleet
from berth.cell.conductor import Deadlines
from berth.client import WireRequest
from berth.model.servers import Migration, Server
from berth.sim.cloud import REGION, UNHURRIED, SimCloud
from berth.sim.nemesis import FAULTS
from berth.sim.rest import (
    check_disks,
    check_doctor,
    check_holdings,
    check_units,
    check_views,
    come_to_rest,
)
from berth.sim.simulation import Act, Simulation
from berth.sim.watcher import check_events, watch_events

COMPUTE: Final = "/compute/v2.1"
SERVERS_MAX: Final = 60
_QUOTA: Final = 16
_FLAVORS: Final = {"small": (1, 512, 1), "large": (2, 1024, 2)}
_FLAVORS_WITH_DEVICES: Final = {"small-devices": (2, 512, 1), "large-devices": (4, 1024, 2)}
OTHER_FLAVORS: Final = {"small-devices": "large-devices", "large-devices": "small-devices", "small": "2"}
"""What a server of a flavor is resized to; of any other: to the first."""
_DEVICES: Final = {"PCPU": 8, "SRIOV_NET_VF": 4, "VGPU": 4}
_IMAGE: Final = "cirros"
_VM_STATE: Final = "OS-EXT-STS:vm_state"
_TASK_STATE: Final = "OS-EXT-STS:task_state"

Body = Callable[[random.Random, Server], Any]


class LifecycleProfile:
    name = "lifecycle"
    every_s = 10.0
    is_ours = True

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(
            seed=seed,
            cells=2,
            fleet=make_fleet(20),
            racks=4,
            workers=2,
            deadlines=Deadlines(60, 300, 600),
            quota_instances=_QUOTA,
            housekeeping=UNHURRIED,
        )

    async def prepare(self, simulation: Simulation) -> None:
        users = simulation.users
        await prepare_images(simulation)
        groups = []
        for policy in ("affinity", "anti-affinity", "soft-anti-affinity"):
            body = {"server_group": {"name": policy, "policy": policy}}
            made = await users.must("POST", f"{COMPUTE}/os-server-groups", body)
            groups.append(made["server_group"]["id"])
        simulation.facts["groups"] = groups
        simulation.ledger.judges.append(lambda index, events: _judge_quota(simulation, index))
        watch_events(simulation)

    def choices(self) -> list[tuple[float, str, Act]]:
        own: list[tuple[float, str, Act]] = [
            (20, "create", create),
            (2, "crowd a group", crowd_group),
            (5, "look", look),
            (3, "abort", abort),
            (8, "evacuate from a dead host", evacuate),
        ]
        return [*own, *OPERATIONS, *FAULTS]

    async def check_at_rest(self, simulation: Simulation) -> None:
        await come_to_rest(simulation.cloud)
        await check_disks(simulation)
        await check_units(simulation)
        await check_doctor(simulation)
        await check_holdings(simulation)
        await check_views(simulation)
        await check_deletion(simulation)
        await check_events(simulation)


def make_fleet(count: int, *, every: int = 3, times: int = 1) -> list[SimHost]:
    """Hosts of which every third has devices, with units: each kind below a provider of its own. ``times``
    as many as usual."""
    children = tuple(
        SimProvider(
            name=kind.lower().replace("_", "-"), inventories={kind: SimInventory(total=total * times)}
        )
        for kind, total in _DEVICES.items()
    )
    return [
        replace(host, children=children) if number % every == 0 else host
        for number, host in enumerate(simulated_fleet(count))
    ]


async def prepare_images(simulation: Simulation) -> None:
    """Flavors, and an image that can be used."""
    users = simulation.users
    for number, (name, (vcpus, ram, disk)) in enumerate(_FLAVORS.items(), 1):
        flavor = {"id": str(number), "name": name, "vcpus": vcpus, "ram": ram, "disk": disk}
        await users.must("POST", f"{COMPUTE}/flavors", {"flavor": flavor})
    for name, (vcpus, ram, disk) in _FLAVORS_WITH_DEVICES.items():
        flavor = {"id": name, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk}
        await users.must("POST", f"{COMPUTE}/flavors", {"flavor": flavor})
        asked = {"VCPU": 0, "PCPU": vcpus, "SRIOV_NET_VF": 1, "VGPU": 1}
        specs = {f"resources:{kind}": str(amount) for kind, amount in asked.items()}
        await users.must("POST", f"{COMPUTE}/flavors/{name}/os-extra_specs", {"extra_specs": specs})
    simulation.facts["flavors"] = ("1", "2", *_FLAVORS_WITH_DEVICES)
    image = await users.must(
        "POST", "/image/v2/images", {"name": _IMAGE, "disk_format": "raw", "container_format": "bare"}
    )
    simulation.facts["image"] = image["id"]
    await upload(simulation, image["id"])


def _judge_quota(simulation: Simulation, index: int) -> None:
    count, quota = len(simulation.ledger.servers), simulation.cloud.settings.quota_instances
    if 0 <= quota < count:
        simulation.fail(f"region {index}: there are {count} servers, and the quota is {quota}")


async def upload(simulation: Simulation, image: str) -> None:
    """Give an image its content: it can be used then."""
    cloud = simulation.cloud
    content = b"content"
    headers = [
        (b"x-auth-token", b"admin"),
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(content)),
    ]
    request = WireRequest("PUT", f"/image/v2/images/{image}/file", headers, content)
    answer = await cloud.network.exchange(cloud.outside, REGION, request)
    assert answer.status == 204, answer.content


# -- what users do ------------------------------------------------------------------------------


async def check_deletion(simulation: Simulation) -> None:
    """Whatever has happened before: every server can be deleted, and nothing is left of it."""
    ledger, cloud = simulation.ledger, simulation.cloud
    # A host whose last heartbeats were lost before the faults stopped may be down once more meanwhile:
    # whoever is told so asks again.
    for _ in range(2):
        for id in list(ledger.servers):
            await simulation.users.ask_until_served("DELETE", f"{COMPUTE}/servers/{id}")
        await come_to_rest(cloud)
    for server in ledger.servers.values():
        simulation.fail(f"server {server.id} ({server.state}) cannot be deleted: {server.fault}")
    await check_disks(simulation)
    ledger.check_records()


async def create(simulation: Simulation, rng: random.Random, group: str | None = None) -> None:
    """One server or some, in a group or not."""
    if len(simulation.ledger.servers) >= SERVERS_MAX:
        return
    body: dict[str, Any] = {
        "server": {
            "name": f"s{rng.getrandbits(32):08x}",
            "flavorRef": rng.choice(simulation.facts["flavors"]),
            "imageRef": simulation.facts["image"],
            "networks": "none",
        }
    }
    if group is None and rng.random() < 0.3:
        group = rng.choice(simulation.facts["groups"])
    if group is not None:
        body["os:scheduler_hints"] = {"group": group}
    if rng.random() < 0.2:
        body["server"] |= {"min_count": 2, "max_count": 4}
    await simulation.users.ask("POST", f"{COMPUTE}/servers", body)


async def crowd_group(simulation: Simulation, rng: random.Random) -> None:
    """Several users create members of one group in the same moment."""
    group = rng.choice(simulation.facts["groups"])
    await asyncio.gather(*(create(simulation, rng, group) for _ in range(rng.randint(2, 4))))


async def delete(simulation: Simulation, rng: random.Random) -> None:
    """Delete a server, whatever is being done to it."""
    servers = list(simulation.ledger.servers.values())
    busy = [one for one in servers if one.run is not None]
    server = rng.choice(busy) if busy and rng.random() < 0.5 else choose_server(simulation, rng)
    if server is not None:
        await simulation.users.ask("DELETE", f"{COMPUTE}/servers/{server.id}")


async def look(simulation: Simulation, rng: random.Random) -> None:
    """List all servers. Whatever is shown, or is not, was so at some moment between request and answer."""
    ledger = simulation.ledger
    before, start = dict(ledger.servers), len(ledger.changed)
    answer = await simulation.users.ask("GET", f"{COMPUTE}/servers/detail?all_tenants=1")
    if answer is None or answer.status != 200:
        return
    shown = {one["id"]: _show(one[_VM_STATE], one[_TASK_STATE]) for one in answer.body["servers"]}
    were: dict[str, set[str | None]] = {id: {_show(one.state, one.task)} for id, one in before.items()}
    for id, server in ledger.changed[start:]:
        known = were.setdefault(id, {None})
        known.add(None if server is None else _show(server.state, server.task))
    for id in (*were, *shown):
        if shown.get(id) not in were.get(id, {None}):
            simulation.fail(f"server {id} is shown as {shown.get(id)}, and was {were.get(id)}")


def _show(state: str, task: str | None) -> str:
    return f"{state} {task}"


async def abort(simulation: Simulation, rng: random.Random) -> None:
    """Begin a live migration, and abort one that is under way soon after."""
    server = choose_server(simulation, rng, ("active",))
    if server is not None:
        body = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
        await simulation.users.ask("POST", f"{COMPUTE}/servers/{server.id}/action", body)
        await asyncio.sleep(rng.uniform(0, 3))
    moves = simulation.ledger.records(Migration).values()
    live = [one for one in moves if one.type == "live-migration" and one.status in ("accepted", "migrating")]
    if live:
        move = rng.choice(live)
        path = f"{COMPUTE}/servers/{move.server}/migrations/{move.number}"
        await simulation.users.ask("DELETE", path)


async def evacuate(simulation: Simulation, rng: random.Random) -> None:
    """Evacuate a server from a host that is dead, whether that is known yet or not."""
    dead = {part.host.id for part in simulation.cloud.hosts.values() if not part.is_alive}
    servers = simulation.ledger.servers.values()
    stranded = [one for one in servers if one.place is not None and one.place.id in dead]
    if stranded:
        path = f"{COMPUTE}/servers/{rng.choice(stranded).id}/action"
        await simulation.users.ask("POST", path, {"evacuate": {}})


class Operation:
    """An action on a server: mostly one that can begin."""

    def __init__(self, name: str, body: Body) -> None:
        self._name = name
        self._body = body

    async def __call__(self, simulation: Simulation, rng: random.Random) -> None:
        server = choose_server(simulation, rng, _STATES.get(self._name))
        if server is not None:
            path = f"{COMPUTE}/servers/{server.id}/action"
            await simulation.users.ask("POST", path, {self._name: self._body(rng, server)})


def choose_server(
    simulation: Simulation, rng: random.Random, states: tuple[str, ...] | None = None
) -> Server | None:
    """A server, mostly in one of these states and idle; now and then whichever."""
    servers = list(simulation.ledger.servers.values())
    fitting = [one for one in servers if one.run is None and (states is None or one.state in states)]
    candidates = servers if rng.random() < 0.1 else fitting
    return rng.choice(candidates) if candidates else None


_NOTHING: Final[Body] = lambda rng, server: None  # noqa: E731
_ACTIONS: Final[list[tuple[float, str, Body]]] = [
    (4, "resize", lambda rng, server: {"flavorRef": OTHER_FLAVORS.get(server.flavor.name, "1")}),
    (4, "confirmResize", _NOTHING),
    (3, "revertResize", _NOTHING),
    (3, "migrate", _NOTHING),
    (4, "os-migrateLive", lambda rng, server: {"host": None, "block_migration": "auto"}),
    (6, "evacuate", lambda rng, server: {}),
    (2, "shelve", _NOTHING),
    (2, "shelveOffload", _NOTHING),
    (3, "unshelve", _NOTHING),
    (2, "os-stop", _NOTHING),
    (2, "os-start", _NOTHING),
    (2, "reboot", lambda rng, server: {"type": rng.choice(("SOFT", "HARD"))}),
    (2, "pause", _NOTHING),
    (2, "unpause", _NOTHING),
    (2, "suspend", _NOTHING),
    (2, "resume", _NOTHING),
    (1, "rescue", lambda rng, server: {}),
    (1, "unrescue", _NOTHING),
    (1, "createImage", lambda rng, server: {"name": f"i{rng.getrandbits(16):04x}"}),
    (2, "createBackup", lambda rng, server: {"name": "b", "backup_type": "daily", "rotation": 1}),
    (1, "forceDelete", _NOTHING),
]
_STATES: Final[dict[str, tuple[str, ...]]] = {
    "resize": ("active", "stopped"),
    "migrate": ("active", "stopped"),
    "os-migrateLive": ("active",),
    "evacuate": ("active", "stopped", "error"),
    "confirmResize": ("resized",),
    "revertResize": ("resized",),
    "shelve": ("active", "stopped"),
    "shelveOffload": ("shelved",),
    "unshelve": ("shelved", "shelved_offloaded"),
    "os-stop": ("active",),
    "os-start": ("stopped",),
    "reboot": ("active", "paused", "suspended"),
    "pause": ("active",),
    "unpause": ("paused",),
    "suspend": ("active",),
    "resume": ("suspended",),
    "rescue": ("active", "stopped"),
    "unrescue": ("rescued",),
    "createImage": ("active", "stopped", "paused", "suspended"),
    "createBackup": ("active", "stopped", "paused", "suspended"),
}


OPERATIONS: Final[list[tuple[float, str, Act]]] = [
    (4, "delete", delete),
    *((weight, name, Operation(name, body)) for weight, name, body in _ACTIONS),
]
"""What users do to a server that exists."""
