"""/berth/v1/events: pages, what a change looks like, what is no longer kept; and streams of them."""

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from berth.api.kernel.http import StreamResponse, send_stream
from berth.api.native.changes import NAMES_MAX
from berth.engine import Engine, Pruned, Unavailable
from berth.model.events import Batch
from berth.model.ids import Index
from tests.unit.native.streams import PATIENCE_S, EventStream, listening
from tests.worlds import ApplicationWorld, uuid_of

pytestmark = pytest.mark.fast


# -- pages --------------------------------------------------------------------------------------


async def test_changes_are_shown_by_name(world: ApplicationWorld) -> None:
    await world.change("PUT", "/resource_classes/CUSTOM_A")
    await world.change("PUT", "/traits/CUSTOM_T")
    await world.host(1, {"CUSTOM_A": 8})
    await world.change(
        "PUT",
        f"/resource_providers/{uuid_of(1)}/traits",
        {"resource_provider_generation": 1, "traits": ["CUSTOM_T"]},
    )
    await world.join(1, uuid_of(900))
    await world.claim(11, {1: {"CUSTOM_A": 2}})
    await world.change("DELETE", f"/allocations/{uuid_of(11)}")
    answer = (await world.get("/berth/v1/events")).json
    events = answer["events"]
    assert [event["index"] for event in events] == list(range(1, len(events) + 1))
    assert answer["next"] == answer["index"] == events[-1]["index"]
    assert events[0]["action"] == "PUT /resource_classes/{name}"
    assert (events[0]["user"], events[0]["project"]) == ("admin", "admin")
    assert events[0]["request_id"].startswith("req-")
    changes = {change["kind"]: change for event in events for change in event["changes"]}
    assert changes["resource_class"] == {
        "kind": "resource_class",
        "number": 10000,
        "before": None,
        "after": {"name": "CUSTOM_A"},
    }
    assert changes["trait"]["trait"] == "CUSTOM_T"
    assert changes["provider"]["after"] == {"name": "host-1", "parent_provider_uuid": None}
    assert changes["inventory"]["resource_class"] == "CUSTOM_A"
    assert (changes["inventory"]["before"], changes["inventory"]["after"]["total"]) == (None, 8)
    assert changes["provider_traits"]["after"] == ["CUSTOM_T"]
    assert changes["provider_aggregates"]["after"] == [uuid_of(900)]
    assert changes["provider_version"]["provider"] == uuid_of(1)
    assert changes["consumer"]["consumer"] == uuid_of(11)
    assert changes["consumer"]["before"]["allocations"] == {uuid_of(1): {"CUSTOM_A": 2}}
    assert changes["consumer"]["after"] is None


async def test_what_has_only_a_uuid_in_a_change_is_named_beside_it(world: ApplicationWorld) -> None:
    hosts = range(1, NAMES_MAX + 3)
    for number in hosts:
        await world.host(number, {"VCPU": 8})
    begun = (await world.get("/berth/v1/events?newest=true&limit=1")).json["index"]
    await world.claim(1000, {1: {"VCPU": 1}, 2: {"VCPU": 1}})
    await world.claim(1001, {number: {"VCPU": 1} for number in hosts if number > 1})
    await world.change("DELETE", f"/allocations/{uuid_of(1000)}")
    disabling = {"host": {"disabled": True, "reason": "new disks"}}
    await world.change("PATCH", f"/berth/v1/hosts/{uuid_of(2)}", disabling)
    await world.change("DELETE", f"/resource_providers/{uuid_of(1)}")
    after = f"/berth/v1/events?after={begun}"
    claimed, claimed_much, released, disabled, *_ = (await world.get(after)).json["events"]
    # A provider that is gone has no name any more.
    assert claimed["names"] == released["names"] == disabled["names"] == {uuid_of(2): "host-2"}
    assert len(claimed_much["names"]) == NAMES_MAX
    overview = (await world.get("/berth/v1/overview")).json["overview"]
    [shown] = [one for one in overview["last_changes"] if one["request_id"] == disabled["request_id"]]
    assert shown["names"] == {uuid_of(2): "host-2"}


async def test_a_class_that_is_gone_shows_as_its_number(world: ApplicationWorld) -> None:
    await world.change("PUT", "/resource_classes/CUSTOM_A")
    await world.host(1, {"CUSTOM_A": 8})
    await world.change("DELETE", f"/resource_providers/{uuid_of(1)}/inventories")
    await world.change("DELETE", "/resource_classes/CUSTOM_A")
    events = (await world.get("/berth/v1/events")).json["events"]
    kinds = [change for event in events for change in event["changes"] if change["kind"] == "inventory"]
    assert {change["resource_class"] for change in kinds} == {"10000"}


