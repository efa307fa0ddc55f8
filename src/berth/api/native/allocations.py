"""GET /berth/v1/consumers and /allocations: who holds resources, and what, a row per consumer and provider.

Both list consumers that the filters let through, in the order of their ids, behind a marker (``Holders``).
Without a filter on what is held, they are read from the view's index of consumers. With one there are two
ways:

    walk     the index from the marker on, until the page is full; cheap where many hold such a thing
    gather   all who hold something on the providers in question; cheap where few do

Which is cheaper depends on how ids, projects and holdings happen to lie, and is not guessed: both go on in
turn, and the first that is done answers. So a page costs at most twice the cheaper of the two.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.paging import PAGE_BYTES_MAX, make_next_link, render_keys, take_first
from berth.api.kernel.problem import Problem
from berth.api.kernel.times import show_time
from berth.api.native.calls import NativeCall, NativeRoute, answer_from
from berth.api.native.fields import (
    LIMIT_DEFAULT,
    UNKNOWN_TYPE,
    Amounts,
    Limit,
    Next,
    ResourceClass,
    Time,
    Uuid,
)
from berth.model.ids import ClassId, ConsumerId, ProviderId, Row
from berth.model.placement import NAME_LENGTH_MAX, Holding
from berth.model.servers import Migration, Server
from berth.view import ConsumerRecord, ProviderRecord, View
from berth.view.consumers import ConsumerFilter

# -- answers ------------------------------------------------------------------------------------


class ConsumerDetail(msgspec.Struct):
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

    consumers: list[ConsumerDetail]
    next: Next = None


class AllocationDetail(msgspec.Struct):
    """What one consumer holds on one provider. ``consumer_name``: of a server, or of a migration that of the
    server it moves."""

    consumer_uuid: Uuid
    consumer_name: str | None
    resource_provider_uuid: Uuid
    resource_provider_name: str
    root_provider_uuid: Uuid
    resources: Amounts
    project_id: str
    user_id: str
    consumer_type: str


class Allocations(msgspec.Struct):
    """A page of allocations, in the order of their consumers; one consumer's are never on two pages."""

    allocations: list[AllocationDetail]
    next: Next = None


# -- queries ------------------------------------------------------------------------------------

ConsumerMarker = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F-]{36}\\Z",
        description="The last consumer of the previous page; this page begins after it.",
    ),
]
Provider = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LENGTH_MAX,
        description="Only what is held on this provider: its uuid or its name.",
    ),
]
Tree = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LENGTH_MAX,
        description="Only what is on a provider of the tree that this provider is in: its uuid or its name.",
    ),
]
Project = Annotated[str, Meta(min_length=1, max_length=255, description="Only what this project holds.")]
User = Annotated[str, Meta(min_length=1, max_length=255, description="Only what this user holds.")]
ConsumerType = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="Only consumers of this type; `unknown` are those written before there were types.",
    ),
]


class ConsumersQuery(msgspec.Struct, frozen=True, kw_only=True):
    project: Project | None = None
    user: User | None = None
    type: ConsumerType | None = None
    provider: Provider | None = None
    tree: Tree | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: ConsumerMarker | None = None


class AllocationsQuery(ConsumersQuery, frozen=True, kw_only=True):
    resource_class: ResourceClass | None = None


# -- who is meant -------------------------------------------------------------------------------

_TURN: Final = 500
"""How many consumers either way looks at before it is the other's turn."""


class Holders:
    """The consumers that the filters of a query choose, and a resource class, where one is asked for."""

    def __init__(self, view: View, query: ConsumersQuery, class_id: ClassId | None = None) -> None:
        self._view = view
        self._query = query
        self._class_id = class_id
        self._whose = ConsumerFilter(query.project, query.user, _type(query.type))
        self._places = _places(view, query.provider, query.tree)

    def page(self) -> tuple[list[ConsumerId], bool]:
        """The next ones, up to the limit, and whether there are more."""
        limit = self._query.limit
        walk = self._view.consumer_index.behind(self._query.marker, self._whose)
        if self._places is None and self._class_id is None:
            return take_first(walk, limit)
        holders = chain.from_iterable(record.consumers for record in self._providers())
        gathered: set[ConsumerId] = set()
        passed: list[ConsumerId] = []
        while turn := list(islice(holders, _TURN)):
            gathered.update(turn)
            if len(turn) < _TURN:
                break
            walked = list(islice(walk, _TURN))
            passed += filter(self._holds, walked)
            if len(passed) > limit or len(walked) < _TURN:
                return take_first(passed, limit)
        return take_first(heapq.nsmallest(limit + 1, filter(self._is_meant, gathered)), limit)

    def picks(self, holding: Holding) -> bool:
        """Whether the query asks for this holding."""
        provider, amounts = holding
        if self._places is not None and provider not in self._places:
            return False
        return self._class_id is None or any(held == self._class_id for held, _ in amounts)

    def _providers(self) -> Iterable[ProviderRecord]:
        """All providers on which a chosen consumer can hold something."""
        if self._places is not None:
            return self._places.values()
        assert self._class_id is not None
        return _users_of(self._view, self._class_id)

    def _is_meant(self, id: ConsumerId) -> bool:
        marker, record = self._query.marker, self._view.consumers[id]
        return (marker is None or id > marker) and self._whose.matches(record.consumer) and self._holds(id)

    def _holds(self, id: ConsumerId) -> bool:
        return any(map(self.picks, self._view.consumers[id].held))


