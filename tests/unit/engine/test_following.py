"""Those who follow a journal that others write: what they see, and how often the database is asked for it."""

import asyncio
import gc
from typing import Any, Final

import pytest

from berth.cell.journal import NoObserver
from berth.engine import Engine, Unavailable
from berth.model.commands import CreateTrait
from berth.model.events import Origin
from berth.model.ids import Index
from berth.sim.cloud import SimCloud
from berth.sim.database import Database, SimCalls
from berth.sim.loop import VirtualLoop
from berth.sim.world import Process, World
from berth.view import View

FOLLOW_S: Final = 1.0


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}


class Looks:
    """Counts how often processes look at a journal's tail."""

    def __init__(self, *databases: Database) -> None:
        self.by_process: dict[str, int] = {}
        for database in databases:
            database.decide = self._count

    def _count(self, process: Process, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "read_some":
            self.by_process[process.name] = self.by_process.get(process.name, 0) + 1


async def open_engine(database: Database, name: str) -> Engine:
    process = database.world.process(name)
    engine = Engine(
        database.open(process),
        process.clock,
        process.ids,
        NoObserver(),
        shared=True,
        follow_every_s=FOLLOW_S,
        calls=SimCalls(database, process),
    )
    await engine.start()
    return engine


async def write(engine: Engine, name: str) -> None:
    await engine.submit(CreateTrait(name), Origin("req", "user", None, "test"), lambda view, changed: None)


def index(view: View) -> Index:
    return view.index


async def test_all_who_wait_in_a_process_share_one_look() -> None:
    database = Database(World(1), "db")
    engine = await open_engine(database, "follower")
    looks = Looks(database)

    async def wait(start_s: float) -> None:
        await asyncio.sleep(start_s)
        await engine.wait_beyond(Index(0), 60 - start_s)

    await asyncio.gather(*(wait(number * FOLLOW_S / 20) for number in range(20)))
    assert 50 < looks.by_process["follower"] <= 60 / FOLLOW_S + 1


async def test_whoever_waits_sees_what_others_write() -> None:
    database = Database(World(1), "db")
    engine, other = await open_engine(database, "follower"), await open_engine(database, "other")
    waiting = asyncio.ensure_future(engine.wait_beyond(Index(0), 60))
    await asyncio.sleep(10)
    written_s = database.world.loop.time()
    await write(other, "CUSTOM_A")
    assert await waiting == 1
    assert database.world.loop.time() - written_s < FOLLOW_S + 0.1
    assert await engine.read_recent(index) == 1


async def test_a_write_of_ones_own_is_news_when_it_is_durable() -> None:
    database = Database(World(1), "db")
    engine = await open_engine(database, "follower")
    waiting = asyncio.ensure_future(engine.wait_beyond(Index(0), 60))
    await asyncio.sleep(0.1)
    database.refuses = True
    with pytest.raises(Unavailable):
        await write(engine, "CUSTOM_A")
    await asyncio.sleep(10)
    assert not waiting.done()
    database.refuses = False
    await write(engine, "CUSTOM_A")
    assert await waiting == 1


async def test_a_recent_read_asks_the_database_only_if_nobody_has_just_now() -> None:
    database = Database(World(1), "db")
    engine, other = await open_engine(database, "follower"), await open_engine(database, "other")
    assert await engine.read(index) == 0
    looks = Looks(database)
    for _ in range(10):
        assert await engine.read_recent(index) == 0
    await write(other, "CUSTOM_A")
    assert await engine.read_recent(index) == 0
    assert "follower" not in looks.by_process
    assert await engine.read(index) == 1
    await write(other, "CUSTOM_B")
    await asyncio.sleep(FOLLOW_S)
    assert await asyncio.gather(*(engine.read_recent(index) for _ in range(10))) == [2] * 10
    assert looks.by_process["follower"] == 2


async def test_a_recent_read_joins_a_look_that_has_begun() -> None:
    database = Database(World(1), "db")
    engine = await open_engine(database, "follower")
    looks = Looks(database)
    await asyncio.sleep(FOLLOW_S)
    first = asyncio.ensure_future(engine.read_recent(index))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert looks.by_process == {"follower": 1}
    assert [await engine.read_recent(index), await first] == [0, 0]
    assert looks.by_process == {"follower": 1}


async def test_nothing_recent_is_told_while_the_database_is_away() -> None:
    database = Database(World(1), "db")
    engine = await open_engine(database, "follower")
    database.is_away = True
    with pytest.raises(Unavailable):
        await engine.read(index)
    with pytest.raises(Unavailable):
        await engine.read_recent(index)
    with pytest.raises(Unavailable):
        await engine.wait_beyond(Index(0), 60)
    database.is_away = False
    assert await engine.read_recent(index) == 0


async def test_heartbeats_of_hosts_that_need_nothing_do_not_ask_the_database() -> None:
    """Each poll was a look at the cell's journal, and each part that waits for news made its own."""
    cloud = SimCloud(seed=1, hosts=20)
    async with cloud.running():
        await asyncio.sleep(30)
        looks = Looks(cloud.database, cloud.cells["cell1"].database)
        await asyncio.sleep(100)
    # Twenty hosts have polled ten times each meanwhile. A conductor follows its journal every four seconds,
    # and looks for overdue heartbeats every seven and a half.
    assert looks.by_process["cell1"] < 45
    # The first worker follows the journals of the region and of the cell.
    assert looks.by_process["region-1"] < 60


async def test_somebody_else_looks_where_whoever_did_waits_no_longer() -> None:
    database = Database(World(1), "db")
    engine, other = await open_engine(database, "follower"), await open_engine(database, "other")
    first, second, third = (asyncio.ensure_future(engine.wait_beyond(Index(0), 60)) for _ in range(3))
    await asyncio.sleep(5)
    first.cancel()
    await asyncio.sleep(5)
    second.cancel()
    await write(other, "CUSTOM_A")
    written_s = database.world.loop.time()
    assert await third == 1
    assert database.world.loop.time() - written_s < FOLLOW_S + 0.1


async def test_all_who_wait_are_told_that_the_database_is_away() -> None:
    database = Database(World(1), "db")
    engine = await open_engine(database, "follower")
    waiting = [asyncio.ensure_future(engine.wait_beyond(Index(0), 600)) for _ in range(3)]
    await asyncio.sleep(5)
    database.is_away = True
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3


async def test_a_look_that_fails_when_nobody_waits_for_it_any_more_is_no_error() -> None:
    database = Database(World(1), "db")
    engine = await open_engine(database, "follower")
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    database.decide = lambda process, name, arguments: "unknown out"
    reader = asyncio.create_task(engine.read(index))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await asyncio.sleep(60)
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert reported == []


async def test_reads_that_arrive_together_share_one_look() -> None:
    database = Database(World(1), "db")
    engine, other = await open_engine(database, "reader"), await open_engine(database, "other")
    await write(other, "CUSTOM_A")
    looks = Looks(database)
    assert await asyncio.gather(*(engine.read(index) for _ in range(10))) == [1] * 10
    assert looks.by_process == {"reader": 1}


@pytest.mark.parametrize("after_s", [0, 0.0001], ids=["before it begins", "while it is made"])
async def test_whoever_has_joined_a_look_is_served_though_the_first_reader_is_gone(after_s: float) -> None:
    database = Database(World(1), "db")
    engine, other = await open_engine(database, "reader"), await open_engine(database, "other")
    await write(other, "CUSTOM_A")
    await asyncio.sleep(FOLLOW_S)
    first = asyncio.create_task(engine.read(index))
    await asyncio.sleep(after_s)
    joined = [asyncio.create_task(engine.read_recent(index)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*joined) == [1, 1, 1]
    assert first.cancelled()
    assert await engine.read(index) == 1
