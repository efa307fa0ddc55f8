"""What a caller is told of an outage is a sentence of ours; the database's own words are in the log, under
the request's id."""

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from berth.journal import JournalFailure, open_journal, parse_address
from tests.unit.identity.test_identity import ADMIN, ANN, FILE, TOKENS, by_token, issued
from tests.worlds import HttpAnswer, RegionWorld

pytestmark = pytest.mark.fast

GROUP = {"server_group": {"name": "g", "policies": ["affinity"]}}
IMAGE = {"name": "i", "disk_format": "raw", "container_format": "bare"}
WRITES = [
    (ADMIN, "POST", "/resource_providers", {"name": "host"}),
    (ADMIN, "POST", "/berth/v1/groups", {"group": {"name": "g", "policy": "affinity"}}),
    (ANN, "POST", "/compute/v2.1/os-server-groups", GROUP),
    (ANN, "POST", "/image/v2/images", IMAGE),
]


def refuse_writes(region: RegionWorld) -> str:
    region.engine._journal.execute(sa.text("PRAGMA query_only=ON"))
    return "readonly"


def lose_the_table(region: RegionWorld) -> str:
    region.engine._journal.execute(sa.text("ALTER TABLE journal RENAME TO elsewhere"))
    return "no such table"


def lose_the_file(region: RegionWorld) -> str:
    (region.path / "journal.db").unlink()
    return "journal.db"


@pytest.fixture
async def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RegionWorld]:
    # What is away is not waited for.
    monkeypatch.setattr("berth.engine.engine._PAUSE_FIRST_S", 1000.0)
    async with RegionWorld(tmp_path, FILE).running() as region:
        yield region


def assert_plain(answer: HttpAnswer, words: str) -> None:
    said = answer.body.decode()
    assert answer.status == 503, said
    assert words not in said
    assert "the database answered" not in said
    assert "database" in said, "it tells what has failed"


@pytest.mark.parametrize("break_it", [refuse_writes, lose_the_table, lose_the_file])
@pytest.mark.parametrize(("who", "method", "path", "body"), WRITES)
async def test_a_write_is_refused_in_our_words(
    region: RegionWorld,
    caplog: pytest.LogCaptureFixture,
    break_it: Callable[[RegionWorld], str],
    who: str,
    method: str,
    path: str,
    body: object,
) -> None:
    with caplog.at_level(logging.WARNING):
        words = break_it(region)
        answer = await region.ask(method, path, body, token=who)
        assert_plain(answer, words)
        assert answer.headers["retry-after"] == "1"
        id = answer.headers["x-openstack-request-id"]
        [logged] = [record for record in caplog.records if getattr(record, "request_id", None) == id]
        assert words in logged.getMessage()
        assert_plain(await region.ask("GET", "/readyz", token=None), words)


async def test_a_token_that_cannot_be_checked_is_refused_in_our_words(
    region: RegionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        token = await issued(region)
        words = lose_the_table(region)
        # From the first failure on, what is in memory is not trusted.
        assert (await region.ask("POST", "/resource_providers", {"name": "host"}, token=ADMIN)).status == 503
        for path in ("/resource_providers", "/berth/v1/hosts", "/compute/v2.1/servers", "/image/v2/images"):
            answer = await region.ask("GET", path, token=token)
            assert_plain(answer, words)
            assert answer.headers["retry-after"] == "1"
            id = answer.headers["x-openstack-request-id"]
            assert [
                words in r.getMessage() for r in caplog.records if getattr(r, "request_id", "") == id
            ] == [True]
        assert_plain(await region.ask("POST", TOKENS, by_token(token), token=None), words)


@pytest.mark.parametrize(
    "address",
    ["postgresql://berth:s3cr%40t%20word@127.0.0.1:1/berth", "mysql://berth:s3cr%40t%20word@127.0.0.1:1/b"],
)
def test_no_password_is_in_the_words_of_a_database(address: str) -> None:
    with pytest.raises(JournalFailure) as failure:
        open_journal(parse_address(address), shared=True)
    assert "127.0.0.1" in str(failure.value)
    assert "s3cr" not in str(failure.value)
