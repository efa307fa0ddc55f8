"""Requests that once stopped a server for seconds: none of them does much before it is put aside for a child.

Measured is work, never time: how many functions are called, of Python's and of C's, from the beginning until
the work is done or out of steps. Steps are only as good as the places where they are taken: a shape that does
much and takes few is found here.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from bench.fleets import AGGREGATES, mixed_providers
from bench.journals import fleet_commands
from berth.api.kernel.rejections import explain_rejection
from berth.api.native.fields import LIMIT_MAX
from berth.api.native.pools import PoolsQuery, list_pools
from berth.api.native.usage import UsageQuery, _Usage
from berth.clusters import proposals as cluster_operations
from berth.engine import engine as engine_module
from berth.journal.body import Encoded, encode_entry, encode_events, join_entries
from berth.ledger import decide
from berth.model.clusters import Cluster, NodeGroup
from berth.model.commands import (
    Claim,
    Command,
    CreateGroup,
    CreateProvider,
    Enact,
    LabelAggregate,
    LedgerCommand,
    ReplaceAllocations,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from berth.model.events import Event, Origin, inverse
from berth.model.groups import Group, Policy
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, Inventory, Label
from berth.model.quotas import RESOURCES, UNLIMITED, Quotas
from berth.model.rejections import ClusterDoesNotFit, NoFit, Rejection
from berth.model.scheduling import CandidatesRequest, ProviderQuery, RequestGroup, ScheduleRequest
from berth.model.servers import Flavor, Server
from berth.runtime.ids import Ids
from berth.sagas import create as create_operation
from berth.sagas.proposals import Context
from berth.scheduler.capacity.members import FitCounter, count_capacity
from berth.scheduler.capacity.rooms import HostRows
from berth.scheduler.explain import explain
from berth.scheduler.explain.variants import Variant, Variants
from berth.scheduler.plan import plan
from berth.search.assignments import LOOKED_AT_MAX
from berth.search.candidates import Candidates, SearchOptions, find_candidates
from berth.search.providers import find_providers, roots_served
from berth.view import Mask, OutOfSteps, Trial, View
from tests.options import scheduler_options
from tests.worlds import ApplicationWorld, uuid_of

HOSTS: Final = 2_000
POOLS: Final = 50
CALLS_MAX: Final = 150_000
"""Some 20 ms of an idle machine."""

IN_TURN_CALLS_MAX: Final = 200_000
WRITTEN_MAX: Final = 500_000
"""A SQLite file takes some 2 ms for as much, and 20 for 2.4 MB."""

NO_LIMITS: Final = Quotas(**dict.fromkeys(RESOURCES, UNLIMITED))
"""What is not limited is counted all the same."""
ORIGIN: Final = Origin("req", None, None, "test")
OPTIONS: Final = scheduler_options()
FLAT: Final = (("VCPU", 1), ("MEMORY_MB", 512))
FLAVOR: Final = Flavor(id="1", name="small", vcpus=1, memory_mb=512, disk_gb=0)
RACKS: Final = tuple(AggregateId(id) for id in AGGREGATES)

Work = Callable[[View], object]


class TooMuch(Exception):
    """More was done than may be while others wait."""


def carry_out(view: View, command: Command) -> None:
    verdict = decide(view, command, 0)
    assert isinstance(verdict, list), verdict
    for event in verdict:
        view.apply(event)


@pytest.fixture(scope="module")
def fleet() -> View:
    view = View()
    for command in fleet_commands(mixed_providers(HOSTS, POOLS)):
        if not isinstance(decide(view, command, 0), Rejection):
            carry_out(view, command)
    carry_out(view, LabelAggregate(RACKS[0], Label("cell", "cell1")))
    carry_out(view, LabelAggregate(RACKS[1], Label("rack", "rack1")))
    return view


def calls_of(view: View, work: Work, limit: int) -> tuple[int, bool]:
    """How many calls the work takes until it is done, or out of steps; and whether it is done."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > CALLS_MAX:
            sys.setprofile(None)
            raise TooMuch

    view.steps.begin(limit)
    sys.setprofile(count)
    try:
        work(view)
    except OutOfSteps:
        return calls, False
    finally:
        sys.setprofile(None)
        view.steps.end()
    return calls, True


# -- shapes -------------------------------------------------------------------------------------


