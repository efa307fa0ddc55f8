"""GET /berth/v1/cells: whether each cell can be reached and is at work, its hosts, and what waits for it.

What is said of databases and conductors is what the process that follows the cells wrote last
(``region.cell_watch``): a minute or two old at most, and the same on every worker.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from berth.api.kernel.http import Response
from berth.api.kernel.times import show_time
from berth.api.native.calls import NativeCall, NativeRoute, respond
from berth.api.native.fields import Time
from berth.model.ids import ProviderId
from berth.model.saga_runs import Outbox
from berth.model.servers import CellStatus, Host
from berth.runtime.settings import cells_of
from berth.view import View

CellState = Literal["well", "unreachable", "silent", "unknown", "unconfigured"]

_TEXTS: Final[dict[CellState, str | None]] = {
    "well": None,
    "unreachable": "The region cannot reach the database of the cell.",
    "silent": "The conductor of the cell is not heard of: nothing is carried out there, and no host is "
    "marked down.",
    "unknown": "The region has not looked at the cell yet.",
    "unconfigured": "The cell is not configured: see the setting cells.",
}


class CellHosts(msgspec.Struct):
    """As the overview counts them: a host that is down is not ``disabled`` here, whatever it is."""

    up: int
    down: int
    disabled: int


class CellDetail(msgspec.Struct):
    """``state`` in one word: ``well``; its database is ``unreachable``; its conductor is ``silent``; the
    region has not looked yet (``unknown``); ``unconfigured``: it has hosts or orders and is not among the
    region's cells. ``text`` says that in a sentence. ``waiting``: orders that the cell does not have yet."""

    name: str
    state: CellState
    text: str | None
    database_reachable: bool
    database_text: Annotated[str | None, Meta(description="Why the database cannot be reached.")]
    since: Annotated[Time | None, Meta(description="Since when the database can, or cannot, be reached.")]
    conductor_heard: Annotated[Time | None, Meta(description="When the conductor last said it is at work.")]
    hosts: CellHosts
    waiting: int


class Cells(msgspec.Struct):
    """All cells, in the order of their names."""

    cells: list[CellDetail]


class HostCounts(NamedTuple):
    """Hosts by cell, those of them that are down, and those that are only disabled. Hosts without an agent
    are in no cell here."""

    total: dict[str, int]
    down: Counter[str]
    disabled: Counter[str]


def count_hosts(view: View) -> HostCounts:
    total = {cell: view.records.count_found(Host, "cell", cell) for cell in view.records.keys(Host, "cell")}
    view.steps.take(len(view.down) + len(view.disabled) + view.records.count(Host) // 8)
    down = [view.records.get(Host, view.record(row).id) for row in view.down]
    bare = [host for host in view.records.all(Host) if ProviderId(host.id) not in view.providers]
    down += [host for host in bare if host.is_silent or host.is_forced_down]
    disabled = [view.records.get(Host, view.record(row).id) for row in view.disabled if row not in view.down]
    return HostCounts(total, _count_by_cell(down), _count_by_cell(disabled))


def _count_by_cell(hosts: Iterable[Host | None]) -> Counter[str]:
    return Counter(host.cell for host in hosts if host is not None)


def configured_cells(call: NativeCall) -> set[str]:
    return {name for name, _ in cells_of(call.services.settings.cells)}


def describe_cells(view: View, call: NativeCall) -> list[CellDetail]:
    configured = configured_cells(call)
    counts = count_hosts(view)
    names = configured.union(counts.total, view.records.keys(Outbox, "cell"))
    return [
        _describe(view, name, counts, call.now_s, is_configured=name in configured) for name in sorted(names)
    ]


def _describe(view: View, name: str, counts: HostCounts, now_s: int, *, is_configured: bool) -> CellDetail:
    known = view.records.get(CellStatus, name)
    state = _find_state(known, now_s) if is_configured else "unconfigured"
    down, disabled = counts.down[name], counts.disabled[name]
    return CellDetail(
        name,
        state,
        _TEXTS[state],
        is_configured and known is not None and known.is_reachable,
        None if known is None else known.text,
        None if known is None else show_time(known.since_s),
        show_time(known.heard_at_s) if known is not None and known.heard_at_s else None,
        CellHosts(counts.total.get(name, 0) - down - disabled, down, disabled),
        view.records.count_found(Outbox, "cell", name),
    )


def _find_state(known: CellStatus | None, now_s: int) -> CellState:
    if known is None:
        return "unknown"
    if not known.is_reachable:
        return "unreachable"
    return "silent" if known.is_silent(now_s) else "well"


async def list_cells(call: NativeCall) -> Response:
    return respond(await call.read(lambda view: Cells(describe_cells(view, call))))


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/cells",
        list_cells,
        policy="berth:cells:list",
        name="list_cells",
        answer=Cells,
        is_tagged=False,
        summary="List cells",
        description="Whether the database of each cell can be reached, when its conductor was last heard of, "
        "its hosts, and how many orders wait for it. A minute or two old at most.",
    ),
)
