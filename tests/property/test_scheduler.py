"""The scheduler on random small fleets: what it plans the ledger grants; what it cannot plan, nobody can."""

import itertools
import os
import random
from fnmatch import fnmatchcase

import msgspec
import pytest

from berth.ledger import decide
from berth.model.commands import (
    UNCHECKED,
    Claim,
    Command,
    CreateGroup,
    CreateProvider,
    LabelAggregate,
    ReplaceAllocations,
    SetAggregates,
    SetHostStatus,
    SetInventories,
    SetTraits,
)
from berth.model.groups import HOST, Group, Policy
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, HostStatus, Inventory, Label
from berth.model.rejections import GroupPolicyBroken, NoFit, Rejection
from berth.model.scheduling import (
    UNSUFFIXED,
    CandidatesRequest,
    Hints,
    HostCandidate,
    Placement,
    Plan,
    RequestGroup,
    ScheduleRequest,
)
from berth.scheduler.constraints import count_steps, narrow_down
from berth.scheduler.filters import group_policy
from berth.scheduler.plan import plan
from berth.scheduler.plugins import SchedulerOptions
from berth.search.candidates import SearchOptions, find_candidates
from berth.view import ProviderRecord, View, sets
from tests.options import scheduler_options

SOAK = os.environ.get("BERTH_SOAK") == "1"
SEEDS = 20_000 if SOAK else 400
BLOCKS = 10

TRAITS = ("HW_CPU_X86_AVX", "STORAGE_DISK_SSD")
DISABLED = "COMPUTE_STATUS_DISABLED"
ARCHITECTURE = "HW_ARCH_X86_64"
KINDS = {"zone": 2, "rack": 3, "cell": 2}
AGGREGATES = {AggregateId(f"{kind}-{n}"): kind for kind, count in KINDS.items() for n in range(count)}
ALL_WEIGHERS = ("cpu", "memory", "disk", "soft_affinity", "spread", "build_failures", "pack", "fragmentation")
HELD_BY_ALL = "SRIOV_NET_VF"
"""Every host has plenty of this."""


@pytest.fixture(autouse=True)
def some_sets_are_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """In fleets as small as these no aggregate would be, and only one way to look at them be tried."""
    monkeypatch.setattr(sets, "_SPARSE", 3)


# -- fleets --------------------------------------------------------------------------------------------


def carry_out(view: View, command: Command) -> Rejection | None:
    verdict = decide(view, command, 1)
    if isinstance(verdict, Rejection):
        return verdict
    for event in verdict:
        view.apply(event)
    return None


def must(view: View, command: Command) -> None:
    assert carry_out(view, command) is None


def seldom(rng: random.Random, one_in: int) -> bool:
    return rng.randrange(one_in) == 0


def some_inventory(rng: random.Random) -> Inventory:
    return Inventory(
        rng.randint(2, 8),
        max_unit=4 if seldom(rng, 5) else 100,
        min_unit=2 if seldom(rng, 8) else 1,
        step_size=2 if seldom(rng, 8) else 1,
        allocation_ratio=rng.choice([1.0, 1.0, 1.5]),
    )


def provider(view: View, rng: random.Random, name: str, parent: str | None, shares: bool) -> None:
    id = ProviderId(f"id-{name}")
    must(view, CreateProvider(id, name, None if parent is None else ProviderId(f"id-{parent}")))
    stock = {cls: some_inventory(rng) for cls in ("VCPU", "MEMORY_MB", "DISK_GB") if not seldom(rng, 4)}
    if shares:
        stock = {"DISK_GB": Inventory(rng.randint(4, 12))}
    if parent is None:
        stock[HELD_BY_ALL] = Inventory(1000)
    must(view, SetInventories(id, None, stock))
    traits = {trait for trait in TRAITS if rng.random() < 0.5} | ({SHARES_VIA_AGGREGATE} if shares else set())
    traits |= {DISABLED} if seldom(rng, 10) else set()
    traits |= {ARCHITECTURE} if rng.random() < 0.5 else set()
    must(view, SetTraits(id, None, frozenset(traits)))
    inside = [aggregate for aggregate in AGGREGATES if rng.random() < 0.45]
    must(view, SetAggregates(id, None, tuple(inside)))
    if parent is None and seldom(rng, 4):
        status = HostStatus(seldom(rng, 2), seldom(rng, 3), rng.randrange(3))
        must(view, SetHostStatus(id, status))


