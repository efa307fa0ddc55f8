"""/servers/{id}/topology: on which NUMA cells of its host a server is, and on which cpus.

An assignment says what a server has of each cell of the host; its flavor and image say which cells and cpus
the guest has. Which is on which follows from the amounts (``_match_cells``). A guest without cells of its own
has its cpus counted through, cell by cell of the host.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from berth.api.compute.servers.show import get_server
from berth.api.compute.versions import require_version
from berth.api.kernel.auth.rules import TOPOLOGY, TOPOLOGY_OF_HOST
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.router import Route
from berth.model.ids import ProviderId
from berth.model.saga_runs import Assignment, assignment_id
from berth.model.servers import Server
from berth.scheduler.topology import (
    PAGES,
    THREADS_OF_A_CORE,
    GuestCell,
    GuestSize,
    GuestTopology,
    read_topology,
    round_up,
)
from berth.view import View

_SINCE: Final = 78
_SMALL_PAGE_KB: Final = 4
_PAGES_KB: Final = {name: size_kb for size_kb, name in PAGES.items()}
_ON_A_CELL: Final = {"PCPU", "VCPU", "MEMORY_MB", *_PAGES_KB}
_NUMA_CELL: Final = re.compile(r"-numa([0-9]{1,6})\Z", re.ASCII)


async def show_topology(call: Call) -> Response:
    require_version(call, _SINCE)

    def answer(view: View) -> dict[str, Any]:
        server = get_server(call, view, call.params[0])
        place = server.place
        found = None
        if place is not None:
            found = view.records.get(Assignment, assignment_id(server.id, place.id))
        if found is None:
            return {"nodes": [], "pagesize_kb": None}
        is_shown = call.allows(TOPOLOGY_OF_HOST, server.project)
        nodes = list(_list_nodes(view, server, found, is_shown))
        pages = [_PAGES_KB[kind] for kinds in found.counts.values() for kind in kinds if kind in _PAGES_KB]
        return {"nodes": nodes, "pagesize_kb": max(pages, default=_SMALL_PAGE_KB) if nodes else None}

    return json(await call.read(answer))


def _list_nodes(
    view: View, server: Server, assignment: Assignment, is_shown: bool
) -> Iterator[dict[str, Any]]:
    """A node for each NUMA cell of the guest, or that a guest without any has something of. Of units beyond
    its own cpus (of a core that is given whole, of its emulator) nothing is said."""
    flavor = server.flavor
    size = GuestSize(flavor.vcpus, flavor.memory_mb)
    guest = read_topology(size, flavor.extra_specs, server.image_properties)
    cells = _find_cells(view, assignment)
    matched = _match_cells(guest, cells) if isinstance(guest, GuestTopology) else None
    if matched is None:
        matched = list(zip(cells, _count_through(cells, flavor.vcpus), strict=True))
    for cell, own in matched:
        node: dict[str, Any] = {
            "memory_mb": cell.memory_mb,
            "siblings": [],
            "vcpu_set": sorted(own.cpus),
        }
        if is_shown:
            node["host_node"] = cell.number
            pairs = zip(sorted(own.pinned), cell.units, strict=False)
            node["cpu_pinning"] = {str(cpu): int(unit) for cpu, unit in pairs}
        yield node


class _HostCell(NamedTuple):
    """What a server has of a NUMA cell of its host. ``units`` are the cpus that are its own."""

    number: int
    units: tuple[str, ...]
    shared: int
    memory_mb: int


def _find_cells(view: View, assignment: Assignment) -> list[_HostCell]:
    """The NUMA cells, by their numbers on the host."""
    found = []
    for id in {*assignment.units, *assignment.counts}:
        units, counts = assignment.units.get(id, {}), assignment.counts.get(id, {})
        provider = view.providers.get(ProviderId(id))
        number = None if provider is None else _NUMA_CELL.search(provider.name)
        if number is not None and _ON_A_CELL.intersection((*units, *counts)):
            memory_mb = counts.get("MEMORY_MB", 0)
            memory_mb += sum(n * _PAGES_KB[kind] // 1024 for kind, n in counts.items() if kind in _PAGES_KB)
            found.append(_HostCell(int(number[1]), units.get("PCPU", ()), counts.get("VCPU", 0), memory_mb))
    return sorted(found)


def _match_cells(guest: GuestTopology, cells: list[_HostCell]) -> list[tuple[_HostCell, GuestCell]] | None:
    """The cell of the host for each of the guest's: one of which the server has just as much. None if there
    is none for one of them, because the guest is split."""
    for threads in THREADS_OF_A_CORE:
        left = list(cells)
        found = []
        for number, own in enumerate(guest.cells):
            dedicated = own.dedicated + (guest.emulator_cpus if number == 0 else 0)
            asked = (round_up(dedicated, threads), own.shared, own.memory_mb)
            fitting = [one for one in left if (len(one.units), one.shared, one.memory_mb) == asked]
            if fitting:
                left.remove(fitting[0])
                found.append((fitting[0], own))
        if len(found) == len(guest.cells) and not left:
            return found
    return None


def _count_through(cells: list[_HostCell], vcpus: int) -> Iterator[GuestCell]:
    """The cpus of a guest, cell by cell of the host: those with a cpu of their own first."""
    first = 0
    for cell in cells:
        cpus = range(first, min(first + len(cell.units) + cell.shared, vcpus))
        first = cpus.stop
        yield GuestCell(frozenset(cpus), frozenset(cpus[: len(cell.units)]), cell.memory_mb)


ROUTES: Final = (Route("GET", "/servers/{id}/topology", show_topology, policy=TOPOLOGY),)
