"""GET /berth/v1/consumers: who holds resources."""

from typing import Final

from berth.api.kernel.paging import shown_page
from berth.api.kernel.times import show_time
from berth.api.native import wire
from berth.api.native.calls import NativeCall, NativeRoute, listing
from berth.api.native.holders import Holders
from berth.api.native.parameters import ConsumersQuery
from berth.model.ids import ConsumerId
from berth.view import ConsumerRecord, View


def page(view: View, call: NativeCall) -> wire.Consumers:
    query: ConsumersQuery = call.query
    found, more = Holders(view, query).page()
    return wire.Consumers(
        *shown_page(call.request, query, found, more, lambda id: _consumer(id, view.consumers[id]))
    )


def _consumer(id: ConsumerId, record: ConsumerRecord) -> wire.Consumer:
    consumer = record.consumer
    return wire.Consumer(
        id,
        consumer.project,
        consumer.user,
        consumer.type or wire.UNKNOWN_TYPE,
        consumer.generation,
        show_time(consumer.created_at_s),
        show_time(consumer.updated_at_s),
        len(record.held),
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/consumers",
        listing(page),
        policy="berth:consumers:list",
        name="list_consumers",
        query=ConsumersQuery,
        answer=wire.Consumers,
        summary="List consumers",
        description="Everybody who holds resources, in the order of their uuids. Pages stay in step while "
        "consumers come and go: nothing is repeated, and nothing left out that was there throughout.",
    ),
)
