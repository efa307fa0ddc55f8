"""/os-hypervisors: hosts and what they have, as the ledger has it.

A host is known by a number before microversion 2.53 and by the uuid of its root provider from then on. From
2.88 on sizes are not shown any more: Placement is asked for them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query, render_list
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY
from berth.model.rejections import ComputeHostNotFound
from berth.model.servers import Host, Server
from berth.view import View

_CPU_INFO_IS_AN_OBJECT: Final = 28
_PAGES: Final = 33
UUIDS: Final = 53
"""From this microversion on hosts and services are known by uuids."""
_SERVERS_ALWAYS: Final = 75
QUERY: Final = {
    "limit": _PAGES,
    "marker": _PAGES,
    "hypervisor_hostname_pattern": UUIDS,
    "with_servers": UUIDS,
}
_NO_SIZES: Final = 88

_CLASSES: Final = ("VCPU", "MEMORY_MB", "DISK_GB")

Shown = Callable[[Call, View, Host], dict[str, Any]]


# -- lists --------------------------------------------------------------------------------------


_STEPS_PER_HOST: Final = 30


async def list_hypervisors(call: Call) -> Response:
    return await _list_page(call, _show_summary)


async def list_hypervisors_with_details(call: Call) -> Response:
    return await _list_page(call, _show_whole)


async def _list_page(call: Call, shown: Shown) -> Response:
    query = read_query(call, "hypervisors", QUERY)
    pattern = query.get("hypervisor_hostname_pattern")
    with_servers = _read_with_servers(call, query)

    def answer(view: View) -> Response:
        hosts = _match_hosts(view, pattern)

        def render(host: Host) -> dict[str, Any]:
            view.steps.take(_STEPS_PER_HOST)
            return shown(call, view, host) | _show_servers(call, view, host, with_servers)

        if call.version < _PAGES:
            return json({"hypervisors": [render(host) for host in hosts]})
        items, links = render_list(call, hosts, lambda host: str(show_id(call, host)), render)
        return json({"hypervisors": items} | ({"hypervisors_links": links} if links else {}))

    return await call.read(answer)


def _match_hosts(view: View, pattern: str | None) -> Sequence[Host]:
    view.steps.take(view.records.count(Host))
    hosts = sorted(view.records.all(Host), key=lambda host: host.number)
    if pattern is None:
        return hosts
    matching = [host for host in hosts if pattern.lower() in host.name.lower()]
    if not matching:
        raise Problem(404, f"No hypervisor matching '{pattern}' could be found.")
    return matching


async def search_hypervisors(call: Call) -> Response:
    """Before 2.53: the hosts whose names contain a text."""
    _refuse_from(call, UUIDS, "ask for /os-hypervisors?hypervisor_hostname_pattern=")
    return await call.read(
        lambda view: json(
            {"hypervisors": [_show_summary(call, view, host) for host in _match_hosts(view, call.params[0])]}
        )
    )


async def list_servers_of_hypervisors(call: Call) -> Response:
    """Before 2.53: the hosts whose names contain a text, with the servers on them."""
    _refuse_from(call, UUIDS, "ask for /os-hypervisors?with_servers=true")
    return await call.read(
        lambda view: json(
            {
                "hypervisors": [
                    _show_summary(call, view, host) | _show_servers(call, view, host, True)
                    for host in _match_hosts(view, call.params[0])
                ]
            }
        )
    )


async def show_statistics(call: Call) -> Response:
    _refuse_from(call, _NO_SIZES, "ask Placement for usages")

    def answer(view: View) -> Response:
        view.steps.take(_STEPS_PER_HOST * view.records.count(Host))
        sums = _sum_sizes(view, None)
        for host in view.records.all(Host):
            for name, amount in _sum_sizes(view, host).items():
                sums[name] += amount
        return json({"hypervisor_statistics": sums | {"count": view.records.count(Host)}})

    return await call.read(answer)


# -- one ----------------------------------------------------------------------------------------


async def show_hypervisor(call: Call) -> Response:
    with_servers = _read_with_servers(call, read_query(call, "a hypervisor", {"with_servers": UUIDS}))

    def answer(view: View) -> Response:
        host = call.accept(find_hypervisor(view, call))
        return json(
            {"hypervisor": _show_whole(call, view, host) | _show_servers(call, view, host, with_servers)}
        )

    return await call.read(answer)


async def show_uptime(call: Call) -> Response:
    _refuse_from(call, _NO_SIZES, "ask for the hypervisor itself")
    await call.read(lambda view: find_hypervisor(view, call))
    raise Problem(501, "Agents do not report how long their hosts have been up.")


def find_hypervisor(view: View, call: Call) -> Host | ComputeHostNotFound:
    """The host that the path names."""
    named = call.params[0].lower()
    if call.version >= UUIDS:
        return view.records.get(Host, named) or ComputeHostNotFound(call.params[0])
    return next(iter(view.records.find(Host, "number", named)), ComputeHostNotFound(call.params[0]))


def show_id(call: Call, host: Host) -> str | int:
    return host.id if call.version >= UUIDS else host.number


def _refuse_from(call: Call, version: int, instead: str) -> None:
    if call.version >= version:
        raise Problem(404, f"This was removed in microversion 2.{version}: {instead}.")


def _read_with_servers(call: Call, query: dict[str, str]) -> bool:
    text = query.get("with_servers", "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise Problem(400, f"with_servers is {text!r}; it must be true or false.")
    return call.version >= UUIDS and text in ("true", "1")


# -- showing ------------------------------------------------------------------------------------


def _show_summary(call: Call, view: View, host: Host) -> dict[str, Any]:
    status = view.hosts.get(ProviderId(host.id), HEALTHY)
    return {
        "id": show_id(call, host),
        "hypervisor_hostname": host.name,
        "state": "down" if status.down else "up",
        "status": "disabled" if status.disabled else "enabled",
    }


def _show_whole(call: Call, view: View, host: Host) -> dict[str, Any]:
    status = view.hosts.get(ProviderId(host.id), HEALTHY)
    service = {"id": show_id(call, host), "host": host.name, "disabled_reason": status.reason}
    shown = _show_summary(call, view, host) | {
        "hypervisor_type": host.driver,
        "hypervisor_version": 1,
        "host_ip": None,
        "service": service,
    }
    if call.version >= _NO_SIZES:
        return shown | {"uptime": None}
    cpu_info: object = {} if call.version >= _CPU_INFO_IS_AN_OBJECT else "{}"
    return shown | _sum_sizes(view, host) | {"cpu_info": cpu_info}


def _show_servers(call: Call, view: View, host: Host, is_asked: bool) -> dict[str, Any]:
    if not is_asked:
        return {}
    there = [
        {"name": server.name, "uuid": server.id} for server in view.records.find(Server, "host", host.id)
    ]
    return {"servers": there} if there or call.version >= _SERVERS_ALWAYS else {}


def _sum_sizes(view: View, host: Host | None) -> dict[str, int]:
    """What all providers of the host have and what is used of it; without a host all of it is 0."""
    provider = None if host is None else view.providers.get(ProviderId(host.id))
    tree = () if provider is None else provider.tree()
    totals, used = [], []
    for name in _CLASSES:
        id = view.classes.id_of(name)
        assert id is not None, "it is a standard class"
        totals.append(sum(record.inventories[id].total for record in tree if id in record.inventories))
        used.append(sum(record.used.get(id, 0) for record in tree))
    there = [] if host is None else view.records.find(Server, "host", host.id)
    return {
        "vcpus": totals[0],
        "vcpus_used": used[0],
        "memory_mb": totals[1],
        "memory_mb_used": used[1],
        "free_ram_mb": totals[1] - used[1],
        "local_gb": totals[2],
        "local_gb_used": used[2],
        "free_disk_gb": totals[2] - used[2],
        "disk_available_least": totals[2] - used[2],
        "running_vms": len(there),
        "current_workload": sum(server.task is not None for server in there),
    }


ROUTES: Final = (
    Route("GET", "/os-hypervisors", list_hypervisors, policy="os_compute_api:os-hypervisors:list"),
    Route(
        "GET",
        "/os-hypervisors/detail",
        list_hypervisors_with_details,
        policy="os_compute_api:os-hypervisors:list-detail",
    ),
    Route(
        "GET",
        "/os-hypervisors/statistics",
        show_statistics,
        policy="os_compute_api:os-hypervisors:statistics",
    ),
    Route("GET", "/os-hypervisors/{id}", show_hypervisor, policy="os_compute_api:os-hypervisors:show"),
    Route("GET", "/os-hypervisors/{id}/uptime", show_uptime, policy="os_compute_api:os-hypervisors:uptime"),
    Route(
        "GET",
        "/os-hypervisors/{pattern}/search",
        search_hypervisors,
        policy="os_compute_api:os-hypervisors:search",
    ),
    Route(
        "GET",
        "/os-hypervisors/{pattern}/servers",
        list_servers_of_hypervisors,
        policy="os_compute_api:os-hypervisors:servers",
    ),
)
