"""Consumers as a view holds them: their totals, and an index for readers that want some of them in the order
of their ids.

The index is cut into blocks, each a range of ids. Within a block entries stand as they came, and beside each
id stand the hashes of its project, user and type. So a new consumer costs a bisection over the blocks and a
few appends; a reader asks a block with vectors, at some three nanoseconds per consumer, goes on until it has
enough, and sorts only what it takes. The alternatives cost more where it matters: an ordered list per
project, per user and per type takes five microseconds of every claim, and sets take several times the memory.

The index may name too many, never too few: an entry stays for a while after its consumer has gone or changed
hands, and hashes collide. Readers ask the record, which is the truth. A block is swept when more than
half of it is out of date, and divided when it has grown too large.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, ConsumerId
from berth.model.placement import Consumer, Holdings


class ConsumerRecord(msgspec.Struct, gc=False):
    """A consumer and what it holds. There may be millions, so the garbage collector is not told of them."""

    consumer: Consumer
    held: Holdings


BLOCK_MAX: Final = 2048
_BLOCK_FIRST: Final = BLOCK_MAX // 2
_SAMPLE: Final = 64

Hashes: TypeAlias = "array[int]"
Places = NDArray[np.intp]


class ConsumerFilter(msgspec.Struct, frozen=True):
    """Which consumers are meant: None and UNSET for any. The type None is that of consumers without one."""

    project: str | None = None
    user: str | None = None
    type: str | msgspec.UnsetType | None = msgspec.UNSET

    def matches(self, consumer: Consumer) -> bool:
        return (
            (self.project is None or consumer.project == self.project)
            and (self.user is None or consumer.user == self.user)
            and (self.type is msgspec.UNSET or consumer.type == self.type)
        )


class _Block:
    """Entries of one range of ids, in no order. ``outdated`` counts those whose consumer is gone or
    changed."""

    __slots__ = ("ids", "outdated", "projects", "types", "users")

    def __init__(self, ids: list[ConsumerId], projects: Hashes, users: Hashes, types: Hashes) -> None:
        self.ids = ids
        self.projects = projects
        self.users = users
        self.types = types
        self.outdated = 0

    @classmethod
    def of(cls, ids: list[ConsumerId], consumers: list[Consumer]) -> "_Block":
        return cls(
            ids,
            array("q", [hash(consumer.project) for consumer in consumers]),
            array("q", [hash(consumer.user) for consumer in consumers]),
            array("q", [hash(consumer.type) for consumer in consumers]),
        )

    def part(self, places: list[int]) -> "_Block":
        """The entries at these places, as a block of their own."""
        chosen = np.array(places, np.intp)
        hashes = (
            array("q", _numbers(kind)[chosen].tobytes()) for kind in (self.projects, self.users, self.types)
        )
        return _Block([self.ids[place] for place in places], *hashes)

    def perhaps(self, whose: ConsumerFilter) -> list[ConsumerId]:
        """Ids whose hashes match."""
        places: Places | None = None
        # The user first: it is mostly the rarest, and then there is nothing left to look at.
        if whose.user is not None:
            places = _places(self.users, whose.user, places)
        if whose.project is not None:
            places = _places(self.projects, whose.project, places)
        if whose.type is not msgspec.UNSET:
            places = _places(self.types, whose.type, places)
        return self.ids if places is None else [self.ids[place] for place in places.tolist()]


class ConsumerIndex:
    """Kept up to date by the view, beside its ``consumers``."""

    __slots__ = ("_blocks", "_bounds", "_consumers")

    def __init__(self, consumers: Mapping[ConsumerId, ConsumerRecord]) -> None:
        """The index of these consumers. Fastest if they are in order."""
        self._consumers = consumers
        ordered = sorted(consumers)
        starts = range(0, len(ordered), _BLOCK_FIRST)
        parts = [ordered[start : start + _BLOCK_FIRST] for start in starts] or [[]]
        self._blocks = [_Block.of(ids, [consumers[id].consumer for id in ids]) for ids in parts]
        # The smallest id that may be in each block but the first.
        self._bounds = [ordered[start] for start in starts[1:]]

    # -- reading --------------------------------------------------------------------------------

    def behind(
        self,
        marker: str | None = None,
        whose: ConsumerFilter = ConsumerFilter(),  # noqa: B008
    ) -> Iterator[ConsumerId]:
        """The ids greater than the marker, in order. The view is not to be changed meanwhile."""
        consumers = self._consumers
        behind = marker or ""
        for number in range(bisect_right(self._bounds, behind), len(self._blocks)):
            ids = {id for id in self._blocks[number].perhaps(whose) if id > behind and id in consumers}
            yield from sorted(id for id in ids if whose.matches(consumers[id].consumer))

    # -- changing -------------------------------------------------------------------------------

    def add(self, id: ConsumerId, consumer: Consumer) -> None:
        number = bisect_right(self._bounds, id)
        block = self._blocks[number]
        block.ids.append(id)
        block.projects.append(hash(consumer.project))
        block.users.append(hash(consumer.user))
        block.types.append(hash(consumer.type))
        if len(block.ids) > BLOCK_MAX:
            self._tidy(number)

    def remove(self, id: ConsumerId) -> None:
        """An entry of this id is out of date: the consumer has gone, or has changed hands."""
        number = bisect_right(self._bounds, id)
        block = self._blocks[number]
        block.outdated += 1
        if 2 * block.outdated > len(block.ids):
            self._tidy(number)

    def change(self, id: ConsumerId, before: Consumer, after: Consumer) -> None:
        """Mostly a consumer stays whose it was."""
        if before.project != after.project or before.user != after.user or before.type != after.type:
            self.add(id, after)
            self.remove(id)

    def _tidy(self, number: int) -> None:
        """Sweep a block, and divide it if that leaves it large, or do without it if that leaves it empty.

        The records are not asked whose they are, and ids are not sorted: both would touch memory all over the
        place, and cost every claim of a growing fleet several microseconds in the end.
        """
        block = self._blocks[number]
        if block.outdated:
            # Of several entries of one id the last says whose it is now.
            last = {id: place for place, id in enumerate(block.ids) if id in self._consumers}
            block = self._blocks[number] = block.part(list(last.values()))
        if len(block.ids) > _BLOCK_FIRST:
            bound = _about_the_middle(block.ids)
            self._blocks[number : number + 1] = (
                block.part([place for place, id in enumerate(block.ids) if id < bound]),
                block.part([place for place, id in enumerate(block.ids) if id >= bound]),
            )
            self._bounds.insert(number, bound)
        elif not block.ids and self._bounds:
            # Its neighbour takes over the range: the one before it, or the second becomes the first.
            del self._blocks[number], self._bounds[max(number - 1, 0)]

    def __len__(self) -> int:
        """How many entries there are, those out of date included."""
        return sum(len(block.ids) for block in self._blocks)


def _numbers(hashes: Hashes) -> NDArray[np.int64]:
    """The same memory as a vector. Not to be kept: an array that is looked at so cannot grow."""
    return np.frombuffer(hashes, np.int64)


def _places(hashes: Hashes, text: str | None, among: Places | None) -> Places:
    """Where the text may stand, among these places or all."""
    numbers = _numbers(hashes)
    if among is None:
        found: Places = (numbers == hash(text)).nonzero()[0]
    else:
        found = among[numbers[among] == hash(text)] if len(among) else among
    return found


def _about_the_middle(ids: list[ConsumerId]) -> ConsumerId:
    """An id with others before it: the median of some of them."""
    some = sorted(ids[:: max(1, len(ids) // _SAMPLE)])
    return some[len(some) // 2]


class Total:
    """What the consumers of one project, user and type hold together."""

    __slots__ = ("amounts", "consumers")

    def __init__(self) -> None:
        self.consumers = 0
        self.amounts: dict[ClassId, int] = {}

    def add(self, held: Holdings, sign: int) -> None:
        self.consumers += sign
        for _, amounts in held:
            for class_id, amount in amounts:
                total = self.amounts.get(class_id, 0) + sign * amount
                if total:
                    self.amounts[class_id] = total
                else:
                    del self.amounts[class_id]


class UsageTotals:
    """Totals of consumers that hold anything; one that holds nothing is in none."""

    __slots__ = ("_by_project",)

    def __init__(self) -> None:
        self._by_project: dict[str, dict[tuple[str, str | None], Total]] = {}

    def add(self, consumer: Consumer, held: Holdings) -> None:
        if held:
            totals = self._by_project.setdefault(consumer.project, {})
            key = (consumer.user, consumer.type)
            total = totals.get(key)
            if total is None:
                total = totals[key] = Total()
            total.add(held, +1)

    def remove(self, consumer: Consumer, held: Holdings) -> None:
        if held:
            totals = self._by_project[consumer.project]
            key = (consumer.user, consumer.type)
            total = totals[key]
            total.add(held, -1)
            if not total.consumers:
                del totals[key]
                if not totals:
                    del self._by_project[consumer.project]

    def of_project(self, project: str, user: str | None = None) -> Iterator[tuple[str | None, Total]]:
        """The totals of a project (of one user there), each with its consumer type."""
        for (total_user, consumer_type), total in self._by_project.get(project, {}).items():
            if user is None or user == total_user:
                yield consumer_type, total

    def projects(self) -> Iterable[str]:
        """The projects whose consumers hold anything."""
        return self._by_project.keys()

    def state(self) -> dict[str, object]:
        return {
            project: {
                key: (total.consumers, dict(sorted(total.amounts.items())))
                for key, total in sorted(totals.items(), key=repr)
            }
            for project, totals in sorted(self._by_project.items())
        }
