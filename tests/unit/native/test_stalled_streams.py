"""Streams that nobody reads: they cost little, they delay nobody, and they are dropped."""

import asyncio
import json
import tracemalloc
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from berth.api.native import changes, events
from tests.unit.native.streams import EventStream, listening
from tests.worlds import ApplicationWorld, uuid_of

pytestmark = pytest.mark.fast

STREAMS = 100
BATCHES = 48
FAT = 1500
"""Aggregates of a provider: each change of them is told with what was before, 100 KB and more."""


async def fill(world: ApplicationWorld, batches: int = BATCHES) -> None:
    await world.host(1, {"VCPU": 8})
    for number in range(batches):
        body = {
            "resource_provider_generation": number + 1,
            "aggregates": [uuid_of(1000 + (number + one) % (2 * FAT)) for one in range(FAT)],
        }
        await world.change("PUT", f"/resource_providers/{uuid_of(1)}/aggregates", body)


@pytest.fixture
def renderings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The index of everything that is rendered for streams."""
    rendered: list[int] = []
    event_of = changes.event_of

    def counted(batch: Any, *rest: Any) -> Any:
        rendered.append(batch.index)
        return event_of(batch, *rest)

    monkeypatch.setattr(events, "event_of", counted)
    return rendered


class Stalling(EventStream):
    """A client that takes the first piece of an event, and then nothing any more."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if "data: " in self.text:
            self.reads.clear()
        await super().send(message)


async def stall(stack: AsyncExitStack, world: ApplicationWorld, after: int) -> "asyncio.Task[None]":
    following = listening(world.application, f"?after={after}", Stalling())
    stream, task = await stack.enter_async_context(following)
    await stream.until(lambda stream: "data: " in stream.text)
    return task


async def all_of_it(world: ApplicationWorld) -> EventStream:
    """What a client that reads gets, from the beginning to the end."""
    end = f"id: {world.engine.view.index}\n\n"
    async with listening(world.application, "?after=0") as (stream, _):
        await stream.until(lambda stream: stream.text.endswith(end))
    return stream


@pytest.mark.parametrize("spread", [False, True], ids=["at one index", "at many"])
async def test_a_hundred_that_stall_cost_little_and_delay_nobody(
    tmp_path: Path, renderings: list[int], spread: bool
) -> None:
    async with ApplicationWorld(tmp_path, event_streams_max=STREAMS + 1).running() as world:
        await fill(world)
        tracemalloc.start()
        try:
            async with AsyncExitStack() as stack:
                for number in range(STREAMS):
                    await stall(stack, world, number % BATCHES if spread else 0)
                held, _ = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert len((await all_of_it(world)).ids) == world.engine.view.index
        finally:
            tracemalloc.stop()
        assert held < 24 << 20, f"{held:,} bytes are held for {STREAMS} streams"
        if not spread:
            assert len(renderings) < STREAMS + 2 * BATCHES, "what others hold is not rendered anew"


async def test_those_that_hold_too_much_are_waited_for_until_they_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_RENDERED_BYTES_MAX", 1 << 20)

    async with ApplicationWorld(
        tmp_path, event_streams_max=STREAMS, event_heartbeat_seconds=1
    ).running() as world:
        await fill(world)
        dropped = []
        async with AsyncExitStack() as stack:
            for number in range(20):
                dropped.append(await stall(stack, world, 2 * number))
            assert (await all_of_it(world)).ids == list(range(1, world.engine.view.index + 1))
            assert any(task.done() for task in dropped)


async def test_what_is_sent_comes_in_small_pieces_and_is_whole(world: ApplicationWorld) -> None:
    await fill(world, 3)
    stream = await all_of_it(world)
    assert max(map(len, stream.text.split("\n\n"))) > 64 << 10 >= max(stream.sizes)
    page = (await world.get("/berth/v1/events")).json
    assert [json.loads(event["data"]) for event in stream.events] == page["events"]
