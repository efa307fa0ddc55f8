"""The search for allocation candidates against its definition, on random small forests."""

import os
import random
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from berth.model.events import (
    AggregatesChanged,
    ConsumerChanged,
    InventoryChanged,
    Placed,
    ProviderChanged,
    TraitsChanged,
)
from berth.model.ids import AggregateId, ClassId, ConsumerId, ProviderId, Row
from berth.model.placement import (
    NUMA_ROOT,
    SHARES_VIA_AGGREGATE,
    SOCKET_TRAITS,
    STANDARD_CLASSES,
    Consumer,
    Inventory,
)
from berth.model.scheduling import UNSUFFIXED, Affinity, CandidatesRequest, RequestGroup
from berth.oracle.candidates import Candidate, all_candidates
from berth.search.candidates import Candidates, SearchOptions, find_candidates
from berth.view import View

T = TypeVar("T")

SOAK = os.environ.get("BERTH_SOAK") == "1"

CLASSES = ["VCPU", "MEMORY_MB", "SRIOV_NET_VF"]
TRAITS = ["HW_CPU_X86_AVX", "HW_NUMA_ROOT", "STORAGE_DISK_SSD"]
SOCKETS = [*SOCKET_TRAITS[:2]]
AGGREGATES = [AggregateId(f"20000000-0000-0000-0000-00000000000{n}") for n in range(3)]
SUFFIXES = ["1", "2", "3"]
UNLIMITED = SearchOptions()

