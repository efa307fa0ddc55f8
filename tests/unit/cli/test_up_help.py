"""What ``berth up`` says when all is up: commands that are there, and nothing else."""

import re
from pathlib import Path

import pytest

from berth.cli import up
from berth.cli.folder import Folder
from berth.cli.program import make_parser

pytestmark = pytest.mark.fast


def print_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Path) -> str:
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "")
    arguments = make_parser().parse_args(["up", "--hosts", "2"])
    plan = up.make_plan(arguments, Folder(tmp_path / "data"))
    return up.write_help(plan)


def test_a_command_that_is_not_there_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = print_help(tmp_path, monkeypatch, tmp_path)
    assert "openstack" not in text.lower()
    named = re.findall(r"^  \S+/berth ([a-z]+) ", text, re.MULTILINE)
    assert set(named) == {"status", "hosts", "log", "why", "who", "doctor", "sim"}
    assert set(named) <= set(make_parser().actions)


def test_where_the_openstack_command_is_there_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openstack").touch()
    assert f"{tmp_path}/openstack server create --flavor m1.small" in print_help(
        tmp_path, monkeypatch, tmp_path
    )


def test_the_console_is_named_with_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = print_help(tmp_path, monkeypatch, tmp_path)
    assert "http://127.0.0.1:8778/console/    user admin; " in text
    assert f'the password is in {tmp_path / "data"}/secrets.json, under "admin"' in text


def test_commands_work_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are short ones, so the first command goes to where they hold."""
    (tmp_path / "a folder").mkdir()
    monkeypatch.chdir(tmp_path / "a folder")
    text = print_help(tmp_path / "a folder", monkeypatch, tmp_path / "a folder")
    commands = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    assert commands[1] == f"cd '{tmp_path / 'a folder'}'"
    assert commands[2] == "./berth status --data data"


def test_all_parts_are_told_where_the_trace_collector_is(tmp_path: Path) -> None:
    for given, told in (((), 0), (("--trace-endpoint", "http://127.0.0.1:4318"), 1)):
        arguments = make_parser().parse_args(["up", "--hosts", "2", *given])
        plan = up.make_plan(arguments, Folder(tmp_path / f"data{told}"))
        for part in (up._make_region(plan), up._make_cell(plan, 0), up._make_agents(plan, 0)):
            assert " ".join(part.words).count("--trace-endpoint http://127.0.0.1:4318") == told
