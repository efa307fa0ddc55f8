"""Where each part of a request could go, over the whole fleet, before any combination is tried.

A request falls into *slots*. A suffixed group is one slot: all its resources from one provider. The
unsuffixed group is one slot per resource class, because each may come from another provider; while no
provider is nested and none shares, it too is one slot. An *anchor* is a root that a candidate belongs to:
every provider of the candidate stands in the anchor's tree, or shares with it through an aggregate. Which
roots can be one: anchors.py.
"""

import copy

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
    ((class_id, _),) = slot.amounts
    rooms = [
        (room_for_one(record, class_id), record) for record in anchor.tree() if slot.own_bytes[record.row]
    ]
    most_first = sorted(rooms, key=lambda pair: -pair[0])
    # Where cells differ in their threads to a core, what is left may be less than the step of the last: of 4
    # cpus 3 of one cell, and 1 of another that gives 2. As steps divide each other, the largest come first.
    by_step = sorted(most_first, key=lambda pair: -pair[1].inventories[class_id].step_size)
    return _fill(slot, most_first) or _fill(slot, by_step)


def _fill(slot: Slot, rooms: list[tuple[int, ProviderRecord]]) -> list[Slot]:
    """The parts of a slot, as much as possible from each provider in turn; none if something is left."""
    ((class_id, left),) = slot.amounts
    parts: list[Slot] = []
    for room, record in rooms:
        inventory = record.inventories[class_id]
        part = min(room, left) // inventory.step_size * inventory.step_size
        if part >= max(inventory.min_unit, 1):
            parts.append(_PartSlot(slot.group, class_id, part, record))
            left -= part
    return [] if left else parts


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
    for id in group.ruled_out:
        own[view.providers[id].row] = False
    slot = Slot(group, tuple(amounts), own, spans=False)
    slot.anchors = roots_of(view, own)
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
        slot.anchors = roots_of(view, own)
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
    view.steps.take(10 + view.row_end // 2000 + len(rows) // 150)
    usable = own[rows]
    enough: Mask = np.bincount(view.root_rows[rows[usable]], free[usable], view.row_end) >= amount
    return enough


def roots_of(view: View, mask: Mask) -> Mask:
    """The roots of the trees that these rows stand in."""
    rows = np.flatnonzero(mask)
    view.steps.take(5 + view.row_end // 2000 + len(rows) // 400)
    found: NDArray[np.bool_] = np.zeros(view.row_end, np.bool_)
    found[view.root_rows[rows]] = True
    return found
