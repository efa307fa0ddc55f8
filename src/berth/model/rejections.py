"""Why the ledger refused: values that say what was asked, what there was, and what to do.

A rejection is an answer, not an accident: it is returned, never raised. How it reads on the wire is the
business of an API; ``advice`` is the consequence for the caller.
"""

from enum import Enum
from typing import ClassVar

import msgspec

from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId


class Advice(Enum):
    RETRY = "read again and repeat the request: it was based on an old version"
    REPLAN = "the same request cannot succeed here now: ask for less, or somewhere else"
    GIVE_UP = "the request is wrong in itself: correct it"


class Rejection(msgspec.Struct, frozen=True):
    advice: ClassVar[Advice] = Advice.GIVE_UP


# -- sizes --------------------------------------------------------------------------------------


class CommandTooLarge(Rejection, frozen=True):
    """What the command writes has more than ``limit`` bytes, in so many changes."""

    changes: int
    limit: int


class RowTooLarge(Rejection, frozen=True):
    """The database takes no row of ``size`` bytes."""

    size: int
    says: str


# -- quotas -------------------------------------------------------------------------------------


class QuotaExceeded(Rejection, frozen=True):
    """``over``: of each resource its name, how much more was asked for, how much there is, and the limit."""

    project: str
    over: tuple[tuple[str, int, int, int], ...]


class ServerGroupsExceeded(Rejection, frozen=True):
    project: str
    limit: int


class ServerGroupMembersExceeded(Rejection, frozen=True):
    group: str
    limit: int
    members: int
    asked: int


class MetadataQuotaExceeded(Rejection, frozen=True):
    """More items of metadata than a server may have."""

    limit: int
    asked: int


class ImageQuotaExceeded(Rejection, frozen=True):
    """``resource`` is Glance's name; a size is in MiB."""

    project: str
    resource: str
    limit: int
    used: int
    asked: int


# -- vocabulary ---------------------------------------------------------------------------------


class ResourceClassNotFound(Rejection, frozen=True):
    name: str


class ResourceClassExists(Rejection, frozen=True):
    name: str


class ResourceClassInUse(Rejection, frozen=True):
    name: str


class ResourceClassIsStandard(Rejection, frozen=True):
    name: str


class TraitsNotFound(Rejection, frozen=True):
    names: tuple[str, ...]


class TraitInUse(Rejection, frozen=True):
    name: str


class TraitIsStandard(Rejection, frozen=True):
    name: str


class NameNotCustom(Rejection, frozen=True):
    """A new class or trait whose name is not ``CUSTOM_`` and then A-Z, 0-9 or _."""

    name: str


# -- providers ----------------------------------------------------------------------------------


class ProviderNotFound(Rejection, frozen=True):
    provider: ProviderId


class ProviderExists(Rejection, frozen=True):
    """``id`` or ``name`` (or both) belong to another provider; the one that does not is None."""

    id: ProviderId | None
    name: str | None


class ProviderNameMissing(Rejection, frozen=True):
    provider: ProviderId


class TreeRule(Enum):
    PARENT_IS_SELF = "parent_is_self"
    PARENT_MISSING = "parent_missing"
    LOOP = "loop"
    REPARENTING = "reparenting"
    UNPARENTING = "unparenting"


class TreeRuleBroken(Rejection, frozen=True):
    """The wanted parent is not possible, or (before 1.37) a parent once set may not change."""

    provider: ProviderId
    parent: ProviderId | None
    rule: TreeRule


class ProviderHasChildren(Rejection, frozen=True):
    provider: ProviderId


class ProviderInUse(Rejection, frozen=True):
    provider: ProviderId
    consumers: int


class ProviderGenerationConflict(Rejection, frozen=True):
    advice = Advice.RETRY
    provider: ProviderId
    current: int
    given: int


class InventoryExists(Rejection, frozen=True):
    provider: ProviderId
    resource_class: str


