"""Who is next when more ask than can be served at once."""

import asyncio

import pytest

from berth.api.kernel.auth.waiting_room import RoomFull, WaitingRoom

pytestmark = pytest.mark.fast


class Story:
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


def test_one_peer_keeps_its_order_and_peers_take_turns() -> None:
    async def go() -> list[str]:
        story = Story()
        await story.begin()
        await story.wait("a-1", "a-2", "a-3", "b-1", "c-1", "b-2")
        return await story.end()

    assert asyncio.run(go()) == ["a-1", "b-1", "c-1", "a-2", "b-2", "a-3"]


def test_known_peers_go_first_and_the_others_are_not_starved() -> None:
    async def go() -> list[str]:
        story = Story()
        await story.begin()
        await story.wait("a-1", "a-2", *(f"K-{number}" for number in range(6)))
        return await story.end()

    assert asyncio.run(go()) == ["K-0", "K-1", "K-2", "a-1", "K-3", "K-4", "K-5", "a-2"]


@pytest.mark.parametrize("bound", ["PEER_MAX", "LANE_MAX"])
def test_a_bound_is_of_one_peer_or_of_one_lane(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"berth.api.kernel.auth.waiting_room.{bound}", 2)

    async def go() -> list[str]:
        story = Story()
        await story.begin()
        await story.wait("a-1", "a-2")
        with pytest.raises(RoomFull):
            await story.room.enter("a", is_known=False)
        if bound == "PEER_MAX":
            await story.wait("b-1")
        else:
            with pytest.raises(RoomFull):
                await story.room.enter("b", is_known=False)
        await story.wait("K-1")
        return await story.end()

    assert len(asyncio.run(go())) == (4 if bound == "PEER_MAX" else 3)


def test_those_who_stop_waiting_take_nothing_along() -> None:
    async def go() -> list[str]:
        story = Story()
        await story.begin()
        await story.wait("a-1", "a-2", "b-1")
        story.tasks[0].cancel()
        story.tasks[2].cancel()
        await asyncio.sleep(0)
        return await story.end()

    assert asyncio.run(go()) == ["a-2"]


def test_one_who_is_called_and_leaves_at_once_gives_the_place_on() -> None:
    async def go() -> list[str]:
        story = Story()
        await story.begin()
        await story.wait("a-1", "a-2")
        story.room.leave()
        story.tasks[0].cancel()
        await asyncio.gather(*story.tasks, return_exceptions=True)
        await asyncio.wait_for(story.room.enter("x", is_known=False), 1)
        return story.order

    assert asyncio.run(go()) == ["a-2"]
