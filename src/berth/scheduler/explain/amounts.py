"""Other amounts that would fit: the nearest that some host, which passes all else, could give.

Over all hosts at once: how far is each from what is asked, with the best of its providers for each class.
Columns do not tell units, so hosts are sorted by what stands in the way (too little free, the units, nothing
there), and of each sort the few that are nearest are looked at one by one. Whether a request with other
amounts then fits is for a variant to say; here it is enough to guess well.
"""

from collections.abc import Iterator
from math import ceil
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.model.ids import ClassId, Row
from berth.model.placement import SHARES_VIA_AGGREGATE, Inventory
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, Change, RequestGroup
from berth.scheduler.explain.variants import Variant, Variants, name_group
from berth.search.providers import (
    in_all_aggregates,
    in_any_aggregate,
    narrow,
    narrow_to_roots,
    roots_served,
    with_all_traits,
    with_any_trait,
)
from berth.view import Mask, ProviderRecord, View

_HOSTS_OF_A_SORT: Final = 16
_SORTS_MAX: Final = 8
_OFFERED_MAX: Final = 6

WITHOUT_COST: Final = 1.0
"""What it costs to do without a class; to have less of it costs the fraction that is lost."""

Amounts = dict[tuple[str, str], int]
"""Amounts by group and class, of those that change; 0 is to do without."""


class AmountPart(NamedTuple):
    """What one group asks of one class, and the providers that could serve it as far as all else goes: one of
    them, or several together where it may be split."""

    group: RequestGroup
    name: str
    class_id: ClassId
    asked: int
    usable: Mask
    splits: bool = False

    @property
    def suffix(self) -> str:
        return self.group.suffix


