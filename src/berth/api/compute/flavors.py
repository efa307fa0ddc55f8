"""/flavors: sizes that servers are made in, their extra specs, and which projects may use them.

A server keeps a copy of its flavor, so a flavor can be changed or deleted at any time. A private flavor is
visible to administrators and to the projects that have access.

Each extra spec is used, passed to the driver or refused (``scheduler/spec_table.py``): a flavor never gets a
spec that no server could be made with.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.versions import make_links
from berth.api.kernel.call import Call, empty, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_flag, read_number, read_parameter, read_query, render_list
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.ledger import remove_record, replace_record
from berth.model.commands import Command, Enact
from berth.model.placement import AMOUNT_MAX
from berth.model.rejections import (
    ExtraSpecNotFound,
    ExtraSpecsTooLarge,
    FlavorAccessExists,
    FlavorAccessNotFound,
    FlavorExists,
    FlavorIsPublic,
    FlavorNotFound,
    Rejection,
    TooManyFlavorProjects,
)
from berth.model.servers import Flavor
from berth.sagas.requests import flavor_sizes
from berth.scheduler.flavors import SPECS_MAX, wrong_sizes
from berth.scheduler.spec_table import count_bytes, wrong_extra_spec
from berth.view import View

_DESCRIPTION: Final = 55
"""From this microversion on flavors have descriptions and can be changed."""
_EXTRA_SPECS: Final = 61
"""From this microversion on flavors show their extra specs."""
_SWAP_IS_A_NUMBER: Final = 75

_SPECS_BYTES_MAX: Final = 16 << 10
"""A server keeps a copy of its flavor."""
_FLAVOR_ID: Final = re.compile(r"[a-zA-Z0-9._-]([a-zA-Z0-9. _-]{0,253}[a-zA-Z0-9._-])?")
_NAME_MAX: Final = 255
_IS_PUBLIC: Final = "os-flavor-access:is_public"
_DESCRIPTION_MAX: Final = 65_535

_SORT_KEYS: Final = {
    "flavorid": "id",
    "name": "name",
    "memory_mb": "memory_mb",
    "vcpus": "vcpus",
    "root_gb": "disk_gb",
    "ephemeral_gb": "ephemeral_gb",
    "swap": "swap_mb",
    "created_at": "created_at_s",
}

QUERY: Final = dict.fromkeys(("is_public", "limit", "marker", "minDisk", "minRam", "sort_key", "sort_dir"), 1)
_SORT_DIRS: Final = ("asc", "desc")

Number = int | str
"""Nova takes digits in quotes, too."""


class _FlavorBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class NewFlavor(_FlavorBody, frozen=True, kw_only=True):
    name: str
    ram: Number
    vcpus: Number
    disk: Number
    id: str | int | None = None
    ephemeral: Number | None = msgspec.field(name="OS-FLV-EXT-DATA:ephemeral", default=None)
    swap: Number | None = None
    rxtx_factor: float | str | None = None
    is_public: bool | Annotated[str, Meta(max_length=10)] | None = msgspec.field(
        name="os-flavor-access:is_public", default=None
    )
    description: str | UnsetType | None = UNSET


class CreateFlavor(_FlavorBody, frozen=True, kw_only=True):
    flavor: NewFlavor


class FlavorDescription(_FlavorBody, frozen=True, kw_only=True):
    description: str | None


class UpdateFlavor(_FlavorBody, frozen=True, kw_only=True):
    flavor: FlavorDescription


# -- reading ------------------------------------------------------------------------------------


async def list_flavors(call: Call) -> Response:
    return await _list_page(call, lambda flavor: _show_summary(call, flavor))


async def list_flavors_with_details(call: Call) -> Response:
    return await _list_page(call, lambda flavor: _show_whole(call, flavor))


async def show_flavor(call: Call) -> Response:
    return json({"flavor": _show_whole(call, await _read_flavor(call))})


async def _list_page(call: Call, shown: Callable[[Flavor], dict[str, Any]]) -> Response:
    query = read_query(call, "flavors", QUERY)
    wanted = await call.read(lambda view: _select(call, query, view.records.all(Flavor)))
    flavors, links = render_list(call, wanted, lambda flavor: flavor.id, shown)
    body: dict[str, Any] = {"flavors": flavors}
    if links:
        body["flavors_links"] = links
    return json(body)


def _select(call: Call, query: dict[str, str], flavors: Iterable[Flavor]) -> list[Flavor]:
    least_mb, least_gb = read_parameter(query, "minRam", 0), read_parameter(query, "minDisk", 0)
    is_public = _read_is_public(query)
    sort_key = query.get("sort_key", "flavorid")
    if sort_key not in _SORT_KEYS:
        raise Problem(400, f"sort_key is {sort_key!r}; it must be one of {', '.join(_SORT_KEYS)}.")
    field = _SORT_KEYS[sort_key]
    sort_dir = query.get("sort_dir", "asc")
    if sort_dir not in _SORT_DIRS:
        raise Problem(400, f"sort_dir is {sort_dir!r}; it must be one of {', '.join(_SORT_DIRS)}.")
    found = [
        flavor
        for flavor in flavors
        if _is_asked_for(call, flavor, is_public)
        and flavor.memory_mb >= least_mb
        and flavor.disk_gb >= least_gb
    ]
    found.sort(key=lambda flavor: (getattr(flavor, field), flavor.id), reverse=sort_dir == "desc")
    return found


def _read_is_public(query: dict[str, str]) -> bool | None:
    """Which flavors are listed: public, private, or with None all that the caller may see."""
    text = query.get("is_public", "true").lower()
    if text in ("none", ""):
        return None
    if text in ("true", "1", "t", "yes", "on", "y"):
        return True
    if text in ("false", "0", "f", "no", "off", "n"):
        return False
    raise Problem(400, f"is_public is {text!r}; it must be true, false or none.")


def _is_asked_for(call: Call, flavor: Flavor, is_public: bool | None) -> bool:
    """True stands for the flavors that the caller's project may use, None for all that the caller may see."""
    if is_public is None:
        return call.access.may_use_flavor(flavor)
    if is_public:
        return flavor.is_public or call.project in flavor.projects
    return not flavor.is_public and call.access.may_use_flavor(flavor)


