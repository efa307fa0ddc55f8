"""Disks: what there is. How much of it servers may use is said by a setting, or by the file system of the
agent's folder; where there is neither, it is the disks that stay in the machine, all together."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from berth.agent.discovery.sysroot import SysFolder, Sysroot, Unusable, is_word

_SECTOR_BYTES: Final = 512
_SECTORS_MAX: Final = 2**54
_WWID_LENGTH_MAX: Final = 1_000


class HostDisk(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="disk", omit_defaults=True):
    """``is_rotational``: None if the kernel does not say. ``wwid``: the same for all paths to a disk."""

    name: str
    size_gb: int
    is_rotational: bool | None
    is_removable: bool = False
    wwid: str | None = None


def read_disks(sysroot: Sysroot) -> list[HostDisk]:
    return sysroot.collect(_read_disks(sysroot))


def sum_disks(disks: Iterable[HostDisk]) -> int:
    """GiB of the disks that stay in the machine. A disk with several paths is there once."""
    return sum({disk.wwid or disk.name: disk.size_gb for disk in disks if not disk.is_removable}.values())


def _read_disks(sysroot: Sysroot) -> Iterator[HostDisk]:
    for folder, name in sysroot.entries("sys/block"):
        try:
            disk = folder.folder(name)
            # What has no device is no disk: loops, RAM disks, mappings and arrays of other disks.
            if disk is None or "device" not in disk.names() or disk.number("hidden", 0, 1) == 1:
                continue
            sectors = disk.number("size", 0, _SECTORS_MAX)
            queue = disk.folder("queue")
            rotational = None if queue is None else queue.number("rotational", 0, 1)
            removable = disk.number("removable", 0, 1)
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)
            continue
        if sectors and is_word(name):
            yield HostDisk(
                name=name,
                size_gb=(sectors * _SECTOR_BYTES) >> 30,
                is_rotational=None if rotational is None else rotational == 1,
                is_removable=removable == 1,
                wwid=sysroot.attempt(partial(_read_wwid, disk)),
            )


def _read_wwid(disk: SysFolder) -> str | None:
    """The name of a disk in the world: of NVMe its own file, of others one of its device."""
    for name in ("wwid", "device/wwid"):
        text = disk.read(name, _WWID_LENGTH_MAX)
        if text is not None and text.strip():
            return " ".join(text.split())
    return None
