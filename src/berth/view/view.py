"""The view: apply an event, and everything that can be asked of the state follows.

Replaying a journal on an empty view gives the same view, column for column. Rows are part of that: an
event names the row a provider takes, and ``free_row`` is always the smallest one not in use, whatever
was taken back in between.

A ``Trial`` applies events and always takes them back: plans, dry runs and explanations are made on trials.

Work on a view is counted in steps, about a microsecond each on an idle machine. Code that works on a view
takes steps where the work grows with the request or with the fleet: a mask over all rows, a claim that is
judged, a choice that a search makes, an entry that is rendered. Steps are counted and not timed, so that the
same question on the same view always costs the same. Mostly there is no limit. The engine sets one while it
works for one caller and all others wait: work that needs more ends with ``OutOfSteps``, has changed nothing,
and is done again where no other request waits for it.
"""

import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth.model.events import (
    AggregateLabelled,
    AggregatesChanged,
    ConsumerChanged,
    Event,
    GroupChanged,
    HostChanged,
    InventoryChanged,
    MemberChanged,
    ProviderChanged,
    ProviderStamped,
    RecordChanged,
    ResourceClassChanged,
    TraitChanged,
    TraitsChanged,
    inverse,
)
from berth.model.formats import FORMAT
from berth.model.ids import AggregateId, ConsumerId, Index, ProviderId, Row
from berth.model.placement import (
    CLASSES_OF_HOSTS,
    HEALTHY,
    SHARES_VIA_AGGREGATE,
    STANDARD_TRAITS,
    Amounts,
    Consumer,
    Holdings,
    HostStatus,
)
from berth.view.consumers import ConsumerIndex, ConsumerRecord, UsageTotals
from berth.view.groups import Groups, hosts_of
from berth.view.provider import ProviderRecord
from berth.view.records import ProjectCounts, Records
from berth.view.resource_classes import ResourceClasses
from berth.view.sets import Mask, OrderedIds, RowSet

UNLIMITED: Final = sys.maxsize

_STEPS_PER_EVENT: Final = 6
"""To apply it in a trial, and to take it back."""

_SHARED_MAX: Final = 50_000
"""How many values are kept for sharing; beyond that the table is cleared. Only memory is lost."""

_NO_ROWS: Final = RowSet()

V = TypeVar("V", str, Amounts)
K = TypeVar("K", bound=str)


class OutOfSteps(Exception):
    """The work takes more steps than it may take here. The view is as it was before."""


