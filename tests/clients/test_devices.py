"""Machines of each synthetic tree, discovered by an agent process each, and the ``openstack`` command: a
server for each kind of device that a tree has, through its whole life. After each step its allocations, its
assignments and what the driver says agree, and the doctor finds nothing."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Set
from typing import Any, Final, NamedTuple

import pytest

from berth.agent.drivers.sim import list_units
from berth.agent.fleet import provider_id
from berth.agent.state import read_state, state_path
from tests.clients.test_servers import CloudClient
from tests.clouds import Cloud, MachineAgent, cloud_running, wait_for
from tests.sysroots import TREES, Machine
from tests.waiting import WITHIN_S
from tests.warm_start import WarmCommand

pytestmark = [
    pytest.mark.clients,
    # The SDK warns of itself: it still calls what it has deprecated.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

WHOLE_PF: Final = "0000:af:00.0"
WHOLE_CLASS: Final = "CUSTOM_PCI_15B3_1017"
PAGES: Final = "CUSTOM_MEMORY_PAGES_2M"
LARGE_PAGES: Final = "CUSTOM_MEMORY_PAGES_1G"
COUNTED: Final = {"VCPU", "MEMORY_MB", "DISK_GB", PAGES, LARGE_PAGES}
"""Classes of which nobody gets a certain unit."""


class Asked(NamedTuple):
    """A flavor, and what a server of it holds of its kind, provider by provider."""

    vcpus: int
    ram: int
    specs: dict[str, str]
    kind: str
    amounts: tuple[int, ...]


DEDICATED: Final = {"hw:cpu_policy": "dedicated"}
TWO_CELLS: Final = {**DEDICATED, "hw:numa_nodes": "2"}
NVIDIA: Final = {"trait1:CUSTOM_NVIDIA_222": "required"}
NO_VCPU: Final = {"resources:VCPU": "0"}
INTEL: Final = {"resources1:VGPU": "1", "trait1:CUSTOM_I915_GVTG_V5_4": "required"}


def two_of(kind: str) -> dict[str, str]:
    """Two devices, each of a provider of its own."""
    return {f"resources1:{kind}": "1", f"resources2:{kind}": "1", "group_policy": "isolate"}


KINDS: Final = {
    "cells": (Asked(4, 512, TWO_CELLS, "PCPU", (2, 2)), Asked(8, 512, TWO_CELLS, "PCPU", (4, 4))),
    "cpus": (Asked(1, 128, DEDICATED, "PCPU", (1,)), Asked(2, 128, DEDICATED, "PCPU", (2,))),
    # More than one cell has, and memory of another cell.
    "parts": (Asked(5, 512, DEDICATED, "PCPU", (2, 3)), Asked(6, 512, DEDICATED, "PCPU", (3, 3))),
    # One thread of a core is not given away alone.
    "cores": (Asked(1, 512, DEDICATED, "PCPU", (2,)), Asked(2, 512, TWO_CELLS, "PCPU", (2, 2))),
    "pages": (
        Asked(1, 256, {"hw:mem_page_size": "2MB"}, PAGES, (128,)),
        Asked(1, 512, {"hw:mem_page_size": "2MB"}, PAGES, (256,)),
    ),
    "large-pages": (
        Asked(1, 1024, {"hw:mem_page_size": "1GB"}, LARGE_PAGES, (1,)),
        Asked(1, 2048, {"hw:mem_page_size": "1GB"}, LARGE_PAGES, (2,)),
    ),
    "vf": (
        Asked(1, 128, {"resources:SRIOV_NET_VF": "1", **NO_VCPU}, "SRIOV_NET_VF", (1,)),
        Asked(1, 128, {"resources:SRIOV_NET_VF": "2", **NO_VCPU}, "SRIOV_NET_VF", (2,)),
    ),
    "pf": (
        Asked(1, 128, {f"resources:{WHOLE_CLASS}": "1"}, WHOLE_CLASS, (1,)),
        Asked(1, 256, {f"resources:{WHOLE_CLASS}": "1"}, WHOLE_CLASS, (1,)),
    ),
    "nics": (
        Asked(1, 128, {"resources:SRIOV_NET_VF": "1"}, "SRIOV_NET_VF", (1,)),
        Asked(1, 128, two_of("SRIOV_NET_VF"), "SRIOV_NET_VF", (1, 1)),
    ),
    "gpus": (
        Asked(1, 128, {"resources:PGPU": "1"}, "PGPU", (1,)),
        Asked(1, 128, two_of("PGPU"), "PGPU", (1, 1)),
    ),
    "gpu": (
        Asked(1, 128, {"resources:PGPU": "1"}, "PGPU", (1,)),
        Asked(1, 256, {"resources:PGPU": "1"}, "PGPU", (1,)),
    ),
    "nvidia": (
        Asked(1, 128, {"resources1:VGPU": "1", **NVIDIA}, "VGPU", (1,)),
        Asked(1, 128, {"resources1:VGPU": "2", **NVIDIA}, "VGPU", (2,)),
    ),
    "intel": (Asked(1, 128, INTEL, "VGPU", (1,)), Asked(1, 256, INTEL, "VGPU", (1,))),
}
"""Of each kind a flavor, and one to resize to."""


class Zone(NamedTuple):
    """Two machines of one tree, in a zone of their own."""

    dedicated_cpus: str
    kinds: tuple[str, ...]


TWO_SOCKETS: Final = "2-3,6-7,10-11,14-15"
ZONES: Final = {
    "two_pfs": Zone(TWO_SOCKETS, ("cells", "pages", "large-pages", "vf")),
    "whole_pf": Zone(TWO_SOCKETS, ("vf", "pf")),
    "eight_gpus": Zone(TWO_SOCKETS, ("nics", "gpus")),
    "two_mdev_types": Zone(TWO_SOCKETS, ("nvidia", "intel", "gpu")),
    "no_numa": Zone("1,3", ("cpus", "pages", "vf", "gpu")),
    "cell_without_memory": Zone("1-3,5-7", ("parts", "gpu")),
    "hole_in_cpus": Zone("1,5,9,13", ("cores",)),
}
"""By the name of the tree."""
FIRST: Final = {f"{zone}-1" for zone in ZONES}
SECOND: Final = {f"{zone}-2" for zone in ZONES}


class Guest(NamedTuple):
    """A server, by its zone and its kind."""

    zone: str
    kind: str


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    options = "--hosts 1 --cells 1 --build-seconds 0 --heartbeat-timeout 4 --seed 5 --log-level info"
    with cloud_running(tmp_path_factory.mktemp("devices"), *options.split()) as cloud:
        yield cloud
        assert cloud.stop(WITHIN_S) == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


@pytest.fixture(scope="module")
def agents(cloud: Cloud) -> Iterator[dict[str, MachineAgent]]:
    agents = {}
    for tree, zone in ZONES.items():
        options = ("--dedicated-cpus", zone.dedicated_cpus, "--live-migrate-seconds", "0.2", "--seed", "5")
        for name in (f"{tree}-1", f"{tree}-2"):
            agents[name] = MachineAgent(cloud, name, TREES[tree], *options)
    with contextlib.ExitStack() as stack:
        for agent in agents.values():
            stack.enter_context(agent.running())
        yield agents


class Fleet:
    """What the region and the machines say of the servers that are there."""

    def __init__(self, cloud: Cloud, agents: dict[str, MachineAgent], command: WarmCommand) -> None:
        self.agents = agents
        self.cloud = cloud
        self.client = CloudClient(cloud, command)
        self.until(lambda: self.find_states() >= dict.fromkeys(agents, "up").items())
        self.until(self._all_are_discovered)
        self.client = CloudClient(cloud, command)
        self.servers: dict[Guest, str] = {}
        """Their ids."""

    def _all_are_discovered(self) -> bool:
        """If each machine has what the servers of its zone ask for."""
        for tree, zone in ZONES.items():
            expected = {KINDS[kind][0].kind for kind in zone.kinds} | {"DISK_GB", "MEMORY_MB"}
            for name in (f"{tree}-1", f"{tree}-2"):
                path = f"/resource_providers?in_tree={provider_id(name)}"
                found = self.client.sdk.placement.get(path, microversion="1.39").json()["resource_providers"]
                if not expected <= {kind for row in found for kind in self.inventories(row["name"])}:
                    return False
        return True

    def find_states(self) -> Set[tuple[str, str]]:
        """If each host is up or down."""
        return {str(one.host): str(one.state) for one in self.client.sdk.compute.services()}.items()

    def get(self, path: str) -> Any:
        return self.client.sdk.session.get(f"{self.cloud.url}/berth/v1{path}").json()

    def inventories(self, provider: str) -> dict[str, Any]:
        path = f"/resource_providers/{provider_id(provider)}/inventories"
        return dict(self.client.sdk.placement.get(path, microversion="1.39").json().get("inventories", {}))

    def until(self, is_so: Callable[[], object]) -> None:
        wait_for(lambda: bool(is_so()), lambda: self.cloud.everything[-8000:], self.cloud)

    def each(self, words: str, status: str) -> set[str]:
        """Run a command for each server and wait for all: on which hosts they are then, each in its zone."""
        self.client.batch(
            f"server {words.format(flavor=f'{guest.kind}-1')} {id}" for guest, id in self.servers.items()
        )
        return self.wait(status)

    def wait(self, status: str) -> set[str]:
        """Until all servers are in a state, and nothing is under way: on which hosts they are."""
        found: dict[str, Any] = {}

        def are_so() -> bool:
            found.update((server.id, server) for server in self.client.sdk.compute.servers())
            servers = [found[id] for id in self.servers.values()]
            failed = [server for server in servers if "ERROR" == server.status != status]
            assert not failed, [(server.name, server.fault) for server in failed]
            return all(server.status == status and server.task_state is None for server in servers)

        self.until(are_so)
        for guest, id in self.servers.items():
            assert found[id].compute_host in (None, f"{guest.zone}-1", f"{guest.zone}-2"), guest
        return {found[id].compute_host for id in self.servers.values()}

    def check(self, size: int | None) -> None:
        """Wait until all agree; then each server holds what its flavor asks for: of the first or the second
        of its kind, or nothing."""
        found: list[str] = []

        def agree() -> bool:
            found[:] = self._find_wrong()
            return not found

        wait_for(agree, lambda: "\n".join(found) + self.cloud.everything[-4000:], self.cloud)
        for guest, id in self.servers.items():
            held = self.client.held(id).amounts
            if size is None:
                assert held == {}
                continue
            asked = KINDS[guest.kind][size]
            amounts = sorted(amounts[asked.kind] for amounts in held.values() if asked.kind in amounts)
            assert tuple(amounts) == asked.amounts, f"{guest}: {held}"

    def _find_wrong(self) -> list[str]:
        """What the doctor finds; and then where what is held, what is assigned and what machines have are not
        the same."""
        wrong = [finding["sentence"] for finding in self.get("/doctor")["findings"]]
        if wrong:
            return wrong
        held_by = self._count_held()
        migrations: dict[str, list[str]] = {}
        for migration in self.client.sdk.compute.migrations():
            migrations.setdefault(migration.server_id, []).append(migration.uuid)
        on_disks: dict[str, dict[str, set[str]]] = {name: {} for name in self.agents}
        given: Counter[tuple[str, str]] = Counter()
        for guest, id in self.servers.items():
            devices = self.get(f"/servers/{id}/devices")["devices"]
            given.update((device["host"], unit) for device in devices for unit in device["units"])
            for of, consumers in (("server", [id]), ("migration", migrations.get(id, []))):
                mine = [device for device in devices if device["of"] == of]
                assigned = Counter(
                    {(one["provider_name"], one["resource_class"]): len(one["units"]) for one in mine}
                )
                held = sum((held_by[consumer] for consumer in consumers), Counter[tuple[str, str]]())
                if held != assigned:
                    wrong.append(f"{guest}: its {of} holds {held} and is assigned {assigned}")
                # A server that is resized where it is has its new units there.
                places = {one["host"]: self._units_at(mine, one["host"]) for one in mine}
                for host, units in places.items():
                    on_disks[host].setdefault(id, units)
        for name, expected in on_disks.items():
            stored = read_state(state_path(self.agents[name].data, name))
            has = {server: set(list_units(units)) for server, units in stored.units.items()}
            if has != expected:
                wrong.append(f"{name} has {has}, and should have {expected}")
        twice = [unit for unit, count in given.items() if count > 1]
        if twice:
            wrong.append(f"these units are assigned twice: {twice}")
        return wrong

    @staticmethod
    def _units_at(devices: list[dict[str, Any]], host: str) -> set[str]:
        return {unit for device in devices if device["host"] == host for unit in device["units"]}

    def _count_held(self) -> defaultdict[str, Counter[tuple[str, str]]]:
        """What each consumer holds of what has units."""
        answer = self.get("/allocations?limit=1000")
        assert answer.get("next") is None
        held: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for row in answer["allocations"]:
            for kind, amount in row["resources"].items():
                if kind not in COUNTED:
                    held[row["consumer_uuid"]][row["resource_provider_name"], kind] += amount
        return held


@pytest.fixture(scope="module")
def fleet(cloud: Cloud, agents: dict[str, MachineAgent], command: WarmCommand) -> Iterator[Fleet]:
    fleet = Fleet(cloud, agents, command)
    yield fleet
    fleet.client.sdk.close()


def make_zones_and_flavors() -> Iterator[str]:
    for zone in ZONES:
        yield f"aggregate create --zone {zone} {zone}"
        yield f"aggregate add host {zone} {zone}-1"
        yield f"aggregate add host {zone} {zone}-2"
    for kind, flavors in KINDS.items():
        for number, asked in enumerate(flavors):
            specs = " ".join(f"--property {name}={value}" for name, value in asked.specs.items())
            size = f"--vcpus {asked.vcpus} --ram {asked.ram} --disk 1"
            yield f"flavor create {size} {specs} {kind}-{number}"


def make_servers() -> Iterator[str]:
    for zone, (_, kinds) in ZONES.items():
        for kind in kinds:
            place = f"--availability-zone {zone} --host {zone}-1"
            yield f"server create --flavor {kind}-0 --image cirros {place} {zone}/{kind}"


def test_a_server_with_each_kind_of_device_through_its_whole_life(fleet: Fleet) -> None:
    client = fleet.client
    client.batch(make_zones_and_flavors())
    client.batch(make_servers())
    for server in client.sdk.compute.servers():
        fleet.servers[Guest(*server.name.split("/"))] = server.id
    assert set(fleet.servers) == {Guest(zone, kind) for zone in ZONES for kind in ZONES[zone].kinds}
    assert fleet.wait("ACTIVE") == FIRST
    fleet.check(0)

    assert fleet.each("migrate", "VERIFY_RESIZE") == SECOND
    fleet.check(0)
    assert fleet.each("migration revert", "ACTIVE") == FIRST
    fleet.check(0)
    assert fleet.each("migrate", "VERIFY_RESIZE") == SECOND
    assert fleet.each("migration confirm", "ACTIVE") == SECOND
    fleet.check(0)

    fleet.each("resize --flavor {flavor}", "VERIFY_RESIZE")
    fleet.check(1)
    assert fleet.each("resize revert", "ACTIVE") == SECOND
    fleet.check(0)

    assert fleet.each("migrate --live-migration", "ACTIVE") == FIRST
    fleet.check(0)

    for host in FIRST:
        fleet.agents[host].kill()
    fleet.until(lambda: fleet.find_states() >= dict.fromkeys(FIRST, "down").items())
    assert fleet.each("evacuate", "ACTIVE") == SECOND
    # What is left on the dead machines is still assigned.
    fleet.check(0)
    for host in FIRST:
        fleet.agents[host].start()
    fleet.until(lambda: fleet.find_states() >= dict.fromkeys(FIRST, "up").items())
    for id in fleet.servers.values():
        client.until_released(client.migration(client.sdk.compute.get_server(id), "evacuation").uuid)
    fleet.check(0)

    fleet.each("resize --flavor {flavor}", "VERIFY_RESIZE")
    fleet.each("resize confirm", "ACTIVE")
    fleet.check(1)

    ids = " ".join(fleet.servers.values())
    client(f"server shelve {ids}")
    fleet.wait("SHELVED_OFFLOADED")
    fleet.check(None)
    client(f"server unshelve {ids}")
    fleet.wait("ACTIVE")
    fleet.check(1)

    client(f"server delete --wait {ids}")
    for id in fleet.servers.values():
        client.until_released(id)
    fleet.servers.clear()
    fleet.check(None)
    client.nothing_is_held()


def test_a_nic_is_split_while_a_server_has_it_whole(fleet: Fleet) -> None:
    client, host = fleet.client, "whole_pf-2"
    agent = fleet.agents[host]
    client(f"flavor create --vcpus 1 --ram 128 --disk 1 --property resources:{WHOLE_CLASS}=1 whole")
    server = client.wait(
        client(f"server create --flavor whole --image cirros --host {host} whole")["id"], "ACTIVE"
    )
    Machine(agent.root, host).split(WHOLE_PF, 1, 8)
    agent.look_again()
    path = f"/hosts/{provider_id(host)}"
    fleet.until(lambda: fleet.get(path)["host"]["complaints"])
    (complaint,) = fleet.get(path)["host"]["complaints"]
    assert f"{WHOLE_CLASS} is gone from the host and in use by {server.id}" in complaint
    nic = f"{host}-pci-{WHOLE_PF}"
    assert "SRIOV_NET_VF" not in fleet.inventories(nic)
    (device,) = fleet.get(f"/servers/{server.id}/devices")["devices"]
    assert (device["host"], device["units"]) == (host, [WHOLE_PF])
    assert client(f"server show {server.id}")["status"] == "ACTIVE"

    client(f"server delete --wait {server.id}")
    fleet.until(lambda: fleet.inventories(nic).get("SRIOV_NET_VF", {}).get("total") == 8)
    fleet.until(lambda: not fleet.get(path)["host"]["complaints"])
    assert WHOLE_CLASS not in fleet.inventories(nic)
    fleet.check(None)


def test_the_doctor_finds_nothing(cloud: Cloud, fleet: Fleet) -> None:
    cloud.shell("berth doctor --data data")
