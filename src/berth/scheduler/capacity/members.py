"""How many more members of a request fit into the fleet now: in all, and in each aggregate by itself.

The count is of members that could be claimed one after the other while nothing else changes: the room that
hosts have (rooms.py), of that what the group's policy allows, of that what sharing providers have enough for.
Each of these is a way to place that many members; where another choice might place more, the answer says that
it is a lower bound.

What a policy allows, with n(h) the room of host h and s(d) the members that stand in domain d; without a
policy it is n(h):

* apart: over the hosts in d no more than ``max_per_domain`` - s(d). With ``max_skew``, no domain rises beyond
  what the domain that stays lowest reaches, plus the skew: that one reaches s(d) and all the room it has.
* together: of the domains that have everybody who stands, the best.

A host that is in no domain of the kind takes no member. A host in several domains counts in all of them;
where members are kept apart, the count is then one way to place that many, and there may be better ones.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from berth.model.groups import HOST, MEMBERS_MAX, Group
from berth.model.ids import AggregateId
from berth.model.rejections import GroupNotFound, Rejection
from berth.model.scheduling import CandidatesRequest, Capacity, PlaceCapacity, ScheduleRequest
from berth.scheduler.candidates import asks_in, find_unknown_names
from berth.scheduler.capacity.rooms import (
    COUNT_MAX,
    THOROUGH,
    Counts,
    HostRows,
    Rooms,
    TreeEffort,
    count_rooms,
)
from berth.scheduler.filters import group_policy
from berth.scheduler.groups import group_of
from berth.scheduler.hosts import drop_pools, find_host, find_unknown
from berth.scheduler.plugins import Filter, SchedulerOptions
from berth.search.anchors import anchors_of, drop_by_places
from berth.search.slots import Slot, slots_of
from berth.view import Mask, View
from berth.view.groups import Domain, GroupRecord, Hosts

_KINDS_FIRST: Final = ("cell", "zone")


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
    unknown = find_unknown_names(view, ask)
    if unknown is not None:
        return unknown
    slots = slots_of(view, ask)
    if isinstance(slots, Rejection):
        return slots
    if not any(slot.amounts for slot in slots):
        # A member that takes nothing is on no host.
        return ResolvedAsk(ask, slots, np.zeros(view.row_end, np.bool_))
    hosts = drop_pools(view, anchors_of(view, ask, slots))
    drop_by_places(view, ask, slots, hosts)
    return ResolvedAsk(ask, slots, hosts)


def find_rooms(
    view: View, request: ScheduleRequest, hosts: Mask, effort: TreeEffort = THOROUGH
) -> Rooms | Rejection:
    """The rooms of these hosts. Of several things asked for, each host counts by the one that it has the most
    room for; whether hosts could mix them for more is left open."""
    asked = asks_in(view, request)
    if isinstance(asked, Rejection):
        return asked
    rooms: Rooms | None = None
    for one in asked:
        resolved = resolve_ask(view, one.ask)
        if isinstance(resolved, Rejection):
            return resolved
        other = resolved.rooms(view, hosts, effort)
        if rooms is None or bool((other.each >= rooms.each).all()):
            rooms = other
        else:
            rooms = Rooms(np.maximum(rooms.each, other.each), other.shared, exact=False)
    assert rooms is not None, "something is asked for"
    return rooms


def limit_to_one_each(rooms: Rooms, filters: Iterable[FilterAsked]) -> Rooms:
    """A filter that follows claims may stop the second member on a host: then one is counted."""
    if not any(filter.FOLLOWS_CLAIMS for filter, _ in filters):
        return rooms
    return Rooms(np.minimum(rooms.each, 1), rooms.shared, exact=False)


# -- the whole fleet ----------------------------------------------------------------------------


def count_capacity(view: View, request: ScheduleRequest, options: SchedulerOptions) -> Capacity | Rejection:
    """How many more members fit, however many the request has."""
    fits = _make_counter(view, request, options)
    if isinstance(fits, Rejection):
        return fits
    whole = fits.among(np.flatnonzero(fits.rooms.each))
    places = sorted(_places(view, fits), key=lambda place: (_rank(place.kind), place.kind or "", place.name))
    return Capacity(view.index, whole.members, whole.exact, whole.hosts, tuple(places))


def count_fits(view: View, request: ScheduleRequest, options: SchedulerOptions) -> FitCount | Rejection:
    """As ``count_capacity``, for the whole fleet alone."""
    fits = _make_counter(view, request, options)
    return fits if isinstance(fits, Rejection) else fits.among(np.flatnonzero(fits.rooms.each))


def _make_counter(view: View, request: ScheduleRequest, options: SchedulerOptions) -> FitCounter | Rejection:
    filters = find_filters(view, request, options)
    if isinstance(filters, Rejection):
        return filters
    rooms = find_rooms(view, request, find_open_hosts(view, request, filters))
    if isinstance(rooms, Rejection):
        return rooms
    return FitCounter(view, request, limit_to_one_each(rooms, filters))


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


# -- what a policy allows ---------------------------------------------------------------------------


class PolicyLimit(Protocol):
    """What a group's rule leaves of the room that hosts have."""

    exact: bool
    """Whether no other choice of hosts would let more come."""

    chooses: bool
    """Whether it is a choice among hosts, and not a limit on each."""

    def limit(self, rows: HostRows, wanted: Counts) -> Counts:
        """How many may come to each of these hosts, all together, of as many as each has room for."""
        ...

    def count(self, rows: HostRows, wanted: Counts) -> int:
        """The same in all, sooner."""
        ...


