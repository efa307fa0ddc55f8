"""The journal's events as a reader sees them: uuids and names in place of rows and numbers, and of records
only what is named here.

The naive design shows a record as it is and takes out what is secret. Then whoever adds a field must remember
that it may be one. Here only what is named is shown, and a kind of event or record that is not named stops
the program when it is loaded.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec

from berth.api.kernel.times import show_time, show_time_ns
from berth.api.native import event_kinds as wire
from berth.api.native.fields import UNKNOWN_TYPE
from berth.model import events as e
from berth.model.clusters import Cluster
from berth.model.drains import Drain
from berth.model.events import AnyRecord, Batch, Entry
from berth.model.groups import Group, Membership
from berth.model.ids import ClassId, ProviderId
from berth.model.placement import Consumer, Holdings, HostStatus, Inventory, Label
from berth.model.saga_runs import (
    Agent,
    Assignment,
    HostTree,
    Instance,
    Outbox,
    SagaRun,
    SyncPosition,
    Term,
)
from berth.model.servers import (
    Action,
    Aggregate,
    CellStatus,
    Counter,
    DeletedServer,
    Flavor,
    Host,
    Image,
    KeyPair,
    Migration,
    QuotaSet,
    RevokedToken,
    Server,
    UnknownServer,
)
from berth.view import View

_log = logging.getLogger(__name__)

TEXT_MAX: Final = 255
MAP_TEXT_MAX: Final = 2048
"""How many characters of a map are shown, keys and values together."""
LIST_MAX: Final = 32
NAMES_MAX: Final = 32
"""How many objects of an event are told by their names, too."""

V = TypeVar("V")

ClassNames = Mapping[ClassId, str]
"""The names of classes now. One that is gone shows as its number."""


class Names(msgspec.Struct, frozen=True):
    """What things are called now. ``find``: the name of a provider or a server; None if it is gone."""

    classes: ClassNames
    find: Callable[[str], str | None]


def names_of(view: View) -> Names:
    def find(id: str) -> str | None:
        provider = view.providers.get(ProviderId(id))
        if provider is not None:
            return provider.name
        server = view.records.get(Server, id)
        return None if server is None else server.name

    classes = {id: view.classes.name_of(id) for id in view.classes.ids()}
    return Names(classes, find)


def event_of(batch: Batch, entry: Entry, names: Names) -> wire.Event:
    changes = [change_of(event, names.classes) for event in entry.events]
    return wire.Event(
        batch.index,
        show_time_ns(batch.at_ns),
        entry.origin.request_id,
        entry.origin.user,
        entry.origin.project,
        entry.origin.action,
        changes,
        entry.origin.global_id,
        find_names(changes, names),
    )


def find_names(changes: list[wire.Change], names: Names) -> dict[str, str]:
    """The names of providers and servers that changes have by their uuids only."""
    found: dict[str, str] = {}
    for change in changes:
        for id in _list_nameless(change):
            name = None if id in found else names.find(id)
            if name is not None:
                found[id] = name
            if len(found) == NAMES_MAX:
                return found
    return found


def _list_nameless(change: wire.Change) -> Iterator[str]:
    match change:
        case wire.ConsumerChange():
            yield change.consumer
            for state in (change.before, change.after):
                if state is not None:
                    yield from state.allocations
        case wire.HostChange() | wire.InventoryChange() | wire.TraitsChange() | wire.AggregatesChange():
            yield change.provider
        case wire.MemberChange():
            yield change.consumer


def change_of(event: e.Event, names: ClassNames) -> wire.Change:
    """A change as it is shown. One that cannot be shown stops no reader: it is shown as unreadable, and the
    first of its kind is logged."""
    kind = type(event).__name__
    try:
        return _RENDERERS[type(event)](event, names)
    except Exception:
        if kind not in _unreadable:
            _unreadable.add(kind)
            _log.exception(
                "%s: the event cannot be rendered for readers; later ones of its kind are not logged", kind
            )
        return wire.UnreadableChange(kind)


_unreadable: Final[set[str]] = set()
"""Kinds of events that were logged as unreadable, in this process."""


def require_all(kinds: Any, named: set[type], table: str) -> None:
    """TypeError unless every kind of a union is named in a table, and nothing else is."""
    wrong = sorted(kind.__name__ for kind in named.symmetric_difference(get_args(kinds)))
    if wrong:
        raise TypeError(
            f"{', '.join(wrong)}: {table} must name every kind, and no others. Show of a new kind only the "
            "fields that an operator may see: no secret, and nothing without a bound"
        )


# -- the ledger ---------------------------------------------------------------------------------


def _name_of(id: ClassId, names: ClassNames) -> str:
    return names.get(id) or str(id)


def _render_class(event: e.ResourceClassChanged, names: ClassNames) -> wire.Change:
    return wire.ResourceClassChange(event.id, _show_class_name(event.before), _show_class_name(event.after))


def _show_class_name(named: e.Named | None) -> wire.ClassName | None:
    return None if named is None else wire.ClassName(named.name)


def _render_trait(event: e.TraitChanged, names: ClassNames) -> wire.Change:
    before, after = event.before, event.after
    return wire.TraitChange(
        event.name,
        None if before is None else show_time(before),
        None if after is None else show_time(after),
    )


def _render_provider(event: e.ProviderChanged, names: ClassNames) -> wire.Change:
    return wire.ProviderChange(event.id, _show_place(event.before), _show_place(event.after))


def _show_place(placed: e.Placed | None) -> wire.PlaceState | None:
    return None if placed is None else wire.PlaceState(placed.name, placed.parent)


def _render_version(event: e.ProviderStamped, names: ClassNames) -> wire.Change:
    return wire.VersionChange(event.id, _show_stamp(event.before), _show_stamp(event.after))


def _show_stamp(stamp: e.Stamp) -> wire.Version:
    return wire.Version(stamp.generation, show_time(stamp.updated_at_s))


def _render_inventory(event: e.InventoryChanged, names: ClassNames) -> wire.Change:
    name = _name_of(event.resource_class, names)
    return wire.InventoryChange(
        event.provider, name, _show_inventory(event.before), _show_inventory(event.after)
    )


def _show_inventory(inventory: Inventory | None) -> wire.InventoryState | None:
    if inventory is None:
        return None
    return wire.InventoryState(
        inventory.total,
        inventory.reserved,
        inventory.min_unit,
        inventory.max_unit,
        inventory.step_size,
        inventory.allocation_ratio,
    )


def _render_traits(event: e.TraitsChanged, names: ClassNames) -> wire.Change:
    return wire.TraitsChange(event.provider, event.before, event.after)


def _render_aggregates(event: e.AggregatesChanged, names: ClassNames) -> wire.Change:
    return wire.AggregatesChange(event.provider, event.before, event.after)


def _render_consumer(event: e.ConsumerChanged, names: ClassNames) -> wire.Change:
    return wire.ConsumerChange(
        event.id,
        _show_consumer(event.before, event.held_before, names),
        _show_consumer(event.after, event.held_after, names),
    )


def _show_consumer(consumer: Consumer | None, held: Holdings, names: ClassNames) -> wire.ConsumerState | None:
    if consumer is None:
        return None
    return wire.ConsumerState(
        consumer.generation,
        consumer.project,
        consumer.user,
        consumer.type or UNKNOWN_TYPE,
        {provider: {_name_of(id, names): amount for id, amount in amounts} for provider, amounts in held},
    )


def _render_label(event: e.AggregateLabelled, names: ClassNames) -> wire.Change:
    return wire.AggregateChange(event.id, _show_label(event.before), _show_label(event.after))


def _show_label(label: Label | None) -> wire.AggregateState | None:
    return None if label is None else wire.AggregateState(label.kind, label.name, dict(label.metadata))


def _render_host(event: e.HostChanged, names: ClassNames) -> wire.Change:
    return wire.HostChange(event.provider, _show_host_status(event.before), _show_host_status(event.after))


def _show_host_status(status: HostStatus | None) -> wire.HostState | None:
    if status is None:
        return None
    return wire.HostState(status.disabled, status.down, status.build_failures, status.reason)


def _render_group(event: e.GroupChanged, names: ClassNames) -> wire.Change:
    return wire.GroupChange(event.id, _show_group(event.before), _show_group(event.after))


def _show_group(group: Group | None) -> wire.GroupState | None:
    if group is None:
        return None
    return wire.GroupState(group.name, group.policy, group.domain, group.max_per_domain, group.max_skew)


def _render_member(event: e.MemberChanged, names: ClassNames) -> wire.Change:
    return wire.MemberChange(event.consumer, _show_membership(event.before), _show_membership(event.after))


def _show_membership(membership: Membership | None) -> wire.MemberState | None:
    return None if membership is None else wire.MemberState(membership.group, membership.stands_for)


# -- records ------------------------------------------------------------------------------------


class _Cut:
    """Cuts long values, and remembers of which fields."""

    def __init__(self) -> None:
        self.fields: list[str] = []

    def text(self, field: str, text: str | None) -> str | None:
        if text is None or len(text) <= TEXT_MAX:
            return text
        self.fields.append(field)
        return text[:TEXT_MAX]

    def map(self, field: str, content: dict[str, V]) -> dict[str, V]:
        shown: dict[str, V] = {}
        left = MAP_TEXT_MAX
        for key in sorted(content):
            left -= len(key) + len(str(content[key]))
            if left < 0:
                self.fields.append(field)
                break
            shown[key] = content[key]
        return shown

    def texts(self, field: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        if len(texts) > LIST_MAX:
            self.fields.append(field)
        return texts[:LIST_MAX]


def _show_server(server: Server, cut: _Cut) -> wire.ServerValues:
    place = server.place
    return wire.ServerValues(
        name=server.name,
        project_id=server.project,
        user_id=server.user,
        state=server.state,
        task=server.task,
        power_state=server.power,
        host=None if place is None else place.name,
        cell=None if place is None else place.cell,
        flavor=server.flavor.name,
        image=server.image,
        availability_zone=server.zone,
        group=server.group,
        migration=server.migration,
        action=server.run,
        is_locked=server.is_locked,
        fault=None if server.fault is None else cut.text("fault", server.fault.message),
        metadata=cut.map("metadata", server.metadata),
        updated_at=show_time(server.updated_at_s),
    )


def _show_migration(migration: Migration, cut: _Cut) -> wire.MigrationValues:
    return wire.MigrationValues(
        number=migration.number,
        server=migration.server,
        migration_type=migration.type,
        status=migration.status,
        source_host=migration.source.name,
        dest_host=migration.dest.name,
        flavor_before=migration.flavor_before.name,
        flavor_after=migration.flavor_after.name,
        project_id=migration.project,
        user_id=migration.user,
        updated_at=show_time(migration.updated_at_s),
    )


def _show_flavor(flavor: Flavor, cut: _Cut) -> wire.FlavorValues:
    return wire.FlavorValues(
        name=flavor.name,
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap_mb=flavor.swap_mb,
        extra_specs=cut.map("extra_specs", flavor.extra_specs),
        is_public=flavor.is_public,
        projects=cut.texts("projects", flavor.projects),
    )


def _show_image(image: Image, cut: _Cut) -> wire.ImageValues:
    return wire.ImageValues(
        name=image.name,
        status=image.status,
        visibility=image.visibility,
        owner=image.owner,
        size=image.size,
        properties=cut.map("properties", image.properties),
        is_protected=image.is_protected,
        is_hidden=image.is_hidden,
        updated_at=show_time(image.updated_at_s),
    )


def _show_action(action: Action, cut: _Cut) -> wire.ActionValues:
    last = action.events[-1] if action.events else None
    return wire.ActionValues(
        server=action.server,
        name=action.name,
        request_id=action.request_id,
        project_id=action.project,
        user_id=action.user,
        steps=len(action.events),
        last_step=None if last is None else last.name,
        last_result=None if last is None else last.result,
        message=cut.text("message", action.message),
        updated_at=show_time(action.updated_at_s),
    )


def _show_host(host: Host, cut: _Cut) -> wire.ComputeHostValues:
    return wire.ComputeHostValues(
        name=host.name,
        cell=host.cell,
        driver=host.driver,
        is_silent=host.is_silent,
        is_forced_down=host.is_forced_down,
        complaints=cut.texts("complaints", host.complaints),
        updated_at=show_time(host.updated_at_s),
    )


def _show_aggregate(aggregate: Aggregate, cut: _Cut) -> wire.ComputeAggregateValues:
    return wire.ComputeAggregateValues(
        number=aggregate.number,
        name=aggregate.name,
        availability_zone=aggregate.zone,
        metadata=cut.map("metadata", aggregate.metadata),
        updated_at=show_time(aggregate.updated_at_s),
    )


def _show_cell(cell: CellStatus, cut: _Cut) -> wire.CellValues:
    return wire.CellValues(
        database_reachable=cell.is_reachable,
        database_text=cut.text("database_text", cell.text),
        since=show_time(cell.since_s),
        conductor_heard=show_time(cell.heard_at_s) if cell.heard_at_s else None,
    )


def _show_cluster(cluster: Cluster, cut: _Cut) -> wire.ClusterValues:
    return wire.ClusterValues(
        name=cluster.name,
        project_id=cluster.project,
        user_id=cluster.user,
        state=cluster.state,
        ratio=cluster.ratio,
        domain=cluster.domain,
        node_groups=cut.map("node_groups", {group.name: group.count for group in cluster.node_groups}),
        nodes=len(cluster.nodes),
        fault=cut.text("fault", cluster.fault),
        updated_at=show_time(cluster.updated_at_s),
    )


def _show_drain(drain: Drain, cut: _Cut) -> wire.DrainValues:
    return wire.DrainValues(
        host_name=drain.name,
        state=drain.state,
        moved=drain.moved,
        left=len(drain.moves),
        user_id=drain.user,
        updated_at=show_time(drain.updated_at_s),
    )


def _show_quotas(quotas: QuotaSet, cut: _Cut) -> wire.QuotasValues:
    return wire.QuotasValues(limits=cut.map("limits", quotas.limits))


def _show_assignment(assignment: Assignment, cut: _Cut) -> wire.AssignmentValues:
    return wire.AssignmentValues(
        server=assignment.server,
        host=assignment.host,
        holder=assignment.holder,
        units=cut.texts("units", assignment.unit_names()),
    )


_SHOWN: Final[dict[type, tuple[type[Any], Callable[[Any, _Cut], wire.RecordValues]]]] = {
    Server: (wire.ServerChange, _show_server),
    Migration: (wire.MigrationChange, _show_migration),
    Flavor: (wire.FlavorChange, _show_flavor),
    Image: (wire.ImageChange, _show_image),
    Action: (wire.ActionChange, _show_action),
    Host: (wire.ComputeHostChange, _show_host),
    Aggregate: (wire.ComputeAggregateChange, _show_aggregate),
    CellStatus: (wire.CellChange, _show_cell),
    Cluster: (wire.ClusterChange, _show_cluster),
    Drain: (wire.DrainChange, _show_drain),
    QuotaSet: (wire.QuotasChange, _show_quotas),
    Assignment: (wire.AssignmentChange, _show_assignment),
}
_INTERNAL: Final = frozenset(
    (
        Agent,
        Counter,
        DeletedServer,
        HostTree,
        Instance,
        KeyPair,
        Outbox,
        RevokedToken,
        SyncPosition,
        Term,
        SagaRun,
        UnknownServer,
    )
)
"""Of these readers are told that one has changed, and no more: they are how a region and its cells work, or
the keys of users."""


def _render_record(event: e.RecordChanged, names: ClassNames) -> wire.Change:
    record = event.before if event.after is None else event.after
    assert record is not None, "a change of a record has a record"
    shown = _SHOWN.get(type(record))
    if shown is None:
        return wire.InternalChange(str(type(record).__struct_config__.tag))
    kind, values = shown
    change: wire.Change = kind(record.id, _values(values, event.before), _values(values, event.after))
    return change


def _values(values: Callable[[Any, "_Cut"], wire.RecordValues], record: AnyRecord | None) -> Any:
    if record is None:
        return None
    cut = _Cut()
    shown = values(record, cut)
    return msgspec.structs.replace(shown, left_out=tuple(cut.fields)) if cut.fields else shown


# -- kinds of events ----------------------------------------------------------------------------

_RENDERERS: Final[dict[type[e.Event], Callable[[Any, ClassNames], wire.Change]]] = {
    e.ResourceClassChanged: _render_class,
    e.TraitChanged: _render_trait,
    e.ProviderChanged: _render_provider,
    e.ProviderStamped: _render_version,
    e.InventoryChanged: _render_inventory,
    e.TraitsChanged: _render_traits,
    e.AggregatesChanged: _render_aggregates,
    e.ConsumerChanged: _render_consumer,
    e.AggregateLabelled: _render_label,
    e.HostChanged: _render_host,
    e.GroupChanged: _render_group,
    e.MemberChanged: _render_member,
    e.RecordChanged: _render_record,
}

require_all(e.Event, set(_RENDERERS), "_RENDERERS in api/native/changes.py")
require_all(AnyRecord, set(_SHOWN) | _INTERNAL, "_SHOWN or _INTERNAL in api/native/changes.py")
