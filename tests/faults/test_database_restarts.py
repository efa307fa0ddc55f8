"""The database is restarted under load: clients wait or are told to come back, and nothing else happens."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.faults.fleet import fleet, rounds, seeded
from tests.faults.lines import UNAVAILABLE, line_to
from tests.faults.load import CAPACITY, ClientLoad, make_providers
from tests.faults.verdict import assert_books_right
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CLIENTS = 4
RESTARTS = 2
AWAY_S = 2
WORKERS = 2
PATIENT = ("--database-outage-seconds", "50")
"""Longer than a database needs to start, and less than a client waits for its answer."""


def check_restarts(
    directory: Path,
    url: str,
    stop: Callable[[], None],
    start: Callable[[], None],
    *options: str,
    restarts: int = RESTARTS,
) -> ClientLoad:
    """Load through two servers while the database goes and comes; the load, to look at what clients saw."""
    dice = seeded()
    with fleet(directory, [url] * 2, "--workers", str(WORKERS), *options) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            for _ in range(rounds(restarts)):
                load.go_on(dice.randint(50, 200))
                stop()
                time.sleep(dice.uniform(0, 0.5))
                start()
                load.go_on(50)
            load.go_on(30, server=0)
            load.go_on(30, server=1)
        assert_books_right(load, url, WORKERS)
    # Connections to our servers stay: only the database was away.
    assert load.count("lost") == 0
    return load


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_postgresql_loses_nothing(
    mode: str, postgresql: PostgreSQL, postgresql_url: str, tmp_path: Path
) -> None:
    assert mode in ("fast", "immediate")
    stop = {
        "fast": lambda: postgresql.stop("fast"),
        "immediate": lambda: postgresql.stop("immediate"),
    }[mode]
    load = check_restarts(tmp_path, postgresql_url, stop, postgresql.start, *PATIENT)
    # It was away for less than requests wait for it.
    assert load.count("503") == 0


def test_mariadb_is_killed_and_started_again(mariadb: MariaDB, mariadb_url: str, tmp_path: Path) -> None:
    check_restarts(tmp_path, mariadb_url, mariadb.kill, mariadb.start)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_long_outage_is_logged_and_survived(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    database = request.getfixturevalue(kind)
    assert isinstance(database, PostgreSQL | MariaDB)

    def start_late() -> None:
        time.sleep(AWAY_S)
        database.start()

    load = check_restarts(
        tmp_path, url, database.kill, start_late, "--database-outage-seconds", "1", restarts=1
    )
    assert load.count("503") > 0


def test_readiness_says_that_the_database_is_away(
    postgresql: PostgreSQL, postgresql_url: str, tmp_path: Path
) -> None:
    with (
        fleet(tmp_path, [postgresql_url], "--database-outage-seconds", "0") as (server,),
        line_to(server) as line,
    ):
        assert line.ask("GET", "/readyz").status == 200
        postgresql.stop("fast")
        refusal = line.ask("GET", "/resource_providers")
        assert refusal.status == UNAVAILABLE
        assert "The database is unavailable" in refusal.body["errors"][0]["detail"]
        assert line.ask("GET", "/healthz").status == 200
        postgresql.start()
        assert line.ask("GET", "/resource_providers").status == 200
        assert line.ask("GET", "/readyz").status == 200


@contextlib.contextmanager
def hanging(database: PostgreSQL | MariaDB) -> Iterator[None]:
    """The database's processes are stopped. Their connections stay, and the kernel takes what is sent."""
    processes = [database.pid]
    try:
        freeze(database.pid)
        # Now it starts no more of them.
        children = Path(f"/proc/{database.pid}/task/{database.pid}/children").read_text().split()
        for pid in map(int, children):
            processes.append(pid)
            freeze(pid)
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def freeze(pid: int) -> None:
    """Stop a process, and wait until every thread of it has stopped. The signal is only sent when ``kill``
    returns: on a busy machine the threads of a database answer for another 100 ms."""
    os.kill(pid, signal.SIGSTOP)
    deadline_s = time.monotonic() + WITHIN_S
    while any(state_of(thread) != "T" for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline_s, f"process {pid} does not stop"
        time.sleep(0.002)


def state_of(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"  # It has ended.


def test_a_database_that_hangs_is_logged_and_survived(
    postgresql: PostgreSQL, postgresql_url: str, mariadb: MariaDB, mariadb_url: str, tmp_path: Path
) -> None:
    """Both at once, for it takes as long as a statement may take. The client waits for longer than that."""

    def status(server: ServerProcess) -> int:
        with line_to(server) as line:
            return line.ask("GET", "/resource_providers").status

    urls = [postgresql_url, mariadb_url]
    with fleet(tmp_path, urls, "--database-outage-seconds", "1") as servers, ThreadPoolExecutor(2) as pool:
        with hanging(postgresql), hanging(mariadb):
            assert list(pool.map(status, servers)) == [UNAVAILABLE, UNAVAILABLE]
        assert list(pool.map(status, servers)) == [200, 200]
        for server in servers:
            with line_to(server) as line:
                make_providers(line, [str(uuid.uuid4())], CAPACITY)
