"""Clusters at random: what fits is placed, exactly, and no domain ever has more than the ratio.

With r groups filled in turn, n nodes of one size fit exactly if the sum over all domains of min(r, how many
fit there) is n or more. The oracle counts; it does not place.
"""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.clusters import proposals as clusters
from berth.clusters.distribution import group_sizes
from berth.ledger import decide
from berth.model import commands as c
from berth.model.clusters import Cluster, NodeGroup
from berth.model.groups import Group
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import Inventory, Label
from berth.model.rejections import ClusterDoesNotFit, Rejection
from berth.model.servers import Flavor, Server
from berth.runtime.ids import Ids
from berth.sagas.proposals import Context
from berth.view import View
from tests.options import scheduler_options

pytestmark = pytest.mark.fast

FLAVOR = Flavor(id="f", name="f", vcpus=1, memory_mb=1)
WEIGHERS = st.sampled_from([("cpu=1.0",), ("pack",), ("cpu=-1.0", "memory=1.0")])
ROOMS = st.lists(st.integers(0, 6), min_size=1, max_size=12)


def host(number: int) -> ProviderId:
    return ProviderId(f"host-{number}")


def must(view: View, command: c.Command) -> None:
    verdict = decide(view, command, 0)
    assert not isinstance(verdict, Rejection), verdict
    for event in verdict:
        view.apply(event)


def fleet(rooms: list[int], racks: list[int] | None = None) -> View:
    """Hosts of a cell with room for so many nodes each; one of the classes is never what is short."""
    view = View()
    must(view, c.LabelAggregate(AggregateId("cell"), Label("cell", "cell")))
    for rack in sorted(set(racks or ())):
        must(view, c.LabelAggregate(AggregateId(f"rack-{rack}"), Label("rack", f"rack-{rack}")))
    for number, room in enumerate(rooms):
        must(view, c.CreateProvider(host(number), host(number)))
        stock = {"VCPU": Inventory(room + number % 3 or 1), "MEMORY_MB": Inventory(max(room, 1))}
        must(view, c.SetInventories(host(number), None, stock))
        if not room:
            must(view, c.ReplaceAllocations((_claim(f"other-{number}", number, MEMORY_MB=1),)))
        in_rack = (AggregateId(f"rack-{racks[number]}"),) if racks else ()
        must(view, c.SetAggregates(host(number), None, (AggregateId("cell"), *in_rack)))
    return view


def _claim(consumer: str, number: int, group: str | None = None, **amounts: int) -> c.Claim:
    wanted = ((host(number), tuple(amounts.items())),)
    of_group = None if group is None else GroupId(group)
    return c.Claim(ConsumerId(consumer), wanted, "p", "u", None, None, of_group)


def asked(weighers: tuple[str, ...], seed: int) -> Context:
    return Context("req", "p", "u", Ids(seed), scheduler_options(weigher_settings=weighers), alternates=2)


def cluster_of(counts: list[int], free: int, ratio: int, domain: str = "host") -> Cluster:
    apart = [
        NodeGroup(name=f"apart{number}", flavor=FLAVOR, count=count, processes=("datanode",))
        for number, count in enumerate(counts)
    ]
    return Cluster(
        id="c",
        name="c",
        project="p",
        user="u",
        anti_affinity=("datanode",),
        ratio=ratio,
        domain=domain,
        node_groups=(*apart, NodeGroup(name="free", flavor=FLAVOR, count=free, processes=("web",))),
    )


def nodes_by_domain(
    view: View, domain_of: dict[ProviderId, str]
) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """How many nodes that keep apart are in each domain, and of each group."""
    per_domain: Counter[str] = Counter()
    per_group: Counter[tuple[str, str]] = Counter()
    for server in view.records.all(Server):
        if server.group is not None:
            (record,) = view.hosts_held(view.consumers[ConsumerId(server.id)].held)
            per_domain[domain_of[record.id]] += 1
            per_group[domain_of[record.id], server.group] += 1
    return per_domain, per_group


