"""A PostgreSQL primary is lost under load, and its standby takes over.

Who takes over, and when, is decided by whoever runs the database. Until then nobody can say whether what a
worker has in memory is the newest, so reads are refused like writes, once an outage has lasted for longer
than requests wait. Afterwards the server goes on by itself: what it has acknowledged is on the standby.
"""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.databases.standby import Pair
from tests.faults.fleet import fleet, seeded
from tests.faults.lines import UNAVAILABLE, Line, lines_to_all_workers
from tests.faults.load import ClientLoad, claim_body
from tests.faults.verdict import assert_books_right
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

CLIENTS = 4
WORKERS = 2
IMPATIENT = ("--workers", str(WORKERS), "--database-outage-seconds", "1")
PATIENT = ("--workers", str(WORKERS), "--database-outage-seconds", "50")
CONSUMER = "22222222-2222-2222-2222-222222222222"


def check_outage(line: Line, provider: str) -> None:
    """There is no primary: nothing is written, and nothing is said that might be old."""
    body = claim_body({provider: {"VCPU": 1}}, None)
    for method, path, words in (
        ("PUT", f"/allocations/{CONSUMER}", body),
        ("GET", f"/resource_providers/{provider}/usages", None),
    ):
        answer = line.ask(method, path, words)
        assert answer.status == UNAVAILABLE, (method, answer)
        assert "The database is unavailable" in answer.body["errors"][0]["detail"], answer
    assert line.ask("GET", "/healthz").status == 200


def check_outages(server: ServerProcess, provider: str, reason: str) -> None:
    """Of all workers at once, for each waits a while before it refuses. The log has the reason."""
    before = len(server.log)
    lines = lines_to_all_workers(server, WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(check_outage, line, provider) for line in lines]:
            done.result()
    for line in lines:
        line.close()
    assert reason in server.log[before:]


def see_all_workers(server: ServerProcess) -> None:
    """Have each worker answer once. One that slept through a promotion has not seen it."""
    for line in lines_to_all_workers(server, WORKERS):
        with contextlib.closing(line):
            line("GET", "/resource_providers")


def test_the_standby_takes_over_and_later_gives_back(pair: Pair, tmp_path: Path) -> None:
    """The second time the first host of the URL is the standby, and is passed over until it is promoted."""
    dice = seeded()
    with fleet(tmp_path, [pair.url], *IMPATIENT) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            load.go_on(dice.randint(50, 200))
            for _ in pair.nodes:
                pair.lose_primary()
                check_outages(servers[0], load.providers[0], "hot standby")
                pair.promote()
                load.go_on(50)
                pair.rejoin()
                load.go_on(50)
        assert_books_right(load, pair.url, WORKERS)
    assert load.count("503") > 0
    # Connections to our server stay: only the database was away.
    assert load.count("lost") == 0


def test_a_standby_that_takes_over_at_once_is_not_noticed(pair: Pair, tmp_path: Path) -> None:
    dice = seeded()
    with fleet(tmp_path, [pair.url] * 2, *PATIENT) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            load.go_on(dice.randint(50, 200))
            pair.lose_primary()
            pair.promote()
            load.go_on(50, server=0)
            load.go_on(50, server=1)
        assert_books_right(load, pair.url, WORKERS)
    # It took less time than requests wait for a database.
    assert load.count("503") == 0
    assert load.count("lost") == 0


def test_a_primary_that_was_replaced_comes_back_and_is_passed_over(pair: Pair, tmp_path: Path) -> None:
    """It has not been told, and takes itself for the primary. In the URL it is still the first."""
    dice = seeded()
    with fleet(tmp_path, [pair.url], *IMPATIENT) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            load.go_on(50)
            pair.lose_primary()
            pair.promote()
            see_all_workers(servers[0])
            load.go_on(50)
            replaced = pair.standby
            replaced.start()
            assert not replaced.is_standby()
            pair.primary.disconnect("berth")
            load.go_on(50)
            pair.primary.kill()
            check_outages(servers[0], load.providers[0], "replaced by one on timeline 2")
            pair.primary.start()
            load.go_on(50)
        assert_books_right(load, pair.url, WORKERS)


def test_nothing_is_acknowledged_that_the_standby_lacks(pair: Pair, tmp_path: Path) -> None:
    """The standby is lost first, then the primary; the standby comes back, and knows all it has to know.

    A commit that waits for a standby cannot be called off: the server stops waiting, and says so.
    """
    dice = seeded()
    with fleet(tmp_path, [pair.url], *IMPATIENT) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            load.go_on(dice.randint(50, 200))
            pair.standby.kill()
            deadline_s = time.monotonic() + WITHIN_S
            while load.count("503") == 0:
                assert time.monotonic() < deadline_s, "nobody was refused"
                time.sleep(0.1)
            pair.lose_primary()
            pair.standby.start()
            pair.promote()
            load.go_on(50)
        assert_books_right(load, pair.url, WORKERS)
    assert load.count("lost") == 0
