"""The rule for reshaping: inventories and the allocations on them move together, or not at all.

The claims are judged against both the old and the new inventories; only then are the old ones
removed that are no longer wanted, and no allocation may be left on them.
"""

from berth.ledger.allocations import judge
from berth.ledger.inventories import by_class, inventory_in_use, removals, writes
from berth.ledger.providers import advance_generation, find_at_generation
from berth.model.commands import Reshape
from berth.model.events import ConsumerChanged, Event
from berth.model.ids import ClassId, ProviderId
from berth.model.placement import Holdings, Inventory
from berth.model.rejections import Rejection
from berth.view import ProviderRecord, View


def reshape(view: View, command: Reshape, now_s: int) -> list[Event] | Rejection:
    records: dict[ProviderId, ProviderRecord] = {}
    for new in command.inventories:
        record = find_at_generation(view, new.provider, new.generation)
        if isinstance(record, Rejection):
            return record
        records[new.provider] = record
    wanted: dict[ProviderId, dict[ClassId, Inventory]] = {}
    for new in command.inventories:
        numbered = by_class(view, new.inventories, now_s)
        if isinstance(numbered, Rejection):
            return numbered
        wanted[new.provider] = numbered

    def old_or_new(record: ProviderRecord, class_id: ClassId) -> Inventory | None:
        new = wanted.get(record.id)
        if new is not None and class_id in new:
            return new[class_id]
        return record.inventories.get(class_id)

    judged = judge(view, command.claims, now_s, old_or_new)
    if isinstance(judged, Rejection):
        return judged
    consumer_events, touched = judged
    dropped = {id: record.inventories.keys() - wanted[id].keys() for id, record in records.items()}
    used = _used_after(records, consumer_events)
    for id, record in records.items():
        in_use = dropped[id] & used[id]
        if in_use:
            return inventory_in_use(view, record, in_use)

    # From here on nothing may fail. An inventory comes before the allocations on it, and goes after them;
    # a provider advances once for each of the three parts that concerns it.
    events: list[Event] = []
    for id, record in records.items():
        events.extend(writes(record, wanted[id]))
    events.extend(consumer_events)
    for id, record in records.items():
        events.extend(removals(record, dropped[id]))
    for id, record in {**records, **touched}.items():
        steps = (id in touched) + ((1 + bool(wanted[id])) if id in records else 0)
        events.append(advance_generation(record, now_s, steps))
    return events


def _used_after(
    records: dict[ProviderId, ProviderRecord], consumer_events: list[Event]
) -> dict[ProviderId, set[ClassId]]:
    """Which classes of the reshaped providers will be in use."""
    totals = {id: dict(record.used) for id, record in records.items()}

    def count(held: Holdings, sign: int) -> None:
        for provider, amounts in held:
            used = totals.get(provider)
            if used is not None:
                for class_id, amount in amounts:
                    used[class_id] = used.get(class_id, 0) + sign * amount

    for event in consumer_events:
        if isinstance(event, ConsumerChanged):
            count(event.held_before, -1)
            count(event.held_after, +1)
    return {id: {class_id for class_id, total in used.items() if total} for id, used in totals.items()}
