"""The region's links to its cells: a dispatcher and a status sync for each, restarted whenever they fail.

The dispatcher carries saga runs from the region's outbox down into a cell's journal. A run is in the outbox
until its cell has it. It is the state that is compared, not a position that is remembered: a dispatcher can
be stopped anywhere and start anew, and two of them do no harm.

A cell whose journal cannot be reached is waited for; the others go on. So is one whose journal cannot be
read, because a newer release has written it or it is damaged: nothing is handed over to it or brought up from
it, its record says why, and its journal is opened again now and then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from berth.cell import saga_runs
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.ledger import remove_record
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.ids import Index
from berth.model.rejections import Rejection
from berth.model.saga_runs import Assignment, Outbox, SagaRun, assignment_id
from berth.region.cell_watch import CellWatch
from berth.region.status_sync import WAIT_S, StatusSync, finish_all
from berth.runtime import tracing
from berth.runtime.backoff import Backoff, keep_running, retry
from berth.runtime.clock import Clock
from berth.runtime.dependency import Dependency
from berth.sagas.run_log import RunCounter, log_begun
from berth.view import View

_log = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
_PAUSE_LONGEST_S: Final = 2.0
_REOPEN_S: Final = 30.0
"""How often at least a journal is opened again that cannot be used before an operator has done something."""
_ORIGIN: Final = Origin("", "dispatcher", None, "dispatcher")

OpenCell = Callable[[], Awaitable[Engine]]
"""Opens a cell's journal, however long that takes."""


class CellLinks:
    """``cells``: how the journal of each cell is opened, by the cell's name. ``telemetry`` counts the
    operations that end."""

    def __init__(
        self,
        region: Engine,
        cells: Mapping[str, OpenCell],
        clock: Clock,
        telemetry: RunCounter | None = None,
    ) -> None:
        self._region = region
        self._telemetry = telemetry
        self._cells = cells
        self._clock = clock
        self._index = Index(-1)
        self._watch = CellWatch(region, cells, clock)

    async def run(self) -> None:
        """Keep the links to all cells running, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, open_cell in self._cells.items():
                group.create_task(self._link(name, open_cell), name=f"link to {name}")
            group.create_task(self._repeat("outbox", self._report_unknown_cells), name="outbox")
            group.create_task(self._repeat("cells", self._watch.report), name="cells")

    async def _link(self, name: str, open_cell: OpenCell) -> None:
        """Open the journal of a cell, and again when it could not be read any more."""
        journal = Dependency(
            f"cell {name}: its journal", _log, lost_as="cannot be used, retrying", back_as="is in use again"
        )

        def notice(error: Exception, pause_s: float = 0) -> None:
            journal.lose(str(error))
            self._watch.note_closed(name, str(error))

        backoff = Backoff(_PAUSE_S, _REOPEN_S)
        while not self._region.stopping:
            cell = await retry(open_cell, (Exception,), backoff, notice=notice)
            journal.regain()
            self._watch.note_open(name, cell)
            try:
                await self._keep_linked(name, cell)
            finally:
                await cell.stop()
            if cell.broken is not None:
                notice(Unavailable(cell.outage or cell.broken))
                await backoff.pause()

    async def _keep_linked(self, name: str, cell: Engine) -> None:
        """Hand over and bring up, for as long as that can be done."""
        dispatcher = Dispatcher(self._region, cell, name, self._clock)
        status_sync = StatusSync(self._region, cell, name, self._telemetry)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(f"{name}: dispatcher", dispatcher.dispatch, cell))
            group.create_task(self._repeat(f"{name}: status sync", status_sync.sync, cell))

    async def _repeat(
        self, name: str, turn: Callable[[], Awaitable[None]], cell: Engine | None = None
    ) -> None:
        await keep_running(
            name,
            turn,
            is_stopping=lambda: self._region.stopping or (cell is not None and cell.broken is not None),
            outages=(Unavailable, Overloaded),
            log=_log,
            first_s=_PAUSE_S,
            longest_s=_PAUSE_LONGEST_S,
        )

    async def _report_unknown_cells(self) -> None:
        self._index = await self._region.wait_beyond(self._index, WAIT_S)
        waiting = await self._region.read_recent(lambda view: list(view.records.all(Outbox)))
        for cell in sorted({outbox.cell for outbox in waiting} - self._cells.keys()):
            _log.error("saga runs wait for cell %r, which is not configured: see the setting cells", cell)
        if waiting:
            await asyncio.sleep(_PAUSE_S)


class Dispatcher:
    """Hands over what is in the outbox for one cell."""

    def __init__(self, region: Engine, cell: Engine, name: str, clock: Clock) -> None:
        self._region = region
        self._cell = cell
        self._name = name
        self._clock = clock
        self._index = Index(-1)

    async def dispatch(self) -> None:
        """Wait until the region has changed, and hand over every run that waits."""
        index = await self._region.wait_beyond(self._index, WAIT_S)
        waiting = await self._region.read_recent(lambda view: view.records.find(Outbox, "cell", self._name))
        await finish_all(self._hand_over(outbox) for outbox in waiting)
        self._index = index

    async def _hand_over(self, outbox: Outbox) -> None:
        run = outbox.run
        if run is None or run.traceparent is None:
            await self._hand_over_run(outbox, run)
            return
        notes = {"berth.request_id": run.request_id, "berth.server": run.server, "berth.cell": self._name}
        with tracing.span("dispatch", notes, within=run.traceparent):
            # What the cell does belongs below this.
            traceparent = tracing.current_traceparent() or run.traceparent
            await self._hand_over_run(outbox, msgspec.structs.replace(run, traceparent=traceparent))

    async def _hand_over_run(self, outbox: Outbox, run: SagaRun | None) -> None:
        def accept(view: View, now_s: int) -> Enact | Rejection | None:
            if run is not None:
                return saga_runs.accept_run(view, run, self._clock.now_ns())
            if outbox.units is not None:
                return saga_runs.reassign_units(view, outbox.units)
            return saga_runs.abort_run(view, outbox.abort or "")

        def clear(view: View, now_s: int) -> Enact | None:
            # Another may be there under the same id meanwhile.
            if view.records.get(Outbox, outbox.id) != outbox:
                return None
            # Its cell may have got the abort before the run: then it knew of nothing to abort.
            if outbox.abort is not None and view.records.get(Outbox, outbox.abort) is not None:
                return None
            # Until the region knows the units, they are on the way: the status sync brings them up.
            if outbox.units is not None and view.records.get(Assignment, assigned_id) != assigned:
                return None
            return Enact((remove_record(view, outbox),))

        outcome = await self._cell.submit(accept, _ORIGIN, lambda view, changed: changed)
        if isinstance(outcome, Rejection):
            # It stays in the outbox, and is tried again after the next change of the region.
            _log.debug("%s: cannot take %s yet: %s", self._name, outbox.id, outcome)
            return
        if outcome and run is not None:
            log_begun(_log, run, self._name)
        units = outbox.units
        assigned_id = "" if units is None else assignment_id(units.holder, units.place.id)
        assigned = await self._cell.read_recent(lambda view: view.records.get(Assignment, assigned_id))
        await self._region.submit(clear, _ORIGIN, lambda view, changed: None)
