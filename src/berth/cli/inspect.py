"""``berth inspect``: what discovery finds on a machine, as a picture of the tree or as JSON.

    {"providers": [{"name", "parent" (a name or null), "inventories": {CLASS: {"total", "reserved", ...}},
                    "traits": [...], "devices": [...]}],
     "left_out": [{"path", "reason"}]}

``devices`` are what a provider stands for: cores, PCI devices, interfaces, disks, and the names of its units.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from berth.agent.discovery import (
    Device,
    DiscoveredHost,
    Discovery,
    DiscoveryError,
    ProviderConfigError,
)
from berth.agent.discovery.cpus import CpuCore
from berth.agent.discovery.disks import HostDisk
from berth.agent.discovery.nics import NetworkInterface
from berth.agent.discovery.sysroot import format_ids
from berth.cell.protocol import ReportedInventory, ReportedProvider
from berth.cli.command import CommandError, describe
from berth.cli.discovery import add_discovery, read_discovery

_CPU_TRAITS: Final = ("HW_CPU_", "HW_ARCH_")
_ENDLESS: Final = 100_000
_FIELDS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "It reads sys and proc of this machine, or of a copy of them (--sysroot), as an agent with\n"
        "--discover does. It needs no root, and lists what it left out and why.",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--data", metavar="DIR", type=Path, help="the agent's folder: DISK_GB is the size of its file system"
    )
    add_discovery(command)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree; the exit status."""
    try:
        host = Discovery(read_discovery(arguments), arguments.data).look()
    except (DiscoveryError, ProviderConfigError) as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(format_host(host))).decode() + "\n")
    else:
        _print_picture(host)
    return 0


# -- JSON ----------------------------------------------------------------------------------------


def format_host(host: DiscoveredHost) -> dict[str, Any]:
    names = {provider.id: provider.name for provider in host.providers}
    return {
        "providers": [
            {
                "name": provider.name,
                "parent": None if provider.parent is None else names[provider.parent],
                "inventories": {kind: _format_inventory(one) for kind, one in provider.inventories.items()},
                "traits": list(provider.traits),
                "devices": [
                    *(msgspec.to_builtins(device) for device in host.devices.get(provider.name, ())),
                    *_format_units(provider),
                ],
            }
            for provider in host.providers
        ],
        "left_out": [{"path": one.path, "reason": one.reason} for one in host.left_out],
    }


def _format_inventory(inventory: ReportedInventory) -> dict[str, Any]:
    full = inventory.in_full()
    return {field: getattr(full, field) for field in _FIELDS}


def _format_units(provider: ReportedProvider) -> list[dict[str, Any]]:
    return [{"kind": "units", "class": kind, "units": list(names)} for kind, names in provider.units.items()]


# -- the picture ---------------------------------------------------------------------------------


def _print_picture(host: DiscoveredHost) -> None:
    # Lines are broken for people only, and not for grep.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _ENDLESS)
    trees: dict[str, Tree] = {}
    for provider in host.providers:
        label = _label_provider(provider)
        parent = trees.get(provider.parent or "")
        tree = Tree(label) if parent is None else parent.add(label)
        trees[provider.id] = tree
        for line in _describe_devices(host.devices.get(provider.name, ())):
            tree.add(Text(line, style="dim"))
    console.print(trees[host.providers[0].id])
    if host.left_out:
        console.print(Text("left out:", style="yellow"))
        for one in host.left_out:
            console.print(Text(f"  {one.path}: {one.reason}"))


def _label_provider(provider: ReportedProvider) -> Text:
    label = Text(provider.name, style="bold")
    for kind, inventory in provider.inventories.items():
        reserved = f" ({inventory.reserved} reserved)" if inventory.reserved else ""
        label.append(f"  {kind} {inventory.total}{reserved}", style="not bold green")
    if provider.units.get("PCPU"):
        label.append(f"  PCPU: {format_ids(frozenset(map(int, provider.units['PCPU'])))}", style="not bold")
    shown = [name for name in provider.traits if not name.startswith(_CPU_TRAITS)]
    more = len(provider.traits) - len(shown)
    words = [*shown, f"{more} traits of the cpus"] if more else shown
    if words:
        label.append(f"  [{', '.join(words)}]", style="not bold cyan")
    return label


def _describe_devices(devices: tuple[Device, ...]) -> list[str]:
    cores = [device for device in devices if isinstance(device, CpuCore)]
    lines = []
    for socket in sorted(
        {core.socket for core in cores}, key=lambda number: -1 if number is None else number
    ):
        cpus = format_ids(frozenset(cpu for core in cores if core.socket == socket for cpu in core.cpus))
        count = sum(core.socket == socket for core in cores)
        name = "unknown socket" if socket is None else f"socket {socket}"
        lines.append(f"{name}: {count} cores, cpus {cpus}")
    return lines + [_describe_device(device) for device in devices if not isinstance(device, CpuCore)]


def _describe_device(device: Device) -> str:
    match device:
        case CpuCore():
            return f"cpus {format_ids(frozenset(device.cpus))}"
        case HostDisk():
            return f"disk {device.name} of {device.size_gb} GiB"
        case NetworkInterface():
            speed = "unknown speed" if device.speed_mbps is None else f"{device.speed_mbps} Mbit/s"
            return f"interface {device.name}, {'up' if device.is_up else 'down'}, {speed}"
    words = [f"pci {device.address} {device.id} class {device.class_code}"]
    if device.driver is not None:
        words.append(f"driver {device.driver}")
    if device.pf is not None:
        words.append(f"VF of {device.pf}")
    if device.vfs_max:
        words.append(f"{len(device.vfs)} of {device.vfs_max} VFs")
    if device.mdev_types:
        words.append(f"types {', '.join(one.type for one in device.mdev_types)}")
    return ", ".join(words)
