"""/os-availability-zone: the zones that hosts are in, and whether a server could be put there.

A host in no zone is in "nova", as Nova calls what has no name.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import query_of
from berth.api.kernel.router import Route
from berth.api.kernel.times import show_plain_time
from berth.model.ids import ProviderId
from berth.model.placement import HEALTHY
from berth.model.servers import Host
from berth.scheduler.filters.zone import KIND, NO_ZONE
from berth.scheduler.hosts import aggregate_names
from berth.view import View

BINARY: Final = "nova-compute"
"""What Nova calls an agent."""


def zone_of(view: View, host: Host) -> str:
    provider = view.providers.get(ProviderId(host.id))
    names = [] if provider is None else aggregate_names(view, KIND, provider)
    return names[0] if names else NO_ZONE


async def index(call: Call) -> Response:
    query_of(call, "availability zones", {})
    return await call.read(lambda view: _answer(_zones(view), lambda hosts: None))


async def detail(call: Call) -> Response:
    query_of(call, "availability zones", {})
    return await call.read(
        lambda view: _answer(_zones(view), lambda hosts: {host.name: _service(view, host) for host in hosts})
    )


def _answer(
    zones: Iterable[tuple[str, bool, list[Host]]], hosts_shown: Callable[[list[Host]], Any]
) -> Response:
    infos = [
        {"zoneName": name, "zoneState": {"available": is_available}, "hosts": hosts_shown(hosts)}
        for name, is_available, hosts in zones
    ]
    return json({"availabilityZoneInfo": infos})


def _zones(view: View) -> list[tuple[str, bool, list[Host]]]:
    """Zones with hosts, by name: and whether any of the hosts is one to schedule to."""
    view.steps.take(5 * view.records.count(Host))
    by_name: dict[str, list[Host]] = {}
    for host in sorted(view.records.all(Host), key=lambda host: host.name):
        by_name.setdefault(zone_of(view, host), []).append(host)
    return [
        (name, any(_takes_servers(view, host) for host in hosts), hosts)
        for name, hosts in sorted(by_name.items())
    ]


def _takes_servers(view: View, host: Host) -> bool:
    status = view.hosts.get(ProviderId(host.id), HEALTHY)
    return not (status.disabled or status.down)


def _service(view: View, host: Host) -> dict[str, Any]:
    status = view.hosts.get(ProviderId(host.id), HEALTHY)
    updated_at = show_plain_time(host.updated_at_s or host.registered_at_s)
    return {BINARY: {"active": not status.disabled, "available": not status.down, "updated_at": updated_at}}


ROUTES: Final = (
    Route("GET", "/os-availability-zone", index, policy="os_compute_api:os-availability-zone:list"),
    Route("GET", "/os-availability-zone/detail", detail, policy="os_compute_api:os-availability-zone:detail"),
)
