"""How many members each host has room for, by its resources alone.

Slots that ask for different classes do not get in each other's way: a host takes as many members as the
slot with the least room, and a slot as many as its providers together. This is exact, and vectors do it.

Two things make it less simple. Slots that are *tied* (they ask for the same class, must be apart, in one
subtree, or bring a trait between them) are counted tree by tree (trees.py). What is *shared* is there
once for all hosts that may use it: a host's room on its own is then not its part of the total.
"""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, Row
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest
from berth.scheduler.capacity.trees import COUNT_MAX, THOROUGH, TreeCounts, TreeEffort
from berth.search.assignments import contended_classes
from berth.search.providers import any_of
from berth.search.slots import Slot
from berth.view import Mask, View

Counts = NDArray[np.int64]
"""A number for each row, of which only those of hosts mean anything; or for each of some hosts."""

HostRows = NDArray[np.int32] | NDArray[np.int64]
"""Some hosts, by row."""


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
    shared_rows = {row for slot in slots for row, served in slot.sharing.items() if served.any()}
    parts = [_parts(view, slot, shared_rows) for slot in slots]
    shared = []
    each = np.where(hosts, COUNT_MAX, 0)
    # The slots that are counted tree by tree where slots are tied, and how many members they allow at most.
    contended = contended_classes(slots)
    inside = [slot for slot in slots if not slot.sharing or _may_be_tied(view, ask, slot, contended)]
    each_inside = each.copy()
    for slot, by_row in zip(slots, parts, strict=True):
        own = _by_host(view, by_row)
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
    tied = _find_tied(view, ask, slots, parts, each)
    if not tied.any():
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


def _may_be_tied(view: View, ask: CandidatesRequest, slot: Slot, contended: tuple[ClassId, ...]) -> bool:
    """Whether what a slot takes may matter to another slot. If not, it can be counted by itself."""
    return (
        any(class_id in contended for class_id, _ in slot.amounts)
        or (ask.isolate and slot.group.suffix != UNSUFFIXED)
        or any(slot.group.suffix in suffixes for suffixes in ask.same_subtrees)
        or (slot.spans and bool(slot.group.required))
        or (not ask.nested and view.nested_count > 0)
    )


def _parts(view: View, slot: Slot, shared_rows: AbstractSet[Row]) -> Counts:
    """How many parts of a slot each provider has room for. What a provider shares is counted as shared, to
    its own tree too."""
    view.steps.take(20 + view.row_end // 100)
    parts = np.where(slot.own, COUNT_MAX, 0)
    for class_id, amount in slot.amounts:
        rows, free = view.classes.column(class_id).free()
        of_class = np.zeros(view.row_end, np.int64)
        of_class[rows] = free // amount
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
    """The hosts with room where slots may get in each other's way."""
    if len(slots) == 1 and not slots[0].spans:
        return np.zeros(view.row_end, np.bool_)
    suffixed = sum(slot.group.suffix != UNSUFFIXED for slot in slots)
    if (
        contended_classes(slots)
        or (ask.isolate and suffixed > 1)
        or any(len(suffixes) > 1 for suffixes in ask.same_subtrees)
        or (not ask.nested and view.nested_count)
    ):
        return each > 0
    return _find_tied_by_traits(view, slots, parts, each)


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
