"""Completion scripts and manual pages: complete, and understood by those who read them."""

import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

from berth.cli import main
from berth.cli.completion import walk_commands
from berth.cli.man import write_page
from berth.cli.program import make_parser
from tests.packages import PackageMissing, require

pytestmark = pytest.mark.fast


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


LINES = [
    ("berth ho", {"hosts", "host"}),
    ("berth hosts --st", {"--state"}),
    ("berth hosts --state ", {"up", "down", "disabled"}),
    ("berth cluster cr", {"create"}),
    ("berth cluster create --no", {"--node-group"}),
    ("berth serve --wor", {"--workers", "--worker-hung-seconds"}),
    ("berth host host-1 dis", {"disable"}),
    ("berth hosts --cell x --j", {"--json"}),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes(line: str, expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _berth; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    completed = subprocess.run(
        ["bash", "-euc", script("bash", capsys) + ask], capture_output=True, text=True, check=True, timeout=30
    )
    assert set(completed.stdout.split()) == expected


def install(*packages: str) -> None:
    try:
        require(*packages)
    except PackageMissing as error:
        pytest.skip(str(error))


_ZSH = """\
PS1= PROMPT_EOL_MARK=
fpath=({folder} $fpath)
autoload -Uz compinit && compinit -D -u
zstyle ':completion:*' completer _all_matches _complete
zstyle ':completion:*' insert yes
save() {{ print -r -- "$BUFFER" >> {folder}/lines; BUFFER= }}
zle -N save
bindkey '^I' complete-word '^X' save
"""
"""A zsh whose tab key puts all that could follow into the line, and whose ^X saves the line."""


def test_zsh_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install("zsh")
    (tmp_path / "_berth").write_text(script("zsh", capsys))
    (tmp_path / ".zshrc").write_text(_ZSH.format(folder=tmp_path))
    saved = tmp_path / "lines"
    saved.touch()
    terminal, its_end = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-i", "-d"],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
        env={"ZDOTDIR": str(tmp_path), "TERM": "dumb", "PATH": os.environ["PATH"]},
    )
    try:
        os.write(terminal, "".join(f"{line}\t\x18" for line, _ in LINES).encode())
        # What it prints is read, so that it is not held up.
        while saved.read_text().count("\n") < len(LINES) and select.select([terminal], [], [], 30)[0]:
            os.read(terminal, 4096)
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
        os.close(its_end)
    for (line, expected), completed in zip(LINES, saved.read_text().splitlines(), strict=True):
        before = line.split(" ")[:-1]
        assert completed.split()[: len(before)] == before
        assert set(completed.split()[len(before) :]) == expected, line


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_fish_completes(
    line: str, expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("fish")
    file = tmp_path / "berth.fish"
    file.write_text(script("fish", capsys))
    completed = subprocess.run(
        ["fish", "--no-config", "-c", f"source {file}; complete -C '{line}'"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    assert completed.stderr == ""
    assert {found.partition("\t")[0] for found in completed.stdout.splitlines()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    commands = list(walk_commands(make_parser()))
    assert len(commands) > 30
    for command in commands:
        for word in command.words:
            flag = f"-l {word[2:]} " if shell == "fish" and word.startswith("--") else word
            assert flag in text


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
    install("groff-base")
    pages = "".join(write_page(command) for command in walk_commands(make_parser()))
    command = ["groff", "-man", "-Tutf8", "-ww", "-Wbreak"]
    typeset = subprocess.run(command, input=pages, capture_output=True, text=True, check=True, timeout=60)
    assert typeset.stderr == ""
    assert "not well: something that was looked at is wrong" in " ".join(typeset.stdout.split())


def test_a_page_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", "cluster", "fly"]) == 2
    assert capsys.readouterr().err == "berth: there is no command cluster fly; 'berth --help' lists all\n"
