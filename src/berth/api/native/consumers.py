"""GET /berth/v1/consumers: who holds resources."""

from typing import Final

import msgspec

from berth.api.kernel.paging import render_keys
from berth.api.kernel.times import show_time
from berth.api.native.calls import NativeCall, NativeRoute, listing
from berth.api.native.fields import Next, Time, Uuid
from berth.api.native.holders import UNKNOWN_TYPE, ConsumersQuery, Holders
from berth.model.ids import ConsumerId
from berth.view import ConsumerRecord, View


class ConsumerRow(msgspec.Struct):
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

    consumers: list[ConsumerRow]
    next: Next = None


def list_consumers(view: View, call: NativeCall) -> Consumers:
    query: ConsumersQuery = call.query
    found, more = Holders(view, query).page()
    return Consumers(
        *render_keys(call.request, query, found, more, lambda id: _describe(id, view.consumers[id]))
    )


def _describe(id: ConsumerId, record: ConsumerRecord) -> ConsumerRow:
    consumer = record.consumer
    return ConsumerRow(
        id,
        consumer.project,
        consumer.user,
        consumer.type or UNKNOWN_TYPE,
        consumer.generation,
        show_time(consumer.created_at_s),
        show_time(consumer.updated_at_s),
        len(record.held),
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/consumers",
        listing(list_consumers),
        policy="berth:consumers:list",
        name="list_consumers",
        query=ConsumersQuery,
        answer=Consumers,
        summary="List consumers",
        description="Everybody who holds resources, in the order of their uuids. Pages stay in step while "
        "consumers come and go: nothing is repeated, and nothing left out that was there throughout.",
    ),
)
