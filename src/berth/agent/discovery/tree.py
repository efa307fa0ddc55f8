"""The tree of a host: what was found, as providers for Placement (docs/decisions/022).

    HOST                       DISK_GB; without NUMA information also what a cell has
      HOST-numaN               PCPU, VCPU, MEMORY_MB, CUSTOM_MEMORY_PAGES_*
        HOST-pci-ADDRESS       a NIC:  SRIOV_NET_VF, or with bandwidth, or CUSTOM_PCI_vvvv_pppp if whole
                               a GPU:  PGPU, or VGPU of one type, or CUSTOM_PCI_* of its VFs
                               others that are allowed: CUSTOM_PCI_*, of the device or of its VFs

A device is below its cell, or below the host if its cell is not known. What is handed out piece by piece has
its units named. A device that has nothing to offer is no provider: it is listed with its parent.
"""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

import msgspec

from berth.agent.discovery.cells import NumaCell
from berth.agent.discovery.cpus import CpuCore, Cpus
from berth.agent.discovery.disks import HostDisk
from berth.agent.discovery.features import list_cpu_traits, list_mdev_traits, list_nic_traits, normalize
from berth.agent.discovery.mdevs import MdevType
from berth.agent.discovery.memory import HostMemory, name_pages
from berth.agent.discovery.nics import Interfaces, NetworkInterface
from berth.agent.discovery.pci import (
    ACCELERATOR,
    BRIDGE,
    DISPLAY,
    FOLDER,
    NETWORK,
    PciDevice,
)
from berth.agent.discovery.settings import DiscoverySettings, matches, read_cpus_set, read_pairs
from berth.agent.discovery.sysroot import Sysroot, format_ids
from berth.agent.fleet import provider_id
from berth.cell.protocol import (
    INVENTORIES_MAX,
    PROVIDERS_MAX,
    TRAITS_MAX,
    UNITS_MAX,
    ReportedInventory,
    ReportedProvider,
)
from berth.model.placement import AMOUNT_MAX, DEDICATED, HYPERTHREADING, NUMA_ROOT, SOCKET_TRAITS

MEMORY_ONLY: Final = "CUSTOM_NUMA_MEMORY_ONLY"
"""A cell without cpus: its memory is of another tier."""
COMPUTE_NODE: Final = "COMPUTE_NODE"

_GPU_VENDORS: Final = ("1002", "10de")
"""Processing accelerators (class 12) of these vendors are GPUs."""
_CONSOLE_VENDORS: Final = ("1013", "102b", "1234", "15ad", "1a03", "1af4", "1b36", "80ee")
"""Display adapters of these are consoles: of baseboard controllers, and of virtual machines."""
_IDLE_DRIVERS: Final = (None, "pci-stub", "xen-pciback")
"""Of a device that nothing on the host uses: none, or one that only keeps others away."""
_CELL_TRAITS_MAX: Final = 2_000
"""Traits of cpus that are repeated at the cells; with more, the host alone has them."""

Device = CpuCore | PciDevice | HostDisk | NetworkInterface


class DiscoveryError(Exception):
    """The settings do not fit this machine. The message is for the operator, and complete."""


