"""What each project has, summed up as records come and go: a create need not count a million servers."""

from berth.model.events import AnyRecord
from berth.model.groups import Group
from berth.model.quotas import Amounts, amounts_of


class ProjectCounts:
    """Changed by the view alone."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}

    def of(self, project: str) -> Amounts:
        return self._sums.get(project, {})

    def change(self, before: AnyRecord | Group | None, after: AnyRecord | Group | None) -> None:
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
