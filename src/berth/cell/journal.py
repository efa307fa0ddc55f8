"""The journal of a cell, which its conductor and the region share."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from berth.engine import Engine, Unavailable
from berth.engine.attachment import ProcessName
from berth.engine.engine import Observer
from berth.engine.journal_thread import JournalCalls, JournalThread
from berth.engine.startup import wait_for_database
from berth.journal import Journal, JournalError, open_journal, parse_address
from berth.model.ids import Index
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids

FOLLOW_S: Final = 0.05
"""How often a cell looks for saga runs, which the region writes into its journal."""
DATABASE: Final = "the database"
"""What the log of a cell calls its own."""
_RETRY_S: Final = 2.0
_OPEN_S: Final = 30.0
"""How long it may take to open a journal."""

T = TypeVar("T")


class NoObserver:
    """An observer that does not keep count."""

    def appended(self, index: Index, commands: int, seconds: float) -> None: ...

    def queued(self, depth: int) -> None: ...

    def rejected(self, kind: str) -> None: ...

    def conflicted(self) -> None: ...

    def noticed(self, is_there: bool) -> None: ...


def name_database(cell: str) -> str:
    """What the log of a region calls the database of a cell."""
    return f"the database of {cell}"


def _open(database: str) -> Journal:
    return open_journal(parse_address(database), shared=True)


def open_cell_engine(database: str, clock: Clock, ids: Ids) -> Engine:
    """The engine of the journal in a database, not started."""
    return make_cell_engine(_open(database), clock, ids)


def make_cell_engine(
    journal: Journal,
    clock: Clock,
    ids: Ids,
    observer: Observer | None = None,
    *,
    follow_every_s: float = FOLLOW_S,
    calls: JournalCalls | None = None,
    name: str = DATABASE,
    process: ProcessName | None = None,
) -> Engine:
    """The engine of a cell's journal, which conductor and region share."""
    return Engine(
        journal,
        clock,
        ids,
        observer or NoObserver(),
        shared=True,
        follow_every_s=follow_every_s,
        calls=calls,
        name=name,
        process=process,
    )


async def open_cell(
    database: str,
    clock: Clock,
    ids: Ids,
    observer: Observer | None = None,
    *,
    name: str = DATABASE,
    process: ProcessName | None = None,
) -> Engine:
    """The engine of a cell's journal, started, once its database answers. While it is unreachable, that is
    retried, and the other cells go on. It fails where an operator must do something first."""
    # Not in the event loop: a region serves requests while the database of a cell does not answer.
    thread = JournalThread(_OPEN_S, name)
    opened: list[Journal] = []

    def open_once() -> None:
        # One that was opened too late for the last attempt is used.
        if not opened:
            opened.append(_open(database))

    def close_unused() -> None:
        # The caller was cancelled while it was being opened.
        while opened:
            opened.pop().close()

    async def open_engine() -> Engine:
        await thread.call(open_once)
        engine = make_cell_engine(opened.pop(), clock, ids, observer, name=name, process=process)
        try:
            await engine.start()
        except BaseException:
            await engine.stop()
            raise
        return engine

    try:
        return await wait_for_database(open_engine, (JournalError, Unavailable), name=name, pause_s=_RETRY_S)
    finally:
        thread.call_unattended(close_unused)
        thread.stop()


async def retry_journal(step: Callable[[], Awaitable[T]], *on: type[Exception]) -> T:
    """Repeat a step until the cell's journal can be used."""
    return await wait_for_database(step, on, name=DATABASE, pause_s=_RETRY_S)
