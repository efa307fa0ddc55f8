"""Ports end to end, on a simulated cloud: what they need goes with the server through every operation, as the
network service says at the time, and an outage of that service claims nothing and loses nothing."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.client import Answer
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.servers import Server
from berth.sagas.conflicts import as_dict, held_now
from berth.sim.cloud import SimCloud
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import LARGE, SMALL, host_dies
from tests.ports import FakePorts

QUICK: Final = SimBehaviour(build_seconds=0, live_migrate_seconds=0.05, other_seconds=0)
PORT: Final = "aaaaaaaa-0000-4000-8000-000000000001"
GROUP: Final = "aaaaaaaa-0000-4000-8000-000000000011"
BANDWIDTH: Final = "NET_BW_EGR_KILOBIT_PER_SEC"
CARD: Final = "cccccccc-0000-4000-8000-{:012}"


class PortCloud:
    """A cloud with a network card on every host, and a network service that knows one port."""

    def __init__(self, cloud: SimCloud, ports: FakePorts) -> None:
        self.cloud = cloud
        self.ports = ports
        self.client = cloud.client()
        self.id = ""

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        return await self.client.ask(method, path, body)

    async def act(self, name: str, body: object = None) -> Answer:
        return await self.ask("POST", f"/compute/v2.1/servers/{self.id}/action", {name: body})

    async def create(self) -> Answer:
        server = {"name": "one", "flavorRef": SMALL.id, "networks": [{"port": PORT}]}
        answer = await self.ask("POST", "/compute/v2.1/servers", {"server": server})
        if answer.status == 202:
            self.id = answer.body["server"]["id"]
            await self.rest()
        return answer

    async def rest(self) -> Server:
        server = await self.cloud.at_rest(self.id)
        assert server is not None
        return server

    async def done(self, name: str, body: object = None) -> None:
        answer = await self.act(name, body)
        assert answer.status in (200, 202, 204), answer.body
        server = await self.rest()
        assert server.fault is None, server.fault

    def want(self, amount: int) -> None:
        self.ports.request(PORT, (GROUP, {BANDWIDTH: amount}, []))

    async def is_held(self, amount: int) -> bool:
        """Whether exactly this is held for the port, on the host of the server, and the record says so."""
        server = await self.rest()
        assert server.place is not None
        card = next(card for card, host in self.cards.items() if host == server.place.id)
        held = await self.cloud.read(lambda view: as_dict(held_now(view, self.id)))
        on_cards = {id: amounts for id, amounts in held.items() if id in self.cards}
        [need] = server.needs
        return on_cards == as_dict(need.held) == as_dict(need.groups[0].held) == {card: {BANDWIDTH: amount}}

    async def add_cards(self) -> None:
        names = (await self.ask("GET", "/resource_providers")).body["resource_providers"]
        self.cards: dict[str, str] = {}
        for number, host in enumerate(names):
            card = CARD.format(number)
            self.cards[card] = host["uuid"]
            new = {"uuid": card, "name": f"card-{number}", "parent_provider_uuid": host["uuid"]}
            assert (await self.ask("POST", "/resource_providers", new)).status == 200
            inventories = {"resource_provider_generation": 0, "inventories": {BANDWIDTH: {"total": 1000}}}
            path = f"/resource_providers/{card}/inventories"
            assert (await self.ask("PUT", path, inventories)).status == 200


@contextlib.asynccontextmanager
async def running(**options: Any) -> AsyncIterator[PortCloud]:
    ports = FakePorts()
    ports.add(PORT)
    options = {"seed": 14, "hosts": 4, "behaviour": QUICK, **options}
    async with SimCloud(port_source_url="http://neutron/v2.0/ports/{port}", **options).running() as cloud:
        cloud.network.listen("neutron", cloud.world.process("neutron"), ports)
        changes = tuple(RecordChanged(None, flavor) for flavor in (SMALL, LARGE))
        assert await cloud.begin(lambda view, now_s: Enact(changes)) is None
        made = PortCloud(cloud, ports)
        await made.add_cards()
        yield made


async def test_a_port_goes_through_every_operation_with_its_server() -> None:
    async with running() as it:
        it.want(100)
        assert (await it.create()).status == 202
        assert await it.is_held(100)
        it.want(110)
        await it.done("migrate")
        assert await it.is_held(110)
        await it.done("revertResize")
        assert await it.is_held(100), "as it was there"
        await it.done("migrate")
        await it.done("confirmResize")
        assert await it.is_held(110)
        it.want(120)
        await it.done("resize", {"flavorRef": LARGE.id})
        await it.done("confirmResize")
        assert await it.is_held(120)
        it.want(130)
        await it.done("os-migrateLive", {"host": None, "block_migration": "auto"})
        assert await it.is_held(130)
        it.want(140)
        await it.done("shelve")
        await it.done("unshelve")
        assert await it.is_held(140)
        it.want(150)
        await host_dies(it.cloud, await it.rest())
        await it.done("evacuate", {})
        assert await it.is_held(150)
        it.cloud.heal()
        assert (await it.ask("DELETE", f"/compute/v2.1/servers/{it.id}")).status == 204
        assert await it.cloud.at_rest(it.id) is None
        await check_at_rest(it.cloud)


async def test_a_move_that_fails_leaves_what_the_port_had() -> None:
    async with running() as it:
        it.want(100)
        await it.create()
        it.want(900)
        failing = Rule(outcome="fail", verb="prepare")
        it.cloud.behaviours.replace(SimBehaviour(build_seconds=0, other_seconds=0, rules=(failing,)))
        assert (await it.act("migrate")).status == 202
        assert await it.is_held(100)
        it.cloud.behaviours.replace(QUICK)
        await it.done("migrate")
        assert await it.is_held(900)


async def test_an_outage_of_the_source_claims_nothing_and_loses_nothing() -> None:
    async with running() as it:
        it.want(100)
        for worker in it.cloud.workers:
            it.cloud.network.block(worker.name, "neutron")
        answer = await it.create()
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert await it.cloud.read(lambda view: (view.records.count(Server), len(view.consumers))) == (0, 0)
        it.cloud.network.unblock_all()
        assert (await it.create()).status == 202
        it.ports.latency_s = 60.0
        assert (await it.act("migrate")).status == 503
        assert await it.is_held(100)
        it.ports.latency_s = 0.0
        await it.done("migrate")
        assert await it.is_held(100)
