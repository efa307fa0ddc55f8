"""``berth cell`` on a journal that a newer release has written: it says so, ends, and starts no more."""

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from berth.journal import Journal, SqliteAddress
from berth.journal.sqlite import sqlite_dialect
from berth.model.events import Origin
from berth.model.formats import FORMAT, Program
from tests.servers import HOST, ServerProcess, ServerStartError
from tests.waiting import WITHIN_S

NEXT = Program("99.1", FORMAT + 1)
SENTENCE = f"was written by {NEXT}; this is Berth"


def make_cell(folder: Path, database: Path) -> ServerProcess:
    words = [str(Path(sys.executable).with_name("berth")), "cell", "--name", "c", "--log-format", "json"]
    words += ["--database", f"sqlite:///{database}", "--placement", f"http://{HOST}:1"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return ServerProcess(
        lambda port: [*words, "--listen", f"{HOST}:{port}"],
        folder / "cell.log",
        {**env, "BERTH_PLACEMENT_TOKEN": "x" * 20},
        "berth.cli:main",
    )


def test_a_conductor_stops_at_a_journal_of_the_next_release(tmp_path: Path) -> None:
    database = tmp_path / "cell.db"
    cell = make_cell(tmp_path, database)
    cell.start()
    process = cell.process
    assert process is not None
    dialect = sqlite_dialect(SqliteAddress(database).path, shared=True, creates=False)
    with contextlib.closing(Journal(dialect, NEXT)) as journal:
        journal.raise_format(Origin("req", "operator", None, "db upgrade"), "raise", 7)
        deadline_s = time.monotonic() + WITHIN_S
        while process.poll() is None:
            assert time.monotonic() < deadline_s, f"it goes on:\n{cell.log}"
            time.sleep(0.05)
        assert process.returncode == 1
        cell.stop()
        assert SENTENCE in cell.log
        before = journal.tail()
        said = cell.log.count(SENTENCE)
        with pytest.raises(ServerStartError, match="exited with status 1"):
            cell.start()
        assert cell.log.count(SENTENCE) > said
        assert journal.tail() == before
