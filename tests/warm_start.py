"""Servers and commands for tests, Berth's and others', without the seconds that each start takes to import
the program.

A warm process imports a program once. For every server or command it forks a child, which leads a group of
its own and calls a function as the program would: a process like any other, to be killed, stopped and waited
for. What one of them leaves behind in memory, the next does not find. How a program itself starts is tested
where it is started by its name.

    test process --(a connection for each child)--> warm process
        asked       {"entry": "module:function", "words": [...], "env": {...}, "log": "path", "cwd": "path"}
        answered    the number of the child's process; and, when it has ended, how

Commands name no ``log``, and send their input and outputs along. So do those that scripts find in the place
of the programs (``WarmCommand.write``).

``python -m tests.warm_start ADDRESS MODULE ...`` is a warm process. It ends when its input does.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
START_S: Final = 240
"""Longer than all imports take on a machine that is very busy, and has compiled none of them yet."""


class WarmProcess:
    """A server's process, with as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode


class WarmStart:
    """A warm process: there is one for each process that runs tests, and for its children. It is started when
    it is first needed, with ``options`` for the interpreter and in the environment ``env``, and ends with
    its starter."""

    def __init__(
        self, *modules: str, options: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self._name, self._modules, self._options, self._env = modules[0], modules, options, env
        self._starting = threading.Lock()
        self._address = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        with self._starting:
            if not self._address:
                self._address = self._start()
            return self._address

    def _start(self) -> str:
        address = f"\0berth-tests-{os.getpid()}-{self._name}"
        words = [sys.executable, *self._options, "-m", "tests.warm_start", address[1:], *self._modules]
        # Its input ends with this process.
        process = self._process = subprocess.Popen(words, cwd=ROOT, env=self._env, stdin=subprocess.PIPE)
        try:
            _wait_until_listening(process, address)
        except BaseException:
            # One that is left behind would fail whichever test collects it.
            process.kill()
            self.close()
            raise
        return address

    def close(self) -> None:
        """End the warm process, and none of its children."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def start(
        self, entry: str, words: Sequence[str], env: Mapping[str, str], log: Path, folder: Path = ROOT
    ) -> WarmProcess:
        """Call a function in a process of its own, with these words as its command line, in a folder. What it
        prints is appended to ``log``."""
        return self._ask(
            {"entry": entry, "words": list(words), "env": dict(env), "cwd": str(folder), "log": str(log)}
        )

    def call(
        self, entry: str, words: Sequence[str], env: Mapping[str, str], *files: IO[bytes]
    ) -> WarmProcess:
        """Call a function so, with these as its input and outputs."""
        asked = {"entry": entry, "words": list(words), "env": dict(env), "cwd": str(ROOT)}
        return self._ask(asked, *files)

    def _ask(self, asked: Mapping[str, object], *files: IO[bytes]) -> WarmProcess:
        address = self.address
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        line = json.dumps(asked).encode() + b"\n"
        sent = socket.send_fds(connection, [line], [file.fileno() for file in files])
        connection.sendall(line[sent:])
        return WarmProcess(connection)


def _wait_until_listening(process: "subprocess.Popen[bytes]", address: str) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address)
            return
        assert process.poll() is None, f"the warm process has ended with status {process.returncode}"
        assert time.monotonic() < deadline_s, "the warm process does not listen"
        time.sleep(0.02)


COMMAND: Final = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    asked = {{"entry": {entry!r}, "words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
    socket.send_fds(connection, [json.dumps(asked).encode() + b"\\n"], [0, 1, 2])
    _, status = connection.makefile()
sys.exit(int(status) if int(status) >= 0 else 128 - int(status))
"""


class WarmCommand:
    """A command, by the function that its program calls."""

    def __init__(self, program: WarmStart, entry: str) -> None:
        self._program = program
        self._entry = entry

    def run(
        self, words: Sequence[str], env: Mapping[str, str], timeout_s: int = 60, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """What the command printed and how it ended; by SIGKILL (-9) if it took too long."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(stdin.encode())
            files[0].seek(0)
            process = self._program.call(self._entry, words, env, *files)
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            for file in files:
                file.seek(0)
            _, stdout, stderr = (file.read().decode() for file in files)
        return subprocess.CompletedProcess(words, status, stdout, stderr)

    def write(self, path: Path) -> None:
        """Write a program that is the command, for scripts."""
        text = COMMAND.format(python=sys.executable, address=self._program.address, entry=self._entry)
        path.write_text(text)
        path.chmod(0o755)


BERTH: Final = WarmStart(
    *("berth.cli.program", "berth.cli.serve", "berth.cli.cell", "berth.cli.agent", "berth.cli.up"),
    *("berth.cli.cluster", "berth.main", "berth.engine.snapshots"),
)
COMMANDS: Final = {
    "berth": WarmCommand(BERTH, "berth.cli:main"),
    "openstack": WarmCommand(WarmStart("tests.openstack_command"), "tests.openstack_command:main"),
}
"""By the names of their programs."""


# -- in the warm process ------------------------------------------------------------------------


def serve(address: str) -> None:
    """Fork servers until the input ends."""
    # Nobody waits for the processes that wait for servers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + address)
        listener.listen(64)
        while sys.stdin not in (readable := select.select([sys.stdin, listener], [], [])[0]):
            assert readable
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _watch(connection)


def _watch(connection: socket.socket) -> NoReturn:
    """Start the server, and tell how it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with connection.makefile("rw") as file:
            line, files, _, _ = socket.recv_fds(connection, 65536, 3)
            while line and not line.endswith(b"\n"):
                line += connection.recv(65536)
            if line:
                child = os.fork()
                if child == 0:
                    become(json.loads(line), files)
                file.write(f"{child}\n")
                file.flush()
                _, status = os.waitpid(child, 0)
                # Whoever has asked may be gone.
                with contextlib.suppress(OSError):
                    file.write(f"{os.waitstatus_to_exitcode(status)}\n")
                    file.flush()
    finally:
        os._exit(0)


def become(asked: Mapping[str, object], files: list[int], kept: int = 2) -> NoReturn:
    """Be the server or the command, and end as it ends. ``kept``: a file that it has besides its input and
    outputs."""
    status = 1
    try:
        os.setsid()
        os.chdir(str(asked["cwd"]))
        if not files:
            log = os.open(str(asked["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            files = [os.open(os.devnull, os.O_RDONLY), log, log]
        for wanted, have in enumerate(files):
            os.dup2(have, wanted)
        # What they are, a pipe or a file, is looked at when they are opened.
        # They stay open when others take their places.
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        env, words = asked["env"], asked["words"]
        assert isinstance(env, dict)
        assert isinstance(words, list)
        os.environ.clear()
        os.environ.update(env)
        sys.argv[1:] = words
        module, _, name = str(asked["entry"]).partition(":")
        status = getattr(importlib.import_module(module), name)()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    serve(sys.argv[1])
