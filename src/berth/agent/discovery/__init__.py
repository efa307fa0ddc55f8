"""The generic device manager: what a machine has, read from its sysfs and procfs, as a tree of providers.

One file per kind of thing, each a function from a root folder to values; ``tree`` puts them together. No
root is needed, no command is run, and no machine, however odd or hostile its folders, makes it raise, hang or
grow: what cannot be used is left out by name (``sysroot``).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from berth.agent.discovery.cells import NumaCell, read_cells
from berth.agent.discovery.cpus import Cpus, read_cpus
from berth.agent.discovery.disks import HostDisk, read_disks, sum_disks
from berth.agent.discovery.memory import HostMemory, read_memory
from berth.agent.discovery.nics import Interfaces, read_interfaces
from berth.agent.discovery.pci import PciDevice, read_pci_devices
from berth.agent.discovery.provider_config import (
    ProviderConfigError,
    add_to_providers,
    read_provider_config,
)
from berth.agent.discovery.settings import DiscoverySettings, is_host_name
from berth.agent.discovery.sysroot import Budget, BudgetSpent, LeftOut, Sysroot
from berth.agent.discovery.tree import Device, DiscoveryError, MachineParts, TreeBuilder
from berth.cell.protocol import ReportedProvider

__all__ = [
    "UNNAMED",
    "Budget",
    "Device",
    "DiscoveredHost",
    "Discovery",
    "DiscoveryError",
    "DiscoverySettings",
    "LeftOut",
    "ProviderConfigError",
    "discover",
]

UNNAMED: Final = "host"
"""The name of a host whose folders do not tell it."""

T = TypeVar("T")


class Discovery:
    """Looks at one machine, as often as asked. What operators add (``provider_config``) is read once.
    DiscoveryError or ProviderConfigError if there is nothing to look at, or that cannot be used."""

    def __init__(self, settings: DiscoverySettings, data: Path | None = None) -> None:
        self._settings = settings
        self._data = data
        if not Path(settings.sysroot).is_dir():
            raise DiscoveryError(f"sysroot: {settings.sysroot} is not a folder")
        folder = settings.provider_config
        self._additions = () if folder is None else read_provider_config(Path(folder))
        self._has_looked = False

    def look(self, budget: Budget | None = None) -> "DiscoveredHost":
        """The host as it is now. Every provider that an operator names must be there the first time that all
        is read."""
        host = discover(Path(self._settings.sysroot), self._settings, data=self._data, budget=budget)
        skip_unknown = self._has_looked or not host.is_complete
        providers = add_to_providers(host.providers, self._additions, skip_unknown=skip_unknown)
        self._has_looked = self._has_looked or host.is_complete
        return msgspec.structs.replace(host, providers=providers)


class DiscoveredHost(msgspec.Struct, frozen=True, kw_only=True):
    """``providers`` begins with the host itself; parents come before their children. ``devices``: what each
    of them stands for, by its name."""

    providers: tuple[ReportedProvider, ...]
    devices: dict[str, tuple[Device, ...]]
    left_out: tuple[LeftOut, ...]
    cut_short: str | None
    """The limit of the reading that was reached, and where: something may look as if it was gone."""

    @property
    def name(self) -> str:
        return self.providers[0].name

    @property
    def is_complete(self) -> bool:
        """Whether all was read."""
        return self.cut_short is None


def discover(
    root: Path,
    settings: DiscoverySettings,
    *,
    data: Path | None = None,
    budget: Budget | None = None,
) -> DiscoveredHost:
    """The host whose ``sys`` and ``proc`` are in a folder. ``data``: the agent's folder, whose file system
    has the servers' disks, if it is this machine. DiscoveryError if the settings do not fit the machine."""
    sysroot = Sysroot(root, budget)
    name = settings.host_name or _read(lambda: _read_host_name(sysroot), UNNAMED)
    cpus = _read(lambda: read_cpus(sysroot), Cpus(None, (), None, frozenset()))
    cells: tuple[NumaCell, ...] | None = _read(lambda: read_cells(sysroot, cpus.online), None)
    memory = HostMemory() if cells != () else _read(lambda: read_memory(sysroot), HostMemory())
    pci: dict[str, PciDevice] = _read(lambda: read_pci_devices(sysroot), {})
    disks: list[HostDisk] = _read(lambda: read_disks(sysroot), [])
    found = MachineParts(
        host=name,
        cpus=cpus,
        cells=cells,
        memory=memory,
        pci=pci,
        interfaces=_read(lambda: read_interfaces(sysroot, frozenset(pci)), Interfaces({}, frozenset(pci))),
        disks=disks,
        disk_gb=_find_disk_gb(sysroot, settings, data, disks),
    )
    builder = TreeBuilder(found, settings, sysroot)
    providers = builder.build()
    return DiscoveredHost(
        providers=providers,
        devices={name: tuple(devices) for name, devices in builder.devices.items()},
        left_out=sysroot.left_out,
        cut_short=sysroot.cut_short,
    )


def _read(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except BudgetSpent:
        return otherwise


def _read_host_name(sysroot: Sysroot) -> str:
    folder = sysroot.attempt(lambda: sysroot.folder("proc/sys/kernel"))
    name = None if folder is None else sysroot.attempt(lambda: folder.word("hostname"))
    return name if name is not None and is_host_name(name) else UNNAMED


def _find_disk_gb(
    sysroot: Sysroot, settings: DiscoverySettings, data: Path | None, disks: list[HostDisk]
) -> int | None:
    if settings.disk_gb is not None:
        return settings.disk_gb
    if data is None or not sysroot.is_live:
        return sum_disks(disks)
    while not data.exists():
        # The agent has yet to make it.
        data = data.parent
    try:
        about = os.statvfs(data)
    except OSError as error:
        sysroot.leave_out("disk_gb", f"{data}: the size of its file system is not known: {error.strerror}")
        return None
    return (about.f_blocks * about.f_frsize) >> 30
