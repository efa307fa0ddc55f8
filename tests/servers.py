"""Server processes for tests: started on a free port, awaited, stopped, killed, and their words kept.

Every process leads a group of its own, and signals go to the group: a server that runs workers is ended
with them. A test that does not end its server leaves none behind when it uses ``running``.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.waiting import WITHIN_S
from tests.warm_start import BERTH, WarmProcess

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).resolve().parent.parent
STOP_S: Final = 10
ENTRY: Final = "berth.cli:main"
"""What the program ``berth`` calls."""

UPSTREAM: Final = os.environ.get("BERTH_TEST_SERVER") == "upstream"
"""Tests of what any Placement server does can be run against upstream itself, to test the tests."""


class ServerStartError(Exception):
    """The process ended, or did not answer in time; the message holds the end of its output."""


class ServerProcess:
    """A server process and its output.

        new --start--> running --stop or kill--> ended --start--> running ...

    ``command`` makes the words to run from the port to listen on; every start takes a new port. ``entry`` is
    the function that the program calls, ``module:function``: with it, a process is started that has imported
    the program already. ``address``: where it listens, if that is not for us to choose.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        log_path: Path,
        env: Mapping[str, str] | None = None,
        entry: str | None = None,
        address: tuple[str, int] | None = None,
    ) -> None:
        self.command = command
        self.log_path = log_path
        self.env = env
        self.entry = entry
        self.address = address
        self.host, self.port = address or (HOST, 0)
        self.process: subprocess.Popen[bytes] | WarmProcess | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    @property
    def log(self) -> str:
        """All it has printed, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def complaints(self) -> list[str]:
        """Lines that Berth does not print while all is well: warnings, errors, what is not structured."""
        return [line for line in self.log.splitlines() if not _is_quiet(line)]

    def start(self, timeout_s: float = WITHIN_S) -> None:
        """Run the command and wait until ``GET /`` is answered."""
        self.launch()
        try:
            self._wait_ready(time.monotonic() + timeout_s)
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Run the command, and do not wait: it may listen nowhere."""
        assert self.process is None, "the server is running"
        if self.address is None:
            self.port = free_port()
        self.process = self._launch(self.command(self.port))

    def _launch(self, words: Sequence[str]) -> subprocess.Popen[bytes] | WarmProcess:
        if self.entry is not None:
            env = os.environ if self.env is None else self.env
            return BERTH.start(self.entry, words[1:], env, self.log_path)
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                words,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_ready(self, deadline_s: float) -> None:
        assert self.process is not None
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
                with contextlib.closing(connection):
                    connection.request("GET", "/")
                    connection.getresponse().read()
                return
            if self.process.poll() is not None:
                problem = f"exited with status {self.process.returncode}"
            elif time.monotonic() > deadline_s:
                problem = "does not answer GET / in time"
            else:
                time.sleep(0.02)
                continue
            raise ServerStartError(f"server {problem}; its output ends:\n{self.log[-2000:]}")

    def stop(self, within_s: float = STOP_S) -> int:
        """Ask it to end (SIGTERM) and wait; what is left after a while is killed. The exit status. A test
        that is about it waits for as long as a busy machine may take."""
        return self._end(signal.SIGTERM, within_s)

    def kill(self) -> None:
        """End it in the middle of whatever it does (SIGKILL)."""
        self._end(signal.SIGKILL, STOP_S)

    def _end(self, number: signal.Signals, within_s: float) -> int:
        assert self.process is not None, "the server is not running"
        process, self.process = self.process, None
        # The leader alone is asked; a process group that outlives it is not asked but ended.
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGTERM:
                os.kill(process.pid, number)
            else:
                os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(within_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _is_quiet(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return entry["level"] in ("DEBUG", "INFO") and entry.get("status", 0) < 500


@contextlib.contextmanager
def running(server: ServerProcess, timeout_s: float = WITHIN_S) -> Iterator[ServerProcess]:
    """Start the server; in the end stop it, if the test has not done so."""
    server.start(timeout_s)
    try:
        yield server
    finally:
        if server.process is not None:
            server.stop()


def free_port() -> int:
    """A port outside the usual range of outgoing connections. The dice are the system's: processes that were
    forked from one would throw the same as each other."""
    while True:
        port = random.SystemRandom().randint(20000, 32000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((HOST, port))
            return port


def berth(directory: Path, *options: str, database: Path | str | None = None) -> ServerProcess:
    """``berth serve`` on a database: a URL or a SQLite file, by default ``berth.db`` in the directory."""
    database = database or directory / "berth.db"
    url = database if isinstance(database, str) else f"sqlite:///{database.resolve()}"
    program = str(Path(sys.executable).with_name("berth"))

    def command(port: int) -> list[str]:
        words = [program, "serve", "--listen", f"{HOST}:{port}", "--auth", "noauth"]
        return [*words, "--database", url, *options]

    # Settings of whoever runs the tests are not settings of the server under test.
    env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return ServerProcess(command, directory / "server.log", env, ENTRY)


def upstream(directory: Path) -> ServerProcess:
    """OpenStack Placement itself, on a SQLite file in the directory."""
    program = str(ROOT / "tests/conformance/launch-upstream")
    return ServerProcess(
        lambda port: [sys.executable, program, str(port), str(directory)], directory / "server.log"
    )


def placement(directory: Path) -> ServerProcess:
    """The Placement server to test: Berth, unless the tests themselves are tested."""
    return upstream(directory) if UPSTREAM else berth(directory)
