"""POST /servers: choose places, claim them and have servers built, in one change.

Where nothing fits, the servers are created all the same, in ERROR, and say why: Nova does so, and clients
expect it. A request that is wrong in itself is refused and leaves nothing.
"""

import logging
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.servers.fields import (
    SINCE,
    BuildBody,
    HostName,
    Metadata,
    Name,
    Ref,
    Text,
    change_guest,
    check_guest,
    check_name,
    find_excess,
    list_plain_disks,
    read_hints,
    refuse_fields,
    show_password,
)
from berth.api.compute.servers.show import make_reservation_id
from berth.api.compute.servers.tags import Tags
from berth.api.compute.versions import make_base_url, make_links, require_since
from berth.api.kernel.access import is_no_place
from berth.api.kernel.auth.rules import REQUESTED_DESTINATION
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.images import fetch_images, find_images
from berth.api.kernel.needs import RULE, NeedBodies, make_needs, object_to_needs
from berth.api.kernel.paging import read_flag
from berth.api.kernel.ports import name_port_need, read_port_needs
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import explain_rejection, why_no_place
from berth.api.kernel.router import Route
from berth.ledger.ports import find_used_port
from berth.model.commands import Enact
from berth.model.ids import ConsumerId, GroupId
from berth.model.rejections import (
    BuildSourceNotFound,
    BuildSourceUnusable,
    FlavorTooSmall,
    HintedGroupNotFound,
    HostUnknown,
    ImageNotActive,
    NamedKeyPairNotFound,
    Rejection,
    UnknownConsumer,
    ZoneNotFound,
)
from berth.model.scheduling import ScheduleRequest
from berth.model.servers import (
    NEEDS_MAX,
    Flavor,
    Guest,
    Image,
    KeyPair,
    Need,
    Server,
    ServerHints,
    key_pair_id,
)
from berth.sagas import create
from berth.sagas.needs import find_wrong
from berth.sagas.requests import copy_flavor, flavor_sizes
from berth.scheduler.explain import explain
from berth.scheduler.filters.zone import KIND as ZONE
from berth.scheduler.filters.zone import NO_ZONE
from berth.scheduler.flavors import wrong_flavor
from berth.scheduler.hosts import find_host
from berth.scheduler.spec_table import keep_properties, wrong_image_property
from berth.view import View

_log = logging.getLogger(__name__)

COUNT_MAX: Final = 1000
_HINTS_MAX: Final = 100
_EXPLAINED_MAX: Final = 2000
_UUID: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\Z"
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
    needs: NeedBodies = ()
    return_reservation_id: bool = False
    tags: Tags | UnsetType = UNSET
    networks: Any = None
    block_device_mapping: Any = None
    block_device_mapping_v2: Any = None
    config_drive: bool | str | None = None
    security_groups: Any = None


