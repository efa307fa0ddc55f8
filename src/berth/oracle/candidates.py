"""All allocation candidates, straight from their definition, by trying everything.

Nothing is pruned, ordered or limited, and nothing but the plain facts of a view is read: who stands below
whom, inventories, traits, aggregates and what consumers hold. Sums are made anew for every question. It
is only for forests small enough to try everything on.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import NUMA_ROOT, SHARES_VIA_AGGREGATE, SOCKET_TRAITS
from berth.model.scheduling import UNSUFFIXED, Affinity, CandidatesRequest, RequestGroup
from berth.view import View

Asked = tuple[ProviderId, str]
"""A resource class, by name, of a provider."""

Candidate = tuple[frozenset[tuple[Asked, int]], frozenset[tuple[str, frozenset[ProviderId]]]]
"""Amounts, and the providers of each group by suffix. Two that are equal in both are one candidate."""


@dataclass(frozen=True)
class _Way:
    """One way to satisfy one group."""

    suffix: str
    amounts: tuple[tuple[Asked, int], ...]

    # A group without resources still stands on a provider.
    providers: frozenset[ProviderId]


def all_candidates(view: View, request: CandidatesRequest) -> set[Candidate]:
    """Every candidate of the request, whatever limit it names. All names in it must be known."""
    facts = _Facts(view)
    found = set()
    for anchor in facts.roots():
        traits = facts.traits(anchor)
        if not request.root_required <= traits or request.root_forbidden & traits:
            continue
        inside = facts.aggregates(anchor)
        if inside & request.root_not_member_of or not _meets_all(inside, request.root_member_of):
            continue
        ways = [list(_ways(facts, group, anchor)) for group in request.groups]
        for combination in itertools.product(*ways):
            if _stands(facts, request, anchor, combination):
                found.add(_candidate(combination))
    return found


# -- one group -----------------------------------------------------------------------------------------


def _ways(facts: "_Facts", group: RequestGroup, anchor: ProviderId) -> Iterator[_Way]:
    if group.suffix == UNSUFFIXED and (facts.any_nested() or facts.any_sharing()):
        yield from _spanning_ways(facts, group, anchor)
        return
    for provider in facts.ids():
        at_anchor = facts.root(provider) == anchor or facts.serves(provider, anchor)
        if at_anchor and _satisfies_alone(facts, group, provider):
            amounts = tuple(((provider, name), amount) for name, amount in group.resources)
            yield _Way(group.suffix, amounts, frozenset({provider}))


def _satisfies_alone(facts: "_Facts", group: RequestGroup, provider: ProviderId) -> bool:
    """Whether one provider has and is all that the group asks for."""
    if not group.resources and not group.required and not group.member_of:
        return False
    traits, aggregates = facts.traits(provider), facts.aggregates(provider)
    return (
        provider not in group.ruled_out
        and all(facts.fits(provider, name, amount) for name, amount in group.resources)
        and all(traits.intersection(alternatives) for alternatives in group.required)
        and not traits & group.forbidden
        and _is_member(aggregates, group)
        and not aggregates & group.not_member_of
        and (group.in_tree is None or facts.root(provider) == facts.root(group.in_tree))
    )


def _spanning_ways(facts: "_Facts", group: RequestGroup, anchor: ProviderId) -> Iterator[_Way]:
    """The unsuffixed group: each class from its own provider, traits from all of them together."""
    choices = [
        [id for id in facts.ids() if _lends(facts, group, anchor, id) and facts.fits(id, name, amount)]
        for name, amount in group.resources
    ]
    for chosen in itertools.product(*choices):
        have = frozenset[str]().union(*(facts.traits(id) for id in chosen))
        if have & group.forbidden or not all(have.intersection(any_of) for any_of in group.required):
            continue
        asked = zip(chosen, group.resources, strict=True)
        yield _Way(group.suffix, tuple(((id, name), n) for id, (name, n) in asked), frozenset(chosen))


def _lends(facts: "_Facts", group: RequestGroup, anchor: ProviderId, provider: ProviderId) -> bool:
    """Whether the provider may give a part of the unsuffixed group at this anchor."""
    own, of_anchor = facts.aggregates(provider), facts.aggregates(anchor)
    if (own | of_anchor) & group.not_member_of:
        return False
    if facts.root(provider) == anchor:
        in_tree = group.in_tree is None or facts.root(group.in_tree) == anchor
        return in_tree and (_is_member(own, group) or _is_member(of_anchor, group))
    return group.in_tree is None and facts.serves(provider, anchor) and _is_member(own, group)


def _is_member(aggregates: frozenset[AggregateId], group: RequestGroup) -> bool:
    return _meets_all(aggregates, group.member_of)


def _meets_all(aggregates: frozenset[AggregateId], member_of: tuple[tuple[AggregateId, ...], ...]) -> bool:
    return all(aggregates.intersection(alternatives) for alternatives in member_of)


# -- all groups together -------------------------------------------------------------------------------


def _stands(facts: "_Facts", request: CandidatesRequest, anchor: ProviderId, ways: tuple[_Way, ...]) -> bool:
    suffixed = [way for way in ways if way.suffix != UNSUFFIXED]
    if request.isolate and not _all_differ(suffixed):
        return False
    if not all(_all_differ([way for way in ways if way.suffix in names]) for names in request.distinct):
        return False
    chosen = {id for way in ways if way.suffix in request.guest_groups for id in way.providers}
    have = frozenset[str]().union(*(facts.traits(id) for id in {anchor, *chosen}))
    if not all(have.intersection(any_of) for any_of in request.guest_required):
        return False
    if not all(_is_near(facts, affinity, ways) for affinity in request.affinities):
        return False
    for suffixes in request.same_subtrees:
        chosen = {id for way in ways if way.suffix in suffixes for id in way.providers}
        if not any(all(top in facts.lineage(id) for id in chosen) for top in chosen):
            return False
    sums = _summed(ways)
    for (provider, name), amount in sums.items():
        if amount > facts.free(provider, name) or amount > facts.max_unit(provider, name):
            return False
    if not request.nested and facts.any_nested():
        providers = {provider for provider, _ in sums}
        return len({facts.root(id) for id in providers}) == len(providers)
    return True


def _all_differ(ways: list[_Way]) -> bool:
    return len({id for way in ways for id in way.providers}) == len(ways)


def _is_near(facts: "_Facts", affinity: Affinity, ways: tuple[_Way, ...]) -> bool:
    """Whether the group's provider stands below one of those it is to be near, or, if that will do, below no
    NUMA cell, or below another one of the same socket."""
    cells = {id for way in ways if way.suffix in affinity.near for id in way.providers}
    for lineage in (
        facts.lineage(id) for way in ways if way.suffix == affinity.suffix for id in way.providers
    ):
        is_loose = affinity.or_outside and not any(NUMA_ROOT in facts.traits(id) for id in lineage)
        is_beside = affinity.by_socket and any(
            _share_socket(facts, lineage, facts.lineage(id)) for id in cells
        )
        if not is_loose and not is_beside and cells.isdisjoint(lineage):
            return False
    return True


def _share_socket(facts: "_Facts", lineage: list[ProviderId], other: list[ProviderId]) -> bool:
    """Whether two providers of one host, with all above them, are in NUMA cells of one socket."""
    cells = [next((id for id in one if NUMA_ROOT in facts.traits(id)), None) for one in (lineage, other)]
    traits = [frozenset[str]() if id is None else facts.traits(id) for id in cells]
    return lineage[-1] == other[-1] and bool(traits[0] & traits[1] & set(SOCKET_TRAITS))


def _candidate(ways: Iterable[_Way]) -> Candidate:
    ways = list(ways)
    return frozenset(_summed(ways).items()), frozenset((way.suffix, way.providers) for way in ways)


def _summed(ways: Iterable[_Way]) -> dict[Asked, int]:
    sums: dict[Asked, int] = {}
    for way in ways:
        for asked, amount in way.amounts:
            sums[asked] = sums.get(asked, 0) + amount
    return sums


# -- facts ---------------------------------------------------------------------------------------------


class _Facts:
    """The plain facts of a view, each found by going through all of them."""

    def __init__(self, view: View) -> None:
        self._view = view

    def ids(self) -> list[ProviderId]:
        return sorted(self._view.providers)

    def lineage(self, provider: ProviderId) -> list[ProviderId]:
        """The provider, its parent, and so on up to the root."""
        found = [provider]
        while (parent := self._view.providers[found[-1]].parent) is not None:
            found.append(parent.id)
        return found

    def root(self, provider: ProviderId) -> ProviderId:
        return self.lineage(provider)[-1]

    def roots(self) -> list[ProviderId]:
        return [id for id in self.ids() if self.root(id) == id]

    def traits(self, provider: ProviderId) -> frozenset[str]:
        return frozenset(self._view.providers[provider].traits)

    def aggregates(self, provider: ProviderId) -> frozenset[AggregateId]:
        return frozenset(self._view.providers[provider].aggregates)

    def any_nested(self) -> bool:
        return any(self.root(id) != id for id in self.ids())

    def any_sharing(self) -> bool:
        return any(SHARES_VIA_AGGREGATE in self.traits(id) for id in self.ids())

    def serves(self, provider: ProviderId, anchor: ProviderId) -> bool:
        """Whether the provider shares through an aggregate that some provider of the tree is in."""
        return SHARES_VIA_AGGREGATE in self.traits(provider) and any(
            self.aggregates(provider) & self.aggregates(id) for id in self.ids() if self.root(id) == anchor
        )

    def fits(self, provider: ProviderId, name: str, amount: int) -> bool:
        """Whether one allocation of this amount would be accepted now."""
        class_id = self._view.classes.id_of(name)
        inventory = self._view.providers[provider].inventories.get(class_id) if class_id is not None else None
        return (
            inventory is not None
            and inventory.min_unit <= amount <= inventory.max_unit
            and amount % inventory.step_size == 0
            and amount <= self.free(provider, name)
        )

    def free(self, provider: ProviderId, name: str) -> float:
        class_id = self._view.classes.id_of(name)
        assert class_id is not None
        inventory = self._view.providers[provider].inventories[class_id]
        used = sum(
            amount
            for consumer in self._view.consumers.values()
            for holder, amounts in consumer.held
            for held, amount in amounts
            if (holder, held) == (provider, class_id)
        )
        return (inventory.total - inventory.reserved) * inventory.allocation_ratio - used

    def max_unit(self, provider: ProviderId, name: str) -> int:
        class_id = self._view.classes.id_of(name)
        assert class_id is not None
        return self._view.providers[provider].inventories[class_id].max_unit
