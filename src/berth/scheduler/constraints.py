"""Which hosts are left after each constraint in turn: how a request narrows down a fleet.

Each constraint is judged as generously as it can be by itself: a host is removed by the first one that makes
every candidate on it impossible. What only all of them together rule out is removed by the last,
``together``. This is for explanations; a plan that succeeds never needs it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.model.ids import AggregateId, ClassId, Row
from berth.model.placement import SHARES_VIA_AGGREGATE
from berth.model.rejections import ConstraintStep, PoolShortage, Rejection
from berth.model.scheduling import UNSUFFIXED, AnyOf, CandidatesRequest, RequestGroup, ScheduleRequest
from berth.scheduler.candidates import HostCandidates, asks_in
from berth.scheduler.hosts import drop_pools, find_host, sum_amounts
from berth.scheduler.plugins import SchedulerOptions, name_of
from berth.scheduler.shortages import describe_shortage
from berth.search.providers import (
    in_all_aggregates,
    in_any_aggregate,
    narrow_to_tree,
    roots_served,
    with_all_traits,
    with_any_trait,
    with_room,
)
from berth.search.slots import Slot, roots_of, roots_with_sum
from berth.view import Mask, ProviderRecord, View

TOGETHER_MAX: Final = 1_000
"""How many hosts are searched for a candidate, at most; the others, and those where the search was given
up, count as if there were one."""


POOLS_NAMED_MAX: Final = 5
"""How many pools are named that have too little, at most: those that have the most."""


class ConstraintResult(NamedTuple):
    """A constraint, what it asks for in words, and the hosts that are left after it (a mask of rows).
    ``pools`` have too little for hosts that it removed."""

    constraint: str
    asked: str
    left: Mask
    pools: tuple[PoolShortage, ...] = ()
    nearest: str = ""


class _Part(NamedTuple):
    """An amount that one provider must have, or several of a host together where it ``splits``, and those
    that could be it as far as all else goes."""

    class_id: ClassId
    amount: int
    usable: Mask
    splits: bool = False


class _Constraint(NamedTuple):
    """What is asked for, in words, and the hosts that meet it. ``short``: sharing providers that have too
    little of what is asked for, with the amount that is free. ``part``: what one provider must have."""

    name: str
    asked: str
    passing: Mask
    short: tuple[tuple[ProviderRecord, PoolShortage], ...] = ()
    part: _Part | None = None


def all_hosts(view: View) -> Mask:
    """The rows of hosts."""
    view.steps.take(10 + view.row_end // 1000)
    return drop_pools(view, view.roots())


class Narrowed(NamedTuple):
    """The constraints of a request for one thing, in order. The first result, ``hosts``, has all hosts."""

    request: ScheduleRequest
    results: list[ConstraintResult]

    @property
    def left(self) -> list[int]:
        """How many hosts each constraint leaves, the last first: more means that less is missing."""
        return [int(np.count_nonzero(result.left)) for result in reversed(self.results)]


def narrow_down(
    view: View,
    request: ScheduleRequest,
    options: SchedulerOptions,
    searched: Sequence[HostCandidates] = (),
) -> Narrowed | Rejection:
    """What each constraint leaves. Of several things asked for, the one that hosts come closest to counts; of
    equally close ones the last, unless it asks for more than the first. ``searched``: the candidates of the
    first of them in this very view, where they have been looked for."""
    closest: Narrowed | None = None
    slots: list[Slot] = []
    asked = asks_in(view, request)
    if isinstance(asked, Rejection):
        return asked
    hosts = all_hosts(view)
    for number, one in enumerate(asked):
        candidates = searched[number] if number < len(searched) else HostCandidates.of(view, one.ask)
        if isinstance(candidates, Rejection):
            return candidates
        results = _narrow_down(view, one, options, candidates, hosts)
        narrowed = Narrowed(one, results)
        is_last = closest is not None and narrowed.left == closest.left
        is_closer = closest is None or narrowed.left > closest.left
        if is_closer or (is_last and not _asks_for_more(view, one, request)):
            closest, slots = narrowed, candidates.slots
    assert closest is not None, "something is asked for"
    before, together = closest.results[-2:]
    nearest = _describe_first(view, closest.request.ask, slots, before.left & ~together.left)
    return Narrowed(closest.request, [*closest.results[:-1], together._replace(nearest=nearest)])


def _asks_for_more(view: View, one: ScheduleRequest, first: ScheduleRequest) -> bool:
    amounts, of_first = sum_amounts(view, one.ask), sum_amounts(view, first.ask)
    return any(amount > of_first.get(class_id, 0) for class_id, amount in amounts.items())


def _narrow_down(
    view: View,
    request: ScheduleRequest,
    options: SchedulerOptions,
    candidates: HostCandidates,
    hosts: Mask,
) -> list[ConstraintResult]:
    found = [ConstraintResult("hosts", "any host", hosts)]
    for constraint in _general_constraints(view, request, options):
        found.append(_narrow(view, constraint, found[-1].left))
    whole = {slot.group.suffix: slot for slot in candidates.slots if not slot.spans}
    for group in request.ask.groups:
        slot = whole.get(group.suffix)
        left = found[-1].left
        if slot is not None and not (left & ~slot.anchors).any():
            # Every host that is left meets all that the group asks for: so it meets each part of it.
            found += [ConstraintResult(name, asked, left) for name, asked in _words(view, group, request.ask)]
            continue
        for constraint in _group(view, group, request.ask):
            found.append(_narrow(view, constraint, found[-1].left))
    left = candidates.drop_barren(found[-1].left, TOGETHER_MAX)
    found.append(ConstraintResult("together", _describe_whole(request.ask), left))
    return found


def _narrow(view: View, constraint: _Constraint, before: Mask) -> ConstraintResult:
    view.steps.take(1 + view.row_end // 4000)
    left = before & constraint.passing
    removed = before & ~left
    if not removed.any():
        return ConstraintResult(constraint.name, constraint.asked, left)
    pools, nearest = _name_pools(view, constraint, removed), _name_nearest(view, constraint, removed)
    return ConstraintResult(constraint.name, constraint.asked, left, pools, nearest)


def _name_nearest(view: View, constraint: _Constraint, removed: Mask) -> str:
    """The provider of a host that was removed, or the host, which comes closest to having enough."""
    if constraint.part is None:
        return ""
    class_id, amount, usable, splits = constraint.part
    rows, most = view.classes.column(class_id).free_for_one()
    here = np.flatnonzero(usable[rows] & removed[view.root_rows[rows]])
    if not len(here):
        return ""
    if splits:
        roots = view.root_rows[rows[here]]
        sums = np.bincount(roots, most[here], view.row_end)
        # Only of hosts that were removed: a row that is not in use sums to 0, an overcommitted host to less.
        best = int(roots[sums[roots].argmax()])
        host, has = view.record(Row(best)), max(0, int(sums[best]))
        return f"{host.name} comes closest: {has} of {amount} {view.classes.name_of(class_id)}."
    row = here[most[here].argmax()]
    record, name = view.record(Row(int(rows[row]))), view.classes.name_of(class_id)
    if most[row] < amount:
        return f"{record.name} comes closest: {most[row]} of {amount} {name}."
    inventory = record.inventories[class_id]
    limit = f"no less than {inventory.min_unit} {name}"
    if amount >= inventory.min_unit:
        limit = f"{name} in steps of {inventory.step_size}"
    return f"{record.name} comes closest: it gives {limit} to one server."


def _describe_first(view: View, ask: CandidatesRequest, slots: list[Slot], removed: Mask) -> str:
    """What falls short on the first host that was removed."""
    rows = np.flatnonzero(removed)
    if not len(rows):
        return ""
    host = view.record(Row(int(rows[0])))
    words = describe_shortage(view, ask, slots, host)
    return "" if words is None else f"{host.name}: {words}."


def _describe_whole(ask: CandidatesRequest) -> str:
    labels = count_alike(group.label for group in ask.groups if group.label)
    return "all of it at once on one host" + (f", with {labels}" if labels else "")


def count_alike(parts: Iterable[str]) -> str:
    """Parts of a sentence, those that are alike with their number in place of a repetition."""
    counts = Counter(parts)
    return " and ".join(part if count == 1 else f"{count} x {part}" for part, count in counts.items())


def count_steps(results: list[ConstraintResult]) -> tuple[ConstraintStep, ...]:
    """The results as numbers of hosts."""
    counts = [int(np.count_nonzero(result.left)) for result in results]
    return tuple(
        ConstraintStep(result.constraint, result.asked, before - count, count, result.pools, result.nearest)
        for result, before, count in zip(results[1:], counts, counts[1:], strict=False)
    )


def _name_pools(view: View, constraint: _Constraint, removed: Mask) -> tuple[PoolShortage, ...]:
    """Of the pools that have too little, those that would have served a host that was removed for it."""
    serving = [
        shortage
        for record, shortage in constraint.short
        if (roots_served(view, record.aggregates) & removed).any()
    ]
    return tuple(sorted(serving, key=lambda one: (-one.free, one.pool))[:POOLS_NAMED_MAX])


def _general_constraints(
    view: View, request: ScheduleRequest, options: SchedulerOptions
) -> Iterator[_Constraint]:
    """Each constraint that is not of a group, with the hosts that meet it."""
    forced = request.hints.forced_host
    if forced is None:
        for filter in options.filters:
            asked = filter.describe_request(view, request)
            if asked is not None:
                yield _Constraint(name_of(filter), asked, filter.passing_hosts(view, request))
    else:
        yield _Constraint("forced_host", f"the host {forced}", forced_host(view, forced))
    yield from _of_root(view, request.ask)


def forced_host(view: View, name: str) -> Mask:
    """The one host that a request forces."""
    mask = np.zeros(view.row_end, np.bool_)
    host = find_host(view, name)
    if host is not None:
        mask[host.row] = True
    return mask


def _of_root(view: View, ask: CandidatesRequest) -> Iterator[_Constraint]:
    inside = in_all_aggregates(view, ask.root_member_of)
    if inside is not None:
        yield _Constraint("member_of", _describe_member_of(ask.root_member_of), inside)
    outside = in_any_aggregate(view, ask.root_not_member_of)
    if outside is not None:
        yield _Constraint("not_member_of", f"not in aggregate {_or(ask.root_not_member_of)}", ~outside)
    have = with_all_traits(view, tuple((name,) for name in sorted(ask.root_required)))
    if have is not None:
        yield _Constraint("root_required", f"the host itself has {_and(ask.root_required)}", have)
    have_not = with_any_trait(view, ask.root_forbidden)
    if have_not is not None:
        yield _Constraint("root_forbidden", f"the host itself has not {_or(ask.root_forbidden)}", ~have_not)
    for any_of in ask.guest_required:
        having = with_all_traits(view, (any_of,))
        assert having is not None, "an alternative names traits"
        asked = f"{_alternatives(any_of)} on the host, or where the guest is"
        yield _Constraint("required", asked, _reachable_hosts(view, having))
    parts = with_all_traits(view, tuple((name,) for name in sorted(ask.split_required)))
    if parts is not None:
        asked = f"{_and(ask.split_required)} on each provider of the guest"
        yield _Constraint("required", asked, _reachable_hosts(view, parts))


def _may_span(view: View, group: RequestGroup) -> bool:
    """Whether what a group asks for may come from several providers."""
    return group.suffix == UNSUFFIXED and bool(
        view.nested_count or view.rows_with_trait(SHARES_VIA_AGGREGATE)
    )


def _words(view: View, group: RequestGroup, ask: CandidatesRequest) -> Iterator[tuple[str, str]]:
    """The name of each constraint of a group, and what it asks for."""
    suffix, spans = group.suffix, _may_span(view, group)
    where = "" if suffix == UNSUFFIXED else " on one provider"
    where += f" for {group.label}" if group.label else ""
    for any_of in group.required:
        yield f"required{suffix}", f"{_alternatives(any_of)}{where}"
    if group.forbidden:
        yield f"forbidden{suffix}", f"not {_or(group.forbidden)}{where}"
    if group.member_of:
        yield f"member_of{suffix}", _describe_member_of(group.member_of)
    if group.not_member_of:
        yield f"not_member_of{suffix}", f"not in aggregate {_or(group.not_member_of)}"
    if group.in_tree is not None:
        yield f"in_tree{suffix}", f"in the tree of {group.in_tree}"
    for name, amount in group.resources:
        is_split = spans and name in ask.split
        having = f" with {_and(ask.split_required)}" if ask.split_required else ""
        having += f" without {_or(group.forbidden)}" if group.forbidden else ""
        place = f" on all providers of a host{having} together" if is_split else where
        yield f"resources{suffix}:{name}", f"{amount} {name} free{place}"


class _Judged(NamedTuple):
    """What is known of a constraint but its words: see ``_Constraint``."""

    passing: Mask
    short: tuple[tuple[ProviderRecord, PoolShortage], ...] = ()
    part: _Part | None = None


def _group(view: View, group: RequestGroup, ask: CandidatesRequest) -> Iterator[_Constraint]:
    """Each constraint of a group with the hosts that meet it, and those before it."""
    for (name, asked), judged in zip(_words(view, group, ask), _judge(view, group, ask), strict=True):
        yield _Constraint(name, asked, *judged)


def _judge(view: View, group: RequestGroup, ask: CandidatesRequest) -> Iterator[_Judged]:
    """What one group of a request asks for, in the order of its words. ``usable`` are the rows that can still
    serve it; where a group may span providers, traits that it requires may lie on any of them, and classes
    need not share one. Those that the request splits may come from several."""
    spans = _may_span(view, group)
    usable = np.ones(view.row_end, np.bool_)
    for any_of in group.required:
        having = with_all_traits(view, (any_of,))
        assert having is not None, "an alternative names traits"
        if not spans:
            having = usable = usable & having
        yield _Judged(_reachable_hosts(view, having))
    having_not = with_any_trait(view, group.forbidden)
    if having_not is not None:
        usable = usable & ~having_not
        yield _Judged(_reachable_hosts(view, usable))
    inside = in_all_aggregates(view, group.member_of)
    if inside is not None:
        usable = usable & (inside | inside[view.root_rows] if spans else inside)
        yield _Judged(_reachable_hosts(view, usable))
    outside = in_any_aggregate(view, group.not_member_of)
    if outside is not None:
        usable = usable & ~outside
        if spans:
            usable &= ~outside[view.root_rows]
        yield _Judged(_reachable_hosts(view, usable))
    if group.in_tree is not None:
        usable = usable.copy()
        narrow_to_tree(view, usable, group)
        yield _Judged(_reachable_hosts(view, usable))
    for name, amount in group.resources:
        class_id = view.classes.id_of(name)
        assert class_id is not None, "names were looked up before"
        if spans and name in ask.split:
            parts = with_all_traits(view, tuple((trait,) for trait in sorted(ask.split_required)))
            may_be = usable if parts is None else usable & parts
            together = _Part(class_id, amount, may_be, splits=True)
            yield _Judged(roots_with_sum(view, class_id, amount, may_be), part=together)
            continue
        short = _find_short(view, usable, class_id, amount)
        having = usable & with_room(view, class_id, amount)
        part = _Part(class_id, amount, usable) if group.suffix != UNSUFFIXED else None
        if not spans:
            usable = having
        yield _Judged(_reachable_hosts(view, having), short, part)


def _find_short(
    view: View, usable: Mask, class_id: ClassId, amount: int
) -> tuple[tuple[ProviderRecord, PoolShortage], ...]:
    """The sharing providers that have the class, and too little of it free."""
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    view.steps.take(1 + len(sharing))
    found = []
    for row in sharing:
        record = view.record(row)
        inventory = record.inventories.get(class_id)
        if inventory is None or not usable[row]:
            continue
        free = max(inventory.capacity - record.used.get(class_id, 0), 0)
        if free < amount:
            name = view.classes.name_of(class_id)
            found.append((record, PoolShortage(record.name, name, amount, free, inventory.capacity)))
    return tuple(found)


def _reachable_hosts(view: View, usable: Mask) -> Mask:
    """The hosts that these rows can serve: in their own tree, or through an aggregate that they share."""
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    view.steps.take(10 + (view.row_end // 300) * len(sharing))
    found = roots_of(view, usable)
    for row in sharing:
        if usable[row]:
            found |= roots_served(view, view.record(row).aggregates)
    return found


def _describe_member_of(member_of: tuple[tuple[AggregateId, ...], ...]) -> str:
    return " and ".join(f"in aggregate {' or '.join(ids)}" for ids in member_of)


def _alternatives(any_of: AnyOf) -> str:
    return any_of[0] if len(any_of) == 1 else "one of " + ", ".join(any_of)


def _and(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))


def _or(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