unlimited = settings(
    max_examples=50_000 if SOAK else 300,
    derandomize=not SOAK,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
limited = settings(unlimited, max_examples=10_000 if SOAK else 200)


class TreeNode(NamedTuple):
    """A provider to be: ``parent`` counts back from itself among the nodes of its tree, 0 is the root."""

    parent: int
    inventories: dict[str, tuple[Inventory, int]]
    traits: frozenset[str]
    aggregates: frozenset[AggregateId]


# -- forests -------------------------------------------------------------------------------------------


def mostly(usual: st.SearchStrategy[T], odd: st.SearchStrategy[T], one_in: int) -> st.SearchStrategy[T]:
    """The usual thing, and the odd one once in a while: a request in which everything is constrained is
    satisfied by nothing, and compares nothing."""
    return st.integers(1, one_in).flatmap(lambda n: odd if n == one_in else usual)


# Small enough to contend for, large enough that most requests can be met. What is used may exceed what
# there is: inventories shrink.
inventories = st.builds(
    Inventory,
    total=st.integers(3, 8),
    reserved=mostly(st.just(0), st.just(1), 4),
    min_unit=mostly(st.just(1), st.just(2), 6),
    max_unit=mostly(st.just(8), st.integers(2, 4), 4),
    step_size=mostly(st.just(1), st.just(2), 6),
    allocation_ratio=mostly(st.just(1.0), st.sampled_from([0.5, 1.5]), 5),
)
stocks = mostly(
    st.tuples(inventories, mostly(st.just(0), st.sampled_from([1, 2, 9]), 4)).map(lambda stock: (stock,)),
    st.just(()),
    3,
)
nodes = st.builds(
    lambda parent, stocks, traits, socket, sharing, aggregates: TreeNode(
        parent,
        {name: stock[0] for name, stock in zip(CLASSES, stocks, strict=True) if stock},
        traits | socket | sharing,
        aggregates,
    ),
    st.integers(0, 3),
    st.tuples(stocks, stocks, stocks),
    st.frozensets(st.sampled_from(TRAITS), max_size=3),
    st.frozensets(st.sampled_from(SOCKETS), max_size=1),
    mostly(st.just(frozenset[str]()), st.just(frozenset({SHARES_VIA_AGGREGATE})), 5),
    st.frozensets(st.sampled_from(AGGREGATES), max_size=2),
)
forests = mostly(
    st.lists(st.lists(nodes, min_size=1, max_size=5), min_size=1, max_size=3),
    st.lists(nodes.map(lambda node: [node]), min_size=1, max_size=5),
    4,
)


def provider_id(tree: int, node: int) -> ProviderId:
    return ProviderId(f"0000000{tree}-0000-0000-0000-00000000000{node}")


def planted(forest: list[list[TreeNode]]) -> View:
    """A view of the forest. Row 0 stays empty, as a provider that has gone would leave it."""
    view = View()
    row = 0
    for tree_number, tree in enumerate(forest):
        for number, node in enumerate(tree):
            row += 1
            id = provider_id(tree_number, number)
            parent = provider_id(tree_number, max(0, number - 1 - node.parent)) if number else None
            view.apply(ProviderChanged(id, Row(row), None, Placed(f"{tree_number}.{number}", parent)))
            _furnish(view, id, node)
    return view


def _furnish(view: View, id: ProviderId, node: TreeNode) -> None:
    held = []
    for name, (inventory, used) in node.inventories.items():
        class_id = ClassId(STANDARD_CLASSES.index(name))
        view.apply(InventoryChanged(id, class_id, None, inventory))
        if used:
            held.append((class_id, used))
    if held:
        consumer = Consumer(1, "project", "user", None, 0, 0)
        consumer_id = ConsumerId("1" + id[1:])
        view.apply(ConsumerChanged(consumer_id, None, consumer, (), ((id, tuple(held)),)))
    view.apply(TraitsChanged(id, (), tuple(sorted(node.traits))))
    view.apply(AggregatesChanged(id, (), tuple(sorted(node.aggregates))))


# -- requests ------------------------------------------------------------------------------------------

resources = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 3), min_size=1, max_size=2)
trait_names = st.sampled_from([*TRAITS, *TRAITS, SHARES_VIA_AGGREGATE])
guest_required = mostly(
    st.just(()), st.lists(st.lists(trait_names, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple), 2
)
seldom_traits = mostly(st.just(frozenset[str]()), st.frozensets(trait_names, min_size=1, max_size=1), 5)
alternatives = st.lists(trait_names, min_size=1, max_size=2, unique=True).map(tuple)
required = st.lists(alternatives, min_size=1, max_size=2).map(tuple)
aggregates = st.sampled_from(AGGREGATES)
member_of = st.lists(
    st.lists(aggregates, min_size=1, max_size=2, unique=True).map(tuple), min_size=1, max_size=2
).map(tuple)


@st.composite
def groups(draw: st.DrawFn, suffix: str, forest: list[list[TreeNode]], resourceless: bool) -> RequestGroup:
    def seldom(strategy: st.SearchStrategy[T], otherwise: T) -> T:
        return draw(mostly(st.just(otherwise), strategy, 5))

    trees = st.integers(0, len(forest) - 1)
    within = trees.flatmap(
        lambda tree: st.integers(0, len(forest[tree]) - 1).map(lambda node: provider_id(tree, node))
    )
    return RequestGroup(
        suffix=suffix,
        resources=() if resourceless else tuple(draw(resources).items()),
        required=draw(required) if resourceless and draw(st.booleans()) else seldom(required, ()),
        forbidden=draw(seldom_traits),
        member_of=draw(member_of) if resourceless and draw(st.booleans()) else seldom(member_of, ()),
        not_member_of=seldom(aggregates.map(lambda id: frozenset({id})), frozenset[AggregateId]()),
        in_tree=draw(mostly(st.none(), within, 5)),
    )


def distinct_sets(suffixes: list[str]) -> st.SearchStrategy[tuple[frozenset[str], ...]]:
    return st.lists(st.frozensets(st.sampled_from(suffixes), min_size=1), max_size=2).map(tuple)


def affinities(suffixes: list[str]) -> st.SearchStrategy[tuple[Affinity, ...]]:
    near = st.frozensets(st.sampled_from(suffixes[:-1]), min_size=1)
    one = st.builds(Affinity, st.just(suffixes[-1]), near, st.booleans(), st.booleans())
    return mostly(st.just(()), one.map(lambda affinity: (affinity,)), 2)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[list[TreeNode]], CandidatesRequest]:
    """A forest and a request about it.

    As on the wire, only suffixed groups are in same_subtree sets or without resources, and a caller
    older than nested providers knows neither.
    """
    forest = draw(forests)
    nested = draw(mostly(st.just(True), st.just(False), 5))
    suffixes = SUFFIXES[: draw(st.integers(0, 3))]
    asked = []
    if not suffixes or draw(st.booleans()):
        asked.append(draw(groups(UNSUFFIXED, forest, False)))
    for suffix in suffixes:
        resourceless = nested and draw(mostly(st.just(False), st.just(True), 5))
        asked.append(draw(groups(suffix, forest, resourceless)))
    subtrees: list[frozenset[str]] = []
    if nested and suffixes and draw(st.booleans()):
        subtrees = draw(st.lists(st.frozensets(st.sampled_from(suffixes), min_size=1), max_size=2))
    request = CandidatesRequest(
        groups=tuple(asked),
        isolate=draw(st.booleans()),
        root_required=draw(seldom_traits),
        root_forbidden=draw(seldom_traits),
        same_subtrees=tuple(subtrees),
        nested=nested,
        distinct=draw(distinct_sets(suffixes)) if nested and suffixes else (),
        affinities=draw(affinities(suffixes)) if nested and len(suffixes) > 1 else (),
        guest_required=draw(guest_required),
        guest_groups=draw(st.frozensets(st.sampled_from([UNSUFFIXED, *suffixes]))),
        root_member_of=draw(mostly(st.just(()), member_of, 5)),
        root_not_member_of=draw(mostly(st.just(frozenset()), aggregates.map(lambda id: frozenset({id})), 5)),
    )
    return forest, request


