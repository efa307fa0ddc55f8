"""What dispatcher and status sync have to submit, they submit some at a time; what could not be submitted is
submitted again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from berth.cell.journal import open_cell_engine
from berth.engine import Engine, Unavailable
from berth.model.commands import Enact
from berth.model.events import Origin, RecordChanged
from berth.model.saga_runs import ClaimSnapshot, SagaRun, Spec
from berth.model.servers import Flavor
from berth.region.status_sync import StatusSync, finish_all
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids


async def test_a_thousand_changes_are_submitted_some_at_a_time() -> None:
    under_way = most = finished = 0

    async def submit(number: int) -> None:
        nonlocal under_way, most, finished
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        finished += 1
        if number in (10, 500):
            raise LookupError(f"change {number}")

    with pytest.raises(LookupError, match="change 10"):
        await finish_all(submit(number) for number in range(1000))
    assert (finished, most) == (1000, 64), "a failure stops none of the others"


class _AwayOnce:
    """The journal of a cell whose database does not answer when it is first written to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._was_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def submit(self, *arguments: Any) -> Any:
        if not self._was_away:
            self._was_away = True
            raise Unavailable("the database does not answer")
        return await self._engine.submit(*arguments)


async def test_a_finished_run_is_removed_though_the_cell_could_not_be_written_to_at_first(
    tmp_path: Path,
) -> None:
    region, cell = (
        open_cell_engine(f"sqlite:///{tmp_path}/{name}.db", SystemClock(), Ids(1))
        for name in ("region", "cell")
    )
    flavor = Flavor(id="1", name="small", vcpus=1, memory_mb=512, disk_gb=1)
    run = SagaRun(
        id="run",
        number=1,
        server="server",
        saga="delete",
        request_id="req-1",
        spec=Spec("s", "project", "user", flavor, None, {}),
        project="project",
        user="user",
        claim=ClaimSnapshot((), None),
        phase="done",
    )
    await region.start()
    await cell.start()
    try:
        written = Enact((RecordChanged(None, run),))
        await cell.submit(written, Origin("req-1", "user", None, "test"), lambda view, changed: None)
        away: Any = _AwayOnce(cell)
        sync = StatusSync(region, away, "cell")
        with pytest.raises(Unavailable):
            await sync.sync()
        await sync.sync()
        assert await cell.read(lambda view: view.records.count(SagaRun)) == 0
    finally:
        await cell.stop()
        await region.stop()
