"""Plan: for each member a host, what to allocate there, and alternates in case that host fails.

Members are placed one after the other: masks say which hosts could have the member, weights which of them is
best, and the ledger judges the candidates there; if it refuses them all, the next host is tried. The claim of
a member is applied to the view before the next is placed, so that a batch sees itself. All of it is taken
back in the end: nothing but the answer comes out of a plan. Nothing else may read the view meanwhile.

A request may say what will do otherwise (docs/decisions/024). For each member all hosts are tried for the
first thing asked, then all of them for the next, and so on; alternates come in the same order.

The alternative, a copy of the view that a plan could keep its claims in, would cost more than the plan.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

import msgspec
import numpy as np

from berth.ledger import decide
from berth.model.commands import UNCHECKED, Claim, ReplaceAllocations
from berth.model.events import Event
from berth.model.ids import ConsumerId, Row
from berth.model.rejections import (
    ConsumerClaimsTwice,
    ConsumerGenerationConflict,
    GroupFull,
    GroupNotFound,
    InAnotherGroup,
    NoFit,
    Rejection,
)
from berth.model.scheduling import Generation, HostCandidate, Placement, Plan, ScheduleRequest
from berth.scheduler.candidates import HostCandidates, asks_in
from berth.scheduler.constraints import count_steps, forced_host, narrow_down
from berth.scheduler.groups import hosts_of_same_domain, keep_roomiest, stays_together
from berth.scheduler.hosts import find_unknown, hosts_of_same_cell
from berth.scheduler.plugins import Rows, SchedulerOptions, Weights
from berth.view import Mask, Trial, View

_WRONG_ANYWHERE: Final = (ConsumerGenerationConflict, GroupNotFound, InAnotherGroup)
"""Rejections that hold on every host, because the request is wrong."""

_DOMAINS_TRIED_MAX: Final = 4
"""In how many domains members that must stay together are tried, if they do not all fit in the first."""


_OUT: Final = -np.inf
_FIRST_FEW: Final = 32

Beside = Callable[[HostCandidate], tuple[Claim, ...]]
"""Claims of others that go with the one of a single member on a candidate: in a move, the migration takes
over what the server had and does not use there."""


# -- ranking ----------------------------------------------------------------------------------------


class Rng(Protocol):
    """The part of ``random.Random`` that a plan uses."""

    def randrange(self, stop: int, /) -> int: ...


def weigh_hosts(view: View, request: ScheduleRequest, options: SchedulerOptions, hosts: Rows) -> Weights:
    """A number for each host. The weights of each weigher are first brought to 0..1 over these hosts, so that
    a multiplier means the same whatever the weigher counts."""
    total = np.zeros(len(hosts))
    if len(hosts) < 2:
        return total
    for weigher, multiplier in options.weighers:
        weights = weigher.weigh(view, request, hosts) if multiplier else None
        if weights is None:
            continue
        low, high = weights.min(), weights.max()
        if high > low:
            weights -= low
            weights *= multiplier / (high - low)
            total += weights
    return total


class Ranking:
    """Hosts and their weights, of which one after the other is taken."""

    def __init__(self, hosts: Rows, weights: Weights) -> None:
        self._hosts = hosts
        self._weights = weights
        self._left = len(hosts)

    @property
    def is_empty(self) -> bool:
        return not self._left

    def take_any_of_best(self, count: int, rng: Rng) -> Row | None:
        """A host at random among the ``count`` best that are left, and those as good as the last of them."""
        if not self._left:
            return None
        weights = self._weights
        least = weights.max() if count == 1 else self._least_of_best(count)
        best = np.flatnonzero(weights >= least)
        place = best[rng.randrange(len(best))]
        weights[place] = _OUT
        self._left -= 1
        return Row(int(self._hosts[place]))

    def keep(self, mask: Mask) -> None:
        """Drop the hosts that are not in the mask."""
        self._weights[~mask[self._hosts]] = _OUT
        self._left = int(np.count_nonzero(self._weights != _OUT))

    def _least_of_best(self, count: int) -> np.float64:
        end = len(self._weights)
        at = end - min(count, self._left)
        return np.float64(np.partition(self._weights, at)[at])

    def best_first(self) -> Iterator[Row]:
        """The hosts that are left in the order of their weights, and of their rows where these are equal."""
        # Mostly a few are enough: then they are put in order and the others are not.
        some = _FIRST_FEW if self._left > 4 * _FIRST_FEW else self._left
        if some < self._left:
            least = self._least_of_best(some)
            best = np.flatnonzero(self._weights >= least)
            order = best[np.argsort(-self._weights[best], kind="stable")][:some]
            yield from self._rows(order)
        order = np.argsort(-self._weights, kind="stable")
        yield from self._rows(order[some if some < self._left else 0 : self._left])

    def _rows(self, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[Row]:
        return [Row(row) for row in self._hosts[places].tolist()]


# -- planning -----------------------------------------------------------------------------------


def plan(
    view: View,
    request: ScheduleRequest,
    options: SchedulerOptions,
    rng: Rng,
    now_s: int,
    beside: Beside = lambda candidate: (),
) -> Plan | Rejection:
    """A plan for as many members as fit, if these are enough; NoFit if not; or what is wrong with the
    request. The view is as it was before."""
    view.steps.take(200 + view.row_end // 1000)
    unknown = find_unknown(view, request.hints)
    if unknown is not None:
        return unknown
    twice = _named_twice(request.members)
    if twice is not None:
        return ConsumerClaimsTwice(twice)
    asked = asks_in(view, request)
    if isinstance(asked, Rejection):
        return asked
    allowed = _allowed_hosts(view, request, options)
    attempt = _Attempt(view, request, options, rng, now_s, asked, allowed, beside)
    answer = attempt.answer()
    if not stays_together(view, request):
        return answer
    for _ in range(_DOMAINS_TRIED_MAX - 1):
        if not attempt.placed or len(attempt.placed) == len(request.members):
            break
        host = view.providers[attempt.placed[0].chosen.host]
        allowed = attempt.allowed & ~hosts_of_same_domain(view, request, host)
        attempt = _Attempt(view, request, options, rng, now_s, asked, allowed, beside)
        other = attempt.answer()
        gave_up = any(isinstance(each, NoFit) and each.gave_up for each in (answer, other))
        if _count(other) > _count(answer):
            answer = other
        if gave_up and isinstance(answer, NoFit):
            answer = msgspec.structs.replace(answer, gave_up=True)
    return answer


def _named_twice(members: tuple[ConsumerId, ...]) -> ConsumerId | None:
    if len(set(members)) == len(members):
        return None
    return next(member for number, member in enumerate(members) if member in members[:number])


def _count(answer: Plan | Rejection) -> int:
    if isinstance(answer, Plan):
        return len(answer.placements)
    return answer.fitting if isinstance(answer, NoFit) else 0


def _allowed_hosts(view: View, request: ScheduleRequest, options: SchedulerOptions) -> Mask:
    """The hosts that pass the filters that do not follow claims."""
    if request.hints.forced_host is not None:
        return forced_host(view, request.hints.forced_host)
    mask = np.ones(view.row_end, np.bool_)
    for filter in options.filters:
        if not filter.FOLLOWS_CLAIMS and filter.describe_request(view, request) is not None:
            mask &= filter.passing_hosts(view, request)
    return mask


class _AskSearch:
    """One thing that is asked for: the request for it alone, its candidates, and for how many more hosts
    without success there is patience."""

    __slots__ = ("candidates", "patience", "request")

    def __init__(self, request: ScheduleRequest, candidates: HostCandidates, patience: int) -> None:
        self.request = request
        self.candidates = candidates
        self.patience = patience


class _Attempt:
    """One attempt to place the members. ``placed`` are the placements so far."""

    def __init__(
        self,
        view: View,
        request: ScheduleRequest,
        options: SchedulerOptions,
        rng: Rng,
        now_s: int,
        asked: tuple[ScheduleRequest, ...],
        allowed: Mask,
        beside: Beside,
    ) -> None:
        self._view = view
        self._request = request
        self._options = options
        self._rng = rng
        self._now_s = now_s
        self._beside = beside
        self._is_free = request.hints.forced_host is None
        self._trial = Trial(view)
        self._refused: Rejection | None = None
        self._gave_up = False
        self._asked = asked
        self._searches: list[_AskSearch] = []
        self.allowed = allowed
        self.placed: list[Placement] = []

    def answer(self) -> Plan | Rejection:
        first = self._search(0)
        if isinstance(first, Rejection):
            return first
        with self._trial:
            return self._place_all()

    def _place_all(self) -> Plan | Rejection:
        request, view = self._request, self._view
        is_batch = len(request.members) > 1
        for member in request.members:
            placed = self._place(member)
            if placed is None:
                if isinstance(self._refused, _WRONG_ANYWHERE):
                    return self._refused
                break
            placement, events = placed
            self.placed.append(placement)
            if is_batch:
                self._trial.apply(events)
                wanted = placement.chosen.wanted
                for search in self._searches:
                    search.candidates = search.candidates.after_claim(wanted)
                    # The host may be full now, and be tried once more before that is known.
                    search.patience += 1
        if len(self.placed) < min(request.at_least, len(request.members)):
            gave_up = any(search.candidates.given_up for search in self._searches)
            return self._no_fit(self._gave_up or gave_up)
        if is_batch and request.alternates and self._is_free:
            self._find_alternates()
        return Plan(request, tuple(self.placed), view.index)

    def _place(self, member: ConsumerId) -> tuple[Placement, list[Event]] | None:
        """The best place for a member that the ledger grants, by the first thing asked that any host has."""
        is_batch = len(self._request.members) > 1
        for number in range(len(self._asked)):
            search = self._search(number)
            assert not isinstance(search, Rejection), "names were looked up before"
            asked = search.request
            one = msgspec.structs.replace(asked, members=(member,)) if is_batch else asked
            ranking = self._rank_hosts(search.candidates, one)
            chosen = self._choose(search, ranking, member)
            if chosen is not None:
                candidate, events = chosen
                alternates = () if is_batch else self._find_others(number, candidate, member, ranking)
                return Placement(member, candidate, alternates), events
            if isinstance(self._refused, (*_WRONG_ANYWHERE, GroupFull)):
                break
        return None

    def _search(self, number: int) -> _AskSearch | Rejection:
        """One thing that is asked for; its candidates are looked for when its turn comes."""
        if number == len(self._searches):
            asked = self._asked[number]
            candidates = HostCandidates.of(self._view, asked.ask, asked.uses)
            if isinstance(candidates, Rejection):
                return candidates
            self._searches.append(_AskSearch(asked, candidates, self._options.hosts_tried_max))
        return self._searches[number]

    def _no_fit(self, gave_up: bool) -> Rejection:
        """Why the next member does not fit, with those before it placed."""
        request = self._request
        # A full group is full on every host.
        gave_up = gave_up and not isinstance(self._refused, GroupFull)
        rest = msgspec.structs.replace(request, members=request.members[len(self.placed) :])
        searched = [search.candidates for search in self._searches]
        narrowed = narrow_down(self._view, rest, self._options, searched)
        if isinstance(narrowed, Rejection):
            return narrowed
        steps = count_steps(narrowed.results)
        return NoFit(request.at_least, len(self.placed), steps, self._refused, gave_up)

    # -- one member -----------------------------------------------------------------------------

    def _rank_hosts(self, candidates: HostCandidates, one: ScheduleRequest) -> Ranking:
        """The hosts that could have a member, and how good they are."""
        mask = candidates.hosts & self.allowed
        for passing in self._filter_again(one):
            mask &= passing
        hosts = np.flatnonzero(mask)
        self._view.steps.take(20 + self._view.row_end // 400 + len(hosts) // 100)
        if not self.placed and stays_together(self._view, self._request):
            hosts = keep_roomiest(self._view, self._request, hosts)
        return Ranking(hosts, weigh_hosts(self._view, one, self._options, hosts))

    def _filter_again(self, one: ScheduleRequest) -> Iterator[Mask]:
        """The masks of filters that follow claims: they are asked again for each member."""
        for filter in self._options.filters if self._is_free else ():
            if filter.FOLLOWS_CLAIMS and filter.describe_request(self._view, one) is not None:
                yield filter.passing_hosts(self._view, one)

    def _choose(
        self, search: _AskSearch, ranking: Ranking, member: ConsumerId
    ) -> tuple[HostCandidate, list[Event]] | None:
        candidates = search.candidates
        while search.patience:
            had_counted = candidates.has_counted
            row = ranking.take_any_of_best(self._options.subset_size, self._rng)
            if row is None:
                return None
            granted = self._try_host(search, row, member, self._request.generation)
            if granted is not None:
                return granted
            if isinstance(self._refused, (*_WRONG_ANYWHERE, GroupFull)):
                return None
            if candidates.has_counted and not had_counted:
                ranking.keep(candidates.hosts)
        self._gave_up |= not ranking.is_empty
        return None

    def _try_host(
        self, search: _AskSearch, row: Row, member: ConsumerId, generation: Generation
    ) -> tuple[HostCandidate, list[Event]] | None:
        """The first candidate on a host that the ledger grants, and what follows from it."""
        request = self._request
        self._view.steps.take(10)
        candidates_here = search.candidates.at(self._view.record(row))
        for candidate in islice(candidates_here, self._options.candidates_tried_max):
            claims = (request.claim(member, candidate.wanted, generation), *self._beside(candidate))
            verdict = decide(self._view, ReplaceAllocations(claims), self._now_s)
            if not isinstance(verdict, Rejection):
                return candidate, verdict
            self._refused = verdict
        self._gave_up |= next(candidates_here, None) is not None
        search.patience -= 1
        return None

    # -- alternates -----------------------------------------------------------------------------

    def _find_others(
        self, number: int, chosen: HostCandidate, member: ConsumerId, ranking: Ranking
    ) -> tuple[HostCandidate, ...]:
        """Alternates for a single member: by the thing asked of this number that it has been placed by, then
        by those behind it."""
        if not self._request.alternates:
            return ()
        found = self._alternates(self._searches[number], chosen, member, ranking.best_first())
        for later in range(number + 1, len(self._asked)):
            if len(found) == self._request.alternates:
                break
            search = self._search(later)
            assert not isinstance(search, Rejection), "names were looked up before"
            rows = self._rank_hosts(search.candidates, search.request).best_first()
            found = self._alternates(search, chosen, member, rows, found)
        return found

    def _find_alternates(self) -> None:
        """Alternates for the members of a batch, when all of them have been placed: each as if it alone were
        to go elsewhere, with the others where they are."""
        view = self._view
        ranked = []
        for search in self._searches:
            hosts = np.flatnonzero(search.candidates.hosts & self.allowed)
            ranking = Ranking(hosts, weigh_hosts(view, search.request, self._options, hosts))
            ranked.append((search, np.fromiter(ranking.best_first(), np.intp, len(hosts))))
        for number, placement in enumerate(self.placed):
            one = msgspec.structs.replace(self._request, members=(placement.member,))
            view.steps.take(20 + view.row_end // 200)
            passing = list(self._filter_again(one))
            found: tuple[HostCandidate, ...] = ()
            for search, rows in ranked:
                for mask in passing:
                    rows = rows[mask[rows]]
                found = self._alternates(search, placement.chosen, placement.member, map(Row, rows), found)
            self.placed[number] = msgspec.structs.replace(placement, alternates=found)

    def _alternates(
        self,
        search: _AskSearch,
        chosen: HostCandidate,
        member: ConsumerId,
        rows: Iterable[Row],
        before: tuple[HostCandidate, ...] = (),
    ) -> tuple[HostCandidate, ...]:
        """The best other hosts of the same cell that the member could go to, behind those found before."""
        count = self._request.alternates
        if len(before) == count:
            return before
        found = list(before)
        taken = {self._view.providers[one.host].row for one in (chosen, *before)}
        cell = hosts_of_same_cell(self._view, self._view.providers[chosen.host])
        others = (row for row in rows if row not in taken and (cell is None or cell[row]))
        for row in others:
            if not search.patience:
                break
            granted = self._try_host(search, row, member, UNCHECKED)
            if granted is not None:
                found.append(granted[0])
                if len(found) == count:
                    break
        return tuple(found)


def find_objection(view: View, plan: Plan, options: SchedulerOptions) -> str | None:
    """Why a plan made earlier can no longer be carried out, in words, as far as filters tell. Whether there
    is still room, and whether policies hold, is the ledger's to say: filters that follow claims would have to
    be asked for each member in turn."""
    request = plan.request
    hosts = {placement.chosen.host: placement.chosen.host_name for placement in plan.placements}
    for id, name in hosts.items():
        if id not in view.providers:
            return f"host {name} is gone"
    if request.hints.forced_host is not None:
        return None
    for filter in options.filters:
        asked = None if filter.FOLLOWS_CLAIMS else filter.describe_request(view, request)
        if asked is None:
            continue
        passing = filter.passing_hosts(view, request)
        for id, name in hosts.items():
            record = view.providers[id]
            if not passing[record.row]:
                return (
                    f"host {name} has {filter.describe_host(view, request, record)}, and {asked} is asked for"
                )
    return None