class Steps:
    """``left`` is how many steps may still be taken. ``begin`` and ``end`` belong to the engine; steps may be
    taken only where the view can be left as it is: never between an event and its inverse without a trial
    around them."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = UNLIMITED

    def begin(self, limit: int) -> None:
        """Allow this many steps until ``end``."""
        self.left = limit

    def end(self) -> None:
        self.left = UNLIMITED

    def take(self, count: int) -> None:
        """Count steps before they are taken; OutOfSteps if there are not as many left."""
        self.left -= count
        if self.left < 0:
            raise OutOfSteps


class View:
    """All state of a ledger at ``index``. Changed by ``apply`` alone; everyone else reads."""

    def __init__(self) -> None:
        self.index = Index(0)
        self.format = FORMAT
        """The journal's at this index: what is newer must not be written (``model.formats``)."""
        self.steps = Steps()
        self.classes = ResourceClasses()
        self.custom_traits: dict[str, int] = {}
        self.providers: dict[ProviderId, ProviderRecord] = {}
        self.names: dict[str, ProviderRecord] = {}
        self.rows: list[ProviderRecord | None] = []
        self.nested_count = 0
        self.provider_order: OrderedIds[ProviderId] = OrderedIds()
        self.consumers: dict[ConsumerId, ConsumerRecord] = {}
        self.consumer_index = ConsumerIndex(self.consumers)
        self.usage = UsageTotals()
        self.groups = Groups()
        self.hosts: dict[ProviderId, HostStatus] = {}
        self.disabled = RowSet()
        self.down = RowSet()
        self.records = Records()
        self.project_counts = ProjectCounts()
        self._free_rows: list[Row] = []
        self._root_rows: NDArray[np.int32] = np.zeros(16, np.int32)
        self._parent_rows: NDArray[np.int32] = np.zeros(16, np.int32)
        self._by_trait: dict[str, RowSet] = {}
        self._by_aggregate: dict[AggregateId, RowSet] = {}
        self._texts: dict[str, str] = {}
        self._amounts: dict[Amounts, Amounts] = {}
        self._last_shared: Consumer | None = None
        self._appliers: dict[type[Any], Callable[[Any], None]] = {
            ResourceClassChanged: self._resource_class_changed,
            TraitChanged: self._trait_changed,
            ProviderChanged: self._provider_changed,
            ProviderStamped: self._provider_stamped,
            InventoryChanged: self._inventory_changed,
            TraitsChanged: self._traits_changed,
            AggregatesChanged: self._aggregates_changed,
            ConsumerChanged: self._consumer_changed,
            AggregateLabelled: self._aggregate_labelled,
            HostChanged: self._host_changed,
            GroupChanged: self._group_changed,
            MemberChanged: self._member_changed,
            RecordChanged: self._record_changed,
        }

    # -- reading --------------------------------------------------------------------------------

    @property
    def row_end(self) -> int:
        """One past the last row in use; masks are this long."""
        return len(self.rows)

    def record(self, row: Row) -> ProviderRecord:
        """The provider in a row that is in use."""
        record = self.rows[row]
        assert record is not None, f"row {row} is not in use"
        return record

    def free_row(self) -> Row:
        """The smallest row not in use: where the next provider goes."""
        while self._free_rows and self.rows[self._free_rows[0]] is not None:
            heapq.heappop(self._free_rows)
        return self._free_rows[0] if self._free_rows else Row(len(self.rows))

    @property
    def root_rows(self) -> NDArray[np.int32]:
        """The row of its root, for every row in use. Not to be written to."""
        return self._root_rows[: len(self.rows)]

    @property
    def parent_rows(self) -> NDArray[np.int32]:
        """The row of its parent, for every row in use; its own, for a root. Not to be written to."""
        return self._parent_rows[: len(self.rows)]

    def roots(self) -> Mask:
        """The rows of providers that have no parent."""
        mask: Mask = self.parent_rows == np.arange(self.row_end)
        mask[[row for row in self._free_rows if self.rows[row] is None]] = False
        return mask

    def has_trait(self, name: str) -> bool:
        """Whether there is such a trait at all."""
        return name in STANDARD_TRAITS or name in self.custom_traits

    def rows_with_trait(self, name: str) -> RowSet:
        return self._by_trait.get(name) or _NO_ROWS

    def rows_in_aggregate(self, aggregate: AggregateId) -> RowSet:
        return self._by_aggregate.get(aggregate) or _NO_ROWS

    def traits_in_use(self) -> Iterable[str]:
        return self._by_trait.keys()

    def aggregates_in_use(self) -> Iterable[AggregateId]:
        return self._by_aggregate.keys()

    def is_pool(self, record: ProviderRecord) -> bool:
        """Whether it shares what it has through aggregates, stands alone, and runs nothing itself. All other
        roots are hosts."""
        if record.parent is not None or record.children or SHARES_VIA_AGGREGATE not in record.traits:
            return False
        return not any(self.classes.name_of(id) in CLASSES_OF_HOSTS for id in record.inventories)

    def hosts_held(self, held: Holdings) -> list[ProviderRecord]:
        """The hosts on which a consumer with these holdings stands."""
        return hosts_of(held, self.providers, self.rows_with_trait(SHARES_VIA_AGGREGATE))

    # -- changing -------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        self._appliers[type(event)](event)

    def _resource_class_changed(self, event: ResourceClassChanged) -> None:
        self.classes.change(event.id, event.after)

    def _trait_changed(self, event: TraitChanged) -> None:
        if event.after is None:
            del self.custom_traits[event.name]
        else:
            self.custom_traits[event.name] = event.after

    def _provider_changed(self, event: ProviderChanged) -> None:
        if event.before is None:
            record = self._add_provider(event)
        else:
            record = self.providers[event.id]
            del self.names[record.name]
            self.nested_count -= record.parent is not None
        if event.after is None:
            self._remove_provider(record)
            return
        record.name = event.after.name
        self.names[record.name] = record
        record.place(self.providers[event.after.parent] if event.after.parent is not None else None)
        self.nested_count += record.parent is not None
        self._parent_rows[record.row] = record.row if record.parent is None else record.parent.row
        for below in record.subtree():
            self._root_rows[below.row] = record.root.row
        if event.before is not None and event.before.parent != event.after.parent:
            self._place_members()

    def _add_provider(self, event: ProviderChanged) -> ProviderRecord:
        assert event.after is not None
        record = ProviderRecord(event.id, event.row, event.after.name)
        while len(self.rows) <= event.row:
            if len(self.rows) < event.row:
                # A snapshot has no providers in rows that became free: these still are.
                heapq.heappush(self._free_rows, Row(len(self.rows)))
            self.rows.append(None)
        if len(self.rows) > len(self._root_rows):
            self._root_rows = np.resize(self._root_rows, 2 * len(self.rows))
            self._parent_rows = np.resize(self._parent_rows, 2 * len(self.rows))
        assert self.rows[event.row] is None, f"row {event.row} is taken"
        if self._free_rows and self._free_rows[0] == event.row:
            heapq.heappop(self._free_rows)
        self.rows[event.row] = record
        self.providers[event.id] = record
        self.provider_order.add(event.id)
        return record

    def _remove_provider(self, record: ProviderRecord) -> None:
        record.unplace()
        self.rows[record.row] = None
        heapq.heappush(self._free_rows, record.row)
        del self.providers[record.id]
        self.provider_order.remove(record.id)

    def _provider_stamped(self, event: ProviderStamped) -> None:
        self.providers[event.id].stamp = event.after

    def _inventory_changed(self, event: InventoryChanged) -> None:
        record = self.providers[event.provider]
        class_id, after = event.resource_class, event.after
        column = self.classes.column(class_id)
        if after is None:
            del record.inventories[class_id]
            column.remove(record.row)
        else:
            record.inventories[class_id] = after
            column.put(record.row, after, record.used.get(class_id, 0))
        record.root.revision += 1

    def _traits_changed(self, event: TraitsChanged) -> None:
        record = self.providers[event.provider]
        _move(self._by_trait, record.row, event.before, event.after)
        record.traits = event.after
        record.root.revision += 1
        if (SHARES_VIA_AGGREGATE in event.before) != (SHARES_VIA_AGGREGATE in event.after):
            self._place_members()

    def _aggregates_changed(self, event: AggregatesChanged) -> None:
        record = self.providers[event.provider]
        _move(self._by_aggregate, record.row, event.before, event.after)
        record.aggregates = event.after
        self.groups.forget_domains()

    def _consumer_changed(self, event: ConsumerChanged) -> None:
        id = event.id
        if id in self.groups.memberships:
            self.groups.stand(id, self.hosts_held(event.held_before), -1)
            self.groups.stand(id, self.hosts_held(event.held_after), +1)
        if event.before is not None:
            self._hold(id, event.held_before, -1)
            self.usage.remove(event.before, event.held_before)
        if event.after is None:
            del self.consumers[id]
            self.consumer_index.remove(id)
            return
        consumer, held = self._shared(event.after), self._shared_holdings(event.held_after)
        self._hold(id, held, +1)
        self.usage.add(consumer, held)
        record = self.consumers.get(id)
        if record is None:
            self.consumers[id] = ConsumerRecord(consumer, held)
            self.consumer_index.add(id, consumer)
        else:
            before, record.consumer, record.held = record.consumer, consumer, held
            self.consumer_index.change(id, before, consumer)

    def _hold(self, consumer: ConsumerId, held: Holdings, sign: int) -> None:
        for provider, amounts in held:
            record = self.providers[provider]
            if sign > 0:
                record.consumers.add(consumer)
            else:
                record.consumers.discard(consumer)
            used = record.used
            for class_id, amount in amounts:
                total = used.get(class_id, 0) + sign * amount
                if total:
                    used[class_id] = total
                else:
                    del used[class_id]
                self.classes.column(class_id).take(record.row, sign * amount)
            record.root.revision += 1

    def _aggregate_labelled(self, event: AggregateLabelled) -> None:
        self.groups.label(event.id, event.before, event.after)

    def _host_changed(self, event: HostChanged) -> None:
        row = self.providers[event.provider].row
        after = event.after or HEALTHY
        for rows, is_in in ((self.disabled, after.disabled), (self.down, after.down)):
            if is_in:
                rows.add(row)
            else:
                rows.discard(row)
        if event.after is None:
            del self.hosts[event.provider]
        else:
            self.hosts[event.provider] = event.after

    def _group_changed(self, event: GroupChanged) -> None:
        self.groups.change(event.id, event.after)
        self.project_counts.change(event.before, event.after)

    def _member_changed(self, event: MemberChanged) -> None:
        record = self.consumers.get(event.consumer)
        hosts = self.hosts_held(record.held) if record is not None else []
        if event.before is not None:
            self.groups.leave(event.consumer, hosts)
        if event.after is not None:
            self.groups.join(event.consumer, event.after, hosts)

    def _record_changed(self, event: RecordChanged) -> None:
        self.records.change(event.before, event.after)
        self.project_counts.change(event.before, event.after)

    def _place_members(self) -> None:
        """The forest has changed: where members stand may have, too."""
        members = ((id, self.consumers.get(id)) for id in self.groups.memberships)
        self.groups.place_all((id, self.hosts_held(record.held)) for id, record in members if record)

    # -- sharing --------------------------------------------------------------------------------
    # A fleet has a million consumers of few projects, users and flavors. Equal values are kept once.

    def shared_text(self, text: str) -> str:
        return _once(self._texts, text)

    def shared_amounts(self, amounts: Amounts) -> Amounts:
        return _once(self._amounts, amounts)

    def _shared(self, consumer: Consumer) -> Consumer:
        # The consumers of one command are mostly alike.
        if self._last_shared is None or self._last_shared != consumer:
            self._last_shared = Consumer(
                consumer.generation,
                self.shared_text(consumer.project),
                self.shared_text(consumer.user),
                None if consumer.type is None else self.shared_text(consumer.type),
                consumer.created_at_s,
                consumer.updated_at_s,
                self.shared_text(consumer.made_by),
            )
        return self._last_shared

    def _shared_holdings(self, held: Holdings) -> Holdings:
        # Not from a generator: that takes twice as long.
        return tuple([(self.providers[id].id, _once(self._amounts, amounts)) for id, amounts in held])

    # -- comparing ------------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """Everything, in a canonical form: two views are the same when this is."""
        return {
            "classes": self.classes.state(),
            "traits": dict(sorted(self.custom_traits.items())),
            "providers": {record.row: _provider_state(record) for record in self.rows if record is not None},
            "names": {name: record.id for name, record in sorted(self.names.items())},
            "roots": {row: int(self._root_rows[row]) for row, record in enumerate(self.rows) if record},
            "parents": {row: int(self._parent_rows[row]) for row, record in enumerate(self.rows) if record},
            "provider_order": list(self.provider_order),
            "free_row": self.free_row(),
            "nested": self.nested_count,
            "by_trait": {name: sorted(rows) for name, rows in sorted(self._by_trait.items())},
            "by_aggregate": {id: sorted(rows) for id, rows in sorted(self._by_aggregate.items())},
            "consumers": {id: (r.consumer, r.held) for id, r in sorted(self.consumers.items())},
            "consumer_index": list(self.consumer_index.behind()),
            "usage": self.usage.state(),
            "groups": self.groups.state(),
            "hosts": dict(sorted(self.hosts.items())),
            "disabled": sorted(self.disabled),
            "down": sorted(self.down),
            "records": self.records.state(),
            "project_counts": self.project_counts.state(),
        }