@settings(max_examples=150, deadline=None)
@given(
    ROOMS,
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.integers(0, 6),
    st.integers(1, 5),
    WEIGHERS,
    st.integers(0, 99),
    st.data(),
)
def test_placed_exactly_when_there_is_room(
    rooms: list[int],
    counts: list[int],
    free: int,
    ratio: int,
    weighers: tuple[str, ...],
    seed: int,
    data: st.DataObject,
) -> None:
    racks = data.draw(
        st.none() | st.lists(st.integers(0, 4), min_size=len(rooms), max_size=len(rooms)), "racks"
    )
    view = fleet(rooms, racks)
    domain_of = {host(n): f"rack-{racks[n]}" if racks else host(n) for n in range(len(rooms))}
    room_of: Counter[str] = Counter()
    for number, room in enumerate(rooms):
        room_of[domain_of[host(number)]] += room

    def oracle(ratio: int) -> bool:
        apart = sum(min(ratio, room) for room in room_of.values())
        return apart >= sum(counts) and sum(rooms) >= sum(counts) + free

    cluster = cluster_of(counts, free, ratio, "rack" if racks else "host")
    before = view.state()
    answer = clusters.create(view, 0, asked(weighers, seed), cluster)
    assert view.state() == before
    if isinstance(answer, Rejection):
        assert isinstance(answer, ClusterDoesNotFit)
        assert not oracle(ratio)
        assert answer.fitting_ratio == next((r for r in range(ratio + 1, 21) if oracle(r)), None)
        return
    assert oracle(ratio)
    must(view, answer)
    per_domain, per_group = nodes_by_domain(view, domain_of)
    assert sum(per_domain.values()) == sum(counts)
    assert all(count <= ratio for count in per_domain.values())
    assert all(count == 1 for count in per_group.values())


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_groups_stay_balanced_where_they_can(ratio: int, changes: list[tuple[int, int]], seed: int) -> None:
    """Whoever comes and goes, of whichever node groups: the groups differ by one at most, where some choice
    of who goes can do that."""
    view = fleet([30] * 12)
    by = asked(("cpu=1.0",), seed)
    answer = clusters.create(view, 0, by, cluster_of([2, 2, 1], 2, ratio))
    if isinstance(answer, Rejection):
        return
    must(view, answer)
    for first, second in changes:
        before = view.records.get(Cluster, "c")
        assert before is not None
        scaled = clusters.scale(view, 0, by, "c", {"apart0": first, "apart1": second})
        if isinstance(scaled, Rejection):
            # Those that are leaving still stand where they are.
            assert isinstance(scaled, ClusterDoesNotFit)
            continue
        must(view, scaled)
        after = view.records.get(Cluster, "c")
        assert after is not None
        size = group_sizes(after).values()
        assert sum(size) == first + second + 1
        assert max(size) - min(size) <= max(1, _least_difference(before, {"apart0": first, "apart1": second}))


def _least_difference(cluster: Cluster, counts: dict[str, int]) -> int:
    """How far apart the groups are at least once some have gone, before others come: of all choices."""
    staying = [node for node in cluster.nodes if node.state != "leaving" and node.group is not None]
    fixed = [node for node in staying if node.node_group not in counts]
    choices = []
    for name, count in counts.items():
        nodes = [node for node in staying if node.node_group == name]
        choices.append(list(itertools.combinations(nodes, min(count, len(nodes)))))
    least = len(staying)
    for chosen in itertools.product(*choices):
        held = Counter(node.group for node in (*fixed, *itertools.chain(*chosen)))
        size = [held[group] for group in cluster.groups]
        least = min(least, max(size) - min(size))
    return least


COMMANDS = st.lists(
    st.one_of(
        st.builds(
            lambda number: c.CreateGroup(
                GroupId(f"g{number}"), Group(f"g{number}", "anti-affinity", "host", 1, None, "p", "u", 0)
            ),
            st.integers(0, 2),
        ),
        st.builds(
            lambda who, where, group: c.ReplaceAllocations(
                (_claim(f"who{who}", where, None if group is None else f"g{group}", VCPU=1),)
            ),
            st.integers(0, 4),
            st.integers(0, 2),
            st.none() | st.integers(0, 2),
        ),
        st.builds(lambda who: c.DeleteAllocations(ConsumerId(f"who{who}")), st.integers(0, 4)),
        st.builds(
            lambda group, force: c.DeleteGroup(GroupId(f"g{group}"), force), st.integers(0, 2), st.booleans()
        ),
        st.builds(
            lambda group, who: c.ChangeMembers(GroupId(f"g{group}"), (ConsumerId(f"who{who}"),)),
            st.integers(0, 2),
            st.integers(0, 4),
        ),
        st.builds(lambda number: c.CreateProvider(host(number), host(number)), st.integers(3, 5)),
        st.builds(lambda number: c.DeleteProvider(host(number)), st.integers(0, 5)),
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(COMMANDS, COMMANDS)
def test_commands_that_are_enacted_together_are_judged_one_after_the_other(
    first: list[c.LedgerCommand], together: list[c.LedgerCommand]
) -> None:
    """As if each had been carried out before the next is judged; and nothing has changed before that is
    done."""
    view, other = fleet([2, 2, 2]), fleet([2, 2, 2])
    for command in first:
        for each in (view, other):
            verdict = decide(each, command, 0)
            for event in verdict if isinstance(verdict, list) else ():
                each.apply(event)
    before = view.state()
    enacted = decide(view, c.Enact((), tuple(together)), 0)
    assert view.state() == before
    refused = None
    events = []
    for command in together:
        verdict = decide(other, command, 0)
        if isinstance(verdict, Rejection):
            refused = verdict
            break
        events += verdict
        for event in verdict:
            other.apply(event)
    assert enacted == (refused or events)
