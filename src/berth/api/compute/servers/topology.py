"""/servers/{id}/topology: on which NUMA cells of its host a server is, and on which cpus."""

import re
from collections.abc import Iterator
from typing import Any, Final

from berth.api.compute.servers.show import get_server
from berth.api.compute.versions import require_version
from berth.api.kernel.auth.rules import TOPOLOGY, TOPOLOGY_OF_HOST
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.router import Route
from berth.model.ids import ProviderId
from berth.model.saga_runs import Assignment, assignment_id
from berth.model.servers import Server
from berth.view import View

_SINCE: Final = 78
_SMALL_PAGE_KB: Final = 4
_PAGES_KB: Final = {"CUSTOM_MEMORY_PAGES_2M": 2048, "CUSTOM_MEMORY_PAGES_1G": 1 << 20}
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
    """A node for each NUMA cell that the server has something of. The server's own cpus are counted through,
    cell by cell: those with a host cpu of their own first."""
    cpu = 0
    for number, provider in _find_cells(view, assignment):
        pinned = assignment.units.get(provider, {}).get("PCPU", ())
        counts = assignment.counts.get(provider, {})
        cpus = range(cpu, cpu + len(pinned) + counts.get("VCPU", 0))
        cpu = cpus.stop
        node: dict[str, Any] = {
            "memory_mb": counts.get("MEMORY_MB", 0)
            + sum(n * _PAGES_KB[kind] // 1024 for kind, n in counts.items() if kind in _PAGES_KB),
            "siblings": [],
            "vcpu_set": list(cpus),
        }
        if is_shown:
            node["host_node"] = number
            node["cpu_pinning"] = {str(own): int(unit) for own, unit in zip(cpus, pinned, strict=False)}
        yield node


def _find_cells(view: View, assignment: Assignment) -> list[tuple[int, str]]:
    """The NUMA cells, by their numbers on the host."""
    found = []
    for id in {*assignment.units, *assignment.counts}:
        kinds = {*assignment.units.get(id, ()), *assignment.counts.get(id, ())}
        provider = view.providers.get(ProviderId(id))
        number = None if provider is None else _NUMA_CELL.search(provider.name)
        if number is not None and kinds & _ON_A_CELL:
            found.append((int(number[1]), id))
    return sorted(found)


ROUTES: Final = (Route("GET", "/servers/{id}/topology", show_topology, policy=TOPOLOGY),)