async def _read_flavor(call: Call) -> Flavor:
    return await call.read(lambda view: _find_flavor(view, call))


def _find_flavor(view: View, call: Call) -> Flavor | FlavorNotFound:
    """The flavor of the path; not found if it is not for the caller."""
    id = call.params[0]
    flavor = view.records.get(Flavor, id)
    if flavor is None or not call.access.may_use_flavor(flavor):
        return FlavorNotFound(id)
    return flavor


# -- changing -----------------------------------------------------------------------------------


async def create_flavor(call: Call) -> Response:
    asked = call.decode(CreateFlavor).flavor
    if call.version < _DESCRIPTION and not isinstance(asked.description, UnsetType):
        raise Problem(400, f"description is for microversion 2.{_DESCRIPTION} and later.")
    flavor = _make_flavor(call, asked)

    def propose(view: View, now_s: int) -> Command | Rejection:
        if view.records.get(Flavor, flavor.id) is not None:
            return FlavorExists("ID", flavor.id)
        if view.records.find(Flavor, "name", flavor.name):
            return FlavorExists("name", flavor.name)
        return _replace_flavor(view, msgspec.structs.replace(flavor, created_at_s=now_s))

    return await call.submit(propose, lambda view: json({"flavor": _show_whole(call, flavor)}))