def _once(seen: dict[V, V], value: V) -> V:
    if len(seen) > _SHARED_MAX:
        seen.clear()
    return seen.setdefault(value, value)


def _move(sets: dict[K, RowSet], row: Row, before: tuple[K, ...], after: tuple[K, ...]) -> None:
    """Take a row out of the sets of ``before`` and put it into those of ``after``."""
    kept = set(before).intersection(after)
    for key in before:
        if key not in kept:
            rows = sets[key]
            rows.discard(row)
            if not rows:
                del sets[key]
    for key in after:
        if key not in kept:
            rows = sets.get(key) or RowSet()
            rows.add(row)
            sets[key] = rows


def _provider_state(record: ProviderRecord) -> tuple[object, ...]:
    return (
        record.id,
        record.name,
        record.parent.row if record.parent else None,
        record.root.row,
        sorted(record.children),
        [below.row for below in record.tree()],
        record.stamp,
        dict(sorted(record.inventories.items())),
        dict(sorted(record.used.items())),
        record.traits,
        record.aggregates,
        sorted(record.consumers),
    )


class Trial:
    """``with Trial(view) as trial``: the events that are applied through it are taken back, however it ends.
    Nothing else may read the view while a trial is open."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._applied: list[Event] = []

    def apply(self, events: Sequence[Event]) -> None:
        self._view.steps.take(_STEPS_PER_EVENT * len(events))
        for event in events:
            self._view.apply(event)
            self._applied.append(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for event in reversed(self._applied):
            self._view.apply(inverse(event))
        self._applied.clear()
