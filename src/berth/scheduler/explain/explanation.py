"""Why a request fits where it does, or nowhere: an answer that depends on a view and the request alone.

It answers three questions: which constraint removed how many hosts (scheduler/constraints.py), how a named
host does by each of them (checks.py), and, if too few members fit, what the smallest change would be that
helps.

The smallest change. A *variant* is the request with something changed; it helps if enough members then fit,
by the same count that capacity uses. Each single change is tried:

* other amounts of what is asked for, the nearest that a host could give (amounts.py);
* without one trait, aggregate, zone or hint (variants.py);
* with a host enabled, or a group less strict (variants.py);
* with fewer members.

Each has a cost: the part of an amount or of the members that is lost, or a fixed number for its kind. The
cheapest that helps is the answer. Where none does, pairs are tried, as many as ``PAIRS_MAX``. When variants
have cost as many steps as they may, the search is given up, and the answer says so. To try everything at once
and then put things back, one after the other, finds a smallest set too, but one that no user would choose:
which one it is depends on the order alone.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise, takewhile
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.model.ids import Row
from berth.model.rejections import (
    ConstraintStep,
    GroupNotFound,
    Rejection,
)
from berth.model.scheduling import (
    UNSUFFIXED,
    Change,
    Explanation,
    HostChecks,
    Plan,
    Remedy,
    RequestGroup,
    ScheduleRequest,
    SmallestChange,
)
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.capacity.members import FitCount
from berth.scheduler.constraints import ConstraintResult, count_alike, count_steps, narrow_down
from berth.scheduler.explain.amounts import vary_amounts
from berth.scheduler.explain.checks import NOBODY, HostChecker
from berth.scheduler.explain.variants import (
    OF_HOSTS,
    STATES,
    Variant,
    Variants,
    vary_constraints,
    vary_hosts,
    vary_rule,
)
from berth.scheduler.groups import group_of
from berth.scheduler.hosts import find_unknown
from berth.scheduler.plan import plan
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View

HOSTS_EXPLAINED_MAX: Final = 20
REMOVED_NAMED_MAX: Final = 20
"""How many of the hosts that a constraint removed are named."""
_HOSTS_ASKED_MAX: Final = 10
_OTHERS_TOLD_MAX: Final = 2
_TOGETHER: Final = "together"

PAIRS_MAX: Final = 40
OTHERS_MAX: Final = 4
_GAVE_UP: Final = "There are too many changes to try all of them."

_Found = list[tuple[float, Remedy]]


def explain(
    view: View,
    request: ScheduleRequest,
    options: SchedulerOptions,
    tell: Callable[[Rejection], str],
    hosts: Iterable[str] = (),
    *,
    names_hosts: bool = True,
) -> Explanation | Rejection:
    """Explain a request; ``tell`` says what the ledger refuses, in words. Of the named hosts the first
    ``HOSTS_EXPLAINED_MAX`` are explained. Names that do not exist are rejected. The view is as it was before;
    nothing else may read it meanwhile. Without ``names_hosts`` it says nothing of single hosts and providers,
    and proposes nothing that only an operator can do: numbers are left, and changes of the request."""
    wrong = _wrong(view, request)
    if wrong is not None:
        return wrong
    narrowed = narrow_down(view, request, options)
    if isinstance(narrowed, Rejection):
        return narrowed
    whole, (request, results) = request, narrowed
    candidates = HostCandidates.of(view, request.ask)
    assert not isinstance(candidates, Rejection), "names were looked up before"
    variants = Variants(view, request, options, results[0].left)
    if not names_hosts:
        results = [result._replace(pools=(), nearest="") for result in results]
    counted = variants.count_fitting(Variant(request))
    if counted.members < variants.wanted and (whole.otherwise or not counted.exact):
        counted = _count_by_plan(view, whole, options, counted)
    fitting = min(counted.members, variants.wanted)
    taken = count_steps(results)
    total = int(np.count_nonzero(results[0].left))
    checked = HostChecker(view, request, options, candidates)
    refused = change = closest = None
    if fitting < variants.needed:
        refused = _find_refusal(view, checked, results) if names_hosts else None
        change = _find_smallest_change(variants, request, taken, counted, names_hosts=names_hosts)
        host = change.best.host if change.best is not None and names_hosts else None
        closest = checked.at(host) if host is not None else None
    outcome = _Outcome(
        fitting,
        variants.needed,
        total,
        taken,
        None if refused is None else tell(refused),
        closest,
        change,
        names_hosts,
    )
    return Explanation(
        index=view.index,
        needed=variants.needed,
        fitting=fitting,
        hosts_total=total,
        steps=taken,
        text=_write_text(view, request, outcome),
        hosts=tuple(checked.at(name) for name in islice(dict.fromkeys(hosts), HOSTS_EXPLAINED_MAX)),
        closest=closest,
        change=change if names_hosts or change is None else _leave_out_hosts(change),
        refused=refused,
        removed=_name_removed(view, results) if names_hosts else (),
    )


def _name_removed(view: View, results: list[ConstraintResult]) -> tuple[tuple[str, ...], ...]:
    """The first hosts that each constraint removed, by name."""
    return tuple(
        tuple(
            view.record(Row(row)).name
            for row in np.flatnonzero(before.left & ~after.left)[:REMOVED_NAMED_MAX].tolist()
        )
        for before, after in pairwise(results)
    )


def _leave_out_hosts(change: SmallestChange) -> SmallestChange:
    replace = msgspec.structs.replace
    best = None if change.best is None else replace(change.best, host=None)
    return replace(change, best=best, others=tuple(replace(other, host=None) for other in change.others))


class _First:
    """Leaves nothing to chance, so that asking again gives the same answer."""

    def randrange(self, stop: int, /) -> int:
        return 0


def _count_by_plan(
    view: View, request: ScheduleRequest, options: SchedulerOptions, counted: FitCount
) -> FitCount:
    """What was counted is less than may fit: as many as a plan would place, if these are more."""
    members = request.members or (NOBODY,)
    any_number = msgspec.structs.replace(request, members=members, at_least=1, alternates=0)
    found = plan(view, any_number, options, _First(), 0)
    if not isinstance(found, Plan) or len(found.placements) <= counted.members:
        return counted
    hosts = {placement.chosen.host for placement in found.placements}
    return FitCount(len(found.placements), False, max(counted.hosts, len(hosts)))


def _wrong(view: View, request: ScheduleRequest) -> Rejection | None:
    if request.group is not None and request.group not in view.groups.records:
        return GroupNotFound(request.group)
    return find_unknown(view, request.hints)


def _find_refusal(view: View, checked: HostChecker, results: list[ConstraintResult]) -> Rejection | None:
    """The ledger's refusal for the hosts that are left, if it refuses all of those that were tried."""
    refused = None
    for row in np.flatnonzero(results[-1].left)[:_HOSTS_ASKED_MAX].tolist():
        refused = checked.refusal_at(view.record(Row(row)))
        if refused is None:
            return None
    return refused


