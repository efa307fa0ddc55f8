"""A database that cannot be written to: writes are refused, the log has the reason, and reads go on.

When the database takes writes again, so does the server, without anybody's help.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.databases.fixtures import fresh_database
from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.databases.processes import scratch
from tests.faults.fleet import fleet, seeded
from tests.faults.lines import UNAVAILABLE, Line, line_to, lines_to_all_workers
from tests.faults.load import ClientLoad, claim_body, make_providers
from tests.faults.verdict import assert_books_right, holdings_through
from tests.servers import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CLIENTS = 4
WRITERS = 8
READS = 20
BATCHES_MAX = 4
DISK_BYTES = 8 << 20
CLAIMS_MAX = 6000
PAGES_TIMES = 50
"""What was refused together with others may alone still fit a page that is not full."""
RECOVERY_S = 30
PROVIDER, CONSUMER = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def claim(line: Line, generation: int) -> tuple[int, str]:
    """Write a new amount; the status, and what the server said."""
    body = claim_body({PROVIDER: {"VCPU": generation + 1}}, generation or None)
    answer = line.ask("PUT", f"/allocations/{CONSUMER}", body)
    return answer.status, "" if answer.body is None else answer.body["errors"][0]["detail"]


def claim_until_refused(lines: list[Line], generation: int, times: int) -> int:
    """Through all lines in turn, until so many in a row were refused; the last generation acknowledged."""
    refusals = 0
    for number in range(CLAIMS_MAX):
        status, words = claim(lines[number % len(lines)], generation)
        if status == 204:
            generation += 1
            refusals = 0
            continue
        assert status == UNAVAILABLE, (status, words)
        refusals += 1
        if refusals == times:
            return generation
    raise AssertionError(f"of {CLAIMS_MAX} writes no {times} in a row were refused")


def check_refusal(lines: list[Line], generation: int, times: int) -> int:
    """Every line refuses to write, and answers reads; the last generation acknowledged."""
    generation = claim_until_refused(lines, generation, times)
    for line in lines:
        for _ in range(3):
            status, words = claim(line, generation)
            assert status == UNAVAILABLE
            assert "The database refuses writes" in words
            holdings = holdings_through(line, CONSUMER)
            assert holdings.generation == generation
            assert holdings.held == {PROVIDER: {"VCPU": generation}}
            assert line("GET", f"/resource_providers/{PROVIDER}/usages")["usages"] == {"VCPU": generation}
        assert line.ask("GET", "/healthz").status == 200
    return generation


def check_recovery(lines: list[Line], generation: int) -> int:
    """Every line takes writes again, without anybody's help."""
    deadline_s = time.monotonic() + RECOVERY_S
    for line in lines:
        status, words = claim(line, generation)
        while status != 204:
            assert status == UNAVAILABLE, (status, words)
            assert time.monotonic() < deadline_s, f"still refused: {words}"
            time.sleep(0.1)
            status, words = claim(line, generation)
        generation += 1
        assert all(holdings_through(other, CONSUMER).generation == generation for other in lines)
    return generation


