"""Upstream's starting states, rebuilt through the public Placement API.

Every fixture that upstream's YAML files name is a function here, of the same name. It owns two things: the
settings its server is launched with, and what the server holds before the first test. Generations come
out as upstream's own fixtures leave them, because some tests know them. Nothing here reads a database.
"""

import uuid
from collections.abc import Callable, MutableMapping
from typing import Any, Final, NamedTuple

import httpx

from tests.conformance.wire import WireTransport

Environ = MutableMapping[str, str]


class FixtureError(Exception):
    """The starting state could not be made; all tests of the file fail with this."""


class Fixture(NamedTuple):
    settings: dict[str, str]
    build: Callable[["StateWriter", Environ], None]


FIXTURES: Final[dict[str, Fixture]] = {}

Build = Callable[["StateWriter", Environ], None]


def fixture(policy: str = "legacy", **settings: str) -> Callable[[Build], Build]:
    """Register a fixture under the name the YAML files use for it.

    The arguments are the settings its server is launched with. The function gets an Api to write through
    and the environment that the tests will read.
    """

    def register(build: Build) -> Build:
        FIXTURES[build.__name__] = Fixture({"auth": "noauth2", "policy": policy, **settings}, build)
        return build

    return register


def new_uuid() -> str:
    return str(uuid.uuid4())


def basic_environ(env: Environ) -> None:
    """The variables every fixture provides."""
    for name in (
        "RP_UUID",
        "RP_NAME",
        "RP_UUID1",
        "RP_NAME1",
        "RP_UUID2",
        "RP_NAME2",
        "PROJECT_ID",
        "ADMIN_PROJECT_ID",
        "SERVICE_PROJECT_ID",
        "USER_ID",
        "PROJECT_ID_ALT",
        "USER_ID_ALT",
        "INSTANCE_UUID",
        "MIGRATION_UUID",
        "CONSUMER_UUID",
        "PARENT_PROVIDER_UUID",
        "ALT_PARENT_PROVIDER_UUID",
    ):
        env[name] = new_uuid()
    for suffix in ("", "1", "2"):
        env["CUSTOM_RES_CLASS" + suffix] = "CUSTOM_IRON_NFV" + suffix


# -- empty services, differing in their settings -----------------------------------------------


@fixture()
def APIFixture(api: "StateWriter", env: Environ) -> None:
    """An empty service."""


@fixture(policy="open")
def OpenPolicyFixture(api: "StateWriter", env: Environ) -> None:
    """An empty service that lets any authenticated caller do anything."""


@fixture(policy="legacy")
def LegacyRBACPolicyFixture(api: "StateWriter", env: Environ) -> None:
    """An empty service: new policy defaults or the deprecated ones."""


@fixture(policy="secure")
def SecureRBACPolicyFixture(api: "StateWriter", env: Environ) -> None:
    """An empty service: new policy defaults only."""


@fixture(cors_allowed_origin="http://valid.example.com", cors_allow_headers="openstack-api-version")
def CORSFixture(api: "StateWriter", env: Environ) -> None:
    """An empty service that answers CORS requests."""


# -- fleets ------------------------------------------------------------------------------------


@fixture()
def AllocationFixture(api: "StateWriter", env: Environ) -> None:
    """One provider, three consumers of two users in one project."""
    for name in ("ALT_USER_ID", "ALT_RP_UUID", "ALT_RP_NAME"):
        env[name] = new_uuid()
    rp = api.provider(env["RP_NAME"], uuid=env["RP_UUID"])
    rp.inventory("DISK_GB", 2048, step_size=10, min_unit=10, max_unit=1000)
    rp.inventory("VCPU", 10)
    project = env["PROJECT_ID"]
    env["CONSUMER_0"] = rp.allocate(env["USER_ID"], project, DISK_GB=1000)
    env["CONSUMER_ID"] = rp.allocate(env["USER_ID"], project, VCPU=6)
    env["ALT_CONSUMER_ID"] = rp.allocate(env["ALT_USER_ID"], project, DISK_GB=20, VCPU=1)


@fixture()
def SharedStorageFixture(api: "StateWriter", env: Environ) -> None:
    """Two computes and two sharing storages in one aggregate.

    Below each compute: two NUMA nodes, each with one PF.
    """
    agg = env["AGG_UUID"] = new_uuid()
    for n in (1, 2):
        cn = api.provider(f"cn{n}", agg, key=f"CN{n}_UUID")
        cn.inventory("VCPU", 24, allocation_ratio=16.0)
        cn.inventory("MEMORY_MB", 128 * 1024, allocation_ratio=1.5)
        if n == 1:
            cn.traits("HW_CPU_X86_SSE", "HW_CPU_X86_SSE2")
        else:
            cn.inventory("DISK_GB", 2000, reserved=100)
        for m in (1, 2):
            numa = api.provider(f"numa{n}_{m}", parent=cn, key=f"NUMA{n}_{m}_UUID")
            pf = api.provider(f"pf{n}_{m}", parent=numa, key=f"PF{n}_{m}_UUID")
            pf.inventory("SRIOV_NET_VF", 8)
    for name in ("ss", "ss2"):
        shared_disk(api, name, agg)


