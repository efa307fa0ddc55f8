"""Which consumers come next: those that the filters let through, in the order of their ids, behind a marker.

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
from berth.api.kernel.paging import take_first
from berth.api.kernel.problem import Problem
from berth.api.native.fields import LIMIT_DEFAULT, UUID, Limit
from berth.model.ids import ClassId, ConsumerId, ProviderId, Row
from berth.model.placement import Holding
from berth.view import ProviderRecord, View
from berth.view.consumers import ConsumerFilter

UNKNOWN_TYPE: Final = "unknown"
ConsumerMarker = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F-]{36}\\Z",
        description="The last consumer of the previous page; this page begins after it.",
    ),
]
Provider = Annotated[str, Meta(pattern=UUID, description="Only what is held on this provider.")]
Tree = Annotated[
    str, Meta(pattern=UUID, description="Only what is on a provider of the tree that this provider is in.")
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


_TURN: Final = 500
"""How many consumers either way looks at before it is the other's turn."""


class Holders:
    """Who is meant by the filters of a query, and by a resource class, where one is asked for."""

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
        """Whether this is something that is asked for."""
        provider, amounts = holding
        if self._places is not None and provider not in self._places:
            return False
        return self._class_id is None or any(held == self._class_id for held, _ in amounts)

    def _providers(self) -> Iterable[ProviderRecord]:
        """Where all are that can be meant."""
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
    records = _found(view, provider) if tree is None else _tree(view, tree)
    return {record.id: record for record in records if provider is None or record.id == provider.lower()}


def _found(view: View, id: str | None) -> list[ProviderRecord]:
    record = None if id is None else view.providers.get(ProviderId(id.lower()))
    return [] if record is None else [record]


def _tree(view: View, id: str) -> Iterator[ProviderRecord]:
    return chain.from_iterable(record.tree() for record in _found(view, id))


def _users_of(view: View, class_id: ClassId) -> Iterator[ProviderRecord]:
    """The providers of whose inventory of the class something is used."""
    return (view.record(Row(int(row))) for row in view.classes.column(class_id).rows_in_use())


def class_named(view: View, name: str) -> ClassId:
    """A class that a filter names. One that does not exist is a mistake, not an empty list."""
    id = view.classes.id_of(name)
    if id is None:
        raise Problem(400, f"resource_class: there is no resource class {name!r}.", BAD_PARAMETER)
    return id
