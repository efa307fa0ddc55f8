"""Clusters created, scaled, mended and deleted, several at once, while their servers are moved, evacuated and
deleted behind their backs, and everything breaks.

After every command in the region's journal, counted anew from what consumers hold:

* a domain never has more nodes that keep apart than the ratio, a server's migration counted with it;
* two nodes of one server group never share a domain;
* a node comes with its claim.

At rest every node that has failed can be replaced. Then every cluster has as many nodes as it should have,
each with its server; the reconciler writes nothing any more; and nothing is left of clusters that are gone.
"""

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Final

from berth.agent.fleet import aggregate_id
from berth.cell.conductor import Deadlines
from berth.journal import JournalRow
from berth.model.clusters import Cluster, Node
from berth.model.events import Batch, ConsumerChanged, Event, RecordChanged
from berth.model.servers import CellStatus, Migration, Server
from berth.sim.audit import Fail, Ledger
from berth.sim.cloud import UNHURRIED, SimCloud
from berth.sim.nemesis import FAULTS
from berth.sim.profiles.lifecycle import (
    COMPUTE,
    OPERATIONS,
    prepare_images,
)
from berth.sim.rest import check_disks, check_doctor, come_to_rest, hear_of_all
from berth.sim.simulation import Act, Simulation
from berth.sim.world import Process

CLUSTERS: Final = "/berth/v1/clusters"
CLUSTERS_MAX: Final = 6
_HOSTS: Final = 8
_RACKS: Final = 4
_NODES_MAX: Final = 6
_QUIET_S: Final = 120.0
_SIGN_S: Final = 50.0
"""How often at most it is written down when conductors were heard of."""
_LOOK_S: Final = 5.0
_APART: Final = "datanode"
# A node that is shelved gives its place to others, and may never get one again.
_LEFT_OUT: Final = ("shelve", "shelveOffload", "unshelve", "forceDelete")


class ClustersProfile:
    name = "clusters"
    every_s = 10.0
    is_ours = True

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(
            seed=seed,
            cells=2,
            hosts=_HOSTS,
            racks=_RACKS,
            workers=2,
            deadlines=Deadlines(60, 300, 600),
            housekeeping=UNHURRIED,
        )

    async def prepare(self, simulation: Simulation) -> None:
        audit = ClusterAudit(simulation.ledger, simulation.fail)
        simulation.facts["clusters"] = audit
        simulation.ledger.judges.append(audit.take)
        await prepare_images(simulation)
        for number in range(1, _RACKS + 1):
            body = {"aggregate": {"kind": "rack", "name": f"rack{number}"}}
            await simulation.users.must("PUT", f"/berth/v1/aggregates/{aggregate_id(f'rack{number}')}", body)

    def choices(self) -> list[tuple[float, str, Act]]:
        return [
            (12, "create a cluster", create),
            (14, "scale a cluster", scale),
            (8, "replace a node", replace),
            (4, "delete a cluster", delete),
            *((weight / 2, name, act) for weight, name, act in OPERATIONS if name not in _LEFT_OUT),
            *FAULTS,
        ]

    async def check_at_rest(self, simulation: Simulation) -> None:
        await hear_of_all(simulation)
        await _mend(simulation)
        check_clusters(simulation)
        await check_quiet(simulation)
        await check_disks(simulation)
        await check_doctor(simulation)
        for id in list(simulation.ledger.records(Cluster)):
            await simulation.users.must("DELETE", f"{CLUSTERS}/{id}")
        await _settle(simulation)
        check_clusters(simulation)
        await check_doctor(simulation)


# -- what users do ------------------------------------------------------------------------------


async def create(simulation: Simulation, rng: random.Random) -> None:
    if len(simulation.ledger.records(Cluster)) >= CLUSTERS_MAX:
        return
    domain = rng.choice(("host", "rack"))
    ratio = rng.randint(1, 3)
    most = _room(domain, ratio)
    cluster: dict[str, Any] = {
        "name": f"c{rng.getrandbits(32):08x}",
        "node_groups": [
            _node_group(simulation, rng, "data", rng.randint(1, most), _APART),
            _node_group(simulation, rng, "front", rng.randint(0, 3), "web"),
        ],
        "anti_affinity": [_APART],
        "anti_affinity_ratio": ratio,
        "anti_affinity_domain": domain,
    }
    await simulation.users.ask("POST", CLUSTERS, {"cluster": cluster})


def _room(domain: str, ratio: int) -> int:
    """How many nodes that keep apart a cluster has room for; not more than play here."""
    domains = _HOSTS if domain == "host" else _RACKS
    return min(_NODES_MAX, domains * ratio)


def _node_group(
    simulation: Simulation, rng: random.Random, name: str, count: int, process: str
) -> dict[str, Any]:
    image = {"image": simulation.facts["image"]} if rng.random() < 0.5 else {}
    return {
        "name": name,
        "flavor": rng.choice(("small", "large")),
        "count": count,
        "processes": [process],
        **image,
    }


