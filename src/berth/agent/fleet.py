"""Simulated hosts: what each has, as providers for Placement.

A provider's id follows from its name, so that a host that starts again is the same one. A fleet is a
number of hosts that are alike (``simulated_fleet``), or is described in a TOML file, for ``--fleet``:

    [[host]]
    name = "db-1"                   # or: count = 20, prefix = "web", for web-0001 to web-0020
    cell = "cell1"                  # optional
    traits = ["COMPUTE_NODE"]
    aggregates = ["rack-7"]         # names, or ids
    [host.inventories]
    VCPU = 32                       # or in full: { total = 32, reserved = 2, allocation_ratio = 4.0 }
    MEMORY_MB = 131072
    [[host.children]]               # providers below it, which may have children too
    name = "gpu0"
    inventories = { VGPU = 4 }
    [[host.children]]
    name = "numa0"
    inventories = { PCPU = 4 }
    units = { PCPU = ["0", "1", "32", "33"] }       # optional
    siblings = [["0", "32"], ["1", "33"]]           # which of them are threads of one core

    [[pool]]                        # what hosts share
    name = "nas"
    aggregates = ["rack-7"]         # whose hosts can use it
    inventories = { DISK_GB = 10000 }

Classes that are handed out piece by piece (PCPU, SRIOV_NET_VF, VGPU, PGPU, CUSTOM_PCI_...) have units. Where
none are given they are made up: the same ones each time, cpus with two threads to a core.

An agent may write the tree of its host and nothing else, so no agent creates a pool: ``berth up`` does, and
``berth pool apply``, through the region's API.

A file is checked as a whole before any of it is used. A refusal names the file, the entry, and what is
allowed.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.agent.state import HOST_NAME
from berth.cell.protocol import (
    PROVIDERS_MAX,
    UNITS_MAX,
    Register,
    ReportedInventory,
    ReportedProvider,
    Units,
    explain_wrong_units,
)
from berth.model.placement import (
    CLASSES_OF_HOSTS,
    STANDARD_CLASSES,
    STANDARD_TRAITS,
    is_custom_name,
    is_pci_class,
)

HOSTS_MAX: Final = 100_000
POOLS_MAX: Final = 1_000
CHILDREN_MAX: Final = 100
GPU_EVERY: Final = 4
GPUS_PER_HOST: Final = 2
THREADS_PER_CORE: Final = 2

_NAMESPACE: Final = uuid.UUID("a1f0c3f2-94a4-4a53-8c0e-3c1c1c9d6f25")
_UUID_LENGTH: Final = 36
_NAME_LENGTH_MAX: Final = 200

Name = Annotated[str, Meta(pattern=HOST_NAME)]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SimInventory(ReportedInventory, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same as on the wire, but unknown fields are refused."""

    def on_the_wire(self) -> ReportedInventory:
        return ReportedInventory(**{**msgspec.structs.asdict(self), "max_unit": self.max_unit or self.total})


class SimProvider(_Entry, frozen=True, kw_only=True):
    """A provider below a host, named after it: ``gpu0`` of host-0004 is host-0004-gpu0."""

    name: Name
    inventories: dict[str, SimInventory] = {}
    traits: tuple[str, ...] = ()
    units: dict[str, Units] = {}
    siblings: tuple[Units, ...] = ()
    children: "Annotated[tuple[SimProvider, ...], Meta(max_length=CHILDREN_MAX)]" = ()


class SimHost(_Entry, frozen=True, kw_only=True):
    """``aggregates``: their ids, or names from which ids follow. ``cell``: the cell that the host belongs
    to; None: any."""

    name: Name
    inventories: dict[str, SimInventory] = {}
    traits: tuple[str, ...] = ()
    units: dict[str, Units] = {}
    siblings: tuple[Units, ...] = ()
    children: Annotated[tuple[SimProvider, ...], Meta(max_length=CHILDREN_MAX)] = ()
    aggregates: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    cell: str | None = None

    @property
    def id(self) -> str:
        return provider_id(self.name)


class SimPool(_Entry, frozen=True, kw_only=True):
    """What hosts share. ``aggregates`` are spelled as those of hosts."""

    name: Name
    inventories: Annotated[dict[str, SimInventory], Meta(min_length=1)]
    traits: tuple[str, ...] = ()
    aggregates: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]

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
    units = _MadeUpUnits(host)
    yield _make_provider(host, host.name, None, units)
    yield from _list_below(host.children, host.name, units)


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
    """``count`` hosts, all alike except that every fourth has GPUs."""
    if not 0 <= count <= HOSTS_MAX:
        raise ValueError(f"a fleet has 0 to {HOSTS_MAX} hosts, not {count}")
    return [_make_host(prefix, number, cell) for number in range(first, first + count)]


def numbered(prefix: str, number: int) -> str:
    return f"{prefix}-{number:04d}"


