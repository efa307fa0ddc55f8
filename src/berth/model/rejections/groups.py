"""Rejections about hosts as such, labels of aggregates, and groups with their policies."""

from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.rejections.rejection import Advice, Rejection


class NotAHost(Rejection, frozen=True):
    """Only the root of a tree is a host."""

    provider: ProviderId
    root: ProviderId


class LabelTaken(Rejection, frozen=True):
    """Another aggregate of the kind has the name already."""

    kind: str
    name: str
    holder: AggregateId


class KindInUse(Rejection, frozen=True):
    """The aggregate is the last of a kind that groups are judged by."""

    kind: str
    groups: tuple[GroupId, ...]


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


class GroupPolicyBroken(Rejection, frozen=True):
    """A member may not be placed there. ``standing`` says which member is where; ``reason`` is a sentence
    about the domain that was refused, None for a host that is in none of the kind."""

    advice = Advice.REPLAN
    group: GroupId
    name: str
    policy: str
    consumer: ConsumerId
    host: str
    domain: str | None
    reason: str
    standing: tuple[tuple[ConsumerId, str], ...]
