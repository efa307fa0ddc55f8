"""Which cells of a host have the devices that must be near them.

Policy. Of the slots of a request some are *cells*, and others, *devices*, must stand below a provider that
was chosen for one of them, or, some of them, in another NUMA cell of its socket (``Affinity``). Which cell is
given to which guest cell does not matter to devices, only which cells are used: this is asked once of each
set of cells, not of each order in which they could be given away. A set is refused when the devices of a
class have too few places with it; devices that may be anywhere, or outside of all cells, are counted with the
others. What passes may still fail for another reason; what is refused has no assignment.

Devices that ask for the same are a number, and so are places that the same devices could use: the costs grow
with the sorts of devices, not with their count.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from berth.model.ids import ClassId, Row
from berth.model.placement import NUMA_ROOT, SOCKET_TRAITS
from berth.model.scheduling import CandidatesRequest
from berth.search.slots import Slot, room_for_one
from berth.view import ProviderRecord, View
from berth.view.view import Steps

SETS_MAX: Final = 500
"""How many sets of cells are looked at before the search: where there are more, it begins."""

_SOCKET_TRAITS: Final = frozenset(SOCKET_TRAITS)

P = TypeVar("P", bound=Hashable)


class Near(NamedTuple):
    """An affinity, with slots in place of suffixes."""

    slot: int
    of: list[int]
    or_outside: bool
    by_socket: bool


class _PlaceSort(NamedTuple):
    """Places of one sort: the cells that they stand below, the others of the same socket, and which kinds of
    devices may use them if one of the former is used, or only one of the latter, or none. Kinds are the bits
    of a number."""

    above: frozenset[Row]
    beside: frozenset[Row]
    near: int
    on_socket: int
    far: int

    def usable_by(self, cells: frozenset[Row]) -> int:
        if not self.above.isdisjoint(cells):
            return self.near
        return self.far if self.beside.isdisjoint(cells) else self.on_socket


class _DeviceKind(NamedTuple):
    """Devices that ask for the same."""

    slot: int
    is_near: bool
    or_outside: bool
    by_socket: bool


class DeviceCells:
    """``near`` are all affinities of a request; all of them name the same cells."""

    def __init__(
        self, slots: list[Slot], choices: list[list[ProviderRecord]], near: list[Near], steps: Steps
    ) -> None:
        (self.cells,) = {tuple(one.of) for one in near}
        self._records = {record.row: record for cell in self.cells for record in choices[cell]}
        self._beside: dict[frozenset[str], frozenset[Row]] = {}
        self._demands = [
            demand
            for class_id in dict.fromkeys(id for one in near for id, _ in slots[one.slot].amounts)
            for demand in self._find_demands(class_id, slots, choices, near)
        ]
        self._with_devices = frozenset(
            row for demand in self._demands for sort in demand.places for row in sort.above | sort.beside
        )
        self._sets: dict[int, tuple[frozenset[Row], ...]] = {}
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
            with_devices = cells & self._with_devices
            sets = self._find_sets(len(self.cells) - len(cells) + len(with_devices))
            verdict = not sets or any(with_devices <= some and self.are_enough(some) for some in sets)
            self._may_grow[cells] = verdict
        return verdict

    def _find_sets(self, count: int) -> tuple[frozenset[Row], ...]:
        """The largest sets of so many cells that could be used; none if there are too many of them. Smaller
        ones have fewer devices, and cells without devices add none."""
        count = min(count, len(self._with_devices))
        if count not in self._sets:
            is_few = math.comb(len(self._with_devices), count) <= SETS_MAX
            sets = itertools.combinations(sorted(self._with_devices), count) if is_few else ()
            self._sets[count] = tuple(map(frozenset, sets))
        return self._sets[count]

    def _find_demands(
        self,
        class_id: ClassId,
        slots: list[Slot],
        choices: list[list[ProviderRecord]],
        near: list[Near],
    ) -> Iterable["_DeviceDemand"]:
        """For each amount of a class that devices ask for: those that ask for as much or more."""
        affinities = {one.slot: one for one in near}
        asking: dict[tuple[int, Hashable], tuple[_DeviceKind, int]] = {}
        for number, slot in enumerate(slots):
            amount = dict(slot.amounts).get(class_id)
            if amount is not None and number not in self.cells:
                one = affinities.get(number)
                where = (False, False, False) if one is None else (True, one.or_outside, one.by_socket)
                kind = _DeviceKind(number, *where)
                alike = (amount, (id(slot.own), where))
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
        far = sum(1 << number for number, kind in kinds if not kind.is_near or (kind.or_outside and outside))
        by_socket = sum(1 << number for number, kind in kinds if kind.by_socket)
        return _PlaceSort(
            frozenset(above for above in rows_above(record) if above in self._records),
            self._find_beside(record) if by_socket else frozenset(),
            sum(1 << number for number, _ in kinds),
            far | by_socket,
            far,
        )

    def _find_beside(self, record: ProviderRecord) -> frozenset[Row]:
        """The cells on the sockets of a device."""
        sockets = find_sockets(record)
        if sockets not in self._beside:
            self._beside[sockets] = frozenset(
                row for row, cell in self._records.items() if not sockets.isdisjoint(find_sockets(cell))
            )
        return self._beside[sockets]


class _DeviceDemand(NamedTuple):
    """So many devices of each kind, and how many have room in places of each sort."""

    counts: list[int]
    places: dict[_PlaceSort, int]

    def is_met(self, cells: frozenset[Row]) -> bool:
        rooms: dict[int, int] = {}
        for sort, room in self.places.items():
            kinds = sort.usable_by(cells)
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


def rows_above(record: ProviderRecord) -> Iterable[Row]:
    """The row of a provider, and those of all above it."""
    at: ProviderRecord | None = record
    while at is not None:
        yield at.row
        at = at.parent


def is_below(record: ProviderRecord, other: ProviderRecord) -> bool:
    """Whether a provider is the other, or stands below it."""
    at: ProviderRecord | None = record
    while at is not None and at is not other:
        at = at.parent
    return at is not None


def is_in_cell(record: ProviderRecord) -> bool:
    """Whether a provider is a NUMA cell, or stands below one."""
    return find_cell(record) is not None


def find_cell(record: ProviderRecord) -> ProviderRecord | None:
    """The NUMA cell that a provider is, or stands below."""
    at: ProviderRecord | None = record
    while at is not None and NUMA_ROOT not in at.traits:
        at = at.parent
    return at


def find_place_traits(view: View, request: CandidatesRequest) -> set[str]:
    """The traits that the affinities of a request look at, as far as any provider has them."""
    names: set[str] = set()
    if any(affinity.or_outside or affinity.by_socket for affinity in request.affinities):
        names.add(NUMA_ROOT)
    if any(affinity.by_socket for affinity in request.affinities):
        names.update(list_sockets(view))
    return names


def list_sockets(view: View) -> list[str]:
    """The traits of sockets that any NUMA cell has."""
    return [name for name in SOCKET_TRAITS if view.rows_with_trait(name)]


def find_sockets(record: ProviderRecord) -> frozenset[str]:
    """The traits that say which socket a provider's NUMA cell is on."""
    cell = find_cell(record)
    return frozenset() if cell is None else _SOCKET_TRAITS.intersection(cell.traits)


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
