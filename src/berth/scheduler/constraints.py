"""Which hosts are left after each constraint in turn: how a request narrows down a fleet.

Each constraint is judged as generously as it can be by itself: a host is removed by the first one that makes
every candidate on it impossible. What only all of them together rule out is removed by the last,
``together``. This is for explanations; a plan that succeeds never needs it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from berth.model.placement import SHARES_VIA_AGGREGATE
from berth.model.rejections import ConstraintStep, Rejection
from berth.model.scheduling import UNSUFFIXED, AnyOf, CandidatesRequest, RequestGroup, ScheduleRequest
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.hosts import drop_pools, find_host
from berth.scheduler.plugins import SchedulerOptions, name_of
from berth.search.providers import (
    in_all_aggregates,
    in_any_aggregate,
    narrow_to_tree,
    roots_served,
    with_all_traits,
    with_any_trait,
    with_room,
)
from berth.view import Mask, View

TOGETHER_MAX: Final = 1_000
"""How many hosts are searched for a candidate, at most; the others, and those where the search was given
up, count as if there were one."""


class ConstraintResult(NamedTuple):
    """A constraint, what it asks for in words, and the hosts that are left after it (a mask of rows)."""

    constraint: str
    asked: str
    left: Mask


def all_hosts(view: View) -> Mask:
    """The rows of hosts."""
    view.steps.take(view.row_end // 10)
    mask = np.zeros(view.row_end, np.bool_)
    mask[[record.row for record in view.providers.values() if record.parent is None]] = True
    return drop_pools(view, mask)


def narrow_down(
    view: View, request: ScheduleRequest, options: SchedulerOptions
) -> list[ConstraintResult] | Rejection:
    """The constraints in order. The first entry, ``hosts``, has all hosts."""
    candidates = HostCandidates.of(view, request.ask)
    if isinstance(candidates, Rejection):
        return candidates
    left = all_hosts(view)
    found = [ConstraintResult("hosts", "any host", left)]
    for name, asked, mask in _constraints(view, request, options):
        left = left & mask
        found.append(ConstraintResult(name, asked, left))
    found.append(
        ConstraintResult("together", "all of it at once on one host", _together(view, candidates, left))
    )
    return found


def count_steps(results: list[ConstraintResult]) -> tuple[ConstraintStep, ...]:
    """The results as numbers of hosts."""
    counts = [int(np.count_nonzero(result.left)) for result in results]
    return tuple(
        ConstraintStep(result.constraint, result.asked, before - count, count)
        for result, before, count in zip(results[1:], counts, counts[1:], strict=False)
    )


def _constraints(
    view: View, request: ScheduleRequest, options: SchedulerOptions
) -> Iterator[tuple[str, str, Mask]]:
    """Each constraint with the hosts that meet it (and those before it of the same group)."""
    forced = request.hints.forced_host
    if forced is None:
        for filter in options.filters:
            asked = filter.describe_request(view, request)
            if asked is not None:
                yield name_of(filter), asked, filter.passing_hosts(view, request)
    else:
        yield "forced_host", f"the host {forced}", forced_host(view, forced)
    yield from _root_traits(view, request.ask)
    for group in request.ask.groups:
        yield from _group(view, group)


def forced_host(view: View, name: str) -> Mask:
    """The one host that a request forces."""
    mask = np.zeros(view.row_end, np.bool_)
    host = find_host(view, name)
    if host is not None:
        mask[host.row] = True
    return mask


def _root_traits(view: View, ask: CandidatesRequest) -> Iterator[tuple[str, str, Mask]]:
    have = with_all_traits(view, tuple((name,) for name in sorted(ask.root_required)))
    if have is not None:
        yield "root_required", f"the host itself has {_and(ask.root_required)}", have
    have_not = with_any_trait(view, ask.root_forbidden)
    if have_not is not None:
        yield "root_forbidden", f"the host itself has not {_or(ask.root_forbidden)}", ~have_not


def _group(view: View, group: RequestGroup) -> Iterator[tuple[str, str, Mask]]:
    """What one group of a request asks for. ``usable`` are the rows that can still serve it; where a group
    may span providers, traits that it requires may lie on any of them, and classes need not share one."""
    spans = group.suffix == UNSUFFIXED and bool(
        view.nested_count or view.rows_with_trait(SHARES_VIA_AGGREGATE)
    )
    usable = np.ones(view.row_end, np.bool_)
    where = "" if group.suffix == UNSUFFIXED else " on one provider"
    for any_of in group.required:
        having = with_all_traits(view, (any_of,))
        assert having is not None, "an alternative names traits"
        if not spans:
            having = usable = usable & having
        yield f"required{group.suffix}", f"{_alternatives(any_of)}{where}", _reachable_hosts(view, having)
    having_not = with_any_trait(view, group.forbidden)
    if having_not is not None:
        usable = usable & ~having_not
        yield f"forbidden{group.suffix}", f"not {_or(group.forbidden)}{where}", _reachable_hosts(view, usable)
    inside = in_all_aggregates(view, group.member_of)
    if inside is not None:
        usable = usable & (inside | inside[view.root_rows] if spans else inside)
        asked = " and ".join(f"in aggregate {' or '.join(ids)}" for ids in group.member_of)
        yield f"member_of{group.suffix}", asked, _reachable_hosts(view, usable)
    outside = in_any_aggregate(view, group.not_member_of)
    if outside is not None:
        usable = usable & ~outside
        if spans:
            usable &= ~outside[view.root_rows]
        asked = f"not in aggregate {_or(group.not_member_of)}"
        yield f"not_member_of{group.suffix}", asked, _reachable_hosts(view, usable)
    if group.in_tree is not None:
        usable = usable.copy()
        narrow_to_tree(view, usable, group)
        yield f"in_tree{group.suffix}", f"in the tree of {group.in_tree}", _reachable_hosts(view, usable)
    for name, amount in group.resources:
        class_id = view.classes.id_of(name)
        assert class_id is not None, "names were looked up before"
        having = usable & with_room(view, class_id, amount)
        if not spans:
            usable = having
        yield (
            f"resources{group.suffix}:{name}",
            f"{amount} {name} free{where}",
            _reachable_hosts(view, having),
        )


def _reachable_hosts(view: View, usable: Mask) -> Mask:
    """The hosts that these rows can serve: in their own tree, or through an aggregate that they share."""
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    view.steps.take(10 + (view.row_end // 200) * (1 + len(sharing)))
    found = np.zeros(view.row_end, np.bool_)
    found[view.root_rows[usable]] = True
    for row in sharing:
        if usable[row]:
            found |= roots_served(view, view.record(row).aggregates)
    return found


def _together(view: View, candidates: HostCandidates, left: Mask) -> Mask:
    """The hosts that have a candidate."""
    left = left & candidates.hosts
    if candidates.is_certain:
        return left
    for row in np.flatnonzero(left)[:TOGETHER_MAX].tolist():
        given_up = candidates.given_up
        left[row] = next(candidates.at(view.record(row)), None) is not None or candidates.given_up > given_up
    return left


def _alternatives(any_of: AnyOf) -> str:
    return any_of[0] if len(any_of) == 1 else "one of " + ", ".join(any_of)


def _and(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))


def _or(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
