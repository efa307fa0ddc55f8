"""A database that cannot be written to: writes are refused with the reason, and reads go on.

When the database takes writes again, so does the server, without anybody's help.
"""

import contextlib
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.faults.fleet import fleet, seeded
from tests.faults.lines import UNAVAILABLE, Line, line_to, lines_to_all_workers
from tests.faults.load import Load, claim_body, make_providers
from tests.faults.verdict import assert_books_right, standing_through
from tests.servers import Server

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CLIENTS = 4
WRITERS = 8
READS = 20
BATCHES_MAX = 4
DISK_BYTES = 8 << 20
CLAIMS_MAX = 3000
RECOVERY_S = 30
PROVIDER, CONSUMER = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


class Refused(NamedTuple):
    generation: int
    """The last that was acknowledged before."""
    reason: str


def claim(line: Line, generation: int) -> tuple[int, str]:
    """Write a new amount; the status, and what the server said."""
    body = claim_body({PROVIDER: {"VCPU": generation + 1}}, generation or None)
    answer = line.ask("PUT", f"/allocations/{CONSUMER}", body)
    return answer.status, "" if answer.body is None else answer.body["errors"][0]["detail"]


def claim_until_refused(line: Line, generation: int) -> Refused:
    for number in range(generation, generation + CLAIMS_MAX):
        status, words = claim(line, number)
        if status != 204:
            assert status == UNAVAILABLE, (status, words)
            return Refused(number, words)
    raise AssertionError(f"{CLAIMS_MAX} writes were accepted")


def check_refusal(lines: list[Line], generation: int, reason: str) -> int:
    """Every line refuses to write, says why, and answers reads; the last generation acknowledged."""
    refused = claim_until_refused(lines[0], generation)
    for line in lines:
        for _ in range(3):
            status, words = claim(line, refused.generation)
            assert status == UNAVAILABLE
            assert reason in words
            standing = standing_through(line, CONSUMER)
            assert standing.generation == refused.generation
            assert standing.held == {PROVIDER: {"VCPU": refused.generation}}
            assert line("GET", f"/resource_providers/{PROVIDER}/usages")["usages"] == {
                "VCPU": refused.generation
            }
        assert line.ask("GET", "/healthz").status == 200
    return refused.generation


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
        assert all(standing_through(other, CONSUMER).generation == generation for other in lines)
    return generation


def check_refusal_under_load(
    directory: Path,
    url: str,
    workers: int,
    refuse: Callable[[], object],
    allow: Callable[[], object],
    reason: str,
) -> None:
    """Twice: refused, with the reason, while other clients try too; then allowed again."""
    dice = seeded()
    # A refusal does not wait for the end of an outage: it is none.
    options = ("--workers", str(workers), "--database-outage-seconds", "2")
    with fleet(directory, [url], *options) as servers:
        load = Load(servers, CLIENTS, dice)
        lines = lines_to_all_workers(servers[0], workers)
        make_providers(lines[0], [PROVIDER], {"VCPU": 1_000_000})
        with load:
            generation = check_recovery(lines, 0)
            for _ in range(2):
                load.go_on(20)
                refuse()
                generation = check_refusal(lines, generation, reason)
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


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk(workers: int, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"

        def fill() -> None:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

        url = f"sqlite:///{disk / 'berth.db'}"
        check_refusal_under_load(tmp_path, url, workers, fill, ballast.unlink, "full")


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
    """Writes again and again, and is refused each time."""

    def __init__(self, server: Server) -> None:
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
                assert standing_through(line, CONSUMER).generation == 1
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
