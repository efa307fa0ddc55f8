"""The fleets of the workloads: which providers there are, and what each of them has.

How a fleet gets into a database is not known here: ``journals`` writes it as Berth would, ``upstream_rows``
as upstream would.
"""

import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.workload import Devices, Flat, Fleet, Nested
from berth.model.placement import Inventory

# What OpenStack's placeload gives its hosts: the first aggregate and the first trait are everybody's.
AGGREGATES: Final = (
    "14a5c8a3-5a99-4e8f-88be-00d85fcb1c17",
    "66d98e7c-3c25-485d-a0dc-1cea651884de",
    "a59dbb28-fd98-4c6e-9ec5-ae5f3d04b0aa",
)
TRAITS: Final = ("HW_CPU_X86_AVX2", "HW_CPU_X86_SSE2", "STORAGE_DISK_SSD")

# Its inventories too, but for the ratio: no run shall end because a host is full.
INVENTORIES: Final = {
    "MEMORY_MB": Inventory(8192, min_unit=128, max_unit=8192, allocation_ratio=10000.0),
    "DISK_GB": Inventory(8192, min_unit=5, max_unit=8192, allocation_ratio=10000.0),
    "VCPU": Inventory(32, min_unit=1, max_unit=16, allocation_ratio=10000.0),
}

_NAMESPACE: Final = uuid.UUID(int=0)


class FleetProvider(NamedTuple):
    """Parents come before their children."""

    name: str
    inventories: dict[str, Inventory]
    parent: str | None = None
    """Its name."""
    aggregates: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return provider_id(self.name)

    @property
    def parent_id(self) -> str | None:
        return None if self.parent is None else provider_id(self.parent)

    @property
    def generation(self) -> int:
        """One for each of the lists that were set."""
        return sum(map(bool, (self.inventories, self.aggregates, self.traits)))


def provider_id(name: str) -> str:
    """The same on every server, so that the same requests fit."""
    return str(uuid.uuid5(_NAMESPACE, name))


def host_id(number: int) -> str:
    return provider_id(f"host-{number}")


def providers(fleet: Fleet) -> Iterator[FleetProvider]:
    for number in range(fleet.hosts):
        if isinstance(fleet, Flat):
            yield _flat_host(number)
        elif isinstance(fleet, Nested):
            yield from _nested_host(f"host-{number}")
        elif isinstance(fleet, Devices):
            yield from _device_host(f"host-{number}")
        else:
            yield from _wide_host(f"host-{number}", fleet.children)


def mixed_providers(hosts: int, pools: int) -> Iterator[FleetProvider]:
    """A fleet that has everything a request can be costly with: of twenty hosts, eighteen flat ones, one with
    NUMA nodes and one with GPUs; and pools that share disk with all flat ones."""
    for number in range(hosts):
        kind = number % 20
        if kind == 18:
            yield from _nested_host(f"host-{number}")
        elif kind == 19:
            yield from _wide_host(f"host-{number}", 8)
        else:
            yield _flat_host(number)
    disk = {"DISK_GB": Inventory(1_000_000)}
    for number in range(pools):
        yield FleetProvider(
            f"pool-{number}", disk, aggregates=AGGREGATES[:1], traits=("MISC_SHARES_VIA_AGGREGATE",)
        )


def _flat_host(number: int) -> FleetProvider:
    count = number % 3 + 1
    return FleetProvider(f"host-{number}", INVENTORIES, aggregates=AGGREGATES[:count], traits=TRAITS[:count])


def _nested_host(name: str) -> Iterator[FleetProvider]:
    """Of the two NUMA nodes the second alone is what perfload's query looks for."""
    first, second = f"{name}-numa-0", f"{name}-numa-1"
    inventories = {
        first: {
            "VCPU": Inventory(4, reserved=2),
            "MEMORY_MB": Inventory(2048, min_unit=512, step_size=256),
        },
        second: {"VCPU": Inventory(4), "MEMORY_MB": Inventory(2048, min_unit=256, max_unit=1024)},
    }
    yield FleetProvider(name, {"DISK_GB": Inventory(20480)}, traits=("COMPUTE_VOLUME_MULTI_ATTACH",))
    yield FleetProvider(first, inventories[first], parent=name, traits=("HW_NUMA_ROOT",))
    yield FleetProvider(second, inventories[second], parent=name, traits=("HW_NUMA_ROOT", "CUSTOM_FOO"))
    yield FleetProvider(f"{first}-fpga", {"FPGA": Inventory(1)}, parent=first)
    yield FleetProvider(f"{first}-pgpu", {"VGPU": Inventory(8)}, parent=first)
    yield FleetProvider(f"{second}-fpga-0", {"FPGA": Inventory(1)}, parent=second)
    yield FleetProvider(f"{second}-fpga-1", {"FPGA": Inventory(1)}, parent=second)


def _wide_host(name: str, children: int) -> Iterator[FleetProvider]:
    yield FleetProvider(name, {"VCPU": Inventory(32)})
    for child in range(children):
        yield FleetProvider(f"{name}-gpu-{child}", {"VGPU": Inventory(8)}, parent=name)


def _device_host(name: str) -> Iterator[FleetProvider]:
    """What eight GPUs are bought with."""
    yield FleetProvider(name, {"DISK_GB": Inventory(20_000)}, traits=("COMPUTE_NODE",))
    for number in range(2):
        cell = f"{name}-numa-{number}"
        inventories = {"PCPU": Inventory(64), "MEMORY_MB": Inventory(1_048_576, reserved=16_384)}
        yield FleetProvider(cell, inventories, parent=name, traits=("HW_NUMA_ROOT",))
        for device in range(4):
            yield FleetProvider(f"{cell}-gpu-{device}", {"PGPU": Inventory(1)}, parent=cell)
            card = {"SRIOV_NET_VF": Inventory(8)}
            yield FleetProvider(f"{cell}-nic-{device}", card, parent=cell, traits=("HW_NIC_SRIOV",))
