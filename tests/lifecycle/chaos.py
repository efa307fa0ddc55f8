"""Random operations on a simulated cloud, while hosts die and conductors are killed; and what must hold at
rest.

Everything is drawn from one seed. What is asked may be refused, and then for a reason that is known; what is
begun may fail. At every checkpoint nothing is under way, and the allocations balance.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from berth.doctor.findings import examine
from berth.model.ids import ConsumerId
from berth.model.rejections import (
    ConfirmBegun,
    HostIsDown,
    HostNotDown,
    MigrationNotAbortable,
    MigrationNotFound,
    NeedNotFound,
    NoFit,
    RevertBegun,
    ServerBusy,
    ServerNotFound,
    ServerStateWrong,
    ServerUnsettled,
)
from berth.model.servers import Action, Flavor, Host, Migration, Server
from berth.sagas.conflicts import held_now, same
from berth.sagas.saga import find_saga
from berth.sim.cloud import CloudPart, HousePace, SimCloud
from berth.sim.rest import find_wrong_disks
from berth.view import View
from tests.lifecycle.stories import BEGINNINGS, MORE, SMALL, beginning, new_server

EXPECTED: Final = (
    MigrationNotAbortable,
    MigrationNotFound,
    NeedNotFound,
    RevertBegun,
    ConfirmBegun,
    HostIsDown,
    HostNotDown,
    NoFit,
    ServerBusy,
    ServerNotFound,
    ServerStateWrong,
    ServerUnsettled,
)
SNAPSHOTS: Final = HousePace(look_s=30, every_batches=300, keep_batches=1_000_000)
"""What starts again need not read the whole journal. Nothing is pruned: in the end all of it is judged."""
SERVERS_MAX: Final = 150
_LOOKS: Final = 200


class Chaos:
    """``count`` random operations, ``hands`` of them at a time."""

    def __init__(
        self,
        cloud: SimCloud,
        seed: int,
        groups: Sequence[str] = (),
        hands: int = 24,
        flavors: Sequence[Flavor] = (SMALL,),
    ) -> None:
        self._flavors = flavors
        self._groups = groups
        self._cloud = cloud
        self._rng = random.Random(seed)
        self._hands = hands
        self._servers: dict[str, Server] = {}
        self._left = 0
        self._is_over = False
        self.begun: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        """Carry out so many operations, and come to rest."""
        self._left = count
        self._is_over = False
        breaking = asyncio.create_task(self._break_things())
        try:
            await asyncio.gather(*(self._ask_for_things() for _ in range(self._hands)))
        finally:
            self._is_over = True
            await breaking
        for host in self._cloud.hosts.values():
            host.revive()
        await self._cloud.all_at_rest()
        await self._cloud.until(lambda view: not len(view.down))
        # A host that is back cleans up what was evacuated from it, and then the migration lets go.
        await self._cloud.until(
            lambda view: all(migration.status != "done" for migration in view.records.all(Migration))
        )
        await self._cloud.all_at_rest()

    async def _ask_for_things(self) -> None:
        while self._left > 0:
            name, server = self._choice()
            refused = await self._cloud.begin(beginning(self._cloud, name, server))
            if refused is None:
                self.begun[name] += 1
                self._left -= 1
            else:
                assert isinstance(refused, EXPECTED), f"{name} of {server.id} is refused: {refused}"
                self.refused[type(refused).__name__] += 1
                if isinstance(refused, ServerNotFound):
                    self._servers.pop(server.id, None)
            await asyncio.sleep(self._rng.uniform(0, 5))

    def _choice(self) -> tuple[str, Server]:
        """What to do next, and to whom: mostly something that can be begun."""
        crowd = len(self._servers)
        if crowd < 10 or (crowd < SERVERS_MAX and self._rng.random() < 0.15):
            group = self._rng.choice([*self._groups, None, None])
            flavor = self._flavors[0] if len(self._flavors) == 1 else self._rng.choice(self._flavors)
            server = new_server(self._cloud, group=group, flavor=flavor)
            self._servers[server.id] = server
            return "create", server
        records = self._cloud.region.view.records
        down = self._down()
        stranded = [
            found
            for found in records.all(Server)
            if found.run is None
            and found.migration is None
            and found.state in find_saga("evacuate").starts_in
            and found.place is not None
            and found.place.id in down
        ]
        if stranded:
            return "evacuate", self._rng.choice(stranded)
        server = self._servers[self._rng.choice(list(self._servers))]
        found = records.get(Server, server.id)
        for _ in range(50):
            # Now and then one that is busy.
            if found is None or found.run is None or self._rng.random() < 0.05:
                break
            server = self._servers[self._rng.choice(list(self._servers))]
            found = records.get(Server, server.id)
        fitting = [
            name
            for name in BEGINNINGS
            if found is not None and found.state in find_saga(name).starts_in and name != "delete"
        ]
        if not fitting or self._rng.random() < 0.1:
            return "delete", server
        if found is not None and found.task == "migrating" and self._rng.random() < 0.5:
            return "abort", server
        if self._rng.random() < 0.2:
            return self._rng.choice(sorted({**BEGINNINGS, **MORE})), server
        return self._rng.choice(fitting), server

    def _down(self) -> set[str]:
        view = self._cloud.region.view
        return {view.record(row).id for row in view.down}

    async def _break_things(self) -> None:
        """Conductors die seldom enough to notice hosts that have: after a start everybody has a while."""
        cloud, rng = self._cloud, self._rng
        while not self._is_over:
            await asyncio.sleep(rng.uniform(0.3, 1.2))
            alive = [host for host in cloud.hosts.values() if host.is_alive]
            dead = [host for host in cloud.hosts.values() if not host.is_alive]
            what = rng.random()
            if what < 0.5 and len(dead) < max(2, len(cloud.hosts) // 10):
                inhabited = [host for host in alive if host.state.disk]
                rng.choice(inhabited or alive).kill()
                self.killed["host"] += 1
            elif what < 0.85 and len(dead) > len(cloud.hosts) // 20:
                # Some are dead for long enough to be noticed.
                rng.choice(dead).start()
            elif what > 0.97:
                cell = rng.choice(list(cloud.cells.values()))
                await self._replace(cell)
                self.killed["conductor"] += 1
            elif what > 0.93:
                worker = rng.choice(cloud.workers)
                await self._replace(worker)
                self.killed[worker.name] += 1

    async def _replace(self, part: CloudPart) -> None:
        part.kill()
        await asyncio.sleep(self._rng.uniform(0, 5))
        part.revive()


async def check_at_rest(cloud: SimCloud) -> None:
    """Nothing is under way and all hosts are up: the allocations balance, and the disks have what the
    allocations say."""
    await cloud.until(lambda view: not any(host.complaints for host in view.records.all(Host)))
    await cloud.read(_check_allocations)
    wrong = await find_wrong_disks(cloud)
    for _ in range(_LOOKS):
        if not wrong:
            return
        # Hosts say what they have when they next poll.
        await asyncio.sleep(1)
        wrong = await find_wrong_disks(cloud)
    told = [f"{sentence}; {await _history(cloud, server)}" for server, sentence in wrong]
    raise AssertionError(f"the disks are not what the allocations say: {told}")


def _check_allocations(view: View) -> None:
    found = examine(view, 0)
    assert not found, found
    for group in view.groups.records.values():
        hosts = {host.name: who for host, who in group.hosts.items() if who}
        if group.group.is_apart:
            crowded = {name: who for name, who in hosts.items() if len(who) > 1}
            assert not crowded, f"members of {group.group.name} share a host: {crowded}"
        else:
            assert len(hosts) < 2, f"members of {group.group.name} are apart: {hosts}"
    known = {server.id for server in view.records.all(Server)}
    known |= {migration.id for migration in view.records.all(Migration)}
    assert set(view.consumers) <= known, "somebody holds something that no record knows"
    for server in view.records.all(Server):
        assert same(server.held, held_now(view, server.id)), server
        if server.held:
            assert server.place is not None, server
            roots = {view.providers[provider].root.id for provider, _ in server.held}
            assert roots == {server.place.id}, server
    for migration in view.records.all(Migration):
        is_waiting = any(server.migration == migration.id for server in view.records.all(Server))
        assert is_waiting or not held_now(view, migration.id), migration
    for provider in view.providers.values():
        for class_id, used in provider.used.items():
            held = sum(
                amount
                for consumer in provider.consumers
                for id, amounts in view.consumers[ConsumerId(consumer)].held
                if id == provider.id
                for held_class, amount in amounts
                if held_class == class_id
            )
            assert used == held <= provider.inventories[class_id].capacity, provider.name


async def _history(cloud: SimCloud, server: str) -> str:
    """What was done to a server, for whoever must find out what went wrong."""
    actions = await cloud.read(lambda view: view.records.find(Action, "server", server))
    return "; ".join(
        f"{action.name}: "
        + ", ".join(f"{event.name}@{event.host} {event.details or 'ok'}" for event in action.events)
        for action in actions[-6:]
    )
