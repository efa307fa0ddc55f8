"""The database servers of a run, and how a database on them is made, copied and dropped.

Data are loaded once for each fleet. Every workload that writes gets a copy, so that no measurement sees what
another one wrote.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import sqlalchemy as sa

from tests.databases import statements
from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.databases.processes import scratch

MARIADB: Final = {"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "256M"}
"""So that all data fit into memory; commits are durable all the same."""


class Store(Protocol):
    """Where databases are."""

    name: str

    @property
    def pid(self) -> int | None:
        """Of the database server, where there is one."""
        ...

    def version(self) -> str:
        """With the settings that matter."""
        ...

    def url(self, database: str) -> str: ...
    def create(self, database: str) -> None: ...
    def copy(self, source: str, target: str) -> None:
        """Make ``target`` with all that is in ``source``, which nobody uses meanwhile."""
        ...

    def drop(self, database: str) -> None: ...


class MariaDBStore:
    name = "MariaDB"

    def __init__(self, server: MariaDB) -> None:
        self.server = server

    @property
    def pid(self) -> int:
        return self.server.pid

    def version(self) -> str:
        ((version,),) = self.server.execute("SELECT VERSION()")
        settings = ", ".join(f"{name} {value}" for name, value in MARIADB.items())
        return f"{self.name} {version.split('-')[0]} ({settings})"

    def url(self, database: str) -> str:
        return self.server.database_url(database)

    def url_of_placement(self, database: str) -> str:
        return self.url(database).replace("mysql://", "mysql+pymysql://") + "?charset=utf8mb4"

    def engine(self, database: str) -> sa.Engine:
        return statements.engine(self.url(database))

    def create(self, database: str) -> None:
        self.server.create_database(database)

    def copy(self, source: str, target: str) -> None:
        self.create(target)
        with statements.engine(self.server.admin_url).begin() as connection:
            # Tables refer to each other; without the checks their order does not matter.
            connection.exec_driver_sql("SET foreign_key_checks = 0")
            connection.exec_driver_sql(f"USE `{target}`")
            for (table,) in connection.exec_driver_sql(f"SHOW TABLES FROM `{source}`").all():
                _, definition = connection.exec_driver_sql(f"SHOW CREATE TABLE `{source}`.`{table}`").one()
                connection.exec_driver_sql(definition)
                connection.exec_driver_sql(f"INSERT INTO `{table}` SELECT * FROM `{source}`.`{table}`")
        self.analyze(target)

    def analyze(self, database: str) -> None:
        """Let the planner know what was loaded, rather than find out in the middle of a measurement."""
        with self.engine(database).connect() as connection:
            for table in sa.inspect(connection).get_table_names():
                connection.exec_driver_sql(f"ANALYZE TABLE `{table}`").all()

    def drop(self, database: str) -> None:
        self.server.drop_database(database)


class PostgreSQLStore:
    name = "PostgreSQL"

    def __init__(self, server: PostgreSQL) -> None:
        self.server = server

    @property
    def pid(self) -> int:
        return self.server.pid

    def version(self) -> str:
        ((version,),) = self.server.execute("SHOW server_version")
        ((memory,),) = self.server.execute("SHOW shared_buffers")
        return f"{self.name} {version.split()[0]} (shared_buffers {memory})"

    def url(self, database: str) -> str:
        return self.server.database_url(database)

    def create(self, database: str) -> None:
        self.server.create_database(database)

    def copy(self, source: str, target: str) -> None:
        self.server.execute(f'CREATE DATABASE "{target}" OWNER berth TEMPLATE "{source}"')

    def drop(self, database: str) -> None:
        self.server.drop_database(database)


class SqliteStore:
    name = "SQLite"
    pid = None

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def version(self) -> str:
        return f"{self.name} {sqlite3.sqlite_version}"

    def url(self, database: str) -> str:
        return f"sqlite:///{self.directory / database}.db"

    url_of_placement = url

    def engine(self, database: str) -> sa.Engine:
        return sa.create_engine(self.url(database), poolclass=sa.NullPool)

    def analyze(self, database: str) -> None:
        """Let the planner know what was loaded, and readers read while another writes."""
        with self.engine(database).connect() as connection:
            connection.exec_driver_sql("ANALYZE")
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def create(self, database: str) -> None:
        """Whoever opens the file first makes it."""

    def copy(self, source: str, target: str) -> None:
        for path in self.directory.glob(f"{source}.db*"):
            shutil.copy(path, self.directory / path.name.replace(source, target, 1))

    def drop(self, database: str) -> None:
        for path in self.directory.glob(f"{database}.db*"):
            path.unlink()


@contextlib.contextmanager
def mariadb() -> Iterator[MariaDBStore]:
    with scratch("bench-mariadb") as directory:
        server = MariaDB(directory, MARIADB)
        server.start()
        try:
            yield MariaDBStore(server)
        finally:
            server.stop()


@contextlib.contextmanager
def postgresql() -> Iterator[PostgreSQLStore]:
    with scratch("bench-postgresql") as directory:
        server = PostgreSQL(directory)
        server.start()
        try:
            yield PostgreSQLStore(server)
        finally:
            server.stop()


@contextlib.contextmanager
def sqlite() -> Iterator[SqliteStore]:
    with scratch("bench-sqlite") as directory:
        yield SqliteStore(directory)
