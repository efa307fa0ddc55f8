"""/limits, /os-quota-sets and /os-quota-class-sets: what projects may have, and what they have.

The limits are Nova's. Three of Berth's own are set in the same way and shown to whoever asks for ``all``:
``images``, ``image_size_total`` (in MiB) and ``clusters``. Of what Nova limits and Berth does not have at all
(injected files, floating addresses, security groups) nobody has any: whatever limit is set, it holds.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.call import Call, empty, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_flag, read_query
from berth.api.kernel.problem import Problem, not_found
from berth.api.kernel.router import Route
from berth.ledger import remove_record, replace_record
from berth.ledger.quotas import count_used, limits_of
from berth.model.commands import Command, Enact
from berth.model.quotas import (
    DEFAULT_CLASS,
    LIMIT_MAX,
    RESOURCES,
    UNLIMITED,
    limits_in,
    project_key,
)
from berth.model.rejections import QuotaBelowUse, Rejection
from berth.model.servers import QuotaSet
from berth.view import View

_CLASS: Final = "default"
_ID_MAX: Final = 255
_OWN: Final = ("images", "image_size_total", "clusters")
_NETWORK: Final = {
    "fixed_ips": UNLIMITED,
    "floating_ips": UNLIMITED,
    "security_groups": UNLIMITED,
    "security_group_rules": UNLIMITED,
}
_INJECTED: Final = {
    "injected_files": 5,
    "injected_file_content_bytes": 10_240,
    "injected_file_path_bytes": 255,
}
_GROUPS: Final = ("server_groups", "server_group_members")
_ABSOLUTE: Final = {
    "maxTotalCores": "cores",
    "maxTotalInstances": "instances",
    "maxTotalRAMSize": "ram",
    "maxServerMeta": "metadata_items",
    "maxServerGroups": "server_groups",
    "maxServerGroupMembers": "server_group_members",
    "maxTotalKeypairs": "key_pairs",
}
_NO_NETWORK_LIMITS: Final = 36
_NO_IMAGE_META: Final = 39
_NO_INJECTED: Final = 57

Limit = int | Annotated[str, Meta(max_length=20)]


class NewQuotaSet(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    quota_set: dict[str, Limit | bool]


class NewQuotaClass(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    quota_class_set: dict[str, Limit]


# -- what there is ------------------------------------------------------------------------------


async def show_limits(call: Call) -> Response:
    # ``reserved`` changes nothing: there are no reservations.
    project = read_query(call, "limits", {"tenant_id": 1, "reserved": 1}).get("tenant_id", call.project)
    if project != call.project:
        call.require("os_compute_api:limits:other_project", project)

    def answer(view: View) -> dict[str, int]:
        allowed, used = limits_of(view, call.quotas, project), count_used(view, project)
        return {name: allowed[resource] for name, resource in _ABSOLUTE.items()} | {
            "totalCoresUsed": used["cores"],
            "totalInstancesUsed": used["instances"],
            "totalRAMUsed": used["ram"],
            "totalServerGroupsUsed": used["server_groups"],
            **_show_earlier_limits(call, allowed),
        }

    return json({"limits": {"rate": [], "absolute": await call.read(answer)}})


def _show_earlier_limits(call: Call, allowed: dict[str, int]) -> dict[str, int]:
    """The limits that were removed with later microversions."""
    shown: dict[str, int] = {}
    if call.version < _NO_NETWORK_LIMITS:
        limits = {"maxTotalFloatingIps": "floating_ips", "maxSecurityGroups": "security_groups"}
        limits |= {"maxSecurityGroupRules": "security_group_rules"}
        shown |= {name: allowed.get(resource, UNLIMITED) for name, resource in limits.items()}
        shown |= {"totalFloatingIpsUsed": 0, "totalSecurityGroupsUsed": 0}
    if call.version < _NO_IMAGE_META:
        shown["maxImageMeta"] = allowed["metadata_items"]
    if call.version < _NO_INJECTED:
        limits = {"maxPersonality": "injected_files", "maxPersonalitySize": "injected_file_content_bytes"}
        shown |= {name: allowed.get(resource, _INJECTED[resource]) for name, resource in limits.items()}
    return shown


async def show_quotas(call: Call) -> Response:
    project = _read_project(call)
    allowed = await call.read(lambda view: limits_of(view, call.quotas, project))
    return json({"quota_set": {"id": project} | _show_set(call, allowed)})


async def show_quotas_in_use(call: Call) -> Response:
    project = _read_project(call)

    def answer(view: View) -> dict[str, Any]:
        used = count_used(view, project)
        return {
            name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0}
            for name, limit in _show_set(call, limits_of(view, call.quotas, project)).items()
        }

    return json({"quota_set": {"id": project} | await call.read(answer)})


async def show_default_quotas(call: Call) -> Response:
    project = _read_project(call)
    allowed = await call.read(lambda view: _find_class_limits(call, view))
    return json({"quota_set": {"id": project} | _show_set(call, allowed)})


async def show_quota_class(call: Call) -> Response:
    _require_class(call)
    allowed = await call.read(lambda view: _find_class_limits(call, view))
    return json({"quota_class_set": {"id": _CLASS} | _show_class(call, allowed)})


def _find_class_limits(call: Call, view: View) -> dict[str, int]:
    return limits_in(call.quotas, view.records.get(QuotaSet, DEFAULT_CLASS))


def _show_set(call: Call, allowed: dict[str, int]) -> dict[str, int]:
    return _show_limits(call, allowed, _list_unused(call.version, _NO_NETWORK_LIMITS))


def _show_class(call: Call, allowed: dict[str, int]) -> dict[str, int]:
    hidden = _GROUPS if call.version < 50 else ()
    shown = _show_limits(call, allowed, _list_unused(call.version, 50))
    return {name: limit for name, limit in shown.items() if name not in hidden}


def _show_limits(call: Call, allowed: dict[str, int], unused: dict[str, int]) -> dict[str, int]:
    own = _OWN if read_flag(call.query_values(), "all") else ()
    names = (*(name for name in RESOURCES if name not in _OWN), *own)
    return {name: allowed[name] for name in names} | {
        name: allowed.get(name, default) for name, default in unused.items()
    }


def _list_unused(version: int, networks_until: int) -> dict[str, int]:
    """The quotas that a microversion has for what does not exist here, and their defaults."""
    networks = _NETWORK if version < networks_until else {}
    return {**networks, **(_INJECTED if version < _NO_INJECTED else {})}


# -- changing -----------------------------------------------------------------------------------


async def update_quotas(call: Call) -> Response:
    project = _read_project(call)
    given = dict(call.decode(NewQuotaSet).quota_set)
    is_forced = _read_flag(given.pop("force", False))
    asked = _read_limits(given, _list_unused(call.version, _NO_NETWORK_LIMITS))

    def propose(view: View, now_s: int) -> Command | Rejection:
        used = count_used(view, project)
        for name, limit in asked.items():
            if not is_forced and UNLIMITED < limit < used.get(name, 0):
                return QuotaBelowUse(name, limit, used[name])
        return _set_quotas(view, project_key(project), asked)

    return await call.submit(
        propose,
        lambda view: json({"quota_set": _show_set(call, limits_of(view, call.quotas, project))}),
    )


async def update_quota_class(call: Call) -> Response:
    _require_class(call)
    asked = _read_limits(dict(call.decode(NewQuotaClass).quota_class_set), _list_unused(call.version, 50))
    if call.version < 50 and (newer := sorted(asked.keys() & {*_GROUPS})):
        raise Problem(400, f"Invalid input: {newer[0]} needs microversion 2.50 or later.")
    return await call.submit(
        lambda view, _: _set_quotas(view, DEFAULT_CLASS, asked),
        lambda view: json({"quota_class_set": _show_class(call, _find_class_limits(call, view))}),
    )


async def delete_quotas(call: Call) -> Response:
    """Remove a project's own quotas: the defaults apply again."""
    key = project_key(_read_project(call))

    def propose(view: View, now_s: int) -> Command:
        there = view.records.get(QuotaSet, key)
        return Enact(() if there is None else (remove_record(view, there),))

    return await call.submit(propose, lambda view: empty(202))


