"""Each weigher: which of two hosts it likes better; and how they are set."""

import random

import numpy as np
import pytest

from berth.model.placement import HostStatus
from berth.model.scheduling import Plan, ScheduleRequest
from berth.scheduler.plan import Ranking, plan, weigh_hosts
from berth.scheduler.plugins import UnknownPlugin, WrongOption, weighers
from tests.options import DEFAULT_WEIGHERS, scheduler_options
from tests.unit.scheduler.fleets import Fleet, asking, request, resources

pytestmark = pytest.mark.fast

WANTED = request(asking(resources(VCPU=2, MEMORY_MB=4)))


def weights(fleet: Fleet, name: str, wanted: ScheduleRequest = WANTED) -> dict[str, float] | None:
    """The weight of every host, the same whether all are asked about at once or one by one."""
    (weigher,) = weighers([name])
    roots = [record for record in fleet.view.providers.values() if record.parent is None]
    rows = np.array([record.row for record in roots], np.intp)
    all_at_once = weigher.weigh(fleet.view, wanted, rows)
    if all_at_once is None:
        return None
    single = [weigher.weigh(fleet.view, wanted, rows[number : number + 1]) for number in range(len(rows))]
    assert all_at_once.tolist() == [float(one[0]) for one in single if one is not None]
    return {host.name: float(weight) for host, weight in zip(roots, all_at_once, strict=True)}


def fleet_of(*stocks: dict[str, int], nested: bool = False) -> Fleet:
    """Hosts h0, h1, ... and then many small ones, so that vectors are long."""
    fleet = Fleet()
    for number, stock in enumerate((*stocks, *[{"VCPU": 1}] * 10)):
        name = f"h{number}"
        fleet.provider(name, {} if nested else stock)
        if nested:
            fleet.provider(f"{name}.0", stock, parent=name)
    return fleet


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("name", "resource_class"),
    [("cpu", "VCPU"), ("cpu", "PCPU"), ("memory", "MEMORY_MB"), ("disk", "DISK_GB")],
)
def test_more_free_is_better(name: str, resource_class: str, nested: bool) -> None:
    fleet = fleet_of({resource_class: 8}, {resource_class: 16}, {resource_class: 32}, nested=nested)
    fleet.take("h2.0" if nested else "h2", {resource_class: 20})
    found = weights(fleet, name)
    assert found is not None
    assert [found[host] for host in ("h0", "h1", "h2")] == [8, 16, 12]


def test_hosts_with_devices_are_kept_for_those_who_ask_for_them() -> None:
    fleet = fleet_of({"VCPU": 8}, {"VCPU": 8, "FPGA": 1}, {"VCPU": 8, "FPGA": 1})
    fleet.provider("h1.gpu", {"VGPU": 4}, parent="h1")
    fleet.provider("h2.gpu", {"VGPU": 4}, parent="h2")
    fleet.take("h2.gpu", {"VGPU": 4})
    found = weights(fleet, "scarce_devices")
    assert found is not None
    assert [found[host] for host in ("h0", "h1", "h2")] == [0, -2, -1]
    asked = weights(fleet, "scarce_devices", request(asking(resources(VCPU=1), resources("1", VGPU=1))))
    assert asked is not None
    assert [asked[host] for host in ("h0", "h1", "h2")] == [0, -1, -1]
    assert weights(fleet_of({"VCPU": 8, "PCPU": 1, "DISK_GB": 5}), "scarce_devices") is None


def test_a_plan_leaves_a_host_with_devices_alone_while_there_is_another() -> None:
    fleet = Fleet()
    fleet.provider("gpus", {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 100, "VGPU": 4})
    fleet.provider("plain", {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10})
    found = plan(fleet.view, WANTED, scheduler_options(), random.Random(1), 0)
    assert isinstance(found, Plan)
    assert found.placements[0].chosen.host_name == "plain"


def test_a_weigher_ignores_a_class_that_no_host_has() -> None:
    assert weights(fleet_of({"VCPU": 8}), "disk") is None


def test_pack_prefers_the_fullest_host() -> None:
    found = weights(fleet_of({"VCPU": 4, "MEMORY_MB": 16}, {"VCPU": 8, "MEMORY_MB": 32}), "pack")
    assert found is not None
    # One member more would fit by processors and three by memory: four members' worth is left.
    assert found["h0"] == -4
    assert found["h0"] > found["h1"]


def test_fragmentation_prefers_hosts_that_leave_nothing_stranded() -> None:
    even = {"VCPU": 8, "MEMORY_MB": 16}
    uneven = {"VCPU": 8, "MEMORY_MB": 8}
    half = {"VCPU": 5, "MEMORY_MB": 8}
    found = weights(fleet_of(even, uneven, half), "fragmentation")
    assert found is not None
    assert [found[host] for host in ("h0", "h1", "h2")] == [0, -2, -0.5]


def test_build_failures_weigh_against_a_host() -> None:
    fleet = fleet_of({"VCPU": 8}, {"VCPU": 8})
    assert weights(fleet, "build_failures") is None
    fleet.status("h1", HostStatus(build_failures=3))
    found = weights(fleet, "build_failures")
    assert found is not None
    assert (found["h0"], found["h1"]) == (0, -3)


