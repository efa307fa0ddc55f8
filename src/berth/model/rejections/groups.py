"""Rejections about hosts as such, aggregates and zones, and groups with their policies."""

from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.rejections.rejection import Rejection


class NotAHost(Rejection, frozen=True):
    """Only the root of a tree is a host."""

    provider: ProviderId
    root: ProviderId


class ComputeHostNotFound(Rejection, frozen=True):
    name: str


class ComputeHostUnregistered(Rejection, frozen=True):
    """A host has no provider yet."""

    name: str


class ServiceNotFound(Rejection, frozen=True):
    binary: str
    host: str


# -- aggregates and zones -----------------------------------------------------------------------


class AggregateNotFound(Rejection, frozen=True):
    id: str


class AggregateNameTaken(Rejection, frozen=True):
    name: str


class AggregateInUse(Rejection, frozen=True):
    number: int
    hosts: int


class AggregateHasHost(Rejection, frozen=True):
    number: int
    host: str


class AggregateLacksHost(Rejection, frozen=True):
    number: int
    host: str


class TooManyAggregateKeys(Rejection, frozen=True):
    asked: int
    limit: int


class ZoneNotFound(Rejection, frozen=True):
    name: str


class ZoneOfServers(Rejection, frozen=True):
    """The zone of a server is the one that its owner asked for: it does not change under the server."""

    host: str
    servers: int


class HostInAnotherZone(Rejection, frozen=True):
    """A host is in one zone at most."""

    host: str
    zone: str
    asked: str


class LabelTaken(Rejection, frozen=True):
    """Another aggregate of the kind has the name already."""

    kind: str
    name: str
    holder: AggregateId


class KindInUse(Rejection, frozen=True):
    """The aggregate is the last of a kind that groups are judged by."""

    kind: str
    groups: tuple[GroupId, ...]


# -- groups -------------------------------------------------------------------------------------


class GroupNotFound(Rejection, frozen=True):
    group: GroupId


class GroupExists(Rejection, frozen=True):
    group: GroupId


class GroupOfCluster(Rejection, frozen=True):
    """A group that a cluster keeps its nodes apart by is the cluster's own."""

    group: GroupId
    cluster: str


class GroupInUse(Rejection, frozen=True):
    group: GroupId
    members: int


class GroupFull(Rejection, frozen=True):
    """The group has as many members as it may have."""

    group: GroupId
    members_max: int


class KindNotFound(Rejection, frozen=True):
    """No aggregate is a domain of this kind."""

    kind: str


class GroupRuleUnsound(Rejection, frozen=True):
    """The parts of a group's rule do not go together. The reason is a sentence."""

    reason: str


class InAnotherGroup(Rejection, frozen=True):
    consumer: ConsumerId
    group: GroupId


class HintedGroupNotFound(Rejection, frozen=True):
    """A hint names a group that is not there for the caller."""

    name: str


class GroupNameAmbiguous(Rejection, frozen=True):
    """Several groups have the name that one is asked for by. ``ids`` are some of them."""

    name: str
    ids: tuple[GroupId, ...]


class GroupFitsNowhere(Rejection, frozen=True):
    """The members of a group must be on one host, and there is no other that has room for all of them.
    ``why`` is the refusal of one of the hosts, or of all."""

    group: GroupId
    name: str
    policy: str
    members: int
    why: Rejection


class GroupPolicyBroken(Rejection, frozen=True):
    """A member may not be placed there. ``standing`` says which member is where; ``reason`` is a sentence
    about the domain that was refused, None for a host that is in none of the kind."""

    group: GroupId
    name: str
    policy: str
    consumer: ConsumerId
    host: str
    domain: str | None
    reason: str
    standing: tuple[tuple[ConsumerId, str], ...]
