"""GET /berth/v1/consumers: who holds resources."""

from berth.api.native import wire
from berth.api.native.calls import Call
from berth.api.native.holders import Holders
from berth.api.native.pages import shown_page
from berth.api.native.parameters import ConsumersQuery
from berth.model.ids import ConsumerId
from berth.view import ConsumerRecord, View


def page(view: View, call: Call) -> wire.Consumers:
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
        wire.time_of(consumer.created_at_s),
        wire.time_of(consumer.updated_at_s),
        len(record.held),
    )
