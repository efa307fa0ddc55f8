"""The simulator's databases: what a writer is told, and what is in the journal then."""

import asyncio
import contextlib
from typing import Final

import msgspec
import pytest

from berth.engine.journal_thread import NoAnswer
from berth.journal import Conflict, Journal, JournalFailure, NotWritten, RowRefused
from berth.model.events import Batch, Entry, Origin, TraitChanged
from berth.model.ids import Index
from berth.sim.database import TROUBLES, Condition, Database, SimCalls, Trouble
from berth.sim.world import Process, World

ANSWER_S: Final = 30.0


def batch(index: int, name: str = "CUSTOM_A") -> Batch:
    entry = Entry(Origin("req", "user", None, "create"), (TraitChanged(name, None, 1),))
    return Batch(Index(index), f"batch {index} {name}", index, (entry,))


class Writer:
    """A process with its way into a database."""

    def __init__(self, database: Database, name: str = "writer") -> None:
        self.process: Process = database.world.process(name)
        self.journal: Journal = database.open(self.process)
        self.calls = SimCalls(database, self.process, ANSWER_S)

    async def append(self, index: int, name: str = "CUSTOM_A") -> None:
        await self.calls.call(self.journal.append, batch(index, name))

    async def read(self) -> list[str]:
        return await self.calls.call(self._read)

    def _read(self) -> list[str]:
        return [one.id for one in self.journal.read(Index(0), 100)]


def database(seed: int = 1) -> Database:
    return Database(World(seed), "db")


def have(database: Database, *troubles: Trouble | None) -> None:
    """What is to go wrong with the next calls."""
    left = list(troubles)
    database.decide = lambda process, name, arguments: left.pop(0) if left else None


def written(database: Database) -> list[str]:
    """What is in, whatever anybody was told."""
    return Writer(database, "reader")._read()


async def test_a_call_takes_its_time_and_others_read_what_is_written() -> None:
    db = database()
    db.condition = Condition(delay_s=2)
    first, second = Writer(db), Writer(db, "second")
    start_s = db.world.loop.time()
    await first.append(1)
    assert 0 < db.world.loop.time() - start_s < 2
    assert await second.read() == ["batch 1 CUSTOM_A"]
    db.close()


async def test_calls_of_one_process_are_carried_out_one_after_the_other() -> None:
    db = database()
    db.condition = Condition(delay_s=2)
    writer = Writer(db)
    await asyncio.gather(*(writer.append(index) for index in range(1, 11)))
    assert written(db) == [f"batch {index} CUSTOM_A" for index in range(1, 11)]


async def test_of_two_writers_one_has_a_conflict() -> None:
    db = database()
    first, second = Writer(db, "first"), Writer(db, "second")
    appends = (first.append(1, "CUSTOM_A"), second.append(1, "CUSTOM_B"))
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    (failure,) = (outcome for outcome in outcomes if outcome is not None)
    assert isinstance(failure, Conflict)
    assert written(db) == [f"batch 1 {'CUSTOM_A' if outcomes[0] is None else 'CUSTOM_B'}"]


@pytest.mark.parametrize(("trouble", "is_in"), [("unknown in", True), ("unknown out", False)])
async def test_an_append_that_fails_is_in_or_not(trouble: Trouble, is_in: bool) -> None:
    db = database()
    writer = Writer(db)
    have(db, trouble)
    with pytest.raises(JournalFailure) as failure:
        await writer.append(1)
    assert not isinstance(failure.value, NotWritten | Conflict), "the writer must not know"
    assert bool(written(db)) == is_in
    assert not writer.calls.is_silent
    assert await writer.read() == written(db)
    assert db.happened == {trouble: 1}


async def test_a_database_that_refuses_is_read_and_not_written() -> None:
    db = database()
    writer = Writer(db)
    await writer.append(1)
    db.refuses = True
    with pytest.raises(NotWritten):
        await writer.append(2)
    assert await writer.read() == ["batch 1 CUSTOM_A"]
    db.heal()
    await writer.append(2)
    assert len(written(db)) == 2


async def test_a_database_that_is_away_answers_nobody() -> None:
    db = database()
    writer = Writer(db)
    await writer.append(1)
    db.is_away = True
    for call in (writer.append(2), writer.read()):
        with pytest.raises(JournalFailure):
            await call
    db.heal()
    assert await writer.read() == ["batch 1 CUSTOM_A"]


async def test_a_call_that_hangs_is_given_up_and_carried_out_later() -> None:
    """Luck says how long it hangs: with this seed, for longer than its caller waits."""
    db = database(seed=1)
    writer = Writer(db)
    have(db, "hangs")
    start_s = db.world.loop.time()
    with pytest.raises(NoAnswer):
        await writer.append(1)
    assert db.world.loop.time() - start_s == ANSWER_S
    assert writer.calls.is_silent
    assert written(db) == []
    with pytest.raises(NoAnswer):
        await writer.read()
    assert db.world.loop.time() - start_s == ANSWER_S, "it is known at once"
    await asyncio.sleep(2 * ANSWER_S)
    assert written(db) == ["batch 1 CUSTOM_A"]
    assert await writer.read() == written(db), "it is asked again"