def _set_quotas(view: View, key: str, asked: dict[str, int]) -> Command:
    there = view.records.get(QuotaSet, key)
    limits = ({} if there is None else there.limits) | asked
    return Enact((replace_record(view, QuotaSet(id=key, limits=limits)),))


# -- what is sent -------------------------------------------------------------------------------


def _read_limits(given: dict[str, Any], unused: dict[str, int]) -> dict[str, int]:
    """The limits that a body sets, by resource."""
    numbers = {name: _read_limit(name, value) for name, value in given.items()}
    for name in numbers:
        if name not in RESOURCES and name not in unused:
            known = ", ".join(sorted((*RESOURCES, *unused)))
            raise Problem(400, f"Invalid input: {name!r} is not a quota; the quotas are {known}.")
    return numbers


def _read_limit(name: str, value: Any) -> int:
    text = str(value)
    is_number = not isinstance(value, bool) and text.removeprefix("-").isdigit() and text.isascii()
    if not is_number or not UNLIMITED <= int(text) <= LIMIT_MAX:
        raise Problem(
            400,
            f"Invalid input: {name} is {value!r}; it must be a whole number from {UNLIMITED} (no limit) to "
            f"{LIMIT_MAX}.",
        )
    return int(text)


def _read_flag(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise Problem(400, f"Invalid input: force is {value!r}; it must be true or false.")
    return text in ("true", "1", "yes", "on")


def _read_project(call: Call) -> str:
    """The project of the path, if the caller may do this to its quotas."""
    project = call.params[0]
    call.require_of(project)
    if len(project) > _ID_MAX:
        raise Problem(400, f"Invalid input: the id of a project has at most {_ID_MAX} characters.")
    if "user_id" in call.query_values() and call.request.method != "GET":
        raise Problem(400, "Quotas of single users are not kept: leave user_id out.")
    # A user may have what its project may have.
    read_query(call, "quotas", {"all": 1, "user_id": 1})
    return project


def _require_class(call: Call) -> None:
    read_query(call, "quotas", {"all": 1})
    if call.params[0] != _CLASS:
        raise not_found("Quota class", f"{call.params[0]} (there is one, {_CLASS})")


_SETS: Final = "os_compute_api:os-quota-sets"
_CLASSES: Final = "os_compute_api:os-quota-class-sets"


ROUTES: Final = (
    Route("GET", "/limits", show_limits, policy="os_compute_api:limits"),
    Route("GET", "/os-quota-sets/{project}", show_quotas, policy=f"{_SETS}:show"),
    Route("PUT", "/os-quota-sets/{project}", update_quotas, policy=f"{_SETS}:update"),
    Route("DELETE", "/os-quota-sets/{project}", delete_quotas, policy=f"{_SETS}:delete"),
    Route("GET", "/os-quota-sets/{project}/defaults", show_default_quotas, policy=f"{_SETS}:defaults"),
    Route("GET", "/os-quota-sets/{project}/detail", show_quotas_in_use, policy=f"{_SETS}:detail"),
    Route("GET", "/os-quota-class-sets/{name}", show_quota_class, policy=f"{_CLASSES}:show"),
    Route("PUT", "/os-quota-class-sets/{name}", update_quota_class, policy=f"{_CLASSES}:update"),
)
