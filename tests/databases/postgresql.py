"""A throwaway PostgreSQL server on loopback, with its data in one directory.

A commit is durable when it is answered: fsync and synchronous_commit are on. Two roles, both let in without
a password: ``berth`` owns its databases and is nobody special; ``postgres`` may do everything.
"""

import glob
import signal
import time
from pathlib import Path
from typing import Any, Final, Literal

from tests.databases import packages, statements
from tests.databases.processes import Daemon
from tests.servers import HOST, free_port

USER: Final = "postgres"

SETTINGS: Final = {
    "fsync": "on",
    "listen_addresses": HOST,
    "max_connections": "200",
    "shared_buffers": "32MB",
    "synchronous_commit": "on",
}

SIGNALS: Final = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostgreSQL:
    """A server that keeps its port and its data from one start to the next.

    new --start--> running --stop or kill--> ended --start--> running ...
    """

    def __init__(self, directory: Path) -> None:
        packages.require(*packages.POSTGRESQL)
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.daemon = Daemon("postgresql", directory / "server.log", USER)

    @property
    def url(self) -> str:
        return self.database_url("berth")

    @property
    def admin_url(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def database_url(self, name: str) -> str:
        return f"postgresql://berth@{HOST}:{self.port}/{name}"

    @property
    def pid(self) -> int:
        return self.daemon.pid

    @property
    def is_running(self) -> bool:
        return self.daemon.is_running

    def start(self, timeout_s: float = 60) -> None:
        """Make the data if this is the first start; return when it answers."""
        deadline_s = time.monotonic() + timeout_s
        is_new = not self.data.exists()
        if is_new:
            self._initialise()
        self.daemon.start([_program("postgres"), "-D", str(self.data), *self._options()])
        self.daemon.wait_until(lambda: statements.answers(self.admin_url), "answering", deadline_s)
        if is_new:
            self.execute("CREATE ROLE berth LOGIN")
            self.create_database("berth")

    def _initialise(self) -> None:
        self.daemon.own(self.directory)
        self.daemon.own(self.data)
        words = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        # Nothing is worth keeping yet. The server itself syncs.
        self.daemon.run([_program("initdb"), "--pgdata", str(self.data), *words, "--no-sync"])

    def _options(self) -> list[str]:
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.directory)}
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Fast: connections are ended, all is written. Immediate: it drops everything and recovers later."""
        self.daemon.stop(SIGNALS[mode])

    def kill(self) -> None:
        """End it, and the processes that serve its connections, in the middle of whatever they do."""
        self.daemon.kill()
        # What a postmaster that was killed leaves behind would be taken for a running one if its number
        # were in use again.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        self.stop(mode)
        self.start()

    def restore(self) -> None:
        """Undo what a test did to the server: it runs."""
        if not self.is_running:
            self.start()

    def create_database(self, name: str) -> str:
        """A new database that belongs to ``berth``. Its URL."""
        self.execute(f'CREATE DATABASE "{name}" OWNER berth')
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Also when somebody is still connected."""
        self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as ``postgres``. Its rows, if it has any."""
        return statements.execute(self.admin_url, statement)


def _program(name: str) -> str:
    """The newest of those installed."""
    paths = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    return max(paths, key=lambda path: int(path.split("/")[4]))
