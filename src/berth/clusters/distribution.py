"""How the nodes of a cluster are distributed over its server groups, when it grows and when it shrinks.

New nodes go to the server groups in turn, across node groups; where nodes have left, first to a group that
has the fewest, so that no two groups differ by more than one if they did not before. Nodes that are leaving
are not counted, nodes that are being replaced are.

When the cluster shrinks, nodes are chosen to leave so that the server groups stay as even as possible. They
are first chosen one by one: from the largest server group; among those, from the node group with the least
choice left; then a node that has failed; then the newest. That is nearly always even. Where it is not, a node
that was to leave and a node of the same node group that was to stay change places, along a path of such
exchanges from a smaller server group to one that has at least two more nodes. When there is no such path, no
choice is more even.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from berth.model.clusters import Cluster, Node, NodeGroup


def keeps_apart(cluster: Cluster, node_group: NodeGroup) -> bool:
    """Whether the nodes of a node group avoid others."""
    return not set(cluster.anti_affinity).isdisjoint(node_group.processes)


def node_group_of(cluster: Cluster, name: str) -> NodeGroup | None:
    return next((group for group in cluster.node_groups if group.name == name), None)


def find_staying(cluster: Cluster) -> list[Node]:
    """The nodes that the cluster is to keep."""
    return [node for node in cluster.nodes if node.state != "leaving"]


def group_sizes(cluster: Cluster) -> dict[str, int]:
    """How many nodes each server group is to keep."""
    counted = Counter(node.group for node in find_staying(cluster))
    return {group: counted[group] for group in cluster.groups}


def add_nodes(cluster: Cluster, name: str, count: int, new_id: Callable[[], str]) -> Cluster:
    """The cluster with ``count`` more nodes in a node group; their servers have ids, and do not exist yet."""
    node_group = node_group_of(cluster, name)
    assert node_group is not None, f"{name} is a node group of the cluster"
    is_apart = keeps_apart(cluster, node_group)
    size, dealt = group_sizes(cluster), cluster.dealt
    nodes = []
    for index in range(node_group.next_index, node_group.next_index + count):
        group = None
        if is_apart:
            group = _find_next_group(cluster.groups, size, dealt)
            size[group] += 1
            dealt += 1
        node = Node(name=f"{name}-{index}", node_group=name, index=index, server=new_id(), group=group)
        nodes.append(node)
    larger = msgspec.structs.replace(
        node_group, count=node_group.count + count, next_index=node_group.next_index + count
    )
    return msgspec.structs.replace(
        _replace_node_group(cluster, larger), nodes=(*cluster.nodes, *nodes), dealt=dealt
    )


def _find_next_group(groups: tuple[str, ...], size: dict[str, int], dealt: int) -> str:
    """The first, in turn, of the groups with the fewest nodes."""
    turn = dealt % len(groups)
    return min((*groups[turn:], *groups[:turn]), key=size.__getitem__)


def mark_leaving(cluster: Cluster, fewer: dict[str, int], failed: Collection[str] = ()) -> Cluster:
    """The cluster with as many nodes of each node group leaving as ``fewer`` says."""
    candidates = [node for node in find_staying(cluster) if fewer.get(node.node_group)]
    leaving = choose_leavers(candidates, group_sizes(cluster), fewer, failed)
    after = cluster
    for name, count in fewer.items():
        node_group = node_group_of(after, name)
        assert node_group is not None, f"{name} is a node group of the cluster"
        after = _replace_node_group(
            after, msgspec.structs.replace(node_group, count=node_group.count - count)
        )
    return remove_nodes(after, leaving)


def remove_nodes(cluster: Cluster, names: set[str]) -> Cluster:
    """The cluster with these nodes leaving."""
    nodes = tuple(
        msgspec.structs.replace(node, state="leaving") if node.name in names else node
        for node in cluster.nodes
    )
    return msgspec.structs.replace(cluster, nodes=nodes)


def remove_node_group(cluster: Cluster, name: str) -> Cluster:
    """The cluster without a node group; its nodes are leaving."""
    after = remove_nodes(cluster, {node.name for node in cluster.nodes if node.node_group == name})
    rest = tuple(group for group in cluster.node_groups if group.name != name)
    return msgspec.structs.replace(after, node_groups=rest)


def _replace_node_group(cluster: Cluster, changed: NodeGroup) -> Cluster:
    node_groups = tuple(changed if group.name == changed.name else group for group in cluster.node_groups)
    return msgspec.structs.replace(cluster, node_groups=node_groups)


# -- which nodes leave --------------------------------------------------------------------------

Exchange = tuple[Node, Node]
"""The node that stays after all, and the node that leaves in its place."""


def choose_leavers(
    candidates: Sequence[Node],
    sizes: Mapping[str, int],
    fewer: Mapping[str, int],
    failed: Collection[str] = (),
) -> set[str]:
    """The names of the nodes that leave. ``sizes``: how many nodes each server group has now."""
    size = dict(sizes)
    goes, stays = _choose_in_turn(candidates, size, fewer, failed)
    while (path := _find_path(size, goes, stays)) is not None:
        for back, gone in path:
            goes[goes.index(back)] = gone
            stays[stays.index(gone)] = back
        size[path[0][0].group or ""] += 1
        size[path[-1][1].group or ""] -= 1
    return {node.name for node in goes}


def _choose_in_turn(
    candidates: Sequence[Node], size: dict[str, int], fewer: Mapping[str, int], failed: Collection[str]
) -> tuple[list[Node], list[Node]]:
    """The nodes that leave and the nodes that stay; ``size`` is changed to what is left of the groups."""
    goes: list[Node] = []
    stays = list(candidates)
    owed = {name: count for name, count in fewer.items() if count}
    while owed:
        choice = {name: sum(node.node_group == name for node in stays) - owed[name] for name in owed}
        ranked = [
            (size.get(node.group or "", 0), -choice[node.node_group], node.name in failed, node.index)
            if node.node_group in owed
            else ()
            for node in stays
        ]
        node = stays.pop(ranked.index(max(ranked)))
        goes.append(node)
        if node.group is not None:
            size[node.group] -= 1
        owed[node.node_group] -= 1
        owed = {name: count for name, count in owed.items() if count}
    return goes, stays


def _find_path(size: Mapping[str, int], goes: Sequence[Node], stays: Sequence[Node]) -> list[Exchange] | None:
    """Exchanges that give a smaller group one more, and take it from one that has at least two more."""
    for start in sorted(size, key=lambda group: size[group]):
        reached: dict[str, list[Exchange]] = {start: []}
        waiting = [start]
        for group in waiting:
            for back in (node for node in goes if node.group == group):
                for gone in stays:
                    if gone.node_group != back.node_group or gone.group is None or gone.group in reached:
                        continue
                    path = [*reached[group], (back, gone)]
                    if size[gone.group] >= size[start] + 2:
                        return path
                    reached[gone.group] = path
                    waiting.append(gone.group)
    return None
