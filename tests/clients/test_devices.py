"""Machines with every kind of device, discovered by an agent process each, and the ``openstack`` command: a
server for each kind through its whole life. After each step its allocations, its assignments and what the
driver says agree, and the doctor finds nothing."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest

from berth.agent.drivers.sim import list_units
from berth.agent.fleet import provider_id
from berth.agent.state import read_state, state_path
from tests.clients.forked_command import ForkedCommand
from tests.clients.test_servers import CloudClient
from tests.clouds import Cloud, MachineAgent, cloud_running, wait_for
from tests.sysroots import Machine, every_kind

pytestmark = [
    pytest.mark.clients,
    # The SDK warns of itself: it still calls what it has deprecated.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

FIRST, SECOND, THIRD = NAMES = ("node-1", "node-2", "node-3")
WHOLE_PF: Final = "0000:af:00.0"
WHOLE_CLASS: Final = "CUSTOM_PCI_15B3_1017"
PAGES: Final = "CUSTOM_MEMORY_PAGES_2M"
COUNTED: Final = {"VCPU", "MEMORY_MB", "DISK_GB", PAGES}
"""Classes of which nobody gets a certain unit."""


class Asked(NamedTuple):
    """A flavor, and what a server of it holds of its kind, provider by provider."""

    vcpus: int
    ram: int
    specs: dict[str, str]
    kind: str
    amounts: tuple[int, ...]


DEDICATED: Final = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"}
OF_TYPE: Final = {"trait1:CUSTOM_NVIDIA_222": "required"}
KINDS: Final = {
    "cpus": (Asked(4, 512, DEDICATED, "PCPU", (2, 2)), Asked(8, 512, DEDICATED, "PCPU", (4, 4))),
    "pages": (
        Asked(1, 256, {"hw:mem_page_size": "2MB"}, PAGES, (128,)),
        Asked(1, 512, {"hw:mem_page_size": "2MB"}, PAGES, (256,)),
    ),
    "vf": (
        Asked(1, 128, {"resources:SRIOV_NET_VF": "1"}, "SRIOV_NET_VF", (1,)),
        Asked(1, 128, {"resources:SRIOV_NET_VF": "2"}, "SRIOV_NET_VF", (2,)),
    ),
    "pf": (
        Asked(1, 128, {f"resources:{WHOLE_CLASS}": "1"}, WHOLE_CLASS, (1,)),
        Asked(1, 256, {f"resources:{WHOLE_CLASS}": "1"}, WHOLE_CLASS, (1,)),
    ),
    "vgpu": (
        Asked(1, 128, {"resources1:VGPU": "1", **OF_TYPE}, "VGPU", (1,)),
        Asked(1, 128, {"resources1:VGPU": "2", **OF_TYPE}, "VGPU", (2,)),
    ),
    "pgpu": (
        Asked(1, 128, {"resources:PGPU": "1"}, "PGPU", (1,)),
        Asked(1, 256, {"resources:PGPU": "1"}, "PGPU", (1,)),
    ),
}
"""Of each kind a flavor, and one to resize to."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    options = "--hosts 1 --cells 1 --build-seconds 0 --heartbeat-timeout 2 --seed 5 --log-level info"
    with cloud_running(tmp_path_factory.mktemp("devices"), *options.split()) as cloud:
        yield cloud
        assert cloud.stop() == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


@pytest.fixture(scope="module")
def agents(cloud: Cloud) -> Iterator[dict[str, MachineAgent]]:
    options = ("--dedicated-cpus", "2-3,6-7,10-11,14-15", "--live-migrate-seconds", "0.2", "--seed", "5")
    agents = {name: MachineAgent(cloud, name, every_kind, *options) for name in NAMES}
    with contextlib.ExitStack() as stack:
        for agent in agents.values():
            stack.enter_context(agent.running())
        yield agents


