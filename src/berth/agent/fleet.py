"""Simulated hosts: what each has, as providers for Placement.

A provider's id follows from its name, so that a host that starts again is the same one.
"""

import uuid
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.agent.control import NAME
from berth.cell.protocol import Register, ReportedInventory, ReportedProvider

HOSTS_MAX: Final = 100_000
CHILDREN_MAX: Final = 100
GPU_EVERY: Final = 4
GPUS_PER_HOST: Final = 2

_NAMESPACE: Final = uuid.UUID("a1f0c3f2-94a4-4a53-8c0e-3c1c1c9d6f25")
_UUID_LENGTH: Final = 36

Name = Annotated[str, Meta(pattern=NAME)]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SimInventory(ReportedInventory, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same as on the wire, but that a fleet file is refused for a field that is not known."""

    def on_the_wire(self) -> ReportedInventory:
        return ReportedInventory(**{**msgspec.structs.asdict(self), "max_unit": self.max_unit or self.total})


class SimProvider(_Entry, frozen=True, kw_only=True):
    """A provider below a host, named after it: ``gpu0`` of host-0004 is host-0004-gpu0."""

    name: Name
    inventories: dict[str, SimInventory] = {}
    traits: tuple[str, ...] = ()
    children: "Annotated[tuple[SimProvider, ...], Meta(max_length=CHILDREN_MAX)]" = ()


class SimHost(_Entry, frozen=True, kw_only=True):
    """``aggregates`` by id, or by a name of which the id follows. ``cell``: where it belongs, if that is
    said."""

    name: Name
    inventories: dict[str, SimInventory] = {}
    traits: tuple[str, ...] = ()
    children: Annotated[tuple[SimProvider, ...], Meta(max_length=CHILDREN_MAX)] = ()
    aggregates: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    cell: str | None = None

    @property
    def id(self) -> str:
        return provider_id(self.name)


def provider_id(name: str) -> str:
    """The id of the provider of a name."""
    return str(uuid.uuid5(_NAMESPACE, name))


def aggregate_id(name: str) -> str:
    """The id of an aggregate: the name itself, if it is one."""
    try:
        if len(name) == _UUID_LENGTH:
            return str(uuid.UUID(name))
    except ValueError:
        pass
    return str(uuid.uuid5(_NAMESPACE, f"aggregate {name}"))


def providers(host: SimHost) -> Iterator[ReportedProvider]:
    """The host's tree: itself first, parents before their children."""
    yield _provider(host, host.name, None)
    yield from _below(host.children, host.name)


def register(host: SimHost, driver: str) -> Register:
    """What an agent says of a host when it registers it."""
    return Register(
        host=host.id,
        name=host.name,
        driver=driver,
        providers=tuple(providers(host)),
        aggregates=tuple(dict.fromkeys(map(aggregate_id, host.aggregates))),
    )


def simulated_fleet(
    count: int, prefix: str = "host", first: int = 1, cell: str | None = None
) -> list[SimHost]:
    """So many hosts, all alike but that every fourth has GPUs."""
    if not 0 <= count <= HOSTS_MAX:
        raise ValueError(f"a fleet has 0 to {HOSTS_MAX} hosts, not {count}")
    return [_ordinary(prefix, number, cell) for number in range(first, first + count)]


def numbered(prefix: str, number: int) -> str:
    return f"{prefix}-{number:04d}"


def _ordinary(prefix: str, number: int, cell: str | None) -> SimHost:
    gpus = GPUS_PER_HOST if number % GPU_EVERY == 0 else 0
    return SimHost(
        name=numbered(prefix, number),
        inventories={
            "VCPU": SimInventory(total=32, allocation_ratio=4.0),
            "MEMORY_MB": SimInventory(total=131_072, reserved=4096),
            "DISK_GB": SimInventory(total=2000),
        },
        traits=("COMPUTE_NODE", "HW_ARCH_X86_64", "HW_CPU_X86_AVX2"),
        children=tuple(
            SimProvider(
                name=f"gpu{gpu}", inventories={"VGPU": SimInventory(total=4)}, traits=("HW_GPU_API_VULKAN",)
            )
            for gpu in range(gpus)
        ),
        cell=cell,
    )


def _below(children: tuple[SimProvider, ...], parent: str) -> Iterator[ReportedProvider]:
    for child in children:
        name = f"{parent}-{child.name}"
        yield _provider(child, name, parent)
        yield from _below(child.children, name)


def _provider(given: SimHost | SimProvider, name: str, parent: str | None) -> ReportedProvider:
    return ReportedProvider(
        id=provider_id(name),
        name=name,
        parent=None if parent is None else provider_id(parent),
        inventories={kind: inventory.on_the_wire() for kind, inventory in given.inventories.items()},
        traits=given.traits,
    )
