"""What has happened: the only way a view changes, and the only thing a journal holds.

Every event names one thing and its value before and after, None where it did not or does not exist. So
the inverse of any event is the event with the two exchanged, and no code is written twice to undo it.
Content and version of a provider are separate events (``InventoryChanged`` and ``ProviderStamped``):
a change of many things on one provider advances its generation once.

The events of one command are an ``Entry``, with its origin. What one append to the journal holds is a
``Batch``: entries that were decided together.
"""

from typing import TypeVar

import msgspec

from berth.model.clusters import Cluster
from berth.model.drains import Drain
from berth.model.groups import Group, Membership
from berth.model.ids import AggregateId, ClassId, ConsumerId, GroupId, Index, ProviderId, Row
from berth.model.placement import Consumer, Holdings, HostStatus, Inventory, Label
from berth.model.saga_runs import Agent, Assignment, HostTree, Instance, Outbox, SagaRun, SyncPosition, Term
from berth.model.servers import (
    Action,
    Aggregate,
    CellStatus,
    Counter,
    DeletedServer,
    Flavor,
    Host,
    Image,
    KeyPair,
    Migration,
    QuotaSet,
    RevokedToken,
    Server,
    UnknownServer,
)

AnyRecord = (
    Action
    | Agent
    | Aggregate
    | Assignment
    | CellStatus
    | Cluster
    | Counter
    | DeletedServer
    | Drain
    | Flavor
    | Host
    | HostTree
    | Image
    | Instance
    | KeyPair
    | Migration
    | Outbox
    | QuotaSet
    | RevokedToken
    | Server
    | SyncPosition
    | Term
    | SagaRun
    | UnknownServer
)


class Named(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A custom resource class."""

    name: str
    created_at_s: int


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a provider is called and where in the forest it stands."""

    name: str
    parent: ProviderId | None


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The version of a provider."""

    generation: int
    created_at_s: int
    updated_at_s: int


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class ResourceClassChanged(_Event, frozen=True, tag="c"):
    id: ClassId
    before: Named | None
    after: Named | None


class TraitChanged(_Event, frozen=True, tag="t"):
    """A custom trait came or went; the value is the second in which it was created."""

    name: str
    before: int | None
    after: int | None


class ProviderChanged(_Event, frozen=True, tag="p"):
    """A provider came, went, was renamed or moved. It takes and keeps the given row."""

    id: ProviderId
    row: Row
    before: Placed | None
    after: Placed | None


class ProviderStamped(_Event, frozen=True, tag="s"):
    id: ProviderId
    before: Stamp
    after: Stamp


class InventoryChanged(_Event, frozen=True, tag="i"):
    provider: ProviderId
    resource_class: ClassId
    before: Inventory | None
    after: Inventory | None


class TraitsChanged(_Event, frozen=True, tag="pt"):
    provider: ProviderId
    before: tuple[str, ...]
    after: tuple[str, ...]


class AggregatesChanged(_Event, frozen=True, tag="pa"):
    provider: ProviderId
    before: tuple[AggregateId, ...]
    after: tuple[AggregateId, ...]


class ConsumerChanged(_Event, frozen=True, tag="k"):
    """A consumer's record and holdings changed together. Holdings are empty where it does not exist."""

    id: ConsumerId
    before: Consumer | None
    after: Consumer | None
    held_before: Holdings
    held_after: Holdings


class AggregateLabelled(_Event, frozen=True, tag="al"):
    id: AggregateId
    before: Label | None
    after: Label | None


class HostChanged(_Event, frozen=True, tag="h"):
    """What is known of a root provider as a host; None where that is nothing out of the ordinary."""

    provider: ProviderId
    before: HostStatus | None
    after: HostStatus | None


class GroupChanged(_Event, frozen=True, tag="g"):
    id: GroupId
    before: Group | None
    after: Group | None


class MemberChanged(_Event, frozen=True, tag="gm"):
    """A consumer came into a group or left it. It need not hold anything yet."""

    consumer: ConsumerId
    before: Membership | None
    after: Membership | None


class RecordChanged(_Event, frozen=True, tag="r"):
    """A record came, went or was replaced; one of the two has its id."""

    before: AnyRecord | None
    after: AnyRecord | None


Event = (
    ResourceClassChanged
    | TraitChanged
    | ProviderChanged
    | ProviderStamped
    | InventoryChanged
    | TraitsChanged
    | AggregatesChanged
    | ConsumerChanged
    | AggregateLabelled
    | HostChanged
    | GroupChanged
    | MemberChanged
    | RecordChanged
)

E = TypeVar("E", bound=Event)


def inverse(event: E) -> E:
    """The event that takes this one back."""
    if isinstance(event, ConsumerChanged):
        return msgspec.structs.replace(
            event,
            before=event.after,
            after=event.before,
            held_before=event.held_after,
            held_after=event.held_before,
        )
    return msgspec.structs.replace(event, before=event.after, after=event.before)


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who asked, and by which request. ``ids`` is the id of the request and, behind a space, the one that its
    caller sent with it, if it did: one field, so that journals from before that are written as they were."""

    ids: str
    user: str | None
    project: str | None
    action: str

    @property
    def request_id(self) -> str:
        return self.ids.partition(" ")[0]

    @property
    def global_id(self) -> str | None:
        """The id that the caller sent: that of the request which this one is part of."""
        return self.ids.partition(" ")[2] or None


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One command's events, and who asked. Replayed whole or not at all."""

    origin: Origin
    events: tuple[Event, ...]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """All of one append. ``id`` tells its writer, after a lost answer, whether it got in. ``body`` are the
    entries as they are written, where they are encoded already. ``format``: the journal's (``formats``)."""

    index: Index
    id: str
    at_ns: int
    entries: tuple[Entry, ...]
    body: bytes | None = None
    format: int = 1
