"""Which nodes a cluster has, and which server group each is in: a cluster that grows deals, one that shrinks
takes back.

New nodes are dealt to the server groups in turn, across node groups; where nodes have left, to a group that
has the fewest first, so that no two groups differ by more than one if they did not before. The same holds for
those that leave: of a node group, one goes whose server group has the most. Nodes that are leaving are not
counted, nodes that are being replaced are.
"""

from collections import Counter
from collections.abc import Callable, Collection

import msgspec

from berth.clusters.leaving import choose_leavers
from berth.model.clusters import Cluster, Node, NodeGroup


def keeps_apart(cluster: Cluster, node_group: NodeGroup) -> bool:
    """Whether the nodes of a node group avoid others."""
    return not set(cluster.anti_affinity).isdisjoint(node_group.processes)


def node_group_of(cluster: Cluster, name: str) -> NodeGroup | None:
    return next((group for group in cluster.node_groups if group.name == name), None)


def staying(cluster: Cluster) -> list[Node]:
    """The nodes that the cluster shall go on to have."""
    return [node for node in cluster.nodes if node.state != "leaving"]


def group_sizes(cluster: Cluster) -> dict[str, int]:
    """How many nodes each server group shall go on to have."""
    counted = Counter(node.group for node in staying(cluster))
    return {group: counted[group] for group in cluster.groups}


def add_nodes(cluster: Cluster, name: str, count: int, new_id: Callable[[], str]) -> Cluster:
    """The cluster with so many nodes more in a node group; their servers have ids, and are not there yet."""
    node_group = node_group_of(cluster, name)
    assert node_group is not None, f"{name} is a node group of the cluster"
    is_apart = keeps_apart(cluster, node_group)
    size, dealt = group_sizes(cluster), cluster.dealt
    nodes = []
    for index in range(node_group.next_index, node_group.next_index + count):
        group = None
        if is_apart:
            group = _next_group(cluster.groups, size, dealt)
            size[group] += 1
            dealt += 1
        node = Node(name=f"{name}-{index}", node_group=name, index=index, server=new_id(), group=group)
        nodes.append(node)
    larger = msgspec.structs.replace(
        node_group, count=node_group.count + count, next_index=node_group.next_index + count
    )
    return msgspec.structs.replace(
        _with_node_group(cluster, larger), nodes=(*cluster.nodes, *nodes), dealt=dealt
    )


def _next_group(groups: tuple[str, ...], size: dict[str, int], dealt: int) -> str:
    """The first, in turn, of the groups with the fewest nodes."""
    turn = dealt % len(groups)
    return min((*groups[turn:], *groups[:turn]), key=size.__getitem__)


def mark_leaving(cluster: Cluster, fewer: dict[str, int], failed: Collection[str] = ()) -> Cluster:
    """The cluster with so many nodes of each of these node groups on their way out."""
    candidates = [node for node in staying(cluster) if fewer.get(node.node_group)]
    leaving = choose_leavers(candidates, group_sizes(cluster), fewer, failed)
    after = cluster
    for name, count in fewer.items():
        node_group = node_group_of(after, name)
        assert node_group is not None, f"{name} is a node group of the cluster"
        after = _with_node_group(after, msgspec.structs.replace(node_group, count=node_group.count - count))
    return remove_nodes(after, leaving)


def remove_nodes(cluster: Cluster, names: set[str]) -> Cluster:
    """The cluster with these nodes on their way out."""
    nodes = tuple(
        msgspec.structs.replace(node, state="leaving") if node.name in names else node
        for node in cluster.nodes
    )
    return msgspec.structs.replace(cluster, nodes=nodes)


def remove_node_group(cluster: Cluster, name: str) -> Cluster:
    """The cluster without a node group; its nodes are on their way out."""
    after = remove_nodes(cluster, {node.name for node in cluster.nodes if node.node_group == name})
    rest = tuple(group for group in cluster.node_groups if group.name != name)
    return msgspec.structs.replace(after, node_groups=rest)


def _with_node_group(cluster: Cluster, changed: NodeGroup) -> Cluster:
    node_groups = tuple(changed if group.name == changed.name else group for group in cluster.node_groups)
    return msgspec.structs.replace(cluster, node_groups=node_groups)
