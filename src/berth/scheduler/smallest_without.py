"""The request without one of the things it asks for: a trait, an aggregate, a hint, an order among groups."""

from collections.abc import Iterator
from typing import Final

import msgspec

from berth.model.explanations import Change
from berth.model.ids import AggregateId
from berth.model.requests import UNSUFFIXED, CandidatesRequest, RequestGroup
from berth.scheduler.smallest_trials import FORCED, STATES, Trial, Trials
from berth.view import View

HINT_COST: Final = 0.25
TRAIT_COST: Final = 0.5
PLACE_COST: Final = 0.6
"""A hint is a wish; a trait mostly has a reason; a zone or an aggregate was promised to somebody."""

_HINTS: Final = ("ignored", "host_names", "same_host", "different_host")
ZONE: Final = "zone"


def without_one(trials: Trials, trial: Trial) -> Iterator[Trial]:
    """The request with one thing less."""
    ask = trial.request.ask
    for number, group in enumerate(ask.groups):
        for change, cost, other in _groups_without(trials.view, group):
            yield _asking(trial, _with_group(ask, number, other), change, cost)
    for change, cost, changed in _asks_without(ask):
        yield _asking(trial, changed, change, cost)
    yield from _without_filters(trials, trial)


def aggregate_name(view: View, id: AggregateId) -> str:
    label = view.groups.labels.get(id)
    return label.name if label is not None and label.name is not None else id


def _groups_without(view: View, group: RequestGroup) -> Iterator[tuple[Change, float, RequestGroup]]:
    replace = msgspec.structs.replace
    where = f" in the group {group.suffix}" if group.suffix != UNSUFFIXED else ""
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
    if ask.isolate:
        change = Change("without_isolation", "group_policy", "with groups allowed to share a provider")
        yield change, TRAIT_COST, replace(ask, isolate=False)
    for suffixes in ask.same_subtrees:
        names = " and ".join(sorted(suffixes))
        change = Change("without_subtree", names, f"with the groups {names} in different subtrees")
        others = tuple(other for other in ask.same_subtrees if other != suffixes)
        yield change, TRAIT_COST, replace(ask, same_subtrees=others)


def _without_filters(trials: Trials, trial: Trial) -> Iterator[Trial]:
    if trials.is_forced:
        if FORCED not in trial.unasked:
            name = trial.request.hints.forced_host or ""
            change = Change("without_hint", FORCED, f"on another host than {name}")
            yield trial.but(change, HINT_COST, unasked=trial.unasked | {FORCED})
        return
    for name, words in trials.words.items():
        if name in STATES or name in trial.unasked:
            continue
        unasked = trial.unasked | {name}
        if name in _HINTS:
            yield trial.but(
                Change("without_hint", name, f"without the hint for {words}"), HINT_COST, unasked=unasked
            )
        elif name == ZONE:
            yield _in_another_zone(trials, trial)
        else:
            change = Change("without_aggregate", name, f"without asking for {words}")
            yield trial.but(change, PLACE_COST, unasked=unasked)


def _in_another_zone(trials: Trials, trial: Trial) -> Trial:
    """Without the zone; and if one other zone would do, in that."""
    view, groups = trials.view, trials.view.groups
    anywhere = trial._replace(unasked=trial.unasked | {ZONE})
    fits, rows = trials.fits(anywhere)
    counts = {
        name: fits.among(rows[view.rows_in_aggregate(id).mask(view.row_end)[rows]]).members
        for id in groups.of_kind(ZONE)
        if (name := groups.labels[id].name) is not None and name != trial.request.zone
    }
    best = max(counts, key=lambda name: (counts[name], name), default=None)
    asked = trial.request.zone or ""
    text = f"in any other zone than {asked}"
    if best is not None and counts[best] >= trials.needed:
        text = f"in the zone {best} instead of {asked}"
    return anywhere.but(Change("without_zone", asked, text), PLACE_COST)


def _with_group(ask: CandidatesRequest, number: int, group: RequestGroup) -> CandidatesRequest:
    """The request with one group changed. One that names nothing any more is not asked for at all."""
    is_empty = not group.resources and not group.required and not group.member_of
    changed = () if is_empty else (group,)
    return msgspec.structs.replace(ask, groups=(*ask.groups[:number], *changed, *ask.groups[number + 1 :]))


def _asking(trial: Trial, ask: CandidatesRequest, change: Change, cost: float) -> Trial:
    return trial.but(change, cost, request=msgspec.structs.replace(trial.request, ask=ask))
