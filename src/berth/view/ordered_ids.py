"""Ids in order, for readers that want a page of them behind a marker.

A sorted list in blocks: ``_bounds`` holds the smallest id that may be in each block but the first, so that
finding a block and a place in it are two bisections, and a change moves no more than a block. Keeping an
id costs a pointer; a set would cost eight times that, and know no order.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, Generic, TypeVar

BLOCK_MAX: Final = 512
_BLOCK_FIRST: Final = BLOCK_MAX // 2
"""Blocks begin half full, whether they come from a division or are made from many ids at once."""

I = TypeVar("I", bound=str)  # noqa: E741


class OrderedIds(Generic[I]):
    """Each id at most once. Blocks that grow too large are divided; one that becomes empty goes."""

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
