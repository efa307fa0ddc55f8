"""A server that its database does not let in says why and ends at once; one that is away it waits for."""

import subprocess
from pathlib import Path

import pytest

from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.servers import ServerStartError, berth, free_port
from tests.waiting import WITHIN_S

PATIENCE = ("--database-outage-seconds", "300")


def refuse(directory: Path, url: str) -> str:
    """The log of a server that does not start. It must not have waited."""
    server = berth(directory, *PATIENCE, database=url)
    with pytest.raises(ServerStartError, match="exited with status 1"):
        server.start(WITHIN_S)
    assert "waiting for it" not in server.log
    return server.log


def test_postgresql_does_not_let_it_in(tmp_path: Path, postgresql: PostgreSQL, postgresql_url: str) -> None:
    assert "does not exist" in refuse(tmp_path, postgresql.database_url("no_such_database"))
    assert "does not exist" in refuse(tmp_path, postgresql_url.replace("berth@", "nobody@"))
    postgresql.execute("CREATE ROLE guest LOGIN")
    assert "permission denied" in refuse(tmp_path, postgresql_url.replace("berth@", "guest@"))


def test_mariadb_does_not_let_it_in(tmp_path: Path, mariadb: MariaDB, mariadb_url: str) -> None:
    assert "1045" in refuse(tmp_path, mariadb_url.replace("berth:berth@", "nobody:wrong@"))


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_database_that_is_away_is_waited_for(tmp_path: Path, kind: str) -> None:
    url = f"{kind}://berth@127.0.0.1:{free_port()}/berth"
    server = berth(tmp_path, "--database-outage-seconds", "2", database=url)
    with pytest.raises(ServerStartError, match="exited with status 1"):
        server.start()
    assert server.log.count("the database: unavailable, waiting for it for 2 s at most: ") == 1


def test_a_cell_ends_too(tmp_path: Path, postgresql: PostgreSQL) -> None:
    words = ["cell", "--name", "cell1", "--listen", f"127.0.0.1:{free_port()}"]
    words += ["--placement", "http://127.0.0.1:1", "--database", postgresql.database_url("no_such_database")]
    server = berth(tmp_path)
    done = subprocess.run(
        [server.command(0)[0], *words],
        env={**(server.env or {}), "BERTH_PLACEMENT_TOKEN": "x"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 1
    assert "does not exist" in done.stderr
