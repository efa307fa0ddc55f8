"""The figures of a region that follow from its view, for ``/metrics``: capacity, hosts, servers, operations,
cells. They are looked at when they are asked for, by whichever worker answers: all have the same view.

Labels are bounded: of the resource classes that a deployment has made up, the first ``CUSTOM_CLASSES_MAX`` by
name are shown.
"""

from typing import Final

from berth.api.native.operations import is_overdue
from berth.api.native.overview import count_hosts, count_servers, sum_by_kind
from berth.cell.figures import COMPLAINING, HOSTS, OVERDUE, UNDER_WAY, count_operations
from berth.model.placement import CELL
from berth.model.saga_runs import Outbox
from berth.model.servers import Action, CellStatus
from berth.runtime.metrics import Family
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Figures
from berth.view import View
from berth.view.capacity_sums import CapacitySum

CUSTOM_CLASSES_MAX: Final = 50
_CUSTOM: Final = "CUSTOM_"

_CLASS: Final = ("cell", "resource_class")

CAPACITY: Final = Family(
    "berth_capacity", "How much of a resource class can be claimed in all: capacity.", "gauge", _CLASS
)
USED: Final = Family("berth_used", "How much of a resource class is claimed.", "gauge", _CLASS)
FREE: Final = Family("berth_free", "How much of a resource class is not claimed.", "gauge", _CLASS)
SERVERS: Final = Family("berth_servers", "Servers by state.", "gauge", ("state",))
WAITING: Final = Family(
    "berth_operations_waiting", "Operations that their cell does not have yet.", "gauge", ("cell",)
)
CELL_UP: Final = Family(
    "berth_cell_up", "Whether the region reaches the database of a cell: 1 or 0.", "gauge", ("cell",)
)
CONDUCTOR_HEARD: Final = Family(
    "berth_conductor_heard_timestamp_seconds",
    "When the conductor of a cell was last heard of, in seconds since 1970.",
    "gauge",
    ("cell",),
)
SNAPSHOT_EVERY: Final = Family(
    "berth_snapshot_every_entries", "After how many journal entries a snapshot is due.", "gauge"
)
FAMILIES: Final = (
    CAPACITY,
    USED,
    FREE,
    HOSTS,
    COMPLAINING,
    SERVERS,
    UNDER_WAY,
    OVERDUE,
    WAITING,
    CELL_UP,
    CONDUCTOR_HEARD,
    SNAPSHOT_EVERY,
)


def read_figures(view: View, settings: Settings, now_s: int) -> Figures:
    """All of them, as they are now."""
    figures: Figures = {SNAPSHOT_EVERY: {(): settings.snapshot_every_batches}}
    figures |= _read_capacity(view)
    hosts = count_hosts(view)
    figures[HOSTS] = {("up",): hosts.up, ("down",): hosts.down, ("disabled",): hosts.disabled}
    figures[COMPLAINING] = {(): hosts.complaining}
    if not settings.cells:
        return figures
    figures[SERVERS] = {(state,): count for state, count in count_servers(view).items()}
    running = view.records.find(Action, "state", "running")
    overdue = [action for action in running if is_overdue(action, now_s)]
    figures |= count_operations([one.name for one in running], [one.name for one in overdue])
    cells = list(view.records.all(CellStatus))
    figures[CELL_UP] = {(cell.id,): cell.is_reachable for cell in cells}
    figures[CONDUCTOR_HEARD] = {(cell.id,): cell.heard_at_s for cell in cells}
    waiting = {cell: view.records.count_found(Outbox, "cell", cell) for cell in _name_cells(view, cells)}
    figures[WAITING] = {(cell,): count for cell, count in waiting.items()}
    return figures


def _name_cells(view: View, cells: list[CellStatus]) -> list[str]:
    return sorted({*(cell.id for cell in cells), *view.records.keys(Outbox, "cell")})


def _read_capacity(view: View) -> Figures:
    figures: Figures = {CAPACITY: {}, USED: {}, FREE: {}}
    for cell, sums in sum_by_kind(view, CELL, rest="").items():
        for name, amounts in _limit(sums).items():
            labels = (cell, name)
            figures[CAPACITY][labels] = amounts.capacity
            figures[USED][labels] = amounts.used
            figures[FREE][labels] = amounts.capacity - amounts.used
    return figures


def _limit(sums: dict[str, CapacitySum]) -> dict[str, CapacitySum]:
    custom = sorted(name for name in sums if name.startswith(_CUSTOM))
    left_out = set(custom[CUSTOM_CLASSES_MAX:])
    return {name: amounts for name, amounts in sums.items() if name not in left_out}