def shared_disk(api: "StateWriter", name: str, agg: str) -> None:
    disk = api.provider(name, agg, key=name.upper() + "_UUID")
    disk.inventory("DISK_GB", 2000, reserved=100)
    disk.traits("MISC_SHARES_VIA_AGGREGATE")


def three_aggregates(env: Environ) -> list[str]:
    aggs = [new_uuid() for _ in range(3)]
    env["AGGA_UUID"], env["AGGB_UUID"], env["AGGC_UUID"] = aggs
    return aggs


@fixture()
def NUMAAggregateFixture(api: "StateWriter", env: Environ) -> None:
    """Two empty computes with NUMA children and differing aggregates."""
    agg_a, agg_b, agg_c = three_aggregates(env)
    for n, aggs in ((1, [agg_a]), (2, [agg_a, agg_b])):
        cn = api.provider(f"cn{n}", *aggs, key=f"CN{n}_UUID")
        for m in (1, 2):
            numa_aggs = [agg_c] if (n, m) == (1, 1) else []
            numa = api.provider(f"numa{n}_{m}", *numa_aggs, parent=cn, key=f"NUMA{n}_{m}_UUID")
            numa.inventory("VCPU", 24, allocation_ratio=16.0)
    shared_disk(api, "ss1", agg_a)
    shared_disk(api, "ss2", agg_c)


@fixture()
def NUMANetworkFixture(api: "StateWriter", env: Environ) -> None:
    numa_network(api, env, {})


@fixture()
def DeepNUMANetworkFixture(api: "StateWriter", env: Environ) -> None:
    """NUMANetworkFixture, both computes two levels down in one tree."""
    top = api.provider("gp1")
    numa_network(api, env, {n: api.provider(f"p{n}", parent=top) for n in (1, 2)})


def numa_network(api: "StateWriter", env: Environ, above: dict[int, "FixtureProvider"]) -> None:
    """A resourceless compute with NUMA nodes, devices and network agents, a plain compute with NICs and
    PFs, and a sharing storage for both. ``above`` holds the providers to put the computes under, if any.
    """
    agg = env["AGGA_UUID"] = new_uuid()
    ss1 = api.provider("ss1", agg, key="SS1_UUID")
    ss1.traits("MISC_SHARES_VIA_AGGREGATE")
    ss1.inventory("DISK_GB", 2000)
    numa_compute(api, agg, above.get(1))
    nic_compute(api, agg, above.get(2))


NUMA_OWNER: Final = ("numafx-user", "numafx-project")


def numa_compute(api: "StateWriter", agg: str, parent: "FixtureProvider | None") -> None:
    cn1 = api.provider("cn1", agg, parent=parent, key="CN1_UUID")
    cn1.traits("COMPUTE_VOLUME_MULTI_ATTACH")
    numa0 = api.provider("numa0", parent=cn1, key="NUMA0_UUID")
    numa0.traits("HW_NUMA_ROOT")
    numa0.inventory("VCPU", 4)
    numa0.inventory("MEMORY_MB", 2048, min_unit=512, step_size=256)
    numa0.allocate(*NUMA_OWNER, VCPU=2)
    numa1 = api.provider("numa1", parent=cn1, key="NUMA1_UUID")
    numa1.traits("HW_NUMA_ROOT", "CUSTOM_FOO")
    numa1.inventory("VCPU", 4)
    numa1.inventory("MEMORY_MB", 2048, min_unit=256, max_unit=1024)
    for name, numa, resource, total in (
        ("fpga0", numa0, "FPGA", 1),
        ("pgpu0", numa0, "VGPU", 8),
        ("fpga1_0", numa1, "FPGA", 1),
        ("fpga1_1", numa1, "FPGA", 1),
    ):
        device = api.provider(name, parent=numa, key=name.upper() + "_UUID")
        device.inventory(resource, total)
    agents: tuple[tuple[str, str, tuple[tuple[str, int, int], ...]], ...] = (
        ("sriov_agent", "DIRECT", (("esn1", 1, 10000), ("esn2", 2, 20000))),
        ("ovs_agent", "NORMAL", (("br_int", 0, 1000),)),
    )
    for name, vnic_type, ports in agents:
        agent = api.provider(name, parent=cn1, key=name.upper() + "_UUID")
        agent.traits("CUSTOM_VNIC_TYPE_" + vnic_type)
        for port_name, physnet, bandwidth in ports:
            port = api.provider(port_name, parent=agent, key=port_name.upper() + "_UUID")
            port.traits(f"CUSTOM_PHYSNET{physnet}")
            port.inventory("NET_BW_EGR_KILOBIT_PER_SEC", bandwidth)


