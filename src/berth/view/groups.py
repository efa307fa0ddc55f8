"""Groups, their members, and where each member stands; and the aggregates that are domains.

A consumer *stands* on the hosts on which it holds anything. What it holds on a sharing provider of
other trees does not put it there, unless that is all it holds.

Which host a provider belongs to follows from the forest, so where members stand is computed again when the
forest changes; all else is kept up to date.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from berth.model.groups import HOST, Group, Membership
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import Holdings, Label
from berth.view.provider import ProviderRecord
from berth.view.sets import RowSet

Domain = str
"""A host's uuid, or an aggregate's."""

Hosts = dict[ProviderRecord, dict[ConsumerId, int]]
"""By host: the members there, and through how many consumers each (itself, its migration)."""

Domains = dict[Domain, dict[ConsumerId, int]]
"""The same by domain."""

K = TypeVar("K")


class GroupRecord:
    """A group. ``members`` says for each consumer whom it stands for; ``hosts`` where they are; ``domains``
    the same by domain, as computed at a revision of the domains, if it was asked for."""

    __slots__ = ("domains", "domains_revision", "group", "hosts", "id", "members")

    def __init__(self, id: GroupId, group: Group) -> None:
        self.id = id
        self.group = group
        self.members: dict[ConsumerId, ConsumerId] = {}
        self.hosts: Hosts = {}
        self.domains: Domains = {}
        self.domains_revision = -1

    def place(self, who: ConsumerId, hosts: Iterable[ProviderRecord], sign: int) -> None:
        """Count a member in (or out) on hosts."""
        count(self.hosts, who, hosts, sign)


class Groups:
    """Changed by the view alone."""

    def __init__(self) -> None:
        self.records: dict[GroupId, GroupRecord] = {}
        self.memberships: dict[ConsumerId, Membership] = {}
        self.labels: dict[AggregateId, Label] = {}
        self._kinds: dict[str, dict[AggregateId, None]] = {}
        self.keys: dict[str, dict[AggregateId, str]] = {}
        """By a key of metadata: the aggregates that have it, and what they say. Not to be written to."""
        # Changes whenever a host may have come to be in other domains.
        self._domains_revision = 0

    # -- reading --------------------------------------------------------------------------------

    def of_kind(self, kind: str) -> Iterable[AggregateId]:
        """The aggregates that are domains of a kind."""
        return self._kinds.get(kind, _NONE)

    def has_kind(self, kind: str) -> bool:
        return kind == HOST or kind in self._kinds

    def domains_of(self, host: ProviderRecord, kind: str) -> tuple[Domain, ...]:
        """The domains of a kind that a host is in: itself, or aggregates; mostly one."""
        if kind == HOST:
            return (host.id,)
        labels = self.labels
        return tuple([id for id in host.aggregates if (label := labels.get(id)) and label.kind == kind])

    def domain_name(self, domain: Domain, hosts: Iterable[ProviderRecord]) -> str:
        """What people call a domain; ``hosts`` are those it may be one of."""
        label = self.labels.get(AggregateId(domain))
        if label is not None and label.name is not None:
            return label.name
        return next((host.name for host in hosts if host.id == domain), domain)

    def domains_of_all(self, hosts: Iterable[ProviderRecord], kind: str) -> list[Domain]:
        """The domains of hosts; one in which several of them are comes several times."""
        return [domain for host in hosts for domain in self.domains_of(host, kind)]

    def standing(self, record: GroupRecord) -> Domains:
        """The members of a group in each domain. Not to be written to."""
        if record.domains_revision != self._domains_revision:
            record.domains = self.by_domain(record.group.domain, record.hosts)
            record.domains_revision = self._domains_revision
        return record.domains

    def by_domain(self, kind: str, hosts: Hosts) -> Domains:
        """The members in each domain of a kind, of those on the hosts."""
        found: Domains = {}
        for host, whose in hosts.items():
            for domain in self.domains_of(host, kind):
                there = found.setdefault(domain, {})
                for who, number in whose.items():
                    there[who] = there.get(who, 0) + number
        return found

    # -- changing -------------------------------------------------------------------------------

    def forget_domains(self) -> None:
        """Hosts may be in other domains than they were."""
        self._domains_revision += 1

    def label(self, id: AggregateId, before: Label | None, after: Label | None) -> None:
        self.forget_domains()
        if before is not None:
            del self.labels[id]
            if before.kind is not None:
                of_kind = self._kinds[before.kind]
                del of_kind[id]
                if not of_kind:
                    del self._kinds[before.kind]
            for key, _ in before.metadata:
                del self.keys[key][id]
                if not self.keys[key]:
                    del self.keys[key]
        if after is not None:
            self.labels[id] = after
            if after.kind is not None:
                self._kinds.setdefault(after.kind, {})[id] = None
            for key, value in after.metadata:
                self.keys.setdefault(key, {})[id] = value

    def change(self, id: GroupId, after: Group | None) -> None:
        record = self.records.get(id)
        if after is None:
            assert record is not None, "only a group that is there can go"
            assert not record.members, "a group is empty when it goes"
            del self.records[id]
        elif record is None:
            self.records[id] = GroupRecord(id, after)
        else:
            record.group = after

    def join(self, consumer: ConsumerId, membership: Membership, hosts: Iterable[ProviderRecord]) -> None:
        self.memberships[consumer] = membership
        self.records[membership.group].members[consumer] = membership.stands_for
        self.stand(consumer, hosts, +1)

    def leave(self, consumer: ConsumerId, hosts: Iterable[ProviderRecord]) -> None:
        self.stand(consumer, hosts, -1)
        membership = self.memberships.pop(consumer)
        del self.records[membership.group].members[consumer]

    def stand(self, consumer: ConsumerId, hosts: Iterable[ProviderRecord], sign: int) -> None:
        """Count a member in (or out) on hosts."""
        membership = self.memberships[consumer]
        record = self.records[membership.group]
        record.place(membership.stands_for, hosts, sign)
        if record.domains_revision == self._domains_revision:
            domains = self.domains_of_all(hosts, record.group.domain)
            count(record.domains, membership.stands_for, domains, sign)

    def place_all(self, held: Iterable[tuple[ConsumerId, Iterable[ProviderRecord]]]) -> None:
        """Compute again where all members stand."""
        self.forget_domains()
        for record in self.records.values():
            record.hosts.clear()
        for consumer, hosts in held:
            self.stand(consumer, hosts, +1)

    # -- comparing ------------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        return {
            "labels": dict(sorted(self.labels.items())),
            "kinds": {kind: sorted(ids) for kind, ids in sorted(self._kinds.items())},
            "keys": {key: dict(sorted(said.items())) for key, said in sorted(self.keys.items())},
            "members": dict(sorted(self.memberships.items())),
            "groups": {id: _state(record) for id, record in sorted(self.records.items())},
        }


_NONE: Final[dict[AggregateId, None]] = {}


def _state(record: GroupRecord) -> tuple[object, ...]:
    hosts = {host.id: dict(sorted(who.items())) for host, who in record.hosts.items()}
    return (record.group, dict(sorted(record.members.items())), dict(sorted(hosts.items())))


def count(standing: dict[K, dict[ConsumerId, int]], who: ConsumerId, places: Iterable[K], sign: int) -> None:
    """Count a member in (or out) in places: hosts, or domains."""
    for place in places:
        there = standing.setdefault(place, {})
        number = there.get(who, 0) + sign
        if number:
            there[who] = number
            continue
        del there[who]
        if not there:
            del standing[place]


def hosts_of(
    held: Holdings, providers: Mapping[ProviderId, ProviderRecord], sharing: RowSet
) -> list[ProviderRecord]:
    """The hosts that holdings stand on."""
    if len(held) == 1:
        return [providers[held[0][0]].root]
    records = [providers[provider] for provider, _ in held]
    own = [record for record in records if record.row not in sharing]
    return list(dict.fromkeys([record.root for record in own or records]))