async def test_the_call_of_a_process_that_has_died_is_made_or_not() -> None:
    """Whether it reached the database is luck; nothing comes back to the process."""
    seen = set()
    for seed in range(30):
        db = database(seed)
        writer = Writer(db)
        told: list[str] = []

        async def append(writer: Writer = writer, told: list[str] = told) -> None:
            try:
                await writer.append(1)
            finally:
                told.append("finally")

        writer.process.spawn(append())
        await asyncio.sleep(0)
        writer.process.kill()
        await asyncio.sleep(10)
        assert told == []
        seen.add(len(written(db)))
        db.close()
    assert seen == {0, 1}


async def test_a_call_that_was_never_sent_is_never_carried_out() -> None:
    db = database()
    writer = Writer(db)
    have(db, "unsent")
    task = writer.process.spawn(writer.append(1))
    await asyncio.sleep(10 * ANSWER_S)
    assert not task.done()
    assert written(db) == []


async def test_troubles_come_by_luck() -> None:
    db = database()
    db.condition = Condition(troubles=0.5)
    for number in range(60):
        with contextlib.suppress(JournalFailure):
            await Writer(db, f"writer-{number}").append(1 + len(written(db)))
    await asyncio.sleep(10 * ANSWER_S)
    assert set(db.happened) == set(TROUBLES)
    assert 10 < sum(db.happened.values()) < 50


async def test_who_has_written_what_is_told_and_in_the_history() -> None:
    db = database()
    told: list[tuple[str, int, str]] = []
    db.appended.append(lambda process, row, batch: told.append((process.name, row.index, batch.id)))
    have(db, None, "unknown in", "unknown out")
    writer = Writer(db)
    await writer.append(1)
    for index in (2, 3):
        with pytest.raises(JournalFailure):
            await writer.append(index)
    assert told == [("writer", 1, "batch 1 CUSTOM_A"), ("writer", 2, "batch 2 CUSTOM_A")]
    lines = [line for line in db.world.trace.lines if " writes db " in line]
    assert len(lines) == 2


async def test_a_database_outlives_its_processes() -> None:
    db = database()
    writer = Writer(db)
    await writer.append(1)
    writer.process.kill()
    again = Writer(db)
    await again.append(2)
    assert await again.read() == ["batch 1 CUSTOM_A", "batch 2 CUSTOM_A"]


# -- standbys -----------------------------------------------------------------------------------


async def test_a_standby_that_is_in_sync_takes_over() -> None:
    db = database()
    writer = Writer(db)
    await writer.append(1)
    db.fail_over()
    with pytest.raises(JournalFailure, match="another host"):
        await writer.append(2)
    await writer.append(2)
    assert await writer.read() == written(db) == ["batch 1 CUSTOM_A", "batch 2 CUSTOM_A"]
    db.close()


async def test_a_stale_host_is_refused_by_those_who_have_seen_more() -> None:
    """No read may be stale, and no write may follow another past."""
    db = database()
    writer = Writer(db)
    for index in (1, 2, 3):
        await writer.append(index)
    db.fail_over(lacking=2)
    with pytest.raises(JournalFailure, match="another host"):
        await writer.read()
    for call in (writer.read(), writer.append(4)):
        with pytest.raises(JournalFailure, match="journal entry 3 is missing"):
            await call
    db.fail_back()
    await writer.append(4)
    assert len(written(db)) == 4
    db.close()


async def test_processes_that_cannot_tell_are_kept_away_from_a_stale_host() -> None:
    db = database()
    first, second = Writer(db, "first"), Writer(db, "second")
    await first.append(1)
    assert await second.read() == ["batch 1 CUSTOM_A"]
    await first.append(2)
    db.fail_over(lacking=1)
    with pytest.raises(JournalFailure, match="keep this process away"):
        await second.append(2)
    with pytest.raises(JournalFailure, match="keep this process away"):
        Writer(db, "new")
    db.heal()
    assert len(written(db)) == 2
    db.close()


async def test_a_row_that_is_too_large_is_refused() -> None:
    db = database()
    writer = Writer(db)
    db.row_bytes_max = 10
    large = msgspec.structs.replace(batch(1), body=bytes(11))
    with pytest.raises(RowRefused):
        await writer.calls.call(writer.journal.append, large)
    assert not written(db)
    db.close()


async def test_an_answer_that_came_while_its_caller_was_frozen_is_taken() -> None:
    db = database()
    writer = Writer(db)
    have(db, "hangs", "hangs", "hangs", "hangs", "hangs")
    for index in range(1, 6):
        task = writer.process.spawn(writer.append(index))
        await asyncio.sleep(1)
        writer.process.freeze()
        await asyncio.sleep(10 * ANSWER_S)
        writer.process.thaw()
        await asyncio.wait_for(task, ANSWER_S)
    assert not writer.calls.is_silent
    db.close()