def _make_host(prefix: str, number: int, cell: str | None) -> SimHost:
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


def _list_below(
    children: tuple[SimProvider, ...], parent: str, units: "_MadeUpUnits"
) -> Iterator[ReportedProvider]:
    for child in children:
        name = f"{parent}-{child.name}"
        yield _make_provider(child, name, parent, units)
        yield from _list_below(child.children, name, units)


def _make_provider(
    given: SimHost | SimProvider, name: str, parent: str | None, made_up: "_MadeUpUnits"
) -> ReportedProvider:
    units = made_up.complete(given, name)
    siblings = given.siblings
    if "PCPU" in units and "PCPU" not in given.units:
        cpus = units["PCPU"]
        siblings = tuple(
            cpus[first : first + THREADS_PER_CORE] for first in range(0, len(cpus), THREADS_PER_CORE)
        )
    return ReportedProvider(
        id=provider_id(name),
        name=name,
        parent=None if parent is None else provider_id(parent),
        inventories={kind: inventory.on_the_wire() for kind, inventory in given.inventories.items()},
        traits=given.traits,
        units=units,
        siblings=siblings,
    )


class _MadeUpUnits:
    """The units of a host's providers, made up in their order where none are given. No two have one name."""

    def __init__(self, host: SimHost) -> None:
        self._taken = set(_list_units(host))
        self._cpus, self._addresses = count(), count()

    def complete(self, given: SimHost | SimProvider, name: str) -> dict[str, tuple[str, ...]]:
        """The units of a provider: those that are given, and those that it needs besides."""
        units = dict(given.units)
        for kind, inventory in given.inventories.items():
            make = self._find_maker(kind, name)
            is_counted = inventory.allocation_ratio != 1 or inventory.total > UNITS_MAX
            if make is not None and kind not in units and not is_counted:
                units[kind] = tuple(self._make_new(make) for _ in range(inventory.total))
        return units

    def _make_new(self, make: Callable[[], str]) -> str:
        while (unit := make()) in self._taken:
            pass
        self._taken.add(unit)
        return unit

    def _find_maker(self, kind: str, provider: str) -> Callable[[], str] | None:
        """What makes up names for units of a class; None for a class without units."""
        if kind == "PCPU":
            return lambda: str(next(self._cpus))
        if is_pci_class(kind):
            return lambda: _format_address(next(self._addresses))
        if kind == "VGPU":
            numbers = count()
            return lambda: str(uuid.uuid5(_NAMESPACE, f"{provider} {kind} {next(numbers)}"))
        return None


def _list_units(given: SimHost | SimProvider) -> Iterator[str]:
    for names in given.units.values():
        yield from names
    for child in given.children:
        yield from _list_units(child)


def _format_address(number: int) -> str:
    """A PCI address: domain, bus, device and function."""
    return f"{number >> 16:04x}:{number >> 8 & 255:02x}:{number >> 3 & 31:02x}.{number & 7}"


# -- the fleet file ------------------------------------------------------------------------------


class FleetError(Exception):
    """The file describes no fleet. The message is for the operator, and complete."""


