"""A database that does not answer, as SQLite on a disk that hangs: every wait ends, nobody is answered from a
view that may be wrong, and all is well again when the call returns."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from berth.engine import Unavailable
from berth.engine.journal_thread import JournalThread
from berth.model.events import Batch
from tests.property.test_engine import EngineWorld, batches_in, create, created_in, fail, running
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.fast

ANSWER_S = 0.1
UNKNOWN = "The outcome is unknown"


class Hang:
    """Given to a troubled journal, it holds one call until it is released."""

    def __init__(self) -> None:
        self._released = threading.Event()

    def __call__(self, _: Batch | None = None) -> None:
        assert self._released.wait(30), "a call was held and never released"

    def release(self) -> None:
        self._released.set()


async def becomes_ready(world: EngineWorld) -> None:
    """As a load balancer asks: nobody reads or writes meanwhile."""
    async with asyncio.timeout(WITHIN_S):
        while await world.engine.check_ready() is not None:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_an_append_that_hangs_is_refused_and_its_outcome_is_read_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shared: bool, fails: bool
) -> None:
    """It gets in, whether it says so at last or fails."""
    with caplog.at_level(logging.INFO, logger="berth.engine"):
        async with running(tmp_path / "db", shared=shared, answer_seconds=ANSWER_S) as world:
            hang = Hang()
            world.journal.before_append.append(hang)
            if fails:
                world.journal.after_append.append(fail)
            write = world.submit(create(0))
            await world.append_begun()
            read = asyncio.ensure_future(world.names())
            with pytest.raises(Unavailable, match=UNKNOWN):
                await write
            with pytest.raises(Unavailable):
                await read
            # From now on nobody waits: neither for the deadline, nor as long as an outage may last.
            assert "does not answer" in str(await world.engine.check_ready())
            with pytest.raises(Unavailable):
                await world.names()
            with pytest.raises(Unavailable) as refused:
                await world.submit(create(1))
            assert UNKNOWN not in str(refused.value), "this one was not tried"
            hang.release()
            await becomes_ready(world)
            assert await world.names() == {"host-0"}
            assert await world.submit(create(2)) == {"host-0", "host-2"}
    assert created_in(tmp_path / "db") == {"host-0": 1, "host-2": 1}
    said = [record.getMessage() for record in caplog.records]
    assert (
        sum(
            "does not answer; what needs it is refused until it answers: no answer for 0.1 s" in line
            for line in said
        )
        == 1
    )
    assert sum("answers again" in line for line in said) == 1


async def test_an_append_that_hangs_and_fails_has_not_happened(tmp_path: Path) -> None:
    async with running(tmp_path / "db", answer_seconds=ANSWER_S) as world:
        hang = Hang()

        def hang_and_fail(batch: Batch) -> None:
            hang(batch)
            fail(batch)

        world.journal.before_append.append(hang_and_fail)
        with pytest.raises(Unavailable, match=UNKNOWN):
            await world.submit(create(0))
        hang.release()
        await becomes_ready(world)
        assert await world.names() == set()
        assert await world.submit(create(0)) == {"host-0"}
    assert len(batches_in(tmp_path / "db")) == 1


async def test_a_look_that_hangs_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "db", shared=True, answer_seconds=ANSWER_S) as world:
        assert await world.submit(create(0)) == {"host-0"}
        hang = Hang()
        world.journal.before_read.append(hang)
        with pytest.raises(Unavailable) as refused:
            await world.names()
        assert UNKNOWN not in str(refused.value)
        hang.release()
        await becomes_ready(world)
        assert await world.names() == {"host-0"}


async def test_history_that_hangs_is_refused_and_the_server_is_not_ready(tmp_path: Path) -> None:
    async with running(tmp_path / "db", answer_seconds=ANSWER_S) as world:
        assert await world.submit(create(0)) == {"host-0"}
        hang = Hang()
        world.journal.before_read.append(hang)
        with pytest.raises(Unavailable):
            await world.engine.history(world.engine.view.index, 10)
        assert "does not answer" in str(await world.engine.check_ready())
        with pytest.raises(Unavailable) as refused:
            await world.submit(create(1))
        assert UNKNOWN not in str(refused.value), "this one was not tried"
        hang.release()
        await becomes_ready(world)
        assert await world.submit(create(2)) == {"host-0", "host-2"}


async def test_a_server_that_stops_does_not_wait_for_it(tmp_path: Path) -> None:
    hang = Hang()
    async with running(tmp_path / "db", answer_seconds=ANSWER_S) as world:
        world.journal.before_append.append(hang)
        with pytest.raises(Unavailable, match=UNKNOWN):
            await world.submit(create(0))
    hang.release()
    calls = world.engine._calls
    assert isinstance(calls, JournalThread)
    thread = calls._thread
    assert thread is not None
    await asyncio.to_thread(thread.join, 30)
    world.journal.close()


async def test_a_long_tail_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has its deadline, so what is read in time is not read once more."""
    monkeypatch.setattr("berth.journal.journal._FIRST_ROWS", 2)
    monkeypatch.setattr("berth.journal.journal._CHUNK_ROWS", 1)

    async with (
        running(tmp_path / "db", shared=True) as one,
        running(tmp_path / "db", shared=True) as other,
    ):
        for number in range(7):
            await one.submit(create(number))
        reads = 0

        def count() -> None:
            nonlocal reads
            reads += 1

        other.journal.before_read.extend([count] * 10)
        assert len(await other.names()) == 7
        assert reads == 3


async def test_what_is_found_in_the_first_part_of_a_tail_is_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append gets in and seems to fail; of what is read then, only the part that has it can be read."""
    monkeypatch.setattr("berth.journal.journal._FIRST_ROWS", 1)

    async with running(tmp_path / "db", shared=True, outage_seconds=30) as world:
        world.journal.after_append.append(fail)
        world.journal.before_read.extend([lambda: None, fail])
        assert await world.submit(create(0)) == {"host-0"}
        assert await world.submit(create(1)) == {"host-0", "host-1"}
    assert created_in(tmp_path / "db") == {"host-0": 1, "host-1": 1}
