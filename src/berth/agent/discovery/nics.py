"""Network interfaces of PCI devices: name, speed, and whether the host uses them.

An interface is found in the folder of its device, and by its own folder in ``sys/class/net``, which leads to
the device; old kernels have the second alone. The speed of an interface that is down is not known: the kernel
says -1, or refuses to say.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from berth.agent.discovery.pci import ADDRESS
from berth.agent.discovery.sysroot import SysFolder, Sysroot, Unusable

_UNKNOWN_SPEEDS: Final = (-1, 0, 2**16 - 1, 2**32 - 1)
"""Drivers differ in how they say that they do not know."""
_NO_INTERFACE: Final = "bonding_masters"
_IS_UP: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9_.@:-]{1,64}")


class NetworkInterface(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="interface"):
    """``speed_mbps``: None if it is not known. ``is_up``: the host has switched it on; None if not known."""

    name: str
    speed_mbps: int | None = None
    is_up: bool | None = None
    queues: int = 0


class Interfaces(NamedTuple):
    """The interfaces of PCI devices, by address. ``unreadable``: devices that have others, or may have."""

    found: dict[str, tuple[NetworkInterface, ...]]
    unreadable: frozenset[str]


def read_interfaces(sysroot: Sysroot, devices: frozenset[str]) -> Interfaces:
    read = sysroot.collect(_read_class(sysroot))
    read += sysroot.collect(_read_of_devices(sysroot, devices - {address for address, _ in read}))
    found: dict[str, tuple[NetworkInterface, ...]] = {}
    for address, interface in read:
        if interface is not None:
            found[address] = (*found.get(address, ()), interface)
    unreadable = frozenset(address for address, interface in read if interface is None)
    return Interfaces(found, devices if sysroot.is_spent else unreadable)


_Found = Iterator[tuple[str, NetworkInterface | None]]
"""The address of a device, and an interface of it; None if it cannot be read."""


def _read_class(sysroot: Sysroot) -> _Found:
    for folder, name in sysroot.entries("sys/class/net"):
        if name == _NO_INTERFACE:
            continue
        address = None
        try:
            interface = folder.folder(name)
            address = None if interface is None else _find_device(interface)
            if interface is not None and address is not None:
                yield address, _read_interface(sysroot, interface, name)
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)
            if address is not None:
                yield address, None


def _find_device(interface: SysFolder) -> str | None:
    """The PCI device of an interface, or the one that its device (virtio) is part of; None if it has none."""
    device = interface.folder("device")
    steps = reversed(() if device is None else device.real.split("/"))
    return next((step for step in steps if ADDRESS.fullmatch(step)), None)


def _read_of_devices(sysroot: Sysroot, devices: frozenset[str]) -> _Found:
    for address in sorted(devices):
        try:
            folder = sysroot.folder(f"sys/bus/pci/devices/{address}/net")
            if folder is None:
                continue
            names = folder.names()
            if not names:
                # The interfaces of a device are not shown outside of their network namespace.
                yield address, None
            for name in names:
                interface = sysroot.folder(f"sys/class/net/{name}") or folder.folder(name)
                yield address, None if interface is None else _read_interface(sysroot, interface, name)
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)
            yield address, None


def _read_interface(sysroot: Sysroot, folder: SysFolder, name: str) -> NetworkInterface:
    if _NAME.fullmatch(name) is None:
        raise Unusable(folder.path, "this is not the name of an interface")
    flags = folder.hex("flags", 0xFFFFFFFF)
    queues = sysroot.attempt(lambda: folder.folder("queues"))
    names = None if queues is None else sysroot.attempt(queues.names)
    return NetworkInterface(
        name=name,
        speed_mbps=_read_speed(sysroot, folder),
        is_up=None if flags is None else bool(flags & _IS_UP),
        queues=sum(one.startswith("rx-") for one in names or ()),
    )


def _read_speed(sysroot: Sysroot, folder: SysFolder) -> int | None:
    speed = sysroot.attempt(lambda: folder.number("speed", -1, 2**32 - 1))
    return None if speed in _UNKNOWN_SPEEDS else speed
