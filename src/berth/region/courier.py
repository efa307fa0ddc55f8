"""The courier: writes orders down into the cells' journals, and reads up from them what came of those.

Both ways it is the state that is compared, not a position that is remembered: an order is on its way
(``Outbox``) until its cell has it, and stays in the cell until the region has its end. So a courier can be
stopped anywhere and start anew, and two of them do no harm. A cell whose journal is away is waited for; the
others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.ids import Index
from berth.model.orders import Agent, Outbox, Work
from berth.model.origin import Origin
from berth.model.rejections import RecordMoved
from berth.operations import in_cell
from berth.operations.absorbing import absorb
from berth.operations.hosts import heard_of
from berth.operations.runner import is_finished
from berth.runtime.clock import Clock
from berth.view import View

_log = logging.getLogger(__name__)
_WAIT_S: Final = 5.0
_PAUSE_S: Final = 1.0
_ORIGIN: Final = Origin("", "courier", None, "courier")


class Courier:
    """``cells``: the engine of each cell's journal, by the cell's name."""

    def __init__(self, region: Engine, cells: Mapping[str, Engine], clock: Clock) -> None:
        self._region = region
        self._cells = cells
        self._clock = clock
        # What has been brought up of each order and host, so that it is not looked at again.
        self._seen: dict[tuple[str, str], Work | Agent] = {}

    async def run(self) -> None:
        """Until cancelled, or until the region's engine stops."""
        errands = [
            self._for_ever(self._take_down),
            *(self._for_ever(self._bring_up, name) for name in self._cells),
        ]
        async with asyncio.TaskGroup() as group:
            for errand in errands:
                group.create_task(errand)

    async def _for_ever(self, errand: Callable[..., object], *arguments: str) -> None:
        index = Index(-1)
        while not self._region.stopping:
            try:
                index = await errand(index, *arguments)  # type: ignore[misc]
            except (Unavailable, Overloaded) as away:
                _log.warning("the courier waits: %s", away)
                await asyncio.sleep(_PAUSE_S)
            except asyncio.CancelledError:
                raise
            except Exception:
                _log.exception("the courier stumbled")
                await asyncio.sleep(_PAUSE_S)

    # -- down -----------------------------------------------------------------------------------

    async def _take_down(self, index: Index) -> Index:
        """Hand every order that is on its way to its cell."""
        index = await self._region.wait_beyond(index, _WAIT_S)
        waiting = await self._region.read(lambda view: list(view.records.all(Outbox)))
        await asyncio.gather(*(self._hand_over(outbox) for outbox in waiting))
        return index

    async def _hand_over(self, outbox: Outbox) -> None:
        cell = self._cells.get(outbox.cell)
        if cell is None:
            _log.error("the order %s is for the cell %r, which is not configured", outbox.id, outbox.cell)
            return

        def wish(view: View, now_s: int) -> Enact | RecordMoved:
            if outbox.work is not None:
                change = in_cell.taken(view, outbox.work, self._clock.now_ns())
            else:
                change = in_cell.abort(view, outbox.abort or "")
            return change or RecordMoved("Outbox", outbox.id)

        await cell.submit(wish, _ORIGIN, _nothing)

        def settled(view: View, now_s: int) -> Enact | RecordMoved:
            current = view.records.get(Outbox, outbox.id)
            if current is None:
                return RecordMoved("Outbox", outbox.id)
            return Enact((RecordChanged(current, None),))

        await self._region.submit(settled, _ORIGIN, _nothing)

    # -- up -------------------------------------------------------------------------------------

    async def _bring_up(self, index: Index, name: str) -> Index:
        """Bring up what has changed in a cell."""
        cell = self._cells[name]
        index = await cell.wait_beyond(index, _WAIT_S)
        works, agents = await cell.read(
            lambda view: (list(view.records.all(Work)), list(view.records.all(Agent)))
        )
        for agent in agents:
            if self._seen.get((name, agent.id)) is not agent:
                await self._submit(lambda view, now_s: heard_of(view, agent, name, now_s))  # noqa: B023
                self._seen[name, agent.id] = agent
        await asyncio.gather(*(self._bring_up_order(cell, name, work) for work in works))
        current = {(name, one.id) for one in (*works, *agents)}
        for key in [key for key in self._seen if key[0] == name and key not in current]:
            del self._seen[key]
        return index

    async def _bring_up_order(self, cell: Engine, name: str, work: Work) -> None:
        if self._seen.get((name, work.id)) is work:
            return
        await self._submit(lambda view, now_s: absorb(view, work, now_s))
        self._seen[name, work.id] = work
        if is_finished(work):
            await cell.submit(
                lambda view, _: in_cell.acknowledged(view, work.id) or RecordMoved("Work", work.id),
                _ORIGIN,
                _nothing,
            )

    async def _submit(self, make: Callable[[View, int], Enact | None]) -> None:
        await self._region.submit(
            lambda view, now_s: make(view, now_s) or RecordMoved("", ""), _ORIGIN, _nothing
        )


def _nothing(view: View, changed: bool) -> None:
    return None
