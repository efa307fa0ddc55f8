"""A server as clients see it, at each microversion.

What it is called in public (``status``) follows from its state and from what is being done to it. Where it is
is an administrator's to know; others get a hash by which they can tell whether two of their servers share a
host.
"""

import re
from typing import Any, Final

from berth.api.compute.versions import links_of
from berth.api.kernel.call import Call
from berth.api.kernel.disclosure import host_id_of, words_for
from berth.api.kernel.times import show_plain_time, show_time
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import HEALTHY
from berth.model.servers import Action, Server, status_of
from berth.scheduler.filters.zone import KIND as ZONE
from berth.scheduler.filters.zone import NO_ZONE
from berth.scheduler.hosts import aggregate_names
from berth.view import View

DEFAULT_ZONE: Final = NO_ZONE
"""Where hosts are that nobody has put into a zone."""

DISK_CONFIG: Final = "MANUAL"

_WITH_PROGRESS: Final = frozenset(("ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"))


def reservation_of(view: View, server: Server) -> str:
    """What servers have in common that were asked for together."""
    for action in view.records.find(Action, "server", server.id):
        if action.name == "create":
            return reservation_id(action.request_id)
    return ""


def reservation_id(request_id: str) -> str:
    return f"r-{request_id.removeprefix('req-')[:8]}"


def zone_of(view: View, server: Server) -> str:
    """The zone of the host that a server is on; of one without a host, the zone that was asked for."""
    host = None if server.place is None else view.providers.get(ProviderId(server.place.id))
    if host is None:
        return server.zone or ""
    return next(iter(aggregate_names(view, ZONE, host)), DEFAULT_ZONE)


def summary(call: Call, server: Server) -> dict[str, Any]:
    """As in a list without details."""
    return {"id": server.id, "name": server.name, "links": links_of(call, "servers", server.id)}


def detail(call: Call, view: View, server: Server, *, is_alone: bool = True) -> dict[str, Any]:
    """Everything that is said of a server; ``is_alone``: where it is not one of a list."""
    status = status_of(server)
    body: dict[str, Any] = {
        **summary(call, server),
        "status": status,
        "tenant_id": server.project,
        "user_id": server.user,
        "created": show_time(server.created_at_s),
        "updated": show_time(server.updated_at_s or server.created_at_s),
        "image": _image(call, server),
        "flavor": _flavor(call, server),
        "metadata": server.metadata,
        "addresses": {},
        "accessIPv4": "",
        "accessIPv6": "",
        "key_name": server.key_name,
        "config_drive": "",
        "hostId": host_id_of(server.project, None if server.place is None else server.place.name),
        "security_groups": [],
        "OS-DCF:diskConfig": DISK_CONFIG,
        "OS-EXT-AZ:availability_zone": zone_of(view, server),
        "OS-EXT-STS:vm_state": server.state,
        "OS-EXT-STS:task_state": server.task,
        "OS-EXT-STS:power_state": server.power,
        "OS-SRV-USG:launched_at": show_plain_time(server.launched_at_s),
        "OS-SRV-USG:terminated_at": None,
        "os-extended-volumes:volumes_attached": [],
    }
    if status in _WITH_PROGRESS:
        body["progress"] = 100 if server.task is None and status == "ACTIVE" else 0
    if server.fault is not None and status == "ERROR":
        body["fault"] = _fault(call, view, server)
    if call.allows("os_compute_api:os-extended-server-attributes", server.project):
        body |= _extended(call, view, server)
    if call.version >= 16 and call.allows("os_compute_api:servers:show:host_status", server.project):
        body["host_status"] = _host_status(view, server)
    return body | _added_later(call, view, server, is_alone)


def _added_later(call: Call, view: View, server: Server, is_alone: bool) -> dict[str, Any]:
    """What came with a microversion."""
    added: list[tuple[int, dict[str, Any]]] = [
        (9, {"locked": server.is_locked}),
        (19, {"description": server.description}),
        (26, {"tags": []}),
        (63, {"trusted_image_certificates": None}),
        (73, {"locked_reason": server.locked_reason}),
    ]
    if is_alone:
        added.append((71, {"server_groups": _groups(view, server)}))
    return {name: value for minor, part in added if call.version >= minor for name, value in part.items()}


def _extended(call: Call, view: View, server: Server) -> dict[str, Any]:
    host = None if server.place is None else server.place.name
    body: dict[str, Any] = {
        "OS-EXT-SRV-ATTR:host": host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
        "OS-EXT-SRV-ATTR:instance_name": f"instance-{server.id[:8]}",
    }
    if call.version >= 3:
        body |= {
            "OS-EXT-SRV-ATTR:hostname": _hostname(server.name),
            "OS-EXT-SRV-ATTR:kernel_id": "",
            "OS-EXT-SRV-ATTR:ramdisk_id": "",
            "OS-EXT-SRV-ATTR:launch_index": 0,
            "OS-EXT-SRV-ATTR:reservation_id": reservation_of(view, server),
            "OS-EXT-SRV-ATTR:root_device_name": None,
            "OS-EXT-SRV-ATTR:user_data": None,
        }
    return body


def _host_status(view: View, server: Server) -> str:
    if server.place is None:
        return ""
    status = view.hosts.get(ProviderId(server.place.id), HEALTHY)
    if status.down:
        return "DOWN"
    return "MAINTENANCE" if status.disabled else "UP"


def _groups(view: View, server: Server) -> list[str]:
    membership = view.groups.memberships.get(ConsumerId(server.id))
    return [] if membership is None else [membership.group]


def _hostname(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63] or "server"


def _image(call: Call, server: Server) -> dict[str, Any] | str:
    if server.image is None:
        return ""
    href = f"{call.origin}/compute/images/{server.image}"
    return {"id": server.image, "links": [{"rel": "bookmark", "href": href}]}


def _flavor(call: Call, server: Server) -> dict[str, Any]:
    flavor = server.flavor
    if call.version < 47:
        href = f"{call.origin}/compute/flavors/{flavor.id}"
        return {"id": flavor.id, "links": [{"rel": "bookmark", "href": href}]}
    body: dict[str, Any] = {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.disk_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb,
        "original_name": flavor.name,
    }
    if call.allows("os_compute_api:servers:show:flavor-extra-specs", server.project):
        body["extra_specs"] = flavor.extra_specs
    return body


def _fault(call: Call, view: View, server: Server) -> dict[str, Any]:
    fault = server.fault
    assert fault is not None, "asked for only where there is one"
    message = words_for(call.access, view, server, fault.message)
    body = {"code": fault.code, "created": show_time(fault.at_s), "message": message}
    if call.is_admin and fault.details is not None:
        body["details"] = fault.details
    return body
