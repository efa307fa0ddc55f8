"""NUMA cells: the cpus and the memory of each. A machine without any has no NUMA information.

A cell may have no cpus (memory of another tier: CXL, persistent memory, GPU memory), or no memory. Numbers
may have holes. A cpu that two cells claim is in neither.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from berth.agent.discovery.memory import HostMemory, read_cell_memory
from berth.agent.discovery.sysroot import ID_MAX, SysFolder, Sysroot, Unusable, format_ids

_FOLDER: Final = "sys/devices/system/node"
_NODE: Final = re.compile(r"node([0-9]{1,5})")


class NumaCell(NamedTuple):
    """``cpus`` are online; None if they are not known."""

    number: int
    cpus: frozenset[int] | None
    memory: HostMemory


def read_cells(sysroot: Sysroot, online: frozenset[int] | None) -> tuple[NumaCell, ...] | None:
    """All cells; none if there is no NUMA information, None if there may be, and it cannot be read."""
    try:
        folder = sysroot.folder(_FOLDER)
        numbers = [] if folder is None else _list_nodes(folder)
    except Unusable as error:
        sysroot.leave_out(error.path, error.reason)
        return None
    if folder is None:
        return ()
    cells = sysroot.collect(_read_cells(sysroot, folder, numbers))
    if numbers and not cells:
        return None
    return _refuse_contradictions(sysroot, cells, online)


def _list_nodes(folder: SysFolder) -> list[int]:
    numbers = (int(match[1]) for match in map(_NODE.fullmatch, folder.names()) if match is not None)
    return sorted({number for number in numbers if number <= ID_MAX})


def _read_cells(sysroot: Sysroot, folder: SysFolder, numbers: list[int]) -> Iterator[NumaCell]:
    for number in numbers:
        try:
            node = folder.folder(f"node{number}")
        except Unusable as error:
            sysroot.leave_out(error.path, error.reason)
            continue
        if node is not None:
            yield NumaCell(number, _read_node_cpus(sysroot, node), read_cell_memory(sysroot, node))


def _read_node_cpus(sysroot: Sysroot, node: SysFolder) -> frozenset[int] | None:
    cpus = sysroot.attempt(lambda: node.ids("cpulist"))
    if cpus is None:
        cpus = sysroot.attempt(lambda: node.mask("cpumap"))
    if cpus is None:
        sysroot.leave_out(node.path, "it is not known which cpus are in this cell")
    return cpus


def _refuse_contradictions(
    sysroot: Sysroot, cells: list[NumaCell], online: frozenset[int] | None
) -> tuple[NumaCell, ...]:
    counts = Counter(cpu for cell in cells for cpu in cell.cpus or ())
    doubled = frozenset(cpu for cpu, count in counts.items() if count > 1)
    if doubled:
        sysroot.leave_out(_FOLDER, f"cpus {format_ids(doubled)} are in more than one cell")
    usable = (online or frozenset()) - doubled
    homeless = usable - counts.keys()
    if cells and homeless:
        sysroot.leave_out(_FOLDER, f"cpus {format_ids(homeless)} are in no cell")
    return tuple(
        cell._replace(cpus=None if cell.cpus is None or online is None else cell.cpus & usable)
        for cell in cells
    )
