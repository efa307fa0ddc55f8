"""Which cells of a host have the devices that must be near them.

Policy. Of the slots of a request some are *cells*, and others, *devices*, must stand below a provider that
was chosen for one of them (``Affinity``). Which cell is given to which guest cell does not matter to devices,
only which cells are used: this is asked once of each set of cells, not of each order in which they could be
given away. A set is refused when the devices of a class have too few places with it; devices that may be
anywhere, or outside of all cells, are counted with the others. What passes may still fail for another reason;
what is refused has no assignment.

Devices that ask for the same are a number, and so are places that the same devices could use: the costs grow
with the sorts of devices, not with their count.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from berth.model.ids import ClassId, Row
from berth.model.placement import NUMA_ROOT
from berth.search.slots import Slot, room_for_one
from berth.view import ProviderRecord
from berth.view.view import Steps

SETS_MAX: Final = 500
"""How many sets of cells are looked at before the search: where there are more, it begins."""

P = TypeVar("P", bound=Hashable)


class Near(NamedTuple):
    """An affinity, with slots in place of suffixes."""

    slot: int
    of: list[int]
    or_outside: bool


class _PlaceSort(NamedTuple):
    """Places of one sort: the cells that they stand below, and which kinds of devices may use them if one of
    these cells is used, or else. Kinds are the bits of a number."""

    above: frozenset[Row]
    near: int
    far: int


class _DeviceKind(NamedTuple):
    """Devices that ask for the same."""

    slot: int
    is_near: bool
    or_outside: bool


class DeviceCells:
    """``near`` are all affinities of a request; all of them name the same cells."""

    def __init__(
        self, slots: list[Slot], choices: list[list[ProviderRecord]], near: list[Near], steps: Steps
    ) -> None:
        (self.cells,) = {tuple(one.of) for one in near}
        self._rows = sorted({record.row for cell in self.cells for record in choices[cell]})
        self._demands = [
            demand
            for class_id in dict.fromkeys(id for one in near for id, _ in slots[one.slot].amounts)
            for demand in self._find_demands(class_id, slots, choices, near)
        ]
        self._steps = steps
        self._cost = 2 + sum(len(demand.places) + len(demand.counts) for demand in self._demands)
        self._are_enough: dict[frozenset[Row], bool] = {}
        self._may_grow: dict[frozenset[Row], bool] = {}

    def are_enough(self, cells: frozenset[Row]) -> bool:
        """Whether all devices may have a place if these cells, and no others, are used."""
        verdict = self._are_enough.get(cells)
        if verdict is None:
            self._steps.take(self._cost)
            verdict = self._are_enough[cells] = all(demand.is_met(cells) for demand in self._demands)
        return verdict

    def may_grow(self, cells: frozenset[Row]) -> bool:
        """Whether there may be cells that are enough together with these."""
        verdict = self._may_grow.get(cells)
        if verdict is None:
            verdict = not self._sets or any(cells <= some and self.are_enough(some) for some in self._sets)
            self._may_grow[cells] = verdict
        return verdict

    @cached_property
    def _sets(self) -> tuple[frozenset[Row], ...]:
        """The largest sets of cells that could be used; none if there are too many of them. Smaller ones have
        fewer devices."""
        count = min(len(self.cells), len(self._rows))
        if math.comb(len(self._rows), count) > SETS_MAX:
            return ()
        return tuple(map(frozenset, itertools.combinations(self._rows, count)))

    def _find_demands(
        self,
        class_id: ClassId,
        slots: list[Slot],
        choices: list[list[ProviderRecord]],
        near: list[Near],
    ) -> Iterable["_DeviceDemand"]:
        """For each amount of a class that devices ask for: those that ask for as much or more."""
        strict = {one.slot: one.or_outside for one in near}
        asking: dict[tuple[int, Hashable], tuple[_DeviceKind, int]] = {}
        for number, slot in enumerate(slots):
            amount = dict(slot.amounts).get(class_id)
            if amount is not None and number not in self.cells:
                kind = _DeviceKind(number, number in strict, strict.get(number, False))
                alike = (amount, (id(slot.own), kind.is_near, kind.or_outside))
                first, count = asking.get(alike, (kind, 0))
                asking[alike] = (first, count + 1)
        for least in sorted({amount for amount, _ in asking}):
            large = [counted for (amount, _), counted in asking.items() if amount >= least]
            places: dict[_PlaceSort, int] = {}
            for record, kinds in _users(large, choices).items():
                sort = self._sort(record, kinds)
                places[sort] = places.get(sort, 0) + room_for_one(record, class_id) // least
            yield _DeviceDemand([count for _, count in large], places)

    def _sort(self, record: ProviderRecord, kinds: list[tuple[int, _DeviceKind]]) -> _PlaceSort:
        outside = not is_in_cell(record)
        return _PlaceSort(
            frozenset(above for above in _rows_above(record) if above in self._rows),
            sum(1 << number for number, _ in kinds),
            sum(1 << number for number, kind in kinds if not kind.is_near or (kind.or_outside and outside)),
        )


class _DeviceDemand(NamedTuple):
    """So many devices of each kind, and how many have room in places of each sort."""

    counts: list[int]
    places: dict[_PlaceSort, int]

    def is_met(self, cells: frozenset[Row]) -> bool:
        rooms: dict[int, int] = {}
        for sort, room in self.places.items():
            kinds = sort.far if sort.above.isdisjoint(cells) else sort.near
            if kinds:
                rooms[kinds] = rooms.get(kinds, 0) + room
        asked = [
            (count, [kinds for kinds in rooms if kinds >> number & 1])
            for number, count in enumerate(self.counts)
        ]
        # Mostly there is too little for one kind alone.
        if any(sum(rooms[kinds] for kinds in usable) < count for count, usable in asked):
            return False
        return find_places(asked, rooms)


def _users(
    asking: list[tuple[_DeviceKind, int]], choices: list[list[ProviderRecord]]
) -> Mapping[ProviderRecord, list[tuple[int, _DeviceKind]]]:
    """The kinds of devices, with their numbers, that could use each provider."""
    users: dict[ProviderRecord, list[tuple[int, _DeviceKind]]] = {}
    for number, (kind, _) in enumerate(asking):
        for record in choices[kind.slot]:
            users.setdefault(record, []).append((number, kind))
    return users


def _rows_above(record: ProviderRecord) -> Iterable[Row]:
    at: ProviderRecord | None = record
    while at is not None:
        yield at.row
        at = at.parent


def is_in_cell(record: ProviderRecord) -> bool:
    """Whether a provider is a NUMA cell, or stands below one."""
    at: ProviderRecord | None = record
    while at is not None and NUMA_ROOT not in at.traits:
        at = at.parent
    return at is not None


def find_places(asked: list[tuple[int, list[P]]], rooms: Mapping[P, int]) -> bool:
    """Whether so many of each kind find room in places that they may use (bipartite matching by augmenting
    paths). ``rooms``: for how many a place has room."""
    held: dict[P, dict[int, int]] = {place: {} for place in rooms}
    left = dict(rooms)

    def give(kind: int, visited: set[P]) -> bool:
        for place in asked[kind][1]:
            if place in visited:
                continue
            visited.add(place)
            here = held[place]
            if left[place] > 0:
                left[place] -= 1
                here[kind] = here.get(kind, 0) + 1
                return True
            for other, count in here.items():
                if other != kind and count and give(other, visited):
                    here[other] -= 1
                    here[kind] = here.get(kind, 0) + 1
                    return True
        return False

    for kind, (count, places) in enumerate(asked):
        for place in places:
            some = max(0, min(count, left[place]))
            if some:
                held[place][kind] = some
                left[place] -= some
                count -= some
        if not all(give(kind, set()) for _ in range(count)):
            return False
    return True
