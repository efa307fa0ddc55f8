"""The journal's events as a reader sees them: uuids and names in place of rows and numbers."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from berth.api.native import wire
from berth.model import events as e
from berth.model.batches import Batch
from berth.model.consumer import Consumer, Holdings
from berth.model.ids import ClassId
from berth.model.inventory import Inventory

ClassNames = Mapping[ClassId, str]
"""The names of classes now. One that is gone shows as its number."""


def events_of(batch: Batch, names: ClassNames) -> list[wire.Event]:
    at = wire.time_of_ns(batch.at_ns)
    return [
        wire.Event(
            batch.index,
            at,
            entry.origin.request_id,
            entry.origin.user,
            entry.origin.project,
            entry.origin.action,
            [change_of(event, names) for event in entry.events],
        )
        for entry in batch.entries
    ]


def change_of(event: e.Event, names: ClassNames) -> wire.Change:
    return _RENDERERS[type(event)](event, names)


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
        None if before is None else wire.time_of(before),
        None if after is None else wire.time_of(after),
    )


def _provider(event: e.ProviderChanged, names: ClassNames) -> wire.Change:
    return wire.ProviderChange(event.id, _place(event.before), _place(event.after))


def _place(placed: e.Placed | None) -> wire.Place | None:
    return None if placed is None else wire.Place(placed.name, placed.parent)


def _version(event: e.ProviderStamped, names: ClassNames) -> wire.Change:
    return wire.VersionChange(event.id, _stamp(event.before), _stamp(event.after))


def _stamp(stamp: e.Stamp) -> wire.Version:
    return wire.Version(stamp.generation, wire.time_of(stamp.updated_at_s))


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
        consumer.type or wire.UNKNOWN_TYPE,
        {provider: {_name(id, names): amount for id, amount in amounts} for provider, amounts in held},
    )


_RENDERERS: Final[dict[type[e.Event], Callable[[Any, ClassNames], wire.Change]]] = {
    e.ResourceClassChanged: _class,
    e.TraitChanged: _trait,
    e.ProviderChanged: _provider,
    e.ProviderStamped: _version,
    e.InventoryChanged: _inventory,
    e.TraitsChanged: _traits,
    e.AggregatesChanged: _aggregates,
    e.ConsumerChanged: _consumer,
}
