"""The smallest change that would make a request fit.

Policy. A *variant* is the request with something changed; it helps if enough members then fit, by the same
count that capacity uses. Each single change is tried:

* other amounts of what is asked for, the nearest that a host could give (amounts.py);
* without one trait, aggregate, zone or hint (variants.py);
* with a host enabled, or a group less strict (variants.py);
* with fewer members.

Each has a cost: the part of an amount or of the members that is lost, or a fixed number for its kind. The
cheapest that helps is the answer. Where none does, pairs are tried, as many as ``PAIRS_MAX``. When variants
have cost as many steps as they may, the search is given up, and the answer says so. To try
everything at once and then put things back, one after the other, finds a smallest set too, but one that
no user would choose: which one it is depends on the order alone.
"""

from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Final

from berth.model.rejections import ConstraintStep
from berth.model.scheduling import Change, Remedy, ScheduleRequest, SmallestChange
from berth.scheduler.capacity.members import FitCount
from berth.scheduler.explain.amounts import vary_amounts
from berth.scheduler.explain.variants import (
    STATES,
    Variant,
    Variants,
    vary_constraints,
    vary_hosts,
    vary_rule,
)

PAIRS_MAX: Final = 40
OTHERS_MAX: Final = 4
_GAVE_UP: Final = "There are too many changes to try all of them."

_Found = list[tuple[float, Remedy]]


def find_smallest_change(
    variants: Variants, request: ScheduleRequest, steps: tuple[ConstraintStep, ...], fitting: FitCount
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
    remedies = _best_of_each_kind(found)
    gave_up = variants.is_spent
    if not remedies:
        return SmallestChange(_nothing_helps(steps, gave_up), gave_up=gave_up)
    best, others = remedies[0], remedies[1 : OTHERS_MAX + 1]
    text = f"It would fit {best.text}."
    if gave_up:
        text += f" {_GAVE_UP}"
    return SmallestChange(text, best, tuple(others), gave_up)


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
