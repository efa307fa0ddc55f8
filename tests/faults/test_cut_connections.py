"""Connections to the database break in the middle of an append, whose fate is then unknown to the writer.

It may have got in, or not, or may get in later, after the journal was read again. Whatever it is, no write is
lost and none is done twice, and clients notice nothing but a delay.
"""

from pathlib import Path

import pytest

from tests.databases.mariadb import MariaDB
from tests.databases.postgresql import PostgreSQL
from tests.faults.fleet import fleet, rounds, seeded
from tests.faults.load import ClientLoad
from tests.faults.proxies import proxy_to
from tests.faults.verdict import assert_books_right

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CLIENTS = 4
WRITES = 200


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_append_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    database = request.getfixturevalue(kind)
    assert isinstance(database, PostgreSQL | MariaDB)
    dice = seeded()
    with proxy_to(database.port, dice) as proxy:
        cut_url = url.replace(f":{database.port}/", f":{proxy.port}/")
        # Two servers that collide, both over connections that break.
        with fleet(tmp_path, [cut_url] * 2, "--database-outage-seconds", "50") as servers:
            load = ClientLoad(servers, CLIENTS, dice)
            with load:
                proxy.is_faulty = True
                load.go_on(rounds(WRITES))
                proxy.is_faulty = False
                load.go_on(20)
            print(dict(proxy.fates))
            assert_books_right(load, url)
    assert min(proxy.fates[fate] for fate in ("lost", "unanswered", "late")) > 0
    assert load.count("503") == 0
    assert load.count("lost") == 0
