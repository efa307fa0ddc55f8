"""The ``openstack`` command for tests, without the second that each start of it takes.

A process imports the command and its plugins once. For every command it forks a child, which runs the
command's entry point with words and environment of its own and ends with its exit status: what one command
leaves behind in memory, the next one does not find.

    parent   {"words": [...], "env": {...}, "timeout_s": 60} ->
    server   <- {"status": 0, "stdout": "...", "stderr": "..."}      one line each

``python -m tests.clients.openstack_command`` is that server.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Final, NoReturn

from tests.servers import ROOT

PLUGINS: Final = (
    "openstack.cli.base",
    "openstack.cli.extension",
    "openstack.common",
    "openstack.compute.v2",
    "openstack.identity.v3",
    "openstack.image.v2",
    "openstack.placement.v1",
    "cliff.formatter.list",
    "cliff.formatter.show",
)
"""Groups of entry points that are loaded ahead. Any other is loaded by the command that needs it."""


class OpenstackCommand:
    """Runs commands through a server that ``openstack_command`` started."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, words: Sequence[str], env: Mapping[str, str], timeout_s: int = 60
    ) -> "subprocess.CompletedProcess[str]":
        """What the command printed and how it ended; by SIGALRM (-14) if it took too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"words": list(words), "env": dict(env), "timeout_s": timeout_s}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the server of openstack commands has ended: {self._process.wait(10)}"
        told = json.loads(answer)
        return subprocess.CompletedProcess(words, told["status"], told["stdout"], told["stderr"])


@contextlib.contextmanager
def openstack_command() -> Iterator[OpenstackCommand]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.clients.openstack_command"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # Its end is the end of its input.
    with process:
        yield OpenstackCommand(process)


# -- in the server ------------------------------------------------------------------------------


def serve(requests: IO[str], answers: IO[str]) -> None:
    for line in requests:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                _become(asked, stdout.fileno(), stderr.fileno())
            _, status = os.waitpid(child, 0)
            told = {
                "status": os.waitstatus_to_exitcode(status),
                "stdout": _text(stdout),
                "stderr": _text(stderr),
            }
        answers.write(json.dumps(told) + "\n")
        answers.flush()


def _become(asked: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    """Be the command, and end as it ends."""
    status = 1
    try:
        signal.alarm(asked["timeout_s"])
        for have, wanted in ((os.open(os.devnull, os.O_RDONLY), 0), (stdout, 1), (stderr, 2)):
            os.dup2(have, wanted)
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv = ["openstack", *asked["words"]]
        status = importlib.import_module("openstackclient.shell").main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _load_ahead() -> None:
    importlib.import_module("openstackclient.shell")
    for group in PLUGINS:
        for found in importlib.metadata.entry_points(group=group):
            with contextlib.suppress(ImportError):
                found.load()


if __name__ == "__main__":
    _load_ahead()
    serve(sys.stdin, sys.stdout)
