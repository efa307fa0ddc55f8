"""What a caller may ask of the ledger: one struct per change, names as the caller knows them.

A command is checked by ``ledger.decide`` against the view of the moment. Where it names a
generation it proves what its caller last saw; ``None`` there means "whatever it is", except in a Claim,
where ``None`` says that the consumer is believed not to exist and ``UNCHECKED`` that it was not read.
"""

from enum import Enum
from typing import Final, Literal

import msgspec

from berth.model.events import AnyRecord, RecordChanged
from berth.model.groups import Group, Policy
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import HostStatus, Inventory, Label, Wanted
from berth.model.quotas import Quotas
from berth.model.rejections import Rejection


class Unchecked(Enum):
    """The generation of a caller that does not take part in conflict detection."""

    UNCHECKED = "unchecked"


UNCHECKED: Final = Unchecked.UNCHECKED


class _Command(msgspec.Struct, frozen=True, gc=False):
    pass


# -- vocabulary ---------------------------------------------------------------------------------


class CreateResourceClass(_Command, frozen=True):
    """Create a custom class. With ``exist_ok`` an existing one is accepted without an event."""

    name: str
    exist_ok: bool = False


class RenameResourceClass(_Command, frozen=True):
    name: str
    new_name: str


class DeleteResourceClass(_Command, frozen=True):
    name: str


class CreateTrait(_Command, frozen=True):
    """Create a custom trait; an existing one is accepted without an event."""

    name: str


class DeleteTrait(_Command, frozen=True):
    name: str


# -- providers ----------------------------------------------------------------------------------


class CreateProvider(_Command, frozen=True):
    id: ProviderId
    name: str
    parent: ProviderId | None = None


class UpdateProvider(_Command, frozen=True):
    """Rename, and move within the forest: UNSET keeps the parent, None makes the provider a root."""

    id: ProviderId
    name: str
    parent: ProviderId | msgspec.UnsetType | None = msgspec.UNSET
    may_reparent: bool = False


class DeleteProvider(_Command, frozen=True):
    id: ProviderId


class AddInventory(_Command, frozen=True):
    """``by_cell``, here and below: it is what the host's agent has reported."""

    provider: ProviderId
    resource_class: str
    inventory: Inventory
    may_reserve_all: bool = True
    by_cell: bool = False


class PutInventory(_Command, frozen=True):
    """Replace the record of one class that the provider already has."""

    provider: ProviderId
    generation: int
    resource_class: str
    inventory: Inventory
    may_reserve_all: bool = True
    by_cell: bool = False


class SetInventories(_Command, frozen=True):
    """Replace all records of a provider."""

    provider: ProviderId
    generation: int | None
    inventories: dict[str, Inventory]
    may_reserve_all: bool = True
    by_cell: bool = False


class DeleteInventory(_Command, frozen=True):
    provider: ProviderId
    resource_class: str


class SetTraits(_Command, frozen=True):
    """Replace a provider's traits. An unchanged set is accepted without an event."""

    provider: ProviderId
    generation: int | None
    traits: frozenset[str]


class SetAggregates(_Command, frozen=True):
    """Replace a provider's aggregates. Without a generation none is checked and none is added. ``cell``: the
    cell whose conductor writes this for a host's agent, which may not join every aggregate."""

    provider: ProviderId
    generation: int | None
    aggregates: tuple[AggregateId, ...]
    cell: str | None = None


# -- allocations --------------------------------------------------------------------------------


SCHEDULE: Final = "schedule"


class Claim(msgspec.Struct, frozen=True, gc=False):
    """All that one consumer holds from now on, in place of what it held. Empty: nothing.

    ``consumer_type`` None leaves the type as it is (and unknown for a new consumer). ``group`` makes the
    consumer a member of it with the claim. ``made_by`` is noted of a new consumer: SCHEDULE for one that was
    claimed through /berth/v1/schedule, and is its caller's to keep.
    """

    consumer: ConsumerId
    wanted: tuple[Wanted, ...]
    project: str
    user: str
    generation: int | Literal[Unchecked.UNCHECKED] | None = UNCHECKED
    consumer_type: str | None = None
    group: GroupId | None = None
    made_by: str = ""


class ReplaceAllocations(_Command, frozen=True):
    """Give every named consumer its claim, or change nothing."""

    claims: tuple[Claim, ...]


class DeleteAllocations(_Command, frozen=True):
    consumer: ConsumerId


class NewInventories(msgspec.Struct, frozen=True, gc=False):
    provider: ProviderId
    generation: int
    inventories: dict[str, Inventory]


class Reshape(_Command, frozen=True):
    """Replace inventories of several providers and claims of several consumers in one change."""

    inventories: tuple[NewInventories, ...]
    claims: tuple[Claim, ...]
    by_cell: bool = False


# -- hosts, aggregates and groups ---------------------------------------------------------------


class SetHostStatus(_Command, frozen=True):
    """Set the status of a root provider as a host. A healthy status is not stored."""

    provider: ProviderId
    status: HostStatus


class LabelAggregate(_Command, frozen=True):
    """Set or remove (None) the label of an aggregate."""

    aggregate: AggregateId
    label: Label | None


class CreateGroup(_Command, frozen=True):
    """``group.created_at_s`` is the ledger's to say."""

    id: GroupId
    group: Group
    members: tuple[ConsumerId, ...] = ()


class ChangeGroup(_Command, frozen=True):
    """Rename a group, or change its rule: UNSET leaves a part as it is."""

    id: GroupId
    name: str | msgspec.UnsetType = msgspec.UNSET
    policy: Policy | msgspec.UnsetType = msgspec.UNSET
    max_per_domain: int | msgspec.UnsetType | None = msgspec.UNSET
    max_skew: int | msgspec.UnsetType | None = msgspec.UNSET


class DeleteGroup(_Command, frozen=True):
    """With ``force`` its members are removed first. A group of a cluster is deleted with that ``cluster``
    alone."""

    id: GroupId
    force: bool = False
    cluster: str | None = None


class ChangeMembers(_Command, frozen=True):
    """Declare consumers members of a group, and remove others. What is so already stays so."""

    group: GroupId
    add: tuple[ConsumerId, ...] = ()
    remove: tuple[ConsumerId, ...] = ()


LedgerCommand = (
    CreateResourceClass
    | RenameResourceClass
    | DeleteResourceClass
    | CreateTrait
    | DeleteTrait
    | CreateProvider
    | UpdateProvider
    | DeleteProvider
    | AddInventory
    | PutInventory
    | SetInventories
    | DeleteInventory
    | SetTraits
    | SetAggregates
    | ReplaceAllocations
    | DeleteAllocations
    | Reshape
    | SetHostStatus
    | LabelAggregate
    | CreateGroup
    | ChangeGroup
    | DeleteGroup
    | ChangeMembers
)
"""Commands about resources and their holders."""


# -- servers ------------------------------------------------------------------------------------


class Enact(_Command, frozen=True):
    """A change of records, together with commands that it needs: all of it or nothing.

    Every record must be what the change says it was. The commands are judged in order, each as if those
    before it had been carried out: a claim may be for a group that the same change makes.

    ``reads`` are records that it was made from, and that must still be so.

    ``refused`` is the answer to a request that is refused and leaves a record of why: the change is made, and
    the caller gets the rejection. With ``quotas`` no project may have more by the change than these, and its
    own, allow.
    """

    changes: tuple[RecordChanged, ...]
    commands: tuple[LedgerCommand, ...] = ()
    refused: Rejection | None = None
    quotas: Quotas | None = None
    reads: tuple[AnyRecord, ...] = ()


Command = LedgerCommand | Enact
