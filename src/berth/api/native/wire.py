"""What /berth/v1 answers with: every body as a struct. The OpenAPI description follows from these."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

Uuid = Annotated[str, Meta(description="A uuid.", examples=["5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"])]
Time = Annotated[str, Meta(description="ISO 8601, UTC.", examples=["2026-01-31T09:30:00Z"])]
Next = Annotated[
    str | None, Meta(description="Where the next page is, relative to the server; null on the last page.")
]
Amounts = Annotated[dict[str, int], Meta(description="Amounts by the name of the resource class.")]
Index = Annotated[int, Meta(ge=0, description="A position in the journal.")]

UNKNOWN_TYPE: Final = "unknown"


def time_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_of_ns(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time_of(seconds)[:-1]}.{rest // 1_000_000:03}Z"


# -- consumers and allocations ------------------------------------------------------------------


class Consumer(msgspec.Struct):
    """Who holds resources. ``providers`` is on how many providers."""

    uuid: Uuid
    project_id: str
    user_id: str
    consumer_type: str
    generation: int
    created_at: Time
    updated_at: Time
    providers: int


class Consumers(msgspec.Struct):
    """A page of consumers, in the order of their uuids."""

    consumers: list[Consumer]
    next: Next = None


class Allocation(msgspec.Struct):
    """What one consumer holds on one provider."""

    consumer_uuid: Uuid
    resource_provider_uuid: Uuid
    resource_provider_name: str
    root_provider_uuid: Uuid
    resources: Amounts
    project_id: str
    user_id: str
    consumer_type: str


class Allocations(msgspec.Struct):
    """A page of allocations, in the order of their consumers; one consumer's are never on two pages."""

    allocations: list[Allocation]
    next: Next = None


# -- usage --------------------------------------------------------------------------------------


class Amount(msgspec.Struct):
    """``free`` is summed over providers; one that is over its capacity has nothing free, not less."""

    capacity: int
    used: int
    free: int


class UsageRow(msgspec.Struct, omit_defaults=True):
    """Totals of one ``key``: a uuid, a project or the name of a class, depending on ``by``.

    ``name`` is the provider's, by provider and by root. By project there is no capacity of its own:
    ``used`` and ``consumers`` stand there in place of ``resources``.
    """

    key: str
    name: str | None = None
    resources: dict[str, Amount] | None = None
    used: Amounts | None = None
    consumers: int | None = None


class Usage(msgspec.Struct):
    """A page of totals, in the order of their keys."""

    by: str
    usage: list[UsageRow]
    next: Next = None


# -- events -------------------------------------------------------------------------------------


class ClassName(msgspec.Struct):
    name: str


class Place(msgspec.Struct):
    name: str
    parent_provider_uuid: str | None


class Version(msgspec.Struct):
    generation: int
    updated_at: Time


class InventoryState(msgspec.Struct):
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float


class ConsumerState(msgspec.Struct):
    """``allocations``: amounts by class name, by provider."""

    generation: int
    project_id: str
    user_id: str
    consumer_type: str
    allocations: dict[str, Amounts]


class _Change(msgspec.Struct, tag_field="kind"):
    """One thing and its value ``before`` and ``after``; null where it did not or does not exist."""


class ResourceClassChange(_Change, tag="resource_class"):
    """A custom class was created, renamed or deleted. ``number`` never changes."""

    number: int
    before: ClassName | None
    after: ClassName | None


class TraitChange(_Change, tag="trait"):
    """A custom trait was created (``after`` is when) or deleted."""

    trait: str
    before: Time | None
    after: Time | None


class ProviderChange(_Change, tag="provider"):
    """A provider was created, renamed, moved or deleted."""

    provider: Uuid
    before: Place | None
    after: Place | None


class VersionChange(_Change, tag="provider_version"):
    """A provider's generation advanced."""

    provider: Uuid
    before: Version
    after: Version


class InventoryChange(_Change, tag="inventory"):
    provider: Uuid
    resource_class: str
    before: InventoryState | None
    after: InventoryState | None


class TraitsChange(_Change, tag="provider_traits"):
    provider: Uuid
    before: tuple[str, ...]
    after: tuple[str, ...]


class AggregatesChange(_Change, tag="provider_aggregates"):
    provider: Uuid
    before: tuple[str, ...]
    after: tuple[str, ...]


class ConsumerChange(_Change, tag="consumer"):
    """A consumer and all that it holds."""

    consumer: Uuid
    before: ConsumerState | None
    after: ConsumerState | None


class AggregateState(msgspec.Struct):
    kind: str | None
    name: str | None
    metadata: dict[str, str]


class AggregateChange(_Change, tag="aggregate"):
    """Something was said of an aggregate."""

    aggregate: str
    before: AggregateState | None
    after: AggregateState | None


class HostState(msgspec.Struct):
    disabled: bool
    down: bool
    build_failures: int
    reason: str | None


class HostChange(_Change, tag="host"):
    """How a host is doing; null where there is nothing out of the ordinary."""

    provider: Uuid
    before: HostState | None
    after: HostState | None


class GroupState(msgspec.Struct):
    name: str
    policy: str
    domain: str
    max_per_domain: int | None
    max_skew: int | None


class GroupChange(_Change, tag="group"):
    group: Uuid
    before: GroupState | None
    after: GroupState | None


class MemberState(msgspec.Struct):
    group: Uuid
    stands_for: Uuid


class MemberChange(_Change, tag="member"):
    """A consumer came into a group, or left it."""

    consumer: Uuid
    before: MemberState | None
    after: MemberState | None


Change = (
    ResourceClassChange
    | TraitChange
    | ProviderChange
    | VersionChange
    | InventoryChange
    | TraitsChange
    | AggregatesChange
    | ConsumerChange
    | AggregateChange
    | HostChange
    | GroupChange
    | MemberChange
)


class Event(msgspec.Struct):
    """What one request changed. Requests that were written together share an ``index``."""

    index: Index
    at: Time
    request_id: str
    user: str | None
    project: str | None
    action: Annotated[str, Meta(description="Method and path of the request.")]
    changes: list[Change]


class Events(msgspec.Struct):
    """A page of events. Go on with ``after`` = ``next``; ``index`` is where the journal ends now."""

    events: list[Event]
    next: Index
    index: Index


Kind = Literal["change", "error"]
"""What a server-sent event is called: an Event in its data, or a refusal that ends the stream."""