class _Outcome(NamedTuple):
    """The facts of an explanation, before they are put into words."""

    fitting: int
    needed: int
    hosts_total: int
    steps: tuple[ConstraintStep, ...]
    refused: str | None
    closest: HostChecks | None
    change: SmallestChange | None
    names_hosts: bool


def _write_text(view: View, request: ScheduleRequest, outcome: _Outcome) -> str:
    return " ".join(_sentences(view, request, outcome))


def _sentences(view: View, request: ScheduleRequest, outcome: _Outcome) -> Iterator[str]:
    yield _describe_asked(view, request)
    yield _verdict(outcome.fitting, outcome.needed)
    yield _describe_removed(outcome.hosts_total, outcome.steps)
    if outcome.fitting < outcome.needed:
        yield from (pool.sentence for step in outcome.steps for pool in step.pools)
        yield from (step.nearest for step in outcome.steps if step.nearest and step.constraint == _TOGETHER)
    if not outcome.fitting and outcome.names_hosts:
        yield from _free_in_all(view, outcome.steps)
    if outcome.refused is not None:
        yield f"The ledger refuses: {outcome.refused}."
    if outcome.closest is not None:
        yield from _closest(outcome.closest)
    if outcome.change is not None:
        yield outcome.change.text
        others = [remedy.text for remedy in outcome.change.others[:_OTHERS_TOLD_MAX]]
        if others:
            yield f"Or {', or '.join(others)}."


