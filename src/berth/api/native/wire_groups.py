"""What /berth/v1 answers with about groups, aggregates and hosts."""

import msgspec

from berth.api.native.wire import Next, Time, Uuid
from berth.model.groups import Policy


class Standing(msgspec.Struct):
    """A host that a member stands on, and the domains of the group's kind that the host is in."""

    host_uuid: Uuid
    host_name: str
    domains: list[str]


class Member(msgspec.Struct):
    """``stands_for`` is the consumer itself, or the server that this migration moves. One that holds nothing
    yet stands nowhere."""

    consumer_uuid: Uuid
    stands_for: Uuid
    standing: list[Standing]


class DomainCount(msgspec.Struct):
    """How many members a domain has; a server and its migration count once."""

    domain: str
    name: str
    members: int


class GroupSummary(msgspec.Struct):
    uuid: Uuid
    name: str
    policy: Policy
    domain: str
    max_per_domain: int | None
    max_skew: int | None
    project_id: str
    user_id: str
    created_at: Time
    member_count: int


class Groups(msgspec.Struct):
    """A page of groups, in the order of their uuids."""

    groups: list[GroupSummary]
    next: Next = None


class Group(GroupSummary):
    members: list[Member]
    domains: list[DomainCount]


class OneGroup(msgspec.Struct):
    group: Group


class Aggregate(msgspec.Struct):
    """``providers``: how many are in it."""

    uuid: str
    kind: str | None
    name: str | None
    metadata: dict[str, str]
    providers: int


class OneAggregate(msgspec.Struct):
    aggregate: Aggregate


class Aggregates(msgspec.Struct):
    """A page of aggregates that something is said of, in the order of their uuids."""

    aggregates: list[Aggregate]
    next: Next = None


class Domain(msgspec.Struct):
    """An aggregate with a kind that a host is in."""

    uuid: str
    kind: str
    name: str | None


class Host(msgspec.Struct):
    uuid: Uuid
    name: str
    disabled: bool
    down: bool
    build_failures: int
    reason: str | None
    domains: list[Domain]
    complaints: list[str]
    """What its agent reported and could not be written, and why. The host is up all the same."""


class OneHost(msgspec.Struct):
    host: Host


class Hosts(msgspec.Struct):
    """A page of hosts, in the order of their uuids."""

    hosts: list[Host]
    next: Next = None
