"""GET /berth/v1/usage: how much there is, how much is used and how much is free, summed by something.

Policy: the filters ``tree`` and ``aggregate`` choose providers; ``by`` groups them; a row sums, per class,
over the providers of its group. ``project`` narrows ``used`` to what that project holds there (capacity and
free stay what they are); ``resource_class`` leaves the other classes out, and rows that have none of it.
A pool is no host: it has a row by provider, and none by root.
By project, a row sums what the project's consumers hold on the chosen providers, and counts them.

A page costs what its rows are about: keys are read off what the view keeps in order, or sorted where they are
few. Sums by resource class over all providers are those of the view's columns, in which a capacity beyond
2**62 counts as that; totals by project of the whole ledger are kept by the view.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.native.allocations import Project, Tree, find_class, find_provider
from berth.api.native.calls import NativeCall, NativeRoute, answer_from
from berth.api.native.fields import LIMIT_DEFAULT, Amounts, KeyMarker, Limit, Next, ResourceClass
from berth.model.ids import AggregateId, ClassId, ProviderId, Row
from berth.model.placement import Holdings
from berth.view import ProviderRecord, View
from berth.view.consumers import Total


class Amount(msgspec.Struct):
    """``free`` is summed over providers; one that is over its capacity has nothing free, not less."""

    capacity: int
    used: int
    free: int


class UsageRow(msgspec.Struct, omit_defaults=True):
    """Totals of one ``key``: a uuid, a project or the name of a class, depending on ``by``.

    ``name`` is the provider's, by provider and by root. By project there is no capacity of its own:
    ``used`` and ``consumers`` stand there in place of ``resources``.
    """

    key: str
    name: str | None = None
    resources: dict[str, Amount] | None = None
    used: Amounts | None = None
    consumers: int | None = None


class Usage(msgspec.Struct):
    """A page of totals, in the order of their keys."""

    by: str
    usage: list[UsageRow]
    next: Next = None


Aggregate = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F-]{32,36}\\Z",
        description="Only what is on providers of this aggregate, spelled as its writer spelled it.",
    ),
]
By = Annotated[
    Literal["provider", "root", "aggregate", "project", "resource_class"],
    Meta(description="What a row is a total of."),
]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    by: By
    tree: Tree | None = None
    aggregate: Aggregate | None = None
    project: Project | None = None
    resource_class: ResourceClass | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


def show_usage(view: View, call: NativeCall) -> Usage:
    query: UsageQuery = call.query
    class_id = None if query.resource_class is None else find_class(view, query.resource_class)
    usage = _Usage(view, query, class_id)
    keys, more = take_first(usage.keys(), query.limit)
    rows = dict(zip(keys, usage.rows(keys), strict=True))
    return Usage(query.by, *render_keys(call.request, query, keys, more, rows.__getitem__))


class _Usage:
    """One question about usage: of one class, or of all."""

    def __init__(self, view: View, query: UsageQuery, class_id: ClassId | None) -> None:
        self._view = view
        self._query = query
        self._class_id = class_id
        self._scope = _scope(view, query)

    def keys(self) -> Iterable[str]:
        """The keys of rows behind the marker, in order."""
        marker = self._query.marker
        match self._query.by:
            case "project":
                return (project for project in behind(self._projects(), marker) if self._uses(project))
            case "resource_class":
                return behind(self._classes(), marker)
            case _ if self._few is not None:
                return behind({key for record in self._few for key in self._keys_of(record)}, marker)
            case "aggregate":
                keys: Iterable[str] = behind(self._view.aggregates_in_use(), marker)
            case "provider" | "root":
                keys = self._view.provider_order.behind(marker)
        return (key for key in keys if any(map(self._has, self._members(key))))

    def rows(self, keys: list[str]) -> list[UsageRow]:
        match self._query.by:
            case "project":
                return [self._project_row(key) for key in keys]
            case "resource_class":
                return [UsageRow(key, None, {key: self._class_sum(key)}) for key in keys]
        return [UsageRow(key, self._name_of(key), self._sums(self._members(key))) for key in keys]

    # -- which providers ------------------------------------------------------------------------

    @cached_property
    def _few(self) -> list[ProviderRecord] | None:
        """The providers that rows are about; None if they are so many that all are better walked in order.

        Walking takes about ``limit * providers / having`` steps to fill a page, sorting takes ``having``.
        """
        if self._scope is not None:
            return list(filter(self._has, self._scope.values()))
        if self._class_id is None:
            return None
        rows = self._view.classes.column(self._class_id).rows()
        if len(rows) ** 2 > self._query.limit * len(self._view.providers):
            return None
        return [self._view.record(Row(row)) for row in rows.tolist()]

    def _keys_of(self, record: ProviderRecord) -> Iterable[str]:
        match self._query.by:
            case "aggregate":
                return record.aggregates
            case "root":
                return () if self._view.is_pool(record) else (record.root.id,)
        return (record.id,)

    def _members(self, key: str) -> Iterable[ProviderRecord]:
        """The chosen providers that a row sums over."""
        if self._query.by == "aggregate":
            records: Iterable[ProviderRecord] = map(
                self._view.record, self._view.rows_in_aggregate(AggregateId(key))
            )
        else:
            record = self._view.providers[ProviderId(key)]
            if self._query.by == "provider":
                return (record,)
            is_host = record.root is record and not self._view.is_pool(record)
            records = record.tree() if is_host else ()
        return records if self._scope is None else (it for it in records if it.id in self._scope)

    def _name_of(self, key: str) -> str | None:
        return None if self._query.by == "aggregate" else self._view.providers[ProviderId(key)].name

    def _has(self, record: ProviderRecord) -> bool:
        return self._class_id is None or self._class_id in record.inventories

    # -- sums -----------------------------------------------------------------------------------

    def _sums(self, providers: Iterable[ProviderRecord]) -> dict[str, Amount]:
        """By class; ``used`` is what the project uses, or everybody."""
        project = self._query.project
        sums: dict[ClassId, Amount] = {}
        for record in providers:
            self._view.steps.take(2 + 2 * len(record.inventories))
            used = record.used if project is None else self._held_by(project, record)
            for id, inventory in record.inventories.items():
                if not self._counts(id):
                    continue
                amount = sums.get(id)
                if amount is None:
                    amount = sums[id] = Amount(0, 0, 0)
                capacity = inventory.capacity
                amount.capacity += capacity
                amount.used += used.get(id, 0)
                amount.free += max(capacity - record.used.get(id, 0), 0)
        return {self._view.classes.name_of(id): sums[id] for id in sorted(sums)}

    def _counts(self, id: ClassId) -> bool:
        return self._class_id is None or self._class_id == id

    def _held_by(self, project: str, record: ProviderRecord) -> dict[ClassId, int]:
        held: dict[ClassId, int] = {}
        self._view.steps.take(len(record.consumers))
        for consumer in record.consumers:
            holder = self._view.consumers[consumer]
            if holder.consumer.project == project:
                for provider, amounts in holder.held:
                    if provider == record.id:
                        for id, amount in amounts:
                            held[id] = held.get(id, 0) + amount
        return held

    # -- by class -------------------------------------------------------------------------------

    @cached_property
    def _scope_sums(self) -> dict[str, Amount]:
        return self._sums(self._scope.values() if self._scope is not None else ())

    @cached_property
    def _held_everywhere(self) -> dict[str, int] | None:
        """What the project holds of each class; None if no project is asked for."""
        project = self._query.project
        return None if project is None else self._project_row(project).used or {}

    def _classes(self) -> Iterable[str]:
        if self._scope is not None:
            return self._scope_sums
        classes = self._view.classes
        return (classes.name_of(id) for id in classes.in_inventories() if self._counts(id))

    def _class_sum(self, name: str) -> Amount:
        if self._scope is not None:
            return self._scope_sums[name]
        capacity, used, free = self._view.classes.column(find_class(self._view, name)).sums()
        held = self._held_everywhere
        return Amount(capacity, used if held is None else held.get(name, 0), free)

    # -- by project -----------------------------------------------------------------------------

    @cached_property
    def _project_sums(self) -> dict[str, Total]:
        """What projects hold on the chosen providers, where those are not all."""
        sums: dict[str, Total] = {}
        scope = self._scope or {}
        for id in {consumer for record in scope.values() for consumer in record.consumers}:
            holder = self._view.consumers[id]
            here: Holdings = tuple(holding for holding in holder.held if holding[0] in scope)
            sums.setdefault(holder.consumer.project, Total()).add(here, +1)
        return sums

    def _totals(self, project: str) -> Iterable[Total]:
        if self._scope is None:
            return (total for _, total in self._view.usage.of_project(project))
        return (self._project_sums[project],) if project in self._project_sums else ()

    def _projects(self) -> Iterable[str]:
        if self._query.project is not None:
            return (self._query.project,)
        return self._view.usage.projects() if self._scope is None else self._project_sums

    def _uses(self, project: str) -> bool:
        """Whether the project has anything, or anything of the class."""
        return any(self._class_id is None or self._class_id in it.amounts for it in self._totals(project))

    def _project_row(self, project: str) -> UsageRow:
        used: dict[ClassId, int] = {}
        consumers = 0
        for total in self._totals(project):
            consumers += total.consumers
            for id, amount in total.amounts.items():
                used[id] = used.get(id, 0) + amount
        named = {self._view.classes.name_of(id): used[id] for id in sorted(used) if self._counts(id)}
        return UsageRow(project, used=named, consumers=consumers)


def _scope(view: View, query: UsageQuery) -> dict[ProviderId, ProviderRecord] | None:
    """The providers that the filters choose; None for all."""
    if query.tree is None and query.aggregate is None:
        return None
    if query.tree is None:
        rows = view.rows_in_aggregate(AggregateId(query.aggregate or ""))
        return {record.id: record for record in map(view.record, rows)}
    record = find_provider(view, query.tree)
    tree = () if record is None else record.tree()
    return {
        record.id: record
        for record in tree
        if query.aggregate is None or AggregateId(query.aggregate) in record.aggregates
    }


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/usage",
        answer_from(show_usage),
        policy="berth:usage:show",
        name="show_usage",
        query=UsageQuery,
        answer=Usage,
        summary="Sum up capacity, use and what is free",
        description="Totals per resource class, by provider, root (host), aggregate, project or resource "
        "class. With `project`, `used` is what that project uses.",
    ),
)
