"""Mistakes on the command line: each gets the usage of the command it was made in, and a suggestion."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from berth.cli import main
from berth.cli.command import CommandError
from berth.cli.program import make_parser
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
            ["host", ""],
            "usage: berth host ",
            "berth host: argument HOST: '' is refused: it must be a name or an id",
        ),
        (
            ["host", "..", "disable"],
            "usage: berth host ",
            "berth host: argument HOST: '..' is refused: it cannot be part of an address; give the id",
        ),
        (
            ["drain", "a/b", "--yes"],
            "usage: berth drain ",
            "berth drain: argument HOST: 'a/b' is refused: it cannot be part of an address; give the id",
        ),
        (
            ["who", " "],
            "usage: berth who ",
            "berth who: argument HOST|UUID: ' ' is refused: it must be a name or an id",
        ),
        (
            ["cluster", "replace", "web", ""],
            "usage: berth cluster replace ",
            "berth cluster replace: argument NODE: '' is refused: it must be a name or an id",
        ),
        (
            ["servers", "--status", "nonsense"],
            "usage: berth servers ",
            "berth servers: --status: there is no 'NONSENSE'; there are BUILD, ACTIVE, SHUTOFF, PAUSED, "
            "SUSPENDED, RESCUE, VERIFY_RESIZE, SHELVED, SHELVED_OFFLOADED, SOFT_DELETED, ERROR, RESIZE",
        ),
        (
            ["ops", "--state", "runing"],
            "usage: berth ops ",
            "berth ops: --state: there is no 'runing'; did you mean running?",
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
    # An interpreter that is already leaving has given the signal back to the system, which ends it.
    assert process.returncode in (130, 0, -signal.SIGINT), said


def test_an_interrupt_ends_a_question() -> None:
    """The event loop would keep it for later, and later comes when the question is answered."""
    script = """
import asyncio, sys
from berth.cli.output import confirm

async def ask():
    confirm("begin?")

try:
    asyncio.run(ask())
except KeyboardInterrupt:
    sys.exit(130)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "[y/N] " not in said:
            said += process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("module", ["berth.cli.program", "berth.cli.inspect"])
def test_an_interrupt_while_c_code_is_imported_is_no_traceback(module: str) -> None:
    """Such code makes an ImportError of it, or something stranger."""
    script = f"""
import os, signal, sys, time
# Where the tests run in the background of a shell, an interrupt is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from berth.cli import main
from berth.cli.command import CommandError

class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                raise ImportError("as C code has it") from None

sys.meta_path.insert(0, Finder())
sys.exit(main(["inspect", "--json"]))
"""
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert process.stderr == ""
    assert process.returncode == 130


@pytest.mark.parametrize("words", [["host"], ["log"], ["why"], ["op"], ["who"]])
def test_an_argument_that_is_not_utf_8_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As a shell hands it over: each byte that is no UTF-8 as half of a surrogate."""
    said = refuse(capsys, *words, "a\udcff")
    assert said.startswith(f"usage: berth {words[0]} ")
    assert said.splitlines()[-1] == f"berth {words[0]}: 'a\\udcff' is not UTF-8"


def test_a_folder_may_have_any_name() -> None:
    assert make_parser().parse_args(["hosts", "--data", "a\udcff"]).data == Path("a\udcff")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://op:pass-word@127.0.0.1:1", "name and password do not belong into an address"),
        ("http://op@127.0.0.1:1", "name and password do not belong into an address"),
        ("http://127.0.0.1:1/?region=1", "it must look like http://HOST:PORT"),
        ("http://127.0.0.1:1/#x", "it must look like http://HOST:PORT"),
    ],
)
def test_an_address_holds_no_secret(address: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is part of every message."""
    said = refuse(capsys, "hosts", "--url", address)
    assert reason in said
    assert "pass-word" not in said


@pytest.mark.parametrize(
    "words",
    [
        ["db", "check", "--database"],
        ["export", "--to"],
        ["import", "--from"],
        ["cell", "--name=c", "--listen=127.0.0.1:1", "--placement=http://127.0.0.1:1", "--database"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize(
    "address",
    [
        "postgresql:/berth:hidden@db/berth",
        "postgresql:berth:hidden@db/berth",
        "berth:hidden@db/berth",
        "nothing://berth:hid/den@db/berth",
    ],
)
def test_a_database_that_is_refused_is_shown_without_its_password(
    words: list[str], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, address]) == 2
    said = capsys.readouterr().err
    assert "***@db/berth' is refused: " in said
    assert "hid" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["settings"], ["settings", "--json"], ["completion", "bash"]])
def test_a_full_disk_is_no_traceback(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", "import sys; from berth.cli import main; sys.exit(main())", *words],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert process.stderr == "berth: the output cannot be written: No space left on device\n"
    assert process.returncode == 2


def test_words_of_a_server_do_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_in_colour(arguments: object) -> int:
        raise CommandError("GET /: http://x answered 409: \x1b]0;owned\x07\x1b[31mred\nTry again.")

    monkeypatch.setattr(
        "berth.cli.program.make_parser",
        lambda: SimpleNamespace(parse_args=lambda argv: SimpleNamespace(run=refuse_in_colour)),
    )
    assert main(["settings"]) == 2
    said = capsys.readouterr().err
    assert said.isascii()
    assert "\x1b" not in said
    assert "\x07" not in said
    assert said.endswith("red\nTry again.\n")
