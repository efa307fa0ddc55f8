"""A process says in the database that it uses the journal, from when it starts until it stops: so an operator
who is about to finish an upgrade sees who is still of the release before."""

import asyncio
import contextlib
from typing import NamedTuple

from berth.engine.journal_thread import JournalCalls
from berth.journal import AttachedProgram, Journal, JournalError, Programs
from berth.journal.programs import ANNOUNCE_S
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids


class ProcessName(NamedTuple):
    """What a process is for, and where it runs: for operators."""

    part: str
    place: str


class Attachment:
    def __init__(
        self, journal: Journal, calls: JournalCalls, clock: Clock, ids: Ids, name: ProcessName
    ) -> None:
        self._programs = Programs(journal)
        self._program = journal.program
        self._calls = calls
        self._clock = clock
        self._id = ids.uuid()
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._announce_forever(), name="attachment")

    async def end(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        # Whoever cannot say that it is gone is taken to be gone when nothing is heard of it.
        with contextlib.suppress(JournalError):
            await self._calls.call(self._programs.withdraw, self._id)

    async def _announce_forever(self) -> None:
        while True:
            now = AttachedProgram(self._id, self._program, *self._name, self._clock.now_ns())
            with contextlib.suppress(JournalError):
                await self._calls.call(self._programs.announce, now)
            await asyncio.sleep(ANNOUNCE_S)
