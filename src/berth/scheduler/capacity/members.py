"""How many more members of a request fit into the fleet now: in all, and in each aggregate by itself.

The count is of members that could be claimed one after the other while nothing else changes: the room that
hosts have (rooms.py), of that what the group's policy allows (policies.py), of that what sharing providers
have enough for. Each of these is a way to place that many members; where another choice might place more, the
answer says that it is a lower bound.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from berth.model.groups import MEMBERS_MAX, Group
from berth.model.rejections import GroupNotFound, Rejection
from berth.model.scheduling import CandidatesRequest, Capacity, Constraints, PlaceCapacity, ScheduleRequest
from berth.scheduler.capacity.policies import NoPolicy, PolicyLimit, make_policy
from berth.scheduler.capacity.rooms import HostRows, Rooms, count_rooms
from berth.scheduler.capacity.trees import COUNT_MAX, THOROUGH, TreeEffort
from berth.scheduler.filters import group_policy
from berth.scheduler.groups import group_of
from berth.scheduler.hosts import find_host, find_unknown
from berth.scheduler.options import SchedulerOptions
from berth.scheduler.plugins import Filter
from berth.search.providers import find_unknown_traits
from berth.search.slots import Slot, anchors_of, slots_of
from berth.view import Mask, View
from berth.view.groups import GroupRecord, Hosts


class FitCount(NamedTuple):
    """How many members fit, whether no more could fit, and how many hosts have room, policies aside."""

    members: int
    exact: bool
    hosts: int


class FitCounter:
    """Counts how many members fit. ``rule`` replaces the rule of the request's group."""

    def __init__(self, view: View, request: ScheduleRequest, rooms: Rooms, rule: Group | None = None) -> None:
        self.rooms = rooms
        self._steps = view.steps
        self._policy: PolicyLimit = NoPolicy()
        self._joining_max = COUNT_MAX
        record = group_of(view, request)
        if record is not None:
            self._policy = make_policy(view, rule or record.group, _others(view, record, request))
            declared = sum(member in record.members for member in request.members)
            self._joining_max = MEMBERS_MAX - len(record.members) + declared

    def among(self, rows: HostRows) -> FitCount:
        """How many fit on these hosts, and on no others."""
        rooms, policy = self.rooms, self._policy
        pools = sum(len(shared.pools) for shared in rooms.shared)
        self._steps.take(10 + (1 + pools) * (1 + len(rows) // 50))
        each = rooms.each[rows]
        exact = rooms.exact and policy.exact
        if rooms.shared:
            wanted = policy.limit(rows, each)
            given, is_most = rooms.share_out(rows, wanted)
            count = int(given.sum())
            # Hosts that were chosen without regard to sharing providers may not have been the best.
            exact = exact and (count == int(wanted.sum()) if policy.chooses else is_most)
        else:
            count = policy.count(rows, each)
        return FitCount(min(count, self._joining_max), exact, int(np.count_nonzero(each)))


def _others(view: View, record: GroupRecord, request: ScheduleRequest) -> Hosts:
    """Where members of the group stand, without those of the request."""
    memberships = view.groups.memberships
    coming = {memberships[id].stands_for for id in request.members if id in memberships}
    if not coming:
        return record.hosts
    others = {
        host: {who: number for who, number in standing.items() if who not in coming}
        for host, standing in record.hosts.items()
    }
    return {host: standing for host, standing in others.items() if standing}


# -- which hosts --------------------------------------------------------------------------------


FilterAsked = tuple[Filter, str]
"""A filter that applies, and what it asks for in words."""


def find_filters(
    view: View, request: ScheduleRequest, options: SchedulerOptions
) -> list[FilterAsked] | Rejection:
    """The filters that apply, without the policy of groups: that is counted, not filtered by."""
    if request.group is not None and request.group not in view.groups.records:
        return GroupNotFound(request.group)
    unknown = find_unknown(view, request.hints)
    if unknown is not None:
        return unknown
    if request.hints.forced_host is not None:
        return []
    asked = ((filter, filter.describe_request(view, request)) for filter in options.filters)
    return [(filter, words) for filter, words in asked if words is not None and filter is not group_policy]


def find_open_hosts(view: View, request: ScheduleRequest, filters: Iterable[FilterAsked]) -> Mask:
    """The rows that the filters, or a forced host, leave. Rows that are not hosts do not matter."""
    name = request.hints.forced_host
    host = find_host(view, name) if name is not None else None
    mask: Mask = np.full(view.row_end, host is None)
    if host is not None:
        mask[host.row] = True
    for filter, _ in filters:
        mask &= filter.passing_hosts(view, request)
    return mask


class ResolvedAsk(NamedTuple):
    """What a request asks for as parts, and the hosts on which each part could be found."""

    ask: CandidatesRequest
    slots: list[Slot]
    anchors: Mask

    def rooms(self, view: View, hosts: Mask, effort: TreeEffort = THOROUGH) -> Rooms:
        """The rooms of those of the hosts on which all that is asked for can be found."""
        return count_rooms(view, self.ask, self.slots, hosts & self.anchors, effort)


def resolve_ask(view: View, ask: CandidatesRequest) -> ResolvedAsk | Rejection:
    required = tuple((name,) for name in ask.root_required)
    unknown = find_unknown_traits(view, Constraints(required=required, forbidden=ask.root_forbidden))
    if unknown is not None:
        return unknown
    slots = slots_of(view, ask)
    if isinstance(slots, Rejection):
        return slots
    if not any(slot.amounts for slot in slots):
        # A member that takes nothing is on no host.
        return ResolvedAsk(ask, slots, np.zeros(view.row_end, np.bool_))
    return ResolvedAsk(ask, slots, anchors_of(view, ask, slots))


def limit_to_one_each(rooms: Rooms, filters: Iterable[FilterAsked]) -> Rooms:
    """A filter that follows claims may stop the second member on a host: then one is counted."""
    if not any(filter.FOLLOWS_CLAIMS for filter, _ in filters):
        return rooms
    return Rooms(np.minimum(rooms.each, 1), rooms.shared, exact=False)


# -- the whole fleet ----------------------------------------------------------------------------


_KINDS_FIRST: Final = ("cell", "zone")


def count_capacity(view: View, request: ScheduleRequest, options: SchedulerOptions) -> Capacity | Rejection:
    """How many more members fit, however many the request has."""
    filters = find_filters(view, request, options)
    if isinstance(filters, Rejection):
        return filters
    asked = resolve_ask(view, request.ask)
    if isinstance(asked, Rejection):
        return asked
    rooms = asked.rooms(view, find_open_hosts(view, request, filters))
    fits = FitCounter(view, request, limit_to_one_each(rooms, filters))
    whole = fits.among(np.flatnonzero(fits.rooms.each))
    places = sorted(_places(view, fits), key=lambda place: (_rank(place.kind), place.kind or "", place.name))
    return Capacity(view.index, whole.members, whole.exact, whole.hosts, tuple(places))


def _places(view: View, fits: FitCounter) -> Iterator[PlaceCapacity]:
    """Every aggregate that has been given a name."""
    has_room = fits.rooms.each > 0
    for id, label in view.groups.labels.items():
        if label.name is not None:
            rows = np.sort(view.rows_in_aggregate(id).rows())
            fitting = fits.among(rows[has_room[rows]])
            yield PlaceCapacity(label.kind, label.name, id, fitting.members, fitting.exact, fitting.hosts)


def _rank(kind: str | None) -> int:
    """Cells and zones first, aggregates without a kind last."""
    if kind is None:
        return len(_KINDS_FIRST) + 1
    return _KINDS_FIRST.index(kind) if kind in _KINDS_FIRST else len(_KINDS_FIRST)
