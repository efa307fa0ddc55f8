"""How many members each host has room for, by its resources alone.

Slots that ask for different classes do not get in each other's way: a host takes as many members as the
slot with the least room, and a slot as many as its providers together. This is exact, and vectors do it.

Two things make it less simple. What is *shared* is there once for all hosts that may use it: a host's room on
its own is then not its part of the total. Slots that are *tied* (they ask for the same class, must be apart,
in one subtree, or bring a trait between them) are counted tree by tree.

Members are placed one after the other on a copy of the tree, until the search finds no way for the next:
first each in that of a few ways which leaves the tree most even, and if counting alone would allow more, also
each in the first way found. Both are ways to place so many, so the count is never too high; it is exact where
counting allows no more. To find the best packing is another matter, and not worth its time here. Trees that
are alike are counted once. What may be spent is bounded: trees beyond that count for nothing.
"""

from bisect import bisect_left
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from math import gcd
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, Row
from berth.model.placement import NUMA_ROOT
from berth.model.scheduling import CandidatesRequest
from berth.search.assignments import Assignment, Effort, assignments_at, contended_classes
from berth.search.cells import find_place_traits
from berth.search.providers import any_of, with_all_traits
from berth.search.slots import Slot
from berth.view import Mask, ProviderRecord, View

COUNT_MAX: Final = 2**31 - 1
"""No more than this are counted anywhere, so that sums do not overflow."""


_WAYS_WEIGHED: Final = 6
"""Among how many ways the one is looked for that leaves a tree most even."""

Counts = NDArray[np.int64]
"""A number for each row, of which only those of hosts mean anything; or for each of some hosts."""

HostRows = NDArray[np.int32] | NDArray[np.int64]
"""Some hosts, by row."""


class TreeEffort(NamedTuple):
    """How many members are tried in all, on trees that differ (some 50 us each); how many are enough to know
    of in one tree; and in how many trees."""

    members_max: int
    each_max: int
    hosts_max: int


THOROUGH: Final = TreeEffort(2_000, COUNT_MAX, COUNT_MAX)


class SharingPool(NamedTuple):
    """How many parts a sharing provider has room for, and which hosts may use it."""

    parts: int
    served: Mask


class SharedSlot(NamedTuple):
    """A slot that sharing providers serve: how many parts each host has itself, and the pools beside."""

    own: Counts
    pools: tuple[SharingPool, ...]

    def of_each(self) -> Counts:
        """How many parts each host could have, if it alone used the pools."""
        parts = self.own.copy()
        for pool in self.pools:
            parts[pool.served] += pool.parts
        return parts

    def share_out(self, rows: HostRows, wanted: Counts) -> Counts:
        """No more parts than there are, given to the hosts in the order of their rows."""
        given = np.minimum(wanted, self.own[rows])
        for pool in self.pools:
            missing = np.where(pool.served[rows], wanted - given, 0)
            before = np.cumsum(missing) - missing
            given += np.clip(pool.parts - before, 0, missing)
        return given

    def is_unambiguous(self) -> bool:
        """Whether no host may choose between pools that serve different hosts: then the order of
        giving does not matter."""
        by_served = {pool.served.tobytes(): pool.served for pool in self.pools}
        return len(by_served) < 2 or int(np.add.reduce([*by_served.values()], dtype=np.int64).max()) < 2


class Rooms(NamedTuple):
    """``each``: how many members a host has room for on its own. ``shared`` limits what several can have.
    ``exact`` False: there may be room for more."""

    each: Counts
    shared: tuple[SharedSlot, ...]
    exact: bool

    def share_out(self, rows: HostRows, wanted: Counts) -> tuple[Counts, bool]:
        """How many of the wanted members fit on each host together, and whether that is all that could."""
        if not self.shared:
            return wanted, True
        given = wanted
        for shared in self.shared:
            given = shared.share_out(rows, given)
        count = int(given.sum())
        # No slot by itself could be given more often, so nor can all of them.
        bound = min(int(shared.share_out(rows, wanted).sum()) for shared in self.shared)
        unambiguous = all(shared.is_unambiguous() for shared in self.shared)
        return given, count == int(wanted.sum()) or (unambiguous and count == bound)