def request(
    count: int, groups: tuple[RequestGroup, ...] = (), alternates: int = 0, **ask: Any
) -> ScheduleRequest:
    return ScheduleRequest(
        ask=CandidatesRequest(groups=groups or (RequestGroup(resources=FLAT),), **ask),
        members=tuple(ConsumerId(f"member-{number}") for number in range(count)),
        at_least=1,
        project="p",
        user="u",
        alternates=alternates,
    )


def parts(count: int, name: str, amount: int = 1, **group: Any) -> tuple[RequestGroup, ...]:
    return tuple(
        RequestGroup(suffix=f"_{number}", resources=((name, amount),), **group) for number in range(count)
    )


def subtree(count: int) -> tuple[frozenset[str], ...]:
    return (frozenset(f"_{number}" for number in range(count)),)


def planning(asked: ScheduleRequest) -> Work:
    return lambda view: plan(view, asked, OPTIONS, Ids(1).rng, 0)


def explaining(asked: ScheduleRequest) -> Work:
    return lambda view: explain(view, asked, OPTIONS, explain_rejection)


def counting(asked: ScheduleRequest) -> Work:
    return lambda view: count_capacity(view, asked, OPTIONS)


def finding(limit: int | None, groups: tuple[RequestGroup, ...], isolate: bool = True) -> Work:
    asked = CandidatesRequest(groups=groups, isolate=isolate, limit=limit)
    return lambda view: find_candidates(view, asked, SearchOptions(max_candidates=100_000))


def cluster(nodes: int, domain: str = "host", ratio: int = 1, *, apart: bool = True) -> Cluster:
    node_group = NodeGroup(name="w", flavor=FLAVOR, processes=("p",), count=nodes)
    return Cluster(
        id="cluster",
        name="c",
        project="p",
        user="u",
        anti_affinity=("p",) if apart else (),
        ratio=ratio,
        domain=domain,
        node_groups=(node_group,),
    )


def asked_by() -> Context:
    return Context("req", "p", "u", Ids(1), OPTIONS, quotas=NO_LIMITS)


def creating(asked: Cluster) -> Work:
    return lambda view: cluster_operations.create(view, 0, asked_by(), asked)


def servers(count: int) -> Work:
    made = tuple(
        Server(id=f"server-{number}", name="s", project="p", user="u", flavor=FLAVOR)
        for number in range(count)
    )
    return lambda view: create_operation.propose(view, 0, asked_by(), made, count)


def scaling(count: int) -> Work:
    return lambda view: cluster_operations.scale(view, 0, asked_by(), "cluster", {"w": count})


def different_lists(count: int) -> tuple[tuple[AggregateId, ...], ...]:
    return tuple((RACKS[0], AggregateId(f"other-{number}")) for number in range(count))


