"""Many clusters created, scaled, repaired, moved and deleted in parallel, while everything breaks: no policy
is broken at any moment, and in the end nothing is left."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from berth.agent.drivers.behaviour import SimBehaviour
from berth.agent.fleet import aggregate_id
from berth.clusters import proposals as clusters
from berth.clusters.proposals import summarize_cluster
from berth.doctor.findings import examine
from berth.model.clusters import Cluster, Node, NodeGroup
from berth.model.commands import Enact, LabelAggregate
from berth.model.ids import AggregateId
from berth.model.placement import Label
from berth.model.rejections import (
    ClusterDoesNotFit,
    NodeLeaving,
    NodeNotFailed,
    NodeNotFound,
    Rejection,
)
from berth.model.saga_runs import Outbox
from berth.model.servers import Action, Migration, Record, Server
from berth.sagas.saga import find_saga
from berth.sim.cloud import CloudPart, SimCloud
from berth.view import View
from tests.lifecycle.chaos import EXPECTED, SNAPSHOTS, check_at_rest
from tests.lifecycle.cluster_watch import ClusterWatch
from tests.lifecycle.stories import LARGE, SMALL, beginning

SEED: Final = int(os.environ.get("BERTH_TEST_SEED", "20261201"))
CLUSTERS: Final = int(os.environ.get("BERTH_TEST_CLUSTERS", "40"))
HOSTS_PER_CLUSTER: Final = 5
RACKS: Final = 6
PATIENCE_S: Final = 1800

BEHAVIOUR: Final = SimBehaviour(failure_rate=0.05)
REFUSED: Final = (*EXPECTED, ClusterDoesNotFit, NodeLeaving, NodeNotFailed, NodeNotFound)
MOVES: Final = ("resize", "migrate", "live_migrate", "confirm", "revert", "evacuate", "stop", "delete")


class Life:
    """What becomes of one cluster, from its creation to its end."""

    def __init__(self, cloud: SimCloud, number: int, done: Counter[str]) -> None:
        self._cloud = cloud
        self._rng = random.Random(SEED * 1_000 + number)
        self._done = done
        self._added = 0
        self.id = f"cluster-{number}"

    async def run(self) -> None:
        if not await self._ask("create", self._create()):
            return
        for _ in range(self._rng.randint(6, 12)):
            await asyncio.sleep(self._rng.uniform(0, 16))
            await self._rng.choice(
                (self._scale, self._scale, self._replace, self._move, self._move, self._move)
            )()
            if self._rng.random() < 0.3:
                await self._settled()
        await self._ask(
            "delete", lambda view, now_s: clusters.delete(view, now_s, self._cloud.context(), self.id)
        )
        await self._until(lambda view: view.records.get(Cluster, self.id) is None)

    def _create(self) -> Callable[[View, int], Enact | Rejection]:
        rng = self._rng
        domain = rng.choice(("host", "host", "rack"))
        ratio = rng.randint(1, 3)
        groups = (
            NodeGroup(name="data", flavor=SMALL, count=rng.randint(3, 9), processes=("datanode",)),
            NodeGroup(name="front", flavor=LARGE, count=rng.randint(0, 3), processes=("web",)),
        )
        cluster = Cluster(
            id=self.id,
            name=self.id,
            project="project",
            user="user",
            anti_affinity=("datanode",),
            ratio=ratio,
            domain=domain,
            node_groups=groups,
        )
        return lambda view, now_s: clusters.create(view, now_s, self._cloud.context(), cluster)

    async def _scale(self) -> None:
        cluster, rng = await self._cluster(), self._rng
        counts = {group.name: rng.randint(0, 10) for group in cluster.node_groups if rng.random() < 0.7}
        remove = tuple(
            group.name for group in cluster.node_groups if group.name not in counts and rng.random() < 0.3
        )
        add: tuple[NodeGroup, ...] = ()
        if rng.random() < 0.3:
            self._added += 1
            name = f"more{self._added}"
            add = (NodeGroup(name=name, flavor=LARGE, count=rng.randint(0, 4), processes=("datanode",)),)
        await self._ask(
            "scale",
            lambda view, now_s: clusters.scale(
                view, now_s, self._cloud.context(), self.id, counts, add, remove
            ),
        )

    async def _replace(self) -> None:
        """A node that has failed, if there is one; else any, by force."""
        cluster = await self._cluster()
        nodes = await self._cloud.read(lambda view: summarize_cluster(view, cluster).nodes)
        failed = [one.node for one in nodes if one.status in ("error", "gone")]
        node = self._chosen(failed or [one.node for one in nodes])
        if node is not None:
            await self._ask(
                "replace",
                lambda view, now_s: clusters.replace(
                    view, now_s, self._cloud.context(), self.id, node.name, force=not failed
                ),
            )

    async def _move(self) -> None:
        """Somebody who knows nothing of clusters does something to a server."""
        node = self._chosen(list((await self._cluster()).nodes))
        server = None if node is None else await self._cloud.server(node.server)
        if server is None:
            return
        fitting = [name for name in MOVES if server.state in find_saga(name).starts_in]
        if fitting:
            await self._ask("move", beginning(self._cloud, self._rng.choice(fitting), server))

    def _chosen(self, nodes: list[Node]) -> Node | None:
        return self._rng.choice(nodes) if nodes else None

    async def _cluster(self) -> Cluster:
        cluster = await self._cloud.read(lambda view: view.records.get(Cluster, self.id))
        assert cluster is not None, f"{self.id} is gone"
        return cluster

    async def _ask(self, what: str, wish: Callable[[View, int], Enact | Rejection]) -> bool:
        refused = await self._cloud.begin(wish)
        assert refused is None or isinstance(refused, REFUSED), f"{what} of {self.id} is refused: {refused}"
        self._done[what if refused is None else f"{what} refused"] += 1
        return refused is None

    async def _settled(self) -> None:
        """Wait until nothing is being done to the cluster, unless what is to be done finds no place."""

        def is_settled(view: View) -> bool:
            cluster = view.records.get(Cluster, self.id)
            assert cluster is not None
            return cluster.fault is not None or summarize_cluster(view, cluster).status in (
                "active",
                "degraded",
                "error",
            )

        await self._until(is_settled)

    async def _until(self, holds: Callable[[View], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await self._cloud.read(holds):
                await asyncio.sleep(1)


class Breaking:
    """Hosts, conductors and the region's processes die and come back, until it is over. Saga runs are
    dispatched and clusters reconciled by the region's first process."""

    def __init__(self, cloud: SimCloud, done: Counter[str]) -> None:
        self._cloud = cloud
        self._done = done
        self._rng = random.Random(SEED)
        self.is_over = False

    async def run(self) -> None:
        cloud = self._cloud
        while not self.is_over:
            await asyncio.sleep(self._rng.uniform(1, 4))
            what = self._rng.choices(("host", "conductor", "region"), (4, 2, 6))[0]
            if what == "host":
                self._break_host()
                continue
            parts: list[CloudPart] = [*cloud.cells.values()] if what == "conductor" else [*cloud.workers]
            await self._replace(self._rng.choice(parts))
        for host in cloud.hosts.values():
            host.revive()

    def _break_host(self) -> None:
        hosts = self._cloud.hosts.values()
        dead = [host for host in hosts if not host.is_alive]
        if len(dead) > len(hosts) // 20:
            self._rng.choice(dead).start()
            return
        alive = [host for host in hosts if host.is_alive]
        inhabited = [host for host in alive if host.state.disk]
        self._rng.choice(inhabited or alive).kill()
        self._done["killed host"] += 1

    async def _replace(self, part: CloudPart) -> None:
        part.kill()
        self._done[f"killed {part.name}"] += 1
        await asyncio.sleep(self._rng.uniform(0, 6))
        part.revive()


