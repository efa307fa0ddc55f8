"""All ways to give each slot of a request a provider, at one anchor; lazily, failing early.

Policy. An assignment gives every slot one of its choices such that
  - over all slots, what is asked of one class of one provider fits its free capacity and its max_unit;
  - of groups that must be apart (isolate: all suffixed ones), no two are on one provider;
  - in each same_subtree set, one chosen provider is an ancestor of (or is) all the others;
  - a group with an affinity is below one of the providers chosen for the groups that it is to be near, or,
    where that will do, in no NUMA cell, or in another cell of the same socket;
  - each alternative of traits that the spanning group requires is met by one of its providers;
  - each alternative of traits that the guest requires is met by the anchor, or by a provider of its groups.

The naive search tries the product of all choices and throws most of it away: eight groups over eight
equal children are 8^8 products of which 8! stand, and one group more makes it 8^9 for nothing. Here

  1. an anchor that cannot succeed by counting is refused at once: too little of a class in all, or (by
     bipartite matching) too few rooms for the slots that ask for one, or too few different providers for
     groups that must be apart;
  2. slots are taken most constrained first, those that must be near others after these, and a choice that
     breaks a rule is cut off where it is made;
  3. the same matching looks ahead, at the slots that are left and the choices that they still have: where the
     providers that others must be near are chosen (cells.py), and at every choice after
     ``DEAD_ENDS_BEFORE_LOOKING_AHEAD`` without a result. Where slots of a class all ask for as much, and what
     is left for them to share is that class alone, no choice that passes is a dead end;
  4. a dead end is remembered up to the exchange of equivalent providers (same choices, same free
     amounts, same place in the tree), so that equal siblings do not multiply the failures;
  5. steps are counted: a request may take ``STEPS_PER_REQUEST``, and ``STEPS_PER_RESULT`` for each candidate
     it may return. For fairness a search that has taken ``FRUITLESS_MAX`` steps since its last result gives
     its anchor up; once all anchors together have spent ``FRUITLESS_MANY`` so, each of the others gets
     ``FRUITLESS_LEAST``, and after ``FRUITLESS_END`` none. What was found by then is the answer;
  6. what counting looks at is bounded too, for pools can make it long: after ``LOOKED_AT_MAX`` choices the
     anchors that are left are given up.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np

from berth.model.ids import ClassId, Row
from berth.model.placement import NUMA_ROOT
from berth.model.scheduling import AnyOf, CandidatesRequest
from berth.search.cells import DeviceCells, Near, find_places, find_sockets, is_below, is_in_cell
from berth.search.providers import with_all_traits
from berth.search.slots import Slot, room_for_one
from berth.view import Mask, ProviderRecord, View

FRUITLESS_MAX: Final = 2_000
FRUITLESS_LEAST: Final = 100
FRUITLESS_MANY: Final = 50_000
FRUITLESS_END: Final = 100_000

DEAD_ENDS_BEFORE_LOOKING_AHEAD: Final = 5
LOOKED_AT_PER_STEP: Final = 8
"""How many choices that are looked at ahead count as one step."""

LOOKED_AT_MAX: Final = 2_000_000

STEPS_PER_REQUEST: Final = 100_000
STEPS_PER_RESULT: Final = 50

Assignment = list[ProviderRecord]
"""The provider of each slot, in the order of the request."""

_Key = tuple[Row, ClassId]


class Effort:
    """How much work a whole request has cost and may still cost: steps taken, those of them that led nowhere,
    choices that were looked at to count, and anchors that were given up before all their assignments were
    seen."""

    __slots__ = ("fruitless", "gave_up", "looked_at", "steps", "steps_max")

    def __init__(self, results_max: int) -> None:
        self.steps = 0
        self.looked_at = 0
        self.fruitless = 0
        self.gave_up = 0
        self.steps_max = STEPS_PER_REQUEST + STEPS_PER_RESULT * results_max

    @property
    def is_spent(self) -> bool:
        """Whether no anchor may be searched any more."""
        return self.steps >= self.steps_max or self.looked_at >= LOOKED_AT_MAX

    def allowance(self) -> int:
        """How many steps without a result the next anchor may take."""
        if self.fruitless >= FRUITLESS_END:
            return 0
        return FRUITLESS_MAX if self.fruitless < FRUITLESS_MANY else FRUITLESS_LEAST


def assignments_at(
    view: View, request: CandidatesRequest, slots: list[Slot], anchor: ProviderRecord, effort: Effort
) -> Iterator[Assignment]:
    """The assignments at an anchor that use its own tree, each once, in a fixed order."""
    if effort.is_spent:
        effort.gave_up += 1
        return iter(())
    choices = [slot.choices(anchor, view) for slot in slots]
    _put_whole_first(slots, choices, anchor)
    unmet = tuple(any_of for any_of in request.guest_required if not set(any_of).intersection(anchor.traits))
    return _run(_Search(view, request, slots, choices, effort, _OwnTree(anchor, slots), unmet))


def _put_whole_first(slots: list[Slot], choices: list[list[ProviderRecord]], anchor: ProviderRecord) -> None:
    """Of the group that may span providers, try those of the tree first that could give the most of it: cpus
    and memory are then of one NUMA cell, if one has room for both."""
    spanning = [number for number, slot in enumerate(slots) if slot.spans]
    if all(len(choices[number]) < 2 for number in spanning):
        return
    serves: dict[Row, int] = {}
    for number in spanning:
        for record in choices[number]:
            serves[record.row] = serves.get(record.row, 0) + 1
    for number in spanning:
        first = slots[number].first
        choices[number].sort(
            key=lambda record: (
                record.id not in first,
                record.root is not anchor,
                -serves[record.row] if record.root is anchor else 0,
            )
        )


def assignments_of_sharing(
    view: View, request: CandidatesRequest, slots: list[Slot], anchors: Mask, effort: Effort
) -> Iterator[Assignment]:
    """The assignments that use no anchor's own tree, but only sharing providers. They are the same at every
    anchor that is served and that has the same traits of those that the guest requires, so they are found
    once here and not once for each."""
    choices = [[view.record(row) for row in slot.sharing] for slot in slots]
    for unmet, alike in _sort_anchors(view, request.guest_required, anchors):
        yield from _run(_Search(view, request, slots, choices, effort, _SharingAlone(alike, slots), unmet))


def _sort_anchors(
    view: View, required: tuple[AnyOf, ...], anchors: Mask
) -> Iterator[tuple[tuple[AnyOf, ...], Mask]]:
    """The anchors by the alternatives that they do not meet themselves."""
    if not required:
        yield (), anchors
        return
    masks = [with_all_traits(view, (any_of,)) for any_of in required]
    having = np.stack([mask for mask in masks if mask is not None])
    for met in np.unique(having[:, anchors], axis=1).T:
        unmet = tuple(any_of for any_of, is_met in zip(required, met, strict=True) if not is_met)
        yield unmet, anchors & (having == met[:, None]).all(axis=0)


def _run(search: "_Search") -> Iterator[Assignment]:
    return iter(()) if search.is_hopeless() else search.run()


class _AnchorRule(Protocol):
    """What a search is for, and so which assignments are its own to find."""

    def begin(self, order: list[int], choices: list[list[ProviderRecord]]) -> None:
        """Learn in which order slots will be taken, and from what."""

    def keeps(self, slot: int, record: ProviderRecord, chosen: list[ProviderRecord | None]) -> bool:
        """Whether, with this slot so, the assignment can still be one that the search is for."""

    def role(self, record: ProviderRecord) -> object:
        """What providers differ by, as far as the rule is concerned."""


class _OwnTree:
    """At least one provider is of the anchor's own tree."""

    def __init__(self, anchor: ProviderRecord, slots: list[Slot]) -> None:
        self._anchor = anchor
        self._is_shared = any(slot.sharing for slot in slots)
        self._last_chance = -1

    def begin(self, order: list[int], choices: list[list[ProviderRecord]]) -> None:
        """Find the last slot that could still bring the own tree in, where others could be used instead."""
        if self._is_shared:
            own = [slot for slot in order if any(record.root is self._anchor for record in choices[slot])]
            self._last_chance = own[-1] if own else order[0]

    def keeps(self, slot: int, record: ProviderRecord, chosen: list[ProviderRecord | None]) -> bool:
        if slot != self._last_chance or record.root is self._anchor:
            return True
        return any(other is not None and other.root is self._anchor for other in chosen)

    def role(self, record: ProviderRecord) -> object:
        return record.root is self._anchor


