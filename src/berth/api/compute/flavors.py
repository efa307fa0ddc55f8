"""/flavors: sizes that servers are made in, who may use them, and what they say of a flavor.

A server keeps a copy of its flavor, so that one can be changed or deleted at any time. Of a private flavor
only admins and the projects that have access know that it is there.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from berth.api.compute.errors import not_found
from berth.api.compute.versions import links_of
from berth.api.kernel.call import Call, empty, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import number_in, page, query_of
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import nova_problem
from berth.api.kernel.router import Route
from berth.ledger.records import remove_record, replace_record
from berth.model.commands import Command, Enact
from berth.model.placement import AMOUNT_MAX
from berth.model.rejections import SpecInvalid
from berth.model.servers import Flavor
from berth.sagas.requests import flavor_sizes
from berth.scheduler.flavors import ask_of
from berth.scheduler.spec_table import count_bytes
from berth.view import View

DESCRIPTION: Final = 55
"""From this microversion on flavors have descriptions, and can be changed."""
EXTRA_SPECS: Final = 61
"""From this one on they show their extra specs."""
_SWAP_IS_A_NUMBER: Final = 75

_SPECS_BYTES_MAX: Final = 16 << 10
"""A server keeps a copy of its flavor."""
_ID: Final = re.compile(r"[a-zA-Z0-9._-]([a-zA-Z0-9. _-]{0,253}[a-zA-Z0-9._-])?")
_NAME_MAX: Final = 255
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


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class NewFlavor(_Body, frozen=True, kw_only=True):
    name: str
    ram: Number
    vcpus: Number
    disk: Number
    id: str | int | None = None
    ephemeral: Number | None = msgspec.field(name="OS-FLV-EXT-DATA:ephemeral", default=None)
    swap: Number | None = None
    rxtx_factor: float | str | None = None
    is_public: bool | None = msgspec.field(name="os-flavor-access:is_public", default=None)
    description: str | UnsetType | None = UNSET


class CreateFlavor(_Body, frozen=True, kw_only=True):
    flavor: NewFlavor


class Description(_Body, frozen=True, kw_only=True):
    description: str | None


class UpdateFlavor(_Body, frozen=True, kw_only=True):
    flavor: Description


# -- reading ------------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    return await _list(call, lambda flavor: _summary(call, flavor))


async def detail(call: Call) -> Response:
    return await _list(call, lambda flavor: _whole(call, flavor))


async def show(call: Call) -> Response:
    flavor = await call.read(lambda view: visible(view, call))
    return json({"flavor": _whole(call, flavor)})


async def _list(call: Call, shown: Callable[[Flavor], dict[str, Any]]) -> Response:
    query = query_of(call, "flavors", QUERY)
    wanted = await call.read(lambda view: _wanted(call, query, view.records.all(Flavor)))
    flavors, links = page(call, wanted, lambda flavor: flavor.id, shown)
    body: dict[str, Any] = {"flavors": flavors}
    if links:
        body["flavors_links"] = links
    return json(body)


def _wanted(call: Call, query: dict[str, str], flavors: Iterable[Flavor]) -> list[Flavor]:
    least_mb, least_gb = number_in(query, "minRam", 0), number_in(query, "minDisk", 0)
    is_public = _is_public(call, query)
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


def _is_public(call: Call, query: dict[str, str]) -> bool | None:
    """What the list is narrowed to; None for all that the caller may see."""
    text = query.get("is_public", "true").lower()
    if text in ("none", ""):
        return None
    if text in ("true", "1", "t", "yes", "on", "y"):
        return True
    if text in ("false", "0", "f", "no", "off", "n"):
        return False
    raise Problem(400, f"is_public is {text!r}; it must be true, false or none.")


def _is_asked_for(call: Call, flavor: Flavor, is_public: bool | None) -> bool:
    """True stands for those that the caller's project may use, None for all that the caller may see."""
    if is_public is None:
        return call.access.may_use_flavor(flavor)
    if is_public:
        return flavor.is_public or call.project in flavor.projects
    return not flavor.is_public and call.access.may_use_flavor(flavor)


def visible(view: View, call: Call) -> Flavor:
    """The flavor of the path; not found if it is not for the caller."""
    id = call.params[0]
    flavor = view.records.get(Flavor, id)
    if flavor is None or not call.access.may_use_flavor(flavor):
        raise not_found("Flavor", id)
    return flavor


# -- changing -----------------------------------------------------------------------------------


async def create(call: Call) -> Response:
    asked = call.decode(CreateFlavor).flavor
    if call.version < DESCRIPTION and not isinstance(asked.description, UnsetType):
        raise Problem(400, f"description is for microversion 2.{DESCRIPTION} and later.")
    flavor = _made(call, asked)

    def make(view: View, now_s: int) -> Command:
        if view.records.get(Flavor, flavor.id) is not None:
            raise Problem(409, f"Flavor with ID {flavor.id} already exists: choose another.")
        if view.records.find(Flavor, "name", flavor.name):
            raise Problem(409, f"Flavor with name {flavor.name} already exists: choose another.")
        return _kept(view, msgspec.structs.replace(flavor, created_at_s=now_s))

    return await call.submit(make, lambda view: json({"flavor": _whole(call, flavor)}))


