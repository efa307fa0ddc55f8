"""Mistakes on the command line: each gets the usage of the command it was made in, and a suggestion."""

import os
import signal
import subprocess
import sys
import time

import pytest

from berth.cli import main
from tests.servers import ROOT

pytestmark = pytest.mark.fast


def refuse(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said to a command line that is not understood."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["fly"], "usage: berth ", "berth: there is no command 'fly'; 'berth --help' lists all"),
        (["doktor"], "usage: berth ", "berth: there is no command 'doktor'; did you mean doctor?"),
        (
            ["cluster", "craete"],
            "usage: berth cluster ",
            "berth cluster: there is no action 'craete'; did you mean create?",
        ),
        (
            ["serve", "--lisen", "127.0.0.1:1"],
            "usage: berth serve ",
            "berth serve: there is no option --lisen; did you mean --listen?",
        ),
        (
            ["serve", "--worker", "2"],
            "usage: berth serve ",
            "berth serve: there is no option --worker; did you mean --workers?",
        ),
        (
            ["serve", "--lisen=127.0.0.1:1"],
            "usage: berth serve ",
            "berth serve: there is no option --lisen; did you mean --listen?",
        ),
        (
            ["cluster", "list", "--dta", "data"],
            "usage: berth cluster list ",
            "berth cluster list: there is no option --dta; did you mean --data?",
        ),
        (
            ["--data", "x", "doctor"],
            "usage: berth ",
            "berth: there is no option --data; options of a command stand behind it: berth COMMAND --data",
        ),
        (
            ["serve", "now"],
            "usage: berth serve ",
            "berth serve: unexpected argument 'now'",
        ),
        (
            ["cell", "--log-level", "wraning"],
            "usage: berth cell ",
            "berth cell: --log-level: there is no 'wraning'; did you mean warning?",
        ),
    ],
)
def test_a_mistake_is_named_where_it_was_made(
    words: list[str], usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refuse(capsys, *words)
    assert said.startswith(usage)
    assert said.splitlines()[-1] == message


@pytest.mark.parametrize(
    ("words", "usage"), [([], "usage: berth "), (["cluster"], "usage: berth cluster "), (["db"], "berth db ")]
)
def test_a_command_alone_shows_help(words: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    said = capsys.readouterr()
    assert usage in said.out
    assert "--help" in said.out
    assert said.err == ""


@pytest.mark.parametrize("delay_s", [0.02, 0.05, 0.15, 0.3, 0.6])
def test_an_interrupt_is_no_traceback(delay_s: float) -> None:
    """Also before the command has begun."""
    script = (
        "import sys; from berth.cli import main; print(flush=True); sys.exit(main(['inspect', '--json']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay_s)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "Traceback" not in said
    assert process.returncode in (130, 0), said
