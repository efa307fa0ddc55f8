"""POST /servers: choose places, claim them and have servers built, in one change.

Where nothing fits, the servers are created all the same, in ERROR, and say why: Nova does so, and clients
expect it. A request that is wrong in itself is refused and leaves nothing.
"""

from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.servers.fields import (
    DISK_CONFIG,
    BuildBody,
    HostName,
    Metadata,
    Name,
    Ref,
    Text,
    check_metadata,
    check_name,
    list_plain_disks,
    read_hints,
    refuse_fields,
)
from berth.api.compute.servers.show import make_reservation_id
from berth.api.compute.versions import make_base_url, make_links, require_since
from berth.api.kernel.auth.rules import REQUESTED_DESTINATION
from berth.api.kernel.call import Call, json
from berth.api.kernel.disclosure import is_no_place
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import nova_problem, why_no_place
from berth.api.kernel.router import Route
from berth.model.commands import Enact
from berth.model.ids import ConsumerId, GroupId
from berth.model.rejections import HostUnknown, Rejection, SpecInvalid, UnknownConsumer
from berth.model.servers import Flavor, Image, Server, ServerHints
from berth.sagas import create
from berth.scheduler.filters.zone import KIND as ZONE
from berth.scheduler.filters.zone import NO_ZONE
from berth.scheduler.hosts import find_host
from berth.scheduler.spec_table import keep_properties, wrong_extra_spec, wrong_image_property
from berth.view import View

COUNT_MAX: Final = 1000
_HINTS_MAX: Final = 100
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Uuids = (
    Annotated[str, Meta(min_length=1, max_length=64)]
    | Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(max_length=_HINTS_MAX)]
)


class NewServer(BuildBody, kw_only=True, frozen=True):
    name: Name
    flavor_ref: Ref | int
    image_ref: Ref | None = None
    min_count: Count | None = None
    max_count: Count | None = None
    availability_zone: Annotated[str, Meta(max_length=600)] | None = None
    host: HostName | UnsetType = UNSET
    hypervisor_hostname: HostName | UnsetType = UNSET
    metadata: Metadata = msgspec.field(default_factory=dict)
    key_name: Name | None = None
    description: Text | UnsetType | None = UNSET
    return_reservation_id: bool = False
    tags: list[Any] | UnsetType = UNSET
    networks: Any = None
    block_device_mapping: Any = None
    block_device_mapping_v2: Any = None
    config_drive: Any = None
    security_groups: Any = None


class NewServerHints(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    group: Annotated[str, Meta(max_length=64)] | None = None
    same_host: Uuids = []
    different_host: Uuids = []


class NewServerBody(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"hints": "OS-SCH-HNT:scheduler_hints", "hints_too": "os:scheduler_hints"},
):
    server: NewServer
    hints: dict[str, Any] | None = None
    hints_too: dict[str, Any] | None = None


_SINCE: Final = {"description": 19, "tags": 52, "host": 74, "hypervisor_hostname": 74}


class _RequestedPlace(NamedTuple):
    """``host`` is the only host considered; ``is_forced``: without asking the filters."""

    zone: str | None = None
    host: str | None = None
    is_forced: bool = False


async def create_server(call: Call) -> Response:
    body = call.decode(NewServerBody)
    asked = body.server
    hints = call.convert(read_hints(body.hints, body.hints_too), NewServerHints)
    require_since(call, asked, _SINCE)
    refuse_fields("create", asked, block_device_mapping_v2=list_plain_disks(asked.image_ref))
    at_least, at_most = _read_counts(asked)
    where = _read_place(call, asked)
    names = _number_names(check_name(asked.name), at_most)
    ids = [call.services.ids.uuid() for _ in names]
    context = call.context()

    def make_servers(view: View) -> tuple[Server, ...]:
        first = _describe_server(call, view, asked, hints, where)
        return tuple(
            msgspec.structs.replace(first, id=id, name=name) for id, name in zip(ids, names, strict=True)
        )

    def propose(view: View, now_s: int) -> Enact | Rejection:
        made = make_servers(view)
        return create.propose(
            view, now_s, context, made, at_least, host=where.host, is_forced=where.is_forced
        )

    outcome = await call.try_submit(propose, lambda _: None)
    if isinstance(outcome, Rejection):
        if not is_no_place(outcome):
            raise call.problem_of(outcome)
        why = why_no_place(outcome)
        await call.submit(
            lambda view, now_s: create.record_unplaced(
                view, now_s, context, make_servers(view)[:at_least], why
            ),
            lambda _: None,
        )
    return _respond(call, asked, ids[0])