SHAPES: Final[dict[str, Work]] = {
    "explain, 2 parts x 100 lists": explaining(
        request(1, parts(2, "VCPU", 16, member_of=different_lists(100)), isolate=True)
    ),
    "explain, 8 parts x 100 lists": explaining(
        request(1, parts(8, "VCPU", 16, member_of=different_lists(100)), isolate=True)
    ),
    "explain, 64 parts over pools": explaining(request(10, parts(64, "DISK_GB", 10), isolate=True)),
    "explain, 8 parts in a subtree": explaining(
        request(1_000, parts(8, "VCPU"), isolate=True, same_subtrees=subtree(8))
    ),
    "candidates, 64 parts over pools": finding(1, parts(64, "DISK_GB", 10)),
    "candidates, 51 parts over pools": finding(1, parts(51, "DISK_GB", 10)),
    "candidates, 20 parts over pools": finding(10, parts(20, "DISK_GB", 10)),
    "candidates, 8 parts over pools": finding(10, parts(8, "DISK_GB", 10)),
    "candidates, 8 parts of GPUs": finding(1_000, parts(8, "VGPU"), isolate=False),
    "capacity, 8 parts in a subtree": counting(request(1, parts(8, "VCPU"), same_subtrees=subtree(8))),
    "capacity, 64 parts over pools": counting(request(1, parts(64, "DISK_GB", 10), isolate=True)),
    "schedule 1,000": planning(request(1_000)),
    "schedule 1,000, 20 alternates": planning(request(1_000, alternates=20)),
    "schedule 1,000, 8 parts": planning(request(1_000, parts(8, "VCPU"), alternates=20)),
    "schedule 1,000, 64 GPUs": planning(request(1_000, parts(64, "VGPU"))),
    "schedule 14 parts with any-of traits": planning(
        request(1, parts(14, "VCPU", required=(("HW_CPU_X86_AVX2", "HW_CPU_X86_SSE2"),) * 4), isolate=True)
    ),
    "cluster of 1,000": creating(cluster(1_000, apart=False)),
    "cluster of 1,000, one per host": creating(cluster(1_000)),
    "cluster of 1,000, a hundred groups": creating(cluster(1_000, ratio=100)),
    "1,000 servers": servers(1_000),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_costly_is_put_aside_early(fleet: View, name: str) -> None:
    calls, _ = calls_of(fleet, SHAPES[name], engine_module._STEPS_MAX)
    assert calls <= CALLS_MAX
    assert not fleet.consumers
    assert not fleet.groups.records
    assert not any(record.used for record in fleet.providers.values())


@contextlib.contextmanager
def carried_out(view: View, command: Command) -> Iterator[None]:
    """With what a command does; afterwards the view is as it was."""
    verdict = decide(view, command, 0)
    assert isinstance(verdict, list), verdict
    for event in verdict:
        view.apply(event)
    try:
        yield
    finally:
        for event in reversed(verdict):
            view.apply(inverse(event))


@functools.cache
def created(view: View, nodes: int, ratio: int | None) -> Enact:
    """What creates a cluster; without a ratio its nodes need not keep apart. Planned once: it is long."""
    asked = cluster(nodes, apart=ratio is not None, ratio=ratio or 1)
    command = cluster_operations.create(view, 0, asked_by(), asked)
    assert isinstance(command, Enact), command
    return command


@pytest.mark.parametrize("ratio", [1, 100])
@pytest.mark.parametrize(("count", "wanted"), [(10, 1_000), (1_000, 10)])
def test_to_scale_a_cluster_is_put_aside_early(fleet: View, count: int, wanted: int, ratio: int) -> None:
    """Out to a thousand nodes, and in from a thousand. Nodes that keep apart; with the second ratio a hundred
    groups of them."""
    with carried_out(fleet, created(fleet, count, ratio)):
        calls, _ = calls_of(fleet, scaling(wanted), engine_module._STEPS_MAX)
        assert calls <= CALLS_MAX
        assert len(fleet.consumers) == count


@pytest.mark.parametrize("policy", ["soft-anti-affinity", "soft-affinity"])
def test_to_place_a_thousand_members_of_a_soft_group_is_put_aside_early(fleet: View, policy: Policy) -> None:
    group = Group("g", policy, "host", None, None, "p", "u", 0)
    asked = msgspec.structs.replace(request(1_000, alternates=20), group=GroupId("soft"))
    with carried_out(fleet, CreateGroup(GroupId("soft"), group)):
        calls, is_done = calls_of(fleet, planning(asked), engine_module._STEPS_MAX)
        assert calls <= CALLS_MAX
        assert not is_done
        assert not fleet.consumers


@pytest.mark.parametrize("count", [1, 4])
def test_what_is_usual_is_done_at_once(fleet: View, count: int) -> None:
    assert calls_of(fleet, planning(request(count, alternates=3)), engine_module._STEPS_MAX)[1]
    assert calls_of(fleet, lambda view: find_providers(view, ProviderQuery()), engine_module._STEPS_MAX)[1]


def test_to_sum_up_usage_is_charged_by_what_is_summed(fleet: View) -> None:
    usage = _Usage(fleet, UsageQuery(by="aggregate"), None)
    keys = list(usage.keys())
    summed = sum(
        len(record.inventories)
        for key in keys
        for record in map(fleet.record, fleet.rows_in_aggregate(AggregateId(key)))
    )
    left = fleet.steps.left
    usage.rows(keys)
    assert left - fleet.steps.left > 2 * summed > 0


def pools(*aggregates: tuple[AggregateId, ...]) -> Enact:
    """What creates pools, each in these aggregates."""
    commands: list[LedgerCommand] = []
    for number, of_one in enumerate(aggregates):
        id = ProviderId(f"listed-{number}")
        commands += [
            CreateProvider(id, id),
            SetAggregates(id, 0, of_one),
            SetInventories(id, None, {"DISK_GB": Inventory(total=10)}),
            SetTraits(id, None, frozenset({SHARES_VIA_AGGREGATE})),
        ]
    return Enact((), tuple(commands))


def listing_pools(view: View) -> object:
    call: Any = SimpleNamespace(query=PoolsQuery(limit=LIMIT_MAX), request=SimpleNamespace(path="/pools"))
    return list_pools(view, call)


@pytest.mark.parametrize("is_same", [True, False])
def test_to_list_a_thousand_pools_costs_little(fleet: View, is_same: bool) -> None:
    """The hosts of pools in the same aggregates are counted once; where each pool has others, that is put
    aside."""
    others = (AggregateId(f"other-{0 if is_same else number}") for number in range(LIMIT_MAX))
    with carried_out(fleet, pools(*((*RACKS, other) for other in others))):
        calls, is_done = calls_of(fleet, listing_pools, engine_module._STEPS_MAX)
        assert calls <= CALLS_MAX
        assert not is_done
        counted = 0

        def count(view: View, aggregates: tuple[AggregateId, ...]) -> Mask:
            nonlocal counted
            counted += 1
            return roots_served(view, aggregates)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("berth.api.native.pools.roots_served", count)
            listing_pools(fleet)
        assert counted <= POOLS + 1 if is_same else counted >= LIMIT_MAX - POOLS


# -- counting first -----------------------------------------------------------------------------


def found(view: View, work: Work) -> Candidates:
    candidates = work(view)
    assert isinstance(candidates, Candidates)
    return candidates


def test_more_parts_than_providers_and_pools_are_refused_by_counting(fleet: View) -> None:
    candidates = found(fleet, finding(1, parts(64, "DISK_GB", 10)))
    assert list(candidates.requests) == []
    assert (candidates.effort.looked_at, candidates.effort.steps) == (0, 0)


def test_counting_over_pools_has_an_end(fleet: View) -> None:
    """As many parts as places, of which two want the same one: no count of the whole tells, each host by
    itself does, and it would take long to ask all of them. Those that are alike are asked once."""
    groups = (
        *parts(49, "DISK_GB", 10),
        RequestGroup(suffix="_a", resources=(("MEMORY_MB", 512),)),
        RequestGroup(suffix="_b", resources=(("VCPU", 1),)),
    )
    candidates = found(fleet, finding(1, groups))
    assert list(candidates.requests) == []
    assert candidates.effort.looked_at < 1000 * len(groups)
    assert candidates.effort.gave_up == 0
    with Trial(fleet) as trial:
        for number, host in enumerate([one for one in fleet.providers.values() if one.parent is None]):
            wanted = ((host.id, (("DISK_GB", 5 + number),)),)
            claim = Claim(ConsumerId(f"taken-{number}"), wanted, "p", "u", None)
            verdict = decide(fleet, ReplaceAllocations((claim,)), 0)
            if not isinstance(verdict, Rejection):
                trial.apply(verdict)
        candidates = found(fleet, finding(1, groups))
    assert list(candidates.requests) == []
    assert LOOKED_AT_MAX <= candidates.effort.looked_at < 1.1 * LOOKED_AT_MAX
    assert candidates.effort.gave_up > 0


def test_a_cluster_of_more_nodes_than_domains_allow_is_refused_by_counting(
    fleet: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it need not be tried out")

    monkeypatch.setattr("berth.clusters.placement.plan_jointly", never)
    monkeypatch.setattr("berth.clusters.placement.fits_jointly", never)
    refused = cluster_operations.create(fleet, 0, asked_by(), cluster(1_000, "rack"))
    assert isinstance(refused, ClusterDoesNotFit)
    assert isinstance(refused.why, NoFit)
    (step,) = refused.why.steps
    assert step.asked == "at most 1 of the nodes that keep apart on one rack, with 1 in all"
    assert (refused.why.needed, refused.why.fitting, refused.fitting_ratio) == (1_000, 1, None)


def test_an_explanation_that_is_given_up_says_so(fleet: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.scheduler.explain.variants.STEPS_MAX", 100_000)
    asked = request(1, parts(8, "VCPU", 16, member_of=different_lists(100)), isolate=True)
    left = fleet.steps.left
    explained = explain(fleet, asked, OPTIONS, explain_rejection)
    assert not isinstance(explained, Rejection)
    assert explained.change is not None
    assert explained.change.gave_up
    assert "There are too many changes to try all of them." in explained.change.text
    # What comes before and after the variants, and the last of them.
    assert left - fleet.steps.left < 3 * 100_000


async def test_what_is_said_twice_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred equal lists of aggregates ask for no more than one, and cost no more."""
    tried = 0
    fits = Variants.fits

    def counted(self: Variants, variant: Variant) -> tuple[FitCounter, HostRows]:
        nonlocal tried
        tried += 1
        return fits(self, variant)

    monkeypatch.setattr(Variants, "fits", counted)

    async with ApplicationWorld(tmp_path).running() as world:
        await world.host(1)
        counts = []
        for times in (1, 100):
            part = {"resources": {"VCPU": 9}, "member_of": [[uuid_of(2), uuid_of(3)]] * times}
            before = tried
            answer = await world.ask("POST", "/berth/v1/explain", {"parts": {"_a": part, "_b": part}})
            assert answer.status == 200, answer.body
            counts.append(tried - before)
        once, hundred_times = counts
    assert once == hundred_times > 0


# -- judging ------------------------------------------------------------------------------------


def members_of(view: View, group: Group, count: int) -> Command:
    """A claim of so many members of a new group, on as many hosts."""
    id = GroupId("together")
    hosts = [view.names[f"host-{number}"] for number in range(3 * count) if number % 3 and number % 20 < 18]
    claims = tuple(
        Claim(ConsumerId(f"member-{number}"), ((host.id, FLAT),), "p", "u", None, "INSTANCE", id)
        for number, host in enumerate(hosts[:count])
    )
    return Enact((), (CreateGroup(id, group), ReplaceAllocations(claims)))


@pytest.mark.parametrize(
    "group",
    [
        Group("g", "affinity", "rack", None, None, "p", "u", 0),
        Group("g", "anti-affinity", "rack", None, 1, "p", "u", 0),
        Group("g", "anti-affinity", "host", 1, None, "p", "u", 0),
    ],
    ids=["together", "skew", "apart"],
)
def test_to_judge_a_thousand_members_is_linear(fleet: View, group: Group) -> None:
    """A command that was planned elsewhere is judged while all others wait."""

    def judging(count: int) -> int:
        command = members_of(fleet, group, count)
        return calls_of(fleet, lambda view: decide(view, command, 0), sys.maxsize)[0]

    assert judging(400) < 5 * judging(100)


def in_turn(view: View, command: Enact) -> tuple[list[int], int]:
    """How many calls each thing takes that the writer does with a command, one after the other: to judge it,
    to encode what comes of it, and to apply that. And how many bytes are written. It is taken back."""
    events: list[Event] = []
    bodies: list[bytes] = []

    def judge(view: View) -> None:
        verdict = decide(view, command, 0)
        assert isinstance(verdict, list), verdict
        events.extend(verdict)

    def encode(view: View) -> None:
        entry = encode_entry(ORIGIN, events, 8 << 20, end)
        assert entry is not None
        bodies.append(join_entries([entry]))

    def apply(view: View) -> None:
        for event in events:
            view.apply(event)

    body = encode_events(command.changes, 8 << 20)
    assert body is not None
    end = Encoded(command.changes, body)
    calls = [calls_of(view, work, sys.maxsize)[0] for work in (judge, encode, apply)]
    for event in reversed(events):
        view.apply(inverse(event))
    return calls, len(bodies[0])


@pytest.mark.parametrize("ratio", [None, 1, 100], ids=["plain", "apart", "a hundred groups"])
def test_what_was_planned_for_a_thousand_nodes_costs_little_in_turn(fleet: View, ratio: int | None) -> None:
    """Others wait for the sum of this, and for the database to write it."""
    (judge, encode, apply), written = in_turn(fleet, created(fleet, 1_000, ratio))
    assert judge + encode + apply <= IN_TURN_CALLS_MAX
    # Records are encoded already.
    assert encode < 10_000
    assert written <= WRITTEN_MAX


def test_to_scale_in_a_thousand_nodes_costs_little_in_turn(fleet: View) -> None:
    with carried_out(fleet, created(fleet, 1_000, 1)):
        command = scaling(10)(fleet)
        assert isinstance(command, Enact)
        calls, written = in_turn(fleet, command)
        assert sum(calls) <= IN_TURN_CALLS_MAX
        assert written <= WRITTEN_MAX