def _make_flavor(call: Call, asked: NewFlavor) -> Flavor:
    name = asked.name
    if not 1 <= len(name) <= _NAME_MAX or name != name.strip() or not name.isprintable():
        raise Problem(
            400, f"name is {name!r}; it must have 1 to {_NAME_MAX} characters, without spaces at its ends."
        )
    id = call.services.ids.uuid() if asked.id in (None, "", "auto") else str(asked.id)
    if _FLAVOR_ID.fullmatch(id) is None:
        raise Problem(
            400, f"id is {id!r}; it must have 1 to 255 letters, digits, dots, dashes, underscores or spaces."
        )
    if asked.rxtx_factor not in (None, 1.0, "1", "1.0"):
        raise Problem(
            400,
            f"rxtx_factor is {asked.rxtx_factor!r}; it must be 1.0 or left out: there are no networks.",
        )
    return Flavor(
        id=id,
        name=name,
        vcpus=_read_size("vcpus", asked.vcpus, 1),
        memory_mb=_read_size("ram", asked.ram, 1),
        disk_gb=_read_size("disk", asked.disk, 0),
        ephemeral_gb=_read_size("OS-FLV-EXT-DATA:ephemeral", asked.ephemeral or 0, 0),
        swap_mb=_read_size("swap", asked.swap or 0, 0),
        is_public=asked.is_public is None or read_flag({_IS_PUBLIC: str(asked.is_public)}, _IS_PUBLIC),
        description=_check_description(
            None if isinstance(asked.description, UnsetType) else asked.description
        ),
    )


def _read_size(field: str, value: Number, least: int) -> int:
    return read_number(field, value, least, AMOUNT_MAX)


def _check_description(text: str | None) -> str | None:
    if text is not None and len(text) > _DESCRIPTION_MAX:
        raise Problem(400, f"description has {len(text)} characters; it may have {_DESCRIPTION_MAX} at most.")
    return text


async def update_flavor(call: Call) -> Response:
    if call.version < _DESCRIPTION:
        raise Problem(404, f"To change a flavor needs microversion 2.{_DESCRIPTION} or later.")
    text = _check_description(call.decode(UpdateFlavor).flavor.description)

    def propose(view: View, now_s: int) -> Command | Rejection:
        flavor = _find_flavor(view, call)
        if isinstance(flavor, Rejection):
            return flavor
        return _replace_flavor(view, msgspec.structs.replace(flavor, description=text))

    return await call.submit(
        propose, lambda view: json({"flavor": _show_whole(call, call.accept(_find_flavor(view, call)))})
    )


async def delete_flavor(call: Call) -> Response:
    def propose(view: View, now_s: int) -> Command | Rejection:
        flavor = _find_flavor(view, call)
        return flavor if isinstance(flavor, Rejection) else Enact((remove_record(view, flavor),))

    return await call.submit(propose, lambda view: empty(202))


def _replace_flavor(view: View, flavor: Flavor) -> Command | Rejection:
    """The command that replaces a flavor, if the scheduler can read it. Extra specs that it had before they
    were refused stay until they are removed; no server is made with them."""
    wrong = wrong_sizes(flavor_sizes(flavor))
    if wrong is not None:
        return wrong
    size = count_bytes(flavor.extra_specs)
    if size > _SPECS_BYTES_MAX:
        return ExtraSpecsTooLarge(size, _SPECS_BYTES_MAX)
    return Enact((replace_record(view, flavor),))


# -- showing ------------------------------------------------------------------------------------


def _show_summary(call: Call, flavor: Flavor) -> dict[str, Any]:
    links = make_links(call, "flavors", flavor.id)
    shown: dict[str, Any] = {"id": flavor.id, "name": flavor.name, "links": links}
    if call.version >= _DESCRIPTION:
        shown["description"] = flavor.description
    return shown


