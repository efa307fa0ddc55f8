"""Rules for allocations: nothing is claimed that is not there, and a claim is all or nothing.

A claim replaces all that its consumer held. It is judged as if every consumer of the command had first
released what it has: moving resources between two consumers in one command needs no spare capacity.
The sum over the command must fit; where a provider is over its capacity already (its inventory shrank)
a claim may still lower the excess, never raise it. In the same way an amount that one of the consumers
holds already may stay, or change hands, whatever units the inventory has now; but a claim that comes with
new inventories must fit them. A migration may keep a part of what its server held, and give it back, whatever
units there are: as long as both together hold what they held before, and are alone in the command.

Of the providers touched, those that the command names, and those that a consumer leaves with nothing,
advance by one generation each; one that is merely left for another does not.

A reshape moves inventories and the allocations on them together, or not at all. The claims are judged against
both the old and the new inventories; only then are the old ones removed that are no longer wanted, and no
allocation may be left on them.
"""

from collections.abc import Callable
from typing import Final

from berth.ledger.groups import judge_claims
from berth.ledger.inventories import by_class, inventory_in_use, removals, writes
from berth.ledger.providers import advance_generation, find_at_generation
from berth.model.commands import UNCHECKED, Claim, DeleteAllocations, ReplaceAllocations, Reshape
from berth.model.events import ConsumerChanged, Event, MemberChanged
from berth.model.ids import ClassId, ProviderId
from berth.model.placement import MIGRATION, Amounts, Consumer, Holdings, Inventory
from berth.model.rejections import (
    AllocationsNotFound,
    CapacityExceeded,
    ClaimedClassNotFound,
    ClaimedProviderNotFound,
    ConsumerClaimsTwice,
    ConsumerGenerationConflict,
    NoInventory,
    Rejection,
    UnitsViolated,
)
from berth.view import ConsumerRecord, ProviderRecord, View

_STEPS_PER_CLAIM: Final = 8

InventoryOf = Callable[[ProviderRecord, ClassId], Inventory | None]

Touched = dict[ProviderId, ProviderRecord]
"""The providers whose generation a command advances."""


def replace(view: View, command: ReplaceAllocations, now_s: int) -> list[Event] | Rejection:
    judged = judge(view, command.claims, now_s, _current_inventory)
    if isinstance(judged, Rejection):
        return judged
    events, touched = judged
    events.extend(advance_generation(record, now_s) for record in touched.values())
    return events


def delete(view: View, command: DeleteAllocations, now_s: int) -> list[Event] | Rejection:
    record = view.consumers.get(command.consumer)
    if record is None or not record.held:
        return AllocationsNotFound(command.consumer)
    events: list[Event] = [ConsumerChanged(command.consumer, record.consumer, None, record.held, ())]
    membership = view.groups.memberships.get(command.consumer)
    if membership is not None and membership.stands_for != command.consumer:
        # A migration that holds nothing any more is over. A server remains a declared member.
        events.append(MemberChanged(command.consumer, membership, None))
    return events


def judge(
    view: View, claims: tuple[Claim, ...], now_s: int, inventory_of: InventoryOf
) -> tuple[list[Event], Touched] | Rejection:
    """What the claims do to their consumers, and which providers they touch."""
    view.steps.take(_STEPS_PER_CLAIM * len(claims))
    consumers = set()
    for claim in claims:
        if claim.consumer in consumers:
            return ConsumerClaimsTwice(claim.consumer)
        consumers.add(claim.consumer)
        conflict = _generation_conflict(view, claim)
        if conflict is not None:
            return conflict
    for claim in claims:
        for provider, _ in claim.wanted:
            if provider not in view.providers:
                return ClaimedProviderNotFound(provider)
    held_after = _resolve(view, claims)
    if isinstance(held_after, Rejection):
        return held_after
    refused = _refuse_amount(view, claims, held_after, inventory_of)
    if refused is not None:
        return refused
    membership_events = judge_claims(view, claims, held_after)
    if isinstance(membership_events, Rejection):
        return membership_events

    # From here on nothing may fail.
    events: list[Event] = []
    touched: Touched = {}
    for claim, after in zip(claims, held_after, strict=True):
        record = view.consumers.get(claim.consumer)
        before = record.held if record is not None else ()
        for provider, _ in after or before:
            touched[provider] = view.providers[provider]
        events.append(_consumer_event(claim, record, after, now_s))
    return events + membership_events, touched


def _generation_conflict(view: View, claim: Claim) -> ConsumerGenerationConflict | None:
    if claim.generation is UNCHECKED:
        return None
    record = view.consumers.get(claim.consumer)
    current = record.consumer.generation if record is not None else None
    if current == claim.generation:
        return None
    return ConsumerGenerationConflict(claim.consumer, current, claim.generation)


def _resolve(view: View, claims: tuple[Claim, ...]) -> list[Holdings] | ClaimedClassNotFound:
    """What each claim wants, with numbers for the names of classes."""
    # Many claims want the same: what was resolved once is shared.
    known: dict[tuple[tuple[str, int], ...], Amounts] = {}
    resolved = []
    for claim in claims:
        held = []
        for provider, wanted in claim.wanted:
            amounts = known.get(wanted)
            if amounts is None:
                found = []
                for name, amount in wanted:
                    class_id = view.classes.id_of(name)
                    if class_id is None:
                        return ClaimedClassNotFound(claim.consumer, name)
                    found.append((class_id, amount))
                amounts = known[wanted] = tuple(found)
            held.append((provider, amounts))
        resolved.append(tuple(held))
    return resolved


