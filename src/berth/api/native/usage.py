"""GET /berth/v1/usage: how much there is, how much is used and how much is free, summed by something.

Policy: the filters ``tree`` and ``aggregate`` choose providers; ``by`` groups them; a row sums, per class,
over the providers of its group. ``project`` narrows ``used`` to what that project holds there (capacity and
free stay what they are); ``resource_class`` leaves the other classes out, and rows that have none of it.
By project, a row sums what the project's consumers hold on the chosen providers, and counts them.

A page costs a look at every key there is, and sums for its own rows only; by resource class, where every
row is about all providers, the sums are made in one pass. Totals by project of the whole ledger are kept
by the view.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from berth.api.http import Request
from berth.api.native import wire
from berth.api.native.classes import class_named
from berth.api.native.pages import first_keys, next_link
from berth.api.native.parameters import UsageQuery
from berth.model.consumer import Holdings
from berth.model.ids import AggregateId, ClassId, ProviderId
from berth.view import ProviderRecord, View
from berth.view.usage import Total

Counts = Callable[[ClassId], bool]


def page(view: View, request: Request, query: UsageQuery) -> wire.Usage:
    class_id = None if query.resource_class is None else class_named(view, query.resource_class)
    usage = _Usage(view, query, lambda id: class_id is None or id == class_id)
    keys, more = first_keys(usage.keys(), query.marker, query.limit)
    return wire.Usage(
        query.by,
        usage.rows(keys),
        next_link(request, query, keys[-1]) if more else None,
    )


class _Usage:
    """One question about usage. ``counts`` says which classes are of interest."""

    def __init__(self, view: View, query: UsageQuery, counts: Counts) -> None:
        self._view = view
        self._query = query
        self._counts = counts
        self._scope = _scope(view, query)

    def keys(self) -> Iterable[str]:
        """What there are rows of, in no order, each once."""
        match self._query.by:
            case "provider":
                return (record.id for record in self._providers() if self._has(record))
            case "root":
                return {record.root.id for record in self._providers() if self._has(record)}
            case "aggregate":
                records = filter(self._has, self._providers())
                return {aggregate for record in records for aggregate in record.aggregates}
            case "project":
                return self._projects()
            case "resource_class":
                return self._class_sums

    def rows(self, keys: list[str]) -> list[wire.UsageRow]:
        project = self._query.project
        match self._query.by:
            case "provider":
                records = [self._view.providers[ProviderId(key)] for key in keys]
                return [wire.UsageRow(r.id, r.name, self._sums((r,), project)) for r in records]
            case "root":
                roots = [self._view.providers[ProviderId(key)] for key in keys]
                return [wire.UsageRow(r.id, r.name, self._sums(self._of_tree(r), project)) for r in roots]
            case "aggregate":
                members = [self._of_aggregate(AggregateId(key)) for key in keys]
                sums = [self._sums(records, project) for records in members]
                return [wire.UsageRow(key, None, own) for key, own in zip(keys, sums, strict=True)]
            case "project":
                return [self._project_row(key) for key in keys]
            case "resource_class":
                return [wire.UsageRow(key, None, {key: self._class_sums[key]}) for key in keys]

    # -- which providers ------------------------------------------------------------------------

    def _providers(self) -> Iterable[ProviderRecord]:
        return self._view.providers.values() if self._scope is None else self._scope.values()

    def _has(self, record: ProviderRecord) -> bool:
        return self._query.resource_class is None or any(map(self._counts, record.inventories))

    def _in_scope(self, id: ProviderId) -> bool:
        return self._scope is None or id in self._scope

    def _of_tree(self, root: ProviderRecord) -> Iterator[ProviderRecord]:
        return (record for record in root.tree() if self._in_scope(record.id))

    def _of_aggregate(self, aggregate: AggregateId) -> Iterator[ProviderRecord]:
        records = (self._view.record(row) for row in self._view.rows_in_aggregate(aggregate))
        return (record for record in records if self._in_scope(record.id))

    # -- sums -----------------------------------------------------------------------------------

    @cached_property
    def _class_sums(self) -> dict[str, wire.Amount]:
        project = self._query.project
        if project is None or self._scope is not None:
            return self._sums(self._providers(), project)
        # What a project uses everywhere is known without asking every provider.
        sums = self._sums(self._providers(), None)
        held = self._project_row(project).used or {}
        for name, amount in sums.items():
            amount.used = held.get(name, 0)
        return sums

    def _sums(self, providers: Iterable[ProviderRecord], project: str | None) -> dict[str, wire.Amount]:
        """By class; ``used`` is what the project uses, or everybody."""
        sums: dict[ClassId, wire.Amount] = {}
        for record in providers:
            used = record.used if project is None else self._held_by(project, record)
            for id, inventory in record.inventories.items():
                if not self._counts(id):
                    continue
                amount = sums.get(id)
                if amount is None:
                    amount = sums[id] = wire.Amount(0, 0, 0)
                capacity = inventory.capacity
                amount.capacity += capacity
                amount.used += used.get(id, 0)
                amount.free += max(capacity - record.used.get(id, 0), 0)
        return {self._view.classes.name_of(id): sums[id] for id in sorted(sums)}

    def _held_by(self, project: str, record: ProviderRecord) -> dict[ClassId, int]:
        held: dict[ClassId, int] = {}
        for consumer in record.consumers:
            holder = self._view.consumers[consumer]
            if holder.consumer.project == project:
                for provider, amounts in holder.held:
                    if provider == record.id:
                        for id, amount in amounts:
                            held[id] = held.get(id, 0) + amount
        return held

    # -- by project -----------------------------------------------------------------------------

    @cached_property
    def _project_sums(self) -> dict[str, Total]:
        """What projects hold on the chosen providers, where those are not all."""
        sums: dict[str, Total] = {}
        for id in {consumer for record in self._providers() for consumer in record.consumers}:
            holder = self._view.consumers[id]
            here: Holdings = tuple(holding for holding in holder.held if self._in_scope(holding[0]))
            sums.setdefault(holder.consumer.project, Total()).add(here, +1)
        return sums

    def _totals(self, project: str) -> Iterable[Total]:
        if self._scope is None:
            return (total for _, total in self._view.usage.of_project(project))
        return (self._project_sums[project],) if project in self._project_sums else ()

    def _projects(self) -> Iterable[str]:
        if self._query.project is not None:
            projects = {self._query.project}
        elif self._scope is None:
            projects = {record.consumer.project for record in self._view.consumers.values()}
        else:
            projects = set(self._project_sums)
        return (project for project in projects if any(self._counted(project)))

    def _counted(self, project: str) -> Iterator[tuple[ClassId, int]]:
        for total in self._totals(project):
            yield from ((id, amount) for id, amount in total.amounts.items() if self._counts(id))

    def _project_row(self, project: str) -> wire.UsageRow:
        used: dict[str, int] = {}
        for id, amount in sorted(self._counted(project)):
            name = self._view.classes.name_of(id)
            used[name] = used.get(name, 0) + amount
        consumers = sum(total.consumers for total in self._totals(project))
        return wire.UsageRow(project, used=used, consumers=consumers)


def _scope(view: View, query: UsageQuery) -> dict[ProviderId, ProviderRecord] | None:
    """The providers that the filters choose; None for all."""
    if query.tree is None and query.aggregate is None:
        return None
    if query.tree is None:
        rows = view.rows_in_aggregate(AggregateId(query.aggregate or ""))
        return {record.id: record for record in map(view.record, rows)}
    record = view.providers.get(ProviderId(query.tree.lower()))
    tree = () if record is None else record.tree()
    return {
        record.id: record
        for record in tree
        if query.aggregate is None or AggregateId(query.aggregate) in record.aggregates
    }