def fleet(rng: random.Random, is_crowded: bool = False) -> View:
    """Hosts, some with providers below, sometimes a pool that they share; groups with members somewhere, or
    one that has them everywhere."""
    view = View()
    for id, kind in AGGREGATES.items():
        metadata = (("ssd", rng.choice(["true", "false", "true, maybe"])),) if rng.random() < 0.5 else ()
        must(view, LabelAggregate(id, Label(kind, str(id), metadata + some_isolation(rng))))
    is_nested, has_pool = seldom(rng, 2), seldom(rng, 3)
    for number in range(rng.randint(1, 6)):
        name = f"host-{number}"
        provider(view, rng, name, None, shares=False)
        for below in range(rng.randrange(3) if is_nested else 0):
            provider(view, rng, f"{name}.{below}", name, shares=seldom(rng, 12))
    if has_pool:
        provider(view, rng, "pool", None, shares=True)
    for number in range(1 if is_crowded else rng.randint(1, 3)):
        add_group(view, rng, GroupId(f"group-{number}"), is_crowded)
    for number in range(rng.randint(4, 12) if is_crowded else rng.randint(0, 6)):
        add_consumer(view, rng, ConsumerId(f"old-{number}"))
    if is_crowded and seldom(rng, 3):
        # Domains change below those who stand in them, and then more may be there than may come.
        inside = tuple(aggregate for aggregate in AGGREGATES if rng.random() < 0.45)
        must(view, SetAggregates(ProviderId("id-host-0"), None, inside))
    return view