class Fleet:
    """What the region and the machines say of the servers that are there."""

    def __init__(self, cloud: Cloud, agents: dict[str, MachineAgent], command: ForkedCommand) -> None:
        self.agents = agents
        self.cloud = cloud
        self.client = CloudClient(cloud, command)
        # The last of a machine to be written.
        last = [f"{name}-pci-0000:c1:00.0" for name in agents]
        self.until(lambda: all("PGPU" in self.inventories(provider) for provider in last))
        self.client = CloudClient(cloud, command)
        self.servers: dict[str, str] = {}
        """Their ids, by kind."""

    def get(self, path: str) -> Any:
        return self.client.sdk.session.get(f"{self.cloud.url}/berth/v1{path}").json()

    def inventories(self, provider: str) -> dict[str, Any]:
        path = f"/resource_providers/{provider_id(provider)}/inventories"
        return dict(self.client.sdk.placement.get(path, microversion="1.39").json().get("inventories", {}))

    def until(self, is_so: Callable[[], object]) -> None:
        wait_for(lambda: bool(is_so()), lambda: self.cloud.everything[-8000:], self.cloud)

    def each(self, words: str, status: str) -> dict[str, str]:
        """Run a command for each server and wait for all: where they are then."""
        for id in self.servers.values():
            self.client(f"server {words} {id}")
        return self.wait(status)

    def wait(self, status: str) -> dict[str, str]:
        return {kind: self.client.wait(id, status).compute_host for kind, id in self.servers.items()}

    def check(self, size: int | None) -> None:
        """Wait until all agree; then each server holds what its flavor asks for: of the first or the second
        of its kind, or nothing."""
        found: list[str] = []

        def agree() -> bool:
            found[:] = self._find_wrong()
            return not found

        wait_for(agree, lambda: "\n".join(found) + self.cloud.everything[-4000:], self.cloud)
        for kind, id in self.servers.items():
            held = self.client.held(id).amounts
            if size is None:
                assert held == {}
                continue
            asked = KINDS[kind][size]
            amounts = [amounts[asked.kind] for amounts in held.values() if asked.kind in amounts]
            assert tuple(amounts) == asked.amounts, f"{kind}: {held}"

    def _find_wrong(self) -> list[str]:
        """Where what is held, what is assigned and what the machines have are not the same."""
        wrong = []
        on_disks: dict[str, dict[str, set[str]]] = {name: {} for name in self.agents}
        given: Counter[tuple[str, str]] = Counter()
        for kind, id in self.servers.items():
            moves = [one.uuid for one in self.client.sdk.compute.migrations(instance_uuid=id)]
            devices = self.get(f"/servers/{id}/devices")["devices"]
            given.update((device["host"], unit) for device in devices for unit in device["units"])
            for of, consumers in (("server", [id]), ("migration", moves)):
                mine = [device for device in devices if device["of"] == of]
                assigned = Counter(
                    {(one["provider_name"], one["resource_class"]): len(one["units"]) for one in mine}
                )
                held = sum(map(self._count_held, consumers), Counter[tuple[str, str]]())
                if held != assigned:
                    wrong.append(f"{kind}: its {of} holds {held} and is assigned {assigned}")
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
        return wrong + [finding["sentence"] for finding in self.get("/doctor")["findings"]]

    @staticmethod
    def _units_at(devices: list[dict[str, Any]], host: str) -> set[str]:
        return {unit for device in devices if device["host"] == host for unit in device["units"]}

    def _count_held(self, consumer: str) -> Counter[tuple[str, str]]:
        return Counter(
            {
                (provider, kind): amount
                for provider, amounts in self.client.held(consumer).amounts.items()
                for kind, amount in amounts.items()
                if kind not in COUNTED
            }
        )


@pytest.fixture(scope="module")
def fleet(cloud: Cloud, agents: dict[str, MachineAgent], command: ForkedCommand) -> Iterator[Fleet]:
    fleet = Fleet(cloud, agents, command)
    yield fleet
    fleet.client.sdk.close()


def make_flavors(client: CloudClient) -> None:
    for kind, flavors in KINDS.items():
        for number, asked in enumerate(flavors):
            specs = " ".join(f"--property {name}={value}" for name, value in asked.specs.items())
            size = f"--vcpus {asked.vcpus} --ram {asked.ram} --disk 1"
            client(f"flavor create {size} {specs} {kind}-{number}")