def nic_compute(api: "StateWriter", agg: str, parent: "FixtureProvider | None") -> None:
    cn2 = api.provider("cn2", agg, parent=parent, key="CN2_UUID")
    cn2.inventory("VCPU", 8)
    cn2.inventory("MEMORY_MB", 2048, min_unit=1024, step_size=128)
    cn2.inventory("DISK_GB", 1000)
    cn2.traits("CUSTOM_FOO")
    cn2.allocate(*NUMA_OWNER, VCPU=3)
    for n, vfs, physnets in ((1, 4, (1, 2)), (2, 2, (1, 2, 1, 2)), (3, 8, (1,))):
        nic = api.provider(f"nic{n}", parent=cn2, key=f"NIC{n}_UUID")
        nic.traits("CUSTOM_HW_NIC_ROOT")
        for m, physnet in enumerate(physnets, 1):
            pf = api.provider(f"pf{n}_{m}", parent=nic, key=f"PF{n}_{m}_UUID")
            pf.traits(f"CUSTOM_PHYSNET{physnet}")
            pf.inventory("CUSTOM_VF", vfs)


@fixture()
def NonSharedStorageFixture(api: "StateWriter", env: Environ) -> None:
    """Three like computes; the tests put them into aggregates."""
    three_aggregates(env)
    for n in (1, 2, 3):
        cn = api.provider(f"cn{n}", key=f"CN{n}_UUID")
        cn.inventory("VCPU", 24)
        cn.inventory("MEMORY_MB", 128 * 1024)
        cn.inventory("DISK_GB", 2000)


