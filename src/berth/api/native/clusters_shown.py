"""Clusters and their nodes as /berth/v1 shows them, at one look."""

from berth.api.kernel.access import Access
from berth.api.kernel.disclosure import host_id_of, words_for
from berth.api.kernel.times import show_time
from berth.api.native import wire_clusters as wire
from berth.clusters.status import ClusterProgress, NodeProgress, summarize_cluster
from berth.model.clusters import Cluster, NodeGroup
from berth.model.servers import status_of
from berth.view import View


def summary(access: Access, view: View, cluster: Cluster) -> wire.ClusterSummary:
    return _summary(access, cluster, summarize_cluster(view, cluster))


def whole(access: Access, view: View, cluster: Cluster) -> wire.Cluster:
    """With the names of hosts for callers that may know them."""
    seen = summarize_cluster(view, cluster)
    above = _summary(access, cluster, seen)
    return wire.Cluster(
        **{name: getattr(above, name) for name in above.__struct_fields__},
        groups=list(cluster.groups),
        node_groups=[_node_group(group) for group in cluster.node_groups],
        nodes=[_node(access, view, one) for one in seen.nodes],
    )


def _summary(access: Access, cluster: Cluster, seen: ClusterProgress) -> wire.ClusterSummary:
    return wire.ClusterSummary(
        uuid=cluster.id,
        name=cluster.name,
        state=seen.status,
        progress=wire.Progress(seen.ready, seen.wanted, seen.leaving),
        anti_affinity=list(cluster.anti_affinity),
        anti_affinity_ratio=cluster.ratio,
        anti_affinity_domain=cluster.domain,
        project_id=cluster.project,
        user_id=cluster.user,
        created_at=show_time(cluster.created_at_s),
        updated_at=show_time(cluster.updated_at_s),
        fault=_fault(access, cluster.fault),
    )


def _node_group(group: NodeGroup) -> wire.ClusterNodeGroup:
    image = None if group.image is None else group.image.name or group.image.id
    return wire.ClusterNodeGroup(group.name, group.flavor.name, image, group.count, list(group.processes))


def _fault(access: Access, fault: str | None) -> str | None:
    """What stands behind the bracket tells of hosts."""
    return fault if fault is None or access.sees_hosts else fault.partition(" (")[0]


def _node(access: Access, view: View, one: NodeProgress) -> wire.ClusterNode:
    node, server = one.node, one.server
    return wire.ClusterNode(
        name=node.name,
        node_group=node.node_group,
        index=node.index,
        state=node.state,
        server_uuid=node.server,
        status="DELETED" if server is None else status_of(server),
        task=None if server is None else server.task,
        host_name=one.host if access.sees_hosts else None,
        host_id=None if server is None or one.host is None else host_id_of(server.project, one.host),
        host_down=one.is_host_down,
        group_uuid=node.group,
        fault=_node_fault(access, view, one),
    )


def _node_fault(access: Access, view: View, one: NodeProgress) -> str | None:
    server = one.server
    if server is None:
        return None
    if server.is_locked and one.node.state != "wanted":
        return "The server is locked: it is deleted as soon as it is unlocked."
    return None if server.fault is None else words_for(access, view, server, server.fault.message)
