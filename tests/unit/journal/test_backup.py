"""Backups: whole or refused, and a restore is whole, or goes on, or is refused."""

import contextlib
import fcntl
import io
import re
import shlex
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.cli import main
from berth.engine import start_view
from berth.engine.snapshots import problems, take_snapshot
from berth.journal import (
    Backup,
    BackupError,
    Damaged,
    Journal,
    JournalError,
    JournalFailure,
    JournalRow,
    SqliteAddress,
    backup,
    connect,
    open_journal,
    read_backup,
    restore_backup,
    write_backup,
)
from berth.journal.journal import ROWS_BYTES
from berth.journal.schema import JOURNAL, SNAPSHOT_PART
from berth.model.events import Batch, Entry, Origin, TraitChanged
from berth.model.formats import FORMAT, THIS_PROGRAM, Program
from berth.model.ids import Index
from berth.runtime.clock import SystemClock
from berth.runtime.progress import ProgressLine
from berth.view import View
from berth.view.snapshot import dump
from tests.servers import ROOT

over = ProgressLine(SystemClock(), io.StringIO()).over


def batch(index: int, size: int = 0) -> Batch:
    names = (f"CUSTOM_{index}", f"CUSTOM_X{'Y' * size}_{index}")
    changes = tuple(TraitChanged(name, None, 7) for name in names)
    entry = Entry(Origin(f"req-{index}", "u", None, "a"), changes)
    return Batch(Index(index), f"batch-{index}", index, (entry,))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Journal]:
    with contextlib.closing(open_journal(SqliteAddress(path), shared=True)) as journal:
        yield journal


def write(path: Path, first: int, last: int) -> None:
    with opened(path) as journal:
        for index in range(first, last + 1):
            journal.append(batch(index))


def snapshot(path: Path, keep: int = 10_000) -> None:
    with opened(path) as journal:
        take_snapshot(journal, 1, keep)


def state(view: View) -> list[bytes]:
    return list(dump(view))


def state_at(index: int) -> list[bytes]:
    """The state that the batches up to an index lead to."""
    view = View()
    for number in range(1, index + 1):
        for entry in batch(number).entries:
            for event in entry.events:
                view.apply(event)
    view.index = Index(index)
    return state(view)


def make_backup(source: Path, file: Path) -> Backup:
    with contextlib.closing(connect(SqliteAddress(source), shared=None, creates=False)) as journal:
        return write_backup(journal, file, FORMAT, "berth test", 5, over)


def restore(file: Path, target: Path, index: int | None = None) -> list[bytes]:
    found = read_backup(file, over)
    last = found.choose_last(None if index is None else Index(index), FORMAT)
    with opened(target) as journal:
        restore_backup(found, journal, last, FORMAT, over)
        assert problems(journal) == []
        return state(start_view(journal))


