"""Rejections of Placement's own: the vocabulary, providers, inventories, allocations, and what the journal
cannot take."""

from enum import Enum

from berth.model.ids import AggregateId, ConsumerId, ProviderId
from berth.model.rejections.rejection import Rejection

# -- what the journal cannot take ----------------------------------------------------------------


class CommandTooLarge(Rejection, frozen=True):
    """The command writes more than ``limit`` bytes, in ``changes`` changes."""

    changes: int
    limit: int


class RowTooLarge(Rejection, frozen=True):
    """The database takes no row of ``size`` bytes."""

    size: int


class FormatTooOld(Rejection, frozen=True):
    """What is to be written has a ``part`` that there is only since the format ``needed``, and the journal
    has format ``format`` until its upgrade is finished."""

    part: str
    needed: int
    format: int


# -- vocabulary ----------------------------------------------------------------------------------


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


# -- providers -----------------------------------------------------------------------------------


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


class PoolNotFound(Rejection, frozen=True):
    id: ProviderId


class NotAPool(Rejection, frozen=True):
    """The provider is a host, or a part of one."""

    provider: ProviderId
    name: str


class PoolIsNoHost(Rejection, frozen=True):
    provider: ProviderId
    name: str


class AggregateNotForAgents(Rejection, frozen=True):
    """An agent named an aggregate into which operators alone put hosts."""

    provider: ProviderId
    aggregate: AggregateId
    reason: str


class ProviderGenerationConflict(Rejection, frozen=True):
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

    provider: ProviderId
    resource_classes: tuple[str, ...]


class ReservedTooHigh(Rejection, frozen=True):
    provider: ProviderId
    resource_class: str
    total: int
    reserved: int
    may_reserve_all: bool


class UnitsOvercommitted(Rejection, frozen=True):
    """The host's agent names the units of the class, and each is given to one server."""

    provider: ProviderId
    resource_class: str
    allocation_ratio: float


class UnitsMiscounted(Rejection, frozen=True):
    """The host's agent names the units of the class: nobody else says how many there are."""

    provider: ProviderId
    resource_class: str
    total: int
    there: int


# -- allocations ---------------------------------------------------------------------------------


class ConsumerGenerationConflict(Rejection, frozen=True):
    """``current`` None: there is no such consumer."""

    consumer: ConsumerId
    current: int | None
    given: int | None


class ConsumerClaimsTwice(Rejection, frozen=True):
    """A command has two claims of one consumer, and a claim is all that its consumer is to hold."""

    consumer: ConsumerId


class ClaimedProviderNotFound(Rejection, frozen=True):
    provider: ProviderId


class ClaimedClassNotFound(Rejection, frozen=True):
    consumer: ConsumerId
    name: str


class NoInventory(Rejection, frozen=True):
    """The provider has no inventory of the class (or of any of the classes) that was claimed."""

    provider: ProviderId
    resource_classes: tuple[str, ...]


class UnitsViolated(Rejection, frozen=True):
    provider: ProviderId
    resource_class: str
    asked: int
    min_unit: int
    max_unit: int
    step_size: int


class CapacityExceeded(Rejection, frozen=True):
    """``used`` is what others hold, ``asked`` what the claims of this request want in total. ``name`` is the
    provider's."""

    provider: ProviderId
    resource_class: str
    asked: int
    used: int
    capacity: int
    name: str


class AllocationsNotFound(Rejection, frozen=True):
    consumer: ConsumerId
