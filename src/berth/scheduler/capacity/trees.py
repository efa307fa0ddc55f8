"""How many members one tree takes where the parts of a request are tied to each other.

Members are placed one after the other on a copy of the tree, until the search finds no way for the next:
first each in that of a few ways which leaves the tree most even, and if counting alone would allow more, also
each in the first way found. Both are ways to place so many, so the count is never too high; it is exact where
counting allows no more. To find the best packing is another matter, and not worth its time here.

Trees that are alike are counted once. What may be spent is bounded: trees beyond that count for nothing.
"""

from bisect import bisect_left
from itertools import islice
from math import gcd
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, Row
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest
from berth.search.assignments import Assignment, Effort, assignments_at, contended_classes
from berth.search.slots import Slot
from berth.view import ProviderRecord, View

COUNT_MAX: Final = 2**31 - 1
"""No more than this are counted anywhere, so that sums do not overflow."""


class TreeEffort(NamedTuple):
    """How many members are tried in all, on trees that differ (some 50 us each); how many are enough to know
    of in one tree; and in how many trees."""

    members_max: int
    each_max: int
    hosts_max: int


THOROUGH: Final = TreeEffort(2_000, COUNT_MAX, COUNT_MAX)


_WAYS_WEIGHED: Final = 6
"""Among how many ways the one is looked for that leaves a tree most even."""


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
        self._facts = _facts(view, slots)

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
        if self._ask.isolate:
            most = min(most, self._most_apart(tree, most))
        return most

    def _most_apart(self, tree: tuple[ProviderRecord, ...], most: int) -> int:
        """The same where no two suffixed groups of one member share a provider: one that has room for so many
        parts serves that many members, each once."""
        suffixed = [slot for slot in self._slots if slot.group.suffix != UNSUFFIXED]
        # A group is counted by its first class. Groups of one class take from the same, others do not.
        least: dict[ClassId, int] = {}
        for slot in suffixed:
            if not slot.amounts:
                return most
            class_id, amount = slot.amounts[0]
            least[class_id] = min(amount, least.get(class_id, amount))
        parts = [sum(_free(record, id) // amount for id, amount in least.items()) for record in tree]

        def is_too_many(count: int) -> bool:
            return sum(min(part, count) for part in parts) < count * len(suffixed)

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


def _facts(view: View, slots: list[Slot]) -> NDArray[np.int64]:
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
            fits = [_parts(record, slot) > 0 for record in self._records]
            slot.own = slot.own & np.array(fits, np.bool_)
            slot.own_bytes = slot.own.tobytes()


def _free(record: ProviderRecord, class_id: ClassId) -> int:
    inventory = record.inventories.get(class_id)
    return 0 if inventory is None else max(0, inventory.capacity - record.used.get(class_id, 0))


def _parts(record: ProviderRecord, slot: Slot) -> int:
    """How many parts of the slot the provider has room for; one that asks for nothing fits any number."""
    return min((_free(record, class_id) // amount for class_id, amount in slot.amounts), default=COUNT_MAX)
