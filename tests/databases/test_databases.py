"""The throwaway databases do what the tests that use them rely on."""

from typing import Any

import pytest
import sqlalchemy as sa

from tests import packages
from tests.databases import statements
from tests.databases.galera import Galera
from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.databases.processes import DatabaseStartError, scratch

NO_MAJORITY = 1047


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> PostgreSQL | MariaDB:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, PostgreSQL | MariaDB)
    return server


@pytest.fixture
def url(server: PostgreSQL | MariaDB, request: pytest.FixtureRequest) -> str:
    name = "postgresql_url" if isinstance(server, PostgreSQL) else "mariadb_url"
    return str(request.getfixturevalue(name))


def test_a_server_answers_and_runs_as_nobody_special(server: PostgreSQL | MariaDB, url: str) -> None:
    assert statements.execute(url, "SELECT 1 + 1") == [(2,)]
    assert server.is_running
    with open(f"/proc/{server.pid}/status") as status:
        user = next(line for line in status if line.startswith("Uid:"))
    assert "0" not in user.split()


def test_the_account_owns_its_database_and_not_the_server(server: PostgreSQL | MariaDB, url: str) -> None:
    statements.execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pytest.raises(sa.exc.DBAPIError):
        statements.execute(url, "CREATE DATABASE another_one")
    assert statements.execute(server.url, "SELECT 1") == [(1,)]


def test_committed_rows_outlive_a_restart_and_a_kill(server: PostgreSQL | MariaDB, url: str) -> None:
    statements.execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    statements.execute(url, "INSERT INTO t VALUES (1)")
    server.restart()
    statements.execute(url, "INSERT INTO t VALUES (2)")
    with statements.engine(url).connect() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (3)"))
        # Not committed, and its connection is being served when the server dies.
        server.kill()
        with pytest.raises(sa.exc.DBAPIError):
            connection.execute(sa.text("SELECT 1"))
        # Not every driver knows by itself that the connection is of no more use.
        connection.invalidate()
    server.start()
    assert statements.execute(url, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_postgresql_recovers_from_an_immediate_stop(postgresql: PostgreSQL, postgresql_url: str) -> None:
    statements.execute(postgresql_url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    statements.execute(postgresql_url, "INSERT INTO t VALUES (1)")
    postgresql.restart("immediate")
    assert statements.execute(postgresql_url, "SELECT id FROM t") == [(1,)]


def test_a_server_left_dead_is_found_alive_by_the_next_test(mariadb: MariaDB, mariadb_url: str) -> None:
    mariadb.kill()
    assert not mariadb.is_running
    mariadb.restore()
    assert statements.execute(mariadb_url, "SELECT 1") == [(1,)]


def test_a_server_that_cannot_start_says_why(mariadb: MariaDB) -> None:
    with scratch("broken") as directory:
        broken = MariaDB(directory, {"port": str(mariadb.port)})
        with pytest.raises(DatabaseStartError, match="Address already in use"):
            broken.start()
        assert not broken.is_running


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packages.EVIDENCE, "oracle", "/usr/lib/oracle/*")
    monkeypatch.setattr(packages, "_can_install", lambda: False)
    with pytest.raises(packages.PackageMissing, match="needs oracle; installing takes root"):
        packages.require("oracle")


def test_galera_reads_on_one_node_what_another_has_written(galera: Galera, galera_url: str) -> None:
    fill(galera, galera_url)
    for number in range(3):
        assert ids(galera, galera_url, number) == [1]


def test_galera_goes_on_without_a_killed_node_which_rejoins(galera: Galera, galera_url: str) -> None:
    fill(galera, galera_url)
    galera.kill_node(2)
    write(galera, galera_url, 0, 2)
    galera.start_node(2)
    assert ids(galera, galera_url, 2) == [1, 2]
    write(galera, galera_url, 2, 3)
    assert ids(galera, galera_url, 0) == [1, 2, 3]


def test_galera_minority_refuses_until_it_is_healed(galera: Galera, galera_url: str) -> None:
    fill(galera, galera_url)
    galera.partition(1)
    for statement in ("INSERT INTO t VALUES (2)", "SELECT id FROM t"):
        with pytest.raises(sa.exc.DBAPIError) as caught:
            statements.execute(on_node(galera, galera_url, 1), statement)
        assert number_of(caught.value) == NO_MAJORITY
    write(galera, galera_url, 0, 3)
    assert ids(galera, galera_url, 2) == [1, 3]
    galera.heal(1)
    assert ids(galera, galera_url, 1) == [1, 3]
    write(galera, galera_url, 1, 4)


def fill(galera: Galera, url: str) -> None:
    statements.execute(on_node(galera, url, 0), "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    write(galera, url, 0, 1)


def write(galera: Galera, url: str, number: int, value: int) -> None:
    statements.execute(on_node(galera, url, number), f"INSERT INTO t VALUES ({value})")


def ids(galera: Galera, url: str, number: int) -> list[int]:
    rows = statements.execute(
        on_node(galera, url, number),
        "SELECT id FROM t ORDER BY id",
        prelude=["SET SESSION wsrep_sync_wait = 1"],
    )
    return [value for (value,) in rows]


def on_node(galera: Galera, url: str, number: int) -> str:
    """The same database, through one node alone."""
    return galera.nodes[number].database_url(url.rpartition("/")[2])


def number_of(error: sa.exc.DBAPIError) -> int:
    """Drivers keep the server's number of an error in different places."""
    original: Any = error.orig
    return int(getattr(original, "errno", None) or original.args[0])