class _PortOnly(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network of a new server, where it is given by a port alone."""

    port: Annotated[str, Meta(pattern=_UUID)]


class _PortNetworks(msgspec.Struct, frozen=True):
    networks: Annotated[tuple[_PortOnly, ...], Meta(max_length=NEEDS_MAX)]


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


_SINCE: Final = {**SINCE, "description": 19, "tags": 52, "host": 74, "hypervisor_hostname": 74}


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
    ports = _read_ports(call, asked.networks)
    refuse_fields(
        "create",
        asked,
        block_device_mapping_v2=list_plain_disks(asked.image_ref),
        networks=(asked.networks,) if ports else (),
    )
    at_least, at_most = _read_counts(asked)
    if ports and at_most > 1:
        raise Problem(400, f"Invalid input: networks names ports, and max_count is {at_most}; it must be 1.")
    where = _read_place(call, asked)
    needs = _read_needs(call, asked, ports)
    check_name(asked.name)
    check_guest(call, asked)
    has_config_drive = _read_config_drive(asked.config_drive)
    call.accept(find_excess(asked.metadata))
    await fetch_image(call, asked.image_ref)
    needs += call.accept(await read_port_needs(call.services.ports, ports, call.project))
    names = _number_names(asked.name, at_most)
    ids = [call.services.ids.uuid() for _ in names]
    context = call.context()

    def make_servers(view: View) -> tuple[Server, ...] | Rejection:
        first = _describe_server(call, view, asked, hints, where, needs, has_config_drive)
        if isinstance(first, Rejection):
            return first
        return tuple(
            msgspec.structs.replace(first, id=id, name=name) for id, name in zip(ids, names, strict=True)
        )

    def propose(view: View, now_s: int) -> Enact | Rejection:
        made = make_servers(view)
        if isinstance(made, Rejection):
            return made
        return create.propose(
            view, now_s, context, made, at_least, host=where.host, is_forced=where.is_forced
        )

    outcome = await call.try_submit(propose, lambda _: None)
    if isinstance(outcome, Rejection):
        if not is_no_place(outcome):
            raise call.problem_of(outcome)
        why = why_no_place(outcome)

        def ask(view: View) -> ScheduleRequest | Rejection:
            made = make_servers(view)
            if isinstance(made, Rejection):
                return made
            return create.ask_places(
                context, made[:at_least], at_least, host=where.host, is_forced=where.is_forced
            )

        details, explained = await _explain(call, ask)

        def record(view: View, now_s: int) -> Enact | Rejection:
            made = make_servers(view)
            if isinstance(made, Rejection):
                return made
            return create.record_unplaced(view, now_s, context, made[:at_least], why, details, explained)

        await call.submit(record, lambda _: None)
        for id in ids[:at_least]:
            about = {"request_id": call.request.ids, "server": id}
            _log.warning("server %s: create failed, no host was found: %s", id, why, extra=about)
    return _respond(call, asked, ids[0])


async def _explain(
    call: Call, ask: Callable[[View], ScheduleRequest | Rejection]
) -> tuple[str | None, str | UnsetType]:
    """Why there is no place, with hosts and without: which constraint removes how many of them, and the
    smallest change that would help. Nothing, if there is a place by now, or explanations have taken their
    share of this process's time."""
    share, options = call.services.explanations, call.services.scheduler

    def read(view: View) -> tuple[str | None, str | UnsetType]:
        request = ask(view)
        if isinstance(request, Rejection):
            return None, UNSET
        texts = []
        for names_hosts in (True, False):
            found = explain(view, request, options, explain_rejection, names_hosts=names_hosts)
            if isinstance(found, Rejection) or found.fitting >= found.needed:
                return None, UNSET
            texts.append(found.text[:_EXPLAINED_MAX])
        return texts[0], texts[1]

    if not share.is_free:
        return None, UNSET
    with share.spend():
        return await call.read(read)


def _respond(call: Call, asked: NewServer, id: str) -> Response:
    if asked.return_reservation_id:
        return json({"reservation_id": make_reservation_id(call.request.request_id)}, 202)
    server = {
        "id": id,
        "links": make_links(call, "servers", id),
        "OS-DCF:diskConfig": "AUTO" if asked.disk_config == "AUTO" else "MANUAL",
        "security_groups": [],
        **show_password(asked.admin_pass, call.services.ids),
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


def _read_ports(call: Call, networks: Any) -> tuple[str, ...]:
    """The ports that a request names; none, where they cannot be read or others than ports are named."""
    is_list = isinstance(networks, list) and any(isinstance(one, dict) and "port" in one for one in networks)
    if call.services.ports is None or not is_list:
        return ()
    ports = tuple(one.port.lower() for one in call.convert({"networks": networks}, _PortNetworks).networks)
    twice = next((port for number, port in enumerate(ports) if port in ports[:number]), None)
    if twice is not None:
        raise Problem(400, f"Invalid input: networks names port {twice} more than once.")
    return ports


def _read_needs(call: Call, asked: NewServer, ports: tuple[str, ...]) -> tuple[Need, ...]:
    if asked.needs:
        call.require(RULE)
    names = {name_port_need(port) for port in ports}
    taken = next((need.name for need in asked.needs if need.name in names), None)
    wrong = object_to_needs(asked.needs) or (taken and f"{taken} is the name of the need of a port")
    if wrong is not None:
        raise Problem(400, f"Invalid input: berth:needs: {wrong}.")
    return make_needs(asked.needs)


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


def find_missing_zone(view: View, zone: str | UnsetType | None) -> ZoneNotFound | None:
    """The zone that a request names, if there is none."""
    if not isinstance(zone, str) or zone == NO_ZONE:
        return None
    labels = view.groups.labels
    return None if any(labels[id].name == zone for id in view.groups.of_kind(ZONE)) else ZoneNotFound(zone)


def find_host_name(view: View, named: str | UnsetType | None) -> str | HostUnknown | None:
    """The name of the host that a request names by its name or its uuid, if it names one."""
    if not isinstance(named, str):
        return None
    host = find_host(view, named)
    return HostUnknown(named) if host is None else host.name


# -- what it is to be ---------------------------------------------------------------------------


def _describe_server(
    call: Call,
    view: View,
    asked: NewServer,
    hints: NewServerHints,
    where: _RequestedPlace,
    needs: tuple[Need, ...],
    has_config_drive: bool,
) -> Server | Rejection:
    """The server that is asked for, if it can be built from what the request names."""
    flavor = find_usable_flavor(call, view, asked.flavor_ref)
    if isinstance(flavor, Rejection):
        return flavor
    image = find_usable_image(call, view, asked.image_ref) if asked.image_ref else None
    if isinstance(image, Rejection):
        return image
    properties = {} if image is None else keep_properties(image.properties)
    if isinstance(properties, Rejection):
        return properties
    key = find_key(view, call.user, asked.key_name)
    if isinstance(key, Rejection):
        return key
    group = _find_group(call, view, hints.group)
    if isinstance(group, Rejection):
        return group
    wrong = (
        (None if image is None else _find_shortage(flavor, image))
        or find_missing_zone(view, where.zone)
        or _find_missing_host(view, where.host)
        or _find_unknown(call, view, "same_host", hints.same_host)
        or _find_unknown(call, view, "different_host", hints.different_host)
        or find_wrong(view, needs)
    )
    if wrong is not None:
        return wrong
    server = Server(
        id="",
        name=asked.name,
        project=call.project,
        user=call.user,
        flavor=flavor,
        image=None if image is None else image.id,
        image_properties=properties,
        zone=where.zone,
        group=group,
        hints=ServerHints(_list_ids(hints.same_host), _list_ids(hints.different_host)),
        metadata=asked.metadata,
        description=asked.description if isinstance(asked.description, str) else None,
        needs=needs,
        key_name=asked.key_name,
        guest=Guest(has_config_drive=has_config_drive, public_key=key),
        tags=() if isinstance(asked.tags, UnsetType) else tuple(dict.fromkeys(asked.tags)),
    )
    server = change_guest(server, asked)
    return find_used_port(view, server.ports) or server


def find_key(view: View, user: str, name: str | UnsetType | None) -> str | NamedKeyPairNotFound | None:
    """The public key of the key pair that a request names, if it names one."""
    if not isinstance(name, str):
        return None
    pair = view.records.get(KeyPair, key_pair_id(user, name))
    return NamedKeyPairNotFound(name) if pair is None else pair.public_key


def _read_config_drive(given: bool | str | None) -> bool:
    if not given:
        return False
    return read_flag({"config_drive": str(given)}, "config_drive")


def _find_missing_host(view: View, named: str | None) -> HostUnknown | None:
    host = find_host_name(view, named)
    return host if isinstance(host, HostUnknown) else None


def _find_group(call: Call, view: View, named: str | None) -> str | HintedGroupNotFound | None:
    if named is None:
        return None
    record = view.groups.records.get(GroupId(named.lower()))
    if record is None or not call.access.sees(record.group.project):
        return HintedGroupNotFound(named)
    return record.id


def _find_unknown(call: Call, view: View, hint: str, named: str | list[str]) -> UnknownConsumer | None:
    """The first server of a hint that the caller cannot see. It is refused like one that does not exist: a
    hint must not tell where it is."""
    for id in _list_ids(named) if not call.is_admin else ():
        server = view.records.get(Server, id)
        if server is None or not call.access.sees(server.project):
            return UnknownConsumer(hint, ConsumerId(id))
    return None


def _list_ids(named: str | list[str]) -> tuple[str, ...]:
    return tuple(id.lower() for id in ([named] if isinstance(named, str) else named))


# -- flavors and images that a request names ----------------------------------------------------


def find_usable_flavor(call: Call, view: View, ref: str | int) -> Flavor | Rejection:
    """A copy of the flavor that a request names, by its id or a URL that ends in it."""
    id = _read_id(str(ref))
    flavor = view.records.get(Flavor, id)
    if flavor is None or not call.access.may_use_flavor(flavor):
        return BuildSourceNotFound("Flavor", id)
    wrong = wrong_flavor(flavor_sizes(flavor))
    if wrong is not None:
        return BuildSourceUnusable("Flavor", id, wrong)
    return copy_flavor(flavor, call.services.scheduler.devices)


async def fetch_image(call: Call, ref: str | None) -> None:
    """Ask the Glance, if there is one, for the image that a request names."""
    if ref:
        await fetch_images(call.services.glance, call, (_read_id(ref),))


def find_usable_image(call: Call, view: View, ref: str) -> Image | Rejection:
    """The image that a request names, if a server can be made from it."""
    id = _read_id(ref)
    image = next(iter(find_images(call, view, id)), None)
    if image is None:
        return BuildSourceNotFound("Image", id)
    if image.status != "active":
        return ImageNotActive(id, image.status)
    wrong = wrong_image_property(image.properties)
    return image if wrong is None else BuildSourceUnusable("Image", id, wrong)


def _find_shortage(flavor: Flavor, image: Image) -> FlavorTooSmall | None:
    """Of what a flavor has less than the image says it needs. A disk of 0 is as large as the image."""
    if flavor.memory_mb < image.min_memory_mb:
        return FlavorTooSmall(flavor.id, image.id, "memory", flavor.memory_mb, image.min_memory_mb)
    if flavor.disk_gb and flavor.disk_gb < image.min_disk_gb:
        return FlavorTooSmall(flavor.id, image.id, "disk", flavor.disk_gb, image.min_disk_gb)
    return None


def _read_id(ref: str) -> str:
    return ref.rstrip("/").rpartition("/")[2]


ROUTES: Final = (Route("POST", "/servers", create_server, policy="os_compute_api:servers:create"),)
