"""Who uses how much: totals by project, user and consumer type, kept as allocations change."""

from collections.abc import Iterable, Iterator

from berth.model.events import AnyRecord
from berth.model.groups import Group
from berth.model.ids import ClassId
from berth.model.placement import Consumer, Holdings
from berth.model.quotas import Amounts, amounts_of, is_counted


class Total:
    """What the consumers of one project, user and type hold together."""

    __slots__ = ("amounts", "consumers")

    def __init__(self) -> None:
        self.consumers = 0
        self.amounts: dict[ClassId, int] = {}

    def add(self, held: Holdings, sign: int) -> None:
        self.consumers += sign
        for _, amounts in held:
            for class_id, amount in amounts:
                total = self.amounts.get(class_id, 0) + sign * amount
                if total:
                    self.amounts[class_id] = total
                else:
                    del self.amounts[class_id]


class UsageTotals:
    """Totals of consumers that hold anything; one that holds nothing is in none."""

    __slots__ = ("_by_project",)

    def __init__(self) -> None:
        self._by_project: dict[str, dict[tuple[str, str | None], Total]] = {}

    def add(self, consumer: Consumer, held: Holdings) -> None:
        if held:
            totals = self._by_project.setdefault(consumer.project, {})
            key = (consumer.user, consumer.type)
            total = totals.get(key)
            if total is None:
                total = totals[key] = Total()
            total.add(held, +1)

    def remove(self, consumer: Consumer, held: Holdings) -> None:
        if held:
            totals = self._by_project[consumer.project]
            key = (consumer.user, consumer.type)
            total = totals[key]
            total.add(held, -1)
            if not total.consumers:
                del totals[key]
                if not totals:
                    del self._by_project[consumer.project]

    def of_project(self, project: str, user: str | None = None) -> Iterator[tuple[str | None, Total]]:
        """The totals of a project (of one user there), each with its consumer type."""
        for (total_user, consumer_type), total in self._by_project.get(project, {}).items():
            if user is None or user == total_user:
                yield consumer_type, total

    def projects(self) -> Iterable[str]:
        """The projects whose consumers hold anything."""
        return self._by_project.keys()

    def state(self) -> dict[str, object]:
        return {
            project: {
                key: (total.consumers, dict(sorted(total.amounts.items())))
                for key, total in sorted(totals.items(), key=repr)
            }
            for project, totals in sorted(self._by_project.items())
        }


class ProjectCounts:
    """Changed by the view alone."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}

    def of(self, project: str) -> Amounts:
        return self._sums.get(project, {})

    def change(self, before: AnyRecord | Group | None, after: AnyRecord | Group | None) -> None:
        if not is_counted(after or before):
            return
        gone, come = amounts_of(before), amounts_of(after)
        if gone != come:
            self._add(*gone, -1)
            self._add(*come, +1)

    def _add(self, project: str, amounts: Amounts, sign: int) -> None:
        if not amounts:
            return
        sums = self._sums.setdefault(project, {})
        for name, amount in amounts.items():
            total = sums.get(name, 0) + sign * amount
            if total:
                sums[name] = total
            else:
                sums.pop(name, None)
        if not sums:
            del self._sums[project]

    def state(self) -> dict[str, dict[str, int]]:
        return {project: dict(sorted(sums.items())) for project, sums in sorted(self._sums.items())}
