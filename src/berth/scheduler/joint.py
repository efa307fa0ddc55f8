"""Joint plans: requests of different kinds, all of whose members are placed together, or none.

One request after the other is planned, on the view with the claims of those before it. The first attempt is
made with the configured weighers, and mostly that is enough. Where the fleet is nearly full, what an
operator prefers may spend room that a later request needs; so the next attempts look at room alone:

* With r groups of which each keeps its members apart, no two groups differing in size by more than one, and
  members that all need the same: n of them fit exactly if the sum over the domains of min(r, how many fit
  there) is n or more (Gale and Ryser). Group after group, each member where the most room is left, finds the
  places. Members of no group come last: they can go wherever room is left. Groups that have members already,
  when a cluster grows, are beyond that: what fits is found nearly always, but not always.
* Larger members before smaller ones, as one packs boxes. That is no longer exact, but hard to beat.
* Those with the least choice first: where groups have members already, their places may be few.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from berth.ledger import decide
from berth.model.commands import UNCHECKED, ReplaceAllocations
from berth.model.groups import HOST
from berth.model.rejections import NoFit, Rejection
from berth.model.scheduling import HostCandidate, Placement, Plan, ScheduleRequest
from berth.scheduler.capacity.members import (
    FitCounter,
    find_filters,
    find_open_hosts,
    find_rooms,
    limit_to_one_each,
)
from berth.scheduler.capacity.rooms import COUNT_MAX, TreeEffort
from berth.scheduler.groups import group_of
from berth.scheduler.hosts import hosts_of_same_cell, sum_amounts
from berth.scheduler.plan import Rng, plan
from berth.scheduler.plugins import Rows, SchedulerOptions, Weights
from berth.view import Trial, View

_NO_CHOICE: Final = -1
Order = Sequence[int]
"""Requests by their numbers, in the order in which they are planned."""


def plan_jointly(
    view: View, requests: Sequence[ScheduleRequest], options: SchedulerOptions, rng: Rng, now_s: int
) -> tuple[Plan, ...] | Rejection:
    """A plan for each request, with places for all of its members; NoFit, of all together, if they do not fit
    beside each other; or what is wrong with one of the requests. The view is as it was before."""
    nearest: NoFit | None = None
    for order, chosen_by in _attempts(view, requests, options):
        answer = _JointAttempt(view, requests, chosen_by, rng, now_s).plans(order)
        if not isinstance(answer, NoFit):
            return answer
        if nearest is None or answer.fitting > nearest.fitting:
            nearest = answer
    assert nearest is not None, "there is a first attempt"
    return nearest


def fits_jointly(
    view: View, requests: Sequence[ScheduleRequest], options: SchedulerOptions, rng: Rng, now_s: int
) -> bool:
    """Whether there are places for all, as far as one attempt by room tells."""
    needed = [msgspec.structs.replace(request, alternates=0) for request in requests]
    attempt = _JointAttempt(view, needed, _by_room(options), rng, now_s)
    return not isinstance(attempt.plans(_larger_first(view, needed)), Rejection)


def _attempts(
    view: View, requests: Sequence[ScheduleRequest], options: SchedulerOptions
) -> Iterator[tuple[Order, SchedulerOptions]]:
    yield range(len(requests)), options
    if len(requests) > 1:
        yield _larger_first(view, requests), _by_room(options)
        yield _least_choice_first(view, requests, options), _by_room(options)


def _by_room(options: SchedulerOptions) -> SchedulerOptions:
    return msgspec.structs.replace(options, weighers=((_RoomWeigher(), 1.0),), subset_size=1)


class _JointAttempt:
    """One attempt to plan all requests."""

    def __init__(
        self,
        view: View,
        requests: Sequence[ScheduleRequest],
        options: SchedulerOptions,
        rng: Rng,
        now_s: int,
    ) -> None:
        self._view = view
        self._requests = requests
        self._options = options
        self._rng = rng
        self._now_s = now_s

    def plans(self, order: Order) -> tuple[Plan, ...] | Rejection:
        plans: dict[int, Plan] = {}
        with Trial(self._view) as trial:
            for number in order:
                answer = self._plan(_all_of(self._requests[number]))
                if isinstance(answer, NoFit):
                    return self._no_fit(answer, plans)
                if isinstance(answer, Rejection):
                    return answer
                verdict = decide(self._view, ReplaceAllocations(answer.claims), self._now_s)
                if isinstance(verdict, Rejection):
                    return verdict
                trial.apply(verdict)
                plans[number] = answer
            return tuple(
                self._with_alternates(request, plans[number]) for number, request in enumerate(self._requests)
            )

    def _plan(self, request: ScheduleRequest) -> Plan | Rejection:
        return plan(self._view, request, self._options, self._rng, self._now_s)

    def _no_fit(self, refused: NoFit, plans: dict[int, Plan]) -> NoFit:
        """The rejection of one request, as an answer to all of them."""
        needed = sum(len(request.members) for request in self._requests)
        placed = sum(len(planned.placements) for planned in plans.values())
        return msgspec.structs.replace(refused, needed=needed, fitting=placed + refused.fitting)

    # -- alternates -----------------------------------------------------------------------------

    def _with_alternates(self, request: ScheduleRequest, planned: Plan) -> Plan:
        """The plan with alternates for each of its members, when all are placed: each as if it alone went
        elsewhere."""
        placements = planned.placements
        if request.alternates:
            placements = tuple(self._with_others(request, placement) for placement in placements)
        return msgspec.structs.replace(planned, request=request, placements=placements)

    def _with_others(self, request: ScheduleRequest, placement: Placement) -> Placement:
        host = placement.chosen.host
        hints = msgspec.structs.replace(
            request.hints, ignore_hosts=request.hints.ignore_hosts | frozenset((host,))
        )
        elsewhere = msgspec.structs.replace(
            request,
            members=(placement.member,),
            at_least=1,
            generation=UNCHECKED,
            hints=hints,
            alternates=request.alternates - 1,
        )
        answer = self._plan(elsewhere)
        if isinstance(answer, Rejection):
            return placement
        (other,) = answer.placements
        found = tuple(
            candidate
            for candidate in (other.chosen, *other.alternates)
            if self._is_near(placement.chosen, candidate)
        )
        return msgspec.structs.replace(placement, alternates=found)

    def _is_near(self, chosen: HostCandidate, other: HostCandidate) -> bool:
        """Whether two hosts are in one cell."""
        providers = self._view.providers
        cell = hosts_of_same_cell(self._view, providers[chosen.host])
        return cell is None or bool(cell[providers[other.host].row])


def _all_of(request: ScheduleRequest) -> ScheduleRequest:
    return msgspec.structs.replace(request, at_least=len(request.members), alternates=0)


# -- orders -------------------------------------------------------------------------------------


def _larger_first(view: View, requests: Sequence[ScheduleRequest]) -> Order:
    """By the fraction of what is free that a member takes; of equal ones, members of groups first: they have
    less choice."""

    def rank(number: int) -> tuple[float, bool]:
        return -_share(view, requests[number]), requests[number].group is None

    return sorted(range(len(requests)), key=rank)


def _share(view: View, request: ScheduleRequest) -> float:
    free = {id: view.classes.column(id).free()[1].sum() for id in sum_amounts(view, request.ask)}
    return max((n / max(1, free[id]) for id, n in sum_amounts(view, request.ask).items()), default=0.0)


def _least_choice_first(view: View, requests: Sequence[ScheduleRequest], options: SchedulerOptions) -> Order:
    """By how many more members there would be places for, if a request were the only one."""

    def rank(number: int) -> tuple[bool, int]:
        request = requests[number]
        return request.group is None, _count_fitting(view, request, options) - len(request.members)

    return sorted(range(len(requests)), key=rank)


def _count_fitting(view: View, request: ScheduleRequest, options: SchedulerOptions) -> int:
    filters = find_filters(view, request, options)
    if isinstance(filters, Rejection):
        return _NO_CHOICE
    rooms = find_rooms(view, request, find_open_hosts(view, request, filters))
    if isinstance(rooms, Rejection):
        return _NO_CHOICE
    rooms = limit_to_one_each(rooms, filters)
    return FitCounter(view, request, rooms).among(np.flatnonzero(rooms.each)).members


# -- by room ------------------------------------------------------------------------------------


_EFFORT: Final = TreeEffort(members_max=500, each_max=100, hosts_max=COUNT_MAX)


class _RoomWeigher:
    """Hosts come first where the most members of the same size still fit. Where a group keeps its members
    apart by rack, the rack's room counts. A configuration cannot name it: it ignores what operators
    prefer."""

    __name__ = "room"

    def weigh(self, view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
        mask = np.zeros(view.row_end, np.bool_)
        mask[hosts] = True
        found = find_rooms(view, request, mask, _EFFORT)
        if isinstance(found, Rejection):
            return None
        rooms = found.each.astype(np.float64)
        record = group_of(view, request)
        if record is not None and record.group.domain != HOST:
            rooms = _sum_by_domain(view, record.group.domain, rooms)
        return rooms[hosts]


def _sum_by_domain(view: View, kind: str, rooms: Weights) -> Weights:
    """For each host the room of its domain; of several, of the one with the most."""
    most = np.zeros(view.row_end)
    for domain in view.groups.of_kind(kind):
        inside = view.rows_in_aggregate(domain).mask(view.row_end)
        most[inside] = np.maximum(most[inside], rooms[inside].sum())
    return most
