"""/flavors/{id}/os-flavor-access: which projects may use a flavor that is not public."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.compute.flavors import visible
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.ledger.records import replace_record
from berth.model.commands import Command, Enact
from berth.model.servers import Flavor
from berth.view import View

_PROJECTS_MAX: Final = 10_000


class Tenant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tenant: Annotated[str, Meta(min_length=1, max_length=255)]


class Access(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    add_tenant_access: Tenant | None = None
    remove_tenant_access: Tenant | None = None


async def index(call: Call) -> Response:
    flavor = await call.read(lambda view: visible(view, call))
    if flavor.is_public:
        raise Problem(404, "Access list not available for public flavors.")
    return _listed(flavor)


async def act(call: Call) -> Response:
    asked = call.decode(Access)
    if (asked.add_tenant_access is None) == (asked.remove_tenant_access is None):
        raise Problem(400, "The body must have one of addTenantAccess and removeTenantAccess.")

    def make(view: View, now_s: int) -> Command:
        flavor = visible(view, call)
        if asked.add_tenant_access is not None:
            projects = _added(flavor, asked.add_tenant_access.tenant)
        else:
            assert asked.remove_tenant_access is not None, "one of the two is there"
            projects = _taken(flavor, asked.remove_tenant_access.tenant)
        return Enact((replace_record(view, msgspec.structs.replace(flavor, projects=projects)),))

    return await call.submit(make, lambda view: _listed(visible(view, call)))


def _added(flavor: Flavor, project: str) -> tuple[str, ...]:
    if flavor.is_public:
        raise Problem(409, f"Flavor {flavor.id} is public: everybody has access to it already.")
    if project in flavor.projects:
        raise Problem(409, f"Project {project} has access to flavor {flavor.id} already.")
    if len(flavor.projects) >= _PROJECTS_MAX:
        raise Problem(409, f"Flavor {flavor.id} has {_PROJECTS_MAX} projects, and may not have more.")
    return (*flavor.projects, project)


def _taken(flavor: Flavor, project: str) -> tuple[str, ...]:
    if project not in flavor.projects:
        raise Problem(404, f"Project {project} has no access to flavor {flavor.id} that could be taken.")
    return tuple(other for other in flavor.projects if other != project)


def _listed(flavor: Flavor) -> Response:
    return json(
        {"flavor_access": [{"flavor_id": flavor.id, "tenant_id": project} for project in flavor.projects]}
    )


ROUTES: Final = (
    Route("GET", "/flavors/{id}/os-flavor-access", index, policy="os_compute_api:os-flavor-access"),
    Route(
        "POST",
        "/flavors/{id}/action",
        act,
        policy="os_compute_api:os-flavor-access",
        actions={
            "addTenantAccess": "os_compute_api:os-flavor-access:add_tenant_access",
            "removeTenantAccess": "os_compute_api:os-flavor-access:remove_tenant_access",
        },
    ),
)
