"""Rules for inventories. One may shrink below what is used (nothing new fits then), but not be removed. One
whose units the host's agent names is not overcommitted, and nobody else says how many there are: each unit is
given to one server."""

import msgspec

from berth.ledger.providers import advance_generation, find_at_generation
from berth.model.commands import AddInventory, DeleteInventory, PutInventory, SetInventories
from berth.model.events import Event, InventoryChanged
from berth.model.ids import ClassId
from berth.model.placement import Inventory
from berth.model.rejections import (
    InventoryExists,
    InventoryInUse,
    InventoryNotFound,
    Rejection,
    ReservedTooHigh,
    ResourceClassNotFound,
    UnitsMiscounted,
    UnitsOvercommitted,
)
from berth.model.servers import Host
from berth.view import ProviderRecord, View


def add(view: View, command: AddInventory, now_s: int) -> list[Event] | Rejection:
    found = _find_target(view, command, None)
    if isinstance(found, Rejection):
        return found
    record, class_id = found
    if class_id in record.inventories:
        return InventoryExists(record.id, command.resource_class)
    return [*writes(record, {class_id: stamp(command.inventory, now_s)}), advance_generation(record, now_s)]


def put(view: View, command: PutInventory, now_s: int) -> list[Event] | Rejection:
    found = _find_target(view, command, command.generation)
    if isinstance(found, Rejection):
        return found
    record, class_id = found
    if class_id not in record.inventories:
        return InventoryNotFound(record.id, command.resource_class)
    return [*writes(record, {class_id: stamp(command.inventory, now_s)}), advance_generation(record, now_s)]


def _find_target(
    view: View, command: AddInventory | PutInventory, generation: int | None
) -> tuple[ProviderRecord, ClassId] | Rejection:
    """The provider and class of a record that is to be written, or why it cannot be."""
    record = find_at_generation(view, command.provider, generation)
    if isinstance(record, Rejection):
        return record
    if _reserves_too_much(command.inventory, command.may_reserve_all):
        return _refuse_reserved(command, command.resource_class, command.inventory)
    class_id = view.classes.id_of(command.resource_class)
    if class_id is None:
        return ResourceClassNotFound(command.resource_class)
    over = _find_overcommitted(view, record, {command.resource_class: command.inventory}, command.by_cell)
    return (record, class_id) if over is None else over


def replace(view: View, command: SetInventories, now_s: int) -> list[Event] | Rejection:
    record = find_at_generation(view, command.provider, command.generation)
    if isinstance(record, Rejection):
        return record
    for name, inventory in command.inventories.items():
        if _reserves_too_much(inventory, command.may_reserve_all):
            return _refuse_reserved(command, name, inventory)
    wanted = by_class(view, record, command.inventories, now_s, command.by_cell)
    if isinstance(wanted, Rejection):
        return wanted
    dropped = record.inventories.keys() - wanted.keys()
    in_use = dropped & record.used.keys()
    if in_use:
        return inventory_in_use(view, record, in_use)
    return [
        *writes(record, wanted),
        *removals(record, dropped),
        advance_generation(record, now_s),
    ]


def delete(view: View, command: DeleteInventory, now_s: int) -> list[Event] | Rejection:
    record = find_at_generation(view, command.provider, None)
    if isinstance(record, Rejection):
        return record
    class_id = view.classes.id_of(command.resource_class)
    if class_id is None:
        return ResourceClassNotFound(command.resource_class)
    if class_id not in record.inventories:
        return InventoryNotFound(record.id, command.resource_class)
    if class_id in record.used:
        return InventoryInUse(record.id, (command.resource_class,))
    return [*removals(record, {class_id}), advance_generation(record, now_s)]


# -- shared with reshaping ----------------------------------------------------------------------


def by_class(
    view: View, record: ProviderRecord, inventories: dict[str, Inventory], now_s: int, by_cell: bool
) -> dict[ClassId, Inventory] | Rejection:
    """The wanted inventories of a provider by number of class, dated now."""
    over = _find_overcommitted(view, record, inventories, by_cell)
    if over is not None:
        return over
    found = {}
    for name, inventory in inventories.items():
        class_id = view.classes.id_of(name)
        if class_id is None:
            return ResourceClassNotFound(name)
        found[class_id] = stamp(inventory, now_s)
    return found


def _find_overcommitted(
    view: View, record: ProviderRecord, inventories: dict[str, Inventory], by_cell: bool
) -> UnitsOvercommitted | UnitsMiscounted | None:
    """A class that would be given out more often than it has units. A host without an agent of ours has no
    units, and anything will do. What was written before the units were named may stay until the agent reports
    again: whoever changes something else, or reserves what is gone, writes it with the rest."""
    host = view.records.get(Host, record.root.id) if inventories else None
    named = () if host is None else dict(host.unit_classes).get(record.id, ())
    there = {view.classes.name_of(id): one for id, one in record.inventories.items()} if named else {}
    for name in named:
        wanted, before = inventories.get(name), there.get(name)
        if wanted is None:
            continue
        if wanted.allocation_ratio > max(1, 1 if before is None else before.allocation_ratio):
            return UnitsOvercommitted(record.id, name, wanted.allocation_ratio)
        if before is not None and wanted.total != before.total and not by_cell:
            return UnitsMiscounted(record.id, name, wanted.total, before.total)
    return None


def stamp(inventory: Inventory, now_s: int) -> Inventory:
    return msgspec.structs.replace(inventory, written_at_s=now_s)


def writes(record: ProviderRecord, wanted: dict[ClassId, Inventory]) -> list[Event]:
    return [
        InventoryChanged(record.id, class_id, record.inventories.get(class_id), inventory)
        for class_id, inventory in wanted.items()
    ]


def removals(record: ProviderRecord, class_ids: set[ClassId]) -> list[Event]:
    return [
        InventoryChanged(record.id, class_id, record.inventories[class_id], None)
        for class_id in sorted(class_ids)
    ]


def inventory_in_use(view: View, record: ProviderRecord, class_ids: set[ClassId]) -> InventoryInUse:
    return InventoryInUse(record.id, tuple(view.classes.name_of(id) for id in sorted(class_ids)))


def _reserves_too_much(inventory: Inventory, may_reserve_all: bool) -> bool:
    return inventory.capacity < 0 or (inventory.capacity == 0 and not may_reserve_all)


def _refuse_reserved(
    command: AddInventory | PutInventory | SetInventories, name: str, inventory: Inventory
) -> ReservedTooHigh:
    return ReservedTooHigh(
        command.provider, name, inventory.total, inventory.reserved, command.may_reserve_all
    )
