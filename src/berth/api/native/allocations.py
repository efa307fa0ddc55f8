"""GET /berth/v1/allocations: who holds what, a row per consumer and provider."""

from collections.abc import Iterator
from typing import Final

import msgspec

from berth.api.kernel.paging import PAGE_BYTES_MAX, make_next_link
from berth.api.native.calls import NativeCall, NativeRoute, listing
from berth.api.native.fields import Amounts, Next, ResourceClass, Uuid
from berth.api.native.holders import UNKNOWN_TYPE, ConsumersQuery, Holders, class_named
from berth.model.ids import ConsumerId
from berth.view import View


class AllocationRow(msgspec.Struct):
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

    allocations: list[AllocationRow]
    next: Next = None


class AllocationsQuery(ConsumersQuery, frozen=True, kw_only=True):
    resource_class: ResourceClass | None = None


_encode: Final = msgspec.json.Encoder().encode


def list_allocations(view: View, call: NativeCall) -> Allocations:
    """Whole consumers until the limit is reached, or the page is full; the first one whatever it holds."""
    query: AllocationsQuery = call.query
    class_id = None if query.resource_class is None else class_named(view, query.resource_class)
    holders = Holders(view, query, class_id)
    candidates, more = holders.page()
    rows: list[AllocationRow] = []
    size = 0
    last: ConsumerId | None = None
    for id in candidates:
        own = list(_describe_rows(view, id, holders))
        size += len(_encode(own))
        if rows and (len(rows) + len(own) > query.limit or size > PAGE_BYTES_MAX):
            more = True
            break
        rows += own
        last = id
    return Allocations(rows, make_next_link(call.request, query, last) if more and last is not None else None)


def _describe_rows(view: View, id: ConsumerId, holders: Holders) -> Iterator[AllocationRow]:
    record = view.consumers[id]
    consumer = record.consumer
    name_of = view.classes.name_of
    for provider_id, amounts in filter(holders.picks, record.held):
        provider = view.providers[provider_id]
        yield AllocationRow(
            id,
            provider_id,
            provider.name,
            provider.root.id,
            {name_of(class_id): amount for class_id, amount in amounts},
            consumer.project,
            consumer.user,
            consumer.type or UNKNOWN_TYPE,
        )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/allocations",
        listing(list_allocations),
        policy="berth:allocations:list",
        name="list_allocations",
        query=AllocationsQuery,
        answer=Allocations,
        summary="List allocations",
        description="A row per consumer and provider, in the order of the consumers. The rows of one "
        "consumer are always on one page: a page may end before its limit, and one consumer alone may go "
        "beyond it.",
    ),
)
