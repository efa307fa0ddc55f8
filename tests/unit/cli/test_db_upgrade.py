"""``berth db upgrade``: where a database stands, and how its upgrade is finished."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.cell.journal import open_cell
from berth.cli import main
from berth.engine.attachment import ProcessName
from berth.journal import AttachedProgram, Journal, Programs, SqliteAddress, open_journal
from berth.journal.schema import PROGRAM
from berth.journal.sqlite import sqlite_dialect
from berth.model.commands import CreateTrait
from berth.model.events import Batch, Entry, Origin, TraitChanged
from berth.model.formats import FORMAT, THIS_PROGRAM, Program
from berth.model.ids import Index
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from tests.waiting import until

OLD = Program("0.1.9", FORMAT - 1)


def make_old(path: Path) -> Path:
    """A database that was written in the format before."""
    journal = Journal(sqlite_dialect(path, shared=True, creates=True), OLD)
    with contextlib.closing(journal):
        journal.prepare()
        entry = Entry(Origin("req-1", None, None, "x"), (TraitChanged("CUSTOM_A", None, 1),))
        journal.append(Batch(Index(1), "b", 1, (entry,), format=OLD.format))
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Journal]:
    with contextlib.closing(open_journal(SqliteAddress(path), shared=True)) as journal:
        yield journal


def attach(path: Path, program: Program, seconds_ago: float = 0) -> None:
    with opened(path) as journal:
        seen_at_ns = time.time_ns() - int(seconds_ago * 1e9)
        Programs(journal).announce(AttachedProgram("1", program, "worker 1", "machine-a pid 7", seen_at_ns))


def upgrade(path: Path, *words: str) -> int:
    return main(["db", "upgrade", *words, "--database", f"sqlite:///{path}"])


def test_it_says_where_the_database_stands_and_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_old(tmp_path / "berth.db")
    assert upgrade(path) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["the database is ready", f"format {OLD.format}; this is {THIS_PROGRAM}"]
    assert "berth db upgrade --finish" in shown[2]
    assert "cannot be undone" in shown[2]
    assert upgrade(path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "ready": True,
        "format": OLD.format,
        "format_max": FORMAT,
        "written_by": None,
        "programs": [],
    }


def test_it_is_finished_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_old(tmp_path / "berth.db")
    assert upgrade(path, "--finish") == 0
    assert f"the journal has format {FORMAT} now" in capsys.readouterr().out
    assert upgrade(path, "--finish") == 0
    assert f"nothing to do: the journal has format {FORMAT} already" in capsys.readouterr().out
    with opened(path) as journal:
        assert (journal.tail(), journal.format()) == (2, FORMAT)
        [raised] = journal.read(Index(1))
        assert [entry.origin.action for entry in raised.entries] == ["berth:db upgrade --finish"]
    assert upgrade(path) == 0
    assert "next" not in capsys.readouterr().out


def test_it_is_not_finished_while_an_older_program_uses_the_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_old(tmp_path / "berth.db")
    attach(path, OLD)
    assert upgrade(path) == 0
    shown = capsys.readouterr().out
    assert "in use by Berth 0.1.9, worker 1, machine-a pid 7" in shown
    assert f"next: replace what reads only formats before {FORMAT} (1 of 1)" in shown
    assert upgrade(path, "--finish") == 1
    assert "these programs would stop: Berth 0.1.9, worker 1, machine-a pid 7" in capsys.readouterr().err
    with opened(path) as journal:
        assert journal.format() == OLD.format
    attach(path, THIS_PROGRAM)
    assert upgrade(path, "--finish") == 0


def test_a_program_that_was_not_heard_of_for_two_minutes_is_gone(tmp_path: Path) -> None:
    path = make_old(tmp_path / "berth.db")
    attach(path, OLD, seconds_ago=130)
    assert upgrade(path, "--finish") == 0


def test_cells_are_finished_before_their_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region, cell = make_old(tmp_path / "region.db"), make_old(tmp_path / "cell.db")
    cells = ("--cells", f"cell1=sqlite:///{cell}")
    assert upgrade(region, "--finish", *cells) == 1
    assert f"these cells have an older format than {FORMAT}: cell1 ({OLD.format})" in capsys.readouterr().err
    assert upgrade(cell, "--finish") == 0
    assert upgrade(region, "--finish", *cells) == 0


def test_a_file_that_a_server_has_for_itself_is_not_finished_under_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_old(tmp_path / "berth.db")
    with contextlib.closing(open_journal(SqliteAddress(path), shared=False)):
        assert upgrade(path, "--finish") == 1
    assert "in use by another process" in capsys.readouterr().err


async def test_a_process_is_listed_while_it_uses_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "cell.db"
    name = ProcessName("conductor of cell1", "machine-b pid 8")
    engine = await open_cell(f"sqlite:///{path}", SystemClock(), Ids(), process=name)
    with opened(path) as journal:
        programs = Programs(journal)
        await until(lambda: bool(programs.attached(time.time_ns())))
        [listed] = programs.attached(time.time_ns())
        assert (listed.program, listed.part, listed.place) == (THIS_PROGRAM, *name)
        await engine.submit(CreateTrait("CUSTOM_A"), Origin("", None, None, ""), lambda view, changed: None)
        await engine.stop()
        assert programs.attached(time.time_ns()) == []


def test_a_database_from_before_there_was_a_list_gets_one(tmp_path: Path) -> None:
    path = make_old(tmp_path / "berth.db")
    with opened(path) as journal:
        PROGRAM.drop(journal._engine)
    attach(path, OLD)
    with opened(path) as journal:
        assert len(Programs(journal).attached(time.time_ns())) == 1
