"""The cells of a region on the command line, and the words of the commands that run its parts."""

import os
from pathlib import Path

import pytest

from berth.cell.application import CellSettings
from berth.cli import main

pytestmark = pytest.mark.fast

CELL = ["cell", "--name", "c", "--database", "sqlite:///c.db", "--placement", "http://127.0.0.1:1"]
AGENT = ["agent", "--conductor", "http://127.0.0.1:1", "--driver", "sim", "--data", "agents"]


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("BERTH_")]:
        monkeypatch.delenv(variable)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("", "cells: a region needs at least one, given as NAME=DATABASE"),
        ("cell1", "cells: 'cell1' is refused: NAME=DATABASE is expected (from --cells)"),
        ("Cell 1=sqlite:///c.db", "cells: 'Cell 1' is refused: a name is 1 to 63 of"),
        ("a=sqlite:///a.db,a=sqlite:///b.db", "cells: two are named 'a'"),
        ("a=sqlite:///c.db,b=sqlite:///c.db", "cells: b has the database of the cell a, 'sqlite:///c.db'"),
        ("a=sqlite:///berth.db", "cells: a has the database of the region, 'sqlite:///berth.db'"),
        ("a=oracle://u:secret@h/n", "cells: 'oracle://u:***@h/n' is refused: oracle is not supported"),
        (",".join(f"c{n}=sqlite:///{n}.db" for n in range(65)), "cells: 65 of them are refused: 64 are"),
    ],
)
def test_cells_that_are_refused(cells: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["region", "--cells", cells]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"berth: {message}"), said
    assert "secret" not in said


def test_cells_that_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    cells = "a=sqlite:///a.db,b=postgresql://u:secret@h/b"
    assert main(["settings", "--cells", cells]) == 0
    assert "secret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*CELL, "--listen", "here"], "'here' is refused: HOST:PORT is expected"),
        ([*CELL[:2], "C"], "'C' is refused: a name is 1 to 63 of"),
        ([*CELL[:-1], "ftp://x"], "'ftp://x' is refused: it must look like http://HOST:PORT"),
        ([*CELL, "--listen", "127.0.0.1:1", "--step-seconds", "nan"], "'nan' is not a number of seconds"),
        ([*AGENT, "--hosts", "10001"], "'10001' is not a whole number from 1 to 10000"),
        ([*AGENT, "--hosts", "2", "--fleet", "f.toml"], "not allowed with argument"),
        (["up", "--cells", "65"], "'65' is not a whole number from 1 to 64"),
        (["up", "--heartbeat-timeout", "0"], "'0' is not a number of seconds from 0.5 to 3600"),
        (["sim", "explode", "host-0001"], "there is no action 'explode'"),
    ],
)
def test_values_that_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_the_former_name_of_an_option_works_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERTH_PLACEMENT_TOKEN", "x" * 20)
    found: list[CellSettings] = []

    def serve(cell: CellSettings, *_: object) -> int:
        found.append(cell)
        return 0

    monkeypatch.setattr("berth.cli.cell._serve", serve)
    monkeypatch.setattr("berth.cli.cell.free_address", lambda *_: None)
    assert main([*CELL, "--listen", "127.0.0.1:1", "--silence-seconds", "7"]) == 0
    assert found[0].heartbeat_timeout_seconds == 7
    assert "berth: --silence-seconds is deprecated: use --heartbeat-timeout" in capsys.readouterr().err


def test_a_cell_needs_to_be_known_to_placement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CELL, "--listen", "127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("berth: BERTH_PLACEMENT_TOKEN or --placement-token-file must hold"), said


def test_a_cell_that_others_can_reach_needs_a_token_for_agents(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERTH_PLACEMENT_TOKEN", "x" * 20)
    assert main([*CELL, "--listen", "0.0.0.0:1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("berth: --listen: 0.0.0.0:1 can be reached by others"), said


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"a-good-secret\n", 0o644, "it can be used by others than its owner (mode 0644)"),
        (b"", 0o600, "one line of printable ASCII is expected"),
        (b"two\nlines\n", 0o600, "one line of printable ASCII is expected"),
        ("geheim-\u00e4".encode(), 0o600, "one line of printable ASCII is expected"),
    ],
)
def test_a_file_that_holds_no_secret(
    tmp_path: Path, content: bytes, mode: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(mode)
    assert main([*CELL, "--listen", "127.0.0.1:1", "--placement-token-file", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"berth: {file}: {message}"), said


@pytest.mark.parametrize("words", [["sim", "break", "host-0001"], ["doctor"]])
def test_a_folder_without_an_up_is_refused(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--data", str(tmp_path)]) == 2
    assert "'berth up' has not been run with this folder" in capsys.readouterr().err