# -- what was asked -----------------------------------------------------------------------------


def _describe_asked(view: View, request: ScheduleRequest) -> str:
    what = count_alike(map(_group, request.ask.groups)) or "nothing"
    where = f", in the zone {request.zone}" if request.zone is not None else ""
    record = group_of(view, request)
    if record is not None:
        where += f", in the group {record.group.name} ({record.group.policy})"
    count = len(request.members)
    return (
        f"Asked for {what}{where}." if count < 2 else f"Asked for {count} members, each with {what}{where}."
    )


def _group(group: RequestGroup) -> str:
    said = ", ".join(f"{amount} {name}" for name, amount in group.resources) or "a provider"
    if group.suffix != UNSUFFIXED and group.resources:
        said += " from one provider"
    if group.required:
        said += " with " + " and ".join(" or ".join(any_of) for any_of in group.required)
    if group.forbidden:
        said += " without " + " or ".join(sorted(group.forbidden))
    return said


# -- what there was -----------------------------------------------------------------------------


def _verdict(fitting: int, needed: int) -> str:
    if fitting >= needed:
        return "It fits." if needed == 1 else f"{fitting} fit."
    if not fitting:
        return "It fits nowhere."
    return f"Only {fitting} fit{'s' if fitting == 1 else ''}, and {needed} are needed."


def _describe_removed(hosts_total: int, steps: tuple[ConstraintStep, ...]) -> str:
    if not hosts_total:
        return "There are no hosts."
    removing = [step for step in steps if step.removed]
    if not removing:
        return "The only host passes." if hosts_total == 1 else f"All {hosts_total} hosts pass."
    by = [f"by {step.constraint} ({step.asked})" for step in removing]
    if removing[0].removed == hosts_total:
        who = {1: "The only host is", 2: "Both hosts are"}.get(hosts_total, f"All {hosts_total} hosts are")
        return f"{who} removed {by[0]}."
    parts = [f"{step.removed} {words}" for step, words in zip(removing, by, strict=True)]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    verb = "is" if removing[0].removed == 1 else "are"
    left = removing[-1].left
    kept = "none is" if not left else "1 is" if left == 1 else f"{left} are"
    return f"Of {hosts_total} hosts {listed.replace(' by ', f' {verb} removed by ', 1)}; {kept} left."


def _free_in_all(view: View, steps: tuple[ConstraintStep, ...]) -> Iterator[str]:
    """Where a resource removed the last hosts: whether there is none, or none in one place."""
    last = next((step for step in reversed(steps) if step.removed), None)
    if last is None or not last.constraint.startswith("resources"):
        return
    name = last.constraint.partition(":")[2]
    class_id = view.classes.id_of(name)
    if class_id is not None:
        yield f"The fleet has {view.classes.column(class_id).sums().free} {name} free in all."


def _closest(closest: HostChecks) -> Iterator[str]:
    failed = [check for check in closest.checks if not check.ok]
    failed = [check for check in failed if check.constraint != _TOGETHER] or failed
    if failed:
        said = " and ".join(f"asked {check.asked}, found {check.found}" for check in failed)
        yield f"Closest is {closest.host}: {said}."


# -- the smallest change ----------------------------------------------------------------------------


