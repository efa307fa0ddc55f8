"""/extensions: the parts of Nova's API that once were extensions, as far as they are offered."""

from typing import Any, Final

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import not_found
from berth.api.kernel.router import Route

_NAMES: Final = {
    "OS-DCF": "DiskConfig",
    "OS-EXT-AZ": "ExtendedAvailabilityZone",
    "OS-EXT-IMG-SIZE": "ImageSize",
    "OS-EXT-IPS": "ExtendedIps",
    "OS-EXT-IPS-MAC": "ExtendedIpsMac",
    "OS-EXT-SRV-ATTR": "ExtendedServerAttributes",
    "OS-EXT-STS": "ExtendedStatus",
    "OS-FLV-DISABLED": "FlavorDisabled",
    "OS-FLV-EXT-DATA": "FlavorExtraData",
    "OS-SCH-HNT": "SchedulerHints",
    "OS-SRV-USG": "ServerUsage",
    "os-admin-actions": "AdminActions",
    "os-aggregates": "Aggregates",
    "os-availability-zone": "AvailabilityZone",
    "os-config-drive": "ConfigDrive",
    "os-deferred-delete": "DeferredDelete",
    "os-evacuate": "Evacuate",
    "os-extended-status": "ExtendedStatus",
    "os-flavor-access": "FlavorAccess",
    "os-flavor-extra-specs": "FlavorExtraSpecs",
    "os-flavor-manage": "FlavorManage",
    "os-hosts": "Hosts",
    "os-hypervisors": "Hypervisors",
    "os-instance-actions": "InstanceActions",
    "os-instance_usage_audit_log": "OSInstanceUsageAuditLog",
    "os-keypairs": "Keypairs",
    "os-migrations": "Migrations",
    "os-quota-class-sets": "QuotaClasses",
    "os-quota-sets": "Quotas",
    "os-server-diagnostics": "ServerDiagnostics",
    "os-server-external-events": "ServerExternalEvents",
    "os-server-groups": "ServerGroups",
    "os-server-password": "ServerPassword",
    "os-server-start-stop": "ServerStartStop",
    "os-services": "Services",
    "os-shelve": "Shelve",
    "os-simple-tenant-usage": "SimpleTenantUsage",
    "os-used-limits": "UsedLimits",
    "os-user-data": "UserData",
}
"""By alias, as Nova calls them."""
_NOTHING_MORE: Final[dict[str, Any]] = {
    "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
    "updated": "2014-12-03T00:00:00Z",
    "links": [],
    "description": "",
}


async def list_extensions(call: Call) -> Response:
    return json({"extensions": [_show(alias) for alias in _NAMES]})


async def show_extension(call: Call) -> Response:
    alias = call.params[0]
    if alias not in _NAMES:
        raise not_found("Extension", alias)
    return json({"extension": _show(alias)})


def _show(alias: str) -> dict[str, Any]:
    return {"alias": alias, "name": _NAMES[alias], **_NOTHING_MORE}


ROUTES: Final = (
    Route("GET", "/extensions", list_extensions, policy="os_compute_api:extensions"),
    Route("GET", "/extensions/{alias}", show_extension, policy="os_compute_api:extensions"),
)
