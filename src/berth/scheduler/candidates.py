"""The candidates on each host: the allocation requests that give one member all it asks for there.

Masks over the whole fleet tell which hosts may have one; the candidates of a host are searched for when its
turn comes. A candidate is on its host: it may use what sharing providers offer to that host, but allocations
on sharing providers alone are not a place to run.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Self

import msgspec
import numpy as np

from berth.model.ids import ProviderId, Row
from berth.model.placement import Amounts, Wanted
from berth.model.rejections import ConstraintStep, NoFit, Rejection, ResourceClassNotFound
from berth.model.scheduling import CandidatesRequest, HostCandidate, ScheduleRequest
from berth.scheduler.hosts import drop_pools
from berth.search.anchors import anchors_of, drop_by_places
from berth.search.assignments import (
    FRUITLESS_LEAST,
    FRUITLESS_MAX,
    Assignment,
    Effort,
    assignments_at,
    assignments_of_sharing,
)
from berth.search.patterns import BarrenTrees, Patterns
from berth.search.providers import find_unknown_host_traits, find_unknown_traits
from berth.search.slots import Slot, slots_of, split_at
from berth.view import Mask, ProviderRecord, View

_RESULTS_MAX: Final = 2_000
"""The search of one plan is allowed steps for this many candidates, however few its members are."""

_STEPS_PER_MEMBER: Final = 500
"""What each member that is placed adds to that, so that a large batch is not given up for its size: with 64
parts on 8 children it takes about 300 to find a candidate. A thousand members add a few times what a plan
begins with: the whole stays bounded."""


def asks_in(view: View, request: ScheduleRequest) -> tuple[ScheduleRequest, ...] | Rejection:
    """The requests for one thing each, in the order in which they are tried. Those that name something that
    does not exist are left out, unless there is no other; and those that cannot find more than the one
    before."""
    asks = (request.ask, *(ask for ask in request.otherwise if not ask.split or _may_split(view, ask)))
    if len(asks) == 1 and not any(group.label for group in request.ask.groups):
        return (msgspec.structs.replace(request, otherwise=()) if request.otherwise else request,)
    wrong = [find_unknown_names(view, ask) for ask in asks]
    known = [ask for ask, why in zip(asks, wrong, strict=True) if why is None]
    if not known:
        return _find_unreported(view, request, asks) or next(why for why in wrong if why is not None)
    return tuple(msgspec.structs.replace(request, ask=ask, otherwise=()) for ask in known)


def _find_unreported(view: View, request: ScheduleRequest, asks: Iterable[CandidatesRequest]) -> NoFit | None:
    """Where a guest or its devices need classes that do not exist: who asked did not name them, and could not
    have known. No host has reported them."""
    missing: dict[str, dict[str, str]] = {}
    for ask in asks:
        for group in ask.groups:
            for name, amount in group.resources if group.label else ():
                if view.classes.id_of(name) is None:
                    missing.setdefault(group.label, {})[name] = f"{amount} {name}"
    if not missing:
        return None
    label, amounts = next(iter(missing.items()))
    hosts = int(np.count_nonzero(drop_pools(view, view.roots())))
    asked = f"{' or '.join(amounts.values())} free on one provider for {label}"
    step = ConstraintStep("resources", asked, hosts, 0, (), f"No host has {' or '.join(amounts)}.")
    return NoFit(request.at_least, 0, (step,) if hosts else ())


def _may_split(view: View, ask: CandidatesRequest) -> bool:
    """Whether any provider below a host has what may be split: if not, there are no parts to be had."""
    if not view.nested_count:
        return False
    view.steps.take(len(ask.split) * (2 + view.row_end // 1000))
    ids = (view.classes.id_of(name) for name in ask.split)
    columns = (view.classes.column(id).rows() for id in ids if id is not None)
    return any(bool((view.root_rows[rows] != rows).any()) for rows in columns)


def find_unknown_names(view: View, ask: CandidatesRequest) -> Rejection | None:
    """The first resource class or trait of a request that does not exist."""
    unknown = find_unknown_host_traits(view, ask)
    if unknown is not None:
        return unknown
    for group in ask.groups:
        unknown = find_unknown_traits(view, group)
        if unknown is not None:
            return unknown
        for name, _ in group.resources:
            if view.classes.id_of(name) is None:
                return ResourceClassNotFound(name)
    return None


class HostCandidates:
    """The candidates of a request in a view. After a claim, ``after_claim`` brings it up to date.

    ``hosts`` are the hosts that may have a candidate; where ``is_certain``, they do have one. After the first
    that has none (then ``has_counted``) all others are dropped that cannot have one by counting.
    """

    def __init__(
        self,
        view: View,
        ask: CandidatesRequest,
        slots: list[Slot],
        effort: Effort,
        first: frozenset[ProviderId],
        is_there: bool = False,
    ) -> None:
        self._view = view
        self._ask = ask
        self._first = first
        self._is_there = is_there
        self._slots = slots
        for slot in slots:
            slot.first = first
        self._effort = effort
        is_plain = not slots[0].spans and not slots[0].sharing and not ask.guest_required
        self._is_single = len(slots) == 1 and is_plain
        self._splits = any(slot.splits for slot in slots)
        self._patterns = Patterns(slots)
        self._barren = BarrenTrees(view, ask, slots)
        self._abandoned = BarrenTrees(view, ask, slots)
        """Trees in which nothing was found before the search was given up."""
        self.has_counted = False
        self._searched = 0
        self._given_up: set[Row] = set()
        self.hosts: Mask = drop_pools(view, anchors_of(view, ask, slots))
        if not any(amounts for slot in slots for amounts in slot.amounts):
            # A member that takes nothing is on no host.
            self.hosts[:] = False

    @classmethod
    def of(
        cls,
        view: View,
        ask: CandidatesRequest,
        first: frozenset[ProviderId] = frozenset(),
        *,
        is_there: bool = False,
    ) -> Self | Rejection:
        """Names that do not exist are rejected. Candidates that use providers in ``first`` come first.
        ``is_there``: the member is on its host already, and what sharing providers alone give it will do."""
        unknown = find_unknown_host_traits(view, ask)
        if unknown is not None:
            return unknown
        slots = slots_of(view, ask)
        if isinstance(slots, Rejection):
            return slots
        return cls(view, ask, slots, Effort(_RESULTS_MAX), first, is_there)

    @property
    def is_certain(self) -> bool:
        return self._is_single

    @property
    def slots(self) -> list[Slot]:
        return self._slots

    @property
    def given_up(self) -> int:
        """How often the search on a host was given up before all its candidates were seen. Where none was
        found there may be one."""
        return self._effort.gave_up

    # -- one host -------------------------------------------------------------------------------

    def at(self, host: ProviderRecord) -> Iterator[HostCandidate]:
        """The candidates on a host, each once. The view is not to be changed meanwhile."""
        if not self.hosts[host.row]:
            return iter(())
        return self._single_at(host) if self._is_single else self._search_at(host)

    def _single_at(self, host: ProviderRecord) -> Iterator[HostCandidate]:
        slot = self._slots[0]
        for record in slot.choices(host, self._view):
            wanted = ((record.id, self._named(slot.amounts)),)
            yield HostCandidate(host.id, host.name, wanted, ((slot.group.suffix, (record.id,)),))

    def _search_at(self, host: ProviderRecord) -> Iterator[HostCandidate]:
        view, effort = self._view, self._effort
        found, given_up, allowance = False, effort.gave_up, effort.allowance()
        slots = split_at(self._slots, host) if self._splits else self._slots
        if slots is None or self._barren.has_alike(host):
            self.hosts[host.row] = False
            return
        if self._abandoned.has_alike(host):
            self._give_up(host)
            return
        self._searched += 1
        patterns = Patterns(slots) if self._splits else self._patterns
        assignments = assignments_at(view, self._ask, slots, host, effort)
        if self._is_there:
            assignments = chain(assignments, self._search_sharing(host))
        for candidate in patterns.candidates(assignments):
            view.steps.take(5 * len(slots))
            held = candidate.allocations
            on_hosts = view.hosts_held(tuple((record.id, amounts) for record, amounts in held))
            if self._is_there or on_hosts == [host]:
                wanted = tuple((record.id, self._named(amounts)) for record, amounts in held)
                found = True
                yield HostCandidate(host.id, host.name, wanted, _mappings(candidate.mappings))
        is_cut_short = allowance < FRUITLESS_MAX or effort.steps >= effort.steps_max
        if not found and not (is_cut_short and effort.gave_up > given_up):
            # Claims only take: the next member need not search here again, unless it might search longer.
            self.hosts[host.row] = False
            self._drop_by_counting()
            if effort.gave_up > given_up:
                self._give_up(host)
                self._abandoned.note(host)
            elif self.hosts.any():
                self._barren.note(host)

    def _search_sharing(self, host: ProviderRecord) -> Iterator[Assignment]:
        """The assignments at a host that use sharing providers alone."""
        here = np.zeros(self._view.row_end, np.bool_)
        here[host.row] = True
        return assignments_of_sharing(self._view, self._ask, self._slots, here, self._effort)

    def _give_up(self, host: ProviderRecord) -> None:
        self.hosts[host.row] = False
        self._given_up.add(host.row)

    def _drop_by_counting(self) -> None:
        """After the first host without a candidate, drop others by counting."""
        if not self.has_counted:
            self.has_counted = True
            drop_by_places(self._view, self._ask, self._slots, self.hosts)

    def drop_barren(self, hosts: Mask, count_max: int) -> Mask:
        """Those of these hosts that have a candidate. At most ``count_max`` are searched, those that were
        searched before included; the others, and those where a search was given up, count as if they had
        one."""
        left = hosts & self.hosts
        if self.is_certain:
            return left
        for row in np.flatnonzero(left).tolist():
            if self._searched >= count_max:
                break
            next(self.at(self._view.record(Row(row))), None)
        left &= self.hosts
        unsure = list(self._given_up)
        left[unsure] = hosts[unsure]
        return left

    def _named(self, amounts: Amounts) -> tuple[tuple[str, int], ...]:
        name_of = self._view.classes.name_of
        return tuple([(name_of(class_id), amount) for class_id, amount in amounts])

    # -- after a claim --------------------------------------------------------------------------

    def after_claim(self, wanted: Iterable[Wanted]) -> "HostCandidates":
        """The candidates that are left after a claim by a consumer that held nothing before. This object may
        be changed by it, and is not to be used any more."""
        view, effort = self._view, self._effort
        effort.steps_max += _STEPS_PER_MEMBER
        effort.fruitless = max(0, effort.fruitless - FRUITLESS_LEAST)
        if any(slot.sharing for slot in self._slots):
            # What is shared counts at many hosts.
            slots = _again(view, self._ask)
            again = HostCandidates(view, self._ask, slots, effort, self._first, self._is_there)
            again.hosts &= self.hosts
            return again
        self._barren.forget()
        self._abandoned.forget()
        # Claims only take, so that it is enough to check the providers that were taken from.
        for provider, _ in wanted:
            self._look_again(view.providers[provider])
        return self

    def _look_again(self, record: ProviderRecord) -> None:
        row = record.row
        # Slots that ask for the same share their masks.
        full = [
            slot
            for slot in self._slots
            if not slot.splits and slot.own[row] and not _has_room(record, slot.amounts)
        ]
        for slot in full:
            slot.own[row] = False
            slot.own_bytes = slot.own_bytes[:row] + b"\0" + slot.own_bytes[row + 1 :]
            if not any(slot.own[other.row] for other in record.tree()):
                slot.anchors[record.root.row] = False
                self.hosts[record.root.row] = False


def _again(view: View, ask: CandidatesRequest) -> list[Slot]:
    slots = slots_of(view, ask)
    assert not isinstance(slots, Rejection), "names that were known still are"
    return slots


def _has_room(record: ProviderRecord, amounts: Amounts) -> bool:
    """Whether a provider whose units allow these amounts still has as much free."""
    return all(
        record.inventories[class_id].capacity - record.used.get(class_id, 0) >= amount
        for class_id, amount in amounts
    )


def _mappings(
    mappings: tuple[tuple[str, tuple[ProviderRecord, ...]], ...],
) -> tuple[tuple[str, tuple[ProviderId, ...]], ...]:
    return tuple((suffix, tuple(record.id for record in records)) for suffix, records in mappings)