def _find_smallest_change(
    variants: Variants,
    request: ScheduleRequest,
    steps: tuple[ConstraintStep, ...],
    fitting: FitCount,
    *,
    names_hosts: bool,
) -> SmallestChange:
    """The smallest change for a request that does not fit. ``steps`` are what removed its hosts; ``fitting``
    is what fits without a change."""
    plain = Variant(request)
    found: _Found = []
    dead: list[Variant] = []
    for variant in _until_spent(variants, _vary(variants, plain)):
        if not _helps(variants, variant, found) and not _is_amount(variant):
            dead.append(variant)
    found += _fewer_members(variants, plain, fitting)
    if not found:
        _try_pairs(variants, plain, sorted(dead, key=lambda variant: variant.cost), found)
    if not names_hosts:
        found = [(cost, remedy) for cost, remedy in found if not _is_operators(remedy)]
    remedies = _best_of_each_kind(found)
    gave_up = variants.is_spent
    if not remedies:
        return SmallestChange(_nothing_helps(steps, gave_up), gave_up=gave_up)
    best, others = remedies[0], remedies[1 : OTHERS_MAX + 1]
    text = f"It would fit {best.text}."
    if gave_up:
        text += f" {_GAVE_UP}"
    return SmallestChange(text, best, tuple(others), gave_up)


def _is_operators(remedy: Remedy) -> bool:
    """Whether only an operator can do it, and its words name hosts."""
    return any(change.kind in OF_HOSTS for change in remedy.changes)


def _until_spent(variants: Variants, changed: Iterator[Variant]) -> Iterator[Variant]:
    return takewhile(lambda _: not variants.is_spent, changed)


def _best_of_each_kind(found: _Found) -> list[Remedy]:
    """Cheapest first. Of those that change the same things, only how much, one is enough."""
    best: dict[frozenset[tuple[str, str]], Remedy] = {}
    for _, remedy in sorted(found, key=lambda pair: pair[0]):
        best.setdefault(frozenset((change.kind, change.subject) for change in remedy.changes), remedy)
    return list(best.values())


def _vary(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The variants with one more change (or several amounts)."""
    return chain(
        vary_amounts(variants, variant),
        vary_constraints(variants, variant),
        vary_hosts(variants, variant),
        vary_rule(variants, variant),
    )


def _helps(variants: Variants, variant: Variant, found: _Found) -> bool:
    fits, rows = variants.fits(variant)
    fitting = fits.among(rows)
    if fitting.members < variants.needed:
        return False
    host = variants.first_host(variant, fits, rows)
    found.append((variant.cost, Remedy(variant.changes, fitting.members, fitting.hosts, host)))
    return True


def _is_amount(variant: Variant) -> bool:
    return variant.changes[-1].after is not None


def _fewer_members(variants: Variants, variant: Variant, fitting: FitCount) -> _Found:
    if not fitting.members:
        return []
    host = variants.first_host(variant, *variants.fits(variant))
    text = f"with {fitting.members} member{'s' if fitting.members > 1 else ''} instead of {variants.needed}"
    change = Change("fewer_members", "members", text, variants.needed, fitting.members)
    return [(1 - fitting.members / variants.needed, Remedy((change,), fitting.members, fitting.hosts, host))]


def _try_pairs(variants: Variants, plain: Variant, dead: list[Variant], found: _Found) -> None:
    """Two changes of which neither helps alone."""
    pairs = chain.from_iterable(_vary(variants, first) for first in dead)
    seen: set[frozenset[str]] = set()
    for pair in _until_spent(variants, chain(_less_on_closed_hosts(variants, plain), pairs)):
        texts = frozenset(change.text for change in pair.changes)
        if texts not in seen:
            seen.add(texts)
            _helps(variants, pair, found)
        if len(seen) == PAIRS_MAX:
            return


def _less_on_closed_hosts(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """Other amounts that hosts could give which are disabled or down; and with them, which to open."""
    for name in STATES:
        if not variants.is_forced and name in variants.masks and not variants.masks[name].all():
            for less in vary_amounts(variants, variant._replace(unasked=variant.unasked | {name})):
                yield from vary_hosts(variants, less._replace(unasked=variant.unasked))


def _nothing_helps(steps: tuple[ConstraintStep, ...], gave_up: bool) -> str:
    worst = max(steps, key=lambda step: step.removed, default=None)
    said = "No small change would make it fit"
    if gave_up:
        said = f"{_GAVE_UP} Of those that were tried, none would make it fit"
    if worst is None or not worst.removed:
        return f"{said}."
    return f"{said}. Most hosts are removed by {worst.constraint} ({worst.asked}): {worst.removed}."
