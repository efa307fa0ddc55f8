"""What a region's journal says of clusters: replayed on an empty view, and judged after every single command.

Judged is where nodes stand, counted anew from what consumers hold, a server's migration with it: never more
nodes of a cluster in a domain than its ratio, never two of a group. The ledger's own count of groups is not
asked.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from berth.journal import Journal
from berth.model.clusters import Cluster
from berth.model.events import ConsumerChanged, Event, RecordChanged
from berth.model.groups import HOST
from berth.model.ids import ConsumerId, Index
from berth.model.servers import Migration, Server
from berth.view import View


class _Whose(NamedTuple):
    """The node that a consumer holds something for."""

    cluster: str
    server: str
    group: str | None


class ClusterWatch:
    """``full``: how often a domain had as many nodes as the ratio lets it, of more than one."""

    def __init__(self) -> None:
        self.view = View()
        self.commands = 0
        self.created = 0
        self.moves = 0
        self.full = 0
        self._whose: dict[str, _Whose] = {}
        self._consumers: dict[str, set[str]] = {}

    def replay(self, journal: Journal) -> None:
        index = Index(0)
        while batches := list(journal.read(index, 1_000)):
            for batch in batches:
                for entry in batch.entries:
                    self._carried_out(entry.events)
            index = batches[-1].index

    def _carried_out(self, events: Iterable[Event]) -> None:
        touched = set()
        for event in events:
            self.view.apply(event)
            if isinstance(event, RecordChanged):
                self._learn(event)
        for event in events:
            whose = self._whose.get(event.id) if isinstance(event, ConsumerChanged) else None
            if whose is not None:
                touched.add(whose.cluster)
        for id in touched:
            self._judge(id)
        self.commands += 1

    def _learn(self, event: RecordChanged) -> None:
        match event.after:
            case Server(id=id, metadata={"cluster": cluster}, group=group):
                self._whose[id] = _Whose(cluster, id, group)
                self._consumers.setdefault(cluster, set()).add(id)
            case Migration(id=id, server=server) if server in self._whose:
                self.moves += event.before is None
                self._whose[id] = self._whose[server]
                self._consumers[self._whose[id].cluster].add(id)
            case Cluster() as cluster if event.before is None:
                self.created += 1
                there = [self.view.records.get(Server, node.server) for node in cluster.nodes]
                # The servers' records may come behind the cluster's, in the same command.
                assert all(server is None or server.held for server in there)
                assert len({node.server for node in cluster.nodes}) == len(cluster.nodes)
                held = [ConsumerId(node.server) in self.view.consumers for node in cluster.nodes]
                assert all(held), "a cluster is there with all its claims"

    def _judge(self, id: str) -> None:
        cluster = self.view.records.get(Cluster, id)
        if cluster is None:
            return
        in_domain: dict[str, set[str]] = {}
        of_group: dict[tuple[str, str], set[str]] = {}
        for consumer in self._consumers[id]:
            whose, record = self._whose[consumer], self.view.consumers.get(ConsumerId(consumer))
            if whose.group is None or record is None or self.view.records.get(Server, whose.server) is None:
                continue
            for host in self.view.hosts_held(record.held):
                for domain in self._domains(host.aggregates, host.id, cluster.domain):
                    in_domain.setdefault(domain, set()).add(whose.server)
                    of_group.setdefault((domain, whose.group), set()).add(whose.server)
        crowded = {domain: nodes for domain, nodes in in_domain.items() if len(nodes) > cluster.ratio}
        assert not crowded, f"more than {cluster.ratio} nodes of cluster {id} share {crowded}"
        doubled = {key: nodes for key, nodes in of_group.items() if len(nodes) > 1}
        assert not doubled, f"two of one group of cluster {id} share {doubled}"
        counts = Counter(len(nodes) for nodes in in_domain.values())
        self.full += counts[cluster.ratio] if cluster.ratio > 1 else 0

    def _domains(self, aggregates: Iterable[str], host: str, kind: str) -> list[str]:
        if kind == HOST:
            return [host]
        racks = set(self.view.groups.of_kind(kind))
        found = [str(id) for id in aggregates if id in racks]
        assert found, f"{host} is in no {kind}"
        return found
