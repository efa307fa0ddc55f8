"""What /berth/v1 answers with: every body as a struct. The OpenAPI description follows from these."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

_Uuid = Annotated[str, Meta(description="A uuid.", examples=["5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"])]
_Time = Annotated[str, Meta(description="ISO 8601, UTC.", examples=["2026-01-31T09:30:00Z"])]
_Next = Annotated[
    str | None, Meta(description="Where the next page is, relative to the server; null on the last page.")
]
_Amounts = Annotated[dict[str, int], Meta(description="Amounts by the name of the resource class.")]
_Index = Annotated[int, Meta(ge=0, description="A position in the journal.")]

UNKNOWN_TYPE: Final = "unknown"


def time_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_of_ns(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time_of(seconds)[:-1]}.{rest // 1_000_000:03}Z"


# -- consumers and allocations ------------------------------------------------------------------


class Consumer(msgspec.Struct):
    """Who holds resources. ``providers`` is on how many providers."""

    uuid: _Uuid
    project_id: str
    user_id: str
    consumer_type: str
    generation: int
    created_at: _Time
    updated_at: _Time
    providers: int


class Consumers(msgspec.Struct):
    """A page of consumers, in the order of their uuids."""

    consumers: list[Consumer]
    next: _Next = None


class Allocation(msgspec.Struct):
    """What one consumer holds on one provider."""

    consumer_uuid: _Uuid
    resource_provider_uuid: _Uuid
    resource_provider_name: str
    root_provider_uuid: _Uuid
    resources: _Amounts
    project_id: str
    user_id: str
    consumer_type: str


class Allocations(msgspec.Struct):
    """A page of allocations, in the order of their consumers; one consumer's are never on two pages."""

    allocations: list[Allocation]
    next: _Next = None


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
    used: _Amounts | None = None
    consumers: int | None = None


class Usage(msgspec.Struct):
    """A page of totals, in the order of their keys."""

    by: str
    usage: list[UsageRow]
    next: _Next = None


# -- events -------------------------------------------------------------------------------------


class ClassName(msgspec.Struct):
    name: str


class Place(msgspec.Struct):
    name: str
    parent_provider_uuid: str | None


class Version(msgspec.Struct):
    generation: int
    updated_at: _Time


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
    allocations: dict[str, _Amounts]


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
    before: _Time | None
    after: _Time | None


class ProviderChange(_Change, tag="provider"):
    """A provider was created, renamed, moved or deleted."""

    provider: _Uuid
    before: Place | None
    after: Place | None


class VersionChange(_Change, tag="provider_version"):
    """A provider's generation advanced."""

    provider: _Uuid
    before: Version
    after: Version


class InventoryChange(_Change, tag="inventory"):
    provider: _Uuid
    resource_class: str
    before: InventoryState | None
    after: InventoryState | None


class TraitsChange(_Change, tag="provider_traits"):
    provider: _Uuid
    before: tuple[str, ...]
    after: tuple[str, ...]


class AggregatesChange(_Change, tag="provider_aggregates"):
    provider: _Uuid
    before: tuple[str, ...]
    after: tuple[str, ...]


class ConsumerChange(_Change, tag="consumer"):
    """A consumer and all that it holds."""

    consumer: _Uuid
    before: ConsumerState | None
    after: ConsumerState | None


Change = (
    ResourceClassChange
    | TraitChange
    | ProviderChange
    | VersionChange
    | InventoryChange
    | TraitsChange
    | AggregatesChange
    | ConsumerChange
)


class Event(msgspec.Struct):
    """What one request changed. Requests that were written together share an ``index``."""

    index: _Index
    at: _Time
    request_id: str
    user: str | None
    project: str | None
    action: Annotated[str, Meta(description="Method and path of the request.")]
    changes: list[Change]


class Events(msgspec.Struct):
    """A page of events. Go on with ``after`` = ``next``; ``index`` is where the journal ends now."""

    events: list[Event]
    next: _Index
    index: _Index


Kind = Literal["change", "error"]
"""What a server-sent event is called: an Event in its data, or a refusal that ends the stream."""
