"""A throwaway PostgreSQL server on loopback, with its data in one directory.

A commit is durable when it is answered: fsync and synchronous_commit are on. Two roles, both let in without
a password: ``berth`` owns its databases and is nobody special; ``postgres`` may do everything.
"""

import glob
import signal
from pathlib import Path
from typing import Final, Literal

from tests import packages
from tests.databases.processes import Database
from tests.servers import HOST

USER: Final = "postgres"

SETTINGS: Final = {
    "fsync": "on",
    "listen_addresses": HOST,
    "max_connections": "200",
    "shared_buffers": "32MB",
    "synchronous_commit": "on",
}

SIGNALS: Final = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostgreSQL(Database):
    def __init__(self, directory: Path, name: str = "postgresql") -> None:
        packages.require(*packages.POSTGRESQL)
        super().__init__(directory, name, USER)

    @property
    def admin_url(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def database_url(self, name: str) -> str:
        return f"postgresql://berth@{HOST}:{self.port}/{name}"

    def install(self) -> None:
        self.daemon.own(self.directory)
        self.daemon.own(self.data)
        words = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        # Nothing is worth keeping yet. The server itself syncs.
        self.run("initdb", "--pgdata", str(self.data), *words, "--no-sync")

    def run(self, program: str, *words: str) -> None:
        """Run a program of the server's package to its end, as the server's user."""
        self.daemon.run([_program(program), *words])

    def launch(self) -> None:
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.directory)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.daemon.start([_program("postgres"), "-D", str(self.data), *options])

    def furnish(self) -> None:
        self.execute("CREATE ROLE berth LOGIN")
        self.create_database("berth")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Fast: connections are ended, all is written. Immediate: it drops everything and recovers later."""
        self.daemon.stop(SIGNALS[mode])

    def kill(self) -> None:
        super().kill()
        # What a postmaster that was killed leaves behind would be taken for a running one if its number
        # were in use again.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        self.stop(mode)
        self.start()

    def create_database(self, name: str) -> str:
        """A new database that belongs to ``berth``. Its URL."""
        self.execute(f'CREATE DATABASE "{name}" OWNER berth')
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Also when somebody is still connected."""
        self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _program(name: str) -> str:
    """The newest of those installed."""
    paths = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    return max(paths, key=lambda path: int(path.split("/")[4]))