def some_isolation(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Sometimes an aggregate is not for everybody."""
    keys = {
        "filter_tenant_id": ["p", "q", "q, p"],
        "filter_tenant_id2": ["p", "r"],
        f"trait:{TRAITS[0]}": ["required"],
        "os_type": ["linux", "windows", "windows, Linux"],
        "architecture": ["x86_64", "aarch64"],
    }
    return tuple((key, rng.choice(values)) for key, values in keys.items() if seldom(rng, 15))


def add_group(view: View, rng: random.Random, id: GroupId, is_crowded: bool) -> None:
    """Crowds gather in groups that have much to say about where, and still let many in."""
    policies: list[Policy] = ["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]
    policy = rng.choice(policies[:2] if is_crowded else policies)
    domain = rng.choice([HOST, "zone", "rack", "rack"] if is_crowded else [HOST, HOST, "zone", "rack"])
    apart = policy.endswith("anti-affinity")
    most = rng.choice([2, 3, None, None] if is_crowded else [1, 1, 2, None]) if apart else None
    skew = rng.choice([1, 2, None]) if apart and domain != HOST else None
    declared = tuple(ConsumerId(f"new-{n}") for n in range(3)) if seldom(rng, 8) else ()
    carry_out(view, CreateGroup(id, Group(str(id), policy, domain, most, skew, "p", "u", 0), declared))


def add_consumer(view: View, rng: random.Random, id: ConsumerId) -> None:
    """A consumer somewhere, in a group perhaps, and perhaps in the middle of a move."""
    group = rng.choice([None, *view.groups.records])
    roots = [record for record in view.providers.values() if record.parent is None]

    def claim(consumer: ConsumerId, root: ProviderRecord) -> Claim:
        wanted = ((root.id, ((HELD_BY_ALL, len(id)),)),)
        return Claim(consumer, wanted, "p", "u", UNCHECKED, None, group if consumer == id else None)

    first = rng.choice(roots)
    carry_out(view, ReplaceAllocations((claim(id, first),)))
    if seldom(rng, 3):
        moved = claim(ConsumerId(f"migration-of-{id}"), first)
        carry_out(view, ReplaceAllocations((moved, claim(id, rng.choice(roots)))))


# -- requests ------------------------------------------------------------------------------------------


def some_ask(rng: random.Random) -> CandidatesRequest:
    suffixes = [UNSUFFIXED, *(["1"] if seldom(rng, 3) else []), *(["2"] if seldom(rng, 5) else [])]
    groups = []
    for suffix in suffixes:
        classes = rng.sample(["VCPU", "MEMORY_MB", "DISK_GB", HELD_BY_ALL], rng.randint(1, 2))
        groups.append(
            RequestGroup(
                suffix=suffix,
                resources=tuple((name, rng.randint(1, 3)) for name in classes),
                required=((rng.choice(TRAITS),),) if seldom(rng, 4) else (),
                forbidden=frozenset({rng.choice(TRAITS)}) if seldom(rng, 6) else frozenset(),
                member_of=((rng.choice(list(AGGREGATES)),),) if seldom(rng, 6) else (),
            )
        )
    return CandidatesRequest(groups=tuple(groups), isolate=seldom(rng, 3))


def some_request(rng: random.Random, view: View, count: int) -> ScheduleRequest:
    consumers = [id for id in view.consumers if id.startswith("old")]
    some = tuple(rng.sample(consumers, min(len(consumers), 2)))
    hints = Hints(
        same_host=some if seldom(rng, 8) else (),
        different_host=some if seldom(rng, 5) else (),
        host_names=("*-0", "h?st-1", "host-4") if seldom(rng, 6) else (),
        ignore_hosts=frozenset({"host-0"}) if seldom(rng, 6) else frozenset(),
        forced_host="host-0" if seldom(rng, 12) else None,
    )
    return ScheduleRequest(
        ask=some_ask(rng),
        members=tuple(ConsumerId(f"new-{n}") for n in range(count)),
        at_least=rng.randint(1, count),
        project="p",
        user="u",
        group=rng.choice([None, None, *view.groups.records]),
        zone="zone-0" if seldom(rng, 6) else None,
        metadata=(("ssd", "true"),) if seldom(rng, 6) else (),
        image=(
            *((("hw_architecture", "x86_64"),) if seldom(rng, 6) else ()),
            *((("os_type", "linux"),) if seldom(rng, 3) else ()),
        ),
        hints=hints,
        alternates=rng.randrange(3),
    )


def some_options(rng: random.Random) -> SchedulerOptions:
    weighers = [f"{name}={rng.choice([-1, 0.5, 1, 2])}" for name in ALL_WEIGHERS if not seldom(rng, 3)]
    return scheduler_options(weigher_settings=weighers, subset_size=rng.choice([1, 1, 3]))


# -- the definition ------------------------------------------------------------------------------------


def may_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> bool:
    """All filters but that of groups, from their definitions."""
    hints = request.hints
    if hints.forced_host is not None:
        return host.name == hints.forced_host
    status = view.hosts.get(host.id, HostStatus())
    labels = [view.groups.labels[id] for id in host.aggregates]
    said = {(key, one.strip()) for label in labels for key, many in label.metadata for one in many.split(",")}

    projects = {value for key, value in said if key.startswith("filter_tenant_id")}
    required = {any_of[0] for group in request.ask.groups for any_of in group.required}
    kept_for = {key.removeprefix("trait:") for key, _ in said if key.startswith("trait:")}
    image = dict(request.image)

    def allowed(name: str, *keys: str) -> bool:
        """Whether aggregates allow what the image says of this."""
        values = {value.lower() for key, value in said if key in keys}
        return name not in image or not values or image[name] in values

    def stands(consumer: ConsumerId) -> bool:
        return host in view.hosts_held(view.consumers[consumer].held)

    return (
        not status.disabled
        and not status.down
        and DISABLED not in host.traits
        and (request.zone is None or ("zone", request.zone) in {(lb.kind, lb.name) for lb in labels})
        and set(request.metadata) <= said
        and (not projects or request.project in projects)
        and kept_for <= required
        and ("hw_architecture" not in image or ARCHITECTURE in host.traits)
        and allowed("os_type", "os_type")
        and allowed("hw_architecture", "hw_architecture", "architecture")
        and (not hints.same_host or any(map(stands, hints.same_host)))
        and not any(map(stands, hints.different_host))
        and (not hints.host_names or any(fnmatchcase(host.name, p) for p in hints.host_names))
        and host.name not in hints.ignore_hosts
    )


def cell_of(view: View, host: ProviderRecord) -> set[str]:
    return set(view.groups.domains_of(host, "cell"))


def claim_of(view: View, request: ScheduleRequest, member: ConsumerId, candidate: HostCandidate) -> Claim:
    return Claim(member, candidate.wanted, request.project, request.user, UNCHECKED, None, request.group)


def grantable(view: View, request: ScheduleRequest) -> list[str]:
    """Hosts on which the first member could be placed, by trying every candidate there is."""
    found = find_candidates(view, request.ask, SearchOptions())
    assert not isinstance(found, Rejection)
    hosts = []
    for candidate in found.requests:
        records = [record for record, _ in candidate.allocations]
        own = {record.root for record in records if SHARES_VIA_AGGREGATE not in record.traits}
        if len(own) != 1 or not may_host(view, request, host := own.pop()):
            continue
        wanted = tuple(
            (record.id, tuple((view.classes.name_of(id), amount) for id, amount in amounts))
            for record, amounts in candidate.allocations
        )
        on_host = HostCandidate(host.id, host.name, wanted, ())
        command = ReplaceAllocations((claim_of(view, request, request.members[0], on_host),))
        if isinstance(decide(view, command, 1), list):
            hosts.append(host.name)
    return hosts


def check_plan(view: View, request: ScheduleRequest, found: Plan) -> None:
    assert [placement.member for placement in found.placements] == list(
        request.members[: len(found.placements)]
    )
    assert len(found.placements) >= request.at_least
    for placement in found.placements:
        host = view.providers[placement.chosen.host]
        assert host.parent is None
        assert placement.chosen.host_name == host.name
        assert may_host(view, request, host)
        assert view.hosts_held(tuple((id, ()) for id, _ in placement.chosen.wanted)) == [host]
    assert carry_out(view, ReplaceAllocations(found.claims)) is None
    for placement in found.placements:
        check_alternates(view, request, placement)


def check_result(
    view: View, request: ScheduleRequest, options: SchedulerOptions, found: Plan | Rejection, note: str
) -> None:
    """No constraint removes the host that was chosen; where none could be, they remove all of them."""
    narrowed = narrow_down(view, request, options)
    assert not isinstance(narrowed, Rejection)
    results = narrowed.results
    for before, after in itertools.pairwise(results):
        assert not (after.left & ~before.left).any(), f"{note}: {after.constraint} brings a host back"
    if isinstance(found, Plan):
        row = view.providers[found.placements[0].chosen.host].row
        removed = [result.constraint for result in results if not result.left[row]]
        assert not removed, f"{note}: the host that was chosen is removed by {removed}"
    if isinstance(found, NoFit) and found.refused is None:
        assert not results[-1].left.any(), f"{note}: hosts are left, and none was chosen"
        assert found.steps == count_steps(results)


def check_alternates(view: View, request: ScheduleRequest, placement: Placement) -> None:
    """On a view in which the plan has been carried out."""
    own = view.providers[placement.chosen.host]
    hosts = [candidate.host for candidate in placement.alternates]
    assert len({own.id, *hosts}) == len(hosts) + 1, "a host is named twice"
    assert len(hosts) <= request.alternates
    for candidate in placement.alternates:
        host = view.providers[candidate.host]
        assert may_host(view, request, host)
        assert cell_of(view, host) & cell_of(view, own) or not (cell_of(view, host) | cell_of(view, own))
        command = ReplaceAllocations((claim_of(view, request, placement.member, candidate),))
        assert isinstance(decide(view, command, 1), list)
        stands = view.hosts_held(tuple((id, ()) for id, _ in candidate.wanted))
        assert stands == [host]


# -- tests ---------------------------------------------------------------------------------------------


def seeds(block: int) -> range:
    return range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_member_is_placed_if_and_only_if_it_can_be(block: int) -> None:
    for seed in seeds(block):
        rng = random.Random(seed)
        view = fleet(rng)
        request = some_request(rng, view, 1)
        options = some_options(rng)
        before = view.state()
        found = plan(view, request, options, random.Random(seed), 1)
        assert view.state() == before, f"seed {seed}: planning left something behind"
        assert plan(view, request, options, random.Random(seed), 1) == found, f"seed {seed}"
        possible = grantable(view, request) if not isinstance(found, Plan) else []
        assert not possible, f"seed {seed}: {possible} would do, and the answer is {found}"
        check_result(view, request, options, found, f"seed {seed}")
        if isinstance(found, Plan):
            check_plan(view, request, found)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_a_batch_is_planned_as_is_granted_as_a_whole(block: int) -> None:
    for seed in seeds(block):
        rng = random.Random(seed)
        view = fleet(rng)
        request = some_request(rng, view, rng.randint(2, 5))
        options = some_options(rng)
        before = view.state()
        found = plan(view, request, options, random.Random(seed), 1)
        assert view.state() == before, f"seed {seed}: planning left something behind"
        assert plan(view, request, options, random.Random(seed), 1) == found, f"seed {seed}"
        if isinstance(found, Plan):
            check_plan(view, request, found)
        elif isinstance(found, NoFit):
            assert found.fitting < found.needed == request.at_least
            assert found.steps


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_filter_of_groups_says_what_the_ledger_says(block: int) -> None:
    for seed in range(4 * seeds(block).start, 4 * seeds(block).stop):
        rng = random.Random(seed)
        view = fleet(rng, is_crowded=seed % 4 > 0)
        asked = some_request(rng, view, 1)
        standing = [id for id in view.consumers if not id.startswith("migration")]
        members = [ConsumerId("new-0"), ConsumerId("new-1"), *standing]
        for member in members:
            membership = view.groups.memberships.get(member)
            group = membership.group if membership is not None else asked.group
            request = msgspec.structs.replace(asked, members=(member,), group=group)
            compare_with_ledger(view, request, f"seed {seed}, {member}")


def compare_with_ledger(view: View, request: ScheduleRequest, note: str) -> None:
    has_a_say = group_policy.describe_request(view, request) is not None
    mask = group_policy.passing_hosts(view, request) if has_a_say else None
    for host in [record for record in view.providers.values() if record.parent is None]:
        candidate = HostCandidate(host.id, host.name, ((host.id, ((HELD_BY_ALL, 1),)),), ())
        command = ReplaceAllocations((claim_of(view, request, request.members[0], candidate),))
        verdict = decide(view, command, 1)
        assert isinstance(verdict, list | GroupPolicyBroken), note
        passes = mask is None or bool(mask[host.row])
        assert passes == isinstance(verdict, list), f"{note}: {host.name}, and the ledger says {verdict}"
