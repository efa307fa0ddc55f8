"""Fleets and requests at random, small enough that somebody can try everything."""

import hypothesis.strategies as st

from berth.model.commands import Claim, ReplaceAllocations
from berth.model.groups import Policy
from berth.model.ids import ConsumerId
from berth.model.placement import SHARES_VIA_AGGREGATE, HostStatus, Inventory
from berth.model.scheduling import CandidatesRequest, RequestGroup, ScheduleRequest
from tests.unit.scheduler.fleets import Fleet, asking, request, resources

POLICIES: tuple[Policy, ...] = (
    "affinity",
    "affinity",
    "anti-affinity",
    "anti-affinity",
    "anti-affinity",
    "soft-affinity",
    "soft-anti-affinity",
)
"""Those that have rules more often."""

stock = st.builds(
    Inventory,
    total=st.integers(2, 8),
    reserved=st.sampled_from((0, 0, 1)),
    min_unit=st.sampled_from((1, 1, 1, 2)),
    max_unit=st.sampled_from((8, 8, 2, 1)),
    step_size=st.sampled_from((1, 1, 1, 2)),
)


@st.composite
def flat_fleets(draw: st.DrawFn) -> tuple[Fleet, ScheduleRequest]:
    fleet = Fleet()
    for number in range(2):
        fleet.aggregate(f"rack-{number}", "rack")
    for number in range(draw(st.integers(1, 4))):
        racks = tuple(sorted(draw(st.sets(st.sampled_from(("rack-0", "rack-1")), max_size=2))))
        if draw(st.integers(0, 4)):
            racks = racks[:1]
        name = f"host-{number}"
        fleet.provider(name, {"VCPU": draw(stock), "MEMORY_MB": draw(stock)}, aggregates=racks)
        if not draw(st.integers(0, 5)):
            fleet.status(name, HostStatus(disabled=True))
    return fleet, _grouped(draw, fleet, asking(resources(VCPU=draw(st.integers(1, 3)), MEMORY_MB=2)))


def _grouped(draw: st.DrawFn, fleet: Fleet, ask: CandidatesRequest) -> ScheduleRequest:
    """A request, perhaps in a group that perhaps has members already."""
    if not draw(st.integers(0, 3)):
        return request(ask)
    policy = draw(st.sampled_from(POLICIES))
    domain = draw(st.sampled_from(("host", "rack")))
    apart = policy.endswith("anti-affinity")
    most = draw(st.one_of(st.none(), st.integers(1, 2))) if apart else None
    skew = draw(st.one_of(st.none(), st.integers(1, 2))) if apart and domain == "rack" else None
    group = fleet.group("web", policy, domain, most, skew)
    for record in list(fleet.view.providers.values()):
        if record.parent is None and not draw(st.integers(0, 3)):
            claim = Claim(
                ConsumerId(f"old-{record.name}"), ((record.id, (("VCPU", 2),)),), "p", "u", group=group
            )
            fleet.do(ReplaceAllocations((claim,)))
    return request(ask, group=group)


@st.composite
def nested_fleets(draw: st.DrawFn) -> tuple[Fleet, ScheduleRequest]:
    """Hosts with memory of their own, and processors below."""
    fleet = Fleet()
    fleet.aggregate("rack-0", "rack")
    traits = st.sampled_from(((), ("HW_CPU_X86_AVX2",)))
    for number in range(draw(st.integers(1, 2))):
        host = f"host-{number}"
        fleet.provider(host, {"MEMORY_MB": draw(stock)}, traits=draw(traits), aggregates=("rack-0",))
        for cell in range(draw(st.integers(0, 2))):
            inventories = {"VCPU": draw(stock)} | ({"SRIOV_NET_VF": draw(stock)} if cell else {})
            fleet.provider(f"{host}-{cell}", inventories, parent=host, traits=draw(traits))
    required = draw(st.sampled_from(((), (("HW_CPU_X86_AVX2",),))))
    unsuffixed = RequestGroup(resources=(("MEMORY_MB", 2), ("VCPU", 1)), required=required)
    asks = (
        asking(unsuffixed),
        asking(resources("1", VCPU=2), resources(MEMORY_MB=1)),
        asking(resources("1", VCPU=1), resources("2", VCPU=2), isolate=draw(st.booleans())),
        asking(resources("1", VCPU=1), resources("2", VCPU=1), isolate=True),
        asking(resources("1", VCPU=1), resources("2", SRIOV_NET_VF=1), isolate=True),
        CandidatesRequest(
            groups=(resources("1", VCPU=1), resources("2", SRIOV_NET_VF=1)),
            same_subtrees=(frozenset({"1", "2"}),),
        ),
    )
    return fleet, _grouped(draw, fleet, draw(st.sampled_from(asks)))


@st.composite
def tied_fleets(draw: st.DrawFn) -> tuple[Fleet, ScheduleRequest]:
    """One host with cells, and groups that get in each other's way."""
    fleet = Fleet()
    fleet.provider("host")
    for cell, cpus in enumerate(draw(st.lists(st.integers(2, 5), min_size=2, max_size=3))):
        inventories = {"VCPU": cpus} | ({"SRIOV_NET_VF": 3} if cell else {})
        fleet.provider(f"cell-{cell}", inventories, parent="host")
    one, two, three = resources("1", VCPU=1), resources("2", VCPU=2), resources("3", VCPU=3)
    vf = resources("vf", SRIOV_NET_VF=1)
    asks = (
        asking(one, two),
        asking(one, two, isolate=True),
        asking(two, three),
        asking(two, three, isolate=True),
        asking(one, vf, isolate=True),
        asking(two, vf),
        CandidatesRequest(groups=(one, vf), same_subtrees=(frozenset({"1", "vf"}),)),
    )
    return fleet, request(draw(st.sampled_from(asks)))


@st.composite
def sharing_fleets(draw: st.DrawFn) -> tuple[Fleet, ScheduleRequest]:
    """Hosts that borrow disk from pools."""
    fleet = Fleet()
    fleet.aggregate("rack-0", "rack")
    fleet.aggregate("rack-1", "rack")
    pools = st.sampled_from((("pool-0",), ("pool-1",), ("pool-0", "pool-1"), ()))
    for number in range(draw(st.integers(1, 3))):
        inventories = {"VCPU": draw(stock)} | ({"DISK_GB": draw(stock)} if draw(st.booleans()) else {})
        rack = draw(st.sampled_from(("rack-0", "rack-1")))
        fleet.provider(f"host-{number}", inventories, aggregates=(rack, *draw(pools)))
    for number in range(draw(st.integers(1, 2))):
        fleet.provider(
            f"pool-{number}",
            {"DISK_GB": draw(stock)} | ({"VCPU": draw(stock)} if not draw(st.integers(0, 4)) else {}),
            traits=(SHARES_VIA_AGGREGATE,),
            aggregates=draw(pools),
        )
    one, two, disk = resources("1", VCPU=1), resources("2", VCPU=1), resources("disk", DISK_GB=2)
    asks = (
        asking(resources(VCPU=1, DISK_GB=2)),
        asking(one, two, resources(DISK_GB=2)),
        asking(one, two, disk),
        asking(one, disk, isolate=True),
    )
    return fleet, _grouped(draw, fleet, draw(st.sampled_from(asks)))
