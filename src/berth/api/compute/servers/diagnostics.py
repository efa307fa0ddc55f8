"""/servers/{id}/diagnostics and /servers/{id}/os-server-password: what is known of a guest from outside.

Agents report no figures of guests: those are null, as Nova says of figures that its driver does not have. No
guest has a password that was encrypted with its key, so the one that Nova would keep is empty.
"""

from typing import Any, Final

from berth.api.compute.servers.show import find_server, find_unlocked
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.router import Route
from berth.model.rejections import Rejection, ServerStateWrong
from berth.model.servers import Host, Server
from berth.view import View

_STANDARD: Final = 48
"""From this microversion on diagnostics look the same whatever the driver is."""
_ON_HOSTS: Final = ("active", "stopped")
_STATES: Final = {0: "pending", 1: "running", 3: "paused", 4: "shutdown", 6: "crashed", 7: "suspended"}
_FIGURES_OF_DISK: Final = ("read_bytes", "read_requests", "write_bytes", "write_requests", "errors_count")
_FIGURES_OF_NIC: Final = ("octets", "errors", "drop", "packets", "rate")


async def show_diagnostics(call: Call) -> Response:
    def answer(view: View) -> Response | Rejection:
        server = find_server(call, view, call.params[0])
        if isinstance(server, Rejection):
            return server
        if server.place is None:
            return ServerStateWrong(server.id, "show the diagnostics", server.state, _ON_HOSTS)
        if call.version < _STANDARD:
            return json({"memory": server.flavor.memory_mb * 1024, "vcpus": server.flavor.vcpus})
        return json(_show_standard(view, server))

    return await call.read(answer)


def _show_standard(view: View, server: Server) -> dict[str, Any]:
    assert server.place is not None, "it was asked for before"
    host = view.records.get(Host, server.place.id)
    macs = list(dict.fromkeys(address.mac for address in server.addresses))
    flavor = server.flavor
    disks = 1 + (flavor.ephemeral_gb > 0) + (flavor.swap_mb > 0)
    figures = [f"{way}_{figure}" for way in ("rx", "tx") for figure in _FIGURES_OF_NIC]
    return {
        "state": _STATES.get(server.power, "pending"),
        "driver": "unknown" if host is None else host.driver,
        "hypervisor": None if host is None else host.driver,
        "hypervisor_os": None,
        "uptime": None,
        "config_drive": server.guest.has_config_drive,
        "num_cpus": flavor.vcpus,
        "num_nics": len(macs),
        "num_disks": disks,
        "memory_details": {"maximum": flavor.memory_mb, "used": None},
        "cpu_details": [{"id": number, "time": None, "utilisation": None} for number in range(flavor.vcpus)],
        "nic_details": [{"mac_address": mac or None, **dict.fromkeys(figures)} for mac in macs],
        "disk_details": [dict.fromkeys(_FIGURES_OF_DISK) for _ in range(disks)],
    }


async def show_password(call: Call) -> Response:
    await call.read(lambda view: find_server(call, view, call.params[0]))
    return json({"password": ""})


async def clear_password(call: Call) -> Response:
    await call.read(lambda view: find_unlocked(call, view, call.params[0]))
    return Response(204)


_PASSWORD: Final = "os_compute_api:os-server-password"
ROUTES: Final = (
    Route(
        "GET", "/servers/{id}/diagnostics", show_diagnostics, policy="os_compute_api:os-server-diagnostics"
    ),
    Route("GET", "/servers/{id}/os-server-password", show_password, policy=f"{_PASSWORD}:show"),
    Route("DELETE", "/servers/{id}/os-server-password", clear_password, policy=f"{_PASSWORD}:clear"),
)
