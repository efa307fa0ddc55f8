"""Which rows have a trait or belong to an aggregate, as a set and, when asked for, as a mask."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import Row

Mask = NDArray[np.bool_]

_SPARSE: Final = 64
"""Below one row in this many a mask is made when needed and not kept, so that a fleet with a trait per
host does not hold a mask of the whole fleet for each."""


class RowSet:
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
