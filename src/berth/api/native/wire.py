"""What /berth/v1 answers with: every body as a struct. The OpenAPI description follows from these."""

from typing import Annotated, Final

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
