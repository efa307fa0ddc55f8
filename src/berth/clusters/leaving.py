"""Which nodes of a cluster leave when it shrinks: so many of each node group, and so that its server groups
stay as even as they can.

First one after the other is chosen, out of the largest server group; of a node group that has the least
choice left; then a node that has failed; then the last that came. That is even nearly always. Where it is
not, two nodes of a node group change places, the one that was to go and the one that was to stay, along a
path of such exchanges from a smaller server group to one that has two more or beyond: when there is none any
more, no choice is more even.
"""

from collections.abc import Collection, Mapping, Sequence

from berth.model.clusters import Node

Exchange = tuple[Node, Node]
"""Who stays after all, and who goes in its place."""


def choose_leavers(
    candidates: Sequence[Node],
    sizes: Mapping[str, int],
    fewer: Mapping[str, int],
    failed: Collection[str] = (),
) -> set[str]:
    """The names of those that leave. ``sizes``: how many nodes each server group has now."""
    size = dict(sizes)
    goes, stays = _one_by_one(candidates, size, fewer, failed)
    while (path := _path(size, goes, stays)) is not None:
        for back, gone in path:
            goes[goes.index(back)] = gone
            stays[stays.index(gone)] = back
        size[path[0][0].group or ""] += 1
        size[path[-1][1].group or ""] -= 1
    return {node.name for node in goes}


def _one_by_one(
    candidates: Sequence[Node], size: dict[str, int], fewer: Mapping[str, int], failed: Collection[str]
) -> tuple[list[Node], list[Node]]:
    """Who goes and who stays; ``size`` is what is left of the groups then."""
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


def _path(size: Mapping[str, int], goes: Sequence[Node], stays: Sequence[Node]) -> list[Exchange] | None:
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
