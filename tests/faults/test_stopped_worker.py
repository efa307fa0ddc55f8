"""A worker that was stopped and goes on again does not answer from the view it went to sleep with.

Stopped processes still have their connections: the kernel takes requests for them, and they are answered
late. A read may be answered with anything written until then, but with nothing older than what had been
acknowledged when it was sent.
"""

import os
import signal
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.counting import Counting, assert_fresh, counting
from tests.faults.fleet import fleet, rounds, seeded, take_snapshot_of
from tests.faults.lines import worker_of
from tests.faults.load import ClientLoad
from tests.faults.verdict import assert_books_right
from tests.servers import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

SERVERS = 3
CLIENTS = 3
NAPS = 8
NAP_S = 0.15
LONG_S = 11
"""Longer than a statement may take (10 s), and than a database may be away (10 s)."""


def ask_while_stopped(
    pool: ThreadPoolExecutor, server: ServerProcess, counter: Counting, seconds: float
) -> list[Future[None]]:
    """Stop the server's worker, and send it reads while it sleeps and right after it has been woken."""
    worker = worker_of(server)
    before = counter.acknowledged
    os.kill(worker, signal.SIGSTOP)
    try:
        reads = []
        for _ in range(4):
            time.sleep(seconds / 4)
            reads.append(pool.submit(assert_fresh, server, counter))
        counter.wait_for(before + 1)
    finally:
        os.kill(worker, signal.SIGCONT)
    reads += [pool.submit(assert_fresh, server, counter) for _ in range(4)]
    return reads


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_worker_that_slept_does_not_answer_from_its_old_view(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    dice = seeded()
    naps = [NAP_S] * (rounds(NAPS) // 2)
    with fleet(tmp_path, [url] * SERVERS) as servers:
        provider = str(uuid.uuid4())
        load = ClientLoad(servers, CLIENTS, dice)
        with load, counting(servers[0], provider) as counter, ThreadPoolExecutor(16) as pool:
            for seconds in (*naps, LONG_S, *naps):
                load.go_on(5)
                for done in ask_while_stopped(pool, servers[2], counter, seconds):
                    done.result(60)
            load.go_on(20, server=2)
        print(f"counted to {counter.acknowledged}")
        assert_books_right(load, url)


def test_a_worker_that_slept_longer_than_the_journal_is_kept_starts_over(
    postgresql_url: str, tmp_path: Path
) -> None:
    dice = seeded()
    with fleet(tmp_path, [postgresql_url] * 2) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load, counting(servers[0], str(uuid.uuid4())) as counter:
            worker = worker_of(servers[1])
            for _ in range(rounds(2)):
                load.go_on(20, server=1)
                os.kill(worker, signal.SIGSTOP)
                try:
                    # What is behind the older of the two last snapshots is kept.
                    for _ in range(3):
                        counter.wait_for(counter.acknowledged + 20)
                        take_snapshot_of(postgresql_url, 0)
                finally:
                    os.kill(worker, signal.SIGCONT)
                assert_fresh(servers[1], counter)
            load.go_on(20, server=1)
        assert_books_right(load, postgresql_url)
