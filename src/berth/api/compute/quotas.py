"""/limits and /os-quota-sets: what a project may use, which is without limit, and what it uses."""

from typing import Any, Final

from berth.api.compute.calls import Call, Route, json
from berth.api.http import Response
from berth.model.servers import Server
from berth.view import View

_UNLIMITED: Final = -1
_QUOTAS: Final = (
    "cores",
    "instances",
    "ram",
    "key_pairs",
    "metadata_items",
    "server_groups",
    "server_group_members",
)
_LIMITS: Final = (
    "maxTotalCores",
    "maxTotalInstances",
    "maxTotalRAMSize",
    "maxTotalKeypairs",
    "maxServerMeta",
    "maxServerGroups",
    "maxServerGroupMembers",
)


async def limits(call: Call) -> Response:
    project = call.query().get("tenant_id", call.project)
    if project != call.project:
        call.require("os_compute_api:limits:other_project", project)
    used = await call.read(lambda view: _used(view, project))
    absolute = dict.fromkeys(_LIMITS, _UNLIMITED) | {
        "totalCoresUsed": used["cores"],
        "totalInstancesUsed": used["instances"],
        "totalRAMUsed": used["ram"],
        "totalServerGroupsUsed": used["server_groups"],
    }
    return json({"limits": {"rate": [], "absolute": absolute}})


async def quota_set(call: Call) -> Response:
    call.require_of(call.params[0])
    return _quota_set(call, dict.fromkeys(_QUOTAS, _UNLIMITED))


async def quota_set_detail(call: Call) -> Response:
    call.require_of(call.params[0])
    used = await call.read(lambda view: _used(view, call.params[0]))
    return _quota_set(
        call,
        {name: {"limit": _UNLIMITED, "in_use": used.get(name, 0), "reserved": 0} for name in _QUOTAS},
    )


def _quota_set(call: Call, quotas: dict[str, Any]) -> Response:
    return json({"quota_set": {"id": call.params[0]} | quotas})


def _used(view: View, project: str) -> dict[str, int]:
    servers = view.records.find(Server, "project", project)
    groups = (record.group for record in view.groups.records.values())
    return {
        "cores": sum(server.flavor.vcpus for server in servers),
        "instances": len(servers),
        "ram": sum(server.flavor.memory_mb for server in servers),
        "server_groups": sum(group.project == project for group in groups),
    }


ROUTES: Final = (
    Route("GET", "/limits", limits, "os_compute_api:limits"),
    Route("GET", "/os-quota-sets/{project}", quota_set, "os_compute_api:os-quota-sets:show"),
    Route("GET", "/os-quota-sets/{project}/defaults", quota_set, "os_compute_api:os-quota-sets:defaults"),
    Route("GET", "/os-quota-sets/{project}/detail", quota_set_detail, "os_compute_api:os-quota-sets:detail"),
)
