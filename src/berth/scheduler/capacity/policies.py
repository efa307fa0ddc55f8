"""How many members may come to each of some hosts, under the policy of their group.

Policy, with n(h) the room of host h and s(d) the members that stand in domain d; without a policy it is
n(h):

* apart: over the hosts in d no more than ``max_per_domain`` - s(d). With ``max_skew``, no domain rises beyond
  what the domain that stays lowest reaches, plus the skew: that one reaches s(d) and all the room it has.
* together: of the domains that have everybody who stands, the best.

A host that is in no domain of the kind takes no member. A host in several domains counts in all of them;
where members are kept apart, the count is then one way to place that many, and there may be better ones.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from berth.model.groups import HOST, Group
from berth.model.ids import AggregateId
from berth.scheduler.capacity.rooms import Counts, HostRows
from berth.scheduler.capacity.trees import COUNT_MAX
from berth.view import View
from berth.view.groups import Domain, Hosts


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
