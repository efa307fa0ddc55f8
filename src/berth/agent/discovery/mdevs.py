"""Mediated devices: the types that a device can be cut into, how many of each there are and could be made.

Types of one device mostly exclude each other: as soon as there is one of a type, the kernel says that none of
the others can be made. What it says now is what is reported.
"""

import re
from typing import Final

import msgspec

from berth.agent.discovery.sysroot import SysFolder, Sysroot, Unusable, is_word

_INSTANCES_MAX: Final = 4096
_TYPES: Final = "mdev_supported_types"
_TYPES_MAX: Final = 100
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HEADS: Final = re.compile(r"\bnum_heads=([0-9]{1,3})\b")
_RESOLUTION: Final = re.compile(r"\bmax_resolution=([0-9]{1,5})x([0-9]{1,5})\b")
_INSTANCES: Final = re.compile(r"\bmax_instances?=([0-9]{1,4})\b")


class MdevType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``instances`` are the uuids of those that exist, ``available`` is how many more can be made.
    ``instances_max``: of the whole device, where it says so."""

    type: str
    available: int
    instances: tuple[str, ...] = ()
    instances_max: int | None = None
    display_heads: int | None = None
    resolution: str | None = None
    """The greatest, as WIDTHxHEIGHT."""


def read_mdev_types(sysroot: Sysroot, device: SysFolder, address: str) -> tuple[MdevType, ...]:
    """The types of the device with this folder and address: all of them, or it is not known what it is."""
    folder = device.folder(_TYPES) or sysroot.folder(f"sys/class/mdev_bus/{address}/{_TYPES}")
    if folder is None:
        return ()
    names = folder.names()
    if len(names) > _TYPES_MAX:
        raise Unusable(folder.path, f"there are more than {_TYPES_MAX} types")
    return tuple(_read_type(folder, name) for name in names)


def _read_type(folder: SysFolder, name: str) -> MdevType:
    one = folder.folder(name) if is_word(name) else None
    if one is None:
        raise Unusable(folder.join(name), "this is not the folder of a type")
    available = one.number("available_instances", 0, _INSTANCES_MAX)
    if available is None:
        raise Unusable(one.join("available_instances"), "it is missing: how many can be made is not known")
    devices = one.folder("devices")
    instances = () if devices is None else tuple(filter(_UUID.fullmatch, devices.names()))
    about = (one.read("description") or "") if "description" in one.names() else ""
    heads, resolution, most = _HEADS.search(about), _RESOLUTION.search(about), _INSTANCES.search(about)
    return MdevType(
        type=name,
        available=available,
        instances=instances,
        instances_max=None if most is None else int(most[1]),
        display_heads=None if heads is None else int(heads[1]),
        resolution=None if resolution is None else f"{resolution[1]}x{resolution[2]}",
    )