async def _label_racks(cloud: SimCloud) -> None:
    labels = tuple(
        LabelAggregate(AggregateId(aggregate_id(f"rack{number}")), Label("rack", f"rack{number}"))
        for number in range(1, RACKS + 1)
    )
    assert await cloud.begin(lambda view, now_s: Enact((), labels)) is None


def _nothing_is_left(view: View) -> bool:
    kinds: tuple[type[Record], ...] = (Cluster, Server, Migration, Outbox, Action)
    return not any(map(view.records.count, kinds)) and not view.groups.records and not view.consumers


async def _lives(cloud: SimCloud, done: Counter[str]) -> None:
    breaking = Breaking(cloud, done)
    at_work = asyncio.create_task(breaking.run())
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(CLUSTERS):
                group.create_task(Life(cloud, number, done).run())
    finally:
        breaking.is_over = True
        await at_work


async def test_no_policy_is_broken_and_nothing_is_left() -> None:
    print(f"seed {SEED}")
    done: Counter[str] = Counter()
    watch = ClusterWatch()
    cloud = SimCloud(
        seed=SEED,
        cells=2,
        hosts=HOSTS_PER_CLUSTER * CLUSTERS,
        racks=RACKS,
        workers=2,
        behaviour=BEHAVIOUR,
        housekeeping=SNAPSHOTS,
    )
    async with cloud.running():
        await _label_racks(cloud)
        await _lives(cloud, done)
        await cloud.all_at_rest()
        await cloud.until(lambda view: not len(view.down))
        await cloud.until(_nothing_is_left)
        await check_at_rest(cloud)
        assert await cloud.read(lambda view: examine(view, 0)) == ()
        watch.replay(cloud.database.open(cloud.outside))
    print(f"{dict(done)}; {watch.commands} commands, {watch.moves} moves, {watch.full} times full")
    assert watch.created == done["create"]
    assert watch.full
    assert done["replace"]
    assert {f"killed {part}" for part in ("host", "cell1", "cell2", "region-1", "region-2")} <= set(done)
    assert _nothing_is_left(watch.view)


