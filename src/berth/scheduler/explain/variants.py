"""Variants: a request with something changed about it, and how many members would then fit."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from berth.model.groups import Group, Policy
from berth.model.ids import AggregateId, Row
from berth.model.rejections import Rejection
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, Change, RequestGroup, ScheduleRequest
from berth.scheduler.capacity.members import (
    FitCount,
    FitCounter,
    ResolvedAsk,
    find_filters,
    limit_to_one_each,
    resolve_ask,
)
from berth.scheduler.capacity.rooms import HostRows, TreeEffort
from berth.scheduler.constraints import forced_host
from berth.scheduler.groups import group_of
from berth.scheduler.plugins import SchedulerOptions, name_of
from berth.view import Mask, View

_TREES_TRIED_MAX: Final = 200
"""In how many trees, at most, a variant tries whether parts that get in each other's way fit."""

STEPS_MAX: Final = 2_000_000
"""How much all variants of one request may cost: a second or two. After that the search is given up."""

_TREES_ENOUGH: Final = 50
_HOSTS_LOOKED_AT: Final = 50


class Variant(NamedTuple):
    """A request with changes: filters that are left out, hosts that are let in whatever their state, another
    rule for its group. ``cost`` is how much of a change this is."""

    request: ScheduleRequest
    changes: tuple[Change, ...] = ()
    cost: float = 0.0
    unasked: frozenset[str] = frozenset()
    let_in: frozenset[Row] = frozenset()
    rule: Group | None = None

    def but(self, change: Change, cost: float, **fields: Any) -> "Variant":
        """The same with one more change."""
        return self._replace(changes=(*self.changes, change), cost=self.cost + cost, **fields)


class Variants:
    """Counts what fits of variants in one view. Filters are asked once."""

    def __init__(
        self, view: View, request: ScheduleRequest, options: SchedulerOptions, all_hosts: Mask
    ) -> None:
        self.view = view
        self.wanted = max(1, len(request.members))
        self.needed = max(1, min(request.at_least, self.wanted))
        self._all_hosts = all_hosts
        self._end = view.steps.left - STEPS_MAX
        forced = request.hints.forced_host
        self._forced = forced_host(view, forced) if forced is not None else None
        free = (
            msgspec.structs.replace(request.hints, forced_host=None) if forced is not None else request.hints
        )
        asked = find_filters(view, msgspec.structs.replace(request, hints=free), options)
        self._filters = [] if isinstance(asked, Rejection) else asked
        self.masks = {name_of(filter): filter.passing_hosts(view, request) for filter, _ in self._filters}
        self.words = {name_of(filter): words for filter, words in self._filters}
        self._asked: dict[object, ResolvedAsk | Rejection] = {}

    @property
    def is_spent(self) -> bool:
        """Whether variants have cost as many steps as they may."""
        return self.view.steps.left < self._end

    @property
    def is_forced(self) -> bool:
        return self._forced is not None

    def hosts(self, variant: Variant) -> Mask:
        """The rows that the filters, or a forced host, leave."""
        if self._forced is not None and FORCED not in variant.unasked:
            return self._forced.copy()
        hosts = self._all_hosts.copy()
        for name, mask in self.masks.items():
            if name not in variant.unasked:
                hosts &= mask
                if name in STATES and variant.let_in:
                    hosts[list(variant.let_in)] = True
        return hosts

    def fits(self, variant: Variant) -> tuple[FitCounter, HostRows]:
        """A counter of what fits, and the hosts that have room for any."""
        asked = self._asked.get(variant.request.ask)
        if asked is None:
            asked = self._asked[variant.request.ask] = resolve_ask(self.view, variant.request.ask)
        assert not isinstance(asked, Rejection), "names that were known still are"
        effort = TreeEffort(_TREES_TRIED_MAX, self.wanted, max(self.wanted, _TREES_ENOUGH))
        rooms = limit_to_one_each(asked.rooms(self.view, self.hosts(variant), effort), self._filters)
        fits = FitCounter(self.view, variant.request, rooms, variant.rule)
        return fits, np.flatnonzero(rooms.each)

    def first_host(self, variant: Variant, fits: FitCounter, rows: HostRows) -> str | None:
        """A host that one of the members could be on: of those let in by a change, if there are any."""
        ordered = sorted(variant.let_in.intersection(rows.tolist())) or rows[:_HOSTS_LOOKED_AT].tolist()
        alone = (row for row in ordered if fits.among(np.array([row])).members)
        row = next(alone, None)
        return None if row is None else self.view.record(Row(row)).name

    def with_rule(self, variant: Variant, fits: FitCounter, rule: Group) -> FitCounter:
        """The same with another rule for the group."""
        return FitCounter(self.view, variant.request, fits.rooms, rule)

    def count_fitting(self, variant: Variant) -> FitCount:
        fits, rows = self.fits(variant)
        return fits.among(rows)


