"""What processes of a region write down of a cell that not all of them reach."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from berth.cell.journal import open_cell_engine
from berth.cell.saga_runs import begin_term
from berth.engine import Engine, Unavailable
from berth.model.events import Origin
from berth.model.servers import SILENT_AFTER_S, CellStatus
from berth.region import cell_watch
from berth.region.cell_watch import CellWatch
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from tests.clocks import FakeClock

ORIGIN = Origin("", "test", None, "test")


@contextlib.asynccontextmanager
async def started(path: Path) -> AsyncIterator[Engine]:
    engine = open_cell_engine(f"sqlite:///{path}", SystemClock(), Ids(1))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


class OutOfReach:
    """The journal of a cell that was read once, and cannot be reached any more."""

    outage = ready = "connection refused"

    def __init__(self, engine: Engine) -> None:
        self.view = engine.view

    async def check_ready(self) -> str:
        return self.ready


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_watch, "_LOOK_S", 0)


async def test_a_process_out_of_reach_does_not_say_that_the_conductor_was_heard_of(tmp_path: Path) -> None:
    """Its sign is an old one, which differs from the last: that is no sign of life."""
    clock = FakeClock()
    async with (
        started(tmp_path / "region.db") as region,
        started(tmp_path / "cell.db") as cell,
        started(tmp_path / "before.db") as before,
    ):
        for engine, sign_s in ((before, 100), (cell, 200)):
            begun = begin_term(engine.view, sign_s)
            assert await engine.submit(begun, ORIGIN, lambda view, changed: None) is None
        near, far = CellWatch(region, ["cell1"], clock), CellWatch(region, ["cell1"], clock)
        gone: Any = OutOfReach(before)
        near.note_open("cell1", cell)
        far.note_open("cell1", gone)
        await near.report()
        heard_at_s = clock.now_ns() // 1_000_000_000
        for _ in range(5):
            clock.advance(60)
            await far.report()
            await near.report()
        status = region.view.records.get(CellStatus, "cell1")
        assert status is not None
        assert (status.heard_at_s, status.sign_s) == (heard_at_s, 200)
        # Whoever wrote last says whether it reaches the cell.
        assert status.is_reachable
        clock.advance(60)
        await far.report()
        status = region.view.records.get(CellStatus, "cell1")
        assert status is not None
        assert (status.is_reachable, status.text) == (False, "connection refused")


async def test_a_database_that_is_back_is_noticed_though_nothing_is_written_to_it(tmp_path: Path) -> None:
    file, away = tmp_path / "cell.db", tmp_path / "away.db"

    def status_of(region: Engine) -> bool | None:
        status = region.view.records.get(CellStatus, "cell1")
        return None if status is None else status.is_reachable

    async with started(tmp_path / "region.db") as region, started(file) as cell:
        watch = CellWatch(region, ["cell1"], FakeClock())
        watch.note_open("cell1", cell)
        assert await cell.submit(begin_term(cell.view, 100), ORIGIN, lambda view, changed: None) is None
        file.rename(away)
        with pytest.raises(Unavailable):
            await cell.submit(begin_term(cell.view, 200), ORIGIN, lambda view, changed: None)
        await watch.report()
        assert status_of(region) is False
        away.rename(file)
        await watch.report()
        assert status_of(region) is True


def test_a_conductor_is_not_silent_before_it_could_be_heard_of() -> None:
    new = CellStatus(id="cell1", since_s=1000)
    assert not new.is_silent(1000 + SILENT_AFTER_S)
    assert new.is_silent(1001 + SILENT_AFTER_S)
    # Its database is back after an hour.
    assert not CellStatus(id="cell1", since_s=5000, heard_at_s=1400).is_silent(5030)
    assert CellStatus(id="cell1", since_s=1000, heard_at_s=1400).is_silent(1401 + SILENT_AFTER_S)


async def test_a_cell_that_was_never_opened_is_out_of_reach_after_a_while(tmp_path: Path) -> None:
    """A region that starts while the database of a cell is away."""
    clock = FakeClock()
    async with started(tmp_path / "region.db") as region:
        watch = CellWatch(region, ["cell1"], clock)
        await watch.report()
        assert region.view.records.get(CellStatus, "cell1") is None
        clock.advance(31)
        await watch.report()
        status = region.view.records.get(CellStatus, "cell1")
        assert status is not None
        assert not status.is_reachable
        assert status.text is not None
        assert "not opened the journal" in status.text
