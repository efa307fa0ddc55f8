"""The request without one of the things it asks for: a trait, an aggregate, a hint, an order among groups."""

from collections.abc import Iterator
from typing import Final

import msgspec

from berth.model.explanations import Change
from berth.model.ids import AggregateId
from berth.model.requests import UNSUFFIXED, CandidatesRequest, RequestGroup
from berth.scheduler.smallest_trials import FORCED, STATES, Variant, Variants
from berth.view import View

HINT_COST: Final = 0.25
TRAIT_COST: Final = 0.5
PLACE_COST: Final = 0.6
"""A hint is a wish; a trait mostly has a reason; a zone or an aggregate was promised to somebody."""

_HINTS: Final = ("ignored", "host_names", "same_host", "different_host")
ZONE: Final = "zone"


def without_one(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The request with one thing less."""
    ask = variant.request.ask
    for number, group in enumerate(ask.groups):
        for change, cost, other in _groups_without(variants.view, group):
            yield _asking(variant, _with_group(ask, number, other), change, cost)
    for change, cost, changed in _asks_without(ask):
        yield _asking(variant, changed, change, cost)
    yield from _without_filters(variants, variant)


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


def _asking(variant: Variant, ask: CandidatesRequest, change: Change, cost: float) -> Variant:
    return variant.but(change, cost, request=msgspec.structs.replace(variant.request, ask=ask))
