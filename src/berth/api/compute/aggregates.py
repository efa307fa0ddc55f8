"""/os-aggregates and /os-availability-zone: sets of hosts with metadata that flavors may ask for, and zones.

An aggregate is a record and, under the same uuid, an aggregate of the ledger that its hosts are in and whose
label has the metadata. Record, label and hosts change together or not at all. Numbers count up, and the uuid
follows from the number: of two callers that create an aggregate at once, one is asked again.

A zone is an aggregate of its own, labelled with the kind "zone": the scheduler and the groups know it as a
domain. The hosts in it are those of all of Nova's aggregates that name the zone. For a change of one such
aggregate A:

    hosts that A had and has not:  leave A;  leave A's zone, unless another of their aggregates names it
    hosts that A has afterwards:   join A;   join A's new zone, and leave the one that it had before

A new aggregate or zone has only the hosts that the change puts into it: a uuid that can be predicted is no
way in. A host is in one zone at most; a host in no zone is in "nova", as in Nova. Whatever else it is in (its
cell, a rack) stays.
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route
from berth.api.kernel.times import show_plain_time
from berth.ledger import remove_record, replace_record
from berth.model.commands import Command, Enact, LabelAggregate, LedgerCommand, SetAggregates
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import HEALTHY, Label
from berth.model.rejections import (
    AggregateHasHost,
    AggregateInUse,
    AggregateLacksHost,
    AggregateNameTaken,
    AggregateNotFound,
    ComputeHostNotFound,
    ComputeHostUnregistered,
    HostInAnotherZone,
    Rejection,
    TooManyAggregateKeys,
    ZoneOfServers,
)
from berth.model.servers import Aggregate, Host, Server
from berth.scheduler.filters.zone import KIND, NO_ZONE
from berth.scheduler.hosts import aggregate_names
from berth.scheduler.spec_table import wrong_metadata
from berth.view import ProviderRecord, View

_SHOWS_UUID: Final = 41
_ZONE_KEY: Final = "availability_zone"
_METADATA_MAX: Final = 100
_AGGREGATE_NAMESPACE: Final = uuid.UUID("0d7ae2ce-3b0a-4a53-8d3b-5d2f0e6f5a10")

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=255)]


class _AggregateBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class NewAggregate(_AggregateBody, frozen=True, kw_only=True):
    name: Name
    availability_zone: Name | None = None


class CreateAggregate(_AggregateBody, frozen=True, kw_only=True):
    aggregate: NewAggregate


class ChangedAggregate(_AggregateBody, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    availability_zone: Name | UnsetType | None = UNSET


class UpdateAggregate(_AggregateBody, frozen=True, kw_only=True):
    aggregate: ChangedAggregate


class AggregateHost(_AggregateBody, frozen=True, kw_only=True):
    host: Name


class AggregateMetadata(_AggregateBody, frozen=True, kw_only=True):
    metadata: Annotated[dict[Name, Text | None], Meta(max_length=_METADATA_MAX)]


class AggregateAction(_AggregateBody, frozen=True, kw_only=True):
    add_host: AggregateHost | None = None
    remove_host: AggregateHost | None = None
    set_metadata: AggregateMetadata | None = None


# -- reading ------------------------------------------------------------------------------------


async def list_aggregates(call: Call) -> Response:
    read_query(call, "aggregates", {})

    def answer(view: View) -> Response:
        aggregates = sorted(view.records.all(Aggregate), key=lambda aggregate: aggregate.number)
        return json({"aggregates": [_show_whole(call, view, aggregate) for aggregate in aggregates]})

    return await call.read(answer)


async def show_aggregate(call: Call) -> Response:
    return await call.read(lambda view: _respond_found(call, view))


def _find_aggregate(view: View, call: Call) -> Aggregate | AggregateNotFound:
    for aggregate in view.records.all(Aggregate):
        if str(aggregate.number) == call.params[0]:
            return aggregate
    return AggregateNotFound(call.params[0])


# -- changing -----------------------------------------------------------------------------------


async def create_aggregate(call: Call) -> Response:
    asked = call.decode(CreateAggregate).aggregate
    name, zone = _check_name(asked.name), _check_zone(asked.availability_zone)

    def propose(view: View, now_s: int) -> Command | Rejection:
        if _is_taken(view, name, None):
            return AggregateNameTaken(name)
        number = max((other.number for other in view.records.all(Aggregate)), default=0) + 1
        id = str(uuid.uuid5(_AGGREGATE_NAMESPACE, str(number)))
        aggregate = Aggregate(id=id, number=number, name=name, zone=zone, created_at_s=now_s)
        return _replace_aggregate(view, None, aggregate, ())

    def answer(view: View) -> Response:
        [made] = [aggregate for aggregate in view.records.all(Aggregate) if aggregate.name == name]
        shown = _show_whole(call, view, made)
        # A new aggregate has neither, and Nova does not say so.
        return json({"aggregate": {key: shown[key] for key in shown if key not in ("hosts", "metadata")}})

    return await call.submit(propose, answer)


async def update_aggregate(call: Call) -> Response:
    asked = call.decode(UpdateAggregate).aggregate
    if asked.name is UNSET and asked.availability_zone is UNSET:
        raise Problem(400, "There is nothing to change: give name or availability_zone.")
    changes: dict[str, str | None] = {}
    if not isinstance(asked.name, UnsetType):
        changes["name"] = _check_name(asked.name)
    if not isinstance(asked.availability_zone, UnsetType):
        changes["zone"] = _check_zone(asked.availability_zone)

    def propose(view: View, now_s: int) -> Command | Rejection:
        before = _find_aggregate(view, call)
        if isinstance(before, Rejection):
            return before
        after = msgspec.structs.replace(before, **changes, updated_at_s=now_s)
        if _is_taken(view, after.name, before.id):
            return AggregateNameTaken(after.name)
        return _replace_aggregate(view, before, after, _list_hosts(view, before))

    return await call.submit(propose, lambda view: _respond_found(call, view))


async def delete_aggregate(call: Call) -> Response:
    def propose(view: View, now_s: int) -> Command | Rejection:
        aggregate = _find_aggregate(view, call)
        if isinstance(aggregate, Rejection):
            return aggregate
        hosts = _list_hosts(view, aggregate)
        if hosts:
            return AggregateInUse(aggregate.number, len(hosts))
        return _replace_aggregate(view, aggregate, None, ())

    return await call.submit(propose, lambda view: Response(200))


async def change_aggregate(call: Call) -> Response:
    asked = call.decode(AggregateAction)
    if sum(part is not None for part in (asked.add_host, asked.remove_host, asked.set_metadata)) != 1:
        raise Problem(400, "The body must have one of add_host, remove_host and set_metadata.")
    if asked.set_metadata is not None:
        _check_metadata(call, asked.set_metadata.metadata)

    def propose(view: View, now_s: int) -> Command | Rejection:
        before = _find_aggregate(view, call)
        if isinstance(before, Rejection):
            return before
        hosts = _change_hosts(view, before, asked)
        after = before if asked.set_metadata is None else _set_metadata(before, asked.set_metadata.metadata)
        if isinstance(hosts, Rejection):
            return hosts
        if isinstance(after, Rejection):
            return after
        after = msgspec.structs.replace(after, updated_at_s=now_s)
        return _replace_aggregate(view, before, after, hosts)

    return await call.submit(propose, lambda view: _respond_found(call, view))


def _replace_aggregate(
    view: View, before: Aggregate | None, after: Aggregate | None, hosts: tuple[ProviderRecord, ...]
) -> Enact | Rejection:
    """The command that replaces an aggregate, or removes it, and puts these hosts into it."""
    commands = _rezone(view, ZoneChange(before, after, hosts))
    if isinstance(commands, Rejection):
        return commands
    if after is not None:
        label = Label(None, after.name, tuple(sorted(_show_metadata(after).items())))
        commands.append(LabelAggregate(AggregateId(after.id), label))
        return Enact((replace_record(view, after),), tuple(commands))
    assert before is not None, "there is an aggregate before or after"
    commands.append(LabelAggregate(AggregateId(before.id), None))
    return Enact((remove_record(view, before),), tuple(commands))


def _change_hosts(
    view: View, aggregate: Aggregate, asked: AggregateAction
) -> tuple[ProviderRecord, ...] | Rejection:
    if asked.add_host is not None:
        return _add_host(view, aggregate, asked.add_host.host)
    if asked.remove_host is not None:
        return _remove_host(view, aggregate, asked.remove_host.host)
    return _list_hosts(view, aggregate)


def _add_host(view: View, aggregate: Aggregate, name: str) -> tuple[ProviderRecord, ...] | Rejection:
    known = view.records.find(Host, "name", name)
    if not known:
        return ComputeHostNotFound(name)
    joining = view.providers.get(ProviderId(known[0].id))
    if joining is None:
        return ComputeHostUnregistered(name)
    hosts = _list_hosts(view, aggregate)
    return AggregateHasHost(aggregate.number, name) if joining in hosts else (*hosts, joining)


def _remove_host(view: View, aggregate: Aggregate, name: str) -> tuple[ProviderRecord, ...] | Rejection:
    hosts = _list_hosts(view, aggregate)
    left = tuple(host for host in hosts if host.name != name)
    return AggregateLacksHost(aggregate.number, name) if left == hosts else left


def _set_metadata(aggregate: Aggregate, given: dict[str, str | None]) -> Aggregate | TooManyAggregateKeys:
    """A value replaces the one before it, None removes its key. The zone is one of the keys, as in Nova."""
    metadata = {key: value for key, value in (aggregate.metadata | given).items() if value is not None}
    metadata.pop(_ZONE_KEY, None)
    if len(metadata) > _METADATA_MAX:
        return TooManyAggregateKeys(len(metadata), _METADATA_MAX)
    zone = (given[_ZONE_KEY] or None) if _ZONE_KEY in given else aggregate.zone
    return msgspec.structs.replace(aggregate, metadata=metadata, zone=zone)


def _check_metadata(call: Call, given: dict[str, str | None]) -> None:
    _check_zone(given.get(_ZONE_KEY))
    call.accept(wrong_metadata({key: value for key, value in given.items() if value is not None}))


def _is_taken(view: View, name: str, own: str | None) -> bool:
    return any(other.name == name and other.id != own for other in view.records.all(Aggregate))


def _check_name(name: str) -> str:
    if name != name.strip() or not name.isprintable():
        raise Problem(400, f"name is {name!r}; it must be printable, without spaces at its ends.")
    return name


def _check_zone(zone: str | None) -> str | None:
    if zone is None or zone == "":
        return None
    if ":" in zone or zone != zone.strip() or not zone.isprintable():
        raise Problem(
            400,
            f"availability_zone is {zone!r}; it must be printable, without a colon or spaces at its ends.",
        )
    if zone == NO_ZONE:
        raise Problem(
            400,
            f"availability_zone {NO_ZONE!r} is the zone of hosts in no other zone: choose another.",
        )
    return zone


# -- showing ------------------------------------------------------------------------------------


def _show_metadata(aggregate: Aggregate) -> dict[str, str]:
    zone = {} if aggregate.zone is None else {_ZONE_KEY: aggregate.zone}
    return aggregate.metadata | zone


def _respond(call: Call, view: View, aggregate: Aggregate) -> Response:
    return json({"aggregate": _show_whole(call, view, aggregate)})


def _respond_found(call: Call, view: View) -> Response:
    return _respond(call, view, call.accept(_find_aggregate(view, call)))


def _show_whole(call: Call, view: View, aggregate: Aggregate) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": aggregate.number,
        "name": aggregate.name,
        "availability_zone": aggregate.zone,
        "hosts": [host.name for host in _list_hosts(view, aggregate)],
        "metadata": _show_metadata(aggregate),
        "created_at": show_plain_time(aggregate.created_at_s),
        "updated_at": show_plain_time(aggregate.updated_at_s),
        "deleted": False,
        "deleted_at": None,
    }
    if call.version >= _SHOWS_UUID:
        shown["uuid"] = aggregate.id
    return shown


# -- which aggregates and which zone a change puts hosts in -------------------------------------


_ZONE_NAMESPACE: Final = uuid.UUID("7c0b6f3a-52b1-4b55-a3a4-6a0a6a3f0b52")


class ZoneChange(NamedTuple):
    """A change of an aggregate: it is None before it is created and after it is deleted. ``hosts`` are the
    hosts that it has afterwards."""

    before: Aggregate | None
    after: Aggregate | None
    hosts: tuple[ProviderRecord, ...]

    @property
    def id(self) -> AggregateId:
        aggregate = self.before or self.after
        assert aggregate is not None, "there is an aggregate before or after"
        return AggregateId(aggregate.id)

    @property
    def zones(self) -> tuple[str | None, str | None]:
        return (
            None if self.before is None else self.before.zone,
            None if self.after is None else self.after.zone,
        )


def _list_hosts(view: View, aggregate: Aggregate) -> tuple[ProviderRecord, ...]:
    """The hosts of an aggregate, by name."""
    return _list_hosts_in(view, AggregateId(aggregate.id))


def _list_hosts_in(view: View, id: AggregateId) -> tuple[ProviderRecord, ...]:
    records = map(view.record, view.rows_in_aggregate(id))
    return tuple(sorted((host for host in records if host.parent is None), key=lambda host: host.name))


def _find_zone_aggregate(view: View, zone: str) -> AggregateId:
    """The aggregate that is the zone, or will be: an operator may have labelled one of their own with it."""
    labels = view.groups.labels
    for id in view.groups.of_kind(KIND):
        if labels[id].name == zone:
            return id
    return AggregateId(str(uuid.uuid5(_ZONE_NAMESPACE, zone)))


def _rezone(view: View, change: ZoneChange) -> list[LedgerCommand] | Rejection:
    """The commands to the ledger. Each host is in one of them at most, because they are judged one by one."""
    commands = _label_zones(view, change)
    had = _list_hosts_in(view, change.id)
    for host in dict.fromkeys((*had, *_find_hosts_in_new_zone(view, change), *change.hosts)):
        after = _choose_aggregates(view, change, host)
        if isinstance(after, Rejection):
            return after
        if after != host.aggregates:
            before = set(view.groups.of_kind(KIND)).intersection(host.aggregates)
            is_rezoned = before != _find_zones(view, change, after)
            servers = len(view.records.find(Server, "host", host.id)) if is_rezoned else 0
            if servers:
                return ZoneOfServers(host.name, servers)
            commands.append(SetAggregates(host.id, host.generation, after))
    return commands


def _choose_aggregates(
    view: View, change: ZoneChange, host: ProviderRecord
) -> tuple[AggregateId, ...] | HostInAnotherZone:
    is_in = host in change.hosts
    zone_before, zone_after = change.zones
    leaves = {change.id, _find_new_zone(view, change)}
    after = [id for id in host.aggregates if id not in leaves] + [change.id] * is_in
    if zone_before is not None and not (is_in and zone_after == zone_before):
        zone = _find_zone_aggregate(view, zone_before)
        if zone in after and not _is_named_elsewhere(view, change, host, zone_before):
            after.remove(zone)
    if is_in and zone_after is not None:
        zone = _find_zone_aggregate(view, zone_after)
        other = _find_other_zone(view, after, zone)
        if other is not None:
            return HostInAnotherZone(host.name, other, zone_after)
        if zone not in after:
            after.append(zone)
    return tuple(after) if set(after) != set(host.aggregates) else host.aggregates


def _find_new_zone(view: View, change: ZoneChange) -> AggregateId | None:
    """The zone that the change creates, if it does."""
    _, zone = change.zones
    id = None if zone is None else _find_zone_aggregate(view, zone)
    return None if id in view.groups.labels else id


def _find_hosts_in_new_zone(view: View, change: ZoneChange) -> tuple[ProviderRecord, ...]:
    """Hosts that are in a zone before it exists: anybody can work out its uuid from its name."""
    new = _find_new_zone(view, change)
    return () if new is None else _list_hosts_in(view, new)


def _is_named_elsewhere(view: View, change: ZoneChange, host: ProviderRecord, zone: str) -> bool:
    others = (view.records.get(Aggregate, id) for id in host.aggregates if id != change.id)
    return any(other is not None and other.zone == zone for other in others)


def _find_zones(view: View, change: ZoneChange, aggregates: tuple[AggregateId, ...]) -> set[AggregateId]:
    """The aggregates of a host that are zones, or become one by the change."""
    _, zone_after = change.zones
    zones = set(view.groups.of_kind(KIND))
    if zone_after is not None:
        zones.add(_find_zone_aggregate(view, zone_after))
    return zones.intersection(aggregates)


def _find_other_zone(view: View, aggregates: list[AggregateId], zone: AggregateId) -> str | None:
    """The name of a zone among the aggregates of a host that is not this one."""
    for id in aggregates:
        label = view.groups.labels.get(id)
        if label is not None and label.kind == KIND and id != zone:
            return label.name
    return None


def _label_zones(view: View, change: ZoneChange) -> list[LedgerCommand]:
    """The new zone gets its label; the old one loses it with the last aggregate that names it."""
    zone_before, zone_after = change.zones
    if zone_before == zone_after:
        return []
    commands: list[LedgerCommand] = []
    if zone_after is not None:
        commands.append(LabelAggregate(_find_zone_aggregate(view, zone_after), Label(KIND, zone_after)))
    if zone_before is not None and _is_unused(view, change, zone_before):
        commands.append(LabelAggregate(_find_zone_aggregate(view, zone_before), None))
    return commands


def _is_unused(view: View, change: ZoneChange, zone: str) -> bool:
    """Whether the label can go. A label that was not made here stays, and while a group is judged by zones
    they all stay."""
    id = _find_zone_aggregate(view, zone)
    others = any(one.zone == zone and one.id != change.id for one in view.records.all(Aggregate))
    is_ours = id == str(uuid.uuid5(_ZONE_NAMESPACE, zone))
    is_judged_by = any(record.group.domain == KIND for record in view.groups.records.values())
    return is_ours and not others and not is_judged_by


# -- availability zones -------------------------------------------------------------------------


BINARY: Final = "nova-compute"
"""What Nova calls an agent."""


def find_zone(view: View, host: Host) -> str:
    provider = view.providers.get(ProviderId(host.id))
    names = [] if provider is None else aggregate_names(view, KIND, provider)
    return names[0] if names else NO_ZONE


async def list_zones(call: Call) -> Response:
    read_query(call, "availability zones", {})
    return await call.read(lambda view: _show_zones(_group_by_zone(view), lambda hosts: None))


async def list_zones_with_hosts(call: Call) -> Response:
    read_query(call, "availability zones", {})
    return await call.read(
        lambda view: _show_zones(
            _group_by_zone(view), lambda hosts: {host.name: _show_service(view, host) for host in hosts}
        )
    )


def _show_zones(
    zones: Iterable[tuple[str, bool, list[Host]]], hosts_shown: Callable[[list[Host]], Any]
) -> Response:
    infos = [
        {"zoneName": name, "zoneState": {"available": is_available}, "hosts": hosts_shown(hosts)}
        for name, is_available, hosts in zones
    ]
    return json({"availabilityZoneInfo": infos})


def _group_by_zone(view: View) -> list[tuple[str, bool, list[Host]]]:
    """Zones with their hosts, by name, and whether a server could be put on any of the hosts."""
    view.steps.take(5 * view.records.count(Host))
    by_name: dict[str, list[Host]] = {}
    for host in sorted(view.records.all(Host), key=lambda host: host.name):
        by_name.setdefault(find_zone(view, host), []).append(host)
    return [
        (name, any(_takes_servers(view, host) for host in hosts), hosts)
        for name, hosts in sorted(by_name.items())
    ]


def _takes_servers(view: View, host: Host) -> bool:
    status = view.hosts.get(ProviderId(host.id), HEALTHY)
    return not (status.disabled or status.down)


def _show_service(view: View, host: Host) -> dict[str, Any]:
    status = view.hosts.get(ProviderId(host.id), HEALTHY)
    updated_at = show_plain_time(host.updated_at_s or host.registered_at_s)
    return {BINARY: {"active": not status.disabled, "available": not status.down, "updated_at": updated_at}}


ROUTES: Final = (
    Route("GET", "/os-aggregates", list_aggregates, policy="os_compute_api:os-aggregates:index"),
    Route("POST", "/os-aggregates", create_aggregate, policy="os_compute_api:os-aggregates:create"),
    Route("GET", "/os-aggregates/{id}", show_aggregate, policy="os_compute_api:os-aggregates:show"),
    Route("PUT", "/os-aggregates/{id}", update_aggregate, policy="os_compute_api:os-aggregates:update"),
    Route("DELETE", "/os-aggregates/{id}", delete_aggregate, policy="os_compute_api:os-aggregates:delete"),
    Route(
        "POST",
        "/os-aggregates/{id}/action",
        change_aggregate,
        policy="os_compute_api:os-aggregates:show",
        actions={
            name: f"os_compute_api:os-aggregates:{name}"
            for name in ("add_host", "remove_host", "set_metadata")
        },
    ),
    Route("GET", "/os-availability-zone", list_zones, policy="os_compute_api:os-availability-zone:list"),
    Route(
        "GET",
        "/os-availability-zone/detail",
        list_zones_with_hosts,
        policy="os_compute_api:os-availability-zone:detail",
    ),
)