def make_policy(view: View, group: Group, standing: Hosts) -> PolicyLimit:
    """The policy of a group, with these members standing where they do."""
    if not group.is_hard:
        return NoPolicy()
    if group.domain == HOST:
        return ApartHosts(view, group, standing) if group.is_apart else SameHost(standing)
    domains = _Domains(view, group.domain, standing)
    return ApartDomains(group, domains) if group.is_apart else SameDomain(view, domains, group, standing)


class NoPolicy:
    exact = True
    chooses = False

    def limit(self, rows: HostRows, wanted: Counts) -> Counts:
        return wanted

    def count(self, rows: HostRows, wanted: Counts) -> int:
        return int(wanted.sum())


# -- by host ------------------------------------------------------------------------------------


class ApartHosts:
    exact = True
    chooses = False

    def __init__(self, view: View, group: Group, standing: Hosts) -> None:
        most = COUNT_MAX if group.max_per_domain is None else group.max_per_domain
        self._most = np.full(view.row_end, most, np.int64)
        for host, who in standing.items():
            self._most[host.row] = max(0, most - len(who))

    def limit(self, rows: HostRows, wanted: Counts) -> Counts:
        return np.minimum(wanted, self._most[rows])

    def count(self, rows: HostRows, wanted: Counts) -> int:
        return int(self.limit(rows, wanted).sum())


class SameHost:
    exact = True
    chooses = True

    def __init__(self, standing: Hosts) -> None:
        self._standing = [host.row for host in standing]

    def limit(self, rows: HostRows, wanted: Counts) -> Counts:
        if not self._standing:
            only = np.arange(len(rows)) == wanted.argmax() if len(rows) else np.zeros(0, np.bool_)
        else:
            only = rows == self._standing[0] if len(self._standing) == 1 else np.zeros(len(rows), np.bool_)
        return np.where(only, wanted, 0)

    def count(self, rows: HostRows, wanted: Counts) -> int:
        return int(self.limit(rows, wanted).sum())


# -- by aggregates of a kind --------------------------------------------------------------------


class _Domains:
    """The domains of a kind that any host is in, by number: who stands in each, and in which each host is.
    Hosts in more than one are apart from the others, in ``several``."""

    def __init__(self, view: View, kind: str, standing: Hosts) -> None:
        hosts = {id: _hosts_in(view, id) for id in view.groups.of_kind(kind)}
        ids = [id for id, rows in hosts.items() if len(rows)]
        self.numbers: dict[Domain, int] = {id: number for number, id in enumerate(ids)}
        members = view.groups.by_domain(kind, standing)
        self.standing = np.array([len(members.get(id, ())) for id in ids], np.int64)
        self.of_row = np.full(view.row_end, -1, np.int64)
        self.several: dict[int, list[int]] = {}
        for number, id in enumerate(ids):
            rows = hosts[id]
            for row in rows[self.of_row[rows] >= 0].tolist():
                self.several.setdefault(row, [int(self.of_row[row])]).append(number)
            self.of_row[rows] = number
        self.of_row[list(self.several)] = -1

    def __len__(self) -> int:
        return len(self.standing)

    def sums(self, numbers: NDArray[np.int64], wanted: Counts) -> Counts:
        """The room in each domain, of hosts that are in one."""
        inside = numbers >= 0
        return np.bincount(numbers[inside], wanted[inside], len(self)).astype(np.int64)

    def several_of(self, rows: HostRows, wanted: Counts) -> list[tuple[int, list[int]]]:
        """The hosts with room that are in several domains: where among the rows, and in which."""
        if not self.several:
            return []
        return [
            (place, self.several[row])
            for place, row in enumerate(rows.tolist())
            if row in self.several and wanted[place]
        ]


