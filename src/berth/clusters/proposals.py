"""What can be requested for a cluster: create it, scale it, replace a node of it, delete it; and its status.

All new nodes are claimed in one change, with their server groups and the cluster's record. What takes time is
recorded: which nodes are leaving, which are being replaced. The rest follows from the records, step by step
(``reconciler``), whichever process crashes meanwhile. The status follows from the nodes' servers.
"""

from math import ceil
from typing import Final, Literal, NamedTuple

import msgspec

from berth.clusters.distribution import (
    add_nodes,
    mark_leaving,
    node_group_of,
    remove_node_group,
    remove_nodes,
)
from berth.clusters.placement import check_quota, fits, make_groups, place_nodes
from berth.model.clusters import NODE_GROUPS_MAX, NODES_MAX, RATIO_MAX, Cluster, Node, NodeGroup
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.groups import HOST
from berth.model.rejections import (
    ClusterBeingDeleted,
    ClusterDoesNotFit,
    ClusterExists,
    ClusterNotFound,
    ClusterRatioFixed,
    ConstraintStep,
    NodeCountWrong,
    NodeGroupExists,
    NodeGroupNotFound,
    NodeLeaving,
    NodeNotFailed,
    NodeNotFound,
    NoFit,
    Rejection,
    TooManyNodeGroups,
    TooManyNodes,
)
from berth.model.servers import Server
from berth.sagas.hosts import is_down
from berth.sagas.proposals import Context
from berth.view import View

ClusterStatus = Literal["active", "building", "scaling", "replacing", "deleting", "degraded", "error"]
GONE: Final = "gone"

_STEPS_PER_NODE: Final = 2
"""To look at a node; for each that leaves, all others are looked at."""

# -- create -------------------------------------------------------------------------------------


def create(view: View, now_s: int, context: Context, cluster: Cluster) -> Enact | Rejection:
    """Create a cluster of which the node groups are given, with the count of nodes of each: all
    of them, or none."""
    if view.records.get(Cluster, cluster.id) is not None:
        return ClusterExists(cluster.id)
    wrong = _check_counts(cluster) or _find_duplicate(cluster)
    if wrong is not None:
        return wrong
    cluster = msgspec.structs.replace(cluster, created_at_s=now_s, updated_at_s=now_s)
    whole = _distribute(context, cluster, cluster.ratio)
    # The quota first: only a project that may have the nodes learns what would fit.
    refused = check_quota(view, context, whole, whole.nodes)
    if refused is not None:
        return refused
    enact = _reject_by_count(view, whole) or place_nodes(
        view, now_s, context, whole, whole.nodes, make_groups(whole)
    )
    if isinstance(enact, NoFit):
        fitting = _find_fitting_ratio(view, now_s, context, cluster)
        return _reject_size(whole, len(whole.nodes), enact, fitting)
    return _add_record(enact, None, whole)


def _reject_by_count(view: View, whole: Cluster) -> NoFit | None:
    """Why a new cluster cannot fit whatever else there is: of the nodes that keep apart, a domain takes as
    many as the ratio. Counting is cheap; to try it out is not."""
    apart, domains = _count_apart(whole), _count_domains(view, whole)
    room = domains * whole.ratio
    if not domains or apart <= room:
        return None
    asked = f"at most {whole.ratio} of the nodes that keep apart on one {whole.domain}, with {domains} in all"
    hosts = len(view.providers) - view.nested_count
    return NoFit(
        len(whole.nodes),
        len(whole.nodes) - apart + room,
        (ConstraintStep("group_policy", asked, hosts, 0),),
    )


def _count_apart(whole: Cluster) -> int:
    return sum(node.group is not None for node in whole.nodes)


def _count_domains(view: View, cluster: Cluster) -> int:
    """How many domains there are at most; 0: there is no such kind."""
    if cluster.domain == HOST:
        return len(view.providers) - view.nested_count
    return sum(1 for _ in view.groups.of_kind(cluster.domain))


def _distribute(context: Context, cluster: Cluster, ratio: int) -> Cluster:
    """The cluster with all its nodes, distributed over as many groups as the ratio."""
    groups = tuple(context.ids.uuid() for _ in range(ratio)) if cluster.anti_affinity else ()
    empty = tuple(msgspec.structs.replace(group, count=0, next_index=0) for group in cluster.node_groups)
    whole = msgspec.structs.replace(cluster, ratio=ratio, groups=groups, dealt=0, node_groups=empty, nodes=())
    for node_group in cluster.node_groups:
        whole = add_nodes(whole, node_group.name, node_group.count, context.ids.uuid)
    return whole


