"""The journal on SQLite: what is appended is read, and everything that is not in order is named."""

import contextlib
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

import berth
from berth.journal import (
    Conflict,
    Journal,
    JournalError,
    JournalFailure,
    JournalRow,
    Pruned,
    SqliteAddress,
    open_journal,
)
from berth.journal.database import Damaged
from berth.journal.journal import ROWS_BYTES
from berth.journal.sqlite import sqlite_dialect
from berth.model.events import (
    AggregatesChanged,
    Batch,
    ConsumerChanged,
    Entry,
    InventoryChanged,
    Named,
    Origin,
    Placed,
    ProviderChanged,
    ProviderStamped,
    ResourceClassChanged,
    Stamp,
    TraitChanged,
    TraitsChanged,
)
from berth.model.ids import AggregateId, ClassId, ConsumerId, Index, ProviderId, Row
from berth.model.placement import Consumer, Inventory

HOST = ProviderId("00000000-0000-0000-0000-000000000001")
SERVER = ConsumerId("10000000-0000-0000-0000-000000000001")
START = Index(0)
LARGE_BYTES = ROWS_BYTES // 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "berth.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = open_journal(SqliteAddress(path), shared=False)
    yield journal
    journal.close()


def batch(index: int, *names: str) -> Batch:
    """A batch that creates these traits."""
    entries = tuple(
        Entry(Origin(f"req-{name}", "user", None, "create"), (TraitChanged(name, None, index),))
        for name in names or (f"CUSTOM_{index}",)
    )
    return Batch(Index(index), f"batch-{index}", 1_000 + index, entries)


