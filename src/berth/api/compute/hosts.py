"""/os-hosts: hosts as Nova had them until microversion 2.43: what they have, by project, and to disable them.

Newer clients ask /os-hypervisors and /os-services. To start, stop or reboot a host is for whoever has its
power switch: Nova passes it to its driver, and none here does it.
"""

from collections import Counter
from typing import Any, Final, Literal

import msgspec

from berth.api.compute.aggregates import find_zone
from berth.api.compute.services import ServiceChange, change_service
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.model.ids import ProviderId
from berth.model.rejections import ComputeHostNotFound
from berth.model.servers import Host, Server
from berth.view import View

_REMOVED: Final = 43
_SERVICE: Final = "compute"
_CLASSES: Final = {"cpu": "VCPU", "memory_mb": "MEMORY_MB", "disk_gb": "DISK_GB"}
_STEPS_PER_HOST: Final = 10


class HostUpdate(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    status: Literal["enable", "disable", "Enable", "Disable", "ENABLE", "DISABLE"] | None = None
    maintenance_mode: Literal["enable", "disable", "Enable", "Disable", "ENABLE", "DISABLE"] | None = None


async def list_hosts(call: Call) -> Response:
    _refuse_later(call)
    query = read_query(call, "hosts", {"zone": 1, "service": 1})

    def answer(view: View) -> Response:
        view.steps.take(_STEPS_PER_HOST * view.records.count(Host))
        hosts = sorted(view.records.all(Host), key=lambda host: host.number)
        shown = [
            {"host_name": host.name, "service": _SERVICE, "zone": find_zone(view, host)} for host in hosts
        ]
        zone, service = query.get("zone"), query.get("service")
        return json(
            {
                "hosts": [
                    row
                    for row in shown
                    if (not zone or row["zone"] == zone) and (not service or service == _SERVICE)
                ]
            }
        )

    return await call.read(answer)


async def show_host(call: Call) -> Response:
    """What a host has, what is used of it, and which project uses how much."""
    _refuse_later(call)

    def answer(view: View) -> Response:
        host = call.accept(_find_host(view, call))
        servers = view.records.find(Server, "host", host.id)
        view.steps.take(_STEPS_PER_HOST + len(servers))
        by_project: dict[str, Counter[str]] = {}
        for server in servers:
            flavor = server.flavor
            sizes = {"cpu": flavor.vcpus, "memory_mb": flavor.memory_mb}
            sizes["disk_gb"] = flavor.disk_gb + flavor.ephemeral_gb
            by_project.setdefault(server.project, Counter()).update(sizes)
        most = sum(by_project.values(), Counter())
        total, used = _sum_host(view, host)
        rows = [("(total)", total), ("(used_now)", used), ("(used_max)", most), *sorted(by_project.items())]
        return json({"host": [{"resource": _show_row(host, name, sizes)} for name, sizes in rows]})

    return await call.read(answer)


async def update_host(call: Call) -> Response:
    _refuse_later(call)
    asked = call.decode(HostUpdate)
    if asked == HostUpdate():
        raise Problem(400, "Invalid input: give status or maintenance_mode.")
    if asked.maintenance_mode is not None:
        await call.read(lambda view: _find_host(view, call))
        raise Problem(501, "Drivers have no maintenance mode: disable the host, and drain it.")
    assert asked.status is not None, "one of both is there"
    status = f"{asked.status.lower()}d"
    return await call.submit(
        lambda view, now_s: change_service(view, _find_host(view, call), ServiceChange(status=status), now_s),
        lambda view: json({"host": call.params[0], "status": status}),
    )


async def refuse_power_action(call: Call) -> Response:
    _refuse_later(call)
    await call.read(lambda view: _find_host(view, call))
    raise Problem(501, "Drivers have no power switch of their host.")


def _refuse_later(call: Call) -> None:
    if call.version >= _REMOVED:
        raise Problem(
            404,
            f"/os-hosts was removed in microversion 2.{_REMOVED}: ask for /os-hypervisors or /os-services.",
        )


def _find_host(view: View, call: Call) -> Host | ComputeHostNotFound:
    found = view.records.find(Host, "name", call.params[0])
    return found[0] if found else ComputeHostNotFound(call.params[0])


def _sum_host(view: View, host: Host) -> tuple[dict[str, int], dict[str, int]]:
    """What all providers of a host have, and what is used of it."""
    provider = view.providers.get(ProviderId(host.id))
    tree = () if provider is None else provider.tree()
    total: dict[str, int] = {}
    used: dict[str, int] = {}
    for name, class_name in _CLASSES.items():
        id = view.classes.id_of(class_name)
        assert id is not None, "it is a standard class"
        total[name] = sum(record.inventories[id].total for record in tree if id in record.inventories)
        used[name] = sum(record.used.get(id, 0) for record in tree)
    return total, used


def _show_row(host: Host, project: str, sizes: dict[str, int] | Counter[str]) -> dict[str, Any]:
    return {"host": host.name, "project": project} | {name: sizes.get(name, 0) for name in _CLASSES}


_RULE: Final = "os_compute_api:os-hosts"
ROUTES: Final = (
    Route("GET", "/os-hosts", list_hosts, policy=f"{_RULE}:list"),
    Route("GET", "/os-hosts/{host}", show_host, policy=f"{_RULE}:show"),
    Route("PUT", "/os-hosts/{host}", update_host, policy=f"{_RULE}:update"),
    Route("GET", "/os-hosts/{host}/startup", refuse_power_action, policy=f"{_RULE}:start"),
    Route("GET", "/os-hosts/{host}/shutdown", refuse_power_action, policy=f"{_RULE}:shutdown"),
    Route("GET", "/os-hosts/{host}/reboot", refuse_power_action, policy=f"{_RULE}:reboot"),
)