def _made(call: Call, asked: NewFlavor) -> Flavor:
    name = asked.name
    if not 1 <= len(name) <= _NAME_MAX or name != name.strip() or not name.isprintable():
        raise Problem(
            400, f"name is {name!r}; it must have 1 to {_NAME_MAX} characters, without spaces at its ends."
        )
    id = call.services.ids.uuid() if asked.id in (None, "", "auto") else str(asked.id)
    if _ID.fullmatch(id) is None:
        raise Problem(
            400, f"id is {id!r}; it must have 1 to 255 letters, digits, dots, dashes, underscores or spaces."
        )
    if asked.rxtx_factor not in (None, 1.0, "1", "1.0"):
        raise Problem(
            400,
            f"rxtx_factor is {asked.rxtx_factor!r}; it must be 1.0 or left out: there are no networks here.",
        )
    return Flavor(
        id=id,
        name=name,
        vcpus=_size("vcpus", asked.vcpus, 1),
        memory_mb=_size("ram", asked.ram, 1),
        disk_gb=_size("disk", asked.disk, 0),
        ephemeral_gb=_size("OS-FLV-EXT-DATA:ephemeral", asked.ephemeral or 0, 0),
        swap_mb=_size("swap", asked.swap or 0, 0),
        is_public=asked.is_public is not False,
        description=_description(None if isinstance(asked.description, UnsetType) else asked.description),
    )


def _size(field: str, value: Number, least: int) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= AMOUNT_MAX):
        raise Problem(400, f"{field} is {value!r}; it must be a whole number from {least} to {AMOUNT_MAX}.")
    return int(text)


def _description(text: str | None) -> str | None:
    if text is not None and len(text) > _DESCRIPTION_MAX:
        raise Problem(400, f"description has {len(text)} characters; it may have {_DESCRIPTION_MAX} at most.")
    return text


async def update(call: Call) -> Response:
    if call.version < DESCRIPTION:
        raise Problem(404, f"Flavors can be changed from microversion 2.{DESCRIPTION} on.")
    text = _description(call.decode(UpdateFlavor).flavor.description)

    def make(view: View, now_s: int) -> Command:
        return _kept(view, msgspec.structs.replace(visible(view, call), description=text))

    return await call.submit(make, lambda view: json({"flavor": _whole(call, visible(view, call))}))


async def delete(call: Call) -> Response:
    def make(view: View, now_s: int) -> Command:
        return Enact((remove_record(view, visible(view, call)),))

    return await call.submit(make, lambda view: empty(202))


def _kept(view: View, flavor: Flavor) -> Command:
    """The flavor in place of what it was, if servers could be made with it."""
    return Enact((replace_record(view, checked(flavor)),))


def checked(flavor: Flavor) -> Flavor:
    """The flavor, if the scheduler can read it. Keys that it had before they were refused stay until they are
    taken away; no server is made with them."""
    ask = ask_of(flavor_sizes(flavor))
    if isinstance(ask, SpecInvalid):
        raise nova_problem(ask)
    size = count_bytes(flavor.extra_specs)
    if size > _SPECS_BYTES_MAX:
        raise Problem(
            400,
            f"The extra specs would have {size} bytes together; they may have {_SPECS_BYTES_MAX} at most.",
        )
    return flavor


# -- showing ------------------------------------------------------------------------------------


def _summary(call: Call, flavor: Flavor) -> dict[str, Any]:
    links = links_of(call, "flavors", flavor.id)
    shown: dict[str, Any] = {"id": flavor.id, "name": flavor.name, "links": links}
    if call.version >= DESCRIPTION:
        shown["description"] = flavor.description
    return shown


def _whole(call: Call, flavor: Flavor) -> dict[str, Any]:
    shown = _summary(call, flavor) | {
        "ram": flavor.memory_mb,
        "disk": flavor.disk_gb,
        "vcpus": flavor.vcpus,
        "swap": flavor.swap_mb if flavor.swap_mb or call.version >= _SWAP_IS_A_NUMBER else "",
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": flavor.is_public,
        "rxtx_factor": 1.0,
    }
    if call.version >= EXTRA_SPECS and call.allows("os_compute_api:os-flavor-extra-specs:index"):
        shown["extra_specs"] = flavor.extra_specs
    return shown


ROUTES: Final = (
    Route("GET", "/flavors", index, policy="berth:flavors:list"),
    Route("POST", "/flavors", create, policy="os_compute_api:os-flavor-manage:create"),
    Route("GET", "/flavors/detail", detail, policy="berth:flavors:list"),
    Route("GET", "/flavors/{id}", show, policy="berth:flavors:show"),
    Route("PUT", "/flavors/{id}", update, policy="os_compute_api:os-flavor-manage:update"),
    Route("DELETE", "/flavors/{id}", delete, policy="os_compute_api:os-flavor-manage:delete"),
)