def rows(path: Path) -> list[JournalRow]:
    with opened(path) as journal:
        return list(journal.read_rows(Index(journal.head() - 1), journal.tail()))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A database from its first entry on, without a snapshot."""
    write(tmp_path / "whole.db", 1, 12)
    return tmp_path / "whole.db"


@pytest.fixture
def pruned(tmp_path: Path) -> Path:
    """A database that begins at index 6, with snapshots at 7 and 11."""
    path = tmp_path / "pruned.db"
    write(path, 1, 7)
    snapshot(path)
    write(path, 8, 11)
    snapshot(path, keep=6)
    write(path, 12, 14)
    with opened(path) as journal:
        assert journal.head() == 6
    return path


# -- there and back -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["whole", "pruned"])
def test_all_of_a_journal_comes_back(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    source: Path = request.getfixturevalue(name)
    made = make_backup(source, tmp_path / "file")
    last = rows(source)[-1].index
    assert read_backup(tmp_path / "file", over) == made
    assert (made.head.last, made.size) == (last, (tmp_path / "file").stat().st_size)
    assert restore(tmp_path / "file", tmp_path / "target.db") == state_at(last)
    assert rows(tmp_path / "target.db") == rows(source)
    with opened(tmp_path / "target.db") as journal:
        # It goes on from there.
        journal.append(batch(last + 1))
        assert state(start_view(journal)) == state_at(last + 1)
        assert problems(journal) == []


def test_a_journal_can_be_restored_to_every_index_that_a_server_could_start_at(
    whole: Path, pruned: Path, tmp_path: Path
) -> None:
    for source, indices in ((whole, range(1, 13)), (pruned, range(7, 15))):
        file = tmp_path / f"{source.name}.backup"
        make_backup(source, file)
        for index in indices:
            assert restore(file, tmp_path / f"{source.stem}-{index}.db", index) == state_at(index)
        for index in (indices.start - 1, indices.stop):
            expected = f"any index from {indices.start} to {indices.stop - 1}; {index} is not"
            with pytest.raises(BackupError, match=expected):
                restore(file, tmp_path / "none.db", index)
    assert not (tmp_path / "none.db").exists()


def test_a_backup_is_of_one_moment_whatever_is_written_and_pruned_meanwhile(
    pruned: Path, tmp_path: Path
) -> None:
    """Others write, take snapshots and prune between its first read and its last."""

    def interfere(what: str, total: int, things: Any) -> Iterator[Any]:
        if what == "entries written":
            write(pruned, 15, 30)
            for _ in range(3):
                snapshot(pruned, keep=0)
                write(pruned, (last := rows(pruned)[-1].index) + 1, last + 2)
        yield from things

    with contextlib.closing(connect(SqliteAddress(pruned), shared=None, creates=False)) as journal:
        made = write_backup(journal, tmp_path / "file", FORMAT, "berth test", 5, interfere)
    assert rows(pruned)[0].index > 15
    assert (made.head.first, made.head.last) == (6, 14)
    assert restore(tmp_path / "file", tmp_path / "target.db") == state_at(14)


def test_large_entries_are_not_in_memory_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = ROWS_BYTES // 3
    with opened(tmp_path / "source.db") as journal:
        for index in range(1, 8):
            journal.append(batch(index, size=size))
    written: list[int] = []
    group = backup._group_rows

    def count(things: Any) -> Iterator[list[JournalRow]]:
        for some in group(things):
            written.append(len(some))
            yield some

    monkeypatch.setattr(backup, "_group_rows", count)
    read: list[int] = []
    rows_after = Journal._rows_after

    def count_read(self: Journal, index: int, limit: int) -> list[JournalRow]:
        found = rows_after(self, index, limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(Journal, "_rows_after", count_read)
    make_backup(tmp_path / "source.db", tmp_path / "file")
    assert written == [2, 2, 2, 1]
    assert read == [2, 2, 2, 1]


# -- files that are refused ---------------------------------------------------------------------


def refused(file: Path, content: bytes, tmp_path: Path) -> str:
    file.write_bytes(content)
    with pytest.raises(JournalError) as caught:
        restore(file, tmp_path / "target.db")
    assert not (tmp_path / "target.db").exists()
    return str(caught.value)


def test_every_changed_bit_and_every_cut_is_found(pruned: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    make_backup(pruned, file)
    content = file.read_bytes()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        words = refused(file, bytes(changed), tmp_path)
        assert "damaged at byte" in words or "cut off" in words or at < len(b"berth-backup 1\n"), words
    for end in range(len(content)):
        words = refused(file, content[:end], tmp_path)
        assert "cut off" in words or end < len(b"berth-backup 1\n"), words
    assert "something follows its end" in refused(file, content + b"\0", tmp_path)
    # Whole frames that are missing, doubled or exchanged.
    frames = list(split(content))
    for number in range(1, len(frames) - 1):
        assert "damaged" in refused(file, b"".join((*frames[:number], *frames[number + 1 :])), tmp_path)
    assert "damaged" in refused(file, b"".join((*frames[:2], frames[1], *frames[2:])), tmp_path)


def split(content: bytes) -> Iterator[bytes]:
    """The mark of a file, and its frames."""
    at = content.index(b"\n") + 1
    yield content[:at]
    while at < len(content):
        end = at + 20 + struct.unpack(">I", content[at : at + 4])[0]
        yield content[at:end]
        at = end


def test_a_backup_has_the_format_of_its_journal(whole: Path, tmp_path: Path) -> None:
    """One of a newer format is refused before the database is touched."""
    with opened(whole) as journal:
        journal.raise_format(Origin("", None, None, "finish"), "raise", 13)
    made = make_backup(whole, tmp_path / "file")
    assert made.head.format == FORMAT
    restore(tmp_path / "file", tmp_path / "restored.db")
    restore(tmp_path / "file", tmp_path / "before.db", 12)
    with opened(tmp_path / "restored.db") as restored, opened(tmp_path / "before.db") as before:
        assert (restored.format(), before.format()) == (FORMAT, 1)
    with opened(whole) as journal:
        journal.program = Program("99.1", FORMAT + 1)
        journal.raise_format(Origin("", None, None, "finish"), "raise", 14)
        write_backup(journal, tmp_path / "newer", FORMAT + 1, "berth 99.1", 5, over)
    newer = (
        rf"was made by berth 99\.1 of a journal of format {FORMAT + 1}; "
        rf"this is Berth {THIS_PROGRAM.version}, which reads up to format {FORMAT}: use the newer release"
    )
    with pytest.raises(BackupError, match=newer):
        read_backup(tmp_path / "newer", over)


def test_files_of_others_and_of_the_future_are_refused(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    make_backup(whole, file)
    content = file.read_bytes()
    file.unlink()
    assert f"{file} is not a backup of Berth" in refused(file, whole.read_bytes(), tmp_path)
    assert f"{file} is not a backup of Berth" in refused(file, b"", tmp_path)
    newer = refused(file, content.replace(b"berth-backup 1\n", b"berth-backup 7\n"), tmp_path)
    assert "is a backup of format 7; this release reads format 1: use the newer release" in newer
    with pytest.raises(BackupError, match=r"cannot read .*: No such file"):
        read_backup(tmp_path / "missing", over)
    with pytest.raises(BackupError, match=r"cannot read .*: Is a directory"):
        read_backup(tmp_path, over)


def test_a_backup_of_a_newer_schema_is_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "VERSION", 99)
    make_backup(whole, tmp_path / "file")
    monkeypatch.undo()
    with pytest.raises(BackupError, match="made by berth test, whose databases have schema 99"):
        restore(tmp_path / "file", tmp_path / "target.db")


def test_a_damaged_journal_is_not_backed_up(whole: Path, tmp_path: Path) -> None:
    with opened(whole) as journal:
        journal.execute(JOURNAL.update().where(JOURNAL.c.idx == 4).values(entries=b"\x90"))
    with pytest.raises(Damaged, match="journal entry 4"):
        make_backup(whole, tmp_path / "file")
    assert [path.name for path in tmp_path.glob("file*")] == []


def test_a_backup_that_no_server_could_start_on_is_not_made(pruned: Path, tmp_path: Path) -> None:
    with opened(pruned) as journal:
        journal.execute(SNAPSHOT_PART.update().values(checksum="x"))
    with pytest.raises(BackupError, match="no server could start on this database: `berth db check`"):
        make_backup(pruned, tmp_path / "file")
    assert [path.name for path in tmp_path.glob("file*")] == []


def test_one_damaged_snapshot_is_left_out(pruned: Path, tmp_path: Path) -> None:
    with opened(pruned) as journal:
        journal.execute(SNAPSHOT_PART.update().where(SNAPSHOT_PART.c.idx == 7).values(checksum="x"))
    made = make_backup(pruned, tmp_path / "file")
    assert (made.earliest(FORMAT), made.head.last) == (11, 14)
    assert restore(tmp_path / "file", tmp_path / "target.db") == state_at(14)


# -- the file itself ----------------------------------------------------------------------------


def test_no_file_is_overwritten_and_nothing_is_left_of_a_backup_that_failed(
    whole: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    with pytest.raises(BackupError, match="file exists, and is not overwritten"):
        make_backup(whole, file)
    assert file.read_bytes() == b"mine"
    assert [path.name for path in tmp_path.glob("file*")] == ["file"]
    with pytest.raises(BackupError, match=r"cannot write .*: No such file or directory"):
        make_backup(whole, tmp_path / "missing" / "file")
    for folder in (Path(), Path("/"), tmp_path / ".."):
        with pytest.raises(BackupError, match="is a folder: name a file in it"):
            make_backup(whole, folder)


def test_a_backup_replaces_what_a_killed_one_has_left_and_is_for_its_owner_alone(
    whole: Path, tmp_path: Path
) -> None:
    partial = tmp_path / "file.partial"
    partial.write_bytes(b"x" * 100_000)
    partial.chmod(0o644)
    make_backup(whole, tmp_path / "file")
    assert not partial.exists()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert restore(tmp_path / "file", tmp_path / "target.db") == state_at(12)


def test_two_backups_to_one_file_do_not_meet(whole: Path, tmp_path: Path) -> None:
    with (tmp_path / "file.partial").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"half")
        other.flush()
        with pytest.raises(BackupError, match="another backup is being written"):
            make_backup(whole, tmp_path / "file")
    assert (tmp_path / "file.partial").read_bytes() == b"half"


# -- a restore that breaks off ------------------------------------------------------------------


class BreaksOff:
    """Lets so many writes to the database through, and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
        self.left = writes
        do = Journal._do

        def limited(journal: Journal, work: Callable[[Any], Any], *, writes: bool) -> Any:
            if writes:
                self.left -= 1
                if self.left < 0:
                    raise JournalFailure("the machine has lost its power")
            return do(journal, work, writes=writes)

        monkeypatch.setattr(Journal, "_do", limited)


