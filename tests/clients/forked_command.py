"""Commands of others for tests, without the seconds that each start of one takes.

A process imports a program once. For every command it forks a child, which calls the program's entry point
with words and environment of its own and ends with its exit status: what one command leaves behind in memory,
the next one does not find.

    asked       {"words": [...], "env": {...}, "stdin": "", "timeout_s": 60}   one line each
    answered    {"status": 0, "stdout": "...", "stderr": "..."}

``python -m tests.clients.forked_command MODULE:FUNCTION [GROUP ...]`` is that process. It also loads what is
entered in the groups of entry points, as far as it can be imported; the rest is left to the commands.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

from tests.servers import ROOT


class ForkedCommand:
    """Runs commands of the program that ``forked_command`` has started."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, words: Sequence[str], env: Mapping[str, str], timeout_s: int = 60, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """What the command printed and how it ended; by SIGALRM (-14) if it took too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"words": list(words), "env": dict(env), "stdin": stdin, "timeout_s": timeout_s}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{self._process.args!r} has ended with status {self._process.wait(10)}"
        result = json.loads(answer)
        return subprocess.CompletedProcess(words, result["status"], result["stdout"], result["stderr"])


@contextlib.contextmanager
def forked_command(
    entry: str, *groups: str, options: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[ForkedCommand]:
    """``options`` are for the interpreter, ``env`` is the environment that the program is imported in."""
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "tests.clients.forked_command", entry, *groups],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # It ends when its input does.
    with process:
        yield ForkedCommand(process)


# -- in the process ------------------------------------------------------------------------------


def serve(entry: Callable[[], int], requests: IO[str], answers: IO[str]) -> None:
    for line in requests:
        asked = json.loads(line)
        with contextlib.ExitStack() as stack:
            stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            stdin.write(asked["stdin"].encode())
            stdin.seek(0)
            child = os.fork()
            if child == 0:
                _become(entry, asked, stdin, stdout, stderr)
            _, status = os.waitpid(child, 0)
            result = {
                "status": os.waitstatus_to_exitcode(status),
                "stdout": _text(stdout),
                "stderr": _text(stderr),
            }
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def _become(entry: Callable[[], int], asked: dict[str, Any], *streams: IO[bytes]) -> NoReturn:
    """Be the command, and end as it ends."""
    status = 1
    try:
        signal.alarm(asked["timeout_s"])
        for wanted, have in enumerate(streams):
            os.dup2(have.fileno(), wanted)
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv[1:] = asked["words"]
        status = entry()
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


def main(entry: str, *groups: str) -> None:
    module, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    for group in groups:
        for found in importlib.metadata.entry_points(group=group):
            with contextlib.suppress(ImportError):
                found.load()
    serve(function, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
