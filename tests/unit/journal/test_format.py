"""The format of a journal: who may read it, what is written in it, and how it is raised."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from berth.cell.journal import NoObserver
from berth.cli import main
from berth.engine import Engine, Unavailable, start_view
from berth.engine.snapshots import problems, take_snapshot
from berth.journal import Damaged, Journal, Signature, Snapshots, SqliteAddress, WrittenByNewer
from berth.journal.body import encode_signature, split_signature
from berth.journal.sqlite import sqlite_dialect
from berth.model.commands import CreateTrait, Enact
from berth.model.events import Batch, Entry, Event, Origin, RecordChanged, TraitChanged
from berth.model.formats import FORMAT, THIS_PROGRAM, Additions, Program
from berth.model.ids import Index
from berth.model.rejections import FormatTooOld
from berth.model.servers import QuotaSet
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids

BEFORE = Program("0.1.0", 1)
NEXT = Program("99.1", FORMAT + 1)
ORIGIN = Origin("req-1", "operator", None, "db upgrade")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "berth.db"


@contextlib.contextmanager
def opened(path: Path, program: Program = THIS_PROGRAM) -> Iterator[Journal]:
    """The journal as a program of a release opens it."""
    journal = Journal(sqlite_dialect(SqliteAddress(path).path, shared=True, creates=True), program)
    try:
        journal.prepare()
        yield journal
    finally:
        journal.close()


def batch(index: int, format: int) -> Batch:
    event = TraitChanged(f"CUSTOM_{index}", None, index)
    return Batch(Index(index), f"batch-{index}", index, (Entry(ORIGIN, (event,)),), format=format)


def raise_format(path: Path, program: Program = NEXT) -> Signature:
    with opened(path, program) as journal:
        return journal.raise_format(ORIGIN, "raise", 7)


@contextlib.asynccontextmanager
async def running(path: Path, program: Program = THIS_PROGRAM) -> AsyncIterator[Engine]:
    with opened(path, program) as journal:
        engine = Engine(journal, SystemClock(), Ids(1), NoObserver(), shared=True, outage_seconds=0)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


def test_a_new_journal_has_the_newest_format_and_says_who_wrote_each_row(path: Path) -> None:
    with opened(path) as journal:
        assert journal.format() == FORMAT
        row = journal.append(batch(1, FORMAT))
        assert journal.signature() == split_signature(row.body)[0] == Signature(FORMAT, THIS_PROGRAM.version)
        assert list(journal.read(Index(0))) == [batch(1, FORMAT)]


def test_a_journal_of_format_1_is_written_as_before(path: Path) -> None:
    with opened(path, BEFORE) as journal:
        row = journal.append(batch(1, 1))
    with opened(path) as journal:
        assert journal.format() == 1
        assert row.body == split_signature(row.body)[1]
        assert start_view(journal).format == 1


async def test_an_engine_writes_in_the_format_that_the_journal_has(path: Path) -> None:
    with opened(path, BEFORE) as journal:
        journal.append(batch(1, 1))
    async with running(path) as engine:
        await engine.submit(CreateTrait("CUSTOM_A"), ORIGIN, lambda view, changed: None)
        raise_format(path, THIS_PROGRAM)
        await engine.submit(CreateTrait("CUSTOM_B"), ORIGIN, lambda view, changed: None)
        assert [one.format for one in await engine.history(Index(0), 9)] == [1, 1, FORMAT, FORMAT]


def test_what_a_newer_release_has_written_is_refused_before_anything_is_changed(path: Path) -> None:
    with opened(path) as journal:
        journal.append(batch(1, FORMAT))
    assert raise_format(path) == Signature(FORMAT, THIS_PROGRAM.version)
    before = path.read_bytes()
    sentence = (
        rf"journal entry 2 was written by Berth 99\.1 \(format {FORMAT + 1}\); this is Berth "
        rf"{THIS_PROGRAM.version}, which reads up to format {FORMAT}\. Nothing was changed\. "
        r"Install Berth 99\.1 or newer, or restore a backup"
    )
    with pytest.raises(WrittenByNewer, match=sentence), opened(path):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("action", ["check", "upgrade", "snapshot"])
def test_every_command_names_the_newer_release(
    path: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(path) as journal:
        journal.append(batch(1, FORMAT))
    raise_format(path)
    assert main(["db", action, "--database", f"sqlite:///{path}"]) == 1
    captured = capsys.readouterr()
    assert f"was written by Berth 99.1 (format {FORMAT + 1})" in captured.out + captured.err


async def test_a_running_server_stops_at_the_first_row_of_a_newer_release(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(path) as engine:
        await engine.submit(CreateTrait("CUSTOM_A"), ORIGIN, lambda view, changed: None)
        raise_format(path)
        with pytest.raises(Unavailable, match="written by a newer Berth"):
            await engine.submit(CreateTrait("CUSTOM_B"), ORIGIN, lambda view, changed: None)
        with pytest.raises(Unavailable, match="written by a newer Berth"):
            await engine.read(lambda view: view.index)
        assert "written by a newer Berth" in str(engine.broken)
    [logged] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "the database: stopped serving: journal entry 2 was written by Berth 99.1" in logged.getMessage()
    with opened(path, NEXT) as journal:
        assert [one.index for one in journal.read(Index(0))] == [1, 2], "it wrote nothing"


def test_a_format_is_raised_once(path: Path) -> None:
    with opened(path) as journal:
        assert journal.raise_format(ORIGIN, "raise", 1).format == FORMAT
        assert journal.tail() == 0, "an empty journal begins with the newest"
        journal.append(batch(1, FORMAT))
    raise_format(path)
    raise_format(path)
    with opened(path, NEXT) as journal:
        assert journal.tail() == 2
        assert journal.format() == FORMAT + 1
        assert [one.format for one in journal.read(Index(0))] == [FORMAT, FORMAT + 1]


def test_an_entry_that_cannot_be_read_names_who_wrote_it(path: Path) -> None:
    with opened(path, Program("0.2.7", FORMAT)) as journal:
        journal.append(Batch(Index(1), "x", 1, (), b"\x91\x01", FORMAT))
        with pytest.raises(
            Damaged, match=rf"entry 1 \(written by Berth 0\.2\.7 \(format {FORMAT}\)\) cannot"
        ):
            list(journal.read(Index(0)))


class LongerTrait(TraitChanged, frozen=True, tag="t"):
    colour: str = "red"


class LongerQuota(QuotaSet, frozen=True, kw_only=True, tag="quota_set"):
    colour: str | None = None


@pytest.mark.parametrize(
    ("event", "unknown"),
    [
        (LongerTrait("CUSTOM_A", None, 1), "value 4 of a TraitChanged"),
        (RecordChanged(None, LongerQuota(id="p", limits={}, colour="red")), "QuotaSet.colour"),
    ],
)
def test_the_check_finds_what_would_be_skipped(path: Path, event: Event, unknown: str) -> None:
    """Somebody has written what the format does not have: a program that reads it would lose it."""
    entries = (Entry(ORIGIN, (TraitChanged("CUSTOM_B", None, 1), event)),)
    with opened(path, Program("0.2.7", FORMAT)) as journal:
        journal.append(batch(1, FORMAT))
        journal.append(Batch(Index(2), "x", 1, entries, format=FORMAT))
        assert problems(journal) == [
            f"journal entry 2 (written by Berth 0.2.7 (format {FORMAT})) has what this release does not "
            f"know: {unknown}"
        ]


def test_a_damaged_signature_is_damage() -> None:
    signed = encode_signature(Signature(FORMAT, "0.2.0"))
    assert split_signature(signed + b"rest") == (Signature(FORMAT, "0.2.0"), b"rest")
    with pytest.raises(ValueError, match="ends too early"):
        split_signature(signed[:3])
    assert split_signature(b"") == (Signature(), b"")


# -- snapshots ------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_format_of_its_journal_and_says_who_wrote_it(path: Path) -> None:
    with opened(path) as journal:
        journal.append(batch(1, FORMAT))
        take_snapshot(journal, 1, 0)
        [snapshot] = Snapshots(journal).all()
        assert snapshot.format == FORMAT
        assert start_view(journal).format == FORMAT
    raise_format(path)
    with opened(path, NEXT) as journal:
        take_snapshot(journal, 2, 0)
        newest, _ = Snapshots(journal).all()
        assert (newest.format, start_view(journal).format) == (FORMAT + 1, FORMAT + 1)
        journal.program = THIS_PROGRAM
        with pytest.raises(WrittenByNewer, match="snapshot 2 was written by"):
            list(Snapshots(journal).read(newest))
        [found, *_] = problems(journal)
        assert "was written by Berth 99.1" in found


def test_the_format_is_known_where_only_a_snapshot_is_read(path: Path) -> None:
    """A snapshot reaches the journal's end: no row of it is read."""
    with opened(path, BEFORE) as journal:
        journal.append(batch(1, 1))
        take_snapshot(journal, 1, 0)
    with opened(path) as journal:
        assert start_view(journal).format == 1


# -- what may be written --------------------------------------------------------------------------------


async def test_what_is_newer_than_the_journal_is_refused_by_name_until_the_upgrade_is_finished(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.engine.engine.ADDITIONS", Additions({"QuotaSet.limits": FORMAT}))
    with opened(path, BEFORE) as journal:
        journal.append(batch(1, 1))
    new = Enact((RecordChanged(None, QuotaSet(id="p", limits={"cores": 1})),))
    async with running(path) as engine:
        refused = await engine.submit(new, ORIGIN, lambda view, changed: None)
        assert refused == FormatTooOld("QuotaSet.limits", FORMAT, 1)
        assert (await engine.read(lambda view: view.index)) == 1
        raise_format(path, THIS_PROGRAM)
        assert await engine.submit(new, ORIGIN, lambda view, changed: None) is None
        assert await engine.read(lambda view: view.records.get(QuotaSet, "p")) is not None