FORCED: Final = "forced_host"
"""The hint that takes the place of all filters."""

STATES: Final = ("enabled", "host_state")
"""The filters that ask for what an operator could change about a host."""


HINT_COST: Final = 0.25
TRAIT_COST: Final = 0.5
PLACE_COST: Final = 0.6
"""A hint is a preference; a trait mostly has a reason; a zone or an aggregate may be a promise to a user."""

_HINTS: Final = ("ignored", "host_names", "same_host", "different_host")
ZONE: Final = "zone"


def vary_constraints(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The request without one of its constraints."""
    ask = variant.request.ask
    for number, group in enumerate(ask.groups):
        for change, cost, other in _groups_without(variants.view, group):
            yield _with_ask(variant, _with_group(ask, number, other), change, cost)
    of_host = RequestGroup(member_of=ask.root_member_of, not_member_of=ask.root_not_member_of)
    for change, cost, other in _groups_without(variants.view, of_host):
        changed = msgspec.structs.replace(
            ask, root_member_of=other.member_of, root_not_member_of=other.not_member_of
        )
        yield _with_ask(variant, changed, change, cost)
    for change, cost, changed in _asks_without(ask):
        yield _with_ask(variant, changed, change, cost)
    yield from _without_filters(variants, variant)


def aggregate_name(view: View, id: AggregateId) -> str:
    label = view.groups.labels.get(id)
    return label.name if label is not None and label.name is not None else id


def name_group(group: RequestGroup) -> str:
    """Which group a change is about, by what people know it by."""
    if group.label:
        return f" for {group.label}"
    return f" in the group {group.suffix}" if group.suffix != UNSUFFIXED else ""


def _groups_without(view: View, group: RequestGroup) -> Iterator[tuple[Change, float, RequestGroup]]:
    replace = msgspec.structs.replace
    where = name_group(group)
    for any_of in group.required:
        others = tuple(other for other in group.required if other != any_of)
        names = ", ".join(any_of)
        which = "trait" if len(any_of) == 1 else "choice of traits"
        change = Change("without_trait", names, f"without the {which} {names}{where}")
        yield change, TRAIT_COST, replace(group, required=others)
    for name in sorted(group.forbidden):
        change = Change("allow_trait", name, f"with the trait {name} allowed{where}")
        yield change, TRAIT_COST, replace(group, forbidden=group.forbidden - {name})
    for ids in group.member_of:
        aggregates = tuple(other for other in group.member_of if other != ids)
        name = " or ".join(aggregate_name(view, id) for id in ids)
        change = Change("without_aggregate", name, f"outside of the aggregate {name}{where}")
        yield change, PLACE_COST, replace(group, member_of=aggregates)
    for id in sorted(group.not_member_of):
        name = aggregate_name(view, id)
        change = Change("allow_aggregate", name, f"with the aggregate {name} allowed{where}")
        yield change, PLACE_COST, replace(group, not_member_of=group.not_member_of - {id})
    if group.in_tree is not None:
        change = Change("without_tree", group.in_tree, f"outside of the tree of {group.in_tree}{where}")
        yield change, PLACE_COST, replace(group, in_tree=None)


def _asks_without(ask: CandidatesRequest) -> Iterator[tuple[Change, float, CandidatesRequest]]:
    replace = msgspec.structs.replace
    for name in sorted(ask.root_required):
        change = Change("without_trait", name, f"without the trait {name} of the host itself")
        yield change, TRAIT_COST, replace(ask, root_required=ask.root_required - {name})
    for name in sorted(ask.root_forbidden):
        change = Change("allow_trait", name, f"with the trait {name} allowed on the host itself")
        yield change, TRAIT_COST, replace(ask, root_forbidden=ask.root_forbidden - {name})
    for any_of in ask.guest_required:
        name = " or ".join(any_of)
        change = Change("without_trait", name, f"without the trait {name}")
        required = tuple(other for other in ask.guest_required if other != any_of)
        yield change, TRAIT_COST, replace(ask, guest_required=required)
    if ask.isolate:
        change = Change("without_isolation", "group_policy", "with groups allowed to share a provider")
        yield change, TRAIT_COST, replace(ask, isolate=False)
    for suffixes in ask.distinct:
        names = _join_labels(ask, suffixes)
        change = Change("without_distinct", names, f"with {names} allowed to share a provider")
        others = tuple(other for other in ask.distinct if other != suffixes)
        yield change, TRAIT_COST, replace(ask, distinct=others)
    for affinity in ask.affinities:
        name = _join_labels(ask, frozenset((affinity.suffix,)))
        change = Change("without_affinity", name, f"with {name} away from {_join_labels(ask, affinity.near)}")
        kept = tuple(other for other in ask.affinities if other != affinity)
        yield change, TRAIT_COST, replace(ask, affinities=kept)
    for suffixes in ask.same_subtrees:
        names = " and ".join(sorted(suffixes))
        change = Change("without_subtree", names, f"with the groups {names} in different subtrees")
        others = tuple(other for other in ask.same_subtrees if other != suffixes)
        yield change, TRAIT_COST, replace(ask, same_subtrees=others)


def _join_labels(ask: CandidatesRequest, suffixes: frozenset[str]) -> str:
    named = (group.label or f"the group {group.suffix}" for group in ask.groups if group.suffix in suffixes)
    return " and ".join(dict.fromkeys(named))


def _without_filters(variants: Variants, variant: Variant) -> Iterator[Variant]:
    if variants.is_forced:
        if FORCED not in variant.unasked:
            name = variant.request.hints.forced_host or ""
            change = Change("without_hint", FORCED, f"on another host than {name}")
            yield variant.but(change, HINT_COST, unasked=variant.unasked | {FORCED})
        return
    for name, words in variants.words.items():
        if name in STATES or name in variant.unasked:
            continue
        unasked = variant.unasked | {name}
        if name in _HINTS:
            yield variant.but(
                Change("without_hint", name, f"without the hint for {words}"), HINT_COST, unasked=unasked
            )
        elif name == ZONE:
            yield _in_another_zone(variants, variant)
        else:
            change = Change("without_aggregate", name, f"without asking for {words}")
            yield variant.but(change, PLACE_COST, unasked=unasked)


def _in_another_zone(variants: Variants, variant: Variant) -> Variant:
    """Without the zone; and if one other zone would do, in that."""
    view, groups = variants.view, variants.view.groups
    anywhere = variant._replace(unasked=variant.unasked | {ZONE})
    fits, rows = variants.fits(anywhere)
    counts = {
        name: fits.among(rows[view.rows_in_aggregate(id).mask(view.row_end)[rows]]).members
        for id in groups.of_kind(ZONE)
        if (name := groups.labels[id].name) is not None and name != variant.request.zone
    }
    best = max(counts, key=lambda name: (counts[name], name), default=None)
    asked = variant.request.zone or ""
    text = f"in any other zone than {asked}"
    if best is not None and counts[best] >= variants.needed:
        text = f"in the zone {best} instead of {asked}"
    return anywhere.but(Change("without_zone", asked, text), PLACE_COST)


def _with_group(ask: CandidatesRequest, number: int, group: RequestGroup) -> CandidatesRequest:
    """The request with one group changed. One that names nothing any more is not asked for at all."""
    is_empty = not group.resources and not group.required and not group.member_of
    changed = () if is_empty else (group,)
    return msgspec.structs.replace(ask, groups=(*ask.groups[:number], *changed, *ask.groups[number + 1 :]))


def _with_ask(variant: Variant, ask: CandidatesRequest, change: Change, cost: float) -> Variant:
    return variant.but(change, cost, request=msgspec.structs.replace(variant.request, ask=ask))


ENABLE_COST: Final = 0.7
REPAIR_COST: Final = 0.9
RULE_COST: Final = 0.4
"""For each member more that may share a domain."""

SOFTEN_COST: Final = 0.8

_HOSTS_NAMED_MAX: Final = 3
_SOFT: Final[dict[Policy, Policy]] = {"affinity": "soft-affinity", "anti-affinity": "soft-anti-affinity"}


OF_HOSTS: Final = frozenset(("enable_host", "repair_host"))
"""Kinds of changes of hosts, and not of the request."""


def vary_hosts(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The same request, with hosts enabled, or up."""
    if variants.is_forced and FORCED not in variant.unasked:
        return
    for name in STATES:
        if name not in variants.masks or name in variant.unasked or variants.masks[name].all():
            continue
        fits, rows = variants.fits(variant._replace(unasked=variant.unasked | {name}))
        out = rows[~variants.masks[name][rows]]
        if not len(out):
            continue
        # Those with the most room first, and no more of them than are needed.
        out = out[np.argsort(-fits.rooms.each[out], kind="stable")]
        kept = rows[variants.masks[name][rows]]
        enough = bisect_left(
            range(1, len(out)),
            variants.needed,
            key=lambda number: fits.among(np.sort(np.concatenate([kept, out[:number]]))).members,
        )
        chosen = [Row(row) for row in out[: enough + 1].tolist()]
        cost = ENABLE_COST if name == "enabled" else REPAIR_COST
        yield variant.but(_state_change(variants, name, chosen), cost, let_in=variant.let_in | set(chosen))


def _state_change(variants: Variants, name: str, rows: list[Row]) -> Change:
    view = variants.view
    verb, kind = ("enabled", "enable_host") if name == "enabled" else ("up again", "repair_host")
    hosts = [view.record(row) for row in rows]
    if len(hosts) == 1:
        status = view.hosts.get(hosts[0].id)
        reason = f" (it is {'disabled' if kind == 'enable_host' else 'down'}"
        reason += f": {status.reason})" if status is not None and status.reason else ")"
        return Change(kind, hosts[0].name, f"with the host {hosts[0].name} {verb}{reason}")
    named = ", ".join(host.name for host in hosts[:_HOSTS_NAMED_MAX])
    more = ", ..." if len(hosts) > _HOSTS_NAMED_MAX else ""
    return Change(kind, named, f"with {len(hosts)} hosts {verb} ({named}{more})", 0, len(hosts))


def vary_rule(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The same request, with its group less strict: by as little as helps."""
    record = group_of(variants.view, variant.request)
    if record is None or not record.group.is_hard or variant.rule is not None:
        return
    group = record.group
    if group.is_apart:
        for field in ("max_per_domain", "max_skew"):
            yield from _raise_limit(variants, variant, group, field)
    soft = _SOFT[group.policy]
    text = f"with the policy of the group {group.name} softened ({soft} instead of {group.policy})"
    rule = msgspec.structs.replace(group, policy=soft, max_per_domain=None, max_skew=None)
    yield variant.but(Change("soften_group", group.name, text), SOFTEN_COST, rule=rule)


def _raise_limit(variants: Variants, variant: Variant, group: Group, field: str) -> Iterator[Variant]:
    """With the least higher limit that helps, if any does."""
    limit: int | None = getattr(group, field)
    if limit is None:
        return
    fits, rows = variants.fits(variant)

    def helps(more: int) -> bool:
        rule = msgspec.structs.replace(group, **{field: limit + more})
        return variants.with_rule(variant, fits, rule).among(rows).members >= variants.needed

    # Mostly one more is enough, so that it is tried first, then two, four and so on.
    more = 1
    while more < variants.needed and not helps(more):
        more *= 2
    more = more // 2 + 1 + bisect_left(range(more // 2 + 1, more), True, key=helps)
    rule = msgspec.structs.replace(group, **{field: limit + more})
    yield variant.but(_rule_change(group, field, limit, limit + more), RULE_COST * more, rule=rule)


def _rule_change(group: Group, field: str, before: int, after: int) -> Change:
    if field == "max_per_domain":
        text = f"with {after} members of the group {group.name} on one {group.domain} instead of {before}"
    else:
        text = f"with a max_skew of {after} in the group {group.name} instead of {before}"
    return Change(f"raise_{field}", group.name, text, before, after)