def vary_amounts(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The request with other amounts, those first that change the least."""
    view, ask = variants.view, variant.request.ask
    parts = [part for group in ask.groups for part in split_parts(view, group, ask)]
    hosts = variants.hosts(variant)
    narrow_to_roots(view, hosts, ask)
    offered: dict[tuple[tuple[tuple[str, str], int], ...], float] = {}
    for share in sorted({1, min(2, variants.needed), ceil(variants.needed / 2), variants.needed}):
        for row in _nearest(view, parts, hosts, share):
            amounts = _amounts_at(view, ask, parts, row, share)
            if amounts:
                offered[tuple(sorted(amounts.items()))] = _cost(parts, amounts)
    ranked = sorted(offered, key=lambda amounts: (offered[amounts], amounts))
    # Of many members the nearest host may take one, and the last of them needs a host further away.
    step = max(1, len(ranked) // _OFFERED_MAX) if variants.needed > 1 else 1
    for chosen in ranked[::step][:_OFFERED_MAX]:
        asked = _with_amounts(ask, dict(chosen))
        if asked is not None:
            yield _vary(variant, asked, parts, dict(chosen))


# -- over all hosts -----------------------------------------------------------------------------


def split_parts(view: View, group: RequestGroup, ask: CandidatesRequest) -> Iterator[AmountPart]:
    """What a group asks for, class by class; those that are split may come from several providers."""
    usable = np.ones(view.row_end, np.bool_)
    spans = group.suffix == UNSUFFIXED and bool(
        view.nested_count or view.rows_with_trait(SHARES_VIA_AGGREGATE)
    )
    if spans:
        # Traits that it requires may lie on any of its providers, and aggregates are those of the host.
        unfit = with_any_trait(view, group.forbidden)
        inside = in_all_aggregates(view, group.member_of)
        outside = in_any_aggregate(view, group.not_member_of)
        usable &= True if unfit is None else ~unfit
        usable &= True if inside is None else inside | inside[view.root_rows]
        usable &= True if outside is None else ~(outside | outside[view.root_rows])
    else:
        narrow(view, usable, group)
    parts = with_all_traits(view, tuple((name,) for name in sorted(ask.split_required)))
    for name, amount in group.resources:
        class_id = view.classes.id_of(name)
        assert class_id is not None, "names were looked up before"
        splits = spans and name in ask.split
        may_be = usable if not splits or parts is None else usable & parts
        yield AmountPart(group, name, class_id, amount, may_be, splits)


def _nearest(view: View, parts: list[AmountPart], hosts: Mask, share: int) -> Iterator[Row]:
    """Of each sort of hosts those that are nearest to having ``share`` times what is asked."""
    distance = np.zeros(view.row_end)
    sort = np.zeros(view.row_end, np.int64)
    for part in parts:
        best, fits = _best_free(view, part, share)
        short = best < part.asked * share
        none = best <= 0
        distance += np.where(none, WITHOUT_COST, np.maximum(0, 1 - best / (part.asked * share)))
        sort = sort * 4 + np.where(none, 3, np.where(short, 2, np.where(fits, 0, 1)))
    # Where each part would fit by itself, and parts compete, it may be that all of them do not.
    rows = np.flatnonzero(hosts if _compete(parts) else hosts & (sort > 0))
    rows = rows[np.lexsort((-_free_in_all(view, parts)[rows], distance[rows]))]
    _, first = np.unique(sort[rows], return_index=True)
    for place in np.sort(first)[:_SORTS_MAX].tolist():
        alike = rows[sort[rows] == sort[rows[place]]]
        yield from (Row(row) for row in alike[:_HOSTS_OF_A_SORT].tolist())


def _compete(parts: list[AmountPart]) -> bool:
    return len({part.class_id for part in parts}) < len(parts)


def _free_in_all(view: View, parts: list[AmountPart]) -> NDArray[np.float64]:
    """What each host has free of the classes that parts compete for."""
    free_of_all = np.zeros(view.row_end)
    for class_id in {part.class_id for part in parts} if _compete(parts) else ():
        rows, free = view.classes.column(class_id).free()
        free_of_all += np.bincount(view.root_rows[rows], free, view.row_end)
    return free_of_all


def _best_free(view: View, part: AmountPart, share: int) -> tuple[NDArray[np.int64], Mask]:
    """For each host, what is free on the best provider, and whether one could give what is asked."""
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    view.steps.take(20 + (view.row_end // 100) * (1 + len(sharing)))
    column = view.classes.column(part.class_id)
    rows, free = column.free()
    chosen = part.usable[rows]
    rows, free = rows[chosen], free[chosen]
    best = np.zeros(view.row_end, np.int64)
    fits = np.zeros(view.row_end, np.bool_)
    if part.splits:
        best += np.bincount(view.root_rows[rows], free, view.row_end).astype(np.int64)
        return best, best >= part.asked * share
    if view.nested_count:
        np.maximum.at(best, view.root_rows[rows], free)
    else:
        best[rows] = free
    fitting = column.fitting(part.asked)
    fits[view.root_rows[fitting[part.usable[fitting]]]] = True
    for row in sharing:
        record = view.record(row)
        if part.usable[row] and part.class_id in record.inventories:
            served = roots_served(view, record.aggregates)
            room = record.inventories[part.class_id].capacity - record.used.get(part.class_id, 0)
            best[served] = np.maximum(best[served], room)
            fits[served] |= row in fitting
    return best, fits


# -- on one host --------------------------------------------------------------------------------


def _amounts_at(
    view: View, ask: CandidatesRequest, parts: list[AmountPart], host: Row, share: int
) -> Amounts:
    """The nearest amounts that the host could give ``share`` times, where they are not those asked."""
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    view.steps.take(10 + 10 * len(parts) + len(sharing) * (1 + view.row_end // 200))
    given = _Given(view, ask, host)
    amounts = [(part, given.amount(part, share)) for part in parts]
    return {(part.suffix, part.name): amount for part, amount in amounts if amount != part.asked}


class _Given:
    """What a host would give to one part after the other, so that nothing is given twice."""

    def __init__(self, view: View, ask: CandidatesRequest, host: Row) -> None:
        sharing = map(view.record, view.rows_with_trait(SHARES_VIA_AGGREGATE))
        serving = (record for record in sharing if roots_served(view, record.aggregates)[host])
        records = (*view.record(host).tree(), *serving)
        self._providers = {record.row: record for record in records}
        self._apart = ask.apart
        self._taken: dict[tuple[Row, ClassId], int] = {}
        self._holders: dict[Row, set[str]] = {}

    def amount(self, part: AmountPart, share: int) -> int:
        """The nearest amount there is, from the tightest place for it; 0 if there is none."""
        if part.splits:
            rooms = (
                self._room(record, inventory, part.class_id)
                for row, record in self._providers.items()
                if (inventory := record.inventories.get(part.class_id)) is not None and part.usable[row]
            )
            return min(part.asked, sum(max(0, room) for room in rooms) // share)
        choices = [
            (abs(amount - part.asked), amount, room, row)
            for row, record in self._providers.items()
            if (inventory := record.inventories.get(part.class_id)) is not None and self._may_hold(row, part)
            for room in [self._room(record, inventory, part.class_id)]
            for amount in _valid_amounts(inventory, room // share, part.asked)
        ]
        if not choices:
            return 0
        _, amount, _, row = min(choices)
        self._taken[row, part.class_id] = self._taken.get((row, part.class_id), 0) + amount * share
        if part.suffix != UNSUFFIXED:
            self._holders.setdefault(row, set()).add(part.suffix)
        return amount

    def _may_hold(self, row: Row, part: AmountPart) -> bool:
        others = self._holders.get(row, set()) - {part.suffix}
        is_apart = any(part.suffix in suffixes and others & suffixes for suffixes in self._apart)
        return bool(part.usable[row]) and not is_apart

    def _room(self, record: ProviderRecord, inventory: Inventory, class_id: ClassId) -> int:
        return inventory.capacity - record.used.get(class_id, 0) - self._taken.get((record.row, class_id), 0)


def _valid_amounts(inventory: Inventory, free: int, asked: int) -> Iterator[int]:
    """The nearest amounts to what is asked, from below and from above, that units and room allow."""
    step, least = inventory.step_size, max(inventory.min_unit, 1)
    most = min(free, inventory.max_unit)
    less = min(asked, most) // step * step
    if less >= least:
        yield less
    more = ceil(max(asked, least) / step) * step
    if more <= most:
        yield more


# -- as a variant ---------------------------------------------------------------------------------


def _cost(parts: list[AmountPart], amounts: Amounts) -> float:
    asked = {(part.suffix, part.name): part.asked for part in parts}
    return sum(
        abs(asked[key] - amount) / asked[key] if amount else WITHOUT_COST for key, amount in amounts.items()
    )


def _with_amounts(ask: CandidatesRequest, amounts: Amounts) -> CandidatesRequest | None:
    """The request with these amounts; None if nothing would be asked for any more."""
    groups = []
    for group in ask.groups:
        wanted = ((name, amounts.get((group.suffix, name), amount)) for name, amount in group.resources)
        resources = tuple((name, amount) for name, amount in wanted if amount)
        if resources or not group.resources:
            groups.append(msgspec.structs.replace(group, resources=resources))
    if not any(group.resources for group in groups):
        return None
    return msgspec.structs.replace(ask, groups=tuple(groups))


def _vary(variant: Variant, ask: CandidatesRequest, parts: list[AmountPart], amounts: Amounts) -> Variant:
    variant = variant._replace(request=msgspec.structs.replace(variant.request, ask=ask))
    for part in parts:
        after = amounts.get((part.suffix, part.name))
        if after is not None:
            cost = abs(part.asked - after) / part.asked if after else WITHOUT_COST
            variant = variant.but(_change(part, after), cost)
    return variant


def _change(part: AmountPart, after: int) -> Change:
    where = name_group(part.group)
    if not after:
        # Of several devices that are alike it is about one.
        what = f"{part.asked} {part.name}" if part.group.label else part.name
        return Change("without_resource", part.name, f"without {what}{where}", part.asked, 0)
    kind = "less" if after < part.asked else "more"
    difference = abs(after - part.asked)
    text = f"with {difference} {part.name} {kind}{where} ({after} instead of {part.asked})"
    return Change(kind, part.name, text, part.asked, after)