def _show_whole(call: Call, flavor: Flavor) -> dict[str, Any]:
    shown = _show_summary(call, flavor) | {
        "ram": flavor.memory_mb,
        "disk": flavor.disk_gb,
        "vcpus": flavor.vcpus,
        "swap": flavor.swap_mb if flavor.swap_mb or call.version >= _SWAP_IS_A_NUMBER else "",
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": flavor.is_public,
        "rxtx_factor": 1.0,
    }
    if call.version >= _EXTRA_SPECS and call.allows("os_compute_api:os-flavor-extra-specs:index"):
        shown["extra_specs"] = flavor.extra_specs
    return shown


# -- extra specs --------------------------------------------------------------------------------


_SPEC_KEY: Final = re.compile(r"[a-zA-Z0-9_:. -]{1,255}")

SpecValue = Annotated[str, Meta(max_length=255)] | int | float
NewSpecs = Annotated[dict[str, SpecValue], Meta(min_length=1, max_length=SPECS_MAX)]


class NewExtraSpecs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    extra_specs: NewSpecs


async def list_extra_specs(call: Call) -> Response:
    return json({"extra_specs": (await _read_flavor(call)).extra_specs})


async def show_extra_spec(call: Call) -> Response:
    flavor, key = await _read_flavor(call), _read_key(call)
    if key not in flavor.extra_specs:
        raise call.problem_of(ExtraSpecNotFound(flavor.id, key))
    return json({key: flavor.extra_specs[key]})


async def add_extra_specs(call: Call) -> Response:
    """Add extra specs; those that are there already are replaced."""
    given = _read_specs(call.decode(NewExtraSpecs).extra_specs)
    return await call.submit(
        lambda view, _: _add_specs(view, call, given), lambda view: json({"extra_specs": given})
    )


async def set_extra_spec(call: Call) -> Response:
    given = _read_specs(call.decode(dict[str, SpecValue]))
    if list(given) != [_read_key(call)]:
        raise Problem(400, f"The body must have one key, {_read_key(call)!r}, as the path does.")
    return await call.submit(lambda view, _: _add_specs(view, call, given), lambda view: json(given))


async def delete_extra_spec(call: Call) -> Response:
    removed = _read_key(call)

    def propose(view: View, now_s: int) -> Command | Rejection:
        flavor = _find_flavor(view, call)
        if isinstance(flavor, Rejection):
            return flavor
        if removed not in flavor.extra_specs:
            return ExtraSpecNotFound(flavor.id, removed)
        left = {key: value for key, value in flavor.extra_specs.items() if key != removed}
        return _replace_flavor(view, msgspec.structs.replace(flavor, extra_specs=left))

    return await call.submit(propose, lambda view: Response(200))


def _read_key(call: Call) -> str:
    return call.params[1]


def _read_specs(specs: dict[str, str | int | float]) -> dict[str, str]:
    for key in specs:
        if _SPEC_KEY.fullmatch(key) is None:
            raise Problem(400, f"The key {key!r} must have 1 to 255 letters, digits, spaces or any of _:.-")
    return {key: str(value) for key, value in specs.items()}


def _add_specs(view: View, call: Call, given: dict[str, str]) -> Command | Rejection:
    flavor = _find_flavor(view, call)
    if isinstance(flavor, Rejection):
        return flavor
    after = msgspec.structs.replace(flavor, extra_specs=flavor.extra_specs | given)
    command = _replace_flavor(view, after)
    return command if isinstance(command, Rejection) else wrong_extra_spec(after.extra_specs) or command


# -- access -------------------------------------------------------------------------------------


_PROJECTS_MAX: Final = 10_000


class Tenant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tenant: Annotated[str, Meta(min_length=1, max_length=255)]


class FlavorAccessChange(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="camel"):
    add_tenant_access: Tenant | None = None
    remove_tenant_access: Tenant | None = None


async def list_access(call: Call) -> Response:
    flavor = await _read_flavor(call)
    if flavor.is_public:
        raise Problem(404, "Access list not available for public flavors.")
    return _show_access(flavor)


