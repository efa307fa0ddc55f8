"""Database servers as processes: run as an unprivileged user, awaited, ended with all they have started.

Database servers refuse to run as root, so under root they run as the user that their package brought, in a
directory which that user can reach (``scratch``); anybody else runs them as themselves. Everything that is
awaited has a deadline, and what goes wrong is told with the end of the server's log.
"""

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
from typing import Final

STOP_S: Final = 60
POLL_S: Final = 0.05
LOG_CHARACTERS: Final = 3000


class StartError(Exception):
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

    def run(self, command: Sequence[str], timeout_s: float = 60) -> str:
        """Run a program of the server's to its end, as the server's user. What it printed."""
        process = self._spawn(command, subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            kill_tree(process.pid)
            process.wait()
            raise StartError(f"{command[0]} did not end within {timeout_s} s") from error
        text = output.decode(errors="replace")
        if process.returncode != 0:
            raise StartError(f"{command[0]} failed; its output ends:\n{text[-LOG_CHARACTERS:]}")
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
        raise StartError(f"{self.name} {problem}; its log ends:\n{self.log[-LOG_CHARACTERS:]}")

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