async def scale(simulation: Simulation, rng: random.Random) -> None:
    """Other counts, a node group more or less; now and then another ratio, which is refused."""
    cluster = _choose(simulation, rng)
    if cluster is None:
        return
    most = _room(cluster.domain, cluster.ratio)
    body: dict[str, Any] = {"counts": {}, "add": [], "remove": []}
    names = [group.name for group in cluster.node_groups]
    for name in names:
        if name == "more" and rng.random() < 0.3:
            body["remove"].append(name)
        elif rng.random() < 0.7:
            body["counts"][name] = rng.randint(0, most)
    if "more" not in names and rng.random() < 0.4:
        body["add"].append(_node_group(simulation, rng, "more", rng.randint(0, most), _APART))
    if rng.random() < 0.1:
        body["anti_affinity_ratio"] = cluster.ratio + rng.choice((0, 1))
    await simulation.users.ask("POST", f"{CLUSTERS}/{cluster.id}/scale", body)


async def replace(simulation: Simulation, rng: random.Random) -> None:
    """A node that has failed, if there is one; else any, mostly by force."""
    cluster = _choose(simulation, rng)
    if cluster is None or not cluster.nodes:
        return
    failed = _find_failed(simulation.ledger, cluster)
    node = rng.choice(failed or cluster.nodes)
    await simulation.users.ask("POST", _replacement(cluster, node), {"force": rng.random() < 0.7})


async def delete(simulation: Simulation, rng: random.Random) -> None:
    cluster = _choose(simulation, rng)
    if cluster is not None:
        await simulation.users.ask("DELETE", f"{CLUSTERS}/{cluster.id}")


def _choose(simulation: Simulation, rng: random.Random) -> Cluster | None:
    clusters = list(simulation.ledger.records(Cluster).values())
    return rng.choice(clusters) if clusters else None


def _find_failed(ledger: Ledger, cluster: Cluster) -> list[Node]:
    """The nodes whose servers are in error, or gone."""
    servers = ((node, ledger.servers.get(node.server)) for node in cluster.nodes)
    return [node for node, server in servers if server is None or server.state == "error"]


def _replacement(cluster: Cluster, node: Node) -> str:
    return f"{CLUSTERS}/{cluster.id}/nodes/{node.name}/replace"


# -- checked after every command ----------------------------------------------------------------


class ClusterAudit:
    """What has ever belonged to which cluster, and where it holds something."""

    def __init__(self, ledger: Ledger, fail: Fail) -> None:
        self._ledger = ledger
        self._fail = fail
        self.clusters: dict[str, Cluster] = {}
        """Every cluster there has ever been, as it was last."""
        self.consumers: dict[str, tuple[str, str]] = {}
        """Of every server and migration there has ever been for a node: the cluster, and the server."""
        self._groups: dict[str, str | None] = {}

    def take(self, index: int, events: Iterable[Event]) -> None:
        touched: dict[str, None] = {}
        for event in events:
            match event:
                case RecordChanged(after=Server(metadata={"cluster": id}) as server):
                    self.consumers[server.id] = id, server.id
                    self._groups[server.id] = server.group
                case RecordChanged(after=Migration(server=of) as migration) if of in self.consumers:
                    self.consumers[migration.id] = self.consumers[of]
        for event in events:
            match event:
                case RecordChanged(before=before, after=Cluster() as cluster):
                    self.clusters[cluster.id] = cluster
                    self._judge_claims(index, before, cluster)
                case ConsumerChanged(id=consumer) if consumer in self.consumers:
                    touched[self.consumers[consumer][0]] = None
        for touched_id in touched:
            self._judge_ratio(index, self.clusters[touched_id])

    def _judge_claims(self, index: int, before: Any, cluster: Cluster) -> None:
        known = {node.server for node in before.nodes} if isinstance(before, Cluster) else set()
        for node in cluster.nodes:
            if node.server not in known and not self._ledger.held(node.server):
                self._fail(f"region {index}: {node.name} of {cluster.name} comes without its claim")

    def _judge_ratio(self, index: int, cluster: Cluster) -> None:
        domains: dict[str, set[str]] = {}
        shared: dict[tuple[str, str], set[str]] = {}
        for consumer, (id, server) in self.consumers.items():
            group = self._groups.get(server)
            if id != cluster.id or group is None:
                continue
            for provider, _ in self._ledger.held(consumer):
                for domain in self._ledger.domains(cluster.domain, self._ledger.root(provider)):
                    domains.setdefault(domain, set()).add(server)
                    shared.setdefault((domain, group), set()).add(server)
        for domain, servers in domains.items():
            if len(servers) > cluster.ratio:
                self._fail(
                    f"region {index}: {domain} has {sorted(servers)} of {cluster.name}: more than its ratio, "
                    f"{cluster.ratio}"
                )
        for (domain, group), servers in shared.items():
            if len(servers) > 1:
                self._fail(f"region {index}: {sorted(servers)} of group {group} share {domain}")


