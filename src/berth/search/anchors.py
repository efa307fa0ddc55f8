"""Which roots can be the anchor of a candidate, by counting over the fleet before any of them is searched.

Counting never drops a root that has a candidate. Of each class it asks whether the rows that could serve some
slots have room for as many of them: in the tree, below one provider, or near the providers of other slots.
Slots that a sharing provider could serve are left out of it: what is left must come from the tree itself.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, Row
from berth.model.placement import NUMA_ROOT
from berth.model.scheduling import Affinity, CandidatesRequest
from berth.search.cells import list_sockets
from berth.search.providers import narrow_to_roots
from berth.search.slots import Slot, roots_of
from berth.view import Mask, ProviderRecord, View

_ANCHORS_BEFORE_COUNTING: Final = 100


def anchors_of(view: View, request: CandidatesRequest, slots: list[Slot]) -> Mask:
    """The roots at which every slot has at least one choice, and that are themselves as asked."""
    mask = slots[0].anchors.copy()
    for slot in slots[1:]:
        mask &= slot.anchors
    narrow_to_roots(view, mask, request)
    if len(slots) > 1 and mask.any():
        for suffixes in request.apart:
            _drop_with_too_few_providers(view, slots, suffixes, mask)
        _drop_with_too_little(view, slots, mask)
    return mask


def walk_anchors(
    view: View, request: CandidatesRequest, slots: list[Slot], anchors: Mask
) -> Iterator[ProviderRecord]:
    """Anchors in order. Once some have been asked for, others are dropped by their places: to count costs
    more than to look at a few."""
    rows = np.flatnonzero(anchors)
    yield from (view.record(Row(row)) for row in rows[:_ANCHORS_BEFORE_COUNTING].tolist())
    rows = rows[_ANCHORS_BEFORE_COUNTING:]
    if len(rows) and request.same_subtrees:
        left = np.zeros_like(anchors)
        left[rows] = True
        drop_by_places(view, request, slots, left)
        rows = np.flatnonzero(left)
    yield from (view.record(Row(row)) for row in rows.tolist())


def drop_by_places(view: View, request: CandidatesRequest, slots: list[Slot], mask: Mask) -> None:
    """Drop roots without a subtree such as the request needs, or with too few devices near the providers that
    other groups could be on."""
    _drop_without_subtrees(view, request, slots, mask)
    _drop_without_devices(view, request, slots, mask)


# -- amounts --------------------------------------------------------------------------------------------


class _Demand(NamedTuple):
    """So much of a class for each of some slots, and the rows that could serve any of them."""

    class_id: ClassId
    amounts: list[int]
    usable: Mask

    def rooms(self, view: View) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The rows that have the class, and how much one consumer could get of each."""
        rows, free = view.classes.column(self.class_id).free_for_one()
        view.steps.take(5 + len(rows) // 150)
        can = self.usable[rows]
        return rows[can], free[can]


def _demands(slots: Iterable[Slot]) -> Iterator[_Demand]:
    """What slots ask of each class: those that the same rows could serve, and all of them together."""
    by_class: dict[ClassId, dict[int, list[tuple[Slot, int]]]] = {}
    for slot in slots:
        for class_id, amount in slot.amounts:
            if not slot.sharing and not slot.splits:
                by_class.setdefault(class_id, {}).setdefault(id(slot.own), []).append((slot, amount))
    for class_id, kinds in by_class.items():
        for parts in kinds.values():
            yield _Demand(class_id, [amount for _, amount in parts], parts[0][0].own)
        if len(kinds) > 1:
            usable = np.logical_or.reduce([parts[0][0].own for parts in kinds.values()])
            yield _Demand(class_id, [amount for parts in kinds.values() for _, amount in parts], usable)


def _drop_with_too_few_providers(view: View, slots: list[Slot], suffixes: frozenset[str], mask: Mask) -> None:
    """Drop roots that have fewer providers for groups that must be apart, in their tree and shared with it,
    than there are groups."""
    apart = [slot for slot in slots if slot.group.suffix in suffixes]
    by_class: dict[ClassId, list[Slot]] = {}
    for slot in apart:
        for class_id, _ in slot.amounts:
            by_class.setdefault(class_id, []).append(slot)
    # Groups that ask for the same class have fewer providers than all of them together.
    for some in {tuple(map(id, some)): some for some in (apart, *by_class.values())}.values():
        if some:
            _drop_with_fewer_providers(view, some, mask)


def _drop_with_fewer_providers(view: View, apart: list[Slot], mask: Mask) -> None:
    usable = np.logical_or.reduce([slot.own for slot in apart])
    sharing = {row: served for slot in apart for row, served in slot.sharing.items()}
    view.steps.take((1 + len(apart) + len(sharing)) * (1 + view.row_end // 1000))
    counts = np.bincount(view.root_rows[usable], minlength=view.row_end)
    for served in sharing.values():
        # One that stands in the tree itself is counted twice: there may be fewer, never more.
        counts += served
    mask &= counts >= len(apart)


def _drop_with_too_little(view: View, slots: list[Slot], mask: Mask) -> None:
    """Drop roots that have too little of a class in the whole tree, or room for too few parts of it."""
    for demand in _demands(slots):
        if len(demand.amounts) == 1:
            continue  # Each slot by itself has been looked at.
        rows, free = demand.rooms(view)
        view.steps.take(view.row_end // 500)
        roots = view.root_rows[rows]
        mask &= np.bincount(roots, free, view.row_end) >= sum(demand.amounts)
        # A provider holds no more parts than it has times the smallest of them.
        mask &= np.bincount(roots, free // min(demand.amounts), view.row_end) >= len(demand.amounts)


# -- subtrees -------------------------------------------------------------------------------------------


def _drop_without_subtrees(view: View, request: CandidatesRequest, slots: list[Slot], mask: Mask) -> None:
    """A set that a sharing provider could be in is not counted: its tree may be the subtree."""
    seen = []
    for suffixes in request.same_subtrees:
        together = [slot for slot in slots if slot.group.suffix in suffixes]
        # Guests of several cells mostly ask for the same beside each.
        asked = sorted((id(slot.own), slot.amounts) for slot in together)
        if asked not in seen and not any(slot.sharing for slot in together):
            seen.append(asked)
            _drop_without_subtree(view, together, mask)


def _drop_without_subtree(view: View, slots: list[Slot], mask: Mask) -> None:
    """Drop roots that have no subtree with a choice for every one of these slots in it, and enough of each
    class for all of them. The provider at its top is one of the choices."""
    masks = {id(slot.own): slot.own for slot in slots}
    tops = np.logical_or.reduce(list(masks.values())) & mask[view.root_rows]
    for enough in _judge_subtrees(view, slots, masks):
        tops &= enough
        if not tops.any():
            break
    mask &= roots_of(view, tops)


def _judge_subtrees(view: View, slots: list[Slot], masks: dict[int, Mask]) -> Iterator[Mask]:
    """For each thing that a subtree needs, the rows at the top of one that has it. What is asked for several
    times comes first: that is what there mostly is too little of."""
    left = dict(masks)
    for demand in _demands(slots):
        if len(demand.amounts) > 1:
            left.pop(id(demand.usable), None)
            rows, free = demand.rooms(view)
            yield _sum_subtrees(view, rows, free // min(demand.amounts)) >= len(demand.amounts)
            if len(set(demand.amounts)) > 1:
                yield _sum_subtrees(view, rows, free) >= sum(demand.amounts)
    for own in left.values():
        usable = np.flatnonzero(own)
        yield _sum_subtrees(view, usable, np.ones(len(usable))) > 0


# -- devices near other groups --------------------------------------------------------------------------


def _drop_without_devices(view: View, request: CandidatesRequest, slots: list[Slot], mask: Mask) -> None:
    by_suffix = {slot.group.suffix: slot for slot in slots}
    by_near: dict[frozenset[str], list[tuple[Affinity, Slot]]] = {}
    for affinity in request.affinities:
        device = by_suffix.get(affinity.suffix)
        if device is not None:
            by_near.setdefault(affinity.near, []).append((affinity, device))
    for suffixes, devices in by_near.items():
        cells = [slot for slot in slots if slot.group.suffix in suffixes]
        if cells and not any(slot.sharing for slot in cells):
            near = _NearRows(view, cells)
            # Devices that may be further away are counted with those that must be nearer.
            for by_socket, or_outside in product((False, True), repeat=2):
                counted = [
                    (one, device)
                    for one, device in devices
                    if one.by_socket <= by_socket and one.or_outside <= or_outside
                ]
                reach = (any(one.by_socket for one, _ in counted), any(one.or_outside for one, _ in counted))
                if reach == (by_socket, or_outside):
                    outside = ~_rows_in_cells(view) if or_outside else None
                    for demand in _demands(device for _, device in counted):
                        near.judge(demand, mask, by_socket, outside)
            near.drop(mask)


class _NearRows:
    """The rows that some groups could be on, and devices below them: of so many groups, no more than so many
    times the best row, or all of them together, is to be had. Of one group, one row has all that is asked."""

    def __init__(self, view: View, cells: list[Slot]) -> None:
        self._view = view
        self._count = len(cells)
        self._rows = np.flatnonzero(np.logical_or.reduce([slot.own for slot in cells]))
        self._roots = view.root_rows[self._rows]
        self._enough = np.ones(len(self._rows), np.bool_)
        """Of one group: whether a row has all that was judged."""

    def judge(self, demand: _Demand, mask: Mask, by_socket: bool, outside: Mask | None) -> None:
        """Drop roots with too few devices below these rows; those of the same sockets (``by_socket``), and
        those on rows ``outside``, are counted with them."""
        view = self._view
        view.steps.take(10 + view.row_end // 500 + len(self._rows) // 50)
        rows, free = demand.rooms(view)
        rooms = free // min(demand.amounts)
        loose = np.zeros(len(rows), np.bool_) if outside is None else outside[rows]
        elsewhere = np.bincount(view.root_rows[rows[loose]], rooms[loose], view.row_end)
        sums = _sum_subtrees(view, rows, rooms)
        below = (_sum_sockets(view, sums) if by_socket else sums)[self._rows]
        if self._count == 1:
            self._enough &= below + elsewhere[self._roots] >= len(demand.amounts)
            return
        best = np.zeros(view.row_end)
        np.maximum.at(best, self._roots, below)
        total = np.bincount(self._roots, below, view.row_end)
        mask &= np.minimum(best * self._count, total) + elsewhere >= len(demand.amounts)

    def drop(self, mask: Mask) -> None:
        """Drop roots of which no row has all that was judged."""
        if self._count == 1:
            found = np.zeros_like(mask)
            found[self._roots[self._enough]] = True
            mask &= found


def _sum_sockets(view: View, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """For every row its sum, or that of all NUMA cells that are on a socket with its own, if that is more."""
    of_sockets = np.zeros(view.row_end)
    for name in list_sockets(view):
        rows = view.rows_with_trait(name).rows()
        view.steps.take(5 + view.row_end // 500 + len(rows) // 50)
        roots = view.root_rows[rows]
        of_sockets[rows] = np.maximum(of_sockets[rows], np.bincount(roots, sums[rows], view.row_end)[roots])
    is_cell = view.rows_with_trait(NUMA_ROOT).mask(view.row_end)
    while True:
        view.steps.take(1 + view.row_end // 300)
        below = np.where(is_cell, of_sockets, np.maximum(of_sockets, of_sockets[view.parent_rows]))
        if np.array_equal(below, of_sockets):
            return np.maximum(sums, of_sockets)
        of_sockets = below


def _rows_in_cells(view: View) -> Mask:
    """The rows of NUMA cells and of all below them."""
    inside = view.rows_with_trait(NUMA_ROOT).mask(view.row_end)
    while True:
        view.steps.take(1 + view.row_end // 700)
        below = inside | inside[view.parent_rows]
        if np.array_equal(below, inside):
            return inside
        inside = below


def _sum_subtrees(view: View, rows: NDArray[Any], amounts: NDArray[Any]) -> NDArray[np.float64]:
    """For every row the sum of these amounts on it and on all below it."""
    view.steps.take(10 + view.row_end // 800 + len(rows) // 80)
    parents, total = view.parent_rows, np.zeros(view.row_end)
    at: NDArray[Any] = rows
    while len(at):
        total += np.bincount(at, amounts, view.row_end)
        above = parents[at]
        is_nested = above != at
        at, amounts = above[is_nested], amounts[is_nested]
    return total
