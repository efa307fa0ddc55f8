"""Plans: who goes where, what else there is, and what is said when nothing fits."""

import random

import pytest

from berth.ledger import decide
from berth.model.commands import ReplaceAllocations
from berth.model.events import Event
from berth.model.ids import ConsumerId, GroupId
from berth.model.placement import SHARES_VIA_AGGREGATE, HostStatus
from berth.model.rejections import (
    ConstraintStep,
    ConsumerClaimsTwice,
    ConsumerGenerationConflict,
    GroupNotFound,
    GroupPolicyBroken,
    NoFit,
    NoInventory,
    Rejection,
    ResourceClassNotFound,
    TraitsNotFound,
    UnknownConsumer,
    UnknownHost,
)
from berth.model.scheduling import Hints, Plan, RequestGroup, ScheduleRequest
from berth.scheduler import candidates
from berth.scheduler import plan as planning
from berth.scheduler.plan import plan
from berth.scheduler.plugins import SchedulerOptions
from berth.search import assignments
from berth.view import View
from tests.options import scheduler_options
from tests.unit.scheduler.fleets import Fleet, asking, request, resources

pytestmark = pytest.mark.fast

OPTIONS = scheduler_options()
ONE_CPU = asking(resources(VCPU=1))


def planned(
    fleet: Fleet, wanted: ScheduleRequest, options: SchedulerOptions = OPTIONS, seed: int = 1
) -> Plan | Rejection:
    before = fleet.view.state()
    found = plan(fleet.view, wanted, options, random.Random(seed), 1)
    assert fleet.view.state() == before, "to plan is not to change"
    if isinstance(found, Plan):
        assert isinstance(decide(fleet.view, ReplaceAllocations(found.claims), 1), list)
    return found


def hosts(found: Plan | Rejection) -> list[str]:
    assert isinstance(found, Plan), found
    return [placement.chosen.host_name for placement in found.placements]


def alternates(found: Plan | Rejection) -> list[list[str]]:
    assert isinstance(found, Plan), found
    return [[candidate.host_name for candidate in placement.alternates] for placement in found.placements]


def fleet_of(**free: int) -> Fleet:
    fleet = Fleet()
    for name, vcpus in free.items():
        fleet.provider(name, {"VCPU": vcpus})
    return fleet


# -- one member ---------------------------------------------------------------------------------


def test_the_best_host_is_chosen_and_the_next_best_are_alternates() -> None:
    fleet = fleet_of(small=2, large=8, middle=4, tiny=1)
    found = planned(fleet, request(ONE_CPU, alternates=2))
    assert hosts(found) == ["large"]
    assert alternates(found) == [["middle", "small"]]
    assert isinstance(found, Plan)
    candidate = found.placements[0].chosen
    assert candidate.wanted == ((fleet.id_of("large"), (("VCPU", 1),)),)
    assert candidate.mappings == (("", (fleet.id_of("large"),)),)


def test_the_choice_is_made_among_the_best_of_the_subset() -> None:
    fleet = fleet_of(a=2, b=8, c=6, d=1)
    options = scheduler_options(subset_size=2)
    chosen = {hosts(planned(fleet, request(ONE_CPU), options, seed))[0] for seed in range(30)}
    assert chosen == {"b", "c"}
    assert planned(fleet, request(ONE_CPU), options, 5) == planned(fleet, request(ONE_CPU), options, 5)


def test_hosts_that_are_equally_good_are_all_chosen_at_times() -> None:
    fleet = fleet_of(a=4, b=4, c=4, d=1)
    chosen = {hosts(planned(fleet, request(ONE_CPU), OPTIONS, seed))[0] for seed in range(30)}
    assert chosen == {"a", "b", "c"}


@pytest.mark.parametrize(("first", "others"), [("a", ["c"]), ("b", ["d"]), ("e", ["f"])])
def test_alternates_are_of_the_same_cell(first: str, others: list[str]) -> None:
    """Hosts without a cell are one."""
    fleet = Fleet()
    for cell in ("cell-1", "cell-2"):
        fleet.aggregate(cell, "cell")
    for name, number in {"a": 1, "b": 2, "c": 1, "d": 2, "e": 0, "f": 0}.items():
        vcpus = 20 if name == first else 10
        fleet.provider(name, {"VCPU": vcpus}, aggregates=(f"cell-{number}",) if number else ())
    found = planned(fleet, request(ONE_CPU, alternates=5))
    assert hosts(found) == [first]
    assert alternates(found) == [others]


