"""The servers of a comparison, each as an operator would run it.

Upstream runs under uWSGI with two processes and the options that OpenStack's installers give it, but for
the connections, which they let be closed after every request: here uWSGI's own HTTP router stands before
the processes and keeps the clients' connections open. ``--http11-socket`` was rejected: there a process
serves one connection until the client ends it, so that two clients would shut out all others. A process
has one thread unless a run asks for more, which is no plain gain: on a busy machine four of them did more
of the mixed reads and claims, fewer of the claims on one host and of the moves, and some moves were
refused (409). On a SQLite file it has one process: with more, most of its writes fail ("database is locked").

Both sides log every request, as they do by default. uWSGI would log upstream's once more, and does not.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from bench.databases import MariaDBStore, SqliteStore, Store
from bench.fleets import providers
from bench.journals import fleet_commands, write_journal
from bench.upstream_rows import write_fleet
from bench.workload import Fleet
from berth.journal import SqliteAddress, open_journal, parse_address
from tests.servers import HOST, ServerProcess, berth, running

PROCESSES: Final = 2
MEMORY_LIMIT_KB: Final = 6 * 1024 * 1024
"""Of address space, for workloads that a server may die of: the machine shall not."""

BIN: Final = Path(sys.executable).parent


class Side(Protocol):
    """A server and where its data are."""

    @property
    def name(self) -> str: ...
    @property
    def store(self) -> Store: ...

    def load(self, database: str, fleet: Fleet) -> None:
        """Make a database that holds the fleet."""
        ...

    def server(self, database: str, directory: Path, *, limited: bool = False) -> ServerProcess:
        """A server on a database; its other files go into the directory."""
        ...

    def about(self) -> str: ...


class UpstreamSide:
    name = "upstream"

    def __init__(self, store: MariaDBStore | SqliteStore, directory: Path, threads: int = 1) -> None:
        self.store = store
        self.directory = directory
        self.threads = threads
        self.processes = 1 if isinstance(store, SqliteStore) else PROCESSES
        self._empty: str | None = None

    def about(self) -> str:
        return (
            f"openstack-placement, uwsgi --processes {self.processes} --threads {self.threads} behind "
            f"uwsgi's --http --http-keepalive, on {self.store.version()}"
        )

    def load(self, database: str, fleet: Fleet) -> None:
        if self._empty is None:
            self._empty = self._make_empty()
        self.store.copy(self._empty, database)
        with self.store.engine(database).begin() as connection:
            write_fleet(connection, providers(fleet))
        self.store.analyze(database)

    def _make_empty(self) -> str:
        """A database as its own programs leave it: the schema, and the standard traits and classes."""
        database = "placement_empty"
        self.store.create(database)
        server = self.server(database, self.directory)
        words = [str(BIN / "placement-manage"), "--config-dir", str(self.directory), "db", "sync"]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        with running(server):
            return database

    def server(self, database: str, directory: Path, *, limited: bool = False) -> ServerProcess:
        config = [
            "[api]",
            "auth_strategy = noauth2",
            "[placement_database]",
            f"connection = {self.store.url_of_placement(database)}",
            # As Berth does: a commit is on disk when it is answered.
            "sqlite_synchronous = True",
        ]
        (directory / "placement.conf").write_text("\n".join(config) + "\n")
        words = [str(BIN / "uwsgi"), "--module", "placement.wsgi.api:application", "--need-app"]
        words += ["--master", "--processes", str(self.processes), "--threads", str(self.threads)]
        words += [
            "--lazy-apps",
            "--thunder-lock",
            "--enable-threads",
            "--die-on-term",
            "--disable-logging",
            "--buffer-size",
            "65535",
        ]
        words += ["--socket", str(directory / "uwsgi.sock")]
        words += ["--http-keepalive", "--http-timeout", "600", "--http"]
        env = {**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(directory)}
        server = ServerProcess(lambda port: [*words, f"{HOST}:{port}"], directory / "server.log", env)
        return _limit_memory(server) if limited else server


class Berth:
    def __init__(self, store: Store, workers: int) -> None:
        self.name = f"berth on {store.name}"
        self.store = store
        self.workers = workers

    def about(self) -> str:
        return f"berth serve --workers {self.workers}, on {self.store.version()}"

    def load(self, database: str, fleet: Fleet) -> None:
        self.store.create(database)
        address = parse_address(self.store.url(database))
        journal = open_journal(address, shared=not isinstance(address, SqliteAddress))
        with contextlib.closing(journal):
            write_journal(journal, fleet_commands(providers(fleet)))

    def server(self, database: str, directory: Path, *, limited: bool = False) -> ServerProcess:
        server = berth(directory, "--workers", str(self.workers), database=self.store.url(database))
        # As an operator starts it: a process of its own, which has imported nothing before.
        server.entry = None
        return _limit_memory(server) if limited else server


class EarlierBerth(Berth):
    """Berth as it was at a revision of this repository, on what is installed now."""

    def __init__(self, store: Store, workers: int, revision: str, directory: Path) -> None:
        super().__init__(store, workers)
        self.name = f"{self.name} at {revision}"
        self._source = directory / "src"
        archive = subprocess.run(["git", "archive", revision, "src"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(directory)], check=True, input=archive.stdout)

    def server(self, database: str, directory: Path, *, limited: bool = False) -> ServerProcess:
        assert not limited, "a comparison of versions has no workload that a server may die of"
        server = super().server(database, directory)
        command = server.command

        def earlier(port: int) -> Sequence[str]:
            _, *words = command(port)
            return [sys.executable, "-m", "berth.cli", *words]

        server.command = earlier
        server.env = {**(server.env or {}), "PYTHONPATH": str(self._source)}
        return server


def _limit_memory(server: ServerProcess) -> ServerProcess:
    command = server.command

    def limited(port: int) -> Sequence[str]:
        return ["sh", "-c", f'ulimit -v {MEMORY_LIMIT_KB}; exec "$@"', "sh", *command(port)]

    server.command = limited
    return server
