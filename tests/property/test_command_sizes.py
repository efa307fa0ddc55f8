"""A command is charged by what it writes: batches are cut by it, and one that writes too much is refused.

The engine runs over a real SQLite file. What must hold: the journal has everything that was acknowledged and
nothing of what was refused, and who was in the same batch as a command that is too large does not notice.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from berth.engine import Unavailable
from berth.engine import engine as engine_module
from berth.model.commands import Command, Enact
from berth.model.events import RecordChanged
from berth.model.rejections import CommandTooLarge, Rejection, RowTooLarge
from berth.model.servers import Image
from berth.view import View
from tests.property.test_engine import EngineWorld, batches_in, fail, replayed, running

KIB = 1 << 10
MIB = 1 << 20


def image(name: str, size: int) -> Enact:
    """A command that writes ``size`` bytes and a few more."""
    return Enact((RecordChanged(None, Image(id=name, name="v" * size)),))


def many_images(name: str, count: int, size: int) -> Enact:
    text = "v" * size
    return Enact(tuple(RecordChanged(None, Image(id=f"{name}-{n}", name=text)) for n in range(count)))


def images_in(view: View) -> set[str]:
    return {one.id for one in view.records.all(Image)}


def is_done(outcome: object) -> bool:
    return not isinstance(outcome, Exception | Rejection)


def bytes_of(path: Path) -> list[int]:
    """How many bytes each batch of the journal has."""
    return [len(msgspec.msgpack.encode(batch.entries)) for batch in batches_in(path)]


async def together(world: EngineWorld, *commands: Command) -> list[Any]:
    """What came of commands that arrive while an append is held, and so are taken together."""
    world.journal.hold()
    first = world.submit(image("first", 1))
    await world.append_begun()
    others = [world.submit(command) for command in commands]
    await asyncio.sleep(0)
    world.journal.release()
    outcomes = await asyncio.gather(first, *others, return_exceptions=True)
    return outcomes[1:]


async def test_a_command_that_writes_too_much_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "db", command_bytes_max=MIB) as world:
        fat = many_images("fat", 100, 64 * KIB)
        [one, refused, other] = await together(world, image("a", 10), fat, image("b", 10))
        assert refused == CommandTooLarge(100, MIB)
        assert is_done(one)
        assert is_done(other)
        assert await world.engine.read(images_in) == {"first", "a", "b"}
        assert world.observer.rejections["CommandTooLarge"] == 1
    assert images_in(replayed(tmp_path / "db")) == {"first", "a", "b"}
    assert sum(bytes_of(tmp_path / "db")) < KIB


async def test_no_more_is_encoded_of_a_command_than_the_limit_and_one_change(tmp_path: Path) -> None:
    """64,000 changes of 1 MiB each share one text in memory. Encoded whole they would be 62 GiB."""
    async with running(tmp_path / "db", command_bytes_max=MIB) as world:
        outcome = await world.submit(many_images("fat", 64_000, MIB))
        assert isinstance(outcome, CommandTooLarge)


async def test_a_batch_is_cut_by_what_its_commands_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # And not by how long it takes to decide on a busy machine.
    monkeypatch.setattr(engine_module, "_DECIDING_NS", 1 << 62)

    async with running(tmp_path / "db", command_bytes_max=MIB, batch_bytes_max=MIB // 4) as world:
        await together(world, *(image(f"i{n}", 100 * KIB) for n in range(6)))
    assert [len(batch.entries) for batch in batches_in(tmp_path / "db")] == [1, 2, 2, 2]
    assert max(bytes_of(tmp_path / "db")) < MIB // 4
    assert len(images_in(replayed(tmp_path / "db"))) == 7


def limit_rows(world: EngineWorld, size: int) -> None:
    """Have SQLite refuse values of more bytes, as it does by itself at a billion."""

    def set_limit(driver: Any, _: object = None) -> None:
        driver.setlimit(0, size)  # SQLITE_LIMIT_LENGTH

    connection = world.journal.real._connection
    assert connection is not None
    set_limit(connection.connection.driver_connection)
    sa.event.listen(world.journal.real._dialect.engine, "connect", set_limit)


async def test_too_big_for_the_database_is_a_refusal_of_the_one_command(tmp_path: Path) -> None:
    """It was taken for an outage: everybody waited for it to be over, and was refused with it."""
    async with running(tmp_path / "db", outage_seconds=1) as world:
        limit_rows(world, 100 * KIB)
        fat = image("fat", 200 * KIB)
        [one, refused, other] = await together(world, image("a", 10), fat, image("b", 10))
        assert is_done(one)
        assert is_done(other)
        assert isinstance(refused, RowTooLarge)
        assert refused.size > 200 * KIB
        assert await world.engine.read(images_in) == {"first", "a", "b"}
        assert world.ready() is None
    assert images_in(replayed(tmp_path / "db")) == {"first", "a", "b"}


async def test_a_batch_that_is_too_big_only_together_is_written_in_parts(tmp_path: Path) -> None:
    async with running(tmp_path / "db", outage_seconds=1) as world:
        limit_rows(world, 100 * KIB)
        outcomes = await together(world, *(image(f"i{n}", 60 * KIB) for n in range(5)))
        assert all(is_done(outcome) for outcome in outcomes)
    assert len(images_in(replayed(tmp_path / "db"))) == 6


async def test_a_command_that_may_be_written_already_is_not_refused(tmp_path: Path) -> None:
    """The append before has failed with an unknown outcome; then the database says that it is too big. What
    the first attempt left may still turn up, so the command is not refused as if it had never been."""
    async with running(tmp_path / "db", outage_seconds=5) as world:
        world.journal.before_append.append(fail)
        world.journal.before_append.append(lambda batch: limit_rows(world, 100 * KIB))
        with pytest.raises(Unavailable):
            await world.submit(image("fat", 200 * KIB))
