"""POST /servers: choose places, claim them and have servers built, in one act.

Where nothing fits the servers are there all the same, in ERROR, and say why: so it is in Nova, and so clients
expect it. A request that is wrong in itself is refused and leaves nothing.
"""

from typing import Final, NamedTuple

import msgspec

from berth.api.compute import server_bodies as sent
from berth.api.compute.server_access import require_room, require_since, usable_flavor, usable_image
from berth.api.compute.server_fields import hints_in, plain_disk, refuse_fields
from berth.api.compute.server_wire import DEFAULT_ZONE, DISK_CONFIG, reservation_id
from berth.api.compute.versions import base_url, links_of
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
from berth.model.servers import Image, Server, ServerHints
from berth.sagas import create as operation
from berth.scheduler.filters.zone import KIND as ZONE
from berth.scheduler.hosts import find_host
from berth.scheduler.spec_table import keep_properties
from berth.view import View

_SINCE: Final = {"description": 19, "tags": 52, "host": 74, "hypervisor_hostname": 74}


class _Where(NamedTuple):
    """``host`` is the only one considered; ``is_forced``: and no filter is asked about it."""

    zone: str | None = None
    host: str | None = None
    is_forced: bool = False


async def create(call: Call) -> Response:
    body = call.decode(sent.NewServerBody)
    asked = body.server
    hints = call.convert(hints_in(body.hints, body.hints_too), sent.NewServerHints)
    require_since(call, asked, _SINCE)
    refuse_fields("create", asked, block_device_mapping_v2=plain_disk(asked.image_ref))
    at_least, at_most = _counts(asked)
    where = _where(call, asked)
    names = _names(sent.checked_name(asked.name), at_most)
    ids = [call.services.ids.uuid() for _ in names]
    who = call.context()

    def servers(view: View) -> tuple[Server, ...]:
        first = _described(call, view, asked, hints, where)
        return tuple(
            msgspec.structs.replace(first, id=id, name=name) for id, name in zip(ids, names, strict=True)
        )

    def propose(view: View, now_s: int) -> Enact | Rejection:
        made = servers(view)
        return operation.propose(view, now_s, who, made, at_least, host=where.host, is_forced=where.is_forced)

    outcome = await call.try_submit(propose, lambda _: None)
    if isinstance(outcome, Rejection):
        if not is_no_place(outcome):
            raise call.problem_of(outcome)
        why = why_no_place(outcome)
        await call.submit(
            lambda view, now_s: operation.record_unplaced(view, now_s, who, servers(view)[:at_least], why),
            lambda _: None,
        )
    return _accepted(call, asked, ids[0])


def _accepted(call: Call, asked: sent.NewServer, id: str) -> Response:
    if asked.return_reservation_id:
        return json({"reservation_id": reservation_id(call.request.request_id)}, 202)
    server = {
        "id": id,
        "links": links_of(call, "servers", id),
        "OS-DCF:diskConfig": DISK_CONFIG,
        "security_groups": [],
    }
    return json({"server": server}, 202, (("location", f"{base_url(call)}/servers/{id}"),))


def _counts(asked: sent.NewServer) -> tuple[int, int]:
    at_least = asked.min_count or 1
    at_most = asked.max_count or at_least
    if at_least > at_most:
        raise Problem(
            400, f"Invalid input: min_count is {at_least}, and must not be above max_count, {at_most}."
        )
    return at_least, at_most


def _names(name: str, count: int) -> list[str]:
    if count == 1:
        return [name]
    # A name may have 255 characters, its number included.
    return [f"{name[: 255 - len(str(number)) - 1]}-{number}" for number in range(1, count + 1)]


# -- where --------------------------------------------------------------------------------------


def _where(call: Call, asked: sent.NewServer) -> _Where:
    zone, forced = _zone_and_host(asked.availability_zone or "")
    named = {host for host in (asked.host, asked.hypervisor_hostname) if isinstance(host, str)}
    if not forced and not named:
        return _Where(zone)
    if forced:
        call.require("os_compute_api:servers:create:forced_host")
    if named:
        call.require(REQUESTED_DESTINATION)
    if len(named | ({forced} if forced else set())) > 1:
        raise Problem(400, "The request names several hosts: name one, in availability_zone or in host.")
    if forced:
        return _Where(None if zone == DEFAULT_ZONE else zone, forced, is_forced=True)
    return _Where(zone, named.pop())


def _zone_and_host(text: str) -> tuple[str | None, str | None]:
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
    if zone != DEFAULT_ZONE and all(labels[id].name != zone for id in view.groups.of_kind(ZONE)):
        raise Problem(400, f"The requested availability zone {zone} is not available: there is none.")


def require_host(view: View, name: str) -> str:
    """The name of a host that is named, or given by its uuid."""
    host = find_host(view, name)
    if host is None:
        raise nova_problem(HostUnknown(name))
    return host.name


# -- what ---------------------------------------------------------------------------------------


def _described(
    call: Call, view: View, asked: sent.NewServer, hints: sent.NewServerHints, where: _Where
) -> Server:
    """The server as it is asked for, or what is wrong with that."""
    flavor = usable_flavor(call, view, asked.flavor_ref)
    image = usable_image(call, view, asked.image_ref) if asked.image_ref else None
    if image is not None:
        require_room(flavor, image)
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
        image_properties={} if image is None else _properties(image),
        zone=where.zone,
        group=_group(call, view, hints.group),
        hints=ServerHints(
            _servers(call, view, "same_host", hints.same_host),
            _servers(call, view, "different_host", hints.different_host),
        ),
        metadata=sent.checked_metadata(asked.metadata),
        description=asked.description if isinstance(asked.description, str) else None,
    )


def _properties(image: Image) -> dict[str, str]:
    kept = keep_properties(image.properties)
    if isinstance(kept, SpecInvalid):
        raise nova_problem(kept)
    return kept


def _group(call: Call, view: View, named: str | None) -> str | None:
    if named is None:
        return None
    record = view.groups.records.get(GroupId(named.lower()))
    if record is None or not call.access.sees(record.group.project):
        raise Problem(400, f"The hint group names {named}, and there is no such server group.")
    return record.id


def _servers(call: Call, view: View, hint: str, named: str | list[str]) -> tuple[str, ...]:
    """The servers that a hint names. One that is not there for the caller is as good as none: where it is
    must not be found out with a hint."""
    ids = tuple(id.lower() for id in ([named] if isinstance(named, str) else named))
    for id in ids if not call.is_admin else ():
        server = view.records.get(Server, id)
        if server is None or not call.access.sees(server.project):
            raise nova_problem(UnknownConsumer(hint, ConsumerId(id)))
    return ids


ROUTES: Final = (Route("POST", "/servers", create, policy="os_compute_api:servers:create"),)