async def test_pages_go_on_where_the_last_one_ended(world: ApplicationWorld) -> None:
    for number in range(40):
        await world.change("PUT", f"/traits/CUSTOM_{number}")
    seen, after = [], 0
    while True:
        answer = (await world.get(f"/berth/v1/events?after={after}&limit=7")).json
        assert answer["index"] == 40
        if not answer["events"]:
            break
        assert len(answer["events"]) <= 7
        seen += [event["index"] for event in answer["events"]]
        after = answer["next"]
    assert seen == list(range(1, 41))
    assert after == 40


async def test_events_of_one_index_are_never_on_two_pages(world: ApplicationWorld) -> None:
    # While the first is on its way the others wait, and are then written together.
    await asyncio.gather(*(world.change("PUT", f"/traits/CUSTOM_{number}") for number in range(10)))
    assert world.engine.view.index < 10, "nothing was written together"
    first = (await world.get("/berth/v1/events?after=0&limit=2")).json
    rest = (await world.get(f"/berth/v1/events?after={first['next']}")).json
    assert len(first["events"]) + len(rest["events"]) == 10
    shared = {e["index"] for e in first["events"]} & {e["index"] for e in rest["events"]}
    assert not shared


def prune(monkeypatch: pytest.MonkeyPatch, oldest: int) -> None:
    kept = Engine.history

    async def history(engine: Engine, after: Index, limit: int) -> list[Batch]:
        if after < oldest - 1:
            raise Pruned(after, Index(oldest))
        return await kept(engine, after, limit)

    monkeypatch.setattr(Engine, "history", history)