class _HostEntry(SimHost, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host, or several of a kind."""

    name: Name | None = None  # type: ignore[assignment]
    count: Annotated[int, Meta(ge=1, le=HOSTS_MAX)] | None = None
    prefix: Name | None = None


def read_fleet(path: str | Path) -> list[SimHost]:
    """The hosts that a file describes, or FleetError."""
    hosts, _ = _read_file(path)
    if not hosts:
        raise FleetError(f"{path}: there is no [[host]] entry in it")
    return hosts


def read_pools(path: str | Path) -> list[SimPool]:
    """The pools that a file describes, or FleetError. It need not describe hosts."""
    return _read_file(path)[1]


def _read_file(path: str | Path) -> tuple[list[SimHost], list[SimPool]]:
    entries = _read_entries(path)
    names: dict[str, str] = {}
    hosts = _read_hosts(path, entries.get("host", []), names)
    return hosts, _read_pools(path, entries.get("pool", []), names, hosts)


def _read_hosts(path: str | Path, entries: list[Any], names: dict[str, str]) -> list[SimHost]:
    hosts: dict[str, SimHost] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: host {number}{_name_entry(entry)}"
        for host in _make_hosts(entry, where):
            for name in _check_tree(host, where):
                if name in names:
                    raise FleetError(f"{where}: the name {name} is taken by {names[name]}; names are unique")
                names[name] = f"host {number}"
            hosts[host.name] = host
        if len(hosts) > HOSTS_MAX:
            raise FleetError(f"{where}: there are more than {HOSTS_MAX} hosts")
    return list(hosts.values())


def _read_pools(
    path: str | Path, entries: list[Any], names: dict[str, str], hosts: list[SimHost]
) -> list[SimPool]:
    if len(entries) > POOLS_MAX:
        raise FleetError(f"{path}: there are more than {POOLS_MAX} pools")
    joined = {name for host in hosts for name in host.aggregates}
    pools = []
    for number, entry in enumerate(entries, 1):
        where = f"{path}: pool {number}{_name_entry(entry)}"
        try:
            pool = msgspec.convert(_expand(entry), SimPool)
        except msgspec.ValidationError as error:
            raise FleetError(f"{where}: {_describe_error(error)}") from error
        if pool.name in names:
            raise FleetError(
                f"{where}: the name {pool.name} is taken by {names[pool.name]}; names are unique"
            )
        names[pool.name] = f"pool {number}"
        for name in pool.inventories:
            if name in CLASSES_OF_HOSTS:
                raise FleetError(f"{where}: {name} is what hosts have: a pool cannot have it")
        _check_words(pool, where)
        # A name that no host of the file has is a slip of the pen; an id may be known elsewhere.
        unknown = [name for name in pool.aggregates if aggregate_id(name) != name and name not in joined]
        if hosts and unknown:
            raise FleetError(f"{where}: no host of this file is in the aggregate {unknown[0]}")
        pools.append(pool)
    return pools


def _read_entries(path: str | Path) -> dict[str, list[Any]]:
    try:
        given = msgspec.toml.decode(Path(path).read_bytes())
    except OSError as error:
        raise FleetError(f"{path}: the fleet cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FleetError(f"{path}: this is not TOML: {error}") from error
    unknown = sorted(set(given) - {"host", "pool"})
    if unknown:
        raise FleetError(
            f"{path}: unknown key {unknown[0]}; a fleet is made of [[host]] and [[pool]] entries"
        )
    for kind, entries in given.items():
        if not isinstance(entries, list):
            raise FleetError(f"{path}: {kind} is not written as [[{kind}]] entries")
    found: dict[str, list[Any]] = given
    return found


def _name_entry(entry: Any) -> str:
    name = entry.get("name") or entry.get("prefix") if isinstance(entry, dict) else None
    return f" ({name})" if isinstance(name, str) else ""


def _make_hosts(given: Any, where: str) -> Iterator[SimHost]:
    try:
        entry = msgspec.convert(_expand(given), _HostEntry)
    except msgspec.ValidationError as error:
        raise FleetError(f"{where}: {_describe_error(error)}") from error
    fields = msgspec.structs.asdict(entry)
    name, count, prefix = (fields.pop(key) for key in ("name", "count", "prefix"))
    if name is not None and count is None and prefix is None:
        yield SimHost(name=name, **fields)
    elif name is None and count is not None and prefix is not None:
        for number in range(1, count + 1):
            yield SimHost(name=numbered(prefix, number), **fields)
    else:
        raise FleetError(f"{where}: either name, or count and prefix, are needed")


def _expand(given: Any) -> Any:
    """An entry with the inventories that are a mere number written out."""
    if not isinstance(given, Mapping):
        return given
    entry = dict(given)
    inventories, children = entry.get("inventories"), entry.get("children")
    if isinstance(inventories, Mapping):
        entry["inventories"] = {
            name: {"total": one} if isinstance(one, int) else one for name, one in inventories.items()
        }
    if isinstance(children, list):
        entry["children"] = [_expand(child) for child in children]
    return entry


def _describe_error(error: msgspec.ValidationError) -> str:
    return str(error).replace(" - at `$.", ", at `").replace("Object contains unknown field", "unknown key")


def _check_tree(host: SimHost, where: str) -> Iterator[str]:
    """The names of a host's providers; FleetError where one cannot be."""
    tree = list(providers(host))
    if len(tree) > PROVIDERS_MAX:
        raise FleetError(f"{where}: {len(tree)} providers are more than {PROVIDERS_MAX}")
    for provider in tree:
        if len(provider.name) > _NAME_LENGTH_MAX:
            raise FleetError(f"{where}: the name {provider.name} has more than {_NAME_LENGTH_MAX} letters")
        yield provider.name
    _check_words(host, where)
    wrong = explain_wrong_units(tree)
    if wrong is not None:
        raise FleetError(f"{where}: {wrong}")


def _check_words(given: SimHost | SimProvider | SimPool, where: str) -> None:
    for name, inventory in given.inventories.items():
        if name not in STANDARD_CLASSES and not is_custom_name(name):
            raise FleetError(f"{where}: {name} is no resource class: it is not standard, and not CUSTOM_...")
        if inventory.reserved > inventory.total:
            raise FleetError(f"{where}: {name}: {inventory.reserved} cannot be reserved of {inventory.total}")
    for name in given.traits:
        if name not in STANDARD_TRAITS and not is_custom_name(name):
            raise FleetError(f"{where}: {name} is no trait: it is not standard, and not CUSTOM_...")
    for child in given.children if not isinstance(given, SimPool) else ():
        _check_words(child, f"{where}: {child.name}")
