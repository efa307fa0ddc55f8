"""The dispatcher: carries saga runs from the region's outbox down into a cell's journal.

A run is in the outbox until its cell has it. It is the state that is compared, not a position that is
remembered: a dispatcher can be stopped anywhere and start anew, and two of them do no harm.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Iterable
from typing import Final

from berth.cell import saga_runs
from berth.engine import Engine
from berth.ledger.records import remove_record
from berth.model.batches import Origin
from berth.model.commands import Enact
from berth.model.ids import Index
from berth.model.saga_runs import Outbox
from berth.runtime.clock import Clock
from berth.view import View

WAIT_S: Final = 5.0
"""How long a loop waits for a journal to change before it looks again."""
_AT_ONCE: Final = 64
"""How many changes are submitted together. A claim that comes meanwhile waits for these, and not for all the
runs of a cluster of a thousand nodes."""
_ORIGIN: Final = Origin("", "dispatcher", None, "dispatcher")


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
        waiting = await self._region.read(
            lambda view: [outbox for outbox in view.records.all(Outbox) if outbox.cell == self._name]
        )
        await finish_all(self._hand_over(outbox) for outbox in waiting)
        self._index = index

    async def _hand_over(self, outbox: Outbox) -> None:
        def accept(view: View, now_s: int) -> Enact | None:
            if outbox.run is not None:
                return saga_runs.accept_run(view, outbox.run, self._clock.now_ns())
            return saga_runs.abort_run(view, outbox.abort or "")

        def clear(view: View, now_s: int) -> Enact | None:
            if view.records.get(Outbox, outbox.id) is None:
                return None
            return Enact((remove_record(view, outbox),))

        await self._cell.submit(accept, _ORIGIN, lambda view, changed: None)
        await self._region.submit(clear, _ORIGIN, lambda view, changed: None)


async def finish_all(tasks: Iterable[Awaitable[None]]) -> None:
    """Finish all of them, some at a time, also if one fails; then raise the first failure."""
    failures: list[BaseException] = []
    remaining = iter(tasks)
    while some := list(itertools.islice(remaining, _AT_ONCE)):
        outcomes = await asyncio.gather(*some, return_exceptions=True)
        failures += (outcome for outcome in outcomes if isinstance(outcome, BaseException))
    if failures:
        raise failures[0]
