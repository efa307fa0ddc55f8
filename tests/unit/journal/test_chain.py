"""Rows of the journal are tied to each other: whatever is changed behind its back is found, and named."""

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from berth.cell.journal import NoObserver
from berth.cli import main
from berth.engine import Engine, Unavailable, replay, start_view
from berth.engine.snapshots import problems, take_snapshot
from berth.journal import Damaged, Journal, JournalRow, Snapshots, SqliteAddress, connect, open_journal
from berth.model.events import Batch, Entry, Origin, TraitChanged
from berth.model.ids import Index
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.view import View
from berth.view.snapshot import dump

START = Index(0)
COUNT = 9

Change = Callable[[sqlite3.Connection], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "berth.db"


def batch(index: int) -> Batch:
    entry = Entry(
        Origin(f"req-{index}", "alice", None, "create"), (TraitChanged(f"CUSTOM_{index}", None, 7),)
    )
    return Batch(Index(index), f"batch-{index}", index, (entry,))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Journal]:
    with contextlib.closing(open_journal(SqliteAddress(path), shared=True)) as journal:
        yield journal


def write(path: Path, first: int = 1, last: int = COUNT) -> None:
    with opened(path) as journal:
        for index in range(first, last + 1):
            journal.append(batch(index))


def change(path: Path, *statements: str | Change) -> None:
    """Do something to the database behind the journal's back."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            if callable(statement):
                statement(connection)
            else:
                connection.execute(statement)


def found(path: Path) -> list[str]:
    with contextlib.closing(connect(SqliteAddress(path), shared=None)) as journal:
        return problems(journal)


def body(connection: sqlite3.Connection, index: int) -> bytes:
    content: bytes = connection.execute("SELECT entries FROM journal WHERE idx = ?", (index,)).fetchone()[0]
    return content


def replace_in_body(before: bytes, after: bytes) -> Change:
    def replace(connection: sqlite3.Connection) -> None:
        content = body(connection, 4)
        assert before in content
        changed = content.replace(before, after)
        connection.execute("UPDATE journal SET entries = ? WHERE idx = 4", (changed,))

    return replace


def insert_a_copy(connection: sqlite3.Connection) -> None:
    """A row of the right form between others, which move up."""
    connection.execute("UPDATE journal SET idx = -idx - 1 WHERE idx >= 4")
    connection.execute("UPDATE journal SET idx = -idx WHERE idx < 0")
    connection.execute(
        "INSERT INTO journal SELECT 4, batch_id, at_ns, entries, digest FROM journal WHERE idx = 5"
    )


def put_text_that_is_none(column: str) -> Change:
    return lambda connection: connection.execute(
        f"UPDATE journal SET {column} = CAST(? AS TEXT) WHERE idx = 4", (b"b\xffd",)
    )


DAMAGE: dict[str, tuple[str | Change, ...]] = {
    "a letter": (replace_in_body(b"CUSTOM_4", b"CUSTOM_X"),),
    "a byte that is no UTF-8": (replace_in_body(b"alice", b"al\xffce"),),
    "the batch's id": ("UPDATE journal SET batch_id = 'other' WHERE idx = 4",),
    "the batch's id, no UTF-8": (put_text_that_is_none("batch_id"),),
    "the time": ("UPDATE journal SET at_ns = at_ns + 1 WHERE idx = 4",),
    "the time, no number": ("UPDATE journal SET at_ns = 'x' WHERE idx = 4",),
    "the checksum": ("UPDATE journal SET digest = replace(digest, substr(digest, 1, 1), 'x') WHERE idx = 4",),
    "the checksum, no UTF-8": (put_text_that_is_none("digest"),),
    "no checksum": ("UPDATE journal SET digest = NULL WHERE idx = 4",),
    "another kind of body": ("UPDATE journal SET entries = 'a text' WHERE idx = 4",),
    "a row that is gone": ("DELETE FROM journal WHERE idx = 4",),
    "a row that is gone, and its place": (
        "DELETE FROM journal WHERE idx = 4",
        "UPDATE journal SET idx = -idx + 1 WHERE idx > 4",
        "UPDATE journal SET idx = -idx WHERE idx < 0",
    ),
    "rows that changed places": (
        "UPDATE journal SET idx = 100 WHERE idx = 4",
        "UPDATE journal SET idx = 4 WHERE idx = 6",
        "UPDATE journal SET idx = 6 WHERE idx = 100",
    ),
    "a row that came in between": (insert_a_copy,),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_was_changed_is_found_and_named(
    path: Path, damage: tuple[str | Change, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write(path)
    assert found(path) == []
    change(path, *damage)
    assert main(["db", "check", "--database", f"sqlite:///{path}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all("entry 4" in line or "index 4" in line for line in lines), lines
    with opened(path) as journal, pytest.raises(Damaged, match=r"(entry|index) 4"):
        start_view(journal)


def test_damage_before_a_snapshot_is_found_though_a_server_can_start(path: Path) -> None:
    write(path)
    with opened(path) as journal:
        take_snapshot(journal, 1, keep=100)
    change(path, replace_in_body(b"CUSTOM_4", b"CUSTOM_X"))
    [finding] = found(path)
    assert finding.startswith("journal entry 4 is damaged")
    with opened(path) as journal:
        assert start_view(journal).index == COUNT


def test_the_first_row_behind_pruned_ones_is_verified(path: Path) -> None:
    write(path)
    with opened(path) as journal:
        for last in (1, 3):
            journal.prune(Index(last))
        assert [one.index for one in journal.read(Index(3))] == list(range(4, COUNT + 1))
    change(path, replace_in_body(b"CUSTOM_4", b"CUSTOM_X"))
    with opened(path) as journal, pytest.raises(Damaged, match="journal entry 4 is damaged"):
        list(journal.read(Index(3)))


def test_reading_from_the_middle_verifies(path: Path) -> None:
    write(path)
    change(path, replace_in_body(b"CUSTOM_4", b"CUSTOM_X"))
    with opened(path) as journal:
        with pytest.raises(Damaged, match="journal entry 4 is damaged"):
            list(journal.read(Index(3)))
        assert [one.index for one in journal.read(Index(4))] == list(range(5, COUNT + 1))


def test_writers_that_know_of_each_other_only_through_the_database_make_one_chain(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        for index in range(1, COUNT + 1):
            (one if index % 3 else other).append(batch(index))
    assert found(path) == []


def test_what_another_process_has_left_need_not_be_read_to_go_on(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        row = one.append(batch(1))
        left = msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=JournalRow)
        assert other.take_over(left) == batch(1)
        # With the index it was left at, it is what comes before the next.
        follower = other.append(batch(2))
        assert one.take_over(follower) == batch(2)
        with pytest.raises(Damaged, match="journal entry 3"):
            one.take_over(msgspec.structs.replace(follower, index=Index(3)))
    assert found(path) == []


def test_a_snapshot_of_another_journal_is_not_used(path: Path, tmp_path: Path) -> None:
    write(path)
    with opened(path) as journal:
        view = View()
        replay(journal, view)
        Snapshots(journal).write(view.index, view.format, 1, dump(view))
    change(path, f"UPDATE snapshot SET digest = '{'0' * 32}'")
    assert found(path) == [f"snapshot {COUNT} cannot be used: snapshot {COUNT} was made from another journal"]
    with opened(path) as journal:
        assert start_view(journal).state() == view.state()


async def test_an_engine_that_meets_damage_stops_and_names_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, 1, 3)
    journal = open_journal(SqliteAddress(path), shared=True)
    engine = Engine(journal, SystemClock(), Ids(1), NoObserver(), shared=True, outage_seconds=0)
    await engine.start()
    write(path, 4)
    change(path, replace_in_body(b"CUSTOM_4", b"CUSTOM_X"))
    with pytest.raises(Unavailable, match="The journal is damaged"):
        await engine.read(lambda view: view.index)
    assert engine.broken is not None
    assert "The journal is damaged" in engine.broken
    await engine.stop()
    [logged] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "journal entry 4 is damaged" in logged.getMessage()
    assert logged.exc_info is None, "it is no bug of the program's"


async def test_a_read_of_damaged_history_is_refused(path: Path) -> None:
    write(path)
    engine = Engine(open_journal(SqliteAddress(path), shared=False), SystemClock(), Ids(1), NoObserver())
    await engine.start()
    change(path, replace_in_body(b"CUSTOM_4", b"CUSTOM_X"))
    assert [one.index for one in await engine.history(START, 3)] == [1, 2, 3]
    with pytest.raises(Unavailable, match="The journal is damaged") as refused:
        await engine.history(START, 4)
    assert "journal entry 4 is damaged" in refused.value.detail
    await engine.stop()


# -- databases of before --------------------------------------------------------------------------------

SCHEMA_1 = (
    "CREATE TABLE journal (idx BIGINT NOT NULL, batch_id VARCHAR(36) NOT NULL, at_ns BIGINT NOT NULL, "
    "body BLOB NOT NULL, PRIMARY KEY (idx))",
    "CREATE TABLE snapshot (idx BIGINT NOT NULL, format INTEGER NOT NULL, parts INTEGER NOT NULL, "
    "at_ns BIGINT NOT NULL, PRIMARY KEY (idx))",
    "CREATE TABLE snapshot_part (idx BIGINT NOT NULL, part INTEGER NOT NULL, checksum VARCHAR(64) NOT NULL, "
    "body BLOB NOT NULL, PRIMARY KEY (idx, part))",
    "CREATE TABLE journal_schema (version INTEGER NOT NULL, PRIMARY KEY (version))",
    "INSERT INTO journal_schema VALUES (1)",
)


def insert_old(connection: sqlite3.Connection) -> None:
    for one in map(batch, (1, 2, 3)):
        encoded = msgspec.msgpack.encode(one.entries)
        connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", (one.index, one.id, one.at_ns, encoded))


def test_a_database_without_checksums_is_upgraded_and_says_what_is_not_verified(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, *SCHEMA_1, insert_old)
    database = ("--database", f"sqlite:///{path}")
    assert main(["db", "check", *database]) == 1
    assert "schema 1, this release needs 2: run `berth db upgrade`" in capsys.readouterr().out
    assert main(["db", "upgrade", *database]) == 0
    capsys.readouterr()
    assert main(["db", "check", *database]) == 0
    assert "not verified, from before there were checksums: 3 entries" in capsys.readouterr().out
    write(path, 4)
    assert found(path) == []
    with opened(path) as journal:
        assert list(journal.read(START)) == [batch(index) for index in range(1, COUNT + 1)]
        journal.prune(Index(3))
    assert main(["db", "check", *database]) == 1, "a start needs a snapshot now"
    assert "checksum" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\xc1not deflated", "a text", 7, b"\x91" * 100_000])
def test_an_old_entry_that_cannot_be_read_is_named(path: Path, content: object) -> None:
    change(path, *SCHEMA_1, insert_old)
    change(
        path, lambda connection: connection.execute("UPDATE journal SET body = ? WHERE idx = 2", (content,))
    )
    with opened(path) as journal, pytest.raises(Damaged, match="journal entry 2 cannot be read"):
        list(journal.read(START))


def test_an_old_entry_with_a_text_that_is_no_utf8_is_named(path: Path) -> None:
    change(path, *SCHEMA_1, insert_old)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        damaged = msgspec.msgpack.encode(batch(2).entries).replace(b"alice", b"al\xffce")
        connection.execute("UPDATE journal SET body = ? WHERE idx = 2", (damaged,))
    with opened(path) as journal, pytest.raises(Damaged, match="journal entry 2 cannot be read"):
        list(journal.read(START))
