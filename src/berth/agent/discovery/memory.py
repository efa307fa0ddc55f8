"""Memory: how much there is, and how much of it is set aside as huge pages, of the machine and of a cell.

``free_kb`` is what ordinary memory is made of: the total without the pages of the pools. If a pool cannot be
read, it is not known either. Surplus pages come and go with their users, and are ordinary memory here.
"""

import re
from typing import Final

import msgspec

from berth.agent.discovery.sysroot import SysFolder, Sysroot, Unusable, read_number

_KB_MAX: Final = 2**50
_PAGES_MAX: Final = 2**40
_SIZES_MAX: Final = 16
_POOL: Final = re.compile(r"hugepages-([0-9]{1,12})kB")
_LINE: Final = re.compile(r"^(?:Node[ \t]+[0-9]+[ \t]+)?([A-Za-z_]+):[ \t]*(\S{1,40})", re.MULTILINE)


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """``total_kb`` and ``pages`` (by their size in kB): None if they are not known."""

    total_kb: int | None = None
    pages: dict[int, int] | None = None

    @property
    def free_kb(self) -> int | None:
        if self.total_kb is None or self.pages is None:
            return None
        return self.total_kb - sum(size_kb * count for size_kb, count in self.pages.items())


def read_memory(sysroot: Sysroot) -> HostMemory:
    """The memory of the whole machine."""
    about = sysroot.attempt(lambda: sysroot.folder("proc"))
    pools = sysroot.attempt(lambda: sysroot.folder("sys/kernel/mm"))
    return _read(sysroot, about, pools, "proc/meminfo")


def read_cell_memory(sysroot: Sysroot, node: SysFolder) -> HostMemory:
    """The memory of one cell, from its folder."""
    return _read(sysroot, node, node, node.join("meminfo"))


def _read(sysroot: Sysroot, about: SysFolder | None, pools: SysFolder | None, path: str) -> HostMemory:
    """``about`` has the meminfo, ``pools`` the folder of the pools of huge pages."""
    text = None if about is None else sysroot.attempt(lambda: about.read("meminfo"))
    fields = dict(_LINE.findall(text or ""))
    total_kb = sysroot.attempt(lambda: _read_field(fields, "MemTotal", path))
    if "MemTotal" not in fields:
        sysroot.leave_out(path, "it says no MemTotal: the amount of memory is not known")
    pages = sysroot.attempt(lambda: _read_pages(sysroot, pools, fields, path))
    memory = HostMemory(total_kb=total_kb, pages=pages)
    if memory.free_kb is not None and memory.free_kb < 0:
        sysroot.leave_out(path, f"the huge pages are more than the {total_kb} kB of memory there is")
        return HostMemory()
    return memory


def _read_pages(
    sysroot: Sysroot, folder: SysFolder | None, fields: dict[str, str], path: str
) -> dict[int, int] | None:
    pools = None if folder is None else folder.folder("hugepages")
    if pools is not None:
        return _read_pools(pools)
    if "HugePages_Total" in fields:
        return _read_old_pool(sysroot, fields, path)
    elsewhere = None if path == "proc/meminfo" else sysroot.folder("sys/kernel/mm/hugepages")
    if elsewhere is not None and _read_pools(elsewhere):
        raise Unusable(path, "there are huge pages, and it is not known how many of them are in this cell")
    return {}


def _read_field(fields: dict[str, str], name: str, path: str) -> int | None:
    return None if name not in fields else read_number(fields[name], 0, _KB_MAX, path)


def _read_pools(pools: SysFolder) -> dict[int, int]:
    """Pages by size, of pools that have any."""
    found = {}
    for name in pools.names():
        match = _POOL.fullmatch(name)
        if match is None:
            continue
        pool = pools.folder(name)
        count = None if pool is None else pool.number("nr_hugepages", 0, _PAGES_MAX)
        if pool is None or count is None:
            raise Unusable(pools.join(name), "it does not say how many pages there are")
        surplus = pool.number("surplus_hugepages", 0, _PAGES_MAX) or 0
        if count > surplus and int(match[1]) > 0:
            found[int(match[1])] = count - surplus
    if len(found) > _SIZES_MAX:
        raise Unusable(pools.path, f"there are more than {_SIZES_MAX} sizes of pages")
    return found


def _read_old_pool(sysroot: Sysroot, fields: dict[str, str], path: str) -> dict[int, int]:
    """Pages of the one size that kernels before 2.6.27 have. The meminfo of a cell does not name the size."""
    count = _read_field(fields, "HugePages_Total", path)
    if not count:
        return {}
    size_kb = _read_field(fields, "Hugepagesize", path) or _read_default_size(sysroot)
    if not size_kb:
        raise Unusable(path, f"there are {count} huge pages of unknown size")
    surplus = _read_field(fields, "HugePages_Surp", path) or 0
    return {size_kb: count - surplus} if count > surplus else {}


def _read_default_size(sysroot: Sysroot) -> int | None:
    proc = sysroot.folder("proc")
    text = None if proc is None else proc.read("meminfo")
    return None if text is None else _read_field(dict(_LINE.findall(text)), "Hugepagesize", "proc/meminfo")


def name_pages(size_kb: int) -> str:
    """The resource class of pages of a size: CUSTOM_MEMORY_PAGES_2M."""
    for unit, kb in (("G", 1 << 20), ("M", 1 << 10)):
        if size_kb % kb == 0:
            return f"CUSTOM_MEMORY_PAGES_{size_kb // kb}{unit}"
    return f"CUSTOM_MEMORY_PAGES_{size_kb}K"
