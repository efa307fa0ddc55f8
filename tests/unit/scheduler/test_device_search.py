"""Devices on many hosts that all differ: hosts without enough of them are found by counting, not by searching
them one after the other.

Measured are steps and hosts that are found, never time. A plan here may try few hosts in vain: what it finds
then, it has found by counting.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pytest

from berth.model.ids import ConsumerId
from berth.model.placement import NUMA_ROOT, SHARES_VIA_AGGREGATE
from berth.model.rejections import NoFit, Rejection
from berth.model.scheduling import CandidatesRequest, Plan, RequestGroup, ScheduleRequest
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.devices import read_catalog
from berth.scheduler.flavors import FlavorAsk, FlavorSize, check_flavor
from berth.scheduler.plan import plan
from berth.search.assignments import Assignment, Effort, assignments_at
from berth.search.candidates import Candidates, SearchOptions, find_candidates
from berth.search.slots import Slot
from berth.view import UNLIMITED, ProviderRecord, View
from tests.options import scheduler_options
from tests.unit.scheduler.fleets import Fleet

pytestmark = pytest.mark.fast

HOSTS: Final = 120
TRIED_MAX: Final = 5
OPTIONS: Final = scheduler_options(hosts_tried_max=TRIED_MAX)
DEVICES: Final = read_catalog(
    [
        '{"name": "near", "resource_class": "PGPU", "numa_policy": "required"}',
        '{"name": "legacy", "resource_class": "PGPU", "numa_policy": "legacy"}',
        '{"name": "socket", "resource_class": "PGPU", "numa_policy": "socket"}',
        '{"name": "port", "resource_class": "SRIOV_NET_VF", "numa_policy": "required"}',
        '{"name": "fast", "resource_class": "PGPU", "numa_policy": "required", "traits": "CUSTOM_FAST"}',
    ],
    [],
)


def fleet_of(gpus: int, last: int, *, pool: bool = False, outside: int = 0) -> Fleet:
    """Hosts of two cells with so many GPUs each, of which the last has ``last`` in each. No two hosts are
    alike, and weighers like the last one least."""
    fleet = Fleet()
    rng = random.Random(1)
    if pool:
        fleet.provider(
            "pool", {"DISK_GB": 1 << 30}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("aggregate",)
        )
    for number in range(HOSTS):
        host, is_last = f"h{number}", number == HOSTS - 1
        fleet.provider(host, {} if pool else {"DISK_GB": 100}, aggregates=("aggregate",) if pool else ())
        for cell in range(2):
            name = f"{host}-numa{cell}"
            memory_mb = 8192 if is_last else 1 << 20
            amounts = {"PCPU": 8 if is_last else rng.randint(16, 64), "MEMORY_MB": memory_mb}
            fleet.provider(name, amounts, parent=host, traits=(NUMA_ROOT,))
            for gpu in range(last if is_last else gpus):
                traits = ("CUSTOM_FAST",) if gpu < 2 else ()
                fleet.provider(f"{name}-gpu{gpu}", {"PGPU": 1}, parent=name, traits=traits)
            for card in range(2):
                fleet.provider(f"{name}-nic{card}", {"SRIOV_NET_VF": rng.randint(4, 8)}, parent=name)
        for gpu in range(outside):
            fleet.provider(f"{host}-gpu{gpu}", {"PGPU": 1}, parent=host)
    return fleet


def request_of(cells: int, alias: str, members: int = 1) -> ScheduleRequest:
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": str(cells), "pci_passthrough:alias": alias}
    size = FlavorSize(vcpus=2 * cells, memory_mb=1024 * cells, disk_gb=1, extra_specs=specs)
    asked = check_flavor(size, {}, DEVICES)
    assert isinstance(asked, FlavorAsk), asked
    return _request(asked.ask, members, asked.otherwise)


def _request(
    ask: CandidatesRequest, members: int, otherwise: tuple[CandidatesRequest, ...] = ()
) -> ScheduleRequest:
    names = tuple(ConsumerId(f"m{number}") for number in range(members))
    return ScheduleRequest(
        ask=ask, otherwise=otherwise, members=names, at_least=members, project="p", user="u"
    )


def plan_in(view: View, request: ScheduleRequest) -> tuple[Plan | Rejection, int]:
    """What comes of a request, and how many steps it takes."""
    view.steps.begin(UNLIMITED)
    try:
        return plan(view, request, OPTIONS, random.Random(1), 0), UNLIMITED - view.steps.left
    finally:
        view.steps.end()


def hosts_in(found: Plan | Rejection) -> list[str]:
    assert isinstance(found, Plan), found
    return [placement.chosen.host_name for placement in found.placements]


ASKED: Final = {
    "near": (1, "near:4"),
    "near, with ports": (1, "near:4,port:4"),
    "legacy": (1, "legacy:4"),
    "legacy, with ports": (1, "legacy:4,port:4"),
    "some of each": (1, "legacy:2,near:2"),
    "near by socket or outside": (1, "legacy:2,socket:2"),
    "two cells": (2, "near:7,port:4"),
    "two cells, legacy": (2, "legacy:7"),
}


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("asked", ASKED)
def test_the_one_host_that_has_enough_devices_is_found_by_counting(asked: str, pool: bool) -> None:
    view = fleet_of(gpus=3, last=4, pool=pool).view
    found, _ = plan_in(view, request_of(*ASKED[asked]))
    assert hosts_in(found) == [f"h{HOSTS - 1}"]


INFEASIBLE: Final = {
    "near": (1, "near:5"),
    "legacy": (1, "legacy:5"),
    "legacy, with ports": (1, "legacy:5,port:4"),
    "both policies": (1, "legacy:2,near:3"),
    "near by socket or outside": (1, "legacy:4,socket:1"),
    "all policies": (1, "legacy:2,socket:2,near:1"),
    "two cells": (2, "legacy:9,port:2"),
    "of those with a trait": (1, "fast:3"),
}


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("asked", INFEASIBLE)
def test_what_no_host_has_is_refused_for_sure_and_without_a_search_of_each(asked: str, pool: bool) -> None:
    view = fleet_of(gpus=4, last=4, pool=pool).view
    found, steps = plan_in(view, request_of(*INFEASIBLE[asked]))
    assert isinstance(found, NoFit), found
    assert not found.gave_up
    assert steps < 30 * HOSTS


def test_devices_outside_of_all_cells_count_for_the_legacy_policy() -> None:
    view = fleet_of(gpus=2, last=2, outside=1).view
    assert hosts_in(plan_in(view, request_of(1, "legacy:3"))[0])
    for alias in ("legacy:4", "near:3", "near:3,legacy:1"):
        found, _ = plan_in(view, request_of(1, alias))
        assert isinstance(found, NoFit), alias
        assert not found.gave_up


def subtree_of(gpus: int) -> CandidatesRequest:
    cell = RequestGroup(suffix="_CELL", resources=(("PCPU", 2),), required=((NUMA_ROOT,),))
    devices = [RequestGroup(suffix=f"_GPU{n}", resources=(("PGPU", 1),)) for n in range(gpus)]
    disk = RequestGroup(resources=(("DISK_GB", 1),))
    together = frozenset({"_CELL", *(device.suffix for device in devices)})
    return CandidatesRequest(groups=(disk, cell, *devices), same_subtrees=(together,))


@pytest.mark.parametrize("pool", [False, True])
def test_a_plan_counts_what_subtrees_have(pool: bool) -> None:
    view = fleet_of(gpus=3, last=4, pool=pool).view
    found, _ = plan_in(view, _request(subtree_of(4), members=2))
    assert hosts_in(found) == [f"h{HOSTS - 1}"] * 2
    refused, steps = plan_in(view, _request(subtree_of(5), members=2))
    assert isinstance(refused, NoFit)
    assert not refused.gave_up
    assert steps < 30 * HOSTS


@pytest.mark.parametrize("pool", [False, True])
def test_groups_apart_that_ask_for_a_class_are_counted_by_themselves(pool: bool) -> None:
    """Three of cells and three of GPUs: there are enough providers in all, and too few cells."""
    cells = [
        RequestGroup(suffix=f"_CELL{n}", resources=(("PCPU", 2 + n),), required=((NUMA_ROOT,),))
        for n in range(3)
    ]
    devices = [RequestGroup(suffix=f"_GPU{n}", resources=(("PGPU", 1),)) for n in range(3)]
    disk = RequestGroup(resources=(("DISK_GB", 1),))
    view = fleet_of(gpus=4, last=4, pool=pool).view
    ask = CandidatesRequest(groups=(disk, *devices, *cells[:2]), isolate=True)
    assert hosts_in(plan_in(view, _request(ask, members=1))[0])
    ask = CandidatesRequest(groups=(disk, *devices, *cells), isolate=True)
    refused, steps = plan_in(view, _request(ask, members=1))
    assert isinstance(refused, NoFit)
    assert not refused.gave_up
    assert steps < 30 * HOSTS
    said = "the group _CELL2 needs a provider of its own, and there is none but h0-numa0 and h0-numa1"
    assert said in refused.steps[-1].nearest


@pytest.mark.parametrize("members", [30, HOSTS])
def test_a_batch_is_not_given_up_for_the_hosts_that_it_has_filled(members: int) -> None:
    """Each cell has GPUs for one member, and one GPU more: nothing is to be found on a host after two."""
    view = fleet_of(gpus=3, last=3).view
    found, _ = plan_in(view, _request(subtree_of(2), members=2 * members))
    assert len(hosts_in(found)) == 2 * members
    refused, _ = plan_in(view, _request(subtree_of(2), members=2 * HOSTS + 1))
    assert isinstance(refused, NoFit)
    assert (refused.fitting, refused.gave_up) == (2 * HOSTS, False)


@pytest.mark.parametrize("pool", [False, True])
def test_candidates_of_a_fleet_with_a_pool_are_not_looked_for_on_every_host(pool: bool) -> None:
    """Ports that all are to be below one cell, and disk that may come from the pool."""
    view = fleet_of(gpus=3, last=3, pool=pool).view
    view.steps.begin(UNLIMITED)
    found = find_candidates(view, subtree_of(4), SearchOptions(max_candidates=10))
    steps = UNLIMITED - view.steps.left
    view.steps.end()
    assert isinstance(found, Candidates)
    assert (len(found.requests), found.effort.gave_up) == (0, 0)
    assert steps < 30 * HOSTS


def puzzles(hosts: int) -> Fleet:
    """Hosts on which two cells have five GPUs, or five cards, and no two have both: no count tells. The last
    one has all beside its first cell."""
    fleet = Fleet()
    for number in range(hosts):
        host = f"h{number}"
        fleet.provider(host, {"DISK_GB": 100 + number})
        counts = ((3, 1), (1, 3), (2, 2)) if number < hosts - 1 else ((5, 5), (1, 1), (1, 1))
        for cell, (gpus, cards) in enumerate(counts):
            name = f"{host}-numa{cell}"
            fleet.provider(
                name, {"PCPU": 16 + number, "MEMORY_MB": 1 << 20}, parent=host, traits=(NUMA_ROOT,)
            )
            for kind, count in (("PGPU", gpus), ("SRIOV_NET_VF", cards)):
                for device in range(count):
                    fleet.provider(f"{name}-{kind}{device}", {kind: 1}, parent=name)
    return fleet


def test_hosts_that_a_plan_has_searched_are_not_searched_again_to_explain_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: Counter[str] = Counter()

    def count(
        view: View, ask: CandidatesRequest, slots: list[Slot], anchor: ProviderRecord, effort: Effort
    ) -> Iterator[Assignment]:
        searched[anchor.name] += 1
        return assignments_at(view, ask, slots, anchor, effort)

    monkeypatch.setattr("berth.scheduler.candidates.assignments_at", count)
    options = scheduler_options()
    request = request_of(2, "near:5,port:5", members=2)
    refused = plan(puzzles(20).view, request, options, random.Random(1), 0)
    assert isinstance(refused, NoFit)
    assert (refused.fitting, refused.gave_up) == (1, False)
    assert refused.steps[-1].left == 0
    assert searched.pop("h19") == 1
    # Once for each thing that is asked for.
    assert set(searched.values()) == {1 + len(request.otherwise)}
    assert len(searched) == 19


def test_hosts_like_one_whose_search_was_given_up_may_have_a_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has seen that there is none, on either of them."""
    fleet = Fleet()
    for host in ("h0", "h1"):
        fleet.provider(host, {"DISK_GB": 100})
        for cell in range(2):
            amounts = {"PCPU": 8, "MEMORY_MB": 8192}
            fleet.provider(f"{host}-numa{cell}", amounts, parent=host, traits=(NUMA_ROOT,))
    for module in ("search.assignments", "scheduler.candidates"):
        monkeypatch.setattr(f"berth.{module}.FRUITLESS_MAX", 2)
    request = request_of(2, "near:1")
    groups = tuple(group for group in request.ask.groups if group.suffix != "_pci0")
    ask = msgspec.structs.replace(request.ask, groups=groups, affinities=())
    candidates = HostCandidates.of(fleet.view, ask)
    assert isinstance(candidates, HostCandidates), candidates
    hosts = candidates.hosts.copy()
    assert np.count_nonzero(hosts) == 2
    assert np.array_equal(candidates.drop_barren(hosts, 10), hosts)
    assert candidates.given_up == 1, "the second was not searched"
