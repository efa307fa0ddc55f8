"""GET /berth/v1/consumers: who holds resources."""

from berth.api.native import wire
from berth.api.native.calls import Call
from berth.api.native.holders import Holders
from berth.api.native.pages import next_link
from berth.api.native.parameters import ConsumersQuery
from berth.model.ids import ConsumerId
from berth.view import ConsumerRecord, View


def page(view: View, call: Call) -> wire.Consumers:
    query: ConsumersQuery = call.query
    found, more = Holders(view, query).page()
    return wire.Consumers(
        [_consumer(id, view.consumers[id]) for id in found],
        next_link(call.request, query, found[-1]) if more else None,
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