def test_a_server_with_each_kind_of_device_through_its_whole_life(fleet: Fleet) -> None:
    client = fleet.client
    make_flavors(client)
    for kind in KINDS:
        made = client(f"server create --flavor {kind}-0 --image cirros --host {FIRST} {kind}")
        fleet.servers[kind] = made["id"]
    assert set(fleet.wait("ACTIVE").values()) == {FIRST}
    fleet.check(0)
    assert f"{FIRST}-pci-0000:41:00.0" in client.held(fleet.servers["vgpu"]).amounts

    moved = fleet.each("migrate", "VERIFY_RESIZE")
    assert FIRST not in moved.values()
    fleet.check(0)
    assert fleet.each("migrate confirm", "ACTIVE") == moved
    fleet.check(0)

    for kind, id in fleet.servers.items():
        client(f"server resize --flavor {kind}-1 {id}")
    fleet.wait("VERIFY_RESIZE")
    fleet.check(1)
    assert fleet.each("resize revert", "ACTIVE") == moved
    fleet.check(0)

    assert set(fleet.each(f"migrate --live-migration --host {FIRST}", "ACTIVE").values()) == {FIRST}
    fleet.check(0)

    fleet.agents[FIRST].kill()
    fleet.until(lambda: _state(client, FIRST) == "down")
    assert FIRST not in fleet.each("evacuate", "ACTIVE").values()
    # What is left on the dead machine is still assigned.
    fleet.check(0)
    fleet.agents[FIRST].start()
    fleet.until(lambda: _state(client, FIRST) == "up")
    for id in fleet.servers.values():
        client.until_released(client.migration(client.sdk.compute.get_server(id), "evacuation").uuid)
    fleet.check(0)

    ids = " ".join(fleet.servers.values())
    client(f"server shelve {ids}")
    fleet.wait("SHELVED_OFFLOADED")
    fleet.check(None)
    client(f"server unshelve {ids}")
    fleet.wait("ACTIVE")
    fleet.check(0)

    client(f"server delete --wait {ids}")
    for id in fleet.servers.values():
        client.until_released(id)
    fleet.servers.clear()
    fleet.check(None)
    client.nothing_is_held()


def _state(client: CloudClient, host: str) -> str:
    (service,) = client.sdk.compute.services(host=host)
    return str(service.state)


def test_a_nic_is_split_while_a_server_has_it_whole(fleet: Fleet) -> None:
    client, agent = fleet.client, fleet.agents[SECOND]
    client(f"flavor create --vcpus 1 --ram 128 --disk 1 --property resources:{WHOLE_CLASS}=1 whole")
    server = client.wait(
        client(f"server create --flavor whole --image cirros --host {SECOND} whole")["id"], "ACTIVE"
    )
    Machine(agent.root, SECOND).split(WHOLE_PF, 1, 8)
    agent.look_again()
    path = f"/hosts/{provider_id(SECOND)}"
    fleet.until(lambda: fleet.get(path)["host"]["complaints"])
    (complaint,) = fleet.get(path)["host"]["complaints"]
    assert f"{WHOLE_CLASS} is gone from the host and in use by {server.id}" in complaint
    nic = f"{SECOND}-pci-{WHOLE_PF}"
    assert "SRIOV_NET_VF" not in fleet.inventories(nic)
    (device,) = fleet.get(f"/servers/{server.id}/devices")["devices"]
    assert (device["host"], device["units"]) == (SECOND, [WHOLE_PF])
    assert client(f"server show {server.id}")["status"] == "ACTIVE"

    client(f"server delete --wait {server.id}")
    fleet.until(lambda: fleet.inventories(nic).get("SRIOV_NET_VF", {}).get("total") == 8)
    fleet.until(lambda: not fleet.get(path)["host"]["complaints"])
    assert WHOLE_CLASS not in fleet.inventories(nic)
    fleet.check(None)


def test_the_doctor_finds_nothing(cloud: Cloud, fleet: Fleet) -> None:
    cloud.shell("berth doctor --data data")