def change(path: Path, statement: str, *parameters: object) -> None:
    """Do something to the database behind the journal's back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, parameters)
    connection.close()


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute(statement).fetchall()
    connection.close()
    return found


# -- append and read ------------------------------------------------------------------------------------


def test_a_new_journal_is_empty(journal: Journal) -> None:
    assert journal.tail() == 0
    assert list(journal.read(START)) == []


def test_what_is_appended_is_read_back_in_order(journal: Journal) -> None:
    written = [batch(1), batch(2, "CUSTOM_A", "CUSTOM_B"), batch(3)]
    for one in written:
        journal.append(one)
    assert list(journal.read(START)) == written
    assert list(journal.read(Index(2))) == written[2:]
    assert list(journal.read(Index(3))) == []
    assert journal.tail() == 3


def test_what_is_read_a_few_rows_behind_the_end_is_one_statement(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in (1, 2, 3):
        journal.append(batch(index))
    asked: list[object] = []
    monkeypatch.setattr(Journal, "execute", lambda *arguments: asked.append(arguments))
    assert [one.index for one in journal.read(Index(1))] == [2, 3]
    assert not asked, "the digest of the row before is known"


def test_the_first_row_is_verified_however_many_follow(journal: Journal, path: Path) -> None:
    for index in range(1, 300):
        journal.append(batch(index))
    change(path, "UPDATE journal SET batch_id = 'another' WHERE idx = 1")
    with pytest.raises(Damaged, match="entry 1"):
        list(journal.read(START))


def test_every_kind_of_event_survives(journal: Journal) -> None:
    held = ((HOST, ((ClassId(0), 2), (ClassId(10000), 1))),)
    consumer = Consumer(1, "project", "user", None, 5, 6)
    events = (
        ResourceClassChanged(ClassId(10000), None, Named("CUSTOM_A", 1)),
        TraitChanged("CUSTOM_T", None, 1),
        ProviderChanged(HOST, Row(0), None, Placed("hôst \U0001f600", None)),
        ProviderStamped(HOST, Stamp(0, 0, 0), Stamp(1, 2, 3)),
        InventoryChanged(HOST, ClassId(0), None, Inventory(8, 1, 1, 4, 2, 3.4e38, 7)),
        TraitsChanged(HOST, (), ("CUSTOM_T",)),
        AggregatesChanged(HOST, (), (AggregateId("a"),)),
        ConsumerChanged(SERVER, None, consumer, (), held),
        ConsumerChanged(SERVER, consumer, None, held, ()),
    )
    written = Batch(Index(1), "one", 1, (Entry(Origin("req", None, None, "all"), events),))
    journal.append(written)
    assert list(journal.read(START)) == [written]


def test_more_batches_than_one_read_takes_are_all_read(journal: Journal) -> None:
    for index in range(1, 2101):
        journal.append(batch(index))
    assert [one.index for one in journal.read(START)] == list(range(1, 2101))


def test_a_taken_index_is_a_conflict_and_nothing_is_written(journal: Journal) -> None:
    journal.append(batch(1, "CUSTOM_FIRST"))
    with pytest.raises(Conflict):
        journal.append(batch(1, "CUSTOM_SECOND"))
    assert list(journal.read(START)) == [batch(1, "CUSTOM_FIRST")]
    journal.append(batch(2))
    assert journal.tail() == 2


def test_a_journal_is_still_there_when_opened_again(path: Path) -> None:
    first = open_journal(SqliteAddress(path), shared=False)
    first.append(batch(1))
    first.close()
    second = open_journal(SqliteAddress(path), shared=False)
    assert list(second.read(START)) == [batch(1)]
    second.close()


def test_an_append_is_flushed_to_disk_before_it_returns(journal: Journal, path: Path) -> None:
    """What can be seen of it from here: the log is write-ahead, and every commit is synchronous."""
    settings = [journal.execute(_pragma(name)).scalar_one() for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]


def _pragma(name: str) -> object:
    import sqlalchemy as sa

    return sa.text(f"PRAGMA {name}")


# -- what is not in order -----------------------------------------------------------------------------


def test_a_gap_is_named(journal: Journal, path: Path) -> None:
    for index in range(1, 5):
        journal.append(batch(index))
    change(path, "DELETE FROM journal WHERE idx = 3")
    read = journal.read(START)
    assert [next(read).index, next(read).index] == [1, 2]
    with pytest.raises(JournalError, match=r"no entry 3, but has entry 4"):
        next(read)


def test_a_missing_beginning_has_been_pruned(journal: Journal, path: Path) -> None:
    journal.append(batch(1))
    journal.append(batch(2))
    change(path, "DELETE FROM journal WHERE idx = 1")
    with pytest.raises(Pruned, match=r"the oldest kept is 2"):
        list(journal.read(START))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x93\x01\x02", b"\x91\x92\xa1x\x91\x93\xa2??\x01\x02"])
def test_a_body_that_cannot_be_read_is_named_by_its_index(journal: Journal, path: Path, body: bytes) -> None:
    journal.append(batch(1))
    journal.append(batch(2))
    change(path, "UPDATE journal SET entries = ? WHERE idx = 2", body)
    with pytest.raises(JournalError, match=r"journal entry 2 is damaged") as caught:
        list(journal.read(START))
    assert not isinstance(caught.value, JournalFailure), "reading it again does not help"


def test_a_newer_schema_is_refused_and_left_untouched(path: Path) -> None:
    open_journal(SqliteAddress(path), shared=False).close()
    change(path, "UPDATE journal_schema SET version = 99")
    change(path, "DROP TABLE journal")
    change(path, "CREATE TABLE journal (something_else INTEGER)")
    before = rows(path, "SELECT name, sql FROM sqlite_master ORDER BY name")
    with pytest.raises(JournalError, match=r"schema 99.*supports 2.*nothing was changed"):
        open_journal(SqliteAddress(path), shared=False)
    assert rows(path, "SELECT name, sql FROM sqlite_master ORDER BY name") == before
    assert rows(path, "SELECT version FROM journal_schema") == [(99,)]


def test_a_newer_schema_without_our_tables_gets_none_of_them(path: Path) -> None:
    """The newer program may have renamed what this one calls ``journal``."""
    change(path, "CREATE TABLE journal_schema (version INTEGER PRIMARY KEY)")
    change(path, "INSERT INTO journal_schema VALUES (99)")
    with pytest.raises(JournalError, match=r"schema 99"):
        open_journal(SqliteAddress(path), shared=False)
    assert rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("journal_schema",)]


@pytest.mark.parametrize("shared", [False, True, None])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, shared: bool | None) -> None:
    """It belongs to somebody else: others go on reading it, and nothing is put beside it."""
    content = b"this is not a database, whatever its name says\n" * 100
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(JournalError, match=r"is no SQLite database: name another file\. Nothing was changed"):
        open_journal(SqliteAddress(path), shared=shared)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"cannot read .*: Is a directory"):
        open_journal(SqliteAddress(tmp_path), shared=False)
    assert not tmp_path.with_name(f"{tmp_path.name}.lock").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="does not exist"):
        open_journal(SqliteAddress(tmp_path / "nowhere" / "berth.db"), shared=False)


def test_a_failed_statement_leaves_a_journal_that_works_when_the_database_does(
    journal: Journal, path: Path
) -> None:
    journal.append(batch(1))
    change(path, "ALTER TABLE journal RENAME TO away")
    for attempt in (lambda: journal.append(batch(2)), lambda: list(journal.read(START)), journal.tail):
        with pytest.raises(JournalFailure):
            attempt()
    change(path, "ALTER TABLE away RENAME TO journal")
    assert journal.tail() == 1
    journal.append(batch(2))
    assert [one.index for one in journal.read(START)] == [1, 2]


# -- who may open it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_one_that_is_not_shared_keeps_others_out(path: Path, first: bool, second: bool) -> None:
    journal = open_journal(SqliteAddress(path), shared=first)
    with pytest.raises(JournalError, match="in use by another process"):
        open_journal(SqliteAddress(path), shared=second)
    journal.append(batch(1))
    journal.close()
    open_journal(SqliteAddress(path), shared=second).close()


def test_those_that_share_write_to_one_journal(path: Path) -> None:
    one, other = (
        open_journal(SqliteAddress(path), shared=True),
        open_journal(SqliteAddress(path), shared=True),
    )
    one.append(batch(1))
    assert list(other.read(START)) == [batch(1)]
    with pytest.raises(Conflict):
        other.append(batch(1))
    other.append(batch(2))
    assert one.tail() == 2
    one.close()
    other.close()


def test_a_second_process_is_refused_with_a_clear_message(journal: Journal, path: Path) -> None:
    program = (
        "import sys, pathlib; from berth.journal import SqliteAddress, open_journal, JournalError\n"
        "try: open_journal(SqliteAddress(pathlib.Path(sys.argv[1])), shared=False)\n"
        "except JournalError as error: sys.exit(str(error))\n"
    )
    source = Path(berth.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"in use by another process (it holds {path}.lock)" in done.stderr
    assert "stop that one first" in done.stderr


def test_a_refused_open_does_not_loosen_the_lock(path: Path) -> None:
    journal = open_journal(SqliteAddress(path), shared=False)
    for _ in range(2):
        with pytest.raises(JournalError, match="in use"):
            open_journal(SqliteAddress(path), shared=False)
    journal.close()


@pytest.mark.parametrize("round_", range(20))
def test_a_new_file_is_prepared_by_all_who_open_it_at_once(tmp_path: Path, round_: int) -> None:
    """Turning the write-ahead log on does not wait for others, as everything else in SQLite does."""
    problems: list[JournalError] = []

    def prepare() -> None:
        try:
            open_journal(SqliteAddress(tmp_path / f"{round_}.db"), shared=True).close()
        except JournalError as error:
            problems.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def lost_tail(tmp_path: Path, journal: Journal, kept: int) -> tuple[Journal, list[JournalRow]]:
    """A journal that ends after so many of the batches of another, and the rows of the others."""
    short = open_journal(SqliteAddress(tmp_path / "short.db"), shared=False)
    rows = [journal.append(batch(index)) for index in range(1, 5)]
    for row in rows[:kept]:
        short.fill(row)
    assert [one.index for one in short.read(START)] == list(range(1, kept + 1))
    return short, rows[kept:]


def test_no_row_is_written_behind_rows_that_only_other_processes_have_seen(
    tmp_path: Path, journal: Journal
) -> None:
    """A worker that starts on a standby without the newest rows gets them from other workers: what it wrote
    behind them would leave a gap that nobody can read past."""
    short, rest = lost_tail(tmp_path, journal, 2)
    for row in rest:
        short.take_over(row)
    with pytest.raises(JournalFailure, match="journal entry 4 is missing or differs"):
        short.append(batch(5))
    short.close()
    with contextlib.closing(open_journal(SqliteAddress(tmp_path / "short.db"), shared=False)) as again:
        assert list(again.read(START)) == [batch(1), batch(2)]


def test_no_row_is_written_behind_another_row_than_the_one_it_follows(
    tmp_path: Path, journal: Journal
) -> None:
    short, rest = lost_tail(tmp_path, journal, 2)
    other = msgspec.structs.replace(batch(3, "CUSTOM_OTHER"), id="other")
    with contextlib.closing(open_journal(SqliteAddress(tmp_path / "short.db"), shared=None)) as second:
        second.append(other)
    short.take_over(rest[0])
    with pytest.raises(JournalFailure, match="journal entry 3 is missing or differs"):
        short.append(batch(4))
    short.close()
    with contextlib.closing(open_journal(SqliteAddress(tmp_path / "short.db"), shared=False)) as again:
        assert [one.id for one in again.read(START)] == ["batch-1", "batch-2", "other"]


def test_a_process_that_loses_a_race_to_create_the_tables_looks_again(path: Path) -> None:
    """On Galera the one that loses is told of a deadlock, though both wrote the same."""
    dialect = sqlite_dialect(path, shared=True, creates=True)
    deadlocks = iter((True, True, False))

    def lose(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if statement.startswith("INSERT INTO journal_schema") and next(deadlocks):
            raise sqlite3.OperationalError("deadlock")

    sa.event.listen(dialect.engine, "before_cursor_execute", lose)
    journal = Journal(msgspec.structs.replace(dialect, meaning=lambda error: Conflict))
    journal.prepare()
    journal.check()
    journal.close()
    assert next(deadlocks, None) is None


def write_traits(journal: Journal, count: int, length: int) -> None:
    """Batches of one trait each, which does not deflate well."""
    dice = random.Random(1)
    for index in range(1, count + 1):
        event = TraitChanged(dice.randbytes(length).hex(), None, index)
        entries = (Entry(Origin("req", None, None, "test"), (event,)),)
        journal.append(Batch(Index(index), f"batch-{index}", index, entries))


def test_whoever_catches_up_has_some_of_the_entries_in_memory(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand were read at once, whatever their size: 808 MiB for those of 400 kB."""
    write_traits(journal, 20, LARGE_BYTES)
    fetched: list[int] = []
    rows_after = Journal._rows_after

    def count(self: Journal, index: int, limit: int) -> list[JournalRow]:
        rows = rows_after(self, index, limit)
        fetched.append(len(rows))
        return rows

    monkeypatch.setattr(Journal, "_rows_after", count)
    found: list[int] = []
    is_all, parts = False, 0
    while not is_all:
        some, is_all = journal.read_some(Index(len(found)))
        found += [batch.index for batch in some]
        parts += 1
    assert found == list(range(1, 21))
    # Of the first eight nobody asks how large they are: mostly there is one or none.
    assert fetched == [8, 2, 8, 2, 0]
    assert parts == 3
    fetched.clear()
    assert [batch.index for batch in journal.read(START)] == found
    assert fetched == [8, 2, 2, 2, 2, 2, 2]


def test_a_look_that_finds_little_is_one_statement(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    write_traits(journal, 9, 10)
    asked: list[object] = []
    do = Journal._do

    def count(self: Journal, work: Any, *, writes: bool) -> Any:
        asked.append(work)
        return do(self, work, writes=writes)

    monkeypatch.setattr(Journal, "_do", count)
    for after in (9, 8, 2):
        asked.clear()
        assert len(journal.read_some(Index(after))[0]) == 9 - after
        assert len(asked) == 1