@fixture()
def GranularFixture(api: "StateWriter", env: Environ) -> None:
    """Three computes, two shared disks and a shared network, linked by overlapping aggregates."""
    a, b, c = (env.setdefault("AGG" + letter, new_uuid()) for letter in "ABC")
    share = "MISC_SHARES_VIA_AGGREGATE"
    compute = {"VCPU": 8, "MEMORY_MB": 4096}
    network = {"SRIOV_NET_VF": 8, "CUSTOM_NET_MBPS": 4000}
    fleet: tuple[tuple[str, list[str], dict[str, int], list[str]], ...] = (
        (
            "cn_left",
            [a],
            {**compute, "DISK_GB": 500, "VGPU": 8, **network},
            ["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_GPU_API_DXVA", "HW_NIC_DCB_PFC", "CUSTOM_FOO"],
        ),
        (
            "cn_middle",
            [a, b],
            {**compute, **network},
            ["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "HW_NIC_ACCEL_TLS"],
        ),
        (
            "cn_right",
            [b, c],
            {**compute, "DISK_GB": 500, "VGPU": 8},
            ["HW_CPU_X86_MMX", "HW_GPU_API_DXVA", "CUSTOM_DISK_SSD"],
        ),
        ("shr_disk_1", [a], {"DISK_GB": 1000}, [share, "CUSTOM_DISK_SSD"]),
        ("shr_disk_2", [a, b], {"DISK_GB": 1000}, [share]),
        ("shr_net", [c], {"SRIOV_NET_VF": 16, "CUSTOM_NET_MBPS": 40000}, [share]),
    )
    for name, aggs, inventories, traits in fleet:
        rp = api.provider(name, *aggs, key=name.upper())
        for resource, total in inventories.items():
            limit = 2 if (name, resource) == ("cn_right", "VGPU") else total
            rp.inventory(resource, total, max_unit=limit)
        rp.traits(*traits)


@fixture()
def NeutronQoSMultiSegmentFixture(api: "StateWriter", env: Environ) -> None:
    """Four computes with OVS and SR-IOV agents; number 3 has two segments and little bandwidth."""
    for n, segments in enumerate((["OTHER"], ["MSN_S1"], ["MSN_S2"], ["MSN_S1", "MSN_S2"])):
        host = f"compute{n}"
        cn = api.provider(host, key=host)
        cn.inventory("VCPU", 8)
        cn.inventory("MEMORY_MB", 4096)
        cn.inventory("DISK_GB", 500)
        network_agents(api, cn, host, segments, 1000 if n == 3 else None)
    # Upstream sets this one so.
    env["compute3:sriov_agent"] = env["compute2:sriov_agent"]


def network_agents(
    api: "StateWriter", cn: "FixtureProvider", host: str, segments: list[str], bandwidth: int | None
) -> None:
    """Both agents of a host, with one port each for every segment the host is on."""
    normal = ["CUSTOM_VNIC_TYPE_NORMAL"]
    direct = ["CUSTOM_VNIC_TYPE_" + kind for kind in ("DIRECT", "DIRECT_PHYSICAL", "MACVTAP")]
    for suffix, agent_key, vnic_types, usual_bandwidth, ports in (
        ("Open vSwitch agent", "ovs_agent", normal, 5000, (("br-ex", "br_ex"), ("br-ex2", "br_ex2"))),
        ("NIC Switch agent", "sriov_agent", direct, 10000, (("enp129s0f0", "pf0"), ("enp129s0f1", "pf1"))),
    ):
        agent_name = f"{host}:{suffix}"
        agent = api.provider(agent_name, parent=cn, key=f"{host}:{agent_key}")
        if agent_key == "ovs_agent":
            agent.inventory("NET_PACKET_RATE_KILOPACKET_PER_SEC", 1000)
        agent.traits(*vnic_types)
        for segment, (port_name, port_key) in zip(segments, ports, strict=False):
            port = api.provider(f"{agent_name}:{port_name}", parent=agent, key=f"{host}:{port_key}")
            for direction in ("EGR", "IGR"):
                port.inventory(f"NET_BW_{direction}_KILOBIT_PER_SEC", bandwidth or usual_bandwidth)
            port.traits(*vnic_types, "CUSTOM_PHYSNET_" + segment)


# -- writing them ------------------------------------------------------------------------------


class StateWriter:
    """A Placement client that writes starting state."""

    def __init__(self, url: str, env: Environ) -> None:
        self.client = httpx.Client(base_url=url, transport=WireTransport())
        self.env = env

    def __call__(self, method: str, path: str, version: str, body: object = None) -> Any:
        """The decoded answer; None for an empty one."""
        headers = {
            "x-auth-token": "admin",
            "accept": "application/json",
            "openstack-api-version": "placement " + version,
        }
        answer = self.client.request(method, path, headers=headers, json=body)
        if answer.is_error:
            raise FixtureError(f"{method} {path} at {version}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def provider(
        self,
        name: str,
        *aggs: str,
        parent: "FixtureProvider | None" = None,
        uuid: str | None = None,
        key: str | None = None,
    ) -> "FixtureProvider":
        """Create a provider; ``key`` names the variable for its UUID."""
        rp = FixtureProvider(self, uuid or new_uuid())
        body = {"name": name, "uuid": rp.uuid}
        if parent:
            body["parent_provider_uuid"] = parent.uuid
        self("POST", "/resource_providers", "1.14", body)
        if aggs:
            # Before 1.19 this leaves the generation alone, as upstream's fixtures do.
            self("PUT", rp.path + "/aggregates", "1.18", list(aggs))
        if key:
            self.env[key] = rp.uuid
        return rp


class FixtureProvider:
    """A provider made by StateWriter.provider().

    Some tests know the resulting generation, so every call here is exactly one increment: one inventory
    record, one set of traits, one consumer.
    """

    def __init__(self, api: StateWriter, uuid: str) -> None:
        self.api = api
        self.uuid = uuid
        self.path = "/resource_providers/" + uuid

    def _generation(self) -> int:
        generation: int = self.api("GET", self.path, "1.0")["generation"]
        return generation

    def inventory(self, resource_class: str, total: int, **fields: float) -> None:
        if resource_class.startswith("CUSTOM_"):
            self.api("PUT", "/resource_classes/" + resource_class, "1.7")
        body = {
            "resource_provider_generation": self._generation(),
            "resource_class": resource_class,
            "total": total,
            "max_unit": total,
            **fields,
        }
        self.api("POST", self.path + "/inventories", "1.0", body)

    def traits(self, *names: str) -> None:
        for name in names:
            if name.startswith("CUSTOM_"):
                self.api("PUT", "/traits/" + name, "1.6")
        body = {"resource_provider_generation": self._generation(), "traits": names}
        self.api("PUT", self.path + "/traits", "1.6", body)

    def allocate(self, user: str, project: str, **resources: int) -> str:
        """Let a new consumer use resources; return the consumer's UUID."""
        consumer = new_uuid()
        # Before 1.38 the consumer has no type, as in upstream's fixtures.
        body = {
            "allocations": {self.uuid: {"resources": resources}},
            "user_id": user,
            "project_id": project,
            "consumer_generation": None,
        }
        self.api("PUT", "/allocations/" + consumer, "1.28", body)
        return consumer