async def test_a_node_whose_host_has_died_is_replaced_elsewhere() -> None:
    cloud = SimCloud(seed=1, hosts=6)
    group = NodeGroup(name="data", flavor=SMALL, count=10, processes=("datanode",))
    cluster = Cluster(
        id="c",
        name="c",
        project="project",
        user="user",
        anti_affinity=("datanode",),
        ratio=2,
        node_groups=(group,),
    )

    def cluster_of(view: View) -> Cluster:
        found = view.records.get(Cluster, "c")
        assert found is not None
        return found

    async with cloud.running():
        context = cloud.context()
        assert await cloud.begin(lambda view, now_s: clusters.create(view, now_s, context, cluster)) is None
        await cloud.until(lambda view: summarize_cluster(view, cluster_of(view)).status == "active")
        found = await cloud.read(lambda view: view.records.get(Cluster, "c"))
        assert found is not None
        node = found.nodes[0]
        server = await cloud.server(node.server)
        assert server is not None
        assert server.place is not None
        host = server.place
        cloud.hosts[host.name].kill()
        await cloud.until(lambda view: any(view.record(row).id == host.id for row in view.down))
        refused = await cloud.begin(
            lambda view, now_s: clusters.replace(view, now_s, context, "c", node.name)
        )
        assert refused is None
        # The other node of that host is there no more than the host is.
        await cloud.until(lambda view: summarize_cluster(view, cluster_of(view)).status == "degraded")
        after = await cloud.read(lambda view: view.records.get(Cluster, "c"))
        assert after is not None
        assert after.nodes[0] == msgspec.structs.replace(node, server=after.nodes[0].server)
        new = await cloud.server(after.nodes[0].server)
        assert new is not None
        assert new.place is not None
        assert new.place.name != host.name
        assert cloud.hosts_with(new.id) == {new.place.name}
        refused = await cloud.begin(lambda view, now_s: clusters.delete(view, now_s, context, "c"))
        assert refused is None
        await cloud.until(_nothing_is_left)
        watch = ClusterWatch()
        watch.replay(cloud.database.open(cloud.outside))
        assert watch.created == 1
