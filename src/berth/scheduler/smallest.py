"""The smallest change that would make a request fit.

Policy. A *trial* is the request with something changed; it helps if enough members then fit, by the same
count that capacity uses. Tried is each single change:

* other amounts of what is asked for, the nearest that a host could give (smallest_amounts.py);
* without one trait, aggregate, zone or hint (smallest_without.py);
* with a host enabled, or a group less strict (smallest_operators.py);
* with fewer members.

Each has a cost: the part of an amount or of the members that is lost, or a number by how much it hurts. The
cheapest that helps is the answer. Where none does, pairs are tried, as many as ``PAIRS_MAX``. When trials
have cost as much as they may, the search is given up, and the answer says so. To try
everything at once and then put things back, one after the other, finds a smallest set too, but one that
nobody would choose: which one it is depends on the order alone.
"""

from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Final

from berth.model.explanations import Change, Remedy, SmallestChange
from berth.model.scheduling import ScheduleRequest, Step
from berth.scheduler.capacity_fits import Fitting
from berth.scheduler.smallest_amounts import other_amounts
from berth.scheduler.smallest_operators import other_hosts, other_rule
from berth.scheduler.smallest_trials import STATES, Trial, Trials
from berth.scheduler.smallest_without import without_one

PAIRS_MAX: Final = 40
OTHERS_MAX: Final = 4
_GAVE_UP: Final = "There are too many changes to try all of them."

_Found = list[tuple[float, Remedy]]


def smallest_change(
    trials: Trials, request: ScheduleRequest, steps: tuple[Step, ...], fitting: Fitting
) -> SmallestChange:
    """For a request that does not fit. ``steps`` are what removed its hosts; ``fitting`` is what fits as it
    is."""
    plain = Trial(request)
    found: _Found = []
    dead: list[Trial] = []
    for trial in _until_spent(trials, _changed(trials, plain)):
        if not _helps(trials, trial, found) and not _is_amount(trial):
            dead.append(trial)
    found += _fewer_members(trials, plain, fitting)
    if not found:
        _try_pairs(trials, plain, sorted(dead, key=lambda trial: trial.cost), found)
    remedies = _best_of_each_kind(found)
    gave_up = trials.is_spent
    if not remedies:
        return SmallestChange(_nothing_helps(steps, gave_up), gave_up=gave_up)
    best, others = remedies[0], remedies[1 : OTHERS_MAX + 1]
    text = f"It would fit {best.text}."
    if gave_up:
        text += f" {_GAVE_UP}"
    return SmallestChange(text, best, tuple(others), gave_up)


def _until_spent(trials: Trials, changed: Iterator[Trial]) -> Iterator[Trial]:
    return takewhile(lambda _: not trials.is_spent, changed)


def _best_of_each_kind(found: _Found) -> list[Remedy]:
    """Cheapest first. Of those that change the same things, only how much, one is enough."""
    best: dict[frozenset[tuple[str, str]], Remedy] = {}
    for _, remedy in sorted(found, key=lambda pair: pair[0]):
        best.setdefault(frozenset((change.kind, change.subject) for change in remedy.changes), remedy)
    return list(best.values())


def _changed(trials: Trials, trial: Trial) -> Iterator[Trial]:
    """The trial with one thing more changed (or several amounts)."""
    return chain(
        other_amounts(trials, trial),
        without_one(trials, trial),
        other_hosts(trials, trial),
        other_rule(trials, trial),
    )


def _helps(trials: Trials, trial: Trial, found: _Found) -> bool:
    fits, rows = trials.fits(trial)
    fitting = fits.among(rows)
    if fitting.members < trials.needed:
        return False
    host = trials.first_host(trial, fits, rows)
    found.append((trial.cost, Remedy(trial.changes, fitting.members, fitting.hosts, host)))
    return True


def _is_amount(trial: Trial) -> bool:
    return trial.changes[-1].after is not None


def _fewer_members(trials: Trials, trial: Trial, fitting: Fitting) -> _Found:
    if not fitting.members:
        return []
    host = trials.first_host(trial, *trials.fits(trial))
    text = f"with {fitting.members} member{'s' if fitting.members > 1 else ''} instead of {trials.needed}"
    change = Change("fewer_members", "members", text, trials.needed, fitting.members)
    return [(1 - fitting.members / trials.needed, Remedy((change,), fitting.members, fitting.hosts, host))]


def _try_pairs(trials: Trials, plain: Trial, dead: list[Trial], found: _Found) -> None:
    """Two changes of which neither helps alone."""
    pairs = chain.from_iterable(_changed(trials, first) for first in dead)
    seen: set[frozenset[str]] = set()
    for pair in _until_spent(trials, chain(_less_on_closed_hosts(trials, plain), pairs)):
        texts = frozenset(change.text for change in pair.changes)
        if texts not in seen:
            seen.add(texts)
            _helps(trials, pair, found)
        if len(seen) == PAIRS_MAX:
            return


def _less_on_closed_hosts(trials: Trials, trial: Trial) -> Iterator[Trial]:
    """Other amounts that hosts could give which are disabled or down; and with them, which to open."""
    for name in STATES:
        if not trials.is_forced and name in trials.masks and not trials.masks[name].all():
            for less in other_amounts(trials, trial._replace(unasked=trial.unasked | {name})):
                yield from other_hosts(trials, less._replace(unasked=trial.unasked))


def _nothing_helps(steps: tuple[Step, ...], gave_up: bool) -> str:
    worst = max(steps, key=lambda step: step.removed, default=None)
    said = "No small change would make it fit"
    if gave_up:
        said = f"{_GAVE_UP} Of those that were tried, none would make it fit"
    if worst is None or not worst.removed:
        return f"{said}."
    return f"{said}. Most hosts are removed by {worst.constraint} ({worst.asked}): {worst.removed}."