def _find_fitting_ratio(view: View, now_s: int, context: Context, cluster: Cluster) -> int | None:
    """The smallest larger ratio with which the cluster would fit. What fits with one ratio fits with every
    larger one, so it is halved for."""
    if not cluster.anti_affinity:
        return None
    # With as many groups as nodes no node avoids another: more would not help. Fewer than ``least`` are too
    # few to hold the nodes that keep apart.
    least = ceil(
        _count_apart(_distribute(context, cluster, cluster.ratio)) / max(1, _count_domains(view, cluster))
    )
    low = max(cluster.ratio + 1, least)
    high = min(RATIO_MAX, sum(group.count for group in cluster.node_groups))
    if low > high or not fits(view, now_s, context, _distribute(context, cluster, high)):
        return None
    while low < high:
        middle = (low + high) // 2
        if fits(view, now_s, context, _distribute(context, cluster, middle)):
            high = middle
        else:
            low = middle + 1
    return high


# -- scale --------------------------------------------------------------------------------------


def scale(
    view: View,
    now_s: int,
    context: Context,
    id: str,
    counts: dict[str, int],
    add: tuple[NodeGroup, ...] = (),
    remove: tuple[str, ...] = (),
    ratio: int | None = None,
) -> Enact | Rejection:
    """Give node groups other ``counts`` of nodes, ``add`` node groups and ``remove`` others. Nodes that come
    are claimed now, all of them or nothing is changed; nodes that go are leaving."""
    cluster = _find_changeable(view, id, "scale")
    if isinstance(cluster, Rejection):
        return cluster
    if ratio is not None and ratio != cluster.ratio:
        return ClusterRatioFixed(id, cluster.ratio, ratio)
    leaving = sum(max(0, group.count - counts.get(group.name, group.count)) for group in cluster.node_groups)
    view.steps.take((_STEPS_PER_NODE + leaving // 8) * len(cluster.nodes))
    after = _scale(context, cluster, _find_failed(view, cluster), counts, add, remove)
    if isinstance(after, Rejection):
        return after
    if after == cluster:
        return Enact(())
    after = msgspec.structs.replace(after, fault=None, updated_at_s=now_s)
    coming = after.nodes[len(cluster.nodes) :]
    enact = place_nodes(view, now_s, context, after, coming)
    if isinstance(enact, NoFit):
        return _reject_size(cluster, len(coming), enact, None)
    return _add_record(enact, cluster, after)


def _scale(
    context: Context,
    cluster: Cluster,
    failed: set[str],
    counts: dict[str, int],
    add: tuple[NodeGroup, ...],
    remove: tuple[str, ...],
) -> Cluster | Rejection:
    """The cluster to write; ``failed`` are the names of nodes that have failed. Nodes leave
    before others are added, so that the new ones even out the server groups."""
    after = cluster
    there = tuple(group.name for group in cluster.node_groups)
    for name in dict.fromkeys(remove):
        if name not in there or name in counts:
            return NodeGroupNotFound(cluster.id, name, there)
        after = remove_node_group(after, name)
    larger: dict[str, int] = {}
    fewer: dict[str, int] = {}
    for name, count in counts.items():
        node_group = node_group_of(cluster, name)
        if node_group is None:
            return NodeGroupNotFound(cluster.id, name, there)
        if count < 0:
            return NodeCountWrong(name, count)
        change = fewer if count < node_group.count else larger
        change[name] = abs(count - node_group.count)
    after = mark_leaving(after, fewer, failed)
    taken = {*there, *(node.node_group for node in cluster.nodes)}
    for new in add:
        if new.name in taken:
            return NodeGroupExists(cluster.id, new.name)
        taken.add(new.name)
        empty = msgspec.structs.replace(new, count=0, next_index=0)
        after = msgspec.structs.replace(after, node_groups=(*after.node_groups, empty))
        larger[new.name] = new.count
    wrong = _check_counts(after, larger)
    if wrong is not None:
        return wrong
    for name, count in larger.items():
        after = add_nodes(after, name, count, context.ids.uuid)
    return after


# -- replace and delete -------------------------------------------------------------------------


def replace(
    view: View, now_s: int, context: Context, id: str, node: str, *, force: bool = False
) -> Enact | Rejection:
    """Have another server made in the place of one that has failed; with ``force`` also of one that has
    not."""
    cluster = _find_changeable(view, id, "replace a node of")
    if isinstance(cluster, Rejection):
        return cluster
    found = next((one for one in cluster.nodes if one.name == node), None)
    if found is None:
        return NodeNotFound(id, node)
    if found.state == "leaving":
        return NodeLeaving(id, node)
    if found.state == "replacing":
        return Enact(())
    server = view.records.get(Server, found.server)
    if server is not None and not force and not _has_failed(view, server):
        return NodeNotFailed(id, node, server.state)
    replacing = msgspec.structs.replace(found, state="replacing")
    return Enact((RecordChanged(cluster, _replace_nodes(cluster, (replacing,), now_s)),))


def delete(view: View, now_s: int, context: Context, id: str) -> Enact | Rejection:
    """Delete a cluster: all its nodes are leaving, and the cluster is removed with the last of them."""
    cluster = view.records.get(Cluster, id)
    if cluster is None:
        return ClusterNotFound(id)
    if cluster.state == "deleting":
        return Enact(())
    after = remove_nodes(cluster, {node.name for node in cluster.nodes})
    after = msgspec.structs.replace(after, state="deleting", fault=None, updated_at_s=now_s)
    return Enact((RecordChanged(cluster, after),))


def _find_failed(view: View, cluster: Cluster) -> set[str]:
    """The names of nodes that have failed."""
    servers = {node.name: view.records.get(Server, node.server) for node in cluster.nodes}
    return {name for name, server in servers.items() if server is None or _has_failed(view, server)}


def _has_failed(view: View, server: Server) -> bool:
    return server.state == "error" or (server.place is not None and is_down(view, server.place))


# -- status -------------------------------------------------------------------------------------


class NodeProgress(NamedTuple):
    """A node and its server. ``server`` is None where that is gone, or not there again yet.
    ``is_host_down``: the server cannot be running, whatever its record says."""

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
    nodes = tuple(_find_progress(view, node) for node in cluster.nodes)
    staying = [one for one in nodes if one.node.state != "leaving"]
    return ClusterProgress(
        _find_status(cluster, nodes),
        sum(one.is_ready for one in staying),
        len(staying),
        len(nodes) - len(staying),
        nodes,
    )


def _find_progress(view: View, node: Node) -> NodeProgress:
    server = view.records.get(Server, node.server)
    place = None if server is None else server.place
    return NodeProgress(node, server, place is not None and is_down(view, place))


def _find_status(cluster: Cluster, nodes: tuple[NodeProgress, ...]) -> ClusterStatus:
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


# -- all of them --------------------------------------------------------------------------------


def _find_changeable(view: View, id: str, request: str) -> Cluster | Rejection:
    cluster = view.records.get(Cluster, id)
    if cluster is None:
        return ClusterNotFound(id)
    return ClusterBeingDeleted(id, request) if cluster.state == "deleting" else cluster


def _check_counts(cluster: Cluster, more: dict[str, int] | None = None) -> Rejection | None:
    """What is wrong with how many there are, or would be: ``more`` in addition to the nodes there are;
    without it, as many as the node groups say."""
    if len(cluster.node_groups) > NODE_GROUPS_MAX:
        return TooManyNodeGroups(len(cluster.node_groups), NODE_GROUPS_MAX)
    if more is None:
        more = {group.name: group.count for group in cluster.node_groups}
    for name, count in more.items():
        if count < 0:
            return NodeCountWrong(name, count)
    total = len(cluster.nodes) + sum(more.values())
    return TooManyNodes(total, NODES_MAX) if total > NODES_MAX else None


def _find_duplicate(cluster: Cluster) -> NodeGroupExists | None:
    names = [group.name for group in cluster.node_groups]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    return None if twice is None else NodeGroupExists(cluster.id, twice)


def _reject_size(cluster: Cluster, nodes: int, why: NoFit, fitting_ratio: int | None) -> ClusterDoesNotFit:
    return ClusterDoesNotFit(cluster.name, nodes, cluster.ratio, cluster.domain, why, fitting_ratio)


def _add_record(enact: Enact | Rejection, before: Cluster | None, after: Cluster) -> Enact | Rejection:
    if isinstance(enact, Rejection):
        return enact
    return Enact((RecordChanged(before, after), *enact.changes), enact.commands, quotas=enact.quotas)


def _replace_nodes(cluster: Cluster, changed: tuple[Node, ...], now_s: int) -> Cluster:
    by_name = {node.name: node for node in changed}
    nodes = tuple(by_name.get(node.name, node) for node in cluster.nodes)
    return msgspec.structs.replace(cluster, nodes=nodes, fault=None, updated_at_s=now_s)