class InventoryNotFound(Rejection, frozen=True):
    provider: ProviderId
    resource_class: str


class InventoryInUse(Rejection, frozen=True):
    """Inventory that allocations stand on cannot go. Classes in the order of their numbers."""

    advice = Advice.REPLAN
    provider: ProviderId
    resource_classes: tuple[str, ...]


class ReservedTooHigh(Rejection, frozen=True):
    provider: ProviderId
    resource_class: str
    total: int
    reserved: int
    may_reserve_all: bool


# -- allocations --------------------------------------------------------------------------------


class ConsumerGenerationConflict(Rejection, frozen=True):
    """``current`` None: there is no such consumer."""

    advice = Advice.RETRY
    consumer: ConsumerId
    current: int | None
    given: int | None


class ConsumerClaimsTwice(Rejection, frozen=True):
    """A command has two claims of one consumer, and a claim is all that its consumer shall hold."""

    consumer: ConsumerId


class ClaimedProviderNotFound(Rejection, frozen=True):
    provider: ProviderId


class ClaimedClassNotFound(Rejection, frozen=True):
    consumer: ConsumerId
    name: str


class NoInventory(Rejection, frozen=True):
    """The provider has no inventory of the class (or of any of the classes) that was claimed."""

    advice = Advice.REPLAN
    provider: ProviderId
    resource_classes: tuple[str, ...]


class UnitsViolated(Rejection, frozen=True):
    advice = Advice.REPLAN
    provider: ProviderId
    resource_class: str
    asked: int
    min_unit: int
    max_unit: int
    step_size: int


class CapacityExceeded(Rejection, frozen=True):
    """``used`` is what others hold, ``asked`` what the claims of this request want in total."""

    advice = Advice.REPLAN
    provider: ProviderId
    resource_class: str
    asked: int
    used: int
    capacity: int


class AllocationsNotFound(Rejection, frozen=True):
    consumer: ConsumerId


# -- hosts, aggregates and groups ---------------------------------------------------------------


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
    """A group has no more members than it may have."""

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
    """A member may not stand where it would. ``standing`` says which member stands where; ``reason`` is a
    sentence about the domain that was refused, None for one that has none of the kind."""

    advice = Advice.REPLAN
    group: GroupId
    name: str
    policy: str
    consumer: ConsumerId
    host: str
    domain: str | None
    reason: str
    standing: tuple[tuple[ConsumerId, str], ...]


# -- servers ------------------------------------------------------------------------------------


class RecordMoved(Rejection, frozen=True):
    """A record is not what the change was made from: somebody was first."""

    advice = Advice.RETRY
    kind: str
    id: str


class ServerNotFound(Rejection, frozen=True):
    id: str


class ServerBusy(Rejection, frozen=True):
    """Something else is being done to the server."""

    advice = Advice.RETRY
    id: str
    asked: str
    task: str


class ServerStateWrong(Rejection, frozen=True):
    """The operation cannot begin in the state that the server is in."""

    id: str
    asked: str
    state: str
    allowed: tuple[str, ...]


class ServerChangedByOthers(Rejection, frozen=True):
    """The server's allocations, or its migration's, are not what was last written: another client has changed
    them. ``found`` says what differs. ``is_recorded``: the same request repeated goes on."""

    advice = Advice.RETRY
    id: str
    asked: str
    found: str
    is_recorded: bool = True


class ServerHoldsAlready(Rejection, frozen=True):
    """A server that is being created is a consumer already, which cannot be."""

    id: str


class ConfirmBegun(Rejection, frozen=True):
    """A confirmation that did not come to its end may have cleaned up the source: there is no way back."""

    id: str


class RevertBegun(Rejection, frozen=True):
    """What had come may have been destroyed, by a revert or a deletion that did not come to its end."""

    id: str


class HostInAnotherCell(Rejection, frozen=True):
    """A move stays in the cell of its server."""

    id: str
    asked: str
    cell: str
    host: str
    host_cell: str


