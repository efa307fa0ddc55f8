"""How many members of a request fit together on any set of hosts: rooms, then policy, then what is lent."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from berth.model.groups import MEMBERS_MAX, Group
from berth.model.rejections import GroupNotFound, Rejection
from berth.model.requests import CandidatesRequest, Constraints
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.capacity_policies import NoPolicy, Policy, policy_of
from berth.scheduler.capacity_rooms import HostRows, Rooms, rooms_of
from berth.scheduler.capacity_trees import COUNT_MAX, THOROUGH, TreeEffort
from berth.scheduler.filters import group_policy
from berth.scheduler.hints import host_called, unknown_in
from berth.scheduler.membership import group_of
from berth.scheduler.options import SchedulerOptions
from berth.scheduler.plugins import Filter
from berth.search.masks import unknown_traits
from berth.search.places import Slot, anchors_of, slots_of
from berth.view import View
from berth.view.groups import GroupRecord, Hosts
from berth.view.rowset import Mask


class Fitting(NamedTuple):
    """How many members fit, whether no more could fit, and how many hosts have room, policies aside."""

    members: int
    exact: bool
    hosts: int


class Fits:
    """``rule`` takes the place of the rule that the request's group has."""

    def __init__(self, view: View, request: ScheduleRequest, rooms: Rooms, rule: Group | None = None) -> None:
        self.rooms = rooms
        self._steps = view.steps
        self._policy: Policy = NoPolicy()
        self._joining_max = COUNT_MAX
        record = group_of(view, request)
        if record is not None:
            self._policy = policy_of(view, rule or record.group, _others(view, record, request))
            declared = sum(member in record.members for member in request.members)
            self._joining_max = MEMBERS_MAX - len(record.members) + declared

    def among(self, rows: HostRows) -> Fitting:
        """How many fit on these hosts, and on no others."""
        rooms, policy = self.rooms, self._policy
        pools = sum(len(lent.pools) for lent in rooms.lent)
        self._steps.take(10 + (1 + pools) * (1 + len(rows) // 50))
        each = rooms.each[rows]
        exact = rooms.exact and policy.exact
        if rooms.lent:
            wanted = policy.limited(rows, each)
            given, is_most = rooms.shared_out(rows, wanted)
            count = int(given.sum())
            # Hosts that were chosen without asking the lenders may not have been the best.
            exact = exact and (count == int(wanted.sum()) if policy.chooses else is_most)
        else:
            count = policy.count(rows, each)
        return Fitting(min(count, self._joining_max), exact, int(np.count_nonzero(each)))


def _others(view: View, record: GroupRecord, request: ScheduleRequest) -> Hosts:
    """Where members of the group stand, but for those that the request is about."""
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
"""A filter that has a say, and what it asks for in words."""


def filters_asked(
    view: View, request: ScheduleRequest, options: SchedulerOptions
) -> list[FilterAsked] | Rejection:
    """The filters that have a say, but for the policy of groups: that is counted, not filtered by."""
    if request.group is not None and request.group not in view.groups.records:
        return GroupNotFound(request.group)
    unknown = unknown_in(view, request.hints)
    if unknown is not None:
        return unknown
    if request.hints.forced_host is not None:
        return []
    asked = ((filter, filter.asked(view, request)) for filter in options.filters)
    return [(filter, words) for filter, words in asked if words is not None and filter is not group_policy]


def open_hosts(view: View, request: ScheduleRequest, filters: Iterable[FilterAsked]) -> Mask:
    """The rows that the filters, or who forces a host, leave. Of rows that are no hosts it says nothing."""
    name = request.hints.forced_host
    host = host_called(view, name) if name is not None else None
    mask: Mask = np.full(view.row_end, host is None)
    if host is not None:
        mask[host.row] = True
    for filter, _ in filters:
        mask &= filter.passing(view, request)
    return mask


class Asked(NamedTuple):
    """What a request asks for as parts, and the hosts on which each part could be found."""

    ask: CandidatesRequest
    slots: list[Slot]
    anchors: Mask

    def rooms(self, view: View, hosts: Mask, effort: TreeEffort = THOROUGH) -> Rooms:
        """The rooms of those of the hosts on which all that is asked for can be found."""
        return rooms_of(view, self.ask, self.slots, hosts & self.anchors, effort)


def asked_of(view: View, ask: CandidatesRequest) -> Asked | Rejection:
    required = tuple((name,) for name in ask.root_required)
    unknown = unknown_traits(view, Constraints(required=required, forbidden=ask.root_forbidden))
    if unknown is not None:
        return unknown
    slots = slots_of(view, ask)
    if isinstance(slots, Rejection):
        return slots
    if not any(slot.amounts for slot in slots):
        # One that takes nothing stands nowhere.
        return Asked(ask, slots, np.zeros(view.row_end, np.bool_))
    return Asked(ask, slots, anchors_of(view, ask, slots))


def one_each(rooms: Rooms, filters: Iterable[FilterAsked]) -> Rooms:
    """A filter that looks at what is claimed may stop the second member on a host: then one is counted."""
    if not any(filter.FOLLOWS_CLAIMS for filter, _ in filters):
        return rooms
    return Rooms(np.minimum(rooms.each, 1), rooms.lent, exact=False)