def _refuse_amount(
    view: View, claims: tuple[Claim, ...], held_after: list[Holdings], inventory_of: InventoryOf
) -> Rejection | None:
    released, held_before = _release(view, claims)
    divided = _find_divided(claims, held_after, released)

    def may_stay(claim: Claim, key: tuple[ProviderId, ClassId], amount: int) -> bool:
        """Whether an amount that does not fit the units is held already."""
        is_part = key in divided and (claim.consumer_type == MIGRATION or amount == released[key])
        return inventory_of is _current_inventory and (is_part or (*key, amount) in held_before)

    claimed: dict[tuple[ProviderId, ClassId], int] = {}
    for claim, held in zip(claims, held_after, strict=True):
        for provider, amounts in held:
            record = view.providers[provider]
            for class_id, amount in amounts:
                inventory = inventory_of(record, class_id)
                if inventory is None:
                    return _no_inventory(view, record, amounts, inventory_of, class_id)
                key = (provider, class_id)
                is_odd = (
                    amount < inventory.min_unit
                    or amount > inventory.max_unit
                    or amount % inventory.step_size != 0
                )
                if is_odd and not may_stay(claim, key, amount):
                    return UnitsViolated(
                        provider,
                        view.classes.name_of(class_id),
                        amount,
                        inventory.min_unit,
                        inventory.max_unit,
                        inventory.step_size,
                    )
                asked = claimed[key] = claimed.get(key, 0) + amount
                used_before = record.used.get(class_id, 0)
                used = used_before - released.get(key, 0)
                capacity = inventory.capacity
                if used + asked > capacity and used + asked > used_before:
                    return CapacityExceeded(
                        provider, view.classes.name_of(class_id), asked, used, capacity, record.name
                    )
    return None


def _release(
    view: View, claims: tuple[Claim, ...]
) -> tuple[dict[tuple[ProviderId, ClassId], int], set[tuple[ProviderId, ClassId, int]]]:
    """What the consumers of the claims hold now and release: the totals, and each amount."""
    total: dict[tuple[ProviderId, ClassId], int] = {}
    each = set()
    for claim in claims:
        record = view.consumers.get(claim.consumer)
        if record is not None:
            for provider, amounts in record.held:
                for class_id, amount in amounts:
                    key = (provider, class_id)
                    total[key] = total.get(key, 0) + amount
                    each.add((*key, amount))
    return total, each


def _find_divided(
    claims: tuple[Claim, ...],
    held_after: list[Holdings],
    released: dict[tuple[ProviderId, ClassId], int],
) -> set[tuple[ProviderId, ClassId]]:
    """Where a migration and one other hold after the claims, together, what they held before."""
    if len(claims) != 2 or all(claim.consumer_type != MIGRATION for claim in claims):
        return set()
    left = dict(released)
    for held in held_after:
        for provider, amounts in held:
            for class_id, amount in amounts:
                left[provider, class_id] = left.get((provider, class_id), 0) - amount
    return {key for key, amount in left.items() if amount == 0}


def _no_inventory(
    view: View,
    record: ProviderRecord,
    amounts: tuple[tuple[ClassId, int], ...],
    inventory_of: InventoryOf,
    class_id: ClassId,
) -> NoInventory:
    """Name the one class that is missing; where all are, name all."""
    missing = sorted(id for id, _ in amounts if inventory_of(record, id) is None)
    named = missing if len(missing) == len(amounts) else [class_id]
    return NoInventory(record.id, tuple(view.classes.name_of(id) for id in named))


def _consumer_event(
    claim: Claim, record: ConsumerRecord | None, after: Holdings, now_s: int
) -> ConsumerChanged:
    before = record.consumer if record is not None else None
    held_before = record.held if record is not None else ()
    if held_before and not after:
        return ConsumerChanged(claim.consumer, before, None, held_before, ())
    generation = before.generation if before is not None else 0
    consumer_type = claim.consumer_type
    if consumer_type is None and before is not None:
        consumer_type = before.type
    consumer = Consumer(
        # A claim of nothing by one that holds nothing leaves a record, but is no write of allocations.
        generation=generation + 1 if after else generation,
        project=claim.project,
        user=claim.user,
        type=consumer_type,
        created_at_s=before.created_at_s if before is not None else now_s,
        updated_at_s=now_s,
        made_by=before.made_by if before is not None else claim.made_by,
    )
    return ConsumerChanged(claim.consumer, before, consumer, held_before, after)


def _current_inventory(record: ProviderRecord, class_id: ClassId) -> Inventory | None:
    return record.inventories.get(class_id)


def reshape(view: View, command: Reshape, now_s: int) -> list[Event] | Rejection:
    records: dict[ProviderId, ProviderRecord] = {}
    for new in command.inventories:
        record = find_at_generation(view, new.provider, new.generation)
        if isinstance(record, Rejection):
            return record
        records[new.provider] = record
    wanted: dict[ProviderId, dict[ClassId, Inventory]] = {}
    for new in command.inventories:
        numbered = by_class(view, records[new.provider], new.inventories, now_s, command.by_cell)
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
    used = _used_after_reshape(records, consumer_events)
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


def _used_after_reshape(
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