class HostNotDown(Rejection, frozen=True):
    """Only a server whose host is down can be evacuated."""

    host: str


class HostIsDown(Rejection, frozen=True):
    """What is asked for needs the host that the server is on."""

    advice = Advice.RETRY
    host: str
    asked: str


class HostLacksTraits(Rejection, frozen=True):
    host: str
    traits: tuple[str, ...]


class HostUnfitForImage(Rejection, frozen=True):
    """``asked`` is what a filter wants for the image, ``found`` what the host has of it."""

    host: str
    asked: str
    found: str


class SameFlavor(Rejection, frozen=True):
    flavor: str


class MigrationNotFound(Rejection, frozen=True):
    id: str


class MigrationNotAbortable(Rejection, frozen=True):
    id: str
    type: str
    status: str


class NeedNotFound(Rejection, frozen=True):
    server: str
    name: str


class TooManyNeeds(Rejection, frozen=True):
    server: str
    limit: int


class NeedDoesNotFit(Rejection, frozen=True):
    """No provider of the server's host has what is needed. ``refused`` is what the ledger said of the last
    one that seemed to have it."""

    advice = Advice.REPLAN
    server: str
    name: str
    host: str
    refused: Rejection | None = None


class ServerUnsettled(Rejection, frozen=True):
    """A move of the server is not settled: its migration holds the other half of what is to be changed."""

    advice = Advice.RETRY
    id: str
    asked: str
    migration: str


class FindingGone(Rejection, frozen=True):
    """What the doctor is to repair is not so, or not so any more."""

    id: str


class RepairUnsafe(Rejection, frozen=True):
    """What the doctor has found is not for it to repair. The reason is a sentence."""

    id: str
    reason: str


class HostUnknown(Rejection, frozen=True):
    name: str


# -- clusters -----------------------------------------------------------------------------------


class ClusterNotFound(Rejection, frozen=True):
    id: str


class ClusterExists(Rejection, frozen=True):
    id: str


class ClusterBeingDeleted(Rejection, frozen=True):
    """Nothing can be asked any more of a cluster that is being deleted."""

    id: str
    asked: str


class ClusterRatioFixed(Rejection, frozen=True):
    """The groups of a cluster are as many as the ratio it was created with."""

    id: str
    ratio: int
    asked: int

    @property
    def sentence(self) -> str:
        return (
            f"This cluster was created with {self.ratio} ratio, but now the ratio is {self.asked}. "
            "You will need to recreate"
        )


class ClusterDoesNotFit(Rejection, frozen=True):
    """Not all ``nodes`` that a cluster is to have now can be placed together: ``why`` says it of the first
    that could not. ``fitting_ratio``: a larger ratio with which they could; None where there is none, or none
    that could be chosen."""

    advice = Advice.REPLAN
    name: str
    nodes: int
    ratio: int
    domain: str
    why: Rejection
    fitting_ratio: int | None = None


class TooManyNodes(Rejection, frozen=True):
    """Nodes of a cluster, those that are leaving included."""

    asked: int
    limit: int


class NodeGroupNotFound(Rejection, frozen=True):
    cluster: str
    name: str
    there: tuple[str, ...]


class NodeGroupExists(Rejection, frozen=True):
    """A node group of this name is in the cluster, or was, and nodes of it are still leaving."""

    cluster: str
    name: str


class TooManyNodeGroups(Rejection, frozen=True):
    asked: int
    limit: int


class NodeCountWrong(Rejection, frozen=True):
    """A node group has no fewer nodes than none."""

    name: str
    asked: int


class NodeNotFound(Rejection, frozen=True):
    cluster: str
    name: str


class NodeLeaving(Rejection, frozen=True):
    """A node that is leaving cannot be replaced."""

    cluster: str
    name: str


class NodeNotFailed(Rejection, frozen=True):
    """Only a node that has failed is replaced, unless it is forced: its server is in error or gone, or its
    host is down."""

    cluster: str
    name: str
    state: str
