"""What the region writes down of its cells: whether their databases can be reached, and when their conductors
were last heard of.

The naive design writes every heartbeat of every host, or has every process of the region connect to every
cell. Here the process that follows the cells keeps what it sees in memory, and writes

* at once, that a cell's database has come within reach or out of it;
* at most once a minute, and for all cells in one append, when conductors were last heard of.

So all workers answer from the same records, which are a minute or two old at most. A process writes at once
what it sees change. Where the record says something else all the same, the next refresh corrects it: of two
processes of which one alone reaches a cell, each writes what it sees, once a minute at most, and what one
that has ended wrote does not stay. Only a process that reaches a cell says when its conductor was heard of:
what another has read of the cell is old. docs/decisions/028 has the reasons.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from berth.cell import saga_runs
from berth.engine import Engine, Unavailable
from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.events import Origin, RecordChanged
from berth.model.formats import ADDED
from berth.model.servers import CellStatus
from berth.runtime.clock import Clock
from berth.runtime.dependency import Dependency
from berth.view import View

_log = logging.getLogger(__name__)

_LOOK_S: Final = 5.0
_CHECK_S: Final = 5.0
"""How long a database that could not be used may take to say that it can be."""
_REFRESH_S: Final = 50
"""How long at least passes between two records of when conductors were heard of: each says it once a
minute."""
_TEXT_MAX: Final = 500
_OPENING_S: Final = 30
"""How long it may take to open a journal before the cell counts as out of reach."""
_OPENING: Final = "The region has not opened the journal of the cell yet."
_ORIGIN: Final = Origin("", "cell-watch", None, "cell-watch")


async def _look_again(cell: Engine) -> None:
    """Find out whether a database is back that could not be used. Nobody else does if nothing is written to
    it."""
    if cell.ready is not None:
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_CHECK_S):
                await cell.check_ready()


class CellWatch:
    def __init__(self, region: Engine, cells: Iterable[str], clock: Clock) -> None:
        self._region = region
        self._clock = clock
        self._began_s = clock.now_ns() // 1_000_000_000
        self._open: dict[str, Engine] = {}
        self._closed: dict[str, str] = dict.fromkeys(cells, _OPENING)
        # What was seen last of each cell, once it has been written.
        self._reached: dict[str, bool] = {}
        self._refreshed_at_s = 0
        self._conductors = {
            name: Dependency(f"cell {name}: the conductor", _log, lost_as="silent", back_as="heard again")
            for name in self._closed
        }

    def note_closed(self, cell: str, why: str) -> None:
        self._closed[cell] = why
        self._open.pop(cell, None)

    def note_open(self, cell: str, engine: Engine) -> None:
        self._open[cell] = engine
        self._closed.pop(cell, None)

    async def report(self) -> None:
        """Look at all cells after a while, and write what has changed."""
        await asyncio.sleep(_LOOK_S)
        await asyncio.gather(*map(_look_again, self._open.values()))
        now_s = self._clock.now_ns() // 1_000_000_000
        self._judge_conductors(now_s)
        outages = self._closed | {name: engine.outage for name, engine in self._open.items()}
        if now_s - self._began_s < _OPENING_S:
            # A journal that was never opened may be about to be.
            outages = {name: why for name, why in outages.items() if why != _OPENING}
        turned = {name for name, why in outages.items() if self._reached.get(name) is not (why is None)}
        is_due = now_s - self._refreshed_at_s >= _REFRESH_S
        if not turned and not is_due:
            return

        def propose(view: View, _: int) -> Enact | None:
            changes = [
                change
                for name, why in outages.items()
                if (name in turned or is_due) and (change := self._change(view, name, why, now_s)) is not None
            ]
            return Enact(tuple(changes)) if changes else None

        await self._region.submit(propose, _ORIGIN, lambda view, changed: None)
        self._reached |= {name: outages[name] is None for name in turned}
        if is_due:
            self._refreshed_at_s = now_s

    def _judge_conductors(self, now_s: int) -> None:
        """Log which conductors are silent, and which are heard again. Of a cell that cannot be reached, or
        whose conductor was never heard of, nothing is known."""
        for name, conductor in self._conductors.items():
            known = self._region.view.records.get(CellStatus, name)
            if known is None or not known.is_reachable or not known.heard_at_s:
                continue
            if known.is_silent(now_s):
                silent_s = now_s - known.heard_at_s
                since_s = asyncio.get_running_loop().time() - silent_s
                conductor.lose(f"last heard of {silent_s} s ago", since_s=since_s)
            else:
                conductor.regain()

    def _change(self, view: View, name: str, why: str | None, now_s: int) -> RecordChanged | None:
        """The change of the record of a cell; None if it says what is so."""
        known = view.records.get(CellStatus, name)
        is_reachable = why is None
        before = known or CellStatus(id=name)
        # What was read of a cell that is out of reach is old: another process may have seen a later sign.
        sign_s = saga_runs.last_sign_s(self._open[name].view) if is_reachable else before.sign_s
        after = CellStatus(
            id=name,
            is_reachable=is_reachable,
            text=None if why is None else why[:_TEXT_MAX],
            since_s=known.since_s if known is not None and known.is_reachable == is_reachable else now_s,
            # By this clock: the conductor's may be wrong.
            heard_at_s=now_s if sign_s != before.sign_s else before.heard_at_s,
            sign_s=sign_s,
            format=self._find_format(view, name, before.format) if is_reachable else before.format,
        )
        return None if after == known else replace_record(view, after)

    def _find_format(self, view: View, name: str, before: int) -> int:
        """The format of a cell's journal; a region that older programs read does not write it down."""
        return self._open[name].view.format if view.format >= ADDED["CellStatus.format"] else before
