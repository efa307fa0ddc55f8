"""The sets that a view is made of: rows, which can be asked for as a mask, and ids in their order."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import Row

Mask = NDArray[np.bool_]

_SPARSE: Final = 64
"""Below one row in this many a mask is made when needed and not kept, so that a fleet with a trait per
host does not hold a mask of the whole fleet for each."""

BLOCK_MAX: Final = 512
_BLOCK_FIRST: Final = BLOCK_MAX // 2
"""Blocks begin half full, whether they come from a division or are made from many ids at once."""

I = TypeVar("I", bound=str)  # noqa: E741


class RowSet:
    """Which rows have a trait or belong to an aggregate, as a set and, when asked for, as a mask."""

    __slots__ = ("_array", "_mask", "_rows")

    def __init__(self) -> None:
        self._rows: set[Row] = set()
        self._array: NDArray[np.int32] | None = None
        self._mask: Mask | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, row: Row) -> bool:
        return row in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def add(self, row: Row) -> None:
        self._rows.add(row)
        self._array = None
        if self._mask is not None:
            if row < len(self._mask):
                self._mask[row] = True
            else:
                self._mask = None

    def discard(self, row: Row) -> None:
        self._rows.discard(row)
        self._array = None
        if self._mask is not None and row < len(self._mask):
            self._mask[row] = False

    def is_sparse(self, size: int) -> bool:
        """Whether these are so few of ``size`` rows that a list of them is cheaper than a mask."""
        return len(self._rows) * _SPARSE < size

    def rows(self) -> NDArray[np.int32]:
        """The rows in any order. Not to be written to."""
        if self._array is None:
            self._array = np.fromiter(self._rows, np.int32, len(self._rows))
            self._array.flags.writeable = False
        return self._array

    def mask(self, size: int) -> Mask:
        """A mask over the first ``size`` rows. Not to be written to."""
        if self._mask is not None and len(self._mask) >= size:
            return self._mask[:size]
        # Half as much again, so that a growing fleet does not make a new mask for every host.
        mask = np.zeros(size + size // 2, np.bool_)
        mask[np.fromiter(self._rows, np.int32, len(self._rows))] = True
        if not self.is_sparse(size):
            self._mask = mask
        return mask[:size]


class OrderedIds(Generic[I]):
    """Ids in order, each at most once, for readers that want a page of them behind a marker.

    A sorted list in blocks: ``_bounds`` holds the smallest id that may be in each block but the first, so
    that finding a block and a place in it are two bisections, and a change moves no more than a block.
    Keeping an id costs a pointer; a set would cost eight times that, and know no order. Blocks that grow too
    large are divided; one that becomes empty goes.
    """

    __slots__ = ("_blocks", "_bounds")

    def __init__(self, ids: Iterable[I] = ()) -> None:
        ordered = sorted(ids)
        starts = range(0, len(ordered), _BLOCK_FIRST)
        self._blocks = [ordered[start : start + _BLOCK_FIRST] for start in starts] or [[]]
        self._bounds = [block[0] for block in self._blocks[1:]]

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __bool__(self) -> bool:
        return bool(self._blocks[0])

    def __iter__(self) -> Iterator[I]:
        return chain.from_iterable(self._blocks)

    def behind(self, marker: str | None) -> Iterator[I]:
        """The ids greater than the marker, in order; all of them without one. Not to be changed meanwhile."""
        if marker is None:
            return iter(self)
        number = bisect_right(self._bounds, marker)
        block = self._blocks[number]
        rest = islice(self._blocks, number + 1, None)
        return chain(block[bisect_right(block, marker) :], chain.from_iterable(rest))

    def add(self, id: I) -> None:
        number = bisect_right(self._bounds, id)
        block = self._blocks[number]
        insort(block, id)
        if len(block) > BLOCK_MAX:
            self._divide(number)

    def remove(self, id: I) -> None:
        number = bisect_right(self._bounds, id)
        block = self._blocks[number]
        place = bisect_left(block, id)
        assert block[place : place + 1] == [id], f"{id} is not here"
        del block[place]
        if not block and self._bounds:
            # Its neighbour takes over the range: the one before it, or the second becomes the first.
            del self._blocks[number], self._bounds[max(number - 1, 0)]

    def _divide(self, number: int) -> None:
        block = self._blocks[number]
        self._blocks[number : number + 1] = block[:_BLOCK_FIRST], block[_BLOCK_FIRST:]
        self._bounds.insert(number, block[_BLOCK_FIRST])
