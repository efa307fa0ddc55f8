"""Resource classes: their names, their numbers, and the column of each.

A column is one class across the fleet, as arrays: how much each provider has left, and in which units. It has
a slot per provider that has inventory of the class, so that a class that few providers have costs little.
Slots are dense; the last one moves into the gap that a removal leaves.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.model.events import Named
from berth.model.ids import ClassId, Row
from berth.model.placement import AMOUNT_MAX, FIRST_CUSTOM_CLASS, STANDARD_CLASSES, Inventory

_FREE_MAX: Final = 2**62
"""A capacity beyond this, either way (a vast allocation ratio), is kept as this: no sum of amounts comes
near, and the column's numbers do not overflow."""

_FIRST_SIZE: Final = 16

Rows = NDArray[np.int32]


class ColumnSums(NamedTuple):
    """Over all rows. A row that is over its capacity has nothing free, and takes nothing from the others."""

    capacity: int
    used: int
    free: int


class Column:
    __slots__ = (
        "_capacity",
        "_count",
        "_free",
        "_max_unit",
        "_min_unit",
        "_rows",
        "_slot_of",
        "_step_size",
        "_steps",
    )

    def __init__(self) -> None:
        self._count = 0
        self._slot_of: dict[Row, int] = {}
        self._rows: Rows = np.zeros(_FIRST_SIZE, np.int32)
        # What is used is what is missing: capacity less free. So a claim writes one number, not two.
        self._capacity = np.zeros(_FIRST_SIZE, np.int64)
        self._free = np.zeros(_FIRST_SIZE, np.int64)
        self._min_unit = np.zeros(_FIRST_SIZE, np.int64)
        self._max_unit = np.zeros(_FIRST_SIZE, np.int64)
        self._step_size = np.zeros(_FIRST_SIZE, np.int64)
        # How many slots have a step other than 1: mostly none, and then no division is needed.
        self._steps = 0

    def __len__(self) -> int:
        return self._count

    def put(self, row: Row, inventory: Inventory, used: int) -> None:
        """Set the inventory of a row, of which ``used`` is taken."""
        slot = self._slot_of.get(row)
        if slot is None:
            slot = self._new_slot(row)
        else:
            self._steps -= self._step_size[slot] != 1
        capacity = max(-_FREE_MAX, min(inventory.capacity, _FREE_MAX))
        self._capacity[slot] = capacity
        self._free[slot] = capacity - used
        self._min_unit[slot] = inventory.min_unit
        self._max_unit[slot] = inventory.max_unit
        self._step_size[slot] = inventory.step_size
        self._steps += inventory.step_size != 1

    def remove(self, row: Row) -> None:
        slot = self._slot_of.pop(row)
        self._steps -= self._step_size[slot] != 1
        last = self._count = self._count - 1
        if slot != last:
            moved = self._rows[last]
            for array in (
                self._rows,
                self._capacity,
                self._free,
                self._min_unit,
                self._max_unit,
                self._step_size,
            ):
                array[slot] = array[last]
            self._slot_of[Row(int(moved))] = slot

    def take(self, row: Row, amount: int) -> None:
        """Use ``amount`` more (less, when negative) of a row."""
        self._free[self._slot_of[row]] -= amount

    def fitting(self, amount: int) -> Rows:
        """The rows that could hold one allocation of this amount now, in no particular order."""
        end = self._count
        if amount > AMOUNT_MAX:
            return self._rows[:0]
        fits = self._free[:end] >= amount
        fits &= self._min_unit[:end] <= amount
        fits &= self._max_unit[:end] >= amount
        if self._steps:
            fits &= amount % self._step_size[:end] == 0
        return self._rows[:end][fits]

    def free(self) -> tuple[Rows, NDArray[np.int64]]:
        """The rows of the column and what is free on each (nothing, where a provider is over capacity)."""
        return self._rows[: self._count], np.maximum(self._free[: self._count], 0)

    def free_for_one(self) -> tuple[Rows, NDArray[np.int64]]:
        """The rows of the column and the most that one consumer could get on each, as its units allow."""
        end = self._count
        step = self._step_size[:end]
        most = np.minimum(self._free[:end], self._max_unit[:end]) // step * step
        return self._rows[:end], np.where(most >= np.maximum(self._min_unit[:end], 1), most, 0)

    def rows(self) -> Rows:
        """The rows of the column, in no particular order."""
        return self._rows[: self._count]

    def rows_in_use(self) -> Rows:
        """The rows of which anything is used, in no particular order."""
        end = self._count
        used: NDArray[np.bool_] = self._capacity[:end] != self._free[:end]
        return self._rows[:end][used]

    def sums(self) -> ColumnSums:
        capacity, free = self._capacity[: self._count], self._free[: self._count]
        return ColumnSums(_sum(capacity), _sum(capacity - free), _sum(np.maximum(free, 0)))

    def amounts(self) -> tuple[Rows, NDArray[np.int64], NDArray[np.int64]]:
        """The rows of the column, with the capacity of each and what is used of it."""
        end = self._count
        return self._rows[:end], self._capacity[:end], self._capacity[:end] - self._free[:end]

    def by_row(self) -> dict[int, tuple[int, int, int, int]]:
        """The column's content, independent of slots: free, min, max and step by row."""
        return {
            row: (
                int(self._free[slot]),
                int(self._min_unit[slot]),
                int(self._max_unit[slot]),
                int(self._step_size[slot]),
            )
            for row, slot in sorted(self._slot_of.items())
        }

    def _new_slot(self, row: Row) -> int:
        slot = self._count
        if slot == len(self._rows):
            self._rows = np.resize(self._rows, 2 * slot)
            self._capacity = np.resize(self._capacity, 2 * slot)
            self._free = np.resize(self._free, 2 * slot)
            self._min_unit = np.resize(self._min_unit, 2 * slot)
            self._max_unit = np.resize(self._max_unit, 2 * slot)
            self._step_size = np.resize(self._step_size, 2 * slot)
        self._rows[slot] = row
        self._slot_of[row] = slot
        self._count = slot + 1
        return slot