class _SharingAlone:
    """All providers are sharing ones, and there is an anchor that all of them serve."""

    def __init__(self, anchors: Mask, slots: list[Slot]) -> None:
        self._anchors = anchors
        self._slots = slots
        # Many sharing providers serve the same anchors and share one mask: which of them meet is asked once.
        self._meet: dict[frozenset[int], bool] = {}

    def begin(self, order: list[int], choices: list[list[ProviderRecord]]) -> None:
        pass

    def keeps(self, slot: int, record: ProviderRecord, chosen: list[ProviderRecord | None]) -> bool:
        masks = {
            id(mask): mask
            for number, provider in enumerate(chosen)
            if provider is not None
            for mask in (self._slots[number].sharing[provider.row],)
        }
        key = frozenset(masks)
        if key not in self._meet:
            self._meet[key] = bool(np.logical_and.reduce([self._anchors, *masks.values()]).any())
        return self._meet[key]

    def role(self, record: ProviderRecord) -> object:
        return record.aggregates


class _Search:
    """The state of one search: what is assigned so far, and what that leaves."""

    def __init__(
        self,
        view: View,
        request: CandidatesRequest,
        slots: list[Slot],
        choices: list[list[ProviderRecord]],
        effort: Effort,
        rule: _AnchorRule,
        unmet: tuple[AnyOf, ...],
    ) -> None:
        self._steps = view.steps
        looked_at = len(slots) + sum(map(len, choices))
        effort.looked_at += looked_at
        self._steps.take(10 + 2 * len(slots) + looked_at // 4)
        self._slots = slots
        self._choices = choices
        self._effort = effort
        # Callers older than nested providers understand no two providers of one tree.
        self._one_per_tree = not request.nested and view.nested_count > 0
        self._apart_sets = _slots_in(request.apart, slots)
        self._apart_of = [
            [number for number, members in enumerate(self._apart_sets) if slot in members]
            for slot in range(len(slots))
        ]
        self._chosen: list[ProviderRecord | None] = [None] * len(slots)
        self._taken: list[set[Row]] = [set() for _ in self._apart_sets]
        self._contended = contended_classes(slots)
        self._left: dict[_Key, int] = {}
        self._patience = self._allowance = effort.allowance()
        self._subtree_sets = _slots_in(request.same_subtrees, slots)
        # A set's common ancestor is one of the providers that could be chosen for it.
        self._tops = [
            {record.row for slot in members for record in choices[slot]} for members in self._subtree_sets
        ]
        self._ancestors: dict[Row, frozenset[Row]] = {}
        self._sockets: dict[Row, frozenset[str]] = {}
        self._near = [
            Near(index, near, affinity.or_outside, affinity.by_socket)
            for affinity in request.affinities
            for own, near in [_slots_in((frozenset((affinity.suffix,)), affinity.near), slots)]
            for index in own
        ]
        self._near_sets = {tuple(near.of) for near in self._near}
        self._near_of = [
            [near for near in self._near if slot == near.slot or slot in near.of]
            for slot in range(len(slots))
        ]
        # Most constrained first; but what others must be near comes before all, and next these others, whose
        # choices are few then. The sort is stable, so the order is the same every time.
        lead = {slot for of in self._near_sets for slot in of}
        follow = {near.slot for near in self._near}
        self._order = sorted(
            range(len(slots)), key=lambda slot: (slot not in lead, slot not in follow, len(choices[slot]))
        )
        self._trait_rules = list(_trait_rules(request, slots, unmet))
        self._dead_ends: list[set[object]] = [set() for _ in slots]
        self._dead_end_count = 0
        """Since the last result."""
        self._kinds: dict[Row, object] = {}
        self._rule = rule
        rule.begin(self._order, choices)

    # -- counting -------------------------------------------------------------------------------

    def is_hopeless(self) -> bool:
        return (
            not all(self._choices)
            or self._lacks_amounts()
            or self._lacks_traits()
            or not all(map(self._has_subtree, self._subtree_sets, self._tops))
            or not self._may_complete(0)
            or (self._device_cells is not None and not self._device_cells.may_grow(frozenset()))
        )

    def _lacks_amounts(self) -> bool:
        """Whether all providers together have too little of a class that several slots ask for."""
        for class_id in self._contended:
            amounts = []
            records: dict[Row, ProviderRecord] = {}
            for slot, choices in zip(self._slots, self._choices, strict=True):
                for asked_class, amount in slot.amounts:
                    if asked_class == class_id:
                        amounts.append(amount)
                        records.update((record.row, record) for record in choices)
            if sum(room_for_one(record, class_id) for record in records.values()) < sum(amounts):
                return True
        return False

    def _lacks_traits(self) -> bool:
        return not all(
            rule.is_met(record for slot in rule.slots for record in self._choices[slot])
            for rule in self._trait_rules
        )

    def _has_subtree(self, slots: list[int], tops: set[Row]) -> bool:
        """Whether one provider has enough below it of each class that several of these slots ask for, and
        room for as many of them."""
        asked: dict[ClassId, list[int]] = {}
        found: dict[ClassId, dict[Row, ProviderRecord]] = {}
        for slot in slots:
            for class_id, amount in self._slots[slot].amounts:
                asked.setdefault(class_id, []).append(amount)
                found.setdefault(class_id, {}).update((one.row, one) for one in self._choices[slot])
        for class_id, amounts in asked.items():
            if len(amounts) > 1:
                least, free, rooms = min(amounts), dict.fromkeys(tops, 0), dict.fromkeys(tops, 0)
                for record in found[class_id].values():
                    here = room_for_one(record, class_id)
                    for top in tops.intersection(self._ancestors_of(record)):
                        free[top] += here
                        rooms[top] += here // least
                tops = {top for top in tops if free[top] >= sum(amounts) and rooms[top] >= len(amounts)}
        return bool(tops)

    # -- looking ahead --------------------------------------------------------------------------

    def _looks_ahead(self, depth: int) -> bool:
        """Whether the slot before has narrowed the choices of others, or there was no result for long."""
        if self._dead_end_count >= DEAD_ENDS_BEFORE_LOOKING_AHEAD:
            return True
        slot = self._order[depth - 1]
        return any(
            slot in of and all(self._chosen[index] is not None for index in of) for of in self._narrowing
        ) or any(
            slot in members and sum(self._chosen[index] is not None for index in members) == 1
            for members in self._subtree_sets
        )

    def _may_complete(self, depth: int) -> bool:
        """Whether the slots from here on have a place each, as far as any one class, and any one set that
        must be apart, goes. Slots that ask for the same are counted and not told apart."""
        if not self._contended and not self._apart_sets:
            return True
        alike: dict[int, list[int]] = {}
        for slot in self._order[depth:]:
            alike.setdefault(self._alike[slot], []).append(slot)
        looked_at = sum(len(self._choices[slots[0]]) for slots in alike.values())
        self._effort.looked_at += looked_at
        self._steps.take(1 + (looked_at + len(self._order)) // 4 + (2 * looked_at if depth else 0))
        if depth:
            self._patience = max(0, self._patience - looked_at // LOOKED_AT_PER_STEP)
        kinds: list[tuple[int, int, list[ProviderRecord]]] = []
        for slot, *others in alike.values():
            places = [one for one in self._choices[slot] if not depth or self._may_have(slot, one)]
            if not places:
                return False
            kinds.append((slot, 1 + len(others), places))
        for members in self._apart_sets:
            apart = [(count, places) for slot, count, places in kinds if slot in members]
            if not find_places(apart, {record: 1 for _, places in apart for record in places}):
                return False
        return all(self._has_rooms(class_id, kinds) for class_id in self._contended)

    def _has_rooms(self, class_id: ClassId, kinds: list[tuple[int, int, list[ProviderRecord]]]) -> bool:
        """Whether there is room for the slots that ask for at least as much of a class as any one of them,
        if they all asked for that."""
        asking = [
            (amount, count, places)
            for slot, count, places in kinds
            for id, amount in self._slots[slot].amounts
            if id == class_id
        ]
        for least in sorted({amount for amount, _, _ in asking}):
            large = [(count, places) for amount, count, places in asking if amount >= least]
            rooms = {
                record: self._room(record, class_id) // least for _, places in large for record in places
            }
            if not find_places(large, rooms):
                return False
        return True

    @cached_property
    def _narrowing(self) -> set[tuple[int, ...]]:
        """Sets of slots that others must be near, if it is not known without looking ahead whether there is a
        place for these others."""
        cells = self._device_cells
        if cells is None or self._subtree_sets:
            return self._near_sets
        return (
            set()
            if all(set(members) <= set(cells.cells) for members in self._apart_sets)
            else self._near_sets
        )

    @cached_property
    def _device_cells(self) -> DeviceCells | None:
        """Which of the providers that others must be near have enough for them below; None where others are
        to be near several sets of slots, or none."""
        if len(self._near_sets) != 1:
            return None
        return DeviceCells(self._slots, self._choices, self._near, self._steps)

    @cached_property
    def _alike(self) -> list[int]:
        """For each slot the first that asks for the same and has the same part in every rule but those about
        traits."""
        first: dict[object, int] = {}
        return [
            first.setdefault(
                (id(asked.own), asked.amounts, tuple(self._apart_of[slot]), self._parts_of(slot)), slot
            )
            for slot, asked in enumerate(self._slots)
        ]

    def _may_have(self, slot: int, record: ProviderRecord) -> bool:
        """Whether the slot could have this provider beside what is assigned."""
        if any(record.row in self._taken[number] for number in self._apart_of[slot]):
            return False
        if any(
            self._room(record, class_id) < amount
            for class_id, amount in self._slots[slot].amounts
            if class_id in self._contended
        ):
            return False
        self._chosen[slot] = record
        kept = self._keeps_subtrees(slot) and self._keeps_affinities(slot)
        self._chosen[slot] = None
        return kept

    # -- searching ------------------------------------------------------------------------------

    def run(self) -> Iterator[Assignment]:
        yield from self._extend(0)
        self._effort.fruitless += self._allowance - self._patience
        self._effort.gave_up += self._is_spent()

    def _extend(self, depth: int) -> Iterator[Assignment]:
        """All completions of what is assigned so far."""
        if depth == len(self._order):
            self._patience = self._allowance
            self._dead_end_count = 0
            yield [record for record in self._chosen if record is not None]
            return
        dead_ends = self._dead_ends[depth]
        if dead_ends and self._signature(depth) in dead_ends:
            return
        if depth and self._looks_ahead(depth) and not self._may_complete(depth):
            return
        found = False
        slot = self._order[depth]
        for record in self._choices[slot]:
            if not self._may_go_on():
                return
            if self._assign(slot, record):
                for assignment in self._extend(depth + 1):
                    found = True
                    yield assignment
                self._unassign(slot, record)
        if not found:
            dead_ends.add(self._signature(depth))
            self._dead_end_count += 1

    def _may_go_on(self) -> bool:
        """Count a step; whether the search still has patience for it."""
        if self._is_spent():
            return False
        self._steps.take(3)
        self._effort.steps += 1
        self._patience -= 1
        return True

    def _is_spent(self) -> bool:
        return self._patience == 0 or self._effort.steps >= self._effort.steps_max

    def _assign(self, slot: int, record: ProviderRecord) -> bool:
        """Give the slot this provider, unless that breaks a rule already."""
        apart_of = self._apart_of[slot]
        if apart_of and any(record.row in self._taken[number] for number in apart_of):
            return False
        if self._one_per_tree and self._tree_is_taken(record):
            return False
        if self._contended and not self._reserve(slot, record):
            return False
        self._chosen[slot] = record
        for number in apart_of:
            self._taken[number].add(record.row)
        kept = self._keeps_subtrees(slot) and self._keeps_affinities(slot) and self._keeps_traits(slot)
        if kept and self._rule.keeps(slot, record, self._chosen):
            return True
        self._unassign(slot, record)
        return False

    def _tree_is_taken(self, record: ProviderRecord) -> bool:
        return any(
            other is not None and other is not record and other.root is record.root for other in self._chosen
        )

    def _unassign(self, slot: int, record: ProviderRecord) -> None:
        self._chosen[slot] = None
        for number in self._apart_of[slot]:
            self._taken[number].discard(record.row)
        if self._contended:
            for class_id, amount in self._slots[slot].amounts:
                if class_id in self._contended:
                    self._left[record.row, class_id] += amount

    def _reserve(self, slot: int, record: ProviderRecord) -> bool:
        """Take the slot's amounts out of what is left on the provider, all or none."""
        amounts = [pair for pair in self._slots[slot].amounts if pair[0] in self._contended]
        left = [self._room(record, class_id) - amount for class_id, amount in amounts]
        if left and min(left) < 0:
            return False
        for (class_id, _), rest in zip(amounts, left, strict=True):
            self._left[record.row, class_id] = rest
        return True

    def _room(self, record: ProviderRecord, class_id: ClassId) -> int:
        """What is left on the provider of a class that several slots ask for."""
        left = self._left.get((record.row, class_id))
        return room_for_one(record, class_id) if left is None else left

    def _keeps_subtrees(self, slot: int) -> bool:
        """Whether every same_subtree set that this slot is in has a common ancestor in it, or may still."""
        for members, tops in zip(self._subtree_sets, self._tops, strict=True):
            if slot in members:
                chosen = [record for i in members if (record := self._chosen[i]) is not None]
                if len(chosen) == len(members):
                    tops = {record.row for record in chosen}
                if tops.isdisjoint(frozenset.intersection(*map(self._ancestors_of, chosen))):
                    return False
        return True

    def _ancestors_of(self, record: ProviderRecord) -> frozenset[Row]:
        """A provider and all above it."""
        found = self._ancestors.get(record.row)
        if found is None:
            rows, at = [record.row], record.parent
            while at is not None:
                rows.append(at.row)
                at = at.parent
            found = self._ancestors[record.row] = frozenset(rows)
        return found

    def _keeps_affinities(self, slot: int) -> bool:
        """Whether each affinity that this slot has a part in is kept, or may still be."""
        cells = self._device_cells
        if cells is not None and slot in cells.cells:
            rows = [record.row for index in cells.cells if (record := self._chosen[index]) is not None]
            suffice = cells.are_enough if len(rows) == len(cells.cells) else cells.may_grow
            if not suffice(frozenset(rows)):
                return False
        for near in self._near_of[slot]:
            record = self._chosen[near.slot]
            if record is not None:
                of = [self._chosen[index] for index in near.of]
                may_be = any(other is None or self._is_near(near, record, other) for other in of)
                if not may_be and not (near.or_outside and not is_in_cell(record)):
                    return False
        return True

    def _is_near(self, near: Near, record: ProviderRecord, cell: ProviderRecord) -> bool:
        if is_below(record, cell):
            return True
        if not near.by_socket or record.root is not cell.root:
            return False
        return not self._sockets_of(record).isdisjoint(self._sockets_of(cell))

    def _sockets_of(self, record: ProviderRecord) -> frozenset[str]:
        found = self._sockets.get(record.row)
        if found is None:
            found = self._sockets[record.row] = find_sockets(record)
        return found

    def _keeps_traits(self, slot: int) -> bool:
        """Whether the slots of each rule that this slot completes have all the required traits."""
        for rule in self._trait_rules:
            if slot in rule.slots:
                chosen = [record for index in rule.slots if (record := self._chosen[index]) is not None]
                if len(chosen) == len(rule.slots) and not rule.is_met(chosen):
                    return False
        return True

    # -- remembering dead ends ------------------------------------------------------------------

    def _signature(self, depth: int) -> object:
        """What the completions from here depend on, up to the exchange of equivalent providers.

        Only providers that are assigned to count: what is left of the others follows from their kinds.
        """
        self._steps.take(2 * depth)
        holds: dict[Row, list[int]] = {}
        for slot in self._order[:depth]:
            record = self._chosen[slot]
            assert record is not None
            holds.setdefault(record.row, []).append(self._positions[slot])
        return frozenset(_count(self._state_of(row, slots) for row, slots in holds.items()).items())

    @cached_property
    def _positions(self) -> list[int]:
        """What each slot is remembered as: -1 where it does not matter later which provider this very slot is
        on, only what it takes there; else the first slot that asks for the same and has the same part in
        every rule."""
        first: dict[object, int] = {}
        return [self._position(slot, first) for slot in range(len(self._slots))]

    def _position(self, slot: int, first: dict[object, int]) -> int:
        asked, parts = self._slots[slot], self._parts_of(slot)
        if any(slot in rule.slots for rule in self._trait_rules):
            return slot
        return first.setdefault((id(asked.own), asked.amounts, parts), slot) if any(parts) else -1

    def _parts_of(self, slot: int) -> tuple[object, ...]:
        """The part that a slot has in rules about places in the tree."""
        return (
            tuple(number for number, members in enumerate(self._subtree_sets) if slot in members),
            tuple((tuple(near.of), *near[2:]) for near in self._near if slot == near.slot),
            tuple(number for number, near in enumerate(self._near) if slot in near.of),
        )

    def _state_of(self, row: Row, slots: list[int]) -> tuple[object, ...]:
        left = tuple(self._left.get((row, class_id)) for class_id in self._contended)
        positional = tuple(sorted(slot for slot in slots if slot >= 0))
        taken = tuple(row in rows for rows in self._taken)
        return self._kind_of(row), left, taken, positional

    def _kind_of(self, row: Row) -> object:
        """What makes a provider exchangeable with another of the same kind."""
        if not self._kinds:
            usable: dict[ProviderRecord, list[int]] = {}
            for slot, choices in enumerate(self._choices):
                for record in choices:
                    usable.setdefault(record, []).append(slot)
            self._kinds = {record.row: self._kind(record, slots) for record, slots in usable.items()}
        return self._kinds[row]

    def _kind(self, record: ProviderRecord, slots: list[int]) -> tuple[object, ...]:
        free = tuple(
            room_for_one(record, class_id) if class_id in record.inventories else None
            for class_id in self._contended
        )
        asked = {name for rule in self._trait_rules for any_of in rule.required for name in any_of}
        traits = tuple(name for name in record.traits if name in asked)
        # Where one must stand below another, the place in the tree matters: only leaves below one parent are
        # alike, and cells and other leaves are not.
        place: object = None
        if self._subtree_sets or self._near:
            parent = record.parent.row if record.parent is not None else None
            is_cell = NUMA_ROOT in record.traits
            by_socket = is_cell and any(near.by_socket for near in self._near)
            sockets = self._sockets_of(record) if by_socket else None
            place = (parent, record.row if record.children else None, is_cell, sockets)
        tree = record.root.row if self._one_per_tree else None
        return tuple(slots), free, traits, place, tree, self._rule.role(record)


def contended_classes(slots: list[Slot]) -> tuple[ClassId, ...]:
    """Classes that more than one slot asks for: only there can choices get in each other's way."""
    seen: set[ClassId] = set()
    contended: dict[ClassId, None] = {}
    for slot in slots:
        for class_id, _ in slot.amounts:
            if class_id in seen:
                contended[class_id] = None
            seen.add(class_id)
    return tuple(contended)


class _TraitRule(NamedTuple):
    """Alternatives of traits, each of which is met by the provider of one of these slots."""

    slots: list[int]
    required: tuple[AnyOf, ...]

    def is_met(self, records: Iterable[ProviderRecord]) -> bool:
        traits = {name for record in records for name in record.traits}
        return all(traits.intersection(alternatives) for alternatives in self.required)


def _trait_rules(
    request: CandidatesRequest, slots: list[Slot], unmet: tuple[AnyOf, ...]
) -> Iterator[_TraitRule]:
    """What the spanning group requires, and ``unmet``, what the guest requires and its host has not."""
    spanning = [index for index, slot in enumerate(slots) if slot.spans]
    if spanning and slots[spanning[0]].group.required:
        yield _TraitRule(spanning, slots[spanning[0]].group.required)
    if unmet:
        (guest,) = _slots_in((request.guest_groups,), slots)
        yield _TraitRule(guest, unmet)


def _slots_in(sets: Iterable[frozenset[str]], slots: list[Slot]) -> list[list[int]]:
    """The slots of each set of suffixes."""
    return [[i for i, slot in enumerate(slots) if slot.group.suffix in suffixes] for suffixes in sets]


def _count(states: Iterator[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    counts: dict[tuple[object, ...], int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts
