"""Database servers as processes: run as an unprivileged user, awaited, ended with all they have started.

Database servers refuse to run as root, so under root they run as the user that their package brought, in a
directory which that user can reach (``scratch``); anybody else runs them as themselves. Everything that is
awaited has a deadline, and what goes wrong is told with the end of the server's log.
"""

import abc
import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.databases import statements
from tests.servers import free_port
from tests.waiting import WITHIN_S

START_S: Final = WITHIN_S
STOP_S: Final = WITHIN_S
POLL_S: Final = 0.05
LOG_CHARACTERS: Final = 3000


class DatabaseStartError(Exception):
    """The server ended, or was not ready in time; the message holds the end of its log."""


class Daemon:
    """One server process and its log.

        new --start--> running --stop or kill--> ended --start--> running ...

    ``user`` is who runs it when we are root.
    """

    def __init__(self, name: str, log_path: Path, user: str) -> None:
        self.name = name
        self.log_path = log_path
        self.user = user if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All it has printed, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def own(self, path: Path) -> None:
        """Let the server's user keep its files in this directory, which is made if it is not there."""
        path.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            shutil.chown(path, self.user, pwd.getpwnam(self.user).pw_gid)

    def run(self, command: Sequence[str], timeout_s: float = WITHIN_S) -> str:
        """Run a program of the server's to its end, as the server's user. What it printed."""
        process = self._spawn(command, subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            kill_tree(process.pid)
            process.wait()
            raise DatabaseStartError(f"{command[0]} did not end within {timeout_s} s") from error
        text = output.decode(errors="replace")
        if process.returncode != 0:
            raise DatabaseStartError(f"{command[0]} failed; its output ends:\n{text[-LOG_CHARACTERS:]}")
        return text

    def start(self, command: Sequence[str]) -> None:
        """Run the server, without waiting for it."""
        assert not self.is_running, f"{self.name} is running"
        with self.log_path.open("ab") as log:
            self._process = self._spawn(command, log.fileno())

    def wait_until(self, is_ready: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Poll until it is so. A server that ends first, or is late, is killed and said to have failed."""
        try:
            while not is_ready():
                self._check(what, deadline_s)
                time.sleep(POLL_S)
        except BaseException:
            if self._process is not None:
                self.kill()
            raise

    def _check(self, what: str, deadline_s: float) -> None:
        assert self._process is not None, f"{self.name} was ended while it was awaited"
        if self._process.poll() is not None:
            problem = f"exited with status {self._process.returncode}"
        elif time.monotonic() > deadline_s:
            problem = f"is not {what} in time"
        else:
            return
        raise DatabaseStartError(f"{self.name} {problem}; its log ends:\n{self.log[-LOG_CHARACTERS:]}")

    def stop(self, number: signal.Signals) -> int:
        """Ask it to end and wait; what is left after a while is killed. The exit status."""
        assert self._process is not None, f"{self.name} is not running"
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(STOP_S)
            self._process = None
            return status
        self.kill()
        raise TimeoutError(f"{self.name} did not stop; its log ends:\n{self.log[-LOG_CHARACTERS:]}")

    def kill(self) -> None:
        """End it in the middle of whatever it does (SIGKILL), and all that it has started."""
        assert self._process is not None, f"{self.name} is not running"
        process, self._process = self._process, None
        if process.poll() is None:
            kill_tree(process.pid)
        process.wait()

    def _spawn(self, command: Sequence[str], output: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.user,
            group=None if self.user is None else pwd.getpwnam(self.user).pw_gid,
            extra_groups=None if self.user is None else [],
        )


class Database(abc.ABC):
    """A database server that keeps its port and its data from one start to the next.

    new --start--> running --stop or kill--> ended --start--> running ...
    """

    def __init__(self, directory: Path, name: str, user: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.daemon = Daemon(name, directory / "server.log", user)

    @property
    def url(self) -> str:
        return self.database_url("berth")

    @property
    @abc.abstractmethod
    def admin_url(self) -> str:
        """For who may do everything."""

    @abc.abstractmethod
    def database_url(self, name: str) -> str:
        """For ``berth``, who owns its databases and is nobody special."""

    @property
    def pid(self) -> int:
        return self.daemon.pid

    @property
    def is_running(self) -> bool:
        return self.daemon.is_running

    def start(self, timeout_s: float = START_S) -> None:
        """Make the data if this is the first start; return when it answers."""
        deadline_s = time.monotonic() + timeout_s
        is_new = not self.data.exists()
        if is_new:
            self.install()
        self.launch()
        self.daemon.wait_until(self.answers, "answering", deadline_s)
        if is_new:
            self.furnish()

    @abc.abstractmethod
    def install(self) -> None:
        """Make the data."""

    @abc.abstractmethod
    def launch(self) -> None:
        """Run the server, without waiting for it."""

    def furnish(self) -> None:
        """Add to new data what takes a running server; by default nothing."""
        return

    def answers(self) -> bool:
        return statements.answers(self.admin_url)

    @abc.abstractmethod
    def stop(self) -> None:
        """Ask it to end, as an operator would."""

    def kill(self) -> None:
        """End it, and all that it has started, in the middle of whatever they do (SIGKILL)."""
        self.daemon.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def restore(self) -> None:
        """Undo what a test did to the server: it runs."""
        if not self.is_running:
            self.start()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as who may do everything. Its rows, if it has any."""
        return statements.execute(self.admin_url, statement)


def kill_tree(pid: int) -> None:
    """SIGKILL a child of ours and all its descendants, and wait until they are gone.

    Process groups do not do: PostgreSQL gives each of its processes a session of its own. Everybody is
    stopped before the next generation is looked for, so nobody is born unseen; and everybody is held by a
    descriptor, so a number that is used again is never signalled.
    """
    held = [os.pidfd_open(pid)]
    try:
        _signal(held[0], signal.SIGSTOP)
        parents = {pid}
        while parents:
            parents = _children(parents)
            for child in parents:
                with contextlib.suppress(ProcessLookupError):
                    held.append(os.pidfd_open(child))
                    _signal(held[-1], signal.SIGSTOP)
        for descriptor in held:
            _signal(descriptor, signal.SIGKILL)
        for descriptor in held:
            # A descriptor of a process is readable when the process has ended.
            select.select([descriptor], [], [], STOP_S)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _signal(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _children(parents: set[int]) -> set[int]:
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name, in parentheses, may hold anything; after it come the state and the parent.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent in parents:
                found.add(int(path.parent.name))
    return found


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A directory for a server, gone afterwards.

    pytest's own are closed to the server's user, and too deep for the name of a unix socket.
    """
    path = Path(tempfile.mkdtemp(prefix=f"berth-{name}-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