@pytest.mark.parametrize("name", ["whole", "pruned"])
def test_a_restore_that_broke_off_anywhere_is_finished_by_the_next(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Path = request.getfixturevalue(name)
    file = tmp_path / "file"
    last = make_backup(source, file).head.last
    monkeypatch.setattr(backup, "_ROWS_MAX", 3)
    outcomes = []
    for writes in range(1, 100):
        target = tmp_path / f"target-{writes}.db"
        with monkeypatch.context() as patch:
            BreaksOff(patch, writes)
            try:
                restore(file, target)
                break
            except JournalFailure:
                pass
        outcomes.append(found_by_a_server(target, last))
        if outcomes[-1] == "whole":
            continue
        assert restore(file, target) == state_at(last)
        assert rows(target) == rows(source)
    else:
        pytest.fail("it never finished")
    assert outcomes.count("refused") >= 4, outcomes
    assert outcomes == sorted(outcomes, key=["empty", "refused", "whole"].index)


def found_by_a_server(target: Path, last: int) -> str:
    """What a server finds that starts on a database. If it can start at all, everything is there."""
    with opened(target) as journal:
        if journal.tail() == 0:
            return "empty"
        try:
            found = start_view(journal)
        except JournalError as error:
            return "refused" if "repeat the restore" in str(error) else str(error)
        assert state(found) == state_at(last)
        return "whole"


def test_a_restore_does_not_go_on_with_another_journal(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_backup(whole, tmp_path / "file")
    with opened(tmp_path / "other.db") as journal:
        for index in range(1, 13):
            journal.append(msgspec.structs.replace(batch(index), id=f"other-{index}"))
    make_backup(tmp_path / "other.db", tmp_path / "other")
    monkeypatch.setattr(backup, "_ROWS_MAX", 3)
    with monkeypatch.context() as patch:
        BreaksOff(patch, 4)
        with pytest.raises(JournalFailure):
            restore(tmp_path / "other", tmp_path / "target.db")
    before = rows(tmp_path / "target.db")
    assert before
    with pytest.raises(BackupError, match="holds part of another journal"):
        restore(tmp_path / "file", tmp_path / "target.db")
    assert rows(tmp_path / "target.db") == before


# -- the command --------------------------------------------------------------------------------


def run(*words: object) -> int:
    return main(["db", *map(str, words)])


def test_the_commands_say_what_they_did(
    pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, source, target = tmp_path / "file", f"sqlite:///{pruned}", f"sqlite:///{tmp_path / 'target.db'}"
    assert run("backup", file, "--database", source) == 0
    assert "it can be restored to any index from 7 to 14" in capsys.readouterr().out
    assert run("verify", file, "--json") == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert (shown["first"], shown["restores_from"], shown["index"]) == (6, 7, 14)
    assert run("restore", file, "--database", target, "--index", 6) == 1
    assert "from 7 to 14; 6 is not among them" in capsys.readouterr().err
    assert run("restore", file, "--database", target, "--index", 9) == 0
    assert "is restored: its journal ends at index 9, with 0 providers" in capsys.readouterr().out
    assert run("restore", file, "--database", target) == 1
    assert capsys.readouterr().err == (
        "berth: the database is not empty: its journal ends at index 9, with 0 providers, 0 consumers, "
        "0 custom resource classes, 18 custom traits and 0 servers. A restore needs an empty one; nothing "
        "was changed\n"
    )
    assert run("backup", file, "--database", source) == 1
    assert "exists, and is not overwritten" in capsys.readouterr().err
    assert run("backup", tmp_path / "new", "--database", f"sqlite:///{tmp_path / 'no.db'}") == 1
    assert "there is no database at" in capsys.readouterr().err
    assert run("restore", pruned, "--database", f"sqlite:///{tmp_path / 'no.db'}") == 1
    assert "is not a backup of Berth" in capsys.readouterr().err
    assert not (tmp_path / "no.db").exists()
    with pytest.raises(SystemExit):
        run("restore", file, "--database", target, "--index", 0)
    assert "'0' is not a whole number from 1" in capsys.readouterr().err


def test_an_empty_journal_has_nothing_to_back_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = f"sqlite:///{tmp_path / 'empty.db'}"
    assert run("upgrade", "--database", database) == 0
    assert run("backup", tmp_path / "file", "--database", database) == 1
    assert "the journal is empty: there is nothing to back up" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("file*")] == []


def test_a_database_in_use_is_not_restored_into(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_backup(whole, tmp_path / "file")
    with opened(tmp_path / "target.db"):
        assert run("restore", tmp_path / "file", "--database", f"sqlite:///{tmp_path / 'target.db'}") == 1
    assert "the database is in use by another process" in capsys.readouterr().err


def test_the_commands_of_the_guide_work(
    pruned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each as it stands there, but for the databases and the index."""
    text = (ROOT / "docs" / "guides" / "backup.md").read_text()
    lines = re.findall(r"^ +berth (db .*)$", text, re.MULTILINE)
    assert len(lines) >= 7
    monkeypatch.chdir(tmp_path)
    for number, line in enumerate(dict.fromkeys(lines)):
        words = shlex.split(re.sub(r"--index \d+", "--index 9", line))
        if "--database" in words:
            new = tmp_path / f"restored-{number}.db"
            words[words.index("--database") + 1] = f"sqlite:///{pruned if words[1] == 'backup' else new}"
        if words[1] == "backup":
            Path(words[2]).unlink(missing_ok=True)
        assert main(words) == 0, (line, capsys.readouterr().err)