class MachineParts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was read of a machine."""

    host: str
    cpus: Cpus
    cells: tuple[NumaCell, ...] | None
    """None: they cannot be read, and then it is not known where cpus and memory are."""
    memory: HostMemory
    pci: dict[str, PciDevice]
    interfaces: Interfaces
    disks: list[HostDisk]
    disk_gb: int | None


class Offer(msgspec.Struct, kw_only=True):
    """What a provider is going to have."""

    amounts: dict[str, int] = {}
    reserved: dict[str, int] = {}
    units: dict[str, Iterable[str]] = {}
    """As many as the amount says; they are made when the provider is added."""
    siblings: tuple[tuple[str, ...], ...] = ()
    traits: tuple[str, ...] = ()

    def count(self, kind: str, amount: int | None) -> None:
        """Offer an amount of a class, if there is any."""
        if amount and 0 < amount <= AMOUNT_MAX:
            self.amounts[kind] = amount

    def name_units(self, kind: str, units: Iterable[str]) -> None:
        """Offer units of a class, if there are any."""
        names = tuple(units)
        if names:
            self.units[kind] = names
            self.amounts[kind] = len(names)


class TreeBuilder:
    """``build`` makes the providers; ``devices`` are then those of each, by its name."""

    def __init__(self, found: MachineParts, settings: DiscoverySettings, sysroot: Sysroot) -> None:
        self._found = found
        self._cells = found.cells or ()
        self._settings = settings
        self._sysroot = sysroot
        self._dedicated = read_cpus_set(settings.dedicated_cpus)
        self._own = read_cpus_set(settings.reserved_cpus)
        self._physnets = read_pairs(settings.physnets)
        self._chosen_types = read_pairs(settings.mdev_types)
        self._cores = {cpu: core for core in found.cpus.cores for cpu in core.cpus}
        # The kernel's numbers may be large: the first socket is 0, and so on.
        sockets = sorted({core.socket for core in found.cpus.cores if core.socket is not None})
        self._socket_traits: dict[int | None, str] = dict(zip(sockets, SOCKET_TRAITS, strict=False))
        self._providers: list[ReportedProvider] = []
        self._counts = dict.fromkeys(("inventories", "traits", "units"), 0)
        self.devices: dict[str, list[Device]] = {}

    def build(self) -> tuple[ReportedProvider, ...]:
        found, host = self._found, self._found.host
        self._check_settings()
        cpu_traits = list_cpu_traits(found.cpus.architecture, found.cpus.features)
        root = Offer()
        if found.cells == ():
            root = self._offer_cpus_and_memory(found.cpus.online, found.memory, "")
        threads = (HYPERTHREADING,) if any(len(core.cpus) > 1 for core in found.cpus.cores) else ()
        root.traits = (COMPUTE_NODE, *threads, *cpu_traits)
        root.count("DISK_GB", found.disk_gb)
        self._add(host, None, root)
        self.devices[host] += found.disks
        if not self._cells:
            self.devices[host] += self._list_cores(found.cpus.online or frozenset())
        if len(cpu_traits) * len(self._cells) > _CELL_TRAITS_MAX:
            cpu_traits = ()
        for cell in self._cells:
            self._add_cell(cell, cpu_traits)
        for device in found.pci.values():
            if device.pf is None:
                self._add_device(device)
            elif device.pf not in found.pci or device.address not in found.pci[device.pf].vfs:
                # A VF without a PF that it belongs to: it is listed, and not given.
                self.devices[self._find_parent(device)].append(device)
        return tuple(self._providers)

    def _check_settings(self) -> None:
        numbers = {str(cell.number) for cell in self._cells}
        for number in read_pairs(self._settings.reserved_memory_mb):
            # A cell that was not read may be there.
            if number not in (numbers or {""}) and not self._sysroot.is_spent:
                there = f"the cells {', '.join(sorted(numbers, key=int))}" if numbers else "no NUMA cells"
                said = f"the cell {number}" if number else "no cell"
                raise DiscoveryError(f"reserved_memory_mb names {said}, and the host has {there}")
        online = self._found.cpus.online or frozenset()
        for name, cpus in (("dedicated_cpus", self._dedicated), ("reserved_cpus", self._own)):
            if cpus - online:
                self._sysroot.leave_out(name, f"cpus {format_ids(cpus - online)} are not online")
        by_device = self._found.interfaces.found
        nics = {*by_device, *(nic.name for nics in by_device.values() for nic in nics)}
        for nic in self._physnets:
            if nic not in nics:
                self._sysroot.leave_out("physnets", f"{nic} is not a NIC of this host")
        for address, type in self._chosen_types.items():
            device = self._found.pci.get(address)
            if device is None or type not in {one.type for one in self._list_types(device)}:
                self._sysroot.leave_out("mdev_types", f"{address} is not a device with the type {type}")

    # -- cpus and memory -------------------------------------------------------------------------

    def _add_cell(self, cell: NumaCell, cpu_traits: tuple[str, ...]) -> None:
        name = self._name_cell(cell.number)
        if not self._has_room(name):
            return
        offer = self._offer_cpus_and_memory(cell.cpus, cell.memory, str(cell.number))
        cores = self._list_cores(cell.cpus or frozenset())
        if cell.cpus:
            threads = (HYPERTHREADING,) if any(len(core.cpus) > 1 for core in cores) else ()
            offer.traits = (NUMA_ROOT, *threads, *self._find_socket(cores), *cpu_traits)
        else:
            is_known = cell.cpus is not None and cell.memory.total_kb
            offer.traits = (NUMA_ROOT, MEMORY_ONLY) if is_known else (NUMA_ROOT,)
        if self._add(name, self._found.host, offer):
            self.devices[name] += cores

    def _find_socket(self, cores: list[CpuCore]) -> tuple[str, ...]:
        """The trait of the socket that a cell is on, if all of its cores say the same."""
        first, *others = {core.socket for core in cores}
        return () if others or first not in self._socket_traits else (self._socket_traits[first],)

    def _name_cell(self, number: int) -> str:
        return f"{self._found.host}-numa{number}"

    def _offer_cpus_and_memory(self, cpus: frozenset[int] | None, memory: HostMemory, cell: str) -> Offer:
        offer = Offer()
        cpus = (cpus or frozenset()) - self._own
        dedicated = cpus & self._dedicated
        # Of any other the second thread of its core may be anybody's: it would be dedicated in name alone.
        known = dedicated & self._cores.keys()
        if dedicated - known:
            said = f"of cpus {format_ids(dedicated - known)} it is not known which are threads of one core"
            self._sysroot.leave_out("dedicated_cpus", f"{said}: they are not offered")
        offer.name_units(DEDICATED, map(str, sorted(known)))
        offer.siblings = tuple(
            tuple(map(str, core.cpus)) for core in self._list_cores(known) if len(core.cpus) > 1
        )
        offer.count("VCPU", len(cpus - dedicated))
        free_kb = memory.free_kb
        offer.count("MEMORY_MB", None if free_kb is None else free_kb >> 10)
        if "MEMORY_MB" in offer.amounts:
            reserved = int(read_pairs(self._settings.reserved_memory_mb).get(cell, 0))
            offer.reserved["MEMORY_MB"] = min(reserved, offer.amounts["MEMORY_MB"])
        for size_kb, count in sorted((memory.pages or {}).items()):
            offer.count(name_pages(size_kb), count)
        return offer

    def _list_cores(self, cpus: frozenset[int]) -> list[CpuCore]:
        """The cores of some cpus, with those of their threads that are among them."""
        threads: dict[int, list[int]] = {}
        for cpu in sorted(cpus):
            core = self._cores.get(cpu)
            threads.setdefault(cpu if core is None else core.cpus[0], []).append(cpu)
        alone = CpuCore(cpus=(), core=None, socket=None)
        return [
            msgspec.structs.replace(self._cores.get(first, alone), cpus=tuple(some))
            for first, some in threads.items()
        ]

    # -- devices ---------------------------------------------------------------------------------

    def _add_device(self, device: PciDevice) -> None:
        parent = self._find_parent(device)
        vfs = [self._found.pci[address] for address in device.vfs]
        interfaces = self._found.interfaces.found.get(device.address, ())
        name = f"{self._found.host}-pci-{device.address}"
        offer = self._offer_device(device, vfs, interfaces)
        owner = name if offer.amounts and self._add(name, parent, offer) else parent
        self.devices[owner] += [device, *interfaces, *vfs]

    def _find_parent(self, device: PciDevice) -> str:
        if device.node is None or not self._cells:
            return self._found.host
        name = self._name_cell(device.node)
        if name in self.devices:
            return name
        self._leave_out(device, f"the cell {device.node} is not there: the device is put below the host")
        return self._found.host

    def _offer_device(
        self, device: PciDevice, vfs: list[PciDevice], interfaces: tuple[NetworkInterface, ...]
    ) -> Offer:
        """What a device offers; no amounts if it is no provider."""
        settings = self._settings
        if matches(device, settings.devices_denied):
            self._leave_out(device, "devices_denied names it")
            return Offer()
        for vf in vfs:
            if matches(vf, settings.devices_denied):
                self._leave_out(vf, "devices_denied names it")
        vfs = [vf for vf in vfs if not matches(vf, settings.devices_denied)]
        is_allowed = matches(device, settings.devices_allowed)
        if device.kind_of_class == NETWORK:
            return self._offer_nic(device, vfs, interfaces, is_allowed)
        if _is_gpu(device):
            if not is_allowed and (device.is_boot_display or device.vendor in _CONSOLE_VENDORS):
                self._leave_out(device, "it is the console; devices_allowed can give it away")
                return Offer()
            return self._offer_gpu(device, vfs)
        if not is_allowed:
            vfs = [vf for vf in vfs if matches(vf, settings.devices_allowed)]
        if not is_allowed and not vfs:
            return Offer()
        if device.kind_of_class == BRIDGE:
            self._leave_out(device, "a bridge cannot be given to a server")
            return Offer()
        return _offer_whole_or_vfs(device, vfs)

    def _offer_nic(
        self,
        device: PciDevice,
        vfs: list[PciDevice],
        interfaces: tuple[NetworkInterface, ...],
        is_allowed: bool,
    ) -> Offer:
        offer = Offer()
        is_up = any(interface.is_up for interface in interfaces)
        is_known = device.address not in self._found.interfaces.unreadable and (
            all(interface.is_up is not None for interface in interfaces)
            if interfaces
            # With a driver that has no interfaces (vfio-pci) a program on the host may use it.
            else device.driver in _IDLE_DRIVERS
        )
        if device.vfs:
            offer.name_units("SRIOV_NET_VF", (vf.address for vf in vfs))
        elif device.vfs_claimed:
            pass
        elif is_allowed or (device.vfs_max and not is_up and is_known):
            offer.name_units(_name_class(device), (device.address,))
        elif device.vfs_max:
            names = ", ".join(interface.name for interface in interfaces)
            used = f"the host uses it ({names} is up)" if is_up else "the host may use it"
            self._leave_out(device, f"{used}; devices_allowed can give it away")
        speed_mbps = max((nic.speed_mbps for nic in interfaces if nic.speed_mbps is not None), default=None)
        # Whoever gets the NIC whole gets its bandwidth with it.
        if speed_mbps is not None and _name_class(device) not in offer.units:
            offer.count("NET_BW_EGR_KILOBIT_PER_SEC", speed_mbps * 1000)
            offer.count("NET_BW_IGR_KILOBIT_PER_SEC", speed_mbps * 1000)
        networks = {self._physnets.get(key) for key in (device.address, *(nic.name for nic in interfaces))}
        offer.traits = (
            *list_nic_traits(interfaces, sriov=device.vfs_max > 0 or bool(device.vfs), rdma=device.has_rdma),
            *sorted(normalize(f"PHYSNET_{network}") for network in networks if network is not None),
        )
        return offer

    def _offer_gpu(self, device: PciDevice, vfs: list[PciDevice]) -> Offer:
        types = self._list_types(device)
        if not types:
            return _offer_whole_or_vfs(device, vfs, "PGPU")
        chosen = self._chosen_types.get(device.address)
        if chosen is None:
            type = _choose_type(types)
            if len(types) > 1:
                names = ", ".join(one.type for one in types)
                said = f"of its types {names} only {type.type} is offered"
                self._leave_out(device, f"{said}; mdev_types can choose another")
        else:
            found = [one for one in types if one.type == chosen]
            if not found:
                return Offer()
            (type,) = found
        return _offer_mdevs(f"{self._found.host}-pci-{device.address}", type)

    def _list_types(self, device: PciDevice) -> list[MdevType]:
        """The types of mediated devices of a device and of its VFs together."""
        carriers = [device, *(self._found.pci[address] for address in device.vfs)]
        found: dict[str, MdevType] = {}
        for type in (type for carrier in carriers for type in carrier.mdev_types):
            before = found.get(type.type)
            found[type.type] = type if before is None else _join_types(before, type)
        return [found[name] for name in sorted(found)]

    # -- providers -------------------------------------------------------------------------------

    def _add(self, name: str, parent: str | None, offer: Offer) -> bool:
        """Add a provider; if the host would have too much then, leave it out."""
        if not self._has_room(name):
            return False
        added = {
            "inventories": len(offer.amounts),
            "traits": len(offer.traits),
            "units": sum(offer.amounts[kind] for kind in offer.units),
        }
        limits = {"inventories": INVENTORIES_MAX, "traits": TRAITS_MAX, "units": UNITS_MAX}
        for kind, limit in limits.items():
            if self._counts[kind] + added[kind] > limit:
                self._sysroot.leave_out(name, f"with this provider the host has more than {limit} {kind}")
                if parent is not None:
                    return False
                offer = Offer()
        for kind, count in added.items():
            self._counts[kind] += count
        self.devices[name] = []
        self._providers.append(
            ReportedProvider(
                id=provider_id(name),
                name=name,
                parent=None if parent is None else provider_id(parent),
                inventories={
                    kind: ReportedInventory(
                        total=amount, reserved=offer.reserved.get(kind, 0), max_unit=amount
                    )
                    for kind, amount in sorted(offer.amounts.items())
                },
                traits=tuple(sorted(set(offer.traits))),
                units={kind: tuple(names) for kind, names in offer.units.items()},
                siblings=offer.siblings,
            )
        )
        return True

    def _has_room(self, name: str) -> bool:
        """Whether the host may have one more provider; if not, that is said."""
        if len(self._providers) < PROVIDERS_MAX:
            return True
        self._sysroot.leave_out(name, f"the host has more than {PROVIDERS_MAX} providers")
        return False

    def _leave_out(self, device: PciDevice, reason: str) -> None:
        self._sysroot.leave_out(f"{FOLDER}/{device.address}", reason)


def _is_gpu(device: PciDevice) -> bool:
    if device.kind_of_class == ACCELERATOR:
        return device.vendor in _GPU_VENDORS
    return device.kind_of_class == DISPLAY


def _name_class(device: PciDevice) -> str:
    return f"CUSTOM_PCI_{device.vendor}_{device.product}".upper()


def _offer_whole_or_vfs(device: PciDevice, vfs: list[PciDevice], whole: str | None = None) -> Offer:
    """Its VFs that are given, or all of it (as the class ``whole``) if it has none."""
    offer = Offer()
    if not device.vfs and not device.vfs_claimed:
        offer.name_units(whole or _name_class(device), (device.address,))
    addresses: dict[str, list[str]] = {}
    for one in vfs:
        addresses.setdefault(_name_class(one), []).append(one.address)
    for kind, units in addresses.items():
        offer.name_units(kind, units)
    return offer


def _choose_type(types: list[MdevType]) -> MdevType:
    """The one that is in use, or else the first that can be made: as soon as one is made, no other can be."""
    return min(types, key=lambda type: (not type.instances, not type.available))


def _offer_mdevs(provider: str, type: MdevType) -> Offer:
    """Those that exist, and a uuid for each that can be made."""
    count = len(type.instances) + type.available
    made = (provider_id(f"{provider} {type.type} {number}") for number in range(count))
    free = islice((unit for unit in made if unit not in type.instances), type.available)
    offer = Offer(traits=list_mdev_traits(type))
    if count:
        offer.amounts["VGPU"] = count
        offer.units["VGPU"] = chain(type.instances, free)
    return offer


def _join_types(one: MdevType, other: MdevType) -> MdevType:
    """One type of several VFs. Each can be made on any of them, until the whole device has its most."""
    instances = (*one.instances, *other.instances)
    available = one.available + other.available
    if one.instances_max is not None:
        available = max(0, min(available, one.instances_max - len(instances)))
    return msgspec.structs.replace(one, instances=instances, available=available)