def test_soft_policies_prefer_domains_with_many_or_few_members() -> None:
    fleet = Fleet()
    for zone in ("east", "west"):
        fleet.aggregate(zone, "zone")
        for number in range(2):
            fleet.provider(f"{zone}-{number}", {"VCPU": 8, "MEMORY_MB": 64}, aggregates=(zone,))
    near = fleet.group("near", "soft-affinity", "zone")
    apart = fleet.group("apart", "soft-anti-affinity")
    hard = fleet.group("hard", "affinity")
    assert weights(fleet, "soft_affinity") is None
    for group in (near, apart, hard):
        for _ in range(2):
            fleet.take("east-0", {"VCPU": 1}, group)
    ask = WANTED.ask
    assert weights(fleet, "soft_affinity", request(ask, group=near)) == {
        "east-0": 2,
        "east-1": 2,
        "west-0": 0,
        "west-1": 0,
    }
    assert weights(fleet, "soft_affinity", request(ask, group=apart)) == {
        "east-0": -2,
        "east-1": 0,
        "west-0": 0,
        "west-1": 0,
    }
    assert weights(fleet, "soft_affinity", request(ask, group=hard)) is None


def test_members_are_counted_in_every_domain_of_a_host_large_or_small() -> None:
    fleet = Fleet()
    for name in ("small", "tiny", "large"):
        fleet.aggregate(name, "rack")
    for number in range(200):
        racks = {0: ("small", "tiny"), 1: ("small",), 2: ("tiny", "large")}.get(number, ("large",))
        fleet.provider(f"h{number}", {"VCPU": 8}, aggregates=racks)
    apart = fleet.group("apart", "soft-anti-affinity", "rack")
    for host in ("h0", "h1", "h1", "h9"):
        fleet.take(host, {"VCPU": 1}, apart)
    found = weights(fleet, "soft_affinity", request(WANTED.ask, group=apart))
    assert found is not None
    # In small there are three, in tiny one, in large one.
    assert [found[f"h{number}"] for number in range(4)] == [-4, -3, -2, -1]
    # A host that comes to be in a rack counts from then on.
    fleet.provider("late", {"VCPU": 8}, aggregates=("small",))
    found = weights(fleet, "soft_affinity", request(WANTED.ask, group=apart))
    assert found is not None
    assert found["late"] == -3


def test_spread_evens_out_what_a_policy_leaves_open() -> None:
    fleet = Fleet()
    for zone in ("east", "west"):
        fleet.aggregate(zone, "zone")
        fleet.provider(zone, {"VCPU": 8}, aggregates=(zone,))
    loose = fleet.group("loose", "anti-affinity", "zone", max_per_domain=3)
    strict = fleet.group("strict", "anti-affinity", max_per_domain=1)
    for group in (loose, strict):
        fleet.take("east", {"VCPU": 1}, group)
    assert weights(fleet, "spread", request(WANTED.ask, group=loose)) == {"east": -1, "west": 0}
    assert weights(fleet, "spread", request(WANTED.ask, group=strict)) is None


def test_weights_are_brought_to_one_scale_before_they_are_added() -> None:
    fleet = fleet_of({"VCPU": 11, "MEMORY_MB": 1}, {"VCPU": 6, "MEMORY_MB": 100_001})
    options = scheduler_options(weigher_settings=["cpu=3", "memory=-1"])
    rows = np.arange(2)
    assert weigh_hosts(fleet.view, WANTED, options, rows).tolist() == [3.0, -1.0]


@pytest.mark.parametrize("count", [0, 1, 5, 32, 128, 129, 1000])
def test_hosts_come_in_the_order_of_their_weights_each_once(count: int) -> None:
    rng = random.Random(count)
    values = [float(rng.randrange(1 + count // 3)) for _ in range(count)]
    order = sorted(range(count), key=lambda row: (-values[row], row))
    ranking = Ranking(np.arange(count), np.array(values))
    taken = ranking.take_any_of_best(1, rng)
    assert (taken is None) == (count == 0)
    if taken is not None:
        assert values[taken] == max(values)
        order.remove(taken)
    assert list(ranking.best_first()) == order


def test_all_hosts_are_taken_in_the_end() -> None:
    ranking = Ranking(np.arange(50), np.array([float(row % 7) for row in range(50)]))
    rng = random.Random(1)
    taken = [ranking.take_any_of_best(5, rng) for _ in range(51)]
    assert taken[-1] is None
    assert sorted(row for row in taken if row is not None) == list(range(50))


# -- options ------------------------------------------------------------------------------------


def test_defaults_are_all_there() -> None:
    assert len(scheduler_options().weighers) == len(DEFAULT_WEIGHERS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["cpu=x"], "the multiplier of the weigher cpu is 'x'; it must be a number from"),
        (["cpu=nan"], "'nan'"),
        (["cpu=inf"], "'inf'"),
        (["cpu="], "''"),
        (["cpu=1", "cpu=2"], "the weigher cpu is named twice"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_words(settings: list[str], words: str) -> None:
    with pytest.raises(WrongOption, match=words):
        scheduler_options(weigher_settings=settings)


def test_an_unknown_weigher_is_refused_with_the_list_of_weighers() -> None:
    with pytest.raises(UnknownPlugin, match=r"no weigher called ram; there are build_failures, cpu"):
        scheduler_options(weigher_settings=["ram=1.0"])


def test_bad_options_are_refused_by_name() -> None:
    with pytest.raises(WrongOption, match="subset_size is 0; it must be from 1 to"):
        scheduler_options(subset_size=0)
    with pytest.raises(WrongOption, match="the filter zone is named twice"):
        scheduler_options(filter_names=["zone", "zone"])
    assert scheduler_options(weigher_settings=["cpu"]).weighers[0][1] == 1