def _respond(call: Call, asked: NewServer, id: str) -> Response:
    if asked.return_reservation_id:
        return json({"reservation_id": make_reservation_id(call.request.request_id)}, 202)
    server = {
        "id": id,
        "links": make_links(call, "servers", id),
        "OS-DCF:diskConfig": DISK_CONFIG,
        "security_groups": [],
    }
    return json({"server": server}, 202, (("location", f"{make_base_url(call)}/servers/{id}"),))


def _read_counts(asked: NewServer) -> tuple[int, int]:
    at_least = asked.min_count or 1
    at_most = asked.max_count or at_least
    if at_least > at_most:
        raise Problem(
            400,
            f"Invalid input: min_count is {at_least}; it must not be above max_count, {at_most}.",
        )
    return at_least, at_most


def _number_names(name: str, count: int) -> list[str]:
    if count == 1:
        return [name]
    # A name may have 255 characters, its number included.
    return [f"{name[: 255 - len(str(number)) - 1]}-{number}" for number in range(1, count + 1)]


# -- where it is to be --------------------------------------------------------------------------


def _read_place(call: Call, asked: NewServer) -> _RequestedPlace:
    zone, forced = _read_zone(asked.availability_zone or "")
    named = {host for host in (asked.host, asked.hypervisor_hostname) if isinstance(host, str)}
    if not forced and not named:
        return _RequestedPlace(zone)
    if forced:
        call.require("os_compute_api:servers:create:forced_host")
    if named:
        call.require(REQUESTED_DESTINATION)
    if len(named | ({forced} if forced else set())) > 1:
        raise Problem(400, "The request names several hosts: name one, in availability_zone or in host.")
    if forced:
        return _RequestedPlace(None if zone == NO_ZONE else zone, forced, is_forced=True)
    return _RequestedPlace(zone, named.pop())


def _read_zone(text: str) -> tuple[str | None, str | None]:
    """ZONE, ZONE:HOST or ZONE:HOST:NODE. A host is its only node here."""
    zone, *rest = text.split(":")
    hosts = {part for part in rest if part}
    if len(rest) > 2 or len(hosts) > 1:
        raise Problem(
            400,
            f"Invalid input: availability_zone is {text!r}; it must be ZONE, ZONE:HOST or ZONE:HOST:HOST.",
        )
    return zone or None, next(iter(hosts), None)


def require_zone(view: View, zone: str) -> None:
    labels = view.groups.labels
    if zone != NO_ZONE and all(labels[id].name != zone for id in view.groups.of_kind(ZONE)):
        raise Problem(400, f"The requested availability zone {zone} is not available: it does not exist.")


def require_host(view: View, name: str) -> str:
    """The name of a host, given by its name or its uuid."""
    host = find_host(view, name)
    if host is None:
        raise nova_problem(HostUnknown(name))
    return host.name


# -- what it is to be ---------------------------------------------------------------------------