class ApartDomains:
    chooses = True

    def __init__(self, group: Group, domains: _Domains) -> None:
        self._group = group
        self._domains = domains
        self.exact = not domains.several

    def limit(self, rows: HostRows, wanted: Counts) -> Counts:
        domains = self._domains
        numbers = domains.of_row[rows]
        most = self._most(domains.sums(numbers, wanted))
        allowed = _clip_by(numbers, wanted, most)
        if self._group.max_skew is None:
            most -= domains.sums(numbers, allowed)
            for place, several in domains.several_of(rows, wanted):
                allowed[place] = min(int(wanted[place]), int(most[several].min()))
                most[several] -= allowed[place]
        # With a skew, filling one domain could close another: hosts in several are left out.
        return allowed

    def count(self, rows: HostRows, wanted: Counts) -> int:
        if self._domains.several:
            return int(self.limit(rows, wanted).sum())
        room = self._domains.sums(self._domains.of_row[rows], wanted)
        return int(np.minimum(room, self._most(room)).sum())

    def _most(self, room: Counts) -> Counts:
        """How many may come to each domain."""
        group, standing = self._group, self._domains.standing
        highest = COUNT_MAX if group.max_per_domain is None else group.max_per_domain
        if group.max_skew is not None and len(standing):
            reached = np.maximum(standing, np.minimum(highest, standing + room))
            highest = min(highest, int(reached.min()) + group.max_skew)
        return np.maximum(highest - standing, 0)


class SameDomain:
    exact = True
    chooses = True

    def __init__(self, view: View, domains: _Domains, group: Group, standing: Hosts) -> None:
        self._domains = domains
        # Wherever the next one comes to, everybody else must be in that very domain.
        self._shared = np.ones(len(domains), np.bool_)
        for where in {view.groups.domains_of(host, group.domain) for host in standing}:
            near = np.zeros(len(domains), np.bool_)
            near[[domains.numbers[domain] for domain in where]] = True
            self._shared &= near

    def limit(self, rows: HostRows, wanted: Counts) -> Counts:
        domains = self._domains
        numbers = domains.of_row[rows]
        room = domains.sums(numbers, wanted)
        several = domains.several_of(rows, wanted)
        for place, where in several:
            room[where] += wanted[place]
        room = np.where(self._shared, room, 0)
        if not room.any():
            return np.zeros_like(wanted)
        best = int(room.argmax())
        inside = numbers == best
        inside[[place for place, where in several if best in where]] = True
        return np.where(inside, wanted, 0)

    def count(self, rows: HostRows, wanted: Counts) -> int:
        if self._domains.several:
            return int(self.limit(rows, wanted).sum())
        room = self._domains.sums(self._domains.of_row[rows], wanted)
        return int(room[self._shared].max(initial=0))


def _hosts_in(view: View, id: AggregateId) -> NDArray[np.int32]:
    """The hosts of an aggregate. A provider below a host that is in it does not put the host there."""
    rows = view.rows_in_aggregate(id).rows()
    hosts: NDArray[np.int32] = rows[view.root_rows[rows] == rows]
    return hosts


def _clip_by(numbers: NDArray[np.int64], wanted: Counts, most: Counts) -> Counts:
    """As much of what is wanted as each domain allows, first come first served; nothing outside of all."""
    allowed = np.zeros_like(wanted)
    if not len(most):
        return allowed
    order = np.argsort(numbers, kind="stable")
    order = order[np.searchsorted(numbers[order], 0) :]
    ordered, where = wanted[order], numbers[order]
    before = np.cumsum(ordered) - ordered
    # From the running sum over all domains to that within each.
    before -= before[np.searchsorted(where, where)]
    allowed[order] = np.clip(most[where] - before, 0, ordered)
    return allowed
