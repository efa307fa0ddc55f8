"""The journal's events as a reader sees them: uuids and names in place of rows and numbers."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth.api.kernel.times import show_time, show_time_ns
from berth.api.native import event_kinds as wire
from berth.api.native.fields import UNKNOWN_TYPE
from berth.api.native.record_changes import change_of_record, require_all
from berth.model import events as e
from berth.model.events import Batch, Entry
from berth.model.groups import Group, Membership
from berth.model.ids import ClassId
from berth.model.placement import Consumer, Holdings, HostStatus, Inventory, Label
from berth.view import View

_log = logging.getLogger(__name__)

ClassNames = Mapping[ClassId, str]
"""The names of classes now. One that is gone shows as its number."""


def events_of(batch: Batch, names: ClassNames) -> list[wire.Event]:
    return [event_of(batch, entry, names) for entry in batch.entries]


def event_of(batch: Batch, entry: Entry, names: ClassNames) -> wire.Event:
    return wire.Event(
        batch.index,
        show_time_ns(batch.at_ns),
        entry.origin.request_id,
        entry.origin.user,
        entry.origin.project,
        entry.origin.action,
        [change_of(event, names) for event in entry.events],
    )


def change_of(event: e.Event, names: ClassNames) -> wire.Change:
    """A change as it is shown. One that cannot be shown stops nobody who reads on: it is told as such, and
    the first of its kind is logged."""
    kind = type(event).__name__
    try:
        return _RENDERERS[type(event)](event, names)
    except Exception:
        if kind not in _unreadable:
            _unreadable.add(kind)
            _log.exception("%s cannot be shown to those who read events; later ones are not logged", kind)
        return wire.UnreadableChange(kind)


_unreadable: Final[set[str]] = set()
"""Kinds of events that were logged as unreadable, in this process."""


def _name(id: ClassId, names: ClassNames) -> str:
    return names.get(id) or str(id)


def _class(event: e.ResourceClassChanged, names: ClassNames) -> wire.Change:
    return wire.ResourceClassChange(event.id, _class_name(event.before), _class_name(event.after))


def _class_name(named: e.Named | None) -> wire.ClassName | None:
    return None if named is None else wire.ClassName(named.name)


def _trait(event: e.TraitChanged, names: ClassNames) -> wire.Change:
    before, after = event.before, event.after
    return wire.TraitChange(
        event.name,
        None if before is None else show_time(before),
        None if after is None else show_time(after),
    )


def _provider(event: e.ProviderChanged, names: ClassNames) -> wire.Change:
    return wire.ProviderChange(event.id, _place(event.before), _place(event.after))


def _place(placed: e.Placed | None) -> wire.PlaceState | None:
    return None if placed is None else wire.PlaceState(placed.name, placed.parent)


def _version(event: e.ProviderStamped, names: ClassNames) -> wire.Change:
    return wire.VersionChange(event.id, _stamp(event.before), _stamp(event.after))


def _stamp(stamp: e.Stamp) -> wire.Version:
    return wire.Version(stamp.generation, show_time(stamp.updated_at_s))


def _inventory(event: e.InventoryChanged, names: ClassNames) -> wire.Change:
    name = _name(event.resource_class, names)
    return wire.InventoryChange(event.provider, name, _amounts(event.before), _amounts(event.after))


def _amounts(inventory: Inventory | None) -> wire.InventoryState | None:
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


def _traits(event: e.TraitsChanged, names: ClassNames) -> wire.Change:
    return wire.TraitsChange(event.provider, event.before, event.after)


def _aggregates(event: e.AggregatesChanged, names: ClassNames) -> wire.Change:
    return wire.AggregatesChange(event.provider, event.before, event.after)


def _consumer(event: e.ConsumerChanged, names: ClassNames) -> wire.Change:
    return wire.ConsumerChange(
        event.id,
        _consumer_state(event.before, event.held_before, names),
        _consumer_state(event.after, event.held_after, names),
    )


def _consumer_state(
    consumer: Consumer | None, held: Holdings, names: ClassNames
) -> wire.ConsumerState | None:
    if consumer is None:
        return None
    return wire.ConsumerState(
        consumer.generation,
        consumer.project,
        consumer.user,
        consumer.type or UNKNOWN_TYPE,
        {provider: {_name(id, names): amount for id, amount in amounts} for provider, amounts in held},
    )


def _label(event: e.AggregateLabelled, names: ClassNames) -> wire.Change:
    return wire.AggregateChange(event.id, _label_state(event.before), _label_state(event.after))


def _label_state(label: Label | None) -> wire.AggregateState | None:
    return None if label is None else wire.AggregateState(label.kind, label.name, dict(label.metadata))


def _host(event: e.HostChanged, names: ClassNames) -> wire.Change:
    return wire.HostChange(event.provider, _host_state(event.before), _host_state(event.after))


def _host_state(status: HostStatus | None) -> wire.HostState | None:
    if status is None:
        return None
    return wire.HostState(status.disabled, status.down, status.build_failures, status.reason)


def _group(event: e.GroupChanged, names: ClassNames) -> wire.Change:
    return wire.GroupChange(event.id, _group_state(event.before), _group_state(event.after))


def _group_state(group: Group | None) -> wire.GroupState | None:
    if group is None:
        return None
    return wire.GroupState(group.name, group.policy, group.domain, group.max_per_domain, group.max_skew)


def _record(event: e.RecordChanged, names: ClassNames) -> wire.Change:
    return change_of_record(event)


def _member(event: e.MemberChanged, names: ClassNames) -> wire.Change:
    return wire.MemberChange(event.consumer, _member_state(event.before), _member_state(event.after))


def _member_state(membership: Membership | None) -> wire.MemberState | None:
    return None if membership is None else wire.MemberState(membership.group, membership.stands_for)


_RENDERERS: Final[dict[type[e.Event], Callable[[Any, ClassNames], wire.Change]]] = {
    e.ResourceClassChanged: _class,
    e.TraitChanged: _trait,
    e.ProviderChanged: _provider,
    e.ProviderStamped: _version,
    e.InventoryChanged: _inventory,
    e.TraitsChanged: _traits,
    e.AggregatesChanged: _aggregates,
    e.ConsumerChanged: _consumer,
    e.AggregateLabelled: _label,
    e.HostChanged: _host,
    e.GroupChanged: _group,
    e.MemberChanged: _member,
    e.RecordChanged: _record,
}

require_all(e.Event, set(_RENDERERS), "_RENDERERS in api/native/changes.py")


def class_names(view: View) -> dict[ClassId, str]:
    return {id: view.classes.name_of(id) for id in view.classes.ids()}
