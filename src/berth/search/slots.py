"""Where each part of a request could go, over the whole fleet, before any combination is tried.

A request falls into *slots*. A suffixed group is one slot: all its resources from one provider. The
unsuffixed group is one slot per resource class, because each may come from another provider; while no
provider is nested and none shares, it too is one slot. An *anchor* is a root that a candidate belongs to:
every provider of the candidate stands in the anchor's tree, or shares with it through an aggregate.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.model.ids import AggregateId, ClassId, ProviderId, Row
from berth.model.placement import SHARES_VIA_AGGREGATE, Amounts
from berth.model.rejections import Rejection, ResourceClassNotFound
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, RequestGroup
from berth.search.providers import (
    find_unknown_traits,
    in_all_aggregates,
    in_any_aggregate,
    narrow,
    narrow_to_tree,
    roots_served,
    with_all_traits,
    with_any_room,
    with_any_trait,
    with_room,
)
from berth.view import Mask, ProviderRecord, View

_ANCHORS_BEFORE_COUNTING: Final = 100


class Slot:
    """One part of a request and the rows it could come from.

    ``own`` are rows usable in their own tree; ``sharing`` are rows usable from other trees, each with a mask
    of the roots it serves; ``anchors`` are the roots at which there is any choice at all. The providers in
    ``first`` are chosen before others. One that ``splits`` may come in parts from several providers of a
    tree, and is searched for as such parts (``split_at``).
    """

    __slots__ = ("amounts", "anchors", "first", "group", "own", "own_bytes", "sharing", "spans", "splits")

    def __init__(
        self, group: RequestGroup, amounts: Amounts, own: Mask, spans: bool, splits: bool = False
    ) -> None:
        self.group = group
        self.amounts = amounts
        self.own = own
        self.own_bytes = own.tobytes()
        self.sharing: dict[Row, Mask] = {}
        self.spans = spans
        """Whether this is one of several slots of a group that may span providers."""
        self.splits = splits
        self.anchors: Mask = own
        self.first: frozenset[ProviderId] = frozenset()

    def for_group(self, group: RequestGroup) -> "Slot":
        """The same slot for a group that asks for the same."""
        slot = copy.copy(self)
        slot.group = group
        return slot

    def choices(self, anchor: ProviderRecord, view: View) -> list[ProviderRecord]:
        """The providers this slot could come from at an anchor."""
        own = self.own_bytes
        found = [record for record in anchor.tree() if own[record.row]]
        found.extend(
            record
            for record in (view.record(row) for row, served in self.sharing.items() if served[anchor.row])
            if not (own[record.row] and record.root is anchor)
        )
        if self.first:
            found.sort(key=lambda record: record.id not in self.first)
        return found


class _PartSlot(Slot):
    """A part of a slot that is split at an anchor: what one provider there gives."""

    __slots__ = ("_record",)

    def __init__(self, group: RequestGroup, class_id: ClassId, amount: int, record: ProviderRecord) -> None:
        super().__init__(group, ((class_id, amount),), np.zeros(0, np.bool_), spans=True)
        self._record = record

    def choices(self, anchor: ProviderRecord, view: View) -> list[ProviderRecord]:
        return [self._record]


def split_at(slots: list[Slot], anchor: ProviderRecord) -> list[Slot] | None:
    """The slots as they are searched for at an anchor: of those that may be split, the parts that its
    providers can give, from the one with the most first, so that they are few. None if they have too
    little."""
    found: list[Slot] = []
    for slot in slots:
        parts = _parts_at(slot, anchor) if slot.splits else [slot]
        if not parts:
            return None
        found += parts
    return found


def _parts_at(slot: Slot, anchor: ProviderRecord) -> list[Slot]:
    ((class_id, amount),) = slot.amounts
    rooms = [
        (room_for_one(record, class_id), record) for record in anchor.tree() if slot.own_bytes[record.row]
    ]
    parts: list[Slot] = []
    for room, record in sorted(rooms, key=lambda pair: -pair[0]):
        inventory = record.inventories[class_id]
        part = min(room, amount) // inventory.step_size * inventory.step_size
        if part >= max(inventory.min_unit, 1):
            parts.append(_PartSlot(slot.group, class_id, part, record))
            amount -= part
    return [] if amount else parts


def room_for_one(record: ProviderRecord, class_id: ClassId) -> int:
    """How much of a class one consumer could still get of a provider in all."""
    inventory = record.inventories[class_id]
    return min(inventory.capacity - record.used.get(class_id, 0), inventory.max_unit)


def slots_of(view: View, request: CandidatesRequest) -> list[Slot] | Rejection:
    """The slots of a request, each with the rows that meet everything it asks for by itself."""
    sharing = _Sharing(view)
    found = []
    alike: dict[RequestGroup, Slot] = {}
    for group in request.groups:
        unknown = find_unknown_traits(view, group)
        if unknown is not None:
            return unknown
        amounts: list[tuple[ClassId, int]] = []
        for name, amount in group.resources:
            class_id = view.classes.id_of(name)
            if class_id is None:
                return ResourceClassNotFound(name)
            amounts.append((class_id, amount))
        if group.suffix == UNSUFFIXED and (sharing.rows or view.nested_count):
            found.extend(_spanning_slots(view, group, amounts, sharing, request))
        else:
            # Groups that ask for the same, such as eight GPUs, are looked for once.
            anonymous = msgspec.structs.replace(group, suffix=UNSUFFIXED, label="")
            if anonymous not in alike:
                alike[anonymous] = _single_slot(view, group, amounts, sharing)
            found.append(alike[anonymous].for_group(group))
    return found


def anchors_of(view: View, request: CandidatesRequest, slots: list[Slot]) -> Mask:
    """The roots at which every slot has at least one choice, and whose own traits are as asked."""
    mask = slots[0].anchors.copy()
    for slot in slots[1:]:
        mask &= slot.anchors
    required = with_all_traits(view, tuple((name,) for name in sorted(request.root_required)))
    if required is not None:
        mask &= required
    forbidden = with_any_trait(view, request.root_forbidden)
    if forbidden is not None:
        mask &= ~forbidden
    if len(slots) > 1:
        for suffixes in request.apart:
            _drop_anchors_with_too_few_providers(view, slots, suffixes, mask)
        if not any(slot.sharing for slot in slots):
            _drop_anchors_with_too_little(view, slots, mask)
            _drop_anchors_without_devices(view, request, slots, mask)
    return mask


def walk_anchors(
    view: View, request: CandidatesRequest, slots: list[Slot], anchors: Mask
) -> Iterator[ProviderRecord]:
    """Anchors in order. Once some have been asked for, those without a subtree such as the request needs are
    dropped all at once: to count costs more than to look at a few."""
    rows = np.flatnonzero(anchors)
    yield from (view.record(Row(row)) for row in rows[:_ANCHORS_BEFORE_COUNTING].tolist())
    rows = rows[_ANCHORS_BEFORE_COUNTING:]
    if len(rows) and request.same_subtrees:
        left = np.zeros_like(anchors)
        left[rows] = True
        drop_anchors_without_subtrees(view, request, slots, left)
        rows = np.flatnonzero(left)
    yield from (view.record(Row(row)) for row in rows.tolist())


def drop_anchors_without_subtrees(
    view: View, request: CandidatesRequest, slots: list[Slot], mask: Mask
) -> None:
    """Drop roots without a subtree such as the request needs. Where others share with the tree this would
    not be so simple: there none is dropped."""
    if any(slot.sharing for slot in slots):
        return
    seen = []
    for suffixes in request.same_subtrees:
        together = [slot for slot in slots if slot.group.suffix in suffixes]
        # Guests of several cells mostly ask for the same beside each.
        asked = sorted((id(slot.own), slot.amounts) for slot in together)
        if asked not in seen:
            seen.append(asked)
            _drop_anchors_without_subtree(view, together, mask)


def _drop_anchors_with_too_few_providers(
    view: View, slots: list[Slot], suffixes: frozenset[str], mask: Mask
) -> None:
    """Drop roots that have fewer providers for groups that must be apart, in their tree and shared with it,
    than there are groups."""
    apart = [slot for slot in slots if slot.group.suffix in suffixes]
    if not apart:
        return
    usable = np.logical_or.reduce([slot.own for slot in apart])
    sharing = {row: served for slot in apart for row, served in slot.sharing.items()}
    view.steps.take((1 + len(apart) + len(sharing)) * (1 + view.row_end // 1000))
    counts = np.bincount(view.root_rows[usable], minlength=view.row_end)
    for served in sharing.values():
        # One that stands in the tree itself is counted twice: there may be fewer, never more.
        counts += served
    mask &= counts >= len(apart)


def _drop_anchors_with_too_little(view: View, slots: list[Slot], mask: Mask) -> None:
    """Drop roots that have too little of a class in the whole tree, or room for too few parts of it. Where
    others share with the tree this would not be so simple."""
    asked = _list_amounts([slot for slot in slots if not slot.splits])
    for class_id, amounts in asked.items():
        if len(amounts) == 1:
            continue  # Each slot by itself has been looked at.
        rows, free = view.classes.column(class_id).free()
        view.steps.take(10 + view.row_end // 500 + len(rows) // 100)
        roots = view.root_rows[rows]
        mask &= np.bincount(roots, free, view.row_end) >= sum(amounts)
        # A provider holds no more parts than it has times the smallest of them.
        mask &= np.bincount(roots, free // min(amounts), view.row_end) >= len(amounts)


def _drop_anchors_without_subtree(view: View, slots: list[Slot], mask: Mask) -> None:
    """Drop roots that have no subtree with a choice for every one of these slots in it, and enough of each
    class for all of them. The provider at its top is one of the choices."""
    masks = {id(slot.own): slot.own for slot in slots}
    tops = np.logical_or.reduce(list(masks.values())) & mask[view.root_rows]
    for enough in _judge_subtrees(view, slots, list(masks.values())):
        tops &= enough
        if not tops.any():
            break
    mask &= _roots_of(view, tops)


def _judge_subtrees(view: View, slots: list[Slot], masks: list[Mask]) -> Iterator[Mask]:
    """For each thing that a subtree needs, the rows at the top of one that has it. What is asked for several
    times comes first: that is what there mostly is too little of."""
    for class_id, amounts in _list_amounts(slots).items():
        if len(amounts) > 1:
            rows, free = view.classes.column(class_id).free()
            yield _sum_subtrees(view, rows, free // min(amounts)) >= len(amounts)
            yield _sum_subtrees(view, rows, free) >= sum(amounts)
    for own in masks:
        usable = np.flatnonzero(own)
        yield _sum_subtrees(view, usable, np.ones(len(usable))) > 0


def _drop_anchors_without_devices(
    view: View, request: CandidatesRequest, slots: list[Slot], mask: Mask
) -> None:
    """Drop roots that have too few devices below the providers which the groups that these are to be near
    could be on: of so many providers, no more than so many times the best, or all together, is to be had."""
    near: dict[frozenset[str], set[str]] = {}
    for affinity in request.affinities:
        if not affinity.or_outside:
            near.setdefault(affinity.near, set()).add(affinity.suffix)
    for suffixes, devices in near.items():
        cells = [slot for slot in slots if slot.group.suffix in suffixes]
        if not cells:
            continue
        rows = np.flatnonzero(np.logical_or.reduce([slot.own for slot in cells]))
        roots = view.root_rows[rows]
        asked = _list_amounts([slot for slot in slots if slot.group.suffix in devices])
        view.steps.take(len(asked) * (10 + view.row_end // 500 + len(rows) // 50))
        for class_id, amounts in asked.items():
            having, free = view.classes.column(class_id).free()
            below = _sum_subtrees(view, having, free // min(amounts))[rows]
            best = np.zeros(view.row_end)
            np.maximum.at(best, roots, below)
            total = np.bincount(roots, below, view.row_end)
            mask &= np.minimum(best * len(cells), total) >= len(amounts)


def _sum_subtrees(view: View, rows: NDArray[Any], amounts: NDArray[Any]) -> NDArray[np.float64]:
    """For every row the sum of these amounts on it and on all below it."""
    view.steps.take(10 + view.row_end // 400 + len(rows) // 50)
    parents, total = view.parent_rows, np.zeros(view.row_end)
    at: NDArray[Any] = rows
    while len(at):
        total += np.bincount(at, amounts, view.row_end)
        above = parents[at]
        is_nested = above != at
        at, amounts = above[is_nested], amounts[is_nested]
    return total


def _list_amounts(slots: list[Slot]) -> dict[ClassId, list[int]]:
    asked: dict[ClassId, list[int]] = {}
    for slot in slots:
        for class_id, amount in slot.amounts:
            asked.setdefault(class_id, []).append(amount)
    return asked


def _single_slot(
    view: View, group: RequestGroup, amounts: list[tuple[ClassId, int]], sharing: "_Sharing"
) -> Slot:
    """A slot for a whole group from one provider."""
    if amounts:
        own = with_room(view, *amounts[0])
        for class_id, amount in amounts[1:]:
            own &= with_room(view, class_id, amount)
    else:
        # A group that asks for no resources must say which provider it means by a trait or aggregate.
        own = np.full(view.row_end, bool(group.required or group.member_of))
    narrow(view, own, group)
    slot = Slot(group, tuple(amounts), own, spans=False)
    slot.anchors = _roots_of(view, own)
    view.steps.take(len(sharing.rows) * (1 + view.row_end // 4000))
    for row in sharing.rows:
        if own[row]:
            slot.sharing[row] = sharing.served(row)
            slot.anchors |= slot.sharing[row]
    return slot


def _spanning_slots(
    view: View,
    group: RequestGroup,
    amounts: list[tuple[ClassId, int]],
    sharing: "_Sharing",
    request: CandidatesRequest,
) -> list[Slot]:
    """A slot per resource class of the unsuffixed group.

    Traits that the group requires may lie on any of its providers, so they are judged on the whole of it,
    later. An aggregate counts for a provider when its root is a member.
    """
    roots = view.root_rows
    unfit = with_any_trait(view, group.forbidden)
    inside = in_all_aggregates(view, group.member_of)
    outside = in_any_aggregate(view, group.not_member_of)
    may_split = with_all_traits(view, tuple((name,) for name in sorted(request.split_required)))
    found = []
    for class_id, amount in amounts:
        splits = view.classes.name_of(class_id) in request.split
        fit = with_any_room(view, class_id) if splits else with_room(view, class_id, amount)
        if splits and may_split is not None:
            fit &= may_split
        if unfit is not None:
            fit &= ~unfit
        if outside is not None:
            fit &= ~outside
        own = fit.copy()
        if inside is not None:
            own &= inside | inside[roots]
        if outside is not None:
            own &= ~outside[roots]
        narrow_to_tree(view, own, group)
        slot = Slot(group, ((class_id, amount),), own, spans=True, splits=splits)
        if splits:
            slot.anchors = roots_with_sum(view, class_id, amount, own)
            found.append(slot)
            continue
        slot.anchors = _roots_of(view, own)
        view.steps.take(len(sharing.rows) * (1 + view.row_end // 2000))
        for row in sharing.rows if group.in_tree is None else ():
            if fit[row] and (inside is None or inside[row]):
                served = sharing.served(row)
                slot.sharing[row] = served if outside is None else served & ~outside
                slot.anchors |= slot.sharing[row]
        found.append(slot)
    return found


class _Sharing:
    """The providers that share through aggregates, and whom each serves: every tree that has a member in one
    of its aggregates. Providers of the same aggregates serve the same trees, and share one mask."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._served: dict[tuple[AggregateId, ...], Mask] = {}
        self.rows = sorted(view.rows_with_trait(SHARES_VIA_AGGREGATE))

    def served(self, row: Row) -> Mask:
        """The roots that a sharing provider serves. Not to be written to."""
        view = self._view
        aggregates = view.record(row).aggregates
        served = self._served.get(aggregates)
        if served is None:
            served = self._served[aggregates] = roots_served(view, aggregates)
        return served


def roots_with_sum(view: View, class_id: ClassId, amount: int, own: Mask) -> Mask:
    """The roots in whose trees these rows have as much of a class for one consumer, all together."""
    rows, free = view.classes.column(class_id).free_for_one()
    view.steps.take(10 + view.row_end // 500 + len(rows) // 50)
    usable = own[rows]
    enough: Mask = np.bincount(view.root_rows[rows[usable]], free[usable], view.row_end) >= amount
    return enough


def _roots_of(view: View, mask: Mask) -> Mask:
    found: NDArray[np.bool_] = np.zeros(view.row_end, np.bool_)
    found[view.root_rows[mask]] = True
    return found