async def change_access(call: Call) -> Response:
    asked = call.decode(FlavorAccessChange)
    if (asked.add_tenant_access is None) == (asked.remove_tenant_access is None):
        raise Problem(400, "The body must have one of addTenantAccess and removeTenantAccess.")

    def propose(view: View, now_s: int) -> Command | Rejection:
        flavor = _find_flavor(view, call)
        if isinstance(flavor, Rejection):
            return flavor
        if asked.add_tenant_access is not None:
            projects = _add_project(flavor, asked.add_tenant_access.tenant)
        else:
            assert asked.remove_tenant_access is not None, "one of the two is there"
            projects = _remove_project(flavor, asked.remove_tenant_access.tenant)
        if isinstance(projects, Rejection):
            return projects
        return Enact((replace_record(view, msgspec.structs.replace(flavor, projects=projects)),))

    def answer(view: View) -> Response:
        # Not as the caller finds it: it may have given up the access of its own project.
        flavor = view.records.get(Flavor, call.params[0])
        assert flavor is not None, "it has just been changed"
        return _show_access(flavor)

    return await call.submit(propose, answer)


def _add_project(flavor: Flavor, project: str) -> tuple[str, ...] | Rejection:
    if flavor.is_public:
        return FlavorIsPublic(flavor.id)
    if project in flavor.projects:
        return FlavorAccessExists(flavor.id, project)
    if len(flavor.projects) >= _PROJECTS_MAX:
        return TooManyFlavorProjects(flavor.id, _PROJECTS_MAX)
    return (*flavor.projects, project)


def _remove_project(flavor: Flavor, project: str) -> tuple[str, ...] | Rejection:
    if project not in flavor.projects:
        return FlavorAccessNotFound(flavor.id, project)
    return tuple(other for other in flavor.projects if other != project)


def _show_access(flavor: Flavor) -> Response:
    return json(
        {"flavor_access": [{"flavor_id": flavor.id, "tenant_id": project} for project in flavor.projects]}
    )


ROUTES: Final = (
    Route("GET", "/flavors", list_flavors, policy="berth:flavors:list"),
    Route("POST", "/flavors", create_flavor, policy="os_compute_api:os-flavor-manage:create"),
    Route("GET", "/flavors/detail", list_flavors_with_details, policy="berth:flavors:list"),
    Route("GET", "/flavors/{id}", show_flavor, policy="berth:flavors:show"),
    Route("PUT", "/flavors/{id}", update_flavor, policy="os_compute_api:os-flavor-manage:update"),
    Route("DELETE", "/flavors/{id}", delete_flavor, policy="os_compute_api:os-flavor-manage:delete"),
    Route(
        "GET",
        "/flavors/{id}/os-extra_specs",
        list_extra_specs,
        policy="os_compute_api:os-flavor-extra-specs:index",
    ),
    Route(
        "POST",
        "/flavors/{id}/os-extra_specs",
        add_extra_specs,
        policy="os_compute_api:os-flavor-extra-specs:create",
    ),
    Route(
        "GET",
        "/flavors/{id}/os-extra_specs/{key}",
        show_extra_spec,
        policy="os_compute_api:os-flavor-extra-specs:show",
    ),
    Route(
        "PUT",
        "/flavors/{id}/os-extra_specs/{key}",
        set_extra_spec,
        policy="os_compute_api:os-flavor-extra-specs:update",
    ),
    Route(
        "DELETE",
        "/flavors/{id}/os-extra_specs/{key}",
        delete_extra_spec,
        policy="os_compute_api:os-flavor-extra-specs:delete",
    ),
    Route("GET", "/flavors/{id}/os-flavor-access", list_access, policy="os_compute_api:os-flavor-access"),
    Route(
        "POST",
        "/flavors/{id}/action",
        change_access,
        policy="os_compute_api:os-flavor-access",
        actions={
            "addTenantAccess": "os_compute_api:os-flavor-access:add_tenant_access",
            "removeTenantAccess": "os_compute_api:os-flavor-access:remove_tenant_access",
        },
    ),
)
