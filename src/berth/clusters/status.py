"""The status of a cluster, which follows from its nodes' servers."""

from typing import Final, Literal, NamedTuple

from berth.model.clusters import Cluster, Node
from berth.model.servers import Server
from berth.sagas.hosts import is_down
from berth.view import View

ClusterStatus = Literal["active", "building", "scaling", "replacing", "deleting", "degraded", "error"]
GONE: Final = "gone"


class NodeProgress(NamedTuple):
    """``server`` is None for a node whose server is gone, or not there again yet. ``is_host_down``: the
    server cannot be running, whatever its record says."""

    node: Node
    server: Server | None
    is_host_down: bool

    @property
    def status(self) -> str:
        return GONE if self.server is None else self.server.state

    @property
    def host(self) -> str | None:
        return None if self.server is None or self.server.place is None else self.server.place.name

    @property
    def is_ready(self) -> bool:
        is_well = self.status not in ("building", "error", GONE) and not self.is_host_down
        return self.node.state == "wanted" and is_well


class ClusterProgress(NamedTuple):
    """``ready`` of ``wanted`` nodes are as they should be; ``leaving`` are still to go."""

    status: ClusterStatus
    ready: int
    wanted: int
    leaving: int
    nodes: tuple[NodeProgress, ...]


def summarize_cluster(view: View, cluster: Cluster) -> ClusterProgress:
    nodes = tuple(_node(view, node) for node in cluster.nodes)
    staying = [one for one in nodes if one.node.state != "leaving"]
    return ClusterProgress(
        _status(cluster, nodes),
        sum(one.is_ready for one in staying),
        len(staying),
        len(nodes) - len(staying),
        nodes,
    )


def _node(view: View, node: Node) -> NodeProgress:
    server = view.records.get(Server, node.server)
    place = None if server is None else server.place
    return NodeProgress(node, server, place is not None and is_down(view, place))


def _status(cluster: Cluster, nodes: tuple[NodeProgress, ...]) -> ClusterStatus:
    """What is under way comes before its results."""
    if cluster.state == "deleting":
        return "deleting"
    states = {one.node.state for one in nodes}
    if "replacing" in states:
        return "replacing"
    if "leaving" in states:
        return "scaling"
    statuses = {one.status for one in nodes}
    if "building" in statuses:
        return "building"
    if statuses & {"error", GONE}:
        return "error"
    return "degraded" if any(one.is_host_down for one in nodes) else "active"