def _describe_server(
    call: Call, view: View, asked: NewServer, hints: NewServerHints, where: _RequestedPlace
) -> Server:
    """The server that is asked for. Problem if something is wrong with the request."""
    flavor = find_usable_flavor(call, view, asked.flavor_ref)
    image = find_usable_image(call, view, asked.image_ref) if asked.image_ref else None
    if image is not None:
        _require_room(flavor, image)
    if where.zone is not None:
        require_zone(view, where.zone)
    if where.host is not None:
        require_host(view, where.host)
    return Server(
        id="",
        name=asked.name,
        project=call.project,
        user=call.user,
        flavor=flavor,
        image=None if image is None else image.id,
        image_properties={} if image is None else _read_properties(image),
        zone=where.zone,
        group=_find_group(call, view, hints.group),
        hints=ServerHints(
            _find_hinted(call, view, "same_host", hints.same_host),
            _find_hinted(call, view, "different_host", hints.different_host),
        ),
        metadata=check_metadata(asked.metadata),
        description=asked.description if isinstance(asked.description, str) else None,
    )


def _read_properties(image: Image) -> dict[str, str]:
    kept = keep_properties(image.properties)
    if isinstance(kept, SpecInvalid):
        raise nova_problem(kept)
    return kept


def _find_group(call: Call, view: View, named: str | None) -> str | None:
    if named is None:
        return None
    record = view.groups.records.get(GroupId(named.lower()))
    if record is None or not call.access.sees(record.group.project):
        raise Problem(400, f"The hint group names {named}, which is not a server group.")
    return record.id


def _find_hinted(call: Call, view: View, hint: str, named: str | list[str]) -> tuple[str, ...]:
    """The servers that a hint names. A server that the caller cannot see is refused like one that does not
    exist: a hint must not tell where it is."""
    ids = tuple(id.lower() for id in ([named] if isinstance(named, str) else named))
    for id in ids if not call.is_admin else ():
        server = view.records.get(Server, id)
        if server is None or not call.access.sees(server.project):
            raise nova_problem(UnknownConsumer(hint, ConsumerId(id)))
    return ids


# -- flavors and images that a request names ----------------------------------------------------


def find_usable_flavor(call: Call, view: View, ref: str | int) -> Flavor:
    """The flavor that a request names, by its id or a URL that ends in it. A server keeps a copy of it,
    without the projects that may use it."""
    id = _read_id(str(ref))
    flavor = view.records.get(Flavor, id)
    if flavor is None or not call.access.may_use_flavor(flavor):
        raise Problem(400, f"Flavor {id} could not be found.")
    _refuse_specs(f"Flavor {id}", wrong_extra_spec(flavor.extra_specs))
    return msgspec.structs.replace(flavor, projects=())


def find_usable_image(call: Call, view: View, ref: str) -> Image:
    """The image that a request names, if a server can be made from it."""
    id = _read_id(ref)
    image = view.records.get(Image, id)
    if image is None or not call.access.may_use_image(image):
        raise Problem(400, f"Image {id} could not be found.")
    if image.status != "active":
        raise Problem(400, f"Image {id} is {image.status}: it must be active.")
    _refuse_specs(f"Image {id}", wrong_image_property(image.properties))
    return image


def _refuse_specs(what: str, wrong: SpecInvalid | None) -> None:
    """Refuse a flavor or image that has a key which has been refused since it was made."""
    if wrong is not None:
        raise Problem(400, f"{what} cannot be used: {nova_problem(wrong).text}")


def _require_room(flavor: Flavor, image: Image) -> None:
    """Refuse a flavor that an image says is too small for it. A disk of 0 is as large as the image."""
    if flavor.memory_mb < image.min_memory_mb:
        raise Problem(
            400,
            f"Flavor {flavor.id} has {flavor.memory_mb} MB of memory, and image {image.id} needs at least "
            f"{image.min_memory_mb}: choose a larger flavor.",
        )
    if flavor.disk_gb and flavor.disk_gb < image.min_disk_gb:
        raise Problem(
            400,
            f"Flavor {flavor.id} has a disk of {flavor.disk_gb} GB, and image {image.id} needs at least "
            f"{image.min_disk_gb}: choose a larger flavor.",
        )


def _read_id(ref: str) -> str:
    return ref.rstrip("/").rpartition("/")[2]


ROUTES: Final = (Route("POST", "/servers", create_server, policy="os_compute_api:servers:create"),)
