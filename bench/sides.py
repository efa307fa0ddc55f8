"""The two servers of a comparison, each as an operator would run it, on a SQLite file, durable.

Upstream gets the best that was found for it. It runs under gunicorn, and its database file is put into
write-ahead mode, which it does not do by itself and profits from. Reads get a process for each of two
cores. Writes get one process with one thread: with more, SQLite refuses most of them ("database is
locked", status 500), and the rate of those that succeed is lower. Berth runs with its defaults.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.servers import HOST, Server, berth

MEMORY_LIMIT_KB: Final = 6 * 1024 * 1024
"""Of address space, for workloads that a server may die of: the machine shall not."""


class Side(Protocol):
    """One of the two servers."""

    name: str

    def server(self, directory: Path, *, writes: bool, limited: bool = False) -> Server:
        """A server on the data in the directory, which are made when missing."""
        ...

    def copy_data(self, source: Path, target: Path) -> None:
        """Bring the data of a server that has ended into another directory."""
        ...

    def about(self, *, writes: bool) -> str: ...


class Upstream:
    name = "upstream"

    def about(self, *, writes: bool) -> str:
        return (
            f"openstack-placement, gunicorn, {_processes(writes)} process(es) x {_threads(writes)} thread(s)"
        )

    def server(self, directory: Path, *, writes: bool, limited: bool = False) -> Server:
        database = directory / "placement.db"
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        config = [
            "[api]",
            "auth_strategy = noauth2",
            "[placement_database]",
            f"connection = sqlite:///{database}",
            f"sync_on_startup = {writes}",
        ]
        (directory / "placement.conf").write_text("\n".join(config) + "\n")
        words = [str(Path(sys.executable).with_name("gunicorn")), "--worker-class", "gthread"]
        words += ["--workers", str(_processes(writes)), "--threads", str(_threads(writes))]
        words += ["--keep-alive", "120", "--timeout", "600", "placement.wsgi.api:application", "--bind"]
        env = {**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(directory)}
        server = Server(lambda port: [*words, f"{HOST}:{port}"], directory / "server.log", env)
        return _limit_memory(server) if limited else server

    def copy_data(self, source: Path, target: Path) -> None:
        for path in source.glob("placement.db*"):
            shutil.copy(path, target)


class Berth:
    name = "berth"

    def about(self, *, writes: bool) -> str:
        return "berth serve with its defaults, one process"

    def server(self, directory: Path, *, writes: bool, limited: bool = False) -> Server:
        server = berth(directory)
        return _limit_memory(server) if limited else server

    def copy_data(self, source: Path, target: Path) -> None:
        for path in source.glob("berth.db*"):
            shutil.copy(path, target)


def _processes(writes: bool) -> int:
    return 1 if writes else 2


def _threads(writes: bool) -> int:
    return 1 if writes else 4


def _limit_memory(server: Server) -> Server:
    command = server.command

    def limited(port: int) -> Sequence[str]:
        return ["sh", "-c", f'ulimit -v {MEMORY_LIMIT_KB}; exec "$@"', "sh", *command(port)]

    server.command = limited
    return server