def _type(given: str | None) -> str | msgspec.UnsetType | None:
    if given is None:
        return msgspec.UNSET
    return None if given == UNKNOWN_TYPE else given


def _places(view: View, provider: str | None, tree: str | None) -> dict[ProviderId, ProviderRecord] | None:
    """The providers that the filters name, those that are in both where both are given; None for all."""
    if provider is None and tree is None:
        return None
    found = None if provider is None else find_provider(view, provider)
    within = None if tree is None else find_provider(view, tree)
    if (provider is not None and found is None) or (tree is not None and within is None):
        return {}
    records = (found,) if within is None else within.tree()
    return {
        record.id: record for record in records if record is not None and (found is None or record is found)
    }


def find_provider(view: View, named: str) -> ProviderRecord | None:
    """The provider of this uuid, or else of this name."""
    return view.providers.get(ProviderId(named.lower())) or view.names.get(named)


def name_of_consumer(view: View, id: str) -> str | None:
    """What people call a consumer: the name of the server, of a migration that of the server it moves."""
    migration = view.records.get(Migration, id)
    server = view.records.get(Server, id if migration is None else migration.server)
    return None if server is None else server.name


def _users_of(view: View, class_id: ClassId) -> Iterator[ProviderRecord]:
    """The providers whose inventory of the class is in use."""
    return (view.record(Row(int(row))) for row in view.classes.column(class_id).rows_in_use())


def find_class(view: View, name: str) -> ClassId:
    """A class that a filter names. One that does not exist is a mistake, not an empty list."""
    id = view.classes.id_of(name)
    if id is None:
        raise Problem(400, f"resource_class: there is no resource class {name!r}.", BAD_PARAMETER)
    return id


# -- handlers -----------------------------------------------------------------------------------

_encode: Final = msgspec.json.Encoder().encode


def list_consumers(view: View, call: NativeCall) -> Consumers:
    query: ConsumersQuery = call.query
    found, more = Holders(view, query).page()
    return Consumers(
        *render_keys(call.request, query, found, more, lambda id: _describe_consumer(id, view.consumers[id]))
    )


def _describe_consumer(id: ConsumerId, record: ConsumerRecord) -> ConsumerDetail:
    consumer = record.consumer
    return ConsumerDetail(
        id,
        consumer.project,
        consumer.user,
        consumer.type or UNKNOWN_TYPE,
        consumer.generation,
        show_time(consumer.created_at_s),
        show_time(consumer.updated_at_s),
        len(record.held),
    )


def list_allocations(view: View, call: NativeCall) -> Allocations:
    """Whole consumers until the limit is reached, or the page is full; the first one whatever it holds."""
    query: AllocationsQuery = call.query
    class_id = None if query.resource_class is None else find_class(view, query.resource_class)
    holders = Holders(view, query, class_id)
    candidates, more = holders.page()
    rows: list[AllocationDetail] = []
    size = 0
    last: ConsumerId | None = None
    for id in candidates:
        own = list(_describe_allocations(view, id, holders))
        size += len(_encode(own))
        if rows and (len(rows) + len(own) > query.limit or size > PAGE_BYTES_MAX):
            more = True
            break
        rows += own
        last = id
    return Allocations(rows, make_next_link(call.request, query, last) if more and last is not None else None)


def _describe_allocations(view: View, id: ConsumerId, holders: Holders) -> Iterator[AllocationDetail]:
    record = view.consumers[id]
    consumer = record.consumer
    name, name_of = name_of_consumer(view, id), view.classes.name_of
    for provider_id, amounts in filter(holders.picks, record.held):
        provider = view.providers[provider_id]
        yield AllocationDetail(
            id,
            name,
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
        "/consumers",
        answer_from(list_consumers),
        policy="berth:consumers:list",
        name="list_consumers",
        query=ConsumersQuery,
        answer=Consumers,
        summary="List consumers",
        description="Everybody who holds resources, in the order of their uuids. Pages stay in step while "
        "consumers come and go: nothing is repeated, and nothing left out that was there throughout.",
    ),
    NativeRoute(
        "GET",
        "/allocations",
        answer_from(list_allocations),
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