def feasible_question(rng: random.Random) -> tuple[list[list[TreeNode]], CandidatesRequest]:
    """A forest of well furnished trees and a request with few constraints."""

    def some(names: list[T], chance: float) -> frozenset[T]:
        return frozenset(name for name in names if rng.random() < chance)

    def stock() -> tuple[Inventory, int]:
        inventory = Inventory(
            total=rng.randint(2, 6),
            min_unit=1 + (rng.random() < 0.1),
            max_unit=rng.choice([2, 5, 5, 5]),
            step_size=1 + (rng.random() < 0.1),
            allocation_ratio=rng.choice([1.0, 1.0, 1.0, 1.5]),
        )
        return inventory, rng.choice([0, 0, 0, 0, 0, 1, 2, 9])

    def node(sharing: float) -> TreeNode:
        traits = some(TRAITS, 0.5) | some([SHARES_VIA_AGGREGATE], sharing) | some(SOCKETS, 0.3)
        return TreeNode(
            rng.randint(0, 3),
            {k: stock() for k in sorted(some(CLASSES, 0.75))},
            traits,
            some(AGGREGATES, 0.3),
        )

    def group(suffix: str) -> RequestGroup:
        resourceless = bool(suffix) and rng.random() < 0.15
        narrowing = rng.random()
        tree = rng.randrange(len(forest))
        return RequestGroup(
            suffix=suffix,
            resources=()
            if resourceless
            else tuple(
                (name, rng.randint(1, 2))
                for name in rng.sample(CLASSES, rng.choice([1, 1, 2] if suffix else [1, 2, 3]))
            ),
            required=tuple(tuple(rng.sample(TRAITS, rng.randint(1, 2))) for _ in range(rng.randint(1, 2)))
            if narrowing < 0.2 or (resourceless and narrowing < 0.7)
            else (),
            forbidden=some(TRAITS, 0.5) if 0.2 < narrowing < 0.3 else frozenset(),
            member_of=(tuple(rng.sample(AGGREGATES, 2)),)
            if 0.3 < narrowing < 0.4 or (resourceless and narrowing > 0.7)
            else (),
            not_member_of=some(AGGREGATES, 0.5) if 0.4 < narrowing < 0.5 else frozenset(),
            in_tree=provider_id(tree, rng.randrange(len(forest[tree]))) if 0.5 < narrowing < 0.6 else None,
        )

    sharing = rng.choice([0, 0, 0.15, 0.3])
    size = rng.choice([1, 3, 4, 5, 5])
    forest = [
        [node(sharing) for _ in range(rng.randint(1 + size // 2, size))] for _ in range(rng.randint(1, 3))
    ]
    suffixes = SUFFIXES[: rng.choice([0, 1, 2, 2, 3])]
    names = ([UNSUFFIXED] if not suffixes or rng.random() < 0.5 else []) + suffixes
    asked = tuple(group(suffix) for suffix in names)
    subtrees = [frozenset(rng.sample(suffixes, rng.randint(1, len(suffixes))))] if suffixes else []
    request = CandidatesRequest(
        groups=asked,
        isolate=rng.random() < 0.4,
        root_required=some(TRAITS, 0.3) if rng.random() < 0.1 else frozenset(),
        root_forbidden=some(TRAITS, 0.3) if rng.random() < 0.1 else frozenset(),
        same_subtrees=tuple(subtrees) if rng.random() < 0.4 else (),
        nested=rng.random() < 0.9 or not all(group.resources for group in asked),
        distinct=(frozenset(rng.sample(suffixes, 2)),) if len(suffixes) > 1 and rng.random() < 0.3 else (),
        affinities=(Affinity(suffixes[-1], frozenset(suffixes[:-1]), rng.random() < 0.5, rng.random() < 0.5),)
        if len(suffixes) > 1 and rng.random() < 0.3
        else (),
        guest_required=tuple((name,) for name in sorted(some(TRAITS, 0.5))) if rng.random() < 0.3 else (),
        guest_groups=frozenset(rng.sample(names, rng.randint(0, len(names)))),
        root_member_of=(tuple(rng.sample(AGGREGATES, 2)),) if rng.random() < 0.1 else (),
        root_not_member_of=some(AGGREGATES, 0.3) if rng.random() < 0.1 else frozenset(),
    )
    return forest, request


# -- properties ----------------------------------------------------------------------------------------


def search(view: View, request: CandidatesRequest, options: SearchOptions) -> Candidates:
    found = find_candidates(view, request, options)
    assert isinstance(found, Candidates), found
    return found


def plain(view: View, found: Candidates) -> list[Candidate]:
    return [
        (
            frozenset(
                ((record.id, view.classes.name_of(class_id)), amount)
                for record, amounts in candidate.allocations
                for class_id, amount in amounts
            ),
            frozenset(
                (suffix, frozenset(record.id for record in records)) for suffix, records in candidate.mappings
            ),
        )
        for candidate in found.requests
    ]


@unlimited
@given(questions())
def test_search_finds_all_candidates_and_nothing_else(
    question: tuple[list[list[TreeNode]], CandidatesRequest],
) -> None:
    forest, request = question
    view = planted(forest)
    expected = all_candidates(view, request)
    for breadth_first in (True, False):
        found = search(view, request, SearchOptions(breadth_first=breadth_first))
        listed = plain(view, found)
        note(f"missing: {expected - set(listed)}")
        note(f"wrong: {set(listed) - expected}")
        assert set(listed) == expected
        assert len(listed) == len(expected), "a candidate is given twice"


@pytest.mark.parametrize("block", range(4_000 if SOAK else 20))
def test_search_finds_all_candidates_of_feasible_requests(block: int) -> None:
    """As above, on questions that mostly have many answers; those above are small, and mostly have none."""
    for seed in range(block * 250, (block + 1) * 250):
        forest, request = feasible_question(random.Random(seed))
        view = planted(forest)
        expected = all_candidates(view, request)
        listed = plain(view, search(view, request, UNLIMITED))
        differing = f"seed {seed}: missing {expected - set(listed)}, wrong {set(listed) - expected}"
        assert set(listed) == expected, differing
        assert len(listed) == len(expected), f"seed {seed}: a candidate is given twice"


@limited
@given(questions(), st.integers(1, 6), st.integers(-1, 8), st.none() | st.integers(0, 9), st.booleans())
def test_limits_leave_that_many_of_the_candidates(
    question: tuple[list[list[TreeNode]], CandidatesRequest],
    limit: int,
    most: int,
    seed: int | None,
    breadth_first: bool,
) -> None:
    forest, asked = question
    most = most or -1
    request = CandidatesRequest(
        groups=asked.groups,
        isolate=asked.isolate,
        root_required=asked.root_required,
        root_forbidden=asked.root_forbidden,
        same_subtrees=asked.same_subtrees,
        nested=asked.nested,
        limit=limit,
    )
    view = planted(forest)
    expected = all_candidates(view, request)

    def once() -> list[Candidate]:
        rng = random.Random(seed) if seed is not None else None
        return plain(view, search(view, request, SearchOptions(most, breadth_first, rng)))

    listed = once()
    assert set(listed) <= expected
    assert len(set(listed)) == len(listed), "a candidate is given twice"
    bounds = [limit, len(expected)] + ([most] if most >= 0 else [])
    assert len(listed) == min(bounds)
    assert once() == listed, "the same question has another answer"


@limited
@given(questions())
def test_trees_that_candidates_take_from_are_named_once(
    question: tuple[list[list[TreeNode]], CandidatesRequest],
) -> None:
    forest, request = question
    view = planted(forest)
    found = search(view, request, UNLIMITED)
    used = {record.id for candidate in found.requests for record, _ in candidate.allocations}
    wanted = {view.providers[id].root.id for id in used} if request.nested else used
    listed = [record.id for record in found.touched]
    assert set(listed) == wanted
    assert len(listed) == len(wanted), "a provider is summarised twice"


@limited
@given(questions())
def test_every_candidate_alone_can_be_claimed(
    question: tuple[list[list[TreeNode]], CandidatesRequest],
) -> None:
    """What the search offers the ledger accepts, but for steps that sums over groups may miss."""
    forest, request = question
    view = planted(forest)
    for candidate in search(view, request, UNLIMITED).requests:
        for record, amounts in candidate.allocations:
            for class_id, amount in amounts:
                inventory = record.inventories[class_id]
                assert record.used.get(class_id, 0) + amount <= inventory.capacity
                assert inventory.min_unit <= amount <= inventory.max_unit


def test_a_numa_cell_is_not_taken_for_another_device_below_its_host() -> None:
    """Where a device beside no cell will do, a choice that leads nowhere with the one leads on with the
    other."""
    device = TreeNode(0, {"SRIOV_NET_VF": (Inventory(3), 0)}, frozenset(), frozenset())
    cell = device._replace(parent=1, traits=frozenset({NUMA_ROOT}))
    host = TreeNode(0, {}, frozenset(), frozenset())
    view = planted([[host, device, cell]])
    groups = tuple(RequestGroup(suffix=suffix, resources=(("SRIOV_NET_VF", 1),)) for suffix in SUFFIXES)
    near = (Affinity("1", frozenset("23"), or_outside=True), Affinity("2", frozenset("3")))
    request = CandidatesRequest(groups=groups, affinities=near)
    expected = all_candidates(view, request)
    assert len(expected) == 3
    assert set(plain(view, search(view, request, UNLIMITED))) == expected


def test_a_numa_cell_is_not_taken_for_one_of_another_socket() -> None:
    """Where a place on the same socket will do, a cell that leads nowhere is not like one of another socket,
    though both have as much."""
    cells = [
        TreeNode(number, {"VCPU": (Inventory(vcpus), 0)}, frozenset({NUMA_ROOT, *socket}), frozenset())
        for number, (vcpus, socket) in enumerate(
            ((2, ()), (3, SOCKETS[:1]), (3, SOCKETS[1:]), (2, SOCKETS[1:]))
        )
    ]
    view = planted([[TreeNode(0, {}, frozenset(), frozenset()), *cells]])
    groups = tuple(
        RequestGroup(suffix=suffix, resources=(("VCPU", vcpus),))
        for suffix, vcpus in zip(SUFFIXES, (2, 2, 1), strict=True)
    )
    near = (
        Affinity("2", frozenset("1"), by_socket=True),
        Affinity("3", frozenset("12"), by_socket=True),
    )
    request = CandidatesRequest(groups=groups, affinities=near)
    expected = all_candidates(view, request)
    assert len(expected) == 2
    assert set(plain(view, search(view, request, UNLIMITED))) == expected


@pytest.mark.parametrize("first", [0, 1])
def test_a_host_is_not_taken_for_one_whose_cells_are_on_other_sockets(first: int) -> None:
    """Two hosts that differ in nothing else: the device is on the socket of the cell with room, or is not."""
    cell = TreeNode(0, {"VCPU": (Inventory(4), 0)}, frozenset({NUMA_ROOT, SOCKETS[0]}), frozenset())
    device = TreeNode(0, {"SRIOV_NET_VF": (Inventory(3), 0)}, frozenset(), frozenset())
    host = TreeNode(0, {}, frozenset(), frozenset())
    hosts = [
        [host, cell, TreeNode(1, {}, frozenset({NUMA_ROOT, SOCKETS[number]}), frozenset()), device]
        for number in (first, 1 - first)
    ]
    view = planted(hosts)
    groups = (
        RequestGroup(suffix="1", resources=(("VCPU", 3),)),
        RequestGroup(suffix="2", resources=(("SRIOV_NET_VF", 1),)),
    )
    request = CandidatesRequest(groups=groups, affinities=(Affinity("2", frozenset("1"), by_socket=True),))
    expected = all_candidates(view, request)
    assert len(expected) == 1
    assert set(plain(view, search(view, request, UNLIMITED))) == expected


def test_oracle_itself_on_a_forest_worked_out_by_hand() -> None:
    """Two hosts with two cells each: two isolated groups of two on each host, in both orders."""
    cell = TreeNode(0, {"VCPU": (Inventory(4), 0)}, frozenset(), frozenset())
    host = TreeNode(0, {}, frozenset(), frozenset())
    # The second cell's parent is the host too: it counts back past the first.
    view = planted([[host, cell, cell._replace(parent=1)]] * 2)
    wanted = (("VCPU", 3),)
    groups = (RequestGroup(suffix="1", resources=wanted), RequestGroup(suffix="2", resources=wanted))
    found = all_candidates(view, CandidatesRequest(groups=groups, isolate=True))
    assert len(found) == 4
    assert all(len(amounts) == 2 for amounts, _ in found)
    assert found == all_candidates(view, CandidatesRequest(groups=groups)), "3 + 3 do not fit on a cell of 4"
    assert not all_candidates(view, CandidatesRequest(groups=groups, nested=False))
