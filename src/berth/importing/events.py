"""The rows of a Placement database as our events, and a view that they have all been applied to.

Generations and times are those of the source. These events do not pass through ``ledger.decide``: what the
source holds has been decided there and is taken over as it is, over capacity too. What the ledger has no
place for (see ``report``) is left out, with all that depends on it; the caller decides whether an import
with something left out is wanted.

Everything is read and applied before anything is written. Millions of events as objects would take as
much memory as the view itself, so they wait encoded.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from berth.engine.snapshots import pause_collector
from berth.importing import upstream
from berth.importing.report import ImportFindings
from berth.importing.upstream import (
    R,
    Source,
    SourceAllocation,
    SourceConsumer,
    SourceInventory,
    SourceProvider,
    Table,
)
from berth.model.events import (
    AggregatesChanged,
    ConsumerChanged,
    Event,
    InventoryChanged,
    Named,
    Placed,
    ProviderChanged,
    ProviderStamped,
    ResourceClassChanged,
    Stamp,
    TraitChanged,
    TraitsChanged,
)
from berth.model.ids import AggregateId, ClassId, ConsumerId, ProviderId
from berth.model.placement import STANDARD_TRAITS, Amounts, Consumer, Holdings, Inventory, is_custom_name
from berth.runtime.progress import ProgressLine
from berth.view import ProviderRecord, View

_BATCH_EVENTS: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1)
_UNSTAMPED: Final = Stamp(0, 0, 0)
_UUID: Final = re.compile(r"[0-9a-fA-F-]{32,36}\Z")


class Batches:
    """Events in the order in which they came, in encoded tuples of up to a batch each."""

    def __init__(self) -> None:
        self._encoded: list[bytes] = []
        self._waiting: list[Event] = []
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(tuple[Event, ...])

    def add(self, event: Event) -> None:
        self._waiting.append(event)
        if len(self._waiting) == _BATCH_EVENTS:
            self.close()

    def close(self) -> None:
        """No batch will get more events than it has."""
        if self._waiting:
            self._encoded.append(self._encoder.encode(self._waiting))
            self._waiting = []

    def __len__(self) -> int:
        return len(self._encoded)

    def __getitem__(self, number: int) -> tuple[Event, ...]:
        return self._decoder.decode(self._encoded[number])


class ConvertedSource(NamedTuple):
    """What was read: events, how many rows were in each table and were read of it, and the names in the
    vocabularies, of which the journal holds only those that are not standard."""

    batches: Batches
    stored: dict[str, int]
    read: Counter[str]
    class_names: tuple[str, ...]
    trait_names: tuple[str, ...]


def convert_source(
    source: Source, findings: ImportFindings, progress: ProgressLine, now_s: int
) -> ConvertedSource:
    """Read all there is. ``now_s`` stands in for times that the source does not know."""
    with pause_collector():
        return _Converter(source, findings, progress, now_s).convert()


class _SourceHolding(NamedTuple):
    """An allocation, before it is known whether its consumer exists."""

    provider: ProviderRecord
    class_id: ClassId
    used: int
    written_at_s: int


class _Converter:
    """Goes through the tables, those that others refer to first. Each dictionary leads from an id in the
    source to what it stands for here; what was left out is not in it."""

    def __init__(self, source: Source, findings: ImportFindings, progress: ProgressLine, now_s: int) -> None:
        self._source = source
        self._findings = findings
        self._progress = progress
        self._now_s = now_s
        self._view = View()
        self._batches = Batches()
        self._stored = source.counts()
        self._read: Counter[str] = Counter()
        self._classes: dict[int, ClassId] = {}
        self._traits: dict[int, str] = {}
        self._providers: dict[int, ProviderRecord] = {}
        self._aggregates: dict[int, AggregateId] = {}
        self._held: dict[str, list[_SourceHolding]] = {}

    def convert(self) -> ConvertedSource:
        classes = tuple(self._resource_classes())
        traits = tuple(self._custom_traits())
        self._resource_providers()
        for row in self._rows(upstream.INVENTORIES):
            self._inventory(row)
        self._provider_traits()
        self._provider_aggregates()
        for allocation in self._rows(upstream.ALLOCATIONS):
            self._allocation(allocation)
        self._consumers()
        self._over_capacity()
        self._batches.close()
        return ConvertedSource(self._batches, self._stored, self._read, classes, traits)

    def _rows(self, table: Table[R]) -> Iterator[R]:
        for row in self._progress.over(table.name, self._stored[table.name], self._source.rows(table)):
            self._read[table.name] += 1
            yield row

    def _happen(self, event: Event) -> None:
        self._view.apply(event)
        self._batches.add(event)

    # -- vocabularies ---------------------------------------------------------------------------

    def _resource_classes(self) -> Iterator[str]:
        """The names brought over. Custom classes get new numbers, in the order of the old."""
        classes = self._view.classes
        for row in self._rows(upstream.RESOURCE_CLASSES):
            if is_custom_name(row.name) and classes.id_of(row.name) is None:
                named = Named(row.name, self._created_s(row.created_at))
                self._happen(ResourceClassChanged(classes.next_id(), None, named))
            class_id = classes.id_of(row.name)
            if class_id is None:
                self._leave_unknown_name(upstream.RESOURCE_CLASSES, row.name, "os-resource-classes")
            elif class_id in self._classes.values():
                self._leave_out(upstream.RESOURCE_CLASSES, "with the name of another", row.name)
            else:
                self._classes[row.id] = class_id
                yield row.name

    def _custom_traits(self) -> Iterator[str]:
        """The names brought over."""
        names = set()
        for row in self._rows(upstream.TRAITS):
            if is_custom_name(row.name) and not self._view.has_trait(row.name):
                self._happen(TraitChanged(row.name, None, self._created_s(row.created_at)))
            if not self._view.has_trait(row.name):
                self._leave_unknown_name(upstream.TRAITS, row.name, "os-traits")
            elif row.name in names:
                self._leave_out(upstream.TRAITS, "with the name of another", row.name)
            else:
                names.add(row.name)
                self._traits[row.id] = row.name
                yield row.name

    def _leave_unknown_name(self, table: Table[R], name: str, library: str) -> None:
        self._leave_out(table, f"whose name is neither custom nor in the installed {library}", name)

    # -- providers ------------------------------------------------------------------------------

    def _resource_providers(self) -> None:
        rows = {row.id: row for row in self._rows(upstream.PROVIDERS)}
        ordered = _trees(rows)
        for row in ordered:
            self._provider(row)
        reached = {row.id for row in ordered}
        for row in rows.values():
            if row.id not in reached:
                kind = "in a loop of parents, or below a provider that is left out"
                if row.parent_provider_id not in rows:
                    kind = "whose parent does not exist"
                self._leave_out(upstream.PROVIDERS, kind, _described(row))

    def _provider(self, row: SourceProvider) -> None:
        view, id = self._view, ProviderId(row.uuid)
        parent = None
        if row.parent_provider_id is not None:
            parent = self._providers.get(row.parent_provider_id)
            if parent is None:
                kind = "in a loop of parents, or below a provider that is left out"
                return self._leave_out(upstream.PROVIDERS, kind, _described(row))
        if not row.name:
            return self._leave_out(upstream.PROVIDERS, "without a name", row.uuid)
        if not _UUID.match(row.uuid):
            return self._leave_out(upstream.PROVIDERS, "with an invalid uuid", _described(row))
        if id in view.providers or row.name in view.names:
            kind = "with the uuid or name of another"
            return self._leave_out(upstream.PROVIDERS, kind, _described(row))
        placed = Placed(row.name, None if parent is None else parent.id)
        self._happen(ProviderChanged(id, view.free_row(), None, placed))
        times = self._created_s(row.created_at), self._written_s(row.created_at, row.updated_at)
        self._happen(ProviderStamped(id, _UNSTAMPED, Stamp(row.generation or 0, *times)))
        record = self._providers[row.id] = view.providers[id]
        root = self._providers.get(row.root_provider_id) if row.root_provider_id is not None else None
        if root is not record.root:
            kind = "whose root does not match their parents; Berth follows the parents"
            self._findings.note(upstream.PROVIDERS.name, kind, _described(row))
        return None

    def _inventory(self, row: SourceInventory) -> None:
        record = self._providers.get(row.resource_provider_id)
        class_id = self._classes.get(row.resource_class_id)
        example = f"provider {_uuid(record)}, total {row.total}"
        if record is None:
            kind = "of a provider that does not exist or is left out"
            return self._leave_out(upstream.INVENTORIES, kind, f"row {row.id}")
        if class_id is None:
            kind = "of a resource class that does not exist or is left out"
            return self._leave_out(upstream.INVENTORIES, kind, example)
        if class_id in record.inventories:
            kind = "with the same provider and class as another"
            return self._leave_out(upstream.INVENTORIES, kind, example)
        if min(row.min_unit, row.max_unit, row.step_size) < 1 or not math.isfinite(row.allocation_ratio):
            kind = "with a unit or step below 1, or a ratio that is not a number"
            return self._leave_out(upstream.INVENTORIES, kind, example)
        inventory = Inventory(
            row.total,
            row.reserved,
            row.min_unit,
            row.max_unit,
            row.step_size,
            row.allocation_ratio,
            self._written_s(row.created_at, row.updated_at),
        )
        return self._happen(InventoryChanged(record.id, class_id, None, inventory))

    def _provider_traits(self) -> None:
        table = upstream.PROVIDER_TRAITS
        for provider_id, rows in groupby(self._rows(table), attrgetter("resource_provider_id")):
            record, names = self._providers.get(provider_id), []
            for row in rows:
                name = self._traits.get(row.trait_id)
                if record is None or name is None:
                    example = f"provider {provider_id}, trait {row.trait_id}"
                    self._leave_out(
                        table, "of a provider or trait that does not exist or is left out", example
                    )
                else:
                    names.append(name)
            if record is not None and names:
                # In the order of the ledger: standard ones first.
                names.sort(key=lambda name: (name not in STANDARD_TRAITS, name))
                self._happen(TraitsChanged(record.id, (), tuple(names)))

    def _provider_aggregates(self) -> None:
        table = upstream.PROVIDER_AGGREGATES
        for aggregate in self._rows(upstream.AGGREGATES):
            if aggregate.uuid is None:
                self._leave_out(upstream.AGGREGATES, "without a uuid", f"row {aggregate.id}")
            else:
                self._aggregates[aggregate.id] = AggregateId(aggregate.uuid)
        used: set[int] = set()
        for provider_id, rows in groupby(self._rows(table), attrgetter("resource_provider_id")):
            record, uuids = self._providers.get(provider_id), []
            for row in rows:
                uuid = self._aggregates.get(row.aggregate_id)
                if record is None or uuid is None:
                    example = f"provider {provider_id}, aggregate {row.aggregate_id}"
                    kind = "of a provider or aggregate that does not exist or is left out"
                    self._leave_out(table, kind, example)
                else:
                    uuids.append(uuid)
                    used.add(row.aggregate_id)
            if record is not None and uuids:
                self._happen(AggregatesChanged(record.id, (), tuple(uuids)))
        self._count_unused(upstream.AGGREGATES, len(self._aggregates), len(used))

    # -- consumers ------------------------------------------------------------------------------

    def _allocation(self, row: SourceAllocation) -> None:
        record = self._providers.get(row.resource_provider_id)
        class_id = self._classes.get(row.resource_class_id)
        if record is None:
            kind = "of a provider that does not exist or is left out"
        elif class_id is None:
            kind = "of a resource class that does not exist or is left out"
        elif class_id not in record.inventories:
            kind = "of a provider that has no inventory of the class"
        elif row.used < 1:
            kind = "of less than 1"
        else:
            held = _SourceHolding(record, class_id, row.used, self._written_s(row.created_at, row.updated_at))
            return self._held.setdefault(row.consumer_id, []).append(held)
        example = f"consumer {row.consumer_id}, provider {_uuid(record)}, {row.used}"
        return self._leave_out(upstream.ALLOCATIONS, kind, example)

    def _consumers(self) -> None:
        projects = {row.id: row.external_id for row in self._rows(upstream.PROJECTS)}
        users = {row.id: row.external_id for row in self._rows(upstream.USERS)}
        types = {row.id: row.name for row in self._rows(upstream.CONSUMER_TYPES)}
        used: set[tuple[str, str, str | None]] = set()
        for row in self._rows(upstream.CONSUMERS):
            project, user = projects.get(row.project_id), users.get(row.user_id)
            consumer_type = None if row.consumer_type_id is None else types.get(row.consumer_type_id)
            is_typed = row.consumer_type_id is None or consumer_type is not None
            if project is None or user is None or not is_typed:
                self._leave_out_consumer(row, "of a project, user or type that does not exist")
            elif ConsumerId(row.uuid) in self._view.consumers:
                self._leave_out_consumer(row, "with the uuid of another")
            else:
                self._consumer(row, project, user, consumer_type)
                used.add((project, user, consumer_type))
        for consumer, held in self._held.items():
            kind = "of a consumer that does not exist"
            self._leave_out(upstream.ALLOCATIONS, kind, f"consumer {consumer}", len(held))
        self._count_unused(upstream.PROJECTS, len(projects), len({project for project, _, _ in used}))
        self._count_unused(upstream.USERS, len(users), len({user for _, user, _ in used}))
        self._count_unused(upstream.CONSUMER_TYPES, len(types), len({name for _, _, name in used} - {None}))

    def _consumer(self, row: SourceConsumer, project: str, user: str, consumer_type: str | None) -> None:
        held = self._held.pop(row.uuid, [])
        updated_at_s = self._written_s(row.created_at, row.updated_at)
        if held:
            # Placement writes all allocations of a consumer anew: the youngest tells when.
            updated_at_s = max(allocation.written_at_s for allocation in held)
        created_at_s = self._created_s(row.created_at)
        consumer = Consumer(row.generation, project, user, consumer_type, created_at_s, updated_at_s)
        self._happen(ConsumerChanged(ConsumerId(row.uuid), None, consumer, (), self._holdings(row, held)))

    def _holdings(self, row: SourceConsumer, held: list[_SourceHolding]) -> Holdings:
        by_provider: dict[ProviderId, dict[ClassId, int]] = {}
        for allocation in held:
            amounts = by_provider.setdefault(allocation.provider.id, {})
            if allocation.class_id in amounts:
                kind = "with the same consumer, provider and class as another"
                example = f"consumer {row.uuid}, provider {allocation.provider.id}, {allocation.used}"
                self._leave_out(upstream.ALLOCATIONS, kind, example)
            else:
                amounts[allocation.class_id] = allocation.used
        return tuple((id, _amounts(amounts)) for id, amounts in by_provider.items())

    def _leave_out_consumer(self, row: SourceConsumer, kind: str) -> None:
        self._leave_out(upstream.CONSUMERS, kind, f"consumer {row.uuid}")
        held = self._held.pop(row.uuid, None)
        if held is not None:
            kind = "of a consumer that is left out"
            self._leave_out(upstream.ALLOCATIONS, kind, f"consumer {row.uuid}", len(held))

    # -- findings -------------------------------------------------------------------------------

    def _over_capacity(self) -> None:
        for record in self._view.providers.values():
            for class_id, used in record.used.items():
                capacity = record.inventories[class_id].capacity
                if used > capacity:
                    name = self._view.classes.name_of(class_id)
                    self._findings.note(
                        upstream.INVENTORIES.name,
                        "with more used than their capacity; new allocations do not fit until usage drops",
                        f"provider {record.id} ({record.name}), {name}: {used} of {capacity}",
                    )

    def _leave_out(self, table: Table[R], kind: str, example: str, count: int = 1) -> None:
        self._findings.leave_out(table.name, kind, example, count)

    def _count_unused(self, table: Table[R], kept: int, used: int) -> None:
        if kept > used:
            self._findings.unused[table.name] = kept - used

    # -- times ----------------------------------------------------------------------------------

    def _created_s(self, created_at: datetime | None) -> int:
        return self._written_s(created_at, None)

    def _written_s(self, created_at: datetime | None, updated_at: datetime | None) -> int:
        """Placement's times are in UTC, and do not say so."""
        at = updated_at or created_at
        return self._now_s if at is None else int((at - _EPOCH).total_seconds())


def _trees(rows: dict[int, SourceProvider]) -> list[SourceProvider]:
    """Tree by tree, parents before children; without those that no root leads to."""
    children: dict[int | None, list[SourceProvider]] = {}
    for row in rows.values():
        children.setdefault(row.parent_provider_id, []).append(row)
    ordered = []
    waiting = children.pop(None, [])[::-1]
    while waiting:
        row = waiting.pop()
        ordered.append(row)
        waiting.extend(reversed(children.get(row.id, [])))
    return ordered


def _described(row: SourceProvider) -> str:
    return f"{row.uuid} ({row.name})"


def _uuid(record: ProviderRecord | None) -> str:
    return "unknown" if record is None else record.id


def _amounts(amounts: dict[ClassId, int]) -> Amounts:
    return tuple(amounts.items())
