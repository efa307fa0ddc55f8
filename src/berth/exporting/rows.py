"""The ledger as rows of Placement's tables, and what of a region has no place there.

Uuids, names, generations and times are those of the ledger. Ids are numbers that nobody sees: they count from
1 in each table; resource classes have the ids that they have here, which are upstream's for standard ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from berth.importing import upstream
from berth.importing.upstream import RowValues
from berth.model.clusters import Cluster
from berth.model.drains import Drain
from berth.model.ids import ClassId
from berth.model.placement import STANDARD_TRAITS, Inventory, is_custom_name
from berth.model.saga_runs import Assignment
from berth.model.servers import (
    Aggregate,
    CellStatus,
    Flavor,
    Host,
    Image,
    Migration,
    QuotaSet,
    Record,
    Server,
    UnknownServer,
)
from berth.view import View
from berth.view.provider import ProviderRecord


class LedgerRows:
    """``classes`` and ``traits`` lead from the names that Placement has already to their ids."""

    def __init__(self, view: View, classes: Mapping[str, int], traits: Mapping[str, int], now_s: int) -> None:
        self._view = view
        self._now = _time(now_s)
        self._known_classes, self._known_traits = classes, traits
        used = {name for record in view.providers.values() for name in record.traits}
        names = [*sorted(used & STANDARD_TRAITS), *view.custom_traits]
        self._traits = _number(
            (name for name in names if name not in traits), max(traits.values(), default=0)
        )
        self._aggregates = _number(id for record in view.providers.values() for id in record.aggregates)
        self._providers = {record.id: id for id, record in enumerate(self._in_trees(), 1)}
        consumers = [holder.consumer for holder in view.consumers.values()]
        self._projects = _number(consumer.project for consumer in consumers)
        self._users = _number(consumer.user for consumer in consumers)
        self._types = _number(consumer.type for consumer in consumers if consumer.type is not None)

    def tables(self) -> Iterator[tuple[str, Iterator[RowValues]]]:
        """The rows of each table, those that others refer to first."""
        made: dict[str, Callable[[], Iterator[RowValues]]] = {
            upstream.RESOURCE_CLASSES.name: self._resource_classes,
            upstream.TRAITS.name: self._trait_rows,
            upstream.AGGREGATES.name: lambda: self._named(self._aggregates, "uuid"),
            upstream.PROJECTS.name: lambda: self._named(self._projects, "external_id"),
            upstream.USERS.name: lambda: self._named(self._users, "external_id"),
            upstream.CONSUMER_TYPES.name: lambda: self._named(self._types, "name"),
            upstream.PROVIDERS.name: self._provider_rows,
            upstream.INVENTORIES.name: self._inventories,
            upstream.PROVIDER_TRAITS.name: self._provider_traits,
            upstream.PROVIDER_AGGREGATES.name: self._provider_aggregates,
            upstream.CONSUMERS.name: self._consumers,
            upstream.ALLOCATIONS.name: self._allocations,
        }
        return ((name, rows()) for name, rows in made.items())

    # -- vocabularies ---------------------------------------------------------------------------

    def _class_id(self, id: ClassId) -> int:
        return self._known_classes.get(self._view.classes.name_of(id), id)

    @property
    def class_names(self) -> list[str]:
        """The resource classes that Placement does not have yet: custom ones, and standard ones in use."""
        return [self._view.classes.name_of(id) for id in self._new_classes()]

    @property
    def trait_names(self) -> Iterable[str]:
        """The same of traits."""
        return self._traits

    def _new_classes(self) -> Iterator[ClassId]:
        classes = self._view.classes
        used = set(classes.in_inventories())
        for id in classes.ids():
            name = classes.name_of(id)
            if name not in self._known_classes and (id in used or is_custom_name(name)):
                yield id

    def _resource_classes(self) -> Iterator[RowValues]:
        for id in self._new_classes():
            created_at_s = self._view.classes.created_at_s(id)
            at = self._now if created_at_s is None else _time(created_at_s)
            name = self._view.classes.name_of(id)
            yield {"id": id, "name": name, "created_at": at, "updated_at": None}

    def _trait_rows(self) -> Iterator[RowValues]:
        for name, id in self._traits.items():
            created_at_s = self._view.custom_traits.get(name)
            at = self._now if created_at_s is None else _time(created_at_s)
            yield {"id": id, "name": name, "created_at": at, "updated_at": None}

    def _named(self, ids: Mapping[str, int], column: str) -> Iterator[RowValues]:
        for name, id in ids.items():
            yield {"id": id, column: name, "created_at": self._now, "updated_at": None}

    # -- providers ------------------------------------------------------------------------------

    def _in_trees(self) -> Iterator[ProviderRecord]:
        """All providers, parents before children."""
        waiting = [record for record in self._view.providers.values() if record.parent is None][::-1]
        while waiting:
            record = waiting.pop()
            yield record
            waiting.extend(reversed(record.children.values()))

    def _provider_rows(self) -> Iterator[RowValues]:
        for record in self._in_trees():
            stamp = record.stamp
            yield {
                "id": self._providers[record.id],
                "uuid": record.id,
                "name": record.name,
                "generation": stamp.generation,
                "root_provider_id": self._providers[record.root.id],
                "parent_provider_id": None if record.parent is None else self._providers[record.parent.id],
                "created_at": _time(stamp.created_at_s),
                "updated_at": _time(stamp.updated_at_s),
            }

    def _inventories(self) -> Iterator[RowValues]:
        for record in self._in_trees():
            for class_id, inventory in record.inventories.items():
                yield make_inventory_row(self._providers[record.id], self._class_id(class_id), inventory)

    def _provider_traits(self) -> Iterator[RowValues]:
        ids = {**self._known_traits, **self._traits}
        for record in self._in_trees():
            for name in record.traits:
                yield self._link(record, "trait_id", ids[name])

    def _provider_aggregates(self) -> Iterator[RowValues]:
        for record in self._in_trees():
            for id in record.aggregates:
                yield self._link(record, "aggregate_id", self._aggregates[id])

    def _link(self, record: ProviderRecord, column: str, id: int) -> RowValues:
        at = _time(record.stamp.updated_at_s)
        provider = self._providers[record.id]
        return {"resource_provider_id": provider, column: id, "created_at": at, "updated_at": None}

    # -- consumers ------------------------------------------------------------------------------

    def _consumers(self) -> Iterator[RowValues]:
        for uuid, holder in self._view.consumers.items():
            consumer = holder.consumer
            yield {
                "uuid": uuid,
                "project_id": self._projects[consumer.project],
                "user_id": self._users[consumer.user],
                "generation": consumer.generation,
                "consumer_type_id": None if consumer.type is None else self._types[consumer.type],
                "created_at": _time(consumer.created_at_s),
                "updated_at": _time(consumer.updated_at_s),
            }

    def _allocations(self) -> Iterator[RowValues]:
        for uuid, holder in self._view.consumers.items():
            at = _time(holder.consumer.updated_at_s)
            for provider, amounts in holder.held:
                for class_id, used in amounts:
                    yield {
                        "resource_provider_id": self._providers[provider],
                        "consumer_id": uuid,
                        "resource_class_id": self._class_id(class_id),
                        "used": used,
                        "created_at": at,
                        "updated_at": None,
                    }


def _number(names: Iterable[str], last: int = 0) -> dict[str, int]:
    """Each name once, with a number behind ``last``."""
    return {name: id for id, name in enumerate(dict.fromkeys(names), last + 1)}


def make_inventory_row(provider: int, resource_class: int, inventory: Inventory) -> RowValues:
    return {
        "resource_provider_id": provider,
        "resource_class_id": resource_class,
        "total": inventory.total,
        "reserved": inventory.reserved,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
        "allocation_ratio": inventory.allocation_ratio,
        "created_at": _time(inventory.written_at_s),
        "updated_at": None,
    }


def _time(at_s: int) -> datetime:
    """Placement's times are in UTC, and do not say so."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)


# -- what has no place --------------------------------------------------------------------------

_RECORDS: Final[dict[str, type[Record]]] = {
    "servers": Server,
    "servers that a restored region does not know": UnknownServer,
    "migrations": Migration,
    "flavors": Flavor,
    "images": Image,
    "clusters": Cluster,
    "drains": Drain,
    "quota sets": QuotaSet,
    "host aggregates (their names, zones and metadata)": Aggregate,
    "hosts with agents (whether they are up)": Host,
    "cells": CellStatus,
    "assignments of units": Assignment,
}


def count_unplaced(view: View) -> dict[str, int]:
    """How much there is of everything that Placement has no table for. What servers, migrations and pools
    hold, and pools themselves, is in the ledger, and exported."""
    counts = {words: view.records.count(kind) for words, kind in _RECORDS.items()}
    counts["groups"] = len(view.groups.records)
    counts["labels of aggregates (racks, zones, cells)"] = len(view.groups.labels)
    counts["states of hosts (down, disabled)"] = len(view.hosts)
    return {words: count for words, count in counts.items() if count}