# -- what must hold at rest ---------------------------------------------------------------------


async def _mend(simulation: Simulation) -> None:
    """Confirm what waits for that, and replace nodes that have failed, until none has.

    Nodes that failed have lost their places to others, perhaps: clusters are made smaller first, so that a
    domain is left for each."""
    ledger, users = simulation.ledger, simulation.users
    await _settle(simulation)
    for server in [one for one in ledger.servers.values() if one.state == "resized"]:
        await users.must("POST", f"{COMPUTE}/servers/{server.id}/action", {"confirmResize": None})
    for cluster in list(ledger.records(Cluster).values()):
        most = max(0, _room(cluster.domain, cluster.ratio) // 2 - 1)
        counts = {group.name: min(group.count, most) for group in cluster.node_groups}
        await users.must("POST", f"{CLUSTERS}/{cluster.id}/scale", {"counts": counts})
    await _settle(simulation)
    while failed := [
        (cluster, node)
        for cluster in ledger.records(Cluster).values()
        for node in _find_failed(ledger, cluster)
    ]:
        for cluster, node in failed:
            await users.must("POST", _replacement(cluster, node), {})
        await _settle(simulation)


async def _settle(simulation: Simulation) -> None:
    """Wait until no cluster is being changed, and nothing else is under way."""
    clusters = simulation.ledger.records(Cluster)
    await come_to_rest(simulation.cloud)
    while any(map(_is_changing, clusters.values())):
        await asyncio.sleep(_LOOK_S)
    await come_to_rest(simulation.cloud)


def _is_changing(cluster: Cluster) -> bool:
    return cluster.state != "active" or any(node.state != "wanted" for node in cluster.nodes)


def check_clusters(simulation: Simulation) -> None:
    audit: ClusterAudit = simulation.facts["clusters"]
    clusters = simulation.ledger.records(Cluster)
    for id, last in audit.clusters.items():
        if id in clusters:
            _check_whole(simulation.ledger, clusters[id], simulation.fail)
        else:
            _check_gone(simulation.ledger, audit, last, simulation.fail)


def _check_whole(ledger: Ledger, cluster: Cluster, fail: Fail) -> None:
    """It has the nodes that it should have, and each node its server in its group."""
    wanted = {group.name: group.count for group in cluster.node_groups}
    found = {
        name: sum(node.node_group == name for node in cluster.nodes)
        for name in {*wanted, *(node.node_group for node in cluster.nodes)}
    }
    if found != wanted:
        fail(f"cluster {cluster.name} should have {wanted} nodes, and has {found}")
    if cluster.fault is not None:
        fail(f"cluster {cluster.name} has the fault: {cluster.fault}")
    for node in cluster.nodes:
        server = ledger.servers.get(node.server)
        if server is None or not ledger.held(server.id):
            fail(f"{node.name} of {cluster.name} has no server that holds anything")
        elif server.state not in ("active", "stopped"):
            fail(f"{node.name} of {cluster.name} is {server.state}")
        elif server.group != node.group or (node.group and server.id not in ledger.members[node.group]):
            fail(f"{node.name} of {cluster.name} is not in its server group {node.group}")
    own = {node.server for node in cluster.nodes}
    for server in ledger.servers.values():
        if server.metadata.get("cluster") == cluster.id and server.id not in own:
            fail(f"server {server.id} is no node of {cluster.name} any more, and is left")


def _check_gone(ledger: Ledger, audit: ClusterAudit, cluster: Cluster, fail: Fail) -> None:
    """Nothing is left of a cluster: no server, no allocation, no group and no member of one."""
    for consumer, (id, _) in audit.consumers.items():
        if id == cluster.id and (consumer in ledger.servers or ledger.held(consumer)):
            fail(f"{consumer} is left of {cluster.name}, which is gone: {ledger.held(consumer)}")
    for group in cluster.groups:
        if group in ledger.groups() or ledger.members.get(group):
            fail(f"group {group} is left of {cluster.name}, which is gone")


async def check_quiet(simulation: Simulation) -> None:
    """Nothing is written any more: not by the reconciler, and not by others. But once a minute it is written
    down when the conductors of all cells were heard of."""
    rows: list[int] = []
    signs: list[int] = []

    def note(process: Process, row: JournalRow, batch: Batch) -> None:
        events = [event for entry in batch.entries for event in entry.events]
        is_sign = all(isinstance(one, RecordChanged) and isinstance(one.after, CellStatus) for one in events)
        (signs if is_sign else rows).append(row.index)

    simulation.cloud.database.appended.append(note)
    await asyncio.sleep(_QUIET_S)
    simulation.cloud.database.appended.remove(note)
    if rows or len(signs) > 1 + _QUIET_S / _SIGN_S:
        simulation.fail(f"the cloud is at rest, and rows {rows or signs} are written")
