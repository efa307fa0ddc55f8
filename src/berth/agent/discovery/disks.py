"""Disks: what there is, for people to see. How much of them servers may use is said by a setting, or by the
file system of the agent's folder."""

from collections.abc import Iterator
from typing import Final

import msgspec

from berth.agent.discovery.sysroot import Sysroot, Unusable, is_word

_SECTOR_BYTES: Final = 512
_SECTORS_MAX: Final = 2**54


class HostDisk(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="disk"):
    """``is_rotational``: None if the kernel does not say."""

    name: str
    size_gb: int
    is_rotational: bool | None


def read_disks(sysroot: Sysroot) -> list[HostDisk]:
    return sysroot.collect(_read_disks(sysroot))


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
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)
            continue
        if sectors and is_word(name):
            yield HostDisk(
                name=name,
                size_gb=(sectors * _SECTOR_BYTES) >> 30,
                is_rotational=None if rotational is None else rotational == 1,
            )
