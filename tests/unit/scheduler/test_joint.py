"""Joint plans: requests of different kinds that are placed together, or not at all."""

import random
from collections import Counter

import pytest

from berth.model.ids import ConsumerId, GroupId
from berth.model.rejections import GroupNotFound, NoFit, ResourceClassNotFound
from berth.model.scheduling import Plan, ScheduleRequest
from berth.scheduler.joint import fits_jointly, plan_jointly
from tests.options import scheduler_options
from tests.unit.scheduler.fleets import Fleet, asking, resources

pytestmark = pytest.mark.fast

OPTIONS = scheduler_options()
PACKING = scheduler_options(weigher_settings=("pack",))


def wanted(
    prefix: str, count: int, vcpus: int = 1, group: GroupId | None = None, alternates: int = 0
) -> ScheduleRequest:
    return ScheduleRequest(
        ask=asking(resources(VCPU=vcpus)),
        members=tuple(ConsumerId(f"{prefix}-{number}") for number in range(count)),
        at_least=count,
        project="p",
        user="u",
        group=group,
        alternates=alternates,
    )


def fleet_of(*vcpus: int) -> Fleet:
    fleet = Fleet()
    for number, amount in enumerate(vcpus):
        fleet.provider(f"h{number}", {"VCPU": amount})
    return fleet


def planned(
    fleet: Fleet, *requests: ScheduleRequest, packing: bool = False, seed: int = 1
) -> tuple[Plan, ...]:
    before = fleet.view.state()
    plans = plan_jointly(fleet.view, requests, PACKING if packing else OPTIONS, random.Random(seed), 0)
    assert fleet.view.state() == before
    assert isinstance(plans, tuple), plans
    assert [plan.request for plan in plans] == list(requests)
    return plans


def refused(fleet: Fleet, *requests: ScheduleRequest) -> object:
    before = fleet.view.state()
    answer = plan_jointly(fleet.view, requests, OPTIONS, random.Random(1), 0)
    assert fleet.view.state() == before
    assert not isinstance(answer, tuple)
    return answer


def hosts(plans: tuple[Plan, ...]) -> Counter[str]:
    return Counter(placement.chosen.host_name for plan in plans for placement in plan.placements)


def test_each_request_sees_those_before_it() -> None:
    plans = planned(fleet_of(2, 2), wanted("a", 1, 2), wanted("b", 1, 2))
    assert hosts(plans) == {"h0": 1, "h1": 1}


def test_a_rejection_is_about_all_requests_together() -> None:
    answer = refused(fleet_of(2, 2), wanted("a", 2, 2), wanted("b", 1, 2))
    assert isinstance(answer, NoFit)
    assert (answer.needed, answer.fitting) == (3, 2)


def test_a_wrong_request_is_rejected() -> None:
    assert refused(fleet_of(2), wanted("a", 1), wanted("b", 1, group=GroupId("none"))) == GroupNotFound(
        GroupId("none")
    )
    other = ScheduleRequest(
        ask=asking(resources(CUSTOM_NONE=1)), members=(ConsumerId("b"),), at_least=1, project="p", user="u"
    )
    assert refused(fleet_of(2), wanted("a", 1), other) == ResourceClassNotFound("CUSTOM_NONE")


def test_larger_ones_come_first_where_the_order_that_was_asked_for_fails() -> None:
    """The small one would be given the large host, by those who spread and by those who pack."""
    fleet = fleet_of(4, 2)
    assert hosts(planned(fleet, wanted("small", 1, 2), wanted("large", 1, 4))) == {"h0": 1, "h1": 1}
    fleet = fleet_of(3, 4)
    plans = planned(fleet, wanted("small", 1, 3), wanted("large", 1, 4), packing=True)
    assert [plan.placements[0].chosen.host_name for plan in plans] == ["h0", "h1"]


def test_members_of_groups_take_what_room_there_is_exactly() -> None:
    """Two groups of three on hosts with room for 3, 1, 1 and 1: packed, the first would leave the second one
    too few."""
    fleet = fleet_of(3, 1, 1, 1)
    groups = [fleet.group(f"g{number}", "anti-affinity", "host", 1) for number in range(2)]
    assert isinstance(
        refused(fleet, *(wanted(f"g{number}", 3, group=id) for number, id in enumerate(groups))), NoFit
    )
    requests = [wanted("g0", 3, group=groups[0]), wanted("g1", 2, group=groups[1])]
    assert hosts(planned(fleet, *requests, packing=True)) == {"h0": 2, "h1": 1, "h2": 1, "h3": 1}


@pytest.mark.parametrize("seed", range(10))
def test_those_with_the_least_choice_come_first_where_groups_have_members(seed: int) -> None:
    """h2 has room for one more, the most that is free anywhere; and the second group can go nowhere else."""
    fleet = fleet_of(3, 3, 3)
    first, second = (fleet.group(name, "anti-affinity", "host", 1) for name in ("first", "second"))
    fleet.take("h0", {"VCPU": 1}, second)
    fleet.take("h1", {"VCPU": 1}, second)
    plans = planned(fleet, wanted("a", 2, 2, first), wanted("b", 1, 2, second), seed=seed)
    assert hosts(plans[1:]) == {"h2": 1}
    assert hosts(plans[:1]) == {"h0": 1, "h1": 1}


def test_racks_with_the_most_room_come_first() -> None:
    fleet = Fleet()
    for number, vcpus in enumerate((1, 1, 1, 1)):
        fleet.provider(f"h{number}", {"VCPU": vcpus}, aggregates=("wide" if number < 2 else f"r{number}",))
    for name in ("wide", "r2", "r3"):
        fleet.aggregate(name, "rack")
    groups = [fleet.group(f"g{number}", "anti-affinity", "rack", 1) for number in range(2)]
    plans = planned(fleet, *(wanted(f"g{number}", 2, group=id) for number, id in enumerate(groups)))
    assert hosts(plans) == {"h0": 1, "h1": 1, "h2": 1, "h3": 1}
    assert isinstance(refused(fleet, wanted("x", 4, group=groups[0])), NoFit)


def test_alternates_are_those_that_are_left_in_the_same_cell() -> None:
    fleet = Fleet()
    for number in range(7):
        is_near = number < 5
        fleet.provider(
            f"h{number}", {"VCPU": 4 if is_near else 3}, aggregates=("cell1" if is_near else "cell2",)
        )
    for name in ("cell1", "cell2"):
        fleet.aggregate(name, "cell")
    group = fleet.group("g", "anti-affinity", "host", 1)
    first, second = wanted("a", 3, 2, group=group, alternates=3), wanted("b", 1, 4, alternates=3)
    plans = planned(fleet, first, second)
    near = {f"h{number}" for number in range(5)}
    (left,) = near - set(hosts(plans))
    for placement in plans[0].placements:
        assert [candidate.host_name for candidate in placement.alternates] == [left]
    assert [candidate.host_name for candidate in plans[1].placements[0].alternates] == [left]


@pytest.mark.parametrize(("count", "fits"), [(2, True), (3, False)])
def test_a_joint_fit_is_judged_without_a_change(count: int, fits: bool) -> None:
    fleet = fleet_of(2, 2)
    before = fleet.view.state()
    assert fits_jointly(fleet.view, [wanted("a", count, 2)], OPTIONS, random.Random(1), 0) is fits
    assert fleet.view.state() == before


def test_nothing_to_place_is_nothing_planned() -> None:
    assert planned(fleet_of(1)) == ()
