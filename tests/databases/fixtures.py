"""Fixtures: the servers, started once for a test run when the first test asks, and a fresh database a test.

A test may kill its server, stop it or cut it off: the fixture of its database puts that right before and
after. Where a server cannot be installed, the tests that need it are skipped and say why.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pytest

from tests.databases.galera import Galera
from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.databases.processes import scratch
from tests.databases.releases import Release, install_releases
from tests.databases.standby import Pair
from tests.packages import PackageMissing

_numbers: Final = itertools.count(1)


class Runnable(Protocol):
    @property
    def is_running(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class DatabaseServer(Runnable, Protocol):
    def restore(self) -> None: ...
    def create_database(self, name: str) -> str: ...
    def drop_database(self, name: str) -> None: ...


R = TypeVar("R", bound=Runnable)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    with running("postgresql", PostgreSQL) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    with running("mariadb", MariaDB) as server:
        yield server


@pytest.fixture(scope="session")
def galera() -> Iterator[Galera]:
    with running("galera", Galera) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    """This release and the next, as wheels; for all processes that run tests together."""
    own = tmp_path_factory.getbasetemp()
    return install_releases((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "releases")


@pytest.fixture
def postgresql_url(postgresql: PostgreSQL) -> Iterator[str]:
    with fresh_database(postgresql) as url:
        yield url


@pytest.fixture
def mariadb_url(mariadb: MariaDB) -> Iterator[str]:
    with fresh_database(mariadb) as url:
        yield url


@pytest.fixture
def galera_url(galera: Galera) -> Iterator[str]:
    """Of a database on all nodes, naming all of them."""
    with fresh_database(galera) as url:
        yield url


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary and its standby, for one test: afterwards they are not what they were."""
    with running("pair", Pair) as pair:
        yield pair


@contextlib.contextmanager
def running(name: str, make: Callable[[Path], R]) -> Iterator[R]:
    """A server of one's own, for as long as it is needed."""
    with scratch(name) as directory:
        try:
            server = make(directory)
        except PackageMissing as missing:
            pytest.skip(str(missing))
        try:
            server.start()
            yield server
        finally:
            if server.is_running:
                server.stop()


@contextlib.contextmanager
def fresh_database(server: DatabaseServer) -> Iterator[str]:
    server.restore()
    name = f"berth_{next(_numbers)}"
    url = server.create_database(name)
    try:
        yield url
    finally:
        server.restore()
        server.drop_database(name)
