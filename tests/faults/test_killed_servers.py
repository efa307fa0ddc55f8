"""Three servers share a database, and one after the other is killed in the middle of whatever it does."""

from pathlib import Path

import pytest

from tests.faults.fleet import fleet, rounds, seeded, take_snapshot_of
from tests.faults.lines import kill_worker, worker_of
from tests.faults.load import ClientLoad
from tests.faults.verdict import assert_books_right

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

SERVERS = 3
CLIENTS = 6
KILLS = 4
KEEP_BATCHES = 1_000_000


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_killed_worker_takes_nothing_with_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    dice = seeded()
    with fleet(tmp_path, [url] * SERVERS) as servers:
        load = ClientLoad(servers, CLIENTS, dice)
        with load:
            for number in range(rounds(KILLS)):
                if number % 2:
                    # The next start is one from a snapshot and the journal behind it.
                    take_snapshot_of(url, KEEP_BATCHES)
                load.go_on(dice.randint(20, 150))
                server = dice.choice(servers)
                worker = worker_of(server)
                load.go_on(dice.randint(1, 20))
                if number % 2:
                    server.kill()
                    load.go_on(dice.randint(10, 50))
                    server.start()
                else:
                    kill_worker(server, worker)
            load.go_on(100)
        assert_books_right(load, url)
        # Without these the test would have shown nothing.
        assert load.count("lost") > 0
        assert load.count("read") > 0
        assert min(load.acknowledged(number) for number in range(SERVERS)) > 0
