"""Completion scripts and manual pages: complete, and understood by those who read them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from berth.cli import main
from berth.cli.completion import walk_commands
from berth.cli.man import write_page
from berth.cli.program import make_parser

pytestmark = pytest.mark.fast


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("berth ho", {"hosts", "host"}),
        ("berth hosts --st", {"--state"}),
        ("berth hosts --state ", {"up", "down", "disabled"}),
        ("berth cluster cr", {"create"}),
        ("berth cluster create --no", {"--node-group"}),
        ("berth serve --wor", {"--workers", "--worker-hung-seconds"}),
        ("berth host host-1 dis", {"disable"}),
        ("berth hosts --cell x --j", {"--json"}),
    ],
)
def test_bash_completes(line: str, expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _berth; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    completed = subprocess.run(
        ["bash", "-euc", script("bash", capsys) + ask], capture_output=True, text=True, check=True, timeout=30
    )
    assert set(completed.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    commands = list(walk_commands(make_parser()))
    assert len(commands) > 30
    for command in commands:
        for word in command.words:
            flag = f"-l {word[2:]} " if shell == "fish" and word.startswith("--") else word
            assert flag in text


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_understand_it(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(file)], check=True, timeout=30)


def test_every_option_is_in_the_manual_page_of_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["man", "--output", str(tmp_path)]) == 0
    commands = list(walk_commands(make_parser()))
    assert capsys.readouterr().out == f"{len(commands)} pages are in {tmp_path}\n"
    for command in commands:
        page = (tmp_path / f"{'-'.join(['berth', *command.path.split()])}.1").read_text()
        assert page == write_page(command)
        for word in command.words:
            assert word.replace("-", "\\-") in page


def test_the_pages_can_be_typeset(capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    pages = "".join(write_page(command) for command in walk_commands(make_parser()))
    command = ["groff", "-man", "-Tutf8", "-ww", "-Wbreak"]
    typeset = subprocess.run(command, input=pages, capture_output=True, text=True, check=True, timeout=60)
    assert typeset.stderr == ""
    assert "not well: something that was looked at is wrong" in " ".join(typeset.stdout.split())


def test_a_page_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", "cluster", "fly"]) == 2
    assert capsys.readouterr().err == "berth: there is no command cluster fly; 'berth --help' lists all\n"