def check_refusal_under_load(
    directory: Path,
    url: str,
    workers: int,
    refuse: Callable[[], object],
    allow: Callable[[], object],
    reason: str,
    times: int = 1,
) -> None:
    """Twice: refused, with the reason in the log, while other clients try too; then allowed again. It counts
    as refused after so many ``times`` in a row."""
    dice = seeded()
    # A refusal does not wait for the end of an outage: it is none.
    options = ("--workers", str(workers), "--database-outage-seconds", "2")
    with fleet(directory, [url], *options) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        lines = lines_to_all_workers(servers[0], workers)
        make_providers(lines[0], [PROVIDER], {"VCPU": 1_000_000})
        with load:
            generation = check_recovery(lines, 0)
            for _ in range(2):
                load.go_on(20)
                refuse()
                generation = check_refusal(lines, generation, times)
                assert reason in servers[0].log
                allow()
                generation = check_recovery(lines, generation)
            load.go_on(20)
        assert load.count("503") > 0
        assert load.count("lost") == 0
        lines[0]("DELETE", f"/allocations/{CONSUMER}")
        for line in lines:
            line.close()
        assert_books_right(load, url, workers)


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of its own."""
    directory.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "berth-test", str(directory)]
    if os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextlib.contextmanager
def small_disk_of(database: PostgreSQL | MariaDB) -> Iterator[Path]:
    """One that a database server may write to."""
    with scratch("disk") as directory, small_disk(directory / "disk") as disk:
        database.daemon.own(disk / "space")
        yield disk


def check_full_disk(directory: Path, disk: Path, url: str, workers: int, reason: str, times: int = 1) -> None:
    """The database's tables are on this disk, which somebody else fills up."""
    ballast = disk / "ballast"

    def fill() -> None:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    try:
        check_refusal_under_load(directory, url, workers, fill, ballast.unlink, reason, times)
    finally:
        ballast.unlink(missing_ok=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_refuses_writes(workers: int, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        check_full_disk(tmp_path, disk, f"sqlite:///{disk / 'berth.db'}", workers, "full")


def test_postgresql_whose_disk_is_full(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """Its tables' disk. Where the log cannot be written the whole server ends, and is away."""
    with small_disk_of(postgresql) as disk:
        postgresql.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'space'}'")
        try:
            postgresql.execute("GRANT CREATE ON TABLESPACE small TO berth")
            with fresh_database(postgresql) as url:
                name = url.rpartition("/")[2]
                postgresql.execute(f'ALTER DATABASE "{name}" SET default_tablespace = small')
                check_full_disk(tmp_path, disk, url, 2, "No space left on device", PAGES_TIMES)
        finally:
            postgresql.execute("DROP TABLESPACE small")


def test_mariadb_whose_disk_is_full(mariadb: MariaDB, tmp_path: Path) -> None:
    """The disk of one database's tables, which is a directory of the server's."""
    with small_disk_of(mariadb) as disk, fresh_database(mariadb) as url:
        directory = mariadb.data / url.rpartition("/")[2]
        shutil.copytree(directory, disk / "space", dirs_exist_ok=True)
        shutil.rmtree(directory)
        directory.symlink_to(disk / "space")
        check_full_disk(tmp_path, disk, url, 2, "is full", PAGES_TIMES)


@pytest.mark.parametrize("workers", [1, 2])
def test_mariadb_that_is_read_only(workers: int, mariadb: MariaDB, mariadb_url: str, tmp_path: Path) -> None:
    def set_read_only(value: int) -> None:
        mariadb.execute(f"SET GLOBAL read_only = {value}")

    try:
        check_refusal_under_load(
            tmp_path, mariadb_url, workers, lambda: set_read_only(1), lambda: set_read_only(0), "read-only"
        )
    finally:
        set_read_only(0)


@pytest.mark.parametrize("sessions", ["kept", "ended"])
def test_postgresql_that_is_read_only(
    sessions: str, postgresql: PostgreSQL, postgresql_url: str, tmp_path: Path
) -> None:
    """For sessions that are open, by the configuration; or for new ones, as after a restart."""
    name = postgresql_url.rpartition("/")[2]

    def set_read_only(value: str) -> None:
        if sessions == "kept":
            postgresql.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            postgresql.execute("SELECT pg_reload_conf()")
        else:
            postgresql.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
            postgresql.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )

    try:
        check_refusal_under_load(
            tmp_path,
            postgresql_url,
            2,
            lambda: set_read_only("on"),
            lambda: set_read_only("off"),
            "read-only",
        )
    finally:
        # Setting it is a write too, where it is on.
        postgresql.execute("ALTER SYSTEM RESET default_transaction_read_only")
        postgresql.execute("SELECT pg_reload_conf()")


class Insisting(threading.Thread):
    """Writes repeatedly, and is refused each time."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.refusals = 0
        self.ending = threading.Event()

    def run(self) -> None:
        with line_to(self.server) as line:
            while not self.ending.is_set():
                assert claim(line, 1)[0] == UNAVAILABLE
                self.refusals += 1


def test_a_read_is_not_held_up_by_writes_that_are_refused(
    mariadb: MariaDB, mariadb_url: str, tmp_path: Path
) -> None:
    """A read waits for the batch in flight, and perhaps for one more on each side of its look at the journal.
    It is not for those who insist on writing to decide how long reads take."""
    with fleet(tmp_path, [mariadb_url]) as (server,), line_to(server) as line:
        make_providers(line, [PROVIDER], {"VCPU": 1_000_000})
        assert claim(line, 0)[0] == 204
        mariadb.execute("SET GLOBAL read_only = 1")
        writers = [Insisting(server) for _ in range(WRITERS)]
        try:
            for writer in writers:
                writer.start()
            waited = []
            for _ in range(READS):
                before = sum(writer.refusals for writer in writers)
                assert holdings_through(line, CONSUMER).generation == 1
                waited.append(sum(writer.refusals for writer in writers) - before)
        finally:
            for writer in writers:
                writer.ending.set()
            for writer in writers:
                writer.join(30)
            mariadb.execute("SET GLOBAL read_only = 0")
    print(f"refusals during each read: {waited}")
    # All of them may be in one batch.
    assert statistics.median(waited) <= BATCHES_MAX * WRITERS
