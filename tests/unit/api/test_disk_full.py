"""A database that refuses to write: writes are refused, reads are served, and it is logged once.

SQLite's own refusals: a file that may not grow gives the error of a full disk, and it can be let grow
again."""

import logging

import pytest
import sqlalchemy as sa

from berth.engine import engine as engines
from tests.worlds import ApplicationWorld, HttpAnswer

pytestmark = pytest.mark.fast


def let_grow(world: ApplicationWorld, *, pages: int) -> None:
    """Let the file grow to so many pages, but not below what it has."""
    world.engine._journal.execute(sa.text(f"PRAGMA max_page_count={pages}"))


async def write(world: ApplicationWorld, number: int) -> HttpAnswer:
    return await world.ask("POST", "/resource_providers", {"name": f"{number:03}-" + "x" * 190})


async def write_until_full(world: ApplicationWorld) -> int:
    """How many writes it took until one was refused."""
    let_grow(world, pages=1)
    for number in range(300):
        answer = await write(world, number)
        if answer.status != 200:
            assert answer.status == 503
            assert "The database refuses writes" in answer.error["detail"]
            return number
    raise AssertionError("it never was full")


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the engine has logged: each request that is refused has a line of its own."""
    return [record for record in caplog.records if record.name.startswith("berth.engine")]


async def readiness(world: ApplicationWorld) -> tuple[int, str]:
    answer = await world.ask("GET", "/readyz", token=None)
    return answer.status, answer.json.get("reason", "")


@pytest.fixture(autouse=True)
def probe_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_PROBE_NS", 0)


async def test_a_full_disk_is_logged_once_and_recovers_by_itself(
    world: ApplicationWorld, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await readiness(world))[0] == 200
    with caplog.at_level(logging.INFO, logger="berth.engine"):
        full_at = await write_until_full(world)
        for _ in range(3):
            assert (await write(world, full_at)).status == 503
        status, reason = await readiness(world)
        assert status == 503
        assert "The database refuses writes" in reason
        assert (await world.ask("GET", "/resource_providers")).status == 200, "reads go on"
        assert (await world.ask("GET", "/healthz", token=None)).status == 200, "a restart is no help"
        assert [record.levelname for record in logged(caplog)] == ["ERROR"]
        let_grow(world, pages=1_000_000)
        # Nobody writes, because it is not ready: it has to find out by itself.
        assert await readiness(world) == (200, "")
        assert (await write(world, full_at)).status == 200
    assert [record.levelname for record in logged(caplog)] == ["ERROR", "INFO"]
    assert "disk is full" in logged(caplog)[0].getMessage()


async def test_a_write_that_succeeds_ends_it_too(
    world: ApplicationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_PROBE_NS", 10**18)

    full_at = await write_until_full(world)
    assert (await readiness(world))[0] == 503
    let_grow(world, pages=1_000_000)
    assert (await readiness(world))[0] == 503, "it is not tried all the time"
    assert (await write(world, full_at)).status == 200
    assert (await readiness(world))[0] == 200


async def test_a_second_outage_is_logged_again(
    world: ApplicationWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="berth.engine"):
        for pragma, count in (("ON", 1), ("OFF", 1), ("ON", 2)):
            world.engine._journal.execute(sa.text(f"PRAGMA query_only={pragma}"))
            answer = await write(world, count if pragma == "ON" else 0)
            assert answer.status == (503 if pragma == "ON" else 200)
            assert (await readiness(world))[0] == answer.status
            assert len(logged(caplog)) == count


async def test_a_probe_leaves_nothing(world: ApplicationWorld) -> None:
    journal = world.engine._journal
    before = journal.tail()
    journal.probe()
    journal.probe()
    assert journal.tail() == before
    assert journal.execute(sa.text("SELECT count(*) FROM snapshot_part")).scalar_one() == 0
