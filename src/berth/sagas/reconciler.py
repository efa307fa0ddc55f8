"""The loop of every reconciler: records of a kind are driven to what they should be, a change at a time.

Each change follows from the records alone: a reconciler that is stopped between two of them, or makes one
twice, breaks nothing, and two of them do no harm. It looks whenever the region has changed, and again after a
while: what could not be done may have become possible as time passes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Final, Generic, TypeVar

from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Enact
from berth.model.events import AnyRecord, RecordChanged
from berth.model.ids import Index
from berth.model.servers import Record
from berth.runtime.backoff import keep_running
from berth.runtime.clock import Clock
from berth.view import View

_log = logging.getLogger(__name__)
_WAIT_S: Final = 1.0
_WAIT_WITHOUT_S: Final = 30.0
"""Where there are no records of the kind nothing becomes due as time passes."""
_PAUSE_LONGEST_S: Final = 2.0
_AT_ONCE_MAX: Final = 100
"""How many records are brought forward at the same time."""
_REST_S: Final = 10
_PAUSE_PER_LOOK: Final = 9
"""How long the pause behind a look at all records is, in times of what the look took."""

R = TypeVar("R", bound=Record)


def change_record(before: AnyRecord, after: AnyRecord) -> Enact | None:
    """The command that replaces a record; None if it is as it should be."""
    return None if before == after else Enact((RecordChanged(before, after),))


class Reconciler(Generic[R]):
    """``is_due``: whether something can be done for a record at a second. ``advance`` does it, and says
    whether anything was done. Nothing is remembered but which records could not be brought forward just
    now: those rest for a while. ``find``: which records are looked at, if not all."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        kind: type[R],
        is_due: Callable[[View, R, int], bool],
        advance: Callable[[R], Awaitable[bool]],
        find: Callable[[View], Collection[R]] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._kind = kind
        self._name = kind.__name__.lower()
        self._is_due = is_due
        self._advance = advance
        self._find = find or (lambda view: view.records.all(kind))
        self._index = Index(-1)
        self._has_records = True
        self._look_ns = 0
        self._resting: dict[str, int] = {}

    async def run(self) -> None:
        """Reconcile until cancelled, or until the region's engine stops."""
        await keep_running(
            f"{self._name} reconciler",
            self._advance_all,
            is_stopping=lambda: self._engine.stopping,
            outages=(Unavailable, Overloaded),
            log=_log,
            longest_s=_PAUSE_LONGEST_S,
        )

    async def _advance_all(self) -> None:
        """Wait until the region has changed, and bring every record forward that can be."""
        wait_s = _WAIT_S if self._has_records else _WAIT_WITHOUT_S
        self._index = await self._engine.wait_beyond(self._index, wait_s)
        due = await self._engine.read_recent(self._find_due)
        now_ns = self._clock.monotonic_ns()
        self._resting = {id: until_ns for id, until_ns in self._resting.items() if until_ns > now_ns}
        waiting = (record for record in due if record.id not in self._resting)
        while some := list(islice(waiting, _AT_ONCE_MAX)):
            # A record that fails does not hold up the others.
            outcomes = await asyncio.gather(*map(self._advance, some), return_exceptions=True)
            for record, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, (Unavailable, Overloaded)):
                    raise outcome
                if isinstance(outcome, BaseException):
                    _log.error(
                        "%s %s: failed, retrying in %g s", self._name, record.id, _REST_S, exc_info=outcome
                    )
                if outcome is not True:
                    self._resting[record.id] = self._clock.monotonic_ns() + _REST_S * 1_000_000_000
        if self._look_ns:
            # However much there is to look at, others have most of the time.
            await asyncio.sleep(min(self._look_ns / 1e9 * _PAUSE_PER_LOOK, _WAIT_S))

    def _find_due(self, view: View) -> list[R]:
        began_ns = self._clock.monotonic_ns()
        now_s = self._clock.now_ns() // 1_000_000_000
        records = self._find(view)
        self._has_records = len(records) > 0
        due = [record for record in records if self._is_due(view, record, now_s)]
        self._look_ns = self._clock.monotonic_ns() - began_ns
        return due
