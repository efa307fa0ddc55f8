"""No server is ACTIVE without what its flavor and image ask for: a server for each key about hardware,
through creation, moves, shelving and evacuation. After each step it holds what it asked for, and the driver
has it."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import pytest

from berth.agent.fleet import SimHost, SimInventory, SimProvider
from berth.agent.fleet import providers as providers_of
from berth.client import Answer
from berth.model.devices import NumaPolicy
from berth.model.placement import SOCKET_TRAITS
from berth.model.rejections import SpecInvalid
from berth.model.servers import Flavor, Need, Server
from berth.sagas import resize
from berth.scheduler.devices import DeviceCatalog, read_catalog
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import beginning, done, host_dies, new_server
from tests.lifecycle.test_devices import assigned, running, settled

Held = dict[str, dict[str, int]]
"""What a server holds, by the provider's name without that of its host."""

ALIASES: Final = (
    '{"name": "nic", "vendor_id": "15b3", "product_id": "1017", "device_type": "type-PF"}',
    '{"name": "vf", "resource_class": "SRIOV_NET_VF", "traits": "CUSTOM_PHYSNET_A"}',
    '{"name": "gpu", "resource_class": "PGPU"}',
)
PROFILES: Final = (
    '{"name": "render", "groups": [{"resources:PGPU": "1", "trait:HW_GPU_API_VULKAN": "required"}]}',
)

OTHER_CLASS: Final = read_catalog(
    [ALIASES[1].replace("SRIOV_NET_VF", "PGPU")], [PROFILES[0].replace("PGPU", "SRIOV_NET_VF")]
)
OTHER_TRAIT: Final = read_catalog(
    [ALIASES[1].replace("CUSTOM_PHYSNET_A", "CUSTOM_FAST")],
    [PROFILES[0].replace("HW_GPU_API_VULKAN", "CUSTOM_FAST")],
)


def make_cell(number: int, has_threads: bool) -> SimProvider:
    """A NUMA cell with a PF, a GPU and a NIC below it."""
    amounts = {
        "VCPU": 8,
        "PCPU": 8,
        "MEMORY_MB": 16384,
        "CUSTOM_MEMORY_PAGES_2M": 4096,
        "CUSTOM_MEMORY_PAGES_1G": 4,
    }
    cpus = tuple(str(8 * number + cpu) for cpu in range(8))
    return SimProvider(
        name=f"numa{number}",
        inventories={name: SimInventory(total=total) for name, total in amounts.items()},
        traits=("HW_NUMA_ROOT",),
        units={"PCPU": cpus},
        siblings=tuple(zip(cpus[::2], cpus[1::2], strict=True)) if has_threads else (),
        children=(
            SimProvider(
                name="pf",
                inventories={"SRIOV_NET_VF": SimInventory(total=4)},
                traits=("CUSTOM_PHYSNET_A",),
            ),
            SimProvider(
                name="gpu", inventories={"PGPU": SimInventory(total=1)}, traits=("HW_GPU_API_VULKAN",)
            ),
            SimProvider(name="nic", inventories={"CUSTOM_PCI_15B3_1017": SimInventory(total=1)}),
        ),
    )


def share_socket(host: SimHost) -> SimHost:
    """The host with all cells on one socket, and devices below the first alone, which is small."""
    first, second = host.children
    small = {"VCPU": SimInventory(total=1), "MEMORY_MB": SimInventory(total=64)}
    traits = ("HW_NUMA_ROOT", SOCKET_TRAITS[1])
    replace = msgspec.structs.replace
    cells = (
        replace(first, inventories=small, units={}, traits=traits),
        replace(second, children=(), traits=traits),
    )
    return replace(host, children=cells)


def make_fleet() -> list[SimHost]:
    """Three hosts with two threads to a core, and three without."""
    return [
        SimHost(
            name=f"{kind}-{number}",
            inventories={"DISK_GB": SimInventory(total=100)},
            children=tuple(make_cell(cell, kind == "smt") for cell in range(2)),
        )
        for kind in ("smt", "flat")
        for number in range(1, 4)
    ]


def cells(held: Held) -> list[dict[str, int]]:
    """What is held of cells themselves."""
    return [held[name] for name in sorted(held) if re.fullmatch(r"numa\d", name)]


def is_near(held: Held, device: str) -> bool:
    """Whether the device is below a cell that is held, too."""
    (name,) = [name for name in held if name.endswith(device)]
    return name.removesuffix(f"-{device}") in held


class Case(NamedTuple):
    """A key, and what must hold wherever the server is."""

    specs: dict[str, str]
    is_kept: Callable[[Held, str], bool]
    image: dict[str, str] | None = None


