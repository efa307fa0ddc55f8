"""The journal of a cell is opened beside the event loop: whoever opens it has others to serve meanwhile."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from berth.cell import journal
from berth.journal import Journal, open_journal
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from tests.waiting import until

pytestmark = pytest.mark.fast


class SlowDatabase:
    """Opens when it is told to, and counts how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opens = threading.Event()
        self.asked = 0
        monkeypatch.setattr(journal, "open_journal", self)

    def __call__(self, *address: Any, **how: Any) -> Journal:
        self.asked += 1
        assert self.opens.wait(10), "the event loop stands still"
        return open_journal(*address, **how)


async def test_the_event_loop_runs_while_the_journal_of_a_cell_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SlowDatabase(monkeypatch)

    opening = asyncio.create_task(journal.open_cell(f"sqlite:///{tmp_path}/c.db", SystemClock(), Ids()))
    await until(lambda: database.asked)
    database.opens.set()
    engine = await opening
    assert engine.ready is None
    await engine.stop()


async def test_a_journal_that_opens_late_is_used_and_not_opened_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(journal, "_OPEN_S", 0.01, raising=False)
    monkeypatch.setattr(journal, "_RETRY_S", 0.01)
    database = SlowDatabase(monkeypatch)

    opening = asyncio.create_task(journal.open_cell(f"sqlite:///{tmp_path}/c.db", SystemClock(), Ids()))
    await until(lambda: "the database: unavailable, waiting for it for as long as it takes: " in caplog.text)
    await asyncio.sleep(0.05)
    database.opens.set()
    engine = await opening
    assert engine.ready is None
    await engine.stop()
    assert database.asked == 1
    assert caplog.text.count("waiting for it") == 1
    assert caplog.text.count("the database: available after ") == 1


async def test_a_journal_that_nobody_waits_for_any_more_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock would be held for as long as the process lives."""
    database = SlowDatabase(monkeypatch)
    closed = threading.Event()
    close = Journal.close

    def close_and_tell(journal: Journal) -> None:
        close(journal)
        closed.set()

    monkeypatch.setattr(Journal, "close", close_and_tell)
    opening = asyncio.create_task(journal.open_cell(f"sqlite:///{tmp_path}/c.db", SystemClock(), Ids()))
    await until(lambda: database.asked)
    opening.cancel()
    await asyncio.wait({opening})
    database.opens.set()
    assert await asyncio.to_thread(closed.wait, 10)
