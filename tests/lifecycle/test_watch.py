"""Whoever follows /berth/v1/events sees every operation of a server from its beginning to its end."""

import itertools
import json
from typing import Any

from berth.api.kernel.application import Application
from berth.model.ids import Index
from berth.model.servers import Server
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import BEGINNINGS, brought_before, done
from tests.unit.native.streams import EventStream, listening

SEED = 20261115
# A host dies for the evacuation: it comes last.
OPERATIONS = ["create", *(name for name in BEGINNINGS if name != "evacuate"), "evacuate"]


def api_of(cloud: SimCloud) -> Application:
    parts = cloud.workers[0].parts
    assert parts is not None
    return parts.application


def changes_of(events: list[Any], server: str) -> list[Any]:
    """What is told of a server, in order."""
    every = (change for event in events for change in event["changes"])
    return [change for change in every if change["kind"] == "server" and change["id"] == server]


def told(stream: EventStream) -> list[Any]:
    return [without_names(json.loads(event["data"])) for event in stream.events]


def without_names(event: dict[str, Any]) -> dict[str, Any]:
    """What objects are called is told as it is when the event is read: one that is gone has no name."""
    return {key: value for key, value in event.items() if key != "names"}


async def page(cloud: SimCloud, after: int) -> list[Any]:
    """All events behind an index, page by page."""
    events: list[Any] = []
    while True:
        async with listening(api_of(cloud), f"?after={after}&limit=50", accept="application/json") as (
            answer,
            task,
        ):
            await task
        assert answer.status == 200, answer.text
        found = json.loads(answer.text)
        events += map(without_names, found["events"])
        if found["next"] == after:
            return events
        after = found["next"]


async def states_in_the_journal(cloud: SimCloud, after: int, id: str) -> list[tuple[str, str | None] | None]:
    found: list[tuple[str, str | None] | None] = []
    for batch in await cloud.region.history(Index(after), 10_000):
        for entry in batch.entries:
            for event in entry.events:
                before, now = getattr(event, "before", None), getattr(event, "after", None)
                if isinstance(now, Server) and now.id == id:
                    found.append((now.state, now.task))
                elif isinstance(before, Server) and before.id == id and now is None:
                    found.append(None)
    return found


async def follow(cloud: SimCloud, saga: str) -> None:
    server = await brought_before(cloud, saga)
    before = await cloud.server(server.id)
    start = await cloud.read(lambda view: int(view.index))
    async with listening(api_of(cloud), f"?after={start}") as (stream, _):
        await done(cloud, saga, server)
        end = await cloud.read(lambda view: int(view.index))
        await stream.until(lambda stream: bool(stream.ids) and stream.ids[-1] >= end)
        events = [event for event in told(stream) if event["index"] <= end]
    assert [event for event in await page(cloud, start) if event["index"] <= end] == events, saga

    changes = changes_of(events, server.id)
    states = [
        change["after"] and (change["after"]["state"], change["after"].get("task")) for change in changes
    ]
    expected = await states_in_the_journal(cloud, start, server.id)
    assert states == expected[: len(states)], saga
    assert len(states) >= 2, f"{saga}: {states}"
    assert (changes[0]["before"] is None) == (before is None), saga
    for earlier, later in itertools.pairwise(changes):
        assert earlier["after"] == later["before"], saga
    after = await cloud.server(server.id)
    assert states[-1] == (None if after is None else (after.state, after.task)), saga

    middle = events[len(events) // 2]["index"]
    async with listening(api_of(cloud), last_event_id=str(middle)) as (stream, _):
        await stream.until(lambda stream: bool(stream.ids) and stream.ids[-1] >= end)
        resumed = [event for event in told(stream) if event["index"] <= end]
    assert resumed == [event for event in events if event["index"] > middle], saga


async def test_the_stream_tells_of_every_operation() -> None:
    async with SimCloud(seed=SEED, hosts=8).running() as cloud:
        for saga in OPERATIONS:
            await follow(cloud, saga)