async def test_what_is_no_longer_kept(world: ApplicationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    prune(monkeypatch, 3)

    for number in range(5):
        await world.change("PUT", f"/traits/CUSTOM_{number}")
    answer = await world.get("/berth/v1/events?after=1")
    assert answer.status == 410
    assert answer.error["code"] == "berth.pruned"
    assert answer.error["oldest_index"] == 3
    again = (await world.get(answer.error["start_at"])).json
    assert [event["index"] for event in again["events"]] == [3, 4, 5]
    assert (await world.get("/berth/v1/events")).json == again


# -- streams ------------------------------------------------------------------------------------


async def test_a_stream_sends_what_comes(world: ApplicationWorld) -> None:
    await world.change("PUT", "/traits/CUSTOM_BEFORE")
    async with listening(world.application) as (stream, _):
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        for number in range(30):
            await world.change("PUT", f"/traits/CUSTOM_{number}")
        await stream.until(lambda stream: len(stream.events) == 30)
        assert stream.ids == list(range(2, 32))
        page = (await world.get("/berth/v1/events?after=1")).json
        assert [json.loads(event["data"]) for event in stream.events] == page["events"]


@pytest.mark.parametrize("how", ["after", "last-event-id", "both"])
async def test_a_stream_is_resumed(world: ApplicationWorld, how: str) -> None:
    for number in range(40):
        await world.change("PUT", f"/traits/CUSTOM_{number}")
    path = {"after": "?after=5", "last-event-id": "", "both": "?after=2"}[how]
    headers = {} if how == "after" else {"last_event_id": "5"}
    async with listening(world.application, path, **headers) as (stream, _):
        await world.change("PUT", "/traits/CUSTOM_MORE")
        await stream.until(lambda stream: len(stream.events) == 36)
        assert stream.ids == list(range(6, 42))


async def test_an_id_comes_with_the_last_event_of_its_index(world: ApplicationWorld) -> None:
    async with listening(world.application) as (stream, _):
        await asyncio.gather(*(world.change("PUT", f"/traits/CUSTOM_{number}") for number in range(10)))
        await stream.until(lambda stream: len(stream.events) == 10)
        indexes = [json.loads(event["data"])["index"] for event in stream.events]
        assert len(set(indexes)) < 10, "nothing was written together"
        for event, index, following in zip(stream.events, indexes, [*indexes[1:], -1], strict=True):
            assert event.get("id") == (None if following == index else str(index))


async def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    often = ApplicationWorld(tmp_path, event_heartbeat_seconds=1)
    async with often.running() as world, listening(world.application) as (stream, _):
        await stream.until(lambda stream: ": nothing new after 0\n\n" in stream.text)


async def test_there_is_an_end_to_streams(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path, event_streams_max=1).running() as world:
        async with listening(world.application):
            refused = await world.get("/berth/v1/events?stream=true")
            assert refused.status == 503
            assert refused.headers["retry-after"] == "5"
            assert refused.error["code"] == "berth.too_many_streams"
        async with listening(world.application) as (stream, _):
            assert stream.status == 200


async def test_there_is_an_end_to_searches(world: ApplicationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may decode thousands of appends, on the loop that answers everybody."""
    await world.change("PUT", "/traits/CUSTOM_T")
    read, gate, waiting = Engine.history, asyncio.Event(), 0

    async def wait(engine: Engine, after: Index, count: int) -> list[Batch]:
        nonlocal waiting
        waiting += 1
        await gate.wait()
        return await read(engine, after, count)

    monkeypatch.setattr(Engine, "history", wait)
    searches = [asyncio.create_task(world.get("/berth/v1/events?kind=trait&after=0")) for _ in range(4)]
    async with asyncio.timeout(PATIENCE_S):
        while waiting < len(searches):
            await asyncio.sleep(0.01)
        refused = await world.get("/berth/v1/events?kind=trait&after=0")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert refused.error["code"] == "berth.too_many_searches"
    page = asyncio.create_task(world.get("/berth/v1/events?after=0"))
    gate.set()
    assert [(await one).status for one in (*searches, page)] == [200] * 5
    assert (await world.get("/berth/v1/events?kind=trait&after=0")).status == 200


async def test_a_stream_ends_when_its_server_drains(world: ApplicationWorld) -> None:
    async with listening(world.application) as (stream, task), listening(world.application) as (other, _):
        world.application.drain()
        await stream.until(lambda stream: stream.ended)
        await other.until(lambda stream: stream.ended)
        async with asyncio.timeout(PATIENCE_S):
            await task


async def test_a_stream_ends_with_its_engine(world: ApplicationWorld) -> None:
    async with listening(world.application) as (stream, _):
        await world.engine.stop()
        await stream.until(lambda stream: stream.ended)


async def test_a_stream_that_has_fallen_behind_what_is_kept(
    world: ApplicationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune(monkeypatch, 3)

    for number in range(5):
        await world.change("PUT", f"/traits/CUSTOM_{number}")
    async with listening(world.application, "?after=0") as (stream, _):
        await stream.until(lambda stream: stream.ended)
        [event] = stream.events
        assert event["event"] == "error"
        assert json.loads(event["data"])["code"] == "berth.pruned"
        assert json.loads(event["data"])["oldest_index"] == 3


async def test_a_stream_says_why_it_ends_early(
    world: ApplicationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> Index:
        raise Unavailable("the database is away")

    monkeypatch.setattr(Engine, "wait_beyond", away)
    async with listening(world.application) as (stream, _):
        await stream.until(lambda stream: stream.ended)
        [event] = stream.events
        assert json.loads(event["data"])["code"] == "berth.unavailable"


# -- sending ------------------------------------------------------------------------------------


class Endless:
    """Pieces without end, which count how far they were asked for and know that they were ended."""

    def __init__(self, write_seconds: float) -> None:
        self.made = 0
        self.finished = False
        self.ends = 0
        self.response = StreamResponse(self._pieces(), "text/event-stream", self._end, write_seconds)

    async def _pieces(self) -> Any:
        try:
            while True:
                self.made += 1
                yield b": %d\n\n" % self.made
        finally:
            self.finished = True

    def _end(self) -> None:
        self.ends += 1


async def test_a_client_that_does_not_read_is_dropped() -> None:
    stream, endless = EventStream(), Endless(0.05)

    async def stall(message: MutableMapping[str, Any]) -> None:
        if endless.made == 3:
            stream.reads.clear()
        await stream.send(message)

    async with asyncio.timeout(PATIENCE_S):
        await send_stream(stream.receive, stall, endless.response)
    assert endless.made == 3, "nothing is made that nobody takes"
    assert endless.finished
    assert endless.ends == 1


async def test_a_client_that_leaves_is_noticed() -> None:
    stream, endless = EventStream(), Endless(5)

    async def leave(message: MutableMapping[str, Any]) -> None:
        await stream.send(message)
        await asyncio.sleep(0)
        if endless.made == 3:
            stream.leave()

    async with asyncio.timeout(PATIENCE_S):
        await send_stream(stream.receive, leave, endless.response)
    assert endless.finished
    assert endless.ends == 1


async def test_a_stream_that_never_began_gives_its_place_back() -> None:
    stream, endless = EventStream(), Endless(0.01)
    stream.reads.clear()
    await send_stream(stream.receive, stream.send, endless.response)
    assert (endless.made, endless.ends) == (0, 1)
