"""A SQLite file that is removed or replaced under a server; and one that is missing when a server starts."""

import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main
from berth.journal import JournalError, JournalFailure, SqliteAddress, open_journal
from tests.unit.journal.test_journal import batch, change
from tests.worlds import ApplicationWorld


def remove(database: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


def replace_with_a_copy(database: Path) -> None:
    copy = database.with_name("copy")
    shutil.copy(database, copy)
    copy.replace(database)


def remove_the_log(database: Path) -> None:
    database.with_name(database.name + "-wal").unlink()


def move_away(database: Path) -> None:
    database.rename(database.with_name("elsewhere"))


@pytest.mark.parametrize("harm", [remove, replace_with_a_copy, remove_the_log, move_away])
async def test_writes_are_refused_and_it_is_not_ready(
    harm: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="berth.engine"):
        async with ApplicationWorld(tmp_path).running() as world:
            await world.change("PUT", "/traits/CUSTOM_BEFORE")
            assert (await world.get("/readyz")).status == 200
            harm(tmp_path / "journal.db")
            for number in range(3):
                refused = await world.ask("PUT", f"/traits/CUSTOM_{number}")
                assert refused.status == 503
                assert "file is missing or was replaced" in refused.error["detail"]
            ready = await world.get("/readyz")
            assert ready.status == 503
            assert "file is missing or was replaced" in ready.json["reason"]
            traits = (await world.get("/traits?name=startswith:CUSTOM_")).json["traits"]
            assert traits == ["CUSTOM_BEFORE"], "what was refused is not there"
    [logged] = [record.getMessage() for record in caplog.records if record.name.startswith("berth.engine")]
    assert "journal.db" in logged
    assert "put the file back" in logged


async def test_a_file_that_is_gone_during_an_append_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        await world.change("PUT", "/traits/CUSTOM_BEFORE")
        journal = world.engine._journal
        insert = journal._with_cursor

        def late(use: Callable[[Any], Any], *, writes: bool) -> Any:
            done: Any = insert(use, writes=writes)
            if writes:
                move_away(tmp_path / "journal.db")
            return done

        monkeypatch.setattr(journal, "_with_cursor", late)
        assert (await world.ask("PUT", "/traits/CUSTOM_LOST")).status == 503


async def test_it_goes_on_when_the_file_is_back(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        database = tmp_path / "journal.db"
        await world.change("PUT", "/traits/CUSTOM_BEFORE")
        move_away(database)
        assert (await world.ask("PUT", "/traits/CUSTOM_LATER")).status == 503
        database.with_name("elsewhere").rename(database)
        await world.change("PUT", "/traits/CUSTOM_LATER")
        assert (await world.get("/readyz")).status == 200


def test_a_connection_that_was_given_up_is_no_missing_file(tmp_path: Path) -> None:
    """SQLite removes its log when the last connection is closed."""
    database = tmp_path / "berth.db"
    journal = open_journal(SqliteAddress(database), shared=False)
    journal.append(batch(1))
    assert journal.missing() is None
    change(database, "ALTER TABLE journal RENAME TO away")
    with pytest.raises(JournalFailure):
        journal.append(batch(2))
    assert not database.with_name("berth.db-wal").exists()
    assert journal.missing() is None
    change(database, "ALTER TABLE away RENAME TO journal")
    journal.append(batch(2))
    assert journal.missing() is None
    journal.close()
    assert journal.missing() is None


# -- starting -------------------------------------------------------------------------------------------


def test_a_database_that_is_gone_is_not_replaced_by_an_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "berth.db"
    open_journal(SqliteAddress(database), shared=False).close()
    database.unlink()
    for shared in (True, False):
        with pytest.raises(JournalError, match=r"berth\.db is gone.*`berth db upgrade` creates an empty one"):
            open_journal(SqliteAddress(database), shared=shared)
    assert not database.exists()
    address = ("--database", f"sqlite:///{database}")
    for action in ("check", "snapshot"):
        assert main(["db", action, *address]) == 1
        assert "there is no database at" in capsys.readouterr().err
    assert not database.exists()
    assert main(["db", "upgrade", *address]) == 0
    open_journal(SqliteAddress(database), shared=False).close()


def test_a_start_that_was_broken_off_before_there_was_a_database_is_no_loss(tmp_path: Path) -> None:
    (tmp_path / "berth.db.lock").touch()
    open_journal(SqliteAddress(tmp_path / "berth.db"), shared=False).close()


# -- who may read it ------------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize("of_before", [False, True], ids=["new", "of before"])
async def test_the_files_are_for_their_owner_alone(tmp_path: Path, of_before: bool) -> None:
    mask = os.umask(0o022)
    try:
        if of_before:
            open_journal(SqliteAddress(tmp_path / "journal.db"), shared=False).close()
            (tmp_path / "journal.db").chmod(0o644)

        async with ApplicationWorld(tmp_path).running() as world:
            await world.change("PUT", "/traits/CUSTOM_T")
            assert modes(tmp_path) == dict.fromkeys(
                ("journal.db", "journal.db-wal", "journal.db-shm", "journal.db.lock"), 0o600
            )
    finally:
        os.umask(mask)
