"""Which aggregates of the ledger a host is in, as Nova's aggregates come and go, and with them its zone.

A zone is an aggregate of its own, labelled with the kind "zone": the scheduler and the groups know it as a
domain. The hosts in it are those of all of Nova's aggregates that name the zone. For a change of one such
aggregate A:

    hosts that A had and has not:  leave A;  leave A's zone, unless another of their aggregates names it
    hosts that A has afterwards:   join A;   join A's new zone, and leave the one that it had before

An aggregate or a zone that is new has no hosts but those that the change puts into it: a uuid that can be
known before is no way in.

A host is in one zone at most. What else it is in (its cell, a rack) stays.
"""

import uuid
from typing import Final, NamedTuple

from berth.api.kernel.problem import Problem
from berth.model.commands import LabelAggregate, LedgerCommand, SetAggregates
from berth.model.ids import AggregateId
from berth.model.placement import Label
from berth.model.servers import Aggregate, Server
from berth.scheduler.filters.zone import KIND
from berth.view import ProviderRecord, View

_NAMESPACE: Final = uuid.UUID("7c0b6f3a-52b1-4b55-a3a4-6a0a6a3f0b52")


class Zoned(NamedTuple):
    """A change of an aggregate; None for before it is made and after it is deleted. ``hosts`` are those that
    it has afterwards."""

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


def hosts_of(view: View, aggregate: Aggregate) -> tuple[ProviderRecord, ...]:
    """By name."""
    return _hosts_in(view, AggregateId(aggregate.id))


def _hosts_in(view: View, id: AggregateId) -> tuple[ProviderRecord, ...]:
    records = map(view.record, view.rows_in_aggregate(id))
    return tuple(sorted((host for host in records if host.parent is None), key=lambda host: host.name))


def zone_aggregate(view: View, zone: str) -> AggregateId:
    """The aggregate that is the zone, or will be: somebody may have labelled another one so."""
    labels = view.groups.labels
    for id in view.groups.of_kind(KIND):
        if labels[id].name == zone:
            return id
    return AggregateId(str(uuid.uuid5(_NAMESPACE, zone)))


def rezoned(view: View, change: Zoned) -> list[LedgerCommand]:
    """What the ledger must be told: of every host at most once, because commands are judged one by one."""
    commands = _labels(view, change)
    had = _hosts_in(view, change.id)
    for host in dict.fromkeys((*had, *_squatters(view, change), *change.hosts)):
        after = _aggregates(view, change, host)
        if after != host.aggregates:
            before = set(view.groups.of_kind(KIND)).intersection(host.aggregates)
            _refuse_with_servers(view, host, before ^ _zones(view, change, after))
            commands.append(SetAggregates(host.id, host.generation, after))
    return commands


def _aggregates(view: View, change: Zoned, host: ProviderRecord) -> tuple[AggregateId, ...]:
    is_in = host in change.hosts
    zone_before, zone_after = change.zones
    leaves = {change.id, _new_zone(view, change)}
    after = [id for id in host.aggregates if id not in leaves] + [change.id] * is_in
    if zone_before is not None and not (is_in and zone_after == zone_before):
        zone = zone_aggregate(view, zone_before)
        if zone in after and not _is_named_elsewhere(view, change, host, zone_before):
            after.remove(zone)
    if is_in and zone_after is not None:
        zone = zone_aggregate(view, zone_after)
        _refuse_second_zone(view, host, after, zone, zone_after)
        if zone not in after:
            after.append(zone)
    return tuple(after) if set(after) != set(host.aggregates) else host.aggregates


def _new_zone(view: View, change: Zoned) -> AggregateId | None:
    """The zone that there was not before the change."""
    _, zone = change.zones
    id = None if zone is None else zone_aggregate(view, zone)
    return None if id in view.groups.labels else id


def _squatters(view: View, change: Zoned) -> tuple[ProviderRecord, ...]:
    """Hosts that are in a new zone already: its uuid follows from its name, and nobody has put them there."""
    new = _new_zone(view, change)
    return () if new is None else _hosts_in(view, new)


def _is_named_elsewhere(view: View, change: Zoned, host: ProviderRecord, zone: str) -> bool:
    others = (view.records.get(Aggregate, id) for id in host.aggregates if id != change.id)
    return any(other is not None and other.zone == zone for other in others)


def _refuse_with_servers(view: View, host: ProviderRecord, zones_changed: set[AggregateId]) -> None:
    """The zone of a server is the one that its owner asked for: it does not change under the server."""
    count = len(view.records.find(Server, "host", host.id)) if zones_changed else 0
    if count:
        raise Problem(
            409,
            f"The availability zone of host {host.name} cannot change while there are servers on it, and "
            f"there are {count}: migrate or delete them first.",
        )


def _zones(view: View, change: Zoned, aggregates: tuple[AggregateId, ...]) -> set[AggregateId]:
    """Those of a host's aggregates that are zones, or become one by the change."""
    _, zone_after = change.zones
    zones = set(view.groups.of_kind(KIND))
    if zone_after is not None:
        zones.add(zone_aggregate(view, zone_after))
    return zones.intersection(aggregates)


def _refuse_second_zone(
    view: View, host: ProviderRecord, aggregates: list[AggregateId], zone: AggregateId, name: str
) -> None:
    labels = view.groups.labels
    for id in aggregates:
        label = labels.get(id)
        if label is not None and label.kind == KIND and id != zone:
            raise Problem(
                409,
                f"Host {host.name} is in the availability zone {label.name} already, and cannot be in {name} "
                "too: remove it from the aggregate that puts it there first.",
            )


def _labels(view: View, change: Zoned) -> list[LedgerCommand]:
    """The new zone gets its label; the old one loses it with the last aggregate that names it."""
    zone_before, zone_after = change.zones
    if zone_before == zone_after:
        return []
    commands: list[LedgerCommand] = []
    if zone_after is not None:
        commands.append(LabelAggregate(zone_aggregate(view, zone_after), Label(KIND, zone_after)))
    if zone_before is not None and _is_done_with(view, change, zone_before):
        commands.append(LabelAggregate(zone_aggregate(view, zone_before), None))
    return commands


def _is_done_with(view: View, change: Zoned, zone: str) -> bool:
    """Whether nobody needs the label any more. One that was not made here is not ours to take away, and while
    groups are judged by zones none goes."""
    id = zone_aggregate(view, zone)
    others = any(one.zone == zone and one.id != change.id for one in view.records.all(Aggregate))
    is_ours = id == str(uuid.uuid5(_NAMESPACE, zone))
    is_judged_by = any(record.group.domain == KIND for record in view.groups.records.values())
    return is_ours and not others and not is_judged_by
