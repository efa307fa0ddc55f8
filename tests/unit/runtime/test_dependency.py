"""What is lost and regained is logged once at each end, with how long it took."""

import asyncio
import logging

import pytest

from berth.runtime.dependency import Dependency

pytestmark = pytest.mark.fast

LOG = logging.getLogger("test")


async def test_both_ends_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told: list[bool] = []
    database = Dependency("the database", LOG, told=told.append)
    database.regain()
    database.lose("connection refused")
    database.lose("connection refused")
    assert database.is_lost
    await asyncio.sleep(0.11)
    database.regain()
    database.regain()
    assert caplog.messages == [
        "the database: unavailable: connection refused",
        "the database: available again after 0.1 s",
    ]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert told == [False, True]


async def test_it_is_back_when_all_have_it_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    conductor = Dependency("the conductor", LOG, lost_as="unreachable", back_as="reachable again")
    since_s = asyncio.get_running_loop().time() - 5
    for host in ("a", "b", "c"):
        conductor.lose("timeout", by=host, since_s=since_s)
    conductor.regain(by="a")
    conductor.forget("c")
    assert len(caplog.messages) == 1
    conductor.regain(by="b")
    assert caplog.messages[1] == "the conductor: reachable again after 5.0 s"


async def test_what_another_line_says_is_not_said_twice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    database = Dependency("the database", LOG)
    database.lose("no answer", level=logging.DEBUG)
    database.regain()
    assert caplog.messages == []
