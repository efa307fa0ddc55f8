"""Two operations on one server at the same moment: one wins, the other is told why not, and nothing leaks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from berth.client import Answer
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.servers import Server
from berth.sim.cloud import SimCloud
from berth.sim.network import Weather
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import LARGE, brought_before, host_dies

ROUNDS: Final = 8
Ask = Callable[["Caller", Server], Awaitable[Answer]]


class Caller:
    """Somebody with the compute API."""

    def __init__(self, cloud: SimCloud) -> None:
        headers = {"x-auth-token": "admin:project", "openstack-api-version": "compute 2.90"}
        self._client = cloud.client(headers)

    async def act(self, server: Server, action: dict[str, Any]) -> Answer:
        return await self._client.ask("POST", f"/compute/v2.1/servers/{server.id}/action", action)

    async def delete(self, server: Server) -> Answer:
        return await self._client.ask("DELETE", f"/compute/v2.1/servers/{server.id}")

    async def need(self, server: Server) -> Answer:
        path = f"/berth/v1/servers/{server.id}/needs/port"
        return await self._client.ask("PUT", path, {"resources": {"DISK_GB": 1}})


def _action(**action: Any) -> Ask:
    return lambda caller, server: caller.act(server, action)


RESIZE: Final = _action(resize={"flavorRef": LARGE.id})
MIGRATE: Final = _action(migrate=None)
LIVE: Final = _action(**{"os-migrateLive": {"host": None, "block_migration": "auto"}})
EVACUATE: Final = _action(evacuate={})
CONFIRM: Final = _action(confirmResize=None)
REVERT: Final = _action(revertResize=None)
SHELVE: Final = _action(shelve=None)


async def _delete(caller: Caller, server: Server) -> Answer:
    return await caller.delete(server)


async def _need(caller: Caller, server: Server) -> Answer:
    return await caller.need(server)


PAIRS: Final[dict[str, tuple[str, Ask, Ask]]] = {
    "confirm and revert": ("confirm", CONFIRM, REVERT),
    "revert and confirm": ("confirm", REVERT, CONFIRM),
    "two migrates": ("delete", MIGRATE, MIGRATE),
    "migrate and live migrate": ("delete", MIGRATE, LIVE),
    "two live migrates": ("delete", LIVE, LIVE),
    "shelve and resize": ("delete", SHELVE, RESIZE),
}
"""What comes before, and the two that are asked for at once."""


@pytest.mark.parametrize("name", PAIRS)
async def test_one_wins_and_the_other_is_told(name: str) -> None:
    story, first, second = PAIRS[name]

    async with SimCloud(seed=7, hosts=6).running() as cloud:
        await _write_flavor(cloud)
        caller = Caller(cloud)
        for _ in range(ROUNDS):
            server = await brought_before(cloud, story)
            answers = await asyncio.gather(first(caller, server), second(caller, server))
            statuses = sorted(answer.status for answer in answers)
            assert statuses[0] in (200, 202, 204), [answer.body for answer in answers]
            assert statuses[1] == 409, [answer.body for answer in answers]
            (refused,) = [answer for answer in answers if answer.status == 409]
            sentence = refused.body["conflictingRequest"]["message"]
            assert "Cannot '" in sentence
            assert server.id in sentence
            await cloud.at_rest(server.id)
        await cloud.all_at_rest()
        await check_at_rest(cloud)


@pytest.mark.parametrize(
    ("story", "other"), [("delete", RESIZE), ("confirm", CONFIRM), ("confirm", REVERT), ("delete", SHELVE)]
)
async def test_a_deletion_wins(story: str, other: Ask) -> None:
    """Whichever came first: the other one is refused, or begun and aborted."""
    async with SimCloud(seed=7, hosts=6).running() as cloud:
        await _write_flavor(cloud)
        caller = Caller(cloud)
        for number in range(ROUNDS):
            server = await brought_before(cloud, story)
            asked = (_delete, other) if number % 2 else (other, _delete)
            answers = await asyncio.gather(*(ask(caller, server) for ask in asked))
            statuses = dict(zip(asked, (answer.status for answer in answers), strict=True))
            assert statuses[_delete] == 204, answers
            assert statuses[other] in (202, 204, 409), answers
            assert await cloud.at_rest(server.id) is None
        await cloud.all_at_rest()
        await check_at_rest(cloud)


async def test_migrate_and_evacuate() -> None:
    async with SimCloud(seed=8, hosts=6).running() as cloud:
        caller = Caller(cloud)
        server = await brought_before(cloud, "delete")
        place = await host_dies(cloud, server)
        answers = await asyncio.gather(EVACUATE(caller, server), MIGRATE(caller, server))
        assert sorted(answer.status for answer in answers) == [200, 409], answers
        after = await cloud.at_rest(server.id)
        assert after is not None
        assert after.place is not None
        assert after.place != place
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await cloud.all_at_rest()
        await check_at_rest(cloud)


@pytest.mark.parametrize(
    "name", ["evacuate", "resize", "migrate", "live migrate", "delete", "confirm", "revert", "shelve"]
)
async def test_needs_change_while_something_is_done(name: str) -> None:
    asks: dict[str, tuple[str, Ask]] = {
        "evacuate": ("evacuate", EVACUATE),
        "resize": ("delete", RESIZE),
        "migrate": ("delete", MIGRATE),
        "live migrate": ("delete", LIVE),
        "delete": ("delete", _delete),
        "confirm": ("confirm", CONFIRM),
        "revert": ("confirm", REVERT),
        "shelve": ("delete", SHELVE),
    }
    story, ask = asks[name]

    async with SimCloud(seed=9, hosts=6).running() as cloud:
        # What is sent first arrives first.
        cloud.network.weather = Weather(delay_s=0)
        await _write_flavor(cloud)
        caller = Caller(cloud)
        for _ in range(1 if name == "evacuate" else 3):
            server = await brought_before(cloud, story)
            answer, need = await asyncio.gather(ask(caller, server), caller.need(server))
            assert answer.status in (200, 202, 204), answer.body
            assert need.status == 409, need.body
            await cloud.at_rest(server.id)
            # The other way round both are done: a need is there at once, and goes along.
            if story == "delete":
                server = await brought_before(cloud, story)
                need, answer = await asyncio.gather(caller.need(server), ask(caller, server))
                assert need.status == 200, need.body
                assert answer.status in (200, 202, 204), answer.body
                await cloud.at_rest(server.id)
        for host in cloud.hosts.values():
            host.revive()
        await cloud.until(lambda view: not len(view.down))
        await cloud.all_at_rest()
        await check_at_rest(cloud)


async def _write_flavor(cloud: SimCloud) -> None:
    assert await cloud.begin(lambda view, now_s: Enact((RecordChanged(None, LARGE),))) is None