def _sum(numbers: NDArray[np.int64]) -> int:
    """Exactly, however large: two vast capacities would not fit in 64 bits. Halves of them do."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


class ResourceClasses:
    """Standard classes, always there, and custom ones as events made them."""

    __slots__ = ("_columns", "_custom", "_id_of", "_name_of", "revision")

    def __init__(self) -> None:
        self._name_of = {ClassId(number): name for number, name in enumerate(STANDARD_CLASSES)}
        self._id_of = {name: id for id, name in self._name_of.items()}
        self._custom: dict[ClassId, Named] = {}
        self._columns: dict[ClassId, Column] = {}
        # Changes with every name; like a provider's revision, it is for caches and not part of the state.
        self.revision = 0

    def id_of(self, name: str) -> ClassId | None:
        return self._id_of.get(name)

    def name_of(self, id: ClassId) -> str:
        return self._name_of[id]

    def created_at_s(self, id: ClassId) -> int | None:
        """When a custom class was created; None for a standard one."""
        named = self._custom.get(id)
        return named.created_at_s if named else None

    def custom(self) -> Iterator[tuple[ClassId, int]]:
        """Custom classes with the second in which each was created."""
        return ((id, named.created_at_s) for id, named in self._custom.items())

    def ids(self) -> Iterator[ClassId]:
        """All classes, standard ones first."""
        return iter(sorted(self._name_of))

    def next_id(self) -> ClassId:
        return ClassId(max(self._custom, default=FIRST_CUSTOM_CLASS - 1) + 1)

    def column(self, id: ClassId) -> Column:
        column = self._columns.get(id)
        if column is None:
            column = self._columns[id] = Column()
        return column

    def in_inventories(self) -> Iterator[ClassId]:
        """The classes of which any provider has inventory."""
        return (id for id, column in self._columns.items() if len(column))

    def change(self, id: ClassId, after: Named | None) -> None:
        self.revision += 1
        before = self._custom.pop(id, None)
        if before is not None:
            del self._name_of[id], self._id_of[before.name]
        if after is not None:
            self._custom[id] = after
            self._name_of[id] = after.name
            self._id_of[after.name] = id
        else:
            self._columns.pop(id, None)

    def state(self) -> dict[str, object]:
        return {
            "custom": dict(sorted(self._custom.items())),
            "columns": {id: column.by_row() for id, column in sorted(self._columns.items()) if len(column)},
        }
