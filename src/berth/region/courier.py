"""The courier: writes orders down into the cells' journals, and reads up from them what came of those.

Both ways it is the state that is compared, not a position that is remembered: an order is on its way
(``Outbox``) until its cell has it, and stays in the cell until the region has its end. So a courier can be
stopped anywhere and start anew, and two of them do no harm. A cell whose journal is away is waited for; the
others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from berth.cell import saga_runs
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.batches import Origin
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.ids import Index, ProviderId
from berth.model.rejections import Rejection
from berth.model.saga_runs import Agent, Outbox, SagaRun
from berth.region.progress import apply_progress, is_applied
from berth.runtime.clock import Clock
from berth.sagas.hosts import apply_host
from berth.sagas.runner import is_finished
from berth.view import View

_log = logging.getLogger(__name__)
_WAIT_S: Final = 5.0
_PAUSE_S: Final = 1.0
_ORIGIN: Final = Origin("", "courier", None, "courier")


Open = Callable[[], Awaitable[Engine]]
"""Opens a cell's journal, however long that takes."""


class Courier:
    """``cells``: how the journal of each cell is opened, by the cell's name. What one of them has to wait for
    the others do not."""

    def __init__(self, region: Engine, cells: Mapping[str, Open], clock: Clock) -> None:
        self._region = region
        self._cells = cells
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, open_cell in self._cells.items():
                group.create_task(self._serve(name, open_cell), name=f"courier to {name}")
            group.create_task(self._for_ever(self._tell_of_unknown_cells), name="courier to nowhere")

    async def _serve(self, name: str, open_cell: Open) -> None:
        """Go back and forth between the region and a cell, whatever is wrong with others."""
        while True:
            try:
                await self._serve_once(name, await open_cell())
                return
            except Exception:
                _log.exception("the courier to %s fell, and gets up", name)
                await asyncio.sleep(_PAUSE_S)

    async def _serve_once(self, name: str, cell: Engine) -> None:
        way = _Way(self._region, cell, name, self._clock)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._for_ever(way.take_down))
                group.create_task(self._for_ever(way.bring_up))
        finally:
            await cell.stop()

    async def _for_ever(self, errand: Callable[[Index], Awaitable[Index]]) -> None:
        index = Index(-1)
        while not self._region.stopping:
            try:
                index = await errand(index)
            except (Unavailable, Overloaded) as away:
                _log.warning("the courier waits: %s", away)
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                _log.exception("the courier stumbled")
                await asyncio.sleep(_PAUSE_S)

    async def _tell_of_unknown_cells(self, index: Index) -> Index:
        index = await self._region.wait_beyond(index, _WAIT_S)
        waiting = await self._region.read(lambda view: list(view.records.all(Outbox)))
        for cell in sorted({outbox.cell for outbox in waiting} - self._cells.keys()):
            _log.error("orders wait for the cell %r, which is not configured: see the setting cells", cell)
        if waiting:
            await asyncio.sleep(_PAUSE_S)
        return index


class _Way:
    """The way to one cell and back."""

    def __init__(self, region: Engine, cell: Engine, name: str, clock: Clock) -> None:
        self._region = region
        self._cell = cell
        self._name = name
        self._clock = clock
        # What has been brought up of each order and host, so that it is not looked at again.
        self._seen: dict[str, SagaRun | Agent] = {}

    # -- down -----------------------------------------------------------------------------------

    async def take_down(self, index: Index) -> Index:
        """Hand every order that is on its way to the cell."""
        index = await self._region.wait_beyond(index, _WAIT_S)
        waiting = await self._region.read(
            lambda view: [outbox for outbox in view.records.all(Outbox) if outbox.cell == self._name]
        )
        await _all(self._hand_over(outbox) for outbox in waiting)
        return index

    async def _hand_over(self, outbox: Outbox) -> None:
        def propose(view: View, now_s: int) -> Enact | None:
            if outbox.run is not None:
                return saga_runs.accept_run(view, outbox.run, self._clock.now_ns())
            return saga_runs.abort_run(view, outbox.abort or "")

        await self._cell.submit(propose, _ORIGIN, _nothing)

        def settled(view: View, now_s: int) -> Enact | None:
            current = view.records.get(Outbox, outbox.id)
            return None if current is None else Enact((RecordChanged(current, None),))

        await self._region.submit(settled, _ORIGIN, _nothing)

    # -- up -------------------------------------------------------------------------------------

    async def bring_up(self, index: Index) -> Index:
        """Bring up what has changed in the cell."""
        index = await self._cell.wait_beyond(index, _WAIT_S)
        runs, agents = await self._cell.read(
            lambda view: (list(view.records.all(SagaRun)), list(view.records.all(Agent)))
        )
        await _all(self._bring_up_host(agent) for agent in agents)
        await _all(self._bring_up_order(run) for run in runs)
        current = {one.id for one in (*runs, *agents)}
        self._seen = {id: record for id, record in self._seen.items() if id in current}
        return index

    async def _bring_up_host(self, agent: Agent) -> None:
        if self._seen.get(agent.id) is agent:
            return
        refused = await self._submit(lambda view, now_s: apply_host(view, agent, self._name, now_s))
        # A host joins before its provider is written: it is looked at again until that is there.
        is_there = await self._region.read(lambda view: ProviderId(agent.id) in view.providers)
        if is_there and not refused:
            self._seen[agent.id] = agent

    async def _bring_up_order(self, run: SagaRun) -> None:
        if self._seen.get(run.id) is run:
            return
        await self._submit(lambda view, now_s: apply_progress(view, run, now_s))
        if not await self._region.read(lambda view: is_applied(view, run)):
            # Something was in the way. The order stays where it is, and so does what it says.
            _log.error("what came of the order %s could not be written; it is tried again", run.id)
            raise Unavailable(f"the order {run.id} could not be brought up")
        self._seen[run.id] = run
        if is_finished(run):
            await self._cell.submit(
                lambda view, _: saga_runs.remove_finished(view, run.id), _ORIGIN, _nothing
            )

    async def _submit(self, make: Callable[[View, int], Enact | None]) -> bool:
        """Have a change made that may turn out not to be needed. Whether it was refused although it was."""
        return isinstance(await self._region.submit(make, _ORIGIN, _nothing), Rejection)


async def _all(errands: Iterable[Awaitable[None]]) -> None:
    """All of them, also if one fails; then what that one says."""
    outcomes = await asyncio.gather(*errands, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _nothing(view: View, changed: bool) -> None:
    return None