CASES: Final = {
    "cells": Case(
        {"hw:numa_nodes": "2"},
        lambda held, host: cells(held) == [{"VCPU": 2, "MEMORY_MB": 2048}] * 2,
    ),
    "cells of the image": Case(
        {},
        lambda held, host: cells(held) == [{"VCPU": 2, "MEMORY_MB": 2048}] * 2,
        {"hw_numa_nodes": "2"},
    ),
    "dedicated cpus": Case(
        {"hw:cpu_policy": "dedicated"},
        lambda held, host: cells(held) == [{"PCPU": 4, "MEMORY_MB": 4096}],
    ),
    "mixed cpus": Case(
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3"},
        lambda held, host: cells(held) == [{"VCPU": 2, "PCPU": 2, "MEMORY_MB": 4096}],
    ),
    "siblings": Case(
        {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
        lambda held, host: host.startswith("smt") and cells(held) == [{"PCPU": 4, "MEMORY_MB": 4096}],
    ),
    "cores without siblings": Case(
        {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
        lambda held, host: host.startswith("flat") and cells(held) == [{"PCPU": 4, "MEMORY_MB": 4096}],
    ),
    "a cpu for the emulator": Case(
        {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
        lambda held, host: cells(held)[0]["PCPU"] == (6 if host.startswith("smt") else 5),
    ),
    "pages of 2 MB": Case(
        {"hw:mem_page_size": "2MB"},
        lambda held, host: cells(held) == [{"VCPU": 4, "CUSTOM_MEMORY_PAGES_2M": 2048}],
    ),
    "large pages": Case(
        {"hw:mem_page_size": "large", "hw:numa_nodes": "2"},
        lambda held, host: cells(held) == [{"VCPU": 2, "CUSTOM_MEMORY_PAGES_1G": 2}] * 2,
    ),
    "a device near its guest": Case(
        {"pci_passthrough:alias": "gpu:1", "hw:pci_numa_affinity_policy": "required"},
        lambda held, host: is_near(held, "gpu"),
    ),
    "a device on the socket of its guest": Case(
        {"pci_passthrough:alias": "gpu:1", "hw:pci_numa_affinity_policy": "socket"},
        lambda held, host: is_near(held, "gpu"),
    ),
    "a device near dedicated cpus": Case(
        {"pci_passthrough:alias": "vf:1", "hw:cpu_policy": "dedicated"},
        lambda held, host: is_near(held, "pf"),
    ),
    "a whole card": Case(
        {"pci_passthrough:alias": "nic:1"},
        lambda held, host: any("CUSTOM_PCI_15B3_1017" in part for part in held.values()),
    ),
    "a profile": Case(
        {"accel:device_profile": "render"},
        lambda held, host: any("PGPU" in part for part in held.values()),
    ),
    "cells that are too small": Case(
        {"resources:VCPU": "12"},
        lambda held, host: sorted(part["VCPU"] for part in cells(held)) == [4, 8],
    ),
}


def make_flavor(case: Case) -> Flavor:
    return Flavor(id="hard", name="hard", vcpus=4, memory_mb=4096, disk_gb=1, extra_specs=case.specs)


async def check(cloud: SimCloud, server: Server, case: Case) -> None:
    await settled(cloud)
    found = await cloud.server(server.id)
    assert found is not None
    assert found.place is not None
    host = cloud.hosts[found.place.name].host
    names = {provider.id: provider.name for provider in providers_of(host)}
    held = {names[provider].removeprefix(f"{host.name}-"): dict(amounts) for provider, amounts in found.held}
    assert case.is_kept(held, host.name), held
    (assignment,) = [
        one for where, one in (await assigned(cloud, found)).items() if where == f"server on {host.name}"
    ]
    units = {kind: len(unit) for kinds in assignment.units.values() for kind, unit in kinds.items()}
    asked: dict[str, int] = {}
    for part in held.values():
        for kind, amount in part.items():
            if kind not in ("VCPU", "MEMORY_MB", "DISK_GB") and "PAGES" not in kind:
                asked[kind] = asked.get(kind, 0) + amount
    assert units == asked


@pytest.mark.parametrize("name", CASES)
async def test_a_server_has_what_it_asks_for_wherever_it_is(name: str) -> None:
    case = CASES[name]
    async with running(fleet=make_fleet(), pci_aliases=ALIASES, device_profiles=PROFILES) as cloud:
        server = new_server(cloud, flavor=make_flavor(case), image_properties=case.image or {})
        await done(cloud, "create", server)
        await check(cloud, server, case)
        for first, second in (("migrate", "revert"), ("migrate", "confirm"), ("shelve_away", "unshelve")):
            await done(cloud, first, server)
            await done(cloud, second, server)
            await check(cloud, server, case)
        await done(cloud, "live_migrate", server)
        await check(cloud, server, case)
        await host_dies(cloud, server)
        await done(cloud, "evacuate", server)
        found = await cloud.server(server.id)
        assert found is not None
        assert found.state == "active"
        assert await done(cloud, "delete", server) is None


async def test_the_topology_shows_the_cells_and_cpus_of_the_guest() -> None:
    """Uneven cells with cpus in any order, on hosts with threads: three dedicated cpus take two cores."""
    specs = {
        "hw:numa_nodes": "2",
        "hw:cpu_policy": "dedicated",
        "hw:emulator_threads_policy": "isolate",
        "hw:numa_cpus.0": "0,2",
        "hw:numa_cpus.1": "1,3-5",
        "hw:numa_mem.0": "1024",
        "hw:numa_mem.1": "3072",
    }
    flavor = Flavor(id="uneven", name="uneven", vcpus=6, memory_mb=4096, disk_gb=1, extra_specs=specs)
    async with running(fleet=make_fleet()[:1]) as cloud:
        for _ in range(2):
            server = new_server(cloud, flavor=flavor)
            await done(cloud, "create", server)
            await cloud.all_at_rest()
            answer = await cloud.client().ask("GET", f"/compute/v2.1/servers/{server.id}/topology")
            assert answer.status == 200, answer.body
            small, large = answer.body["nodes"]
            assert (small["vcpu_set"], small["memory_mb"]) == ([0, 2], 1024)
            assert (large["vcpu_set"], large["memory_mb"]) == ([1, 3, 4, 5], 3072)
            for node in (small, large):
                assert sorted(map(int, node["cpu_pinning"])) == node["vcpu_set"]
                first = 8 * node["host_node"]
                assert set(node["cpu_pinning"].values()) <= set(range(first, first + 8))
            assert small["host_node"] != large["host_node"]


async def test_the_topology_of_a_guest_that_is_split_counts_its_cpus_through() -> None:
    specs = {"hw:cpu_policy": "dedicated"}
    flavor = Flavor(id="wide", name="wide", vcpus=11, memory_mb=4096, disk_gb=1, extra_specs=specs)
    async with running(fleet=make_fleet()[:1]) as cloud:
        server = new_server(cloud, flavor=flavor)
        await done(cloud, "create", server)
        await cloud.all_at_rest()
        answer = await cloud.client().ask("GET", f"/compute/v2.1/servers/{server.id}/topology")
        cpus = [cpu for node in answer.body["nodes"] for cpu in node["vcpu_set"]]
        assert cpus == list(range(11))
        assert all(sorted(map(int, node["cpu_pinning"])) == node["vcpu_set"] for node in answer.body["nodes"])


async def test_a_conflict_of_flavor_and_image_is_refused_with_both_values() -> None:
    async with running(fleet=make_fleet()) as cloud:
        flavor = make_flavor(Case({"hw:cpu_policy": "shared"}, lambda held, host: True))
        server = new_server(cloud, flavor=flavor, image_properties={"hw_cpu_policy": "dedicated"})
        refused = await cloud.begin(beginning(cloud, "create", server))
        assert refused == SpecInvalid(
            "hw_cpu_policy", "dedicated", "shared: the flavor has hw:cpu_policy=shared"
        )


async def test_what_nova_refuses_about_cpus_is_refused_when_a_server_is_created_or_resized() -> None:
    async with running(fleet=make_fleet()) as cloud:
        server = new_server(cloud, image_properties={"hw_cpu_policy": "shared"})
        await done(cloud, "create", server)
        flavor = make_flavor(Case({"resources1:PCPU": "4"}, lambda held, host: True))
        accepted = "left out beside resources1:PCPU=4: use one or the other"
        wrong = SpecInvalid("hw_cpu_policy", "shared", accepted)
        another = new_server(cloud, flavor=flavor, image_properties=server.image_properties)
        assert await cloud.begin(beginning(cloud, "create", another)) == wrong
        context = cloud.context()
        refused = await cloud.begin(
            lambda view, now_s: resize.propose(view, now_s, context, server.id, flavor)
        )
        assert refused == wrong


@pytest.mark.parametrize(
    ("specs", "kind"),
    [({"pci_passthrough:alias": "vf:2"}, "SRIOV_NET_VF"), ({"accel:device_profile": "render"}, "PGPU")],
)
async def test_a_server_keeps_what_the_names_of_its_devices_meant(specs: dict[str, str], kind: str) -> None:
    """An alias and a profile leave the settings, and come back with another meaning."""
    async with running(fleet=make_fleet(), pci_aliases=ALIASES, device_profiles=PROFILES) as cloud:
        client = cloud.client()
        flavor = {"id": "one", "name": "one", "vcpus": 1, "ram": 64, "disk": 1}
        assert (await client.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})).status == 200
        path = "/compute/v2.1/flavors/one/os-extra_specs"
        assert (await client.ask("POST", path, {"extra_specs": specs})).status == 200
        asked = {"server": {"name": "one", "flavorRef": "one"}}
        answer = await client.ask("POST", "/compute/v2.1/servers", asked)
        assert answer.status == 202, answer.body
        server = await cloud.at_rest(answer.body["server"]["id"])
        assert server is not None

        async def check_held() -> None:
            await settled(cloud)
            found = await cloud.server(server.id)
            assert found is not None
            held = [dict(amounts).get(kind, 0) for _, amounts in found.held]
            assert sum(held) == (2 if kind == "SRIOV_NET_VF" else 1)

        for devices in (DeviceCatalog(), OTHER_CLASS):
            cloud.scheduler = msgspec.structs.replace(cloud.scheduler, devices=devices)
            for moves in (("migrate", "confirm"), ("shelve_away", "unshelve"), ("live_migrate",)):
                for move in moves:
                    await done(cloud, move, server)
                await check_held()


@pytest.mark.parametrize("today", [OTHER_CLASS, OTHER_TRAIT], ids=["class", "trait"])
@pytest.mark.parametrize(
    ("specs", "kind"),
    [({"pci_passthrough:alias": "vf:2"}, "SRIOV_NET_VF"), ({"accel:device_profile": "render"}, "PGPU")],
)
async def test_a_server_from_before_meanings_were_kept_does_not_get_other_devices(
    specs: dict[str, str], kind: str, today: DeviceCatalog
) -> None:
    """An alias or a profile has another class, or another trait, than when the server was made."""
    async with running(fleet=make_fleet(), pci_aliases=ALIASES, device_profiles=PROFILES) as cloud:
        server = new_server(cloud, flavor=make_flavor(Case(specs, lambda held, host: True)))
        await done(cloud, "create", server)
        before, cloud.scheduler = cloud.scheduler, msgspec.structs.replace(cloud.scheduler, devices=today)
        for move in ("migrate", "live_migrate"):
            refused = await cloud.begin(beginning(cloud, move, server))
            assert isinstance(refused, SpecInvalid), refused
            assert {refused.key: refused.value} == specs
            assert "now, of which the server holds 0 and not" in refused.accepted
        cloud.scheduler = before
        await done(cloud, "live_migrate", server)
        found = await cloud.server(server.id)
        assert found is not None
        assert kind in {name for _, amounts in found.held for name, _ in amounts}


async def test_a_device_is_on_a_socket_with_its_guest_wherever_it_is() -> None:
    """At creation, in moves, and of a need that is added. Hosts without sockets have no place for it."""
    specs = {"pci_passthrough:alias": "gpu:1", "hw:pci_numa_affinity_policy": "socket"}

    def is_kept(held: Held, host: str) -> bool:
        return "numa0-gpu" in held and "VCPU" in held["numa1"] and "numa0" not in held

    case = Case(specs, is_kept)
    fleet = [share_socket(host) for host in make_fleet()[3:]]
    async with running(fleet=fleet, pci_aliases=ALIASES, device_profiles=PROFILES) as cloud:
        server = new_server(cloud, flavor=make_flavor(case))
        await done(cloud, "create", server)
        await check(cloud, server, case)
        path = f"/berth/v1/servers/{server.id}/needs/port"
        answer = await cloud.client().ask("PUT", path, {"resources": {"SRIOV_NET_VF": 1}})
        assert answer.status == 200, answer.body
        for moves in (("migrate", "revert"), ("migrate", "confirm"), ("live_migrate",)):
            for move in moves:
                await done(cloud, move, server)
            await check(cloud, server, case)


@pytest.mark.parametrize("policy", ["required", "legacy", "preferred", None])
async def test_devices_of_needs_are_near_the_guest(policy: NumaPolicy | None) -> None:
    """A VF for a port, through every move: wherever a server goes, it is below the server's own cell."""
    specs = {"hw:numa_nodes": "1"} | ({} if policy is None else {"hw:pci_numa_affinity_policy": policy})
    case = Case(specs, lambda held, host: is_near(held, "pf"))
    # The guest fits into the second cell of each host, and the first has the first VF.
    small = SimProvider(
        name="numa0",
        inventories={"VCPU": SimInventory(total=1), "MEMORY_MB": SimInventory(total=64)},
        traits=("HW_NUMA_ROOT",),
        children=make_cell(0, False).children,
    )
    fleet = [msgspec.structs.replace(host, children=(small, host.children[1])) for host in make_fleet()[:3]]
    async with running(fleet=fleet) as cloud:
        need = Need("port", {"SRIOV_NET_VF": 1})
        servers = [new_server(cloud, flavor=make_flavor(case), needs=(need,)) for _ in range(2)]
        for server in servers:
            await done(cloud, "create", server)
            await check(cloud, server, case)
        for server in servers:
            for moves in (("migrate", "confirm"), ("migrate", "revert"), ("live_migrate",)):
                for move in moves:
                    await done(cloud, move, server)
                await check(cloud, server, case)


@pytest.mark.parametrize(
    ("policy", "status"), [("required", 409), ("legacy", 409), ("preferred", 200), (None, 409)]
)
async def test_a_need_that_is_added_is_near_the_server(policy: NumaPolicy | None, status: int) -> None:
    specs = {"hw:numa_nodes": "1"} | ({} if policy is None else {"hw:pci_numa_affinity_policy": policy})
    case = Case(specs, lambda held, host: is_near(held, "pf"))
    async with running(fleet=make_fleet()[:1]) as cloud:
        server = new_server(cloud, flavor=make_flavor(case))
        await done(cloud, "create", server)
        for number in range(5):
            path = f"/berth/v1/servers/{server.id}/needs/port-{number}"
            answer = await cloud.client().ask("PUT", path, {"resources": {"SRIOV_NET_VF": 1}})
            assert answer.status == 200 or number == 4, answer.body
            if number == 3:
                for power in ("stop", "start"):
                    await done(cloud, power, server)
                await check(cloud, server, case)
        # The card of its cell has no more, and that of the other cell has.
        assert answer.status == status, answer.body
        if status == 409:
            assert "A device is free there, and not in a NUMA cell of the server." in str(answer.body)


async def test_a_need_of_several_groups_is_near_the_server_behind_many_devices_that_are_not() -> None:
    """Of the ways to give it three VFs those with a card of the first cell come first, by the hundred."""
    cards = tuple(
        SimProvider(name=f"pf{number}", inventories={"SRIOV_NET_VF": SimInventory(total=4)})
        for number in range(8)
    )
    small = SimProvider(
        name="numa0",
        inventories={"VCPU": SimInventory(total=1), "MEMORY_MB": SimInventory(total=64)},
        traits=("HW_NUMA_ROOT",),
        children=cards,
    )
    large = msgspec.structs.replace(make_cell(1, False), children=cards)
    host = msgspec.structs.replace(make_fleet()[0], children=(small, large))
    specs = {"hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "required"}
    async with running(fleet=[host]) as cloud:
        server = new_server(cloud, flavor=make_flavor(Case(specs, lambda held, host: True)))
        await done(cloud, "create", server)
        groups = [{"name": name, "resources": {"SRIOV_NET_VF": 1}} for name in ("a", "b", "c")]
        path = f"/berth/v1/servers/{server.id}/needs/ports"
        answer = await cloud.client().ask("PUT", path, {"groups": groups})
        assert answer.status == 200, answer.body


async def test_a_need_that_is_given_again_stays_where_it_is_met() -> None:
    """The card that comes first was full when it was given, and is free now."""
    host = make_fleet()[0]
    async with running(fleet=[host]) as cloud:
        case = Case({}, lambda held, host: True)
        servers = [new_server(cloud, flavor=make_flavor(case)) for _ in range(2)]
        answers = []
        for server, functions in zip(servers, (4, 1), strict=True):
            await done(cloud, "create", server)
            answers.append(await put_port(cloud, server, functions))
        await done(cloud, "delete", servers[0])
        answers.append(await put_port(cloud, servers[1], 1))
        await done(cloud, "stop", servers[1])
        answers.append(await put_port(cloud, servers[1], 1))
        assert [answer.status for answer in answers] == [200] * 4, answers
        assert answers[1].body == answers[2].body == answers[3].body


async def put_port(cloud: SimCloud, server: Server, functions: int) -> Answer:
    path = f"/berth/v1/servers/{server.id}/needs/port"
    return await cloud.client().ask("PUT", path, {"resources": {"SRIOV_NET_VF": functions}})
