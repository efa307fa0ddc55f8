"""What an engine tells its observer and the log of its database: lost, back, and who was first."""

import logging
from pathlib import Path

import pytest

from berth.engine import Unavailable
from berth.journal import Conflict
from berth.model.events import Batch
from tests.property.test_engine import create, fail, running

pytestmark = pytest.mark.fast


async def test_a_database_that_is_lost_and_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="berth.engine")
    async with running(tmp_path / "db", name="the database of cell1") as world:  # type: ignore[arg-type]
        world.journal.before_append.append(fail)
        world.journal.before_read.extend((fail, fail))
        for _ in range(2):
            with pytest.raises(Unavailable):
                await world.submit(create(0))
        assert world.observer.noticed_as == [False]
        assert await world.submit(create(0)) == {"host-0"}
        assert world.observer.noticed_as == [False, True]
    lines = [text for text in caplog.messages if text.startswith("the database of cell1: ")]
    assert lines[0] == "the database of cell1: unavailable: the cable is out"
    assert lines[1].startswith("the database of cell1: available again after ")
    assert len(lines) == 2


async def test_an_append_that_another_process_was_before(tmp_path: Path) -> None:
    def be_late(_: Batch) -> None:
        raise Conflict("the index is taken")

    async with running(tmp_path / "db") as world:
        world.journal.before_append.append(be_late)
        assert await world.submit(create(0)) == {"host-0"}
        assert world.observer.conflicts == 1
