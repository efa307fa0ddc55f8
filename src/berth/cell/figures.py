"""The figures of a cell that follow from its view, for ``/metrics``: hosts, and saga runs under way."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from berth.model.saga_runs import Agent, SagaRun
from berth.runtime.metrics import Family
from berth.runtime.telemetry import Figures
from berth.sagas.runner import is_away, is_finished, saga_of
from berth.view import View

HOSTS: Final = Family(
    "berth_hosts", "Hosts by state: up, down; in a region also disabled.", "gauge", ("state",)
)
COMPLAINING: Final = Family(
    "berth_hosts_complaining", "Hosts of which not all that their agent reports could be written.", "gauge"
)
UNDER_WAY: Final = Family(
    "berth_operations_under_way", "Operations that have begun and not ended.", "gauge", ("operation",)
)
OVERDUE: Final = Family(
    "berth_operations_overdue", "Operations whose step at hand should have ended.", "gauge", ("operation",)
)
FAMILIES: Final = (HOSTS, COMPLAINING, UNDER_WAY, OVERDUE)


def read_figures(view: View, now_ns: int) -> Figures:
    agents = list(view.records.all(Agent))
    down = sum(agent.is_down for agent in agents)
    running = [run for run in view.records.all(SagaRun) if not is_finished(run) and not is_away(run)]
    overdue = [run for run in running if 0 < run.deadline_ns < now_ns]
    return {
        HOSTS: {("up",): len(agents) - down, ("down",): down},
        COMPLAINING: {(): sum(bool(agent.complaints) for agent in agents)},
        **count_operations(map(_name, running), map(_name, overdue)),
    }


def count_operations(under_way: Iterable[str], overdue: Iterable[str]) -> Figures:
    """Of operations, by their names. One of which none is overdue has a 0: a series that only appears with
    the first would hide its rise from an alert."""
    counts, late = Counter(under_way), Counter(overdue)
    return {
        UNDER_WAY: {(name,): count for name, count in counts.items()},
        OVERDUE: {(name,): late[name] for name in counts},
    }


def _name(run: SagaRun) -> str:
    return saga_of(run).name
