"""Who leaves a cluster that shrinks: as even a choice as there is, by comparison with all of them."""

import itertools
import random
from collections import Counter

import pytest

from berth.clusters.distribution import choose_leavers
from berth.model.clusters import Node

pytestmark = pytest.mark.fast


def _difference(nodes: list[Node], sizes: dict[str, int], leaving: set[str]) -> int:
    left = Counter(sizes)
    left.subtract(node.group or "" for node in nodes if node.name in leaving)
    return max(left.values()) - min(left.values())


@pytest.mark.parametrize("seed", range(10))
def test_no_choice_is_more_even(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        groups = [f"group{number}" for number in range(rng.randint(1, 4))]
        nodes = [
            Node(name=f"{name}-{index}", node_group=name, index=index, server="", group=rng.choice(groups))
            for name in "abc"
            for index in range(rng.randint(0, 4))
        ]
        held = Counter(node.group for node in nodes)
        sizes = {group: held[group] + rng.randint(0, 2) for group in groups}
        by_name = {name: [node for node in nodes if node.node_group == name] for name in "abc"}
        fewer = {name: rng.randint(0, len(there)) for name, there in by_name.items()}

        leaving = choose_leavers([node for node in nodes if fewer[node.node_group]], sizes, fewer)

        gone = Counter(node.node_group for node in nodes if node.name in leaving)
        assert gone == Counter({name: count for name, count in fewer.items() if count})
        choices = itertools.product(
            *(itertools.combinations(there, fewer[name]) for name, there in by_name.items())
        )
        best = min(
            _difference(nodes, sizes, {node.name for node in itertools.chain(*choice)}) for choice in choices
        )
        assert _difference(nodes, sizes, leaving) == best