def count_rooms(
    view: View, ask: CandidatesRequest, slots: list[Slot], hosts: Mask, effort: TreeEffort = THOROUGH
) -> Rooms:
    """The rooms of these hosts; others have none."""
    if any(slot.splits for slot in slots):
        # Which cells a member is split over is not counted, and so not which traits they have.
        ask = msgspec.structs.replace(ask, guest_required=())
    shared_rows = {row for slot in slots for row, served in slot.sharing.items() if served.any()}
    parts = [_parts(view, slot, shared_rows) for slot in slots]
    shared = []
    each = np.where(hosts, COUNT_MAX, 0)
    # The slots that are counted tree by tree where slots are tied, and how many members they allow at most.
    contended = contended_classes(slots)
    inside = [
        slot
        for slot in slots
        if not slot.splits and (not slot.sharing or _may_be_tied(view, ask, slot, contended))
    ]
    each_inside = each.copy()
    for slot, by_row in zip(slots, parts, strict=True):
        own = _by_host(view, by_row)
        if slot.splits:
            # The parts of one member may come from several providers: only what they have in all counts.
            own //= slot.amounts[0][1]
        if slot.sharing:
            view.steps.take(len(slot.sharing) * (2 + view.row_end // 400))
            rows = _parts(view, slot, frozenset())
            pools = (SharingPool(int(rows[row]), served) for row, served in slot.sharing.items())
            shared.append(SharedSlot(own, tuple(pool for pool in pools if pool.parts)))
            own = shared[-1].of_each()
        np.minimum(each, own, out=each)
        if slot in inside:
            np.minimum(each_inside, own, out=each_inside)
    if len(shared) == len(slots):
        # A member stands on its host by what it holds there: not everything may come from pools.
        np.minimum(each, np.add.reduce([own.own for own in shared]), out=each)
    # A sharing provider may be a host itself and then uses what it has before others do: that is not counted.
    exact = not shared_rows or not hosts[view.root_rows[list(shared_rows)]].any()
    _limit_by_sums(view, slots, contended, each)
    tied = _find_tied(view, ask, slots, parts, each)
    if not inside or not tied.any():
        return Rooms(each, tuple(shared), exact)
    counts = TreeCounts(view, ask, inside, effort.members_max)
    rows = np.flatnonzero(tied)
    most, each[rows] = each[rows], 0
    with_room = 0
    for row, at_most, inside_most in zip(
        rows.tolist(), most.tolist(), each_inside[rows].tolist(), strict=True
    ):
        found = counts.at(view.record(Row(row)), min(inside_most, effort.each_max))
        each[row] = min(at_most, found.members)
        is_all_there_is = found.exact and inside_most <= effort.each_max
        exact = exact and (is_all_there_is or at_most <= found.members)
        with_room += found.members > 0
        if with_room == effort.hosts_max:
            exact = False
            break
    return Rooms(each, tuple(shared), exact and not any(slot.sharing for slot in inside))


def _limit_by_sums(view: View, slots: list[Slot], contended: tuple[ClassId, ...], each: Counts) -> None:
    """Limit the rooms by what trees have in all of a class that one slot may take in parts, and another slot
    takes too."""
    for class_id in {slot.amounts[0][0] for slot in slots if slot.splits}.intersection(contended):
        asked = sum(amount for slot in slots for asked_id, amount in slot.amounts if asked_id == class_id)
        rows, free = view.classes.column(class_id).free()
        sums = np.bincount(view.root_rows[rows], free, view.row_end)
        np.minimum(each, (sums // asked).astype(np.int64), out=each)


def _may_be_tied(view: View, ask: CandidatesRequest, slot: Slot, contended: tuple[ClassId, ...]) -> bool:
    """Whether what a slot takes may matter to another slot. If not, it can be counted by itself."""
    return (
        any(class_id in contended for class_id, _ in slot.amounts)
        or any(slot.group.suffix in suffixes for suffixes in _tied_suffixes(ask))
        or (slot.spans and bool(slot.group.required))
        or (not ask.nested and view.nested_count > 0)
    )


def _tied_suffixes(ask: CandidatesRequest) -> Iterator[frozenset[str]]:
    """Sets of groups of which it matters to one where the others are."""
    yield from ask.apart
    yield from ask.same_subtrees
    yield from (affinity.near | {affinity.suffix} for affinity in ask.affinities)


def _parts(view: View, slot: Slot, shared_rows: AbstractSet[Row]) -> Counts:
    """How many parts of a slot each provider has room for; how much it has, where a slot may be split. What a
    provider shares is counted as shared, to its own tree too."""
    view.steps.take(20 + view.row_end // 100)
    parts = np.where(slot.own, COUNT_MAX, 0)
    for class_id, amount in slot.amounts:
        rows, free = view.classes.column(class_id).free()
        of_class = np.zeros(view.row_end, np.int64)
        of_class[rows] = free if slot.splits else free // amount
        np.minimum(parts, of_class, out=parts)
    if slot.sharing and shared_rows:
        parts[list(shared_rows)] = 0
    return parts


def _by_host(view: View, parts: Counts) -> Counts:
    """The sums over trees."""
    if not view.nested_count:
        return parts
    sums = np.bincount(view.root_rows, parts, view.row_end)
    return np.minimum(sums, COUNT_MAX).astype(np.int64)


def _find_tied(
    view: View, ask: CandidatesRequest, slots: list[Slot], parts: list[Counts], each: Counts
) -> Mask:
    """The hosts with room where slots may get in each other's way, or have to bring a trait that the host
    has not itself."""
    have = with_all_traits(view, ask.guest_required)
    lacking = np.zeros(view.row_end, np.bool_) if have is None else (each > 0) & ~have
    if len(slots) == 1 and not slots[0].spans:
        return lacking
    if (
        contended_classes(slots)
        or any(len(suffixes) > 1 for suffixes in _tied_suffixes(ask))
        or (not ask.nested and view.nested_count)
    ):
        return each > 0
    return _find_tied_by_traits(view, slots, parts, each) | lacking


def _find_tied_by_traits(view: View, slots: list[Slot], parts: list[Counts], each: Counts) -> Mask:
    """Of the unsuffixed group each trait must lie on any one of its providers. That ties nothing where all
    that one class could come from has the trait."""
    tied = np.zeros(view.row_end, np.bool_)
    spanning = [(slot, by_row) for slot, by_row in zip(slots, parts, strict=True) if slot.spans]
    for alternatives in spanning[0][0].group.required if spanning else ():
        having = any_of(view, [view.rows_with_trait(name) for name in alternatives])
        met = np.zeros(view.row_end, np.bool_)
        for slot, by_row in spanning:
            without = np.zeros(view.row_end, np.bool_)
            without[view.root_rows[(by_row > 0) & ~having]] = True
            for row, served in slot.sharing.items():
                if not having[row]:
                    without |= served
            met |= ~without
        tied |= (each > 0) & ~met
    return tied


# -- tree by tree -----------------------------------------------------------------------------------


class TreeCount(NamedTuple):
    members: int
    exact: bool


class TreeCounts:
    """The counts of one request. Lenders are left out: what they could add makes the count no less true."""

    def __init__(self, view: View, ask: CandidatesRequest, slots: list[Slot], members_max: int) -> None:
        self._view = view
        self._ask = ask
        self._slots = slots
        self._left = members_max
        self._seen: dict[object, TreeCount] = {}
        self._facts = _facts(view, ask, slots)

    def at(self, root: ProviderRecord, most: int) -> TreeCount:
        """How many members the tree takes, of which counting says that it is ``most`` at most."""
        tree = root.shape()
        self._view.steps.take(5 + len(tree.records))
        kind = tree.parents, self._facts[[record.row for record in tree.records]].tobytes()
        found = self._seen.get(kind)
        if found is None:
            found = self._seen[kind] = self._count_placed(root, min(most, self._most(root)))
        return found

    def _most(self, root: ProviderRecord) -> int:
        """How many members the amounts alone, and the number of providers, would allow."""
        asked: dict[ClassId, int] = {}
        for slot in self._slots:
            for class_id, amount in slot.amounts:
                asked[class_id] = asked.get(class_id, 0) + amount
        tree = root.tree()
        most = COUNT_MAX
        for class_id, amount in asked.items():
            most = min(most, sum(_free(record, class_id) for record in tree) // amount)
        for suffixes in self._ask.apart:
            most = self._most_apart(tree, suffixes, most)
        return most

    def _most_apart(self, tree: tuple[ProviderRecord, ...], suffixes: frozenset[str], most: int) -> int:
        """The same where no two of these groups of one member share a provider: one that has room for so many
        parts serves that many members, each once."""
        apart = [slot for slot in self._slots if slot.group.suffix in suffixes]
        # A group is counted by its first class. Groups of one class take from the same, others do not.
        least: dict[ClassId, int] = {}
        for slot in apart:
            if not slot.amounts:
                return most
            class_id, amount = slot.amounts[0]
            least[class_id] = min(amount, least.get(class_id, amount))
        parts = [sum(_free(record, id) // amount for id, amount in least.items()) for record in tree]

        def is_too_many(count: int) -> bool:
            return sum(min(part, count) for part in parts) < count * len(apart)

        return bisect_left(range(1, most + 1), True, key=is_too_many)

    def _count_placed(self, root: ProviderRecord, most: int) -> TreeCount:
        count = self._count(root, most, _WAYS_WEIGHED)
        if count < most:
            count = max(count, self._count(root, most, 1))
        return TreeCount(count, exact=count == most)

    def _count(self, root: ProviderRecord, most: int, ways_weighed: int) -> int:
        """How many members are placed if each takes the best of so many ways."""
        copy = _TreeCopy(root, self._slots)
        effort = Effort(most)
        count = 0
        while count < most and self._left > 0:
            self._left -= 1
            self._view.steps.take(20 + len(copy.slots) * (2 + copy.size))
            ways = assignments_at(self._view, self._ask, copy.slots, copy.root, effort)
            way = min(islice(ways, ways_weighed), key=copy.leftover, default=None)
            if way is None:
                break
            copy.take(way)
            count += 1
        return count


def _facts(view: View, ask: CandidatesRequest, slots: list[Slot]) -> NDArray[np.int64]:
    """For every row all that a count depends on: which slots it could serve, how much of what is asked it has
    free and may give to one consumer, and which of the traits it has that may lie anywhere."""
    view.steps.take(len(slots) * (10 + view.row_end // 50))
    facts = [slot.own.astype(np.int64) for slot in slots]
    # What is taken of a class is always a multiple of this: trees may differ by less and be alike.
    grains: dict[ClassId, int] = {}
    for slot in slots:
        for class_id, amount in slot.amounts:
            grains[class_id] = gcd(grains.get(class_id, 0), amount)
    for class_id, grain in grains.items():
        rows, free = view.classes.column(class_id).free()
        facts.append(np.zeros(view.row_end, np.int64))
        facts[-1][rows] = free // grain
    for class_id in contended_classes(slots):
        rows = view.classes.column(class_id).rows()
        facts.append(np.zeros(view.row_end, np.int64))
        facts[-1][rows] = [view.record(row).inventories[class_id].max_unit for row in rows.tolist()]
    required = {name for slot in slots if slot.spans for names in slot.group.required for name in names}
    required.update(name for names in ask.guest_required for name in names)
    # Where a device is near a NUMA cell, it matters which providers are cells, and on which sockets.
    required |= {NUMA_ROOT} | find_place_traits(view, ask)
    facts += [view.rows_with_trait(name).mask(view.row_end).astype(np.int64) for name in sorted(required)]
    return np.stack(facts, axis=1)


class _TreeCopy:
    """A tree of its own, to place members on, with rows from 0 and the slots to match."""

    def __init__(self, root: ProviderRecord, slots: list[Slot]) -> None:
        tree = root.tree()
        self._records = [self._record(Row(number), record) for number, record in enumerate(tree)]
        by_row = {record.row: copy for record, copy in zip(tree, self._records, strict=True)}
        for record, copy in zip(tree, self._records, strict=True):
            copy.place(by_row[record.parent.row] if record.parent is not None else None)
        self.root = self._records[0]
        self.size = len(self._records)
        rows = [record.row for record in tree]
        self.slots = [Slot(slot.group, slot.amounts, slot.own[rows], slot.spans) for slot in slots]

    @staticmethod
    def _record(row: Row, record: ProviderRecord) -> ProviderRecord:
        copy = ProviderRecord(record.id, row, record.name)
        copy.inventories = record.inventories
        copy.used = dict(record.used)
        copy.traits = record.traits
        return copy

    def leftover(self, way: Assignment) -> int:
        """How unevenly a way would leave the providers: the change in the sum of the squares of what is free.
        Even ones keep more choices open."""
        taken: dict[tuple[Row, ClassId], int] = {}
        for slot, record in zip(self.slots, way, strict=True):
            for class_id, amount in slot.amounts:
                taken[record.row, class_id] = taken.get((record.row, class_id), 0) + amount
        return sum(
            amount * (amount - 2 * _free(self._records[row], class_id))
            for (row, class_id), amount in taken.items()
        )

    def take(self, way: Assignment) -> None:
        for slot, record in zip(self.slots, way, strict=True):
            for class_id, amount in slot.amounts:
                record.used[class_id] = record.used.get(class_id, 0) + amount
        for slot in self.slots:
            fits = [_slot_parts(record, slot) > 0 for record in self._records]
            slot.own = slot.own & np.array(fits, np.bool_)
            slot.own_bytes = slot.own.tobytes()


def _free(record: ProviderRecord, class_id: ClassId) -> int:
    inventory = record.inventories.get(class_id)
    return 0 if inventory is None else max(0, inventory.capacity - record.used.get(class_id, 0))


def _slot_parts(record: ProviderRecord, slot: Slot) -> int:
    """How many parts of the slot the provider has room for; one that asks for nothing fits any number."""
    return min((_free(record, class_id) // amount for class_id, amount in slot.amounts), default=COUNT_MAX)
