"""Who is next when more ask than can be served at once."""

import asyncio

import pytest

from berth.api.kernel.auth.keystone import RoomFull, WaitingRoom

pytestmark = pytest.mark.fast


class Queue:
    """One place, which is taken, and who got it afterwards."""

    def __init__(self) -> None:
        self.room = WaitingRoom(1)
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        await self.room.enter("first", is_known=False)

    async def wait(self, *names: str) -> None:
        """Each name is a peer and, after a dash, anything. Known peers are written in capitals."""
        for name in names:
            self.tasks.append(asyncio.create_task(self._enter(name)))
            await asyncio.sleep(0)

    async def _enter(self, name: str) -> None:
        await self.room.enter(name.partition("-")[0], is_known=name.isupper())
        self.order.append(name)
        self.room.leave()

    async def end(self) -> list[str]:
        self.room.leave()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.wait_for(self.room.enter("x", is_known=False), 1)
        return self.order


async def test_one_peer_keeps_its_order_and_peers_take_turns() -> None:
    queue = Queue()
    await queue.begin()
    await queue.wait("a-1", "a-2", "a-3", "b-1", "c-1", "b-2")
    assert await queue.end() == ["a-1", "b-1", "c-1", "a-2", "b-2", "a-3"]


async def test_known_peers_go_first_and_the_others_are_not_starved() -> None:
    queue = Queue()
    await queue.begin()
    await queue.wait("a-1", "a-2", *(f"K-{number}" for number in range(6)))
    assert await queue.end() == ["K-0", "K-1", "K-2", "a-1", "K-3", "K-4", "K-5", "a-2"]


@pytest.mark.parametrize("bound", ["PEER_MAX", "LANE_MAX"])
async def test_a_bound_is_of_one_peer_or_of_one_lane(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"berth.api.kernel.auth.keystone.{bound}", 2)

    queue = Queue()
    await queue.begin()
    await queue.wait("a-1", "a-2")
    with pytest.raises(RoomFull):
        await queue.room.enter("a", is_known=False)
    if bound == "PEER_MAX":
        await queue.wait("b-1")
    else:
        with pytest.raises(RoomFull):
            await queue.room.enter("b", is_known=False)
    await queue.wait("K-1")
    assert len(await queue.end()) == (4 if bound == "PEER_MAX" else 3)


async def test_those_who_stop_waiting_take_nothing_along() -> None:
    queue = Queue()
    await queue.begin()
    await queue.wait("a-1", "a-2", "b-1")
    queue.tasks[0].cancel()
    queue.tasks[2].cancel()
    await asyncio.sleep(0)
    assert await queue.end() == ["a-2"]


async def test_one_who_is_called_and_leaves_at_once_gives_the_place_on() -> None:
    queue = Queue()
    await queue.begin()
    await queue.wait("a-1", "a-2")
    queue.room.leave()
    queue.tasks[0].cancel()
    await asyncio.gather(*queue.tasks, return_exceptions=True)
    await asyncio.wait_for(queue.room.enter("x", is_known=False), 1)
    assert queue.order == ["a-2"]