def test_every_candidate_on_a_host_is_tried_before_the_next_host(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    for host in ("best", "other"):
        fleet.provider(host)
        for cell in range(3):
            fleet.provider(f"{host}-{cell}", {"VCPU": 8 if host == "best" else 4}, parent=host)
    tried = []

    def picky(view: View, command: ReplaceAllocations, now_s: int) -> list[Event] | Rejection:
        ((provider, _),) = command.claims[0].wanted
        tried.append(provider)
        if provider != fleet.id_of("best-2"):
            return NoInventory(provider, ("VCPU",))
        return decide(view, command, now_s)

    monkeypatch.setattr(planning, "decide", picky)
    found = planned(fleet, request(asking(resources("1", VCPU=2))))
    assert hosts(found) == ["best"]
    assert tried == [fleet.id_of(f"best-{cell}") for cell in range(3)]


def test_a_refused_member_is_tried_on_the_next_host_and_the_last_refusal_is_reported() -> None:
    without_groups = scheduler_options(filter_names=["enabled"])
    fleet = fleet_of(a=8, b=4)
    group = fleet.group("apart", "anti-affinity", max_per_domain=1)
    fleet.take("a", {"VCPU": 1}, group)
    assert hosts(planned(fleet, request(ONE_CPU, group=group), without_groups)) == ["b"]
    fleet.take("b", {"VCPU": 1}, group)
    found = planned(fleet, request(ONE_CPU, group=group), without_groups)
    assert isinstance(found, NoFit)
    assert isinstance(found.refused, GroupPolicyBroken)


def test_a_sharing_provider_is_part_of_a_candidate_but_is_not_a_host() -> None:
    fleet = Fleet()
    fleet.provider("pool", {"DISK_GB": 100}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("near",))
    fleet.provider("host", {"VCPU": 4}, aggregates=("near",))
    found = planned(fleet, request(asking(resources(VCPU=1, DISK_GB=10)), 4))
    assert hosts(found) == ["host"] * 4
    found = planned(fleet, request(asking(resources(VCPU=1, DISK_GB=30)), 4, at_least=1))
    assert hosts(found) == ["host"] * 3
    # A second pool, on the host itself: together they have all that is asked, and nothing would run there.
    fleet.provider("card", {"VGPU": 4}, parent="host", traits=(SHARES_VIA_AGGREGATE,), aggregates=("near",))
    assert isinstance(planned(fleet, request(asking(resources(VGPU=1, DISK_GB=10)))), NoFit)
    assert hosts(planned(fleet, request(asking(resources(VGPU=1, DISK_GB=10, VCPU=1))))) == ["host"]


# -- batches ------------------------------------------------------------------------------------


def test_a_batch_sees_itself() -> None:
    fleet = fleet_of(a=2, b=2)
    assert sorted(hosts(planned(fleet, request(ONE_CPU, 4)))) == ["a", "a", "b", "b"]


def test_as_many_as_fit_if_these_are_enough_and_none_if_not() -> None:
    fleet = fleet_of(a=2, b=1)
    assert len(hosts(planned(fleet, request(ONE_CPU, 5, at_least=3)))) == 3
    found = planned(fleet, request(ONE_CPU, 5, at_least=4))
    assert isinstance(found, NoFit)
    assert (found.needed, found.fitting) == (4, 3)


def test_members_of_a_batch_keep_apart() -> None:
    fleet = fleet_of(a=8, b=8, c=8)
    group = fleet.group("apart", "anti-affinity", max_per_domain=1)
    found = planned(fleet, request(ONE_CPU, 2, group=group, alternates=2))
    assert len(set(hosts(found))) == 2
    # The only host that is free of both is the alternate of each.
    (left,) = {"a", "b", "c"} - set(hosts(found))
    assert alternates(found) == [[left], [left]]
    assert isinstance(planned(fleet, request(ONE_CPU, 4, group=group)), NoFit)


def test_members_of_a_batch_stay_together_where_there_is_room_for_all() -> None:
    """Many hosts are best for one, and one is for three."""
    fleet = Fleet()
    for number in range(9):
        fleet.provider(f"fast-{number}", {"VCPU": 2, "MEMORY_MB": 999})
    fleet.provider("roomy", {"VCPU": 3, "MEMORY_MB": 30})
    group = fleet.group("together", "affinity")
    options = scheduler_options(weigher_settings=["memory"])
    wanted = asking(resources(VCPU=1, MEMORY_MB=10))
    assert hosts(planned(fleet, request(wanted, 1, group=group), options))[0].startswith("fast")
    assert hosts(planned(fleet, request(wanted, 3, group=group), options)) == ["roomy"] * 3
    assert hosts(planned(fleet, request(wanted, 9, at_least=2, group=group), options)) == ["roomy"] * 3


def test_members_that_stay_together_are_tried_elsewhere_if_counting_was_too_hopeful() -> None:
    """Seven processors are enough for three times two, but not as three, three and one."""
    fleet = Fleet()
    for name, sizes in {"split": (3, 3, 1), "whole": (6,)}.items():
        fleet.provider(name)
        for number, size in enumerate(sizes):
            fleet.provider(f"{name}-{number}", {"VCPU": size}, parent=name)
    group = fleet.group("together", "affinity")
    wanted = asking(resources("1", VCPU=2))
    assert hosts(planned(fleet, request(wanted, 1, group=group))) == ["split"]
    assert hosts(planned(fleet, request(wanted, 3, group=group))) == ["whole"] * 3
    assert len(hosts(planned(fleet, request(wanted, 4, at_least=2, group=group)))) == 3


def test_a_batch_stays_in_the_zone_with_room_for_it() -> None:
    """The best single hosts are in the east, and the west has more of them."""
    fleet = Fleet()
    for zone, count, vcpus in (("east", 2, 4), ("west", 3, 3)):
        fleet.aggregate(zone, "zone")
        for number in range(count):
            fleet.provider(f"{zone}-{number}", {"VCPU": vcpus}, aggregates=(zone,))
    group = fleet.group("near", "affinity", "zone")
    assert hosts(planned(fleet, request(ONE_CPU, 1, group=group)))[0].startswith("east")
    found = hosts(planned(fleet, request(ONE_CPU, 9, group=group)))
    assert {name.partition("-")[0] for name in found} == {"west"}


def test_members_spread_over_zones() -> None:
    fleet = Fleet()
    for zone in ("a", "b", "c"):
        fleet.aggregate(zone, "zone")
    for number in range(6):
        fleet.provider(f"{'abc'[number % 3]}-{number}", {"VCPU": 9 - number}, aggregates=("abc"[number % 3],))
    even = fleet.group("even", "anti-affinity", "zone", max_skew=1)
    found = hosts(planned(fleet, request(ONE_CPU, 7, group=even)))
    counts = sorted(sum(name[0] == zone for name in found) for zone in "abc")
    assert counts == [2, 2, 3]


def test_what_is_applied_is_taken_back_when_something_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(a=4, b=4)
    before = fleet.view.state()
    calls = iter(range(3))

    def failing(*arguments: object) -> object:
        if next(calls) == 2:
            raise RuntimeError("broken")
        return decide(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "decide", failing)
    with pytest.raises(RuntimeError, match="broken"):
        plan(fleet.view, request(ONE_CPU, 4), OPTIONS, random.Random(1), 1)
    assert fleet.view.state() == before


# -- when nothing fits --------------------------------------------------------------------------


def test_steps_say_what_removed_how_many() -> None:
    fleet = Fleet()
    fleet.aggregate("east", "zone")
    fleet.provider("disabled", {"VCPU": 8, "MEMORY_MB": 64}, aggregates=("east",))
    fleet.provider("elsewhere", {"VCPU": 8, "MEMORY_MB": 64})
    fleet.provider("no-cpu", {"VCPU": 1, "MEMORY_MB": 64}, aggregates=("east",))
    fleet.provider("no-memory", {"VCPU": 8, "MEMORY_MB": 6}, aggregates=("east",))
    fleet.status("disabled", HostStatus(disabled=True))
    found = planned(fleet, request(asking(resources(VCPU=2, MEMORY_MB=8)), zone="east"))
    assert isinstance(found, NoFit)
    assert found.steps == (
        ConstraintStep("enabled", "a host that is not disabled", 1, 3),
        ConstraintStep("host_state", "a host that is up", 0, 3),
        ConstraintStep("zone", "the zone east", 1, 2),
        ConstraintStep("resources:VCPU", "2 VCPU free", 1, 1),
        ConstraintStep("resources:MEMORY_MB", "8 MEMORY_MB free", 1, 0),
        ConstraintStep("together", "all of it at once on one host", 0, 0),
    )


def test_hosts_that_only_the_whole_request_rules_out_are_removed_by_together() -> None:
    fleet = Fleet()
    fleet.provider("host")
    for number in range(2):
        fleet.provider(f"cell-{number}", {"VCPU": 3}, parent="host")
    wanted = asking(*(resources(suffix, VCPU=2) for suffix in "123"))
    found = planned(fleet, request(wanted))
    assert isinstance(found, NoFit)
    short = "host: the group 3 needs 2 VCPU, and cell-1 has 1 left beside the group 2."
    assert found.steps[-1] == ConstraintStep("together", "all of it at once on one host", 1, 0, nearest=short)


def test_traits_that_no_single_provider_has_are_the_step_that_removes() -> None:
    fleet = Fleet()
    fleet.provider("host")
    fleet.provider("cell-0", {"VCPU": 8}, parent="host", traits=("HW_NUMA_ROOT",))
    fleet.provider("cell-1", {"VCPU": 8}, parent="host", traits=("HW_CPU_X86_AVX",))
    both = (("HW_NUMA_ROOT",), ("HW_CPU_X86_AVX",))
    found = planned(fleet, request(asking(RequestGroup(suffix="1", resources=(("VCPU", 1),), required=both))))
    assert isinstance(found, NoFit)
    steps = [(step.constraint, step.asked) for step in found.steps if step.removed]
    assert steps == [("required1", "HW_CPU_X86_AVX on one provider")]


def test_traits_and_aggregates_are_steps_of_their_own() -> None:
    fleet = Fleet()
    fleet.provider("plain", {"VCPU": 8})
    fleet.provider("ssd", {"VCPU": 8}, traits=("STORAGE_DISK_SSD",))
    fleet.provider("both", {"VCPU": 8}, traits=("STORAGE_DISK_SSD", "HW_CPU_X86_AVX"), aggregates=("a",))
    group = RequestGroup(
        resources=(("VCPU", 1),),
        required=(("STORAGE_DISK_SSD", "STORAGE_DISK_HDD"),),
        forbidden=frozenset({"HW_CPU_X86_AVX"}),
        not_member_of=frozenset({"b"}),  # type: ignore[arg-type]
        in_tree=fleet.id_of("plain"),
    )
    found = planned(fleet, request(asking(group)))
    assert isinstance(found, NoFit)
    steps = [(step.constraint, step.removed, step.left) for step in found.steps if step.removed]
    assert steps == [("required", 1, 2), ("forbidden", 1, 1), ("in_tree", 1, 0)]


# -- hints and requests that are wrong ----------------------------------------------------------


def test_a_forced_host_skips_filters_but_not_the_ledger() -> None:
    fleet = fleet_of(a=4, b=8)
    fleet.status("a", HostStatus(disabled=True, down=True))
    forced = Hints(forced_host="a", ignore_hosts=frozenset({"a"}))
    found = planned(fleet, request(ONE_CPU, 2, hints=forced, alternates=1))
    assert hosts(found) == ["a", "a"]
    assert alternates(found) == [[], []]
    found = planned(fleet, request(ONE_CPU, 5, hints=forced))
    assert isinstance(found, NoFit)
    assert found.steps[0] == ConstraintStep("forced_host", "the host a", 1, 1)
    assert hosts(planned(fleet, request(ONE_CPU, hints=Hints(forced_host=fleet.id_of("b"))))) == ["b"]


def test_unknown_names_are_refused() -> None:
    fleet = fleet_of(a=4)
    fleet.provider("cell", {"VCPU": 4}, parent="a")
    wrong = {
        Hints(forced_host="x"): UnknownHost("forced_host", "x"),
        Hints(forced_host="cell"): UnknownHost("forced_host", "cell"),
        Hints(ignore_hosts=frozenset({"a", "x"})): UnknownHost("ignore_hosts", "x"),
        Hints(same_host=(ConsumerId("x"),)): UnknownConsumer("same_host", ConsumerId("x")),
        Hints(different_host=(ConsumerId("x"),)): UnknownConsumer("different_host", ConsumerId("x")),
    }
    for hints, refusal in wrong.items():
        assert planned(fleet, request(ONE_CPU, hints=hints)) == refusal
    assert planned(fleet, request(asking(resources(CUSTOM_X=1)))) == ResourceClassNotFound("CUSTOM_X")
    no_trait = RequestGroup(resources=(("VCPU", 1),), required=(("CUSTOM_X",),))
    assert planned(fleet, request(asking(no_trait))) == TraitsNotFound(("CUSTOM_X",))
    assert planned(fleet, request(ONE_CPU, group=GroupId("x"))) == GroupNotFound(GroupId("x"))


def test_members_are_new_and_named_once() -> None:
    fleet = fleet_of(a=4)
    taken = fleet.take("a", {"VCPU": 1})
    two = ScheduleRequest(ask=ONE_CPU, members=(taken,), at_least=1, project="p", user="u")
    assert planned(fleet, two) == ConsumerGenerationConflict(taken, 1, None)
    new = ConsumerId("new")
    two = ScheduleRequest(ask=ONE_CPU, members=(new, new), at_least=1, project="p", user="u")
    assert planned(fleet, two) == ConsumerClaimsTwice(new)


def test_unsuccessful_tries_are_bounded() -> None:
    fleet = fleet_of(**{f"h{n}": 2 for n in range(20)})
    group = fleet.group("apart", "anti-affinity", max_per_domain=1)
    for n in range(19):
        fleet.take(f"h{n}", {"VCPU": 1}, group)
    few = scheduler_options(filter_names=[], weigher_settings=["cpu=-1"], hosts_tried_max=5)
    found = planned(fleet, request(ONE_CPU, group=group), few)
    assert isinstance(found, NoFit)
    assert isinstance(found.refused, GroupPolicyBroken)
    assert found.gave_up
    many = scheduler_options(filter_names=[], weigher_settings=["cpu=-1"], hosts_tried_max=20)
    assert hosts(planned(fleet, request(ONE_CPU, group=group), many)) == ["h19"]
    fleet.take("h19", {"VCPU": 1}, group)
    found = planned(fleet, request(ONE_CPU, group=group), many)
    assert isinstance(found, NoFit)
    assert not found.gave_up, "all hosts were tried"


def fleet_of_trees(count: int) -> Fleet:
    fleet = Fleet()
    for host in range(count):
        fleet.provider(f"h{host}")
        for child in range(4):
            fleet.provider(f"h{host}-{child}", {"CUSTOM_PF": 4}, parent=f"h{host}")
    return fleet


MANY_PARTS = asking(*(resources(f"_{part}", CUSTOM_PF=1) for part in range(16)))


def test_a_batch_is_not_given_up_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that a plan begins with are enough for two members."""
    fleet = fleet_of_trees(20)
    monkeypatch.setattr(assignments, "STEPS_PER_REQUEST", 100)
    monkeypatch.setattr(candidates, "_RESULTS_MAX", 0)
    assert len(set(hosts(planned(fleet, request(MANY_PARTS, 20))))) == 20
    found = planned(fleet, request(MANY_PARTS, 21))
    assert isinstance(found, NoFit)
    assert (found.fitting, found.gave_up) == (20, False)


def test_a_plan_that_gave_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of_trees(20)
    monkeypatch.setattr(assignments, "STEPS_PER_REQUEST", 100)
    monkeypatch.setattr(candidates, "_RESULTS_MAX", 0)
    monkeypatch.setattr(candidates, "_STEPS_PER_MEMBER", 0)
    found = planned(fleet, request(MANY_PARTS, 20))
    assert isinstance(found, NoFit)
    assert 0 < found.fitting < 20
    assert found.gave_up
    assert found.steps[-1].left, "it is not said that the others have no candidate"


def test_candidates_beyond_the_limit_are_given_up() -> None:
    fleet = Fleet()
    fleet.provider("host")
    for cell in range(3):
        fleet.provider(f"cell-{cell}", {"VCPU": 4}, parent="host")
    group = fleet.group("apart", "anti-affinity", max_per_domain=1)
    fleet.take("cell-0", {"VCPU": 1}, group)
    for candidates_tried_max, gave_up in ((2, True), (3, False)):
        options = scheduler_options(filter_names=[], candidates_tried_max=candidates_tried_max)
        found = planned(fleet, request(ONE_CPU, group=group), options)
        assert isinstance(found, NoFit)
        assert found.gave_up is gave_up
