"""The loop of reconcilers: how much of a process it may take, however much there is to look at."""

import asyncio
from typing import Final

import pytest

from berth.cell.journal import NoObserver
from berth.engine import Engine
from berth.model.commands import CreateTrait, Enact
from berth.model.drains import Drain
from berth.model.events import Origin, RecordChanged
from berth.sagas.reconciler import Reconciler
from berth.sim.database import Database, SimCalls
from berth.sim.loop import VirtualLoop
from berth.sim.world import World
from berth.view import View

ORIGIN: Final = Origin("req", "user", None, "test")
LOOK_S: Final = 0.1


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}


class WorkClock:
    """Virtual time, and on top of it what work has taken."""

    def __init__(self) -> None:
        self.worked_s = 0.0

    def now_ns(self) -> int:
        return self.monotonic_ns()

    def monotonic_ns(self) -> int:
        return int((asyncio.get_running_loop().time() + self.worked_s) * 1e9)


async def test_looking_at_many_records_leaves_time_for_others() -> None:
    """The region changes twenty times a second, and each look takes a tenth of one."""
    database = Database(World(1), "db")
    process = database.world.process("region")
    engine = Engine(
        database.open(process),
        process.clock,
        process.ids,
        NoObserver(),
        shared=True,
        calls=SimCalls(database, process),
    )
    await engine.start()
    drain = Drain(id="00000000-0000-4000-8000-000000000001", name="host", project="", user="", request_id="")
    await engine.submit(Enact((RecordChanged(None, drain),)), ORIGIN, lambda view, changed: None)
    clock = WorkClock()
    looks = 0

    def is_due(view: View, record: Drain, now_s: int) -> bool:
        nonlocal looks
        looks += 1
        clock.worked_s += LOOK_S
        return False

    async def advance(record: Drain) -> bool:
        return False

    running = asyncio.create_task(Reconciler(engine, clock, Drain, is_due, advance).run())
    for number in range(200):
        await engine.submit(CreateTrait(f"CUSTOM_{number}"), ORIGIN, lambda view, changed: None)
        await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert 5 <= looks <= 15
    await engine.stop()
