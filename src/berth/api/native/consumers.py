"""GET /berth/v1/consumers: who holds resources."""

from collections.abc import Iterable, Iterator

from berth.api.http import Request
from berth.api.native import wire
from berth.api.native.pages import first_keys, next_link
from berth.api.native.parameters import ConsumersQuery
from berth.model.ids import ConsumerId, ProviderId
from berth.view import ConsumerRecord, ProviderRecord, View


def page(view: View, request: Request, query: ConsumersQuery) -> wire.Consumers:
    found, more = first_keys(matching(view, query), query.marker, query.limit)
    return wire.Consumers(
        [_consumer(id, view.consumers[id]) for id in found],
        next_link(request, query, found[-1]) if more else None,
    )


def matching(view: View, query: ConsumersQuery) -> Iterable[ConsumerId]:
    """The consumers that the filters let through, in no order, each once.

    Filters by place start from the places' own records; the others look at every consumer there is.
    """
    holders = _holders(view, query)
    if query.project is None and query.user is None and query.type is None:
        return holders
    return _owned(view, query, holders)


def _owned(view: View, query: ConsumersQuery, holders: Iterable[ConsumerId]) -> Iterator[ConsumerId]:
    project, user, marker = query.project, query.user, query.marker or ""
    any_type = query.type is None
    wanted = None if query.type == wire.UNKNOWN_TYPE else query.type
    records = view.consumers
    for id in holders:
        # The marker is the cheapest question, and asked first.
        if id > marker:
            consumer = records[id].consumer
            if (
                (project is None or consumer.project == project)
                and (user is None or consumer.user == user)
                and (any_type or consumer.type == wanted)
            ):
                yield id


def _holders(view: View, query: ConsumersQuery) -> Iterable[ConsumerId]:
    if query.provider is None and query.tree is None:
        return view.consumers
    holders: set[ConsumerId] = set()
    for record in places(view, query.provider, query.tree):
        holders |= record.consumers
    return holders


def places(view: View, provider: str | None, tree: str | None) -> Iterable[ProviderRecord]:
    """The providers that these filters name: those that are in both, where both are given."""
    one = [] if provider is None else _found(view, provider)
    if tree is None:
        return one
    all_of_tree = [below for record in _found(view, tree) for below in record.tree()]
    return all_of_tree if provider is None else [record for record in one if record in all_of_tree]


def _found(view: View, id: str) -> list[ProviderRecord]:
    record = view.providers.get(ProviderId(id.lower()))
    return [] if record is None else [record]


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
