"""Requests that are cheap to send and could be dear to answer: the work is counted, never timed.

The shape that hurts is a wide tree of interchangeable devices and one request group per device: the
number of ways to pair them is a factorial.
"""

import pytest

from berth.ledger import decide
from berth.model.commands import Command, CreateProvider, SetAggregates, SetInventories, SetTraits
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import Inventory
from berth.model.scheduling import CandidatesRequest, RequestGroup
from berth.search.assignments import FRUITLESS_LEAST, FRUITLESS_MANY, FRUITLESS_MAX
from berth.search.candidates import Candidates, SearchOptions, find_candidates
from berth.view import View

HOSTS = 10
CHILDREN = 8
LIMIT = 1000
BOUNDED = SearchOptions(max_candidates=10_000)


def carry_out(view: View, command: Command) -> None:
    verdict = decide(view, command, 0)
    assert isinstance(verdict, list), verdict
    for event in verdict:
        view.apply(event)


def wide_fleet(hosts: int, children: int, inventory: Inventory) -> View:
    view = View()
    for host in range(hosts):
        root = ProviderId(f"host-{host}")
        carry_out(view, CreateProvider(root, root))
        for child in range(children):
            device = ProviderId(f"{root}-device-{child}")
            carry_out(view, CreateProvider(device, device, root))
            carry_out(view, SetInventories(device, None, {"VGPU": inventory}))
    return view


def ask(view: View, groups: int, amount: int = 1, **wide: object) -> Candidates:
    request = CandidatesRequest(
        groups=tuple(RequestGroup(suffix=str(n), resources=(("VGPU", amount),)) for n in range(groups)),
        limit=LIMIT,
        **wide,  # type: ignore[arg-type]
    )
    found = find_candidates(view, request, BOUNDED)
    assert isinstance(found, Candidates)
    return found


def hosts_of(found: Candidates) -> list[str]:
    return [candidate.allocations[0][0].root.name for candidate in found.requests]


@pytest.mark.parametrize("isolate", [True, False])
def test_eight_groups_on_eight_children_cost_in_proportion_to_the_limit(isolate: bool) -> None:
    found = ask(wide_fleet(HOSTS, CHILDREN, Inventory(1)), CHILDREN, isolate=isolate)
    assert len(found.requests) == LIMIT
    # A candidate is CHILDREN choices; those that differ little share most of them, and hosts that are alike
    # share all. All ways are 10 * 8!.
    assert found.effort.steps <= LIMIT // HOSTS * CHILDREN * 2
    assert found.effort.gave_up == 0


def test_a_limit_shows_every_host_alike() -> None:
    hosts = hosts_of(ask(wide_fleet(HOSTS, CHILDREN, Inventory(1)), CHILDREN, isolate=True))
    assert {hosts.count(f"host-{host}") for host in range(HOSTS)} == {LIMIT // HOSTS}


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("groups", [2, 8])
def test_a_caller_that_knows_no_trees_costs_no_more(isolate: bool, groups: int) -> None:
    """No two providers of one tree are for it: with isolate nothing is left, without it one child for all."""
    found = ask(wide_fleet(HOSTS, CHILDREN, Inventory(groups)), groups, isolate=isolate, nested=False)
    assert len(found.requests) == (0 if isolate else HOSTS * CHILDREN)
    assert found.effort.steps <= CHILDREN * CHILDREN * groups
    assert found.effort.gave_up == 0


def test_what_only_lenders_give_is_found_once_and_not_at_every_root() -> None:
    """Pools that serve a whole fleet: 12 ^ 3 ways, the same at each of 300 roots."""
    view = wide_fleet(300, 0, Inventory(1))
    rack = AggregateId("rack")
    for number in range(300):
        carry_out(view, SetAggregates(ProviderId(f"host-{number}"), None, (rack,)))
    for number in range(12):
        pool = ProviderId(f"pool-{number}")
        carry_out(view, CreateProvider(pool, pool))
        carry_out(view, SetInventories(pool, None, {"DISK_GB": Inventory(100)}))
        carry_out(view, SetAggregates(pool, None, (rack,)))
        carry_out(view, SetTraits(pool, None, frozenset(["MISC_SHARES_VIA_AGGREGATE"])))
    groups = tuple(RequestGroup(suffix=str(n), resources=(("DISK_GB", 1),)) for n in range(3))
    found = find_candidates(view, CandidatesRequest(groups=groups), BOUNDED)
    assert isinstance(found, Candidates)
    assert len(found.requests) == 12**3
    # At a root of its own a pool is found too: twelve roots, not three hundred.
    assert found.effort.steps <= 13 * 2 * 12**3


def test_the_steps_of_a_request_are_bounded_whatever_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.search.assignments.STEPS_PER_REQUEST", 100)
    monkeypatch.setattr("berth.search.assignments.STEPS_PER_RESULT", 0)
    found = ask(wide_fleet(HOSTS, CHILDREN, Inventory(1)), CHILDREN, isolate=True)
    assert found.effort.steps == 100
    assert 0 < len(found.requests) < LIMIT
    assert found.effort.gave_up > 0


@pytest.mark.parametrize("isolate", [True, False])
def test_nine_groups_on_eight_children_are_refused_by_counting(isolate: bool) -> None:
    found = ask(wide_fleet(HOSTS, CHILDREN, Inventory(1)), CHILDREN + 1, isolate=isolate)
    assert list(found.requests) == []
    assert found.effort.steps == 0


def test_equal_siblings_do_not_multiply_a_failure() -> None:
    """A child of seven that holds two groups of three has one left over; the counts of the whole, and of each
    size, would allow ten of three and thirteen of two."""
    view = wide_fleet(HOSTS, CHILDREN, Inventory(7))
    amounts = [3] * 10 + [2] * 13
    groups = tuple(RequestGroup(suffix=str(n), resources=(("VGPU", a),)) for n, a in enumerate(amounts))
    found = find_candidates(view, CandidatesRequest(groups=groups, limit=LIMIT), BOUNDED)
    assert isinstance(found, Candidates)
    assert list(found.requests) == []
    assert found.effort.steps > 0
    # One failing path and what hangs off it, for all hosts alike: quadratic in the groups.
    assert found.effort.steps <= len(amounts) ** 2
    assert found.effort.gave_up == 0


def test_the_same_without_a_limit_stops_at_the_bound() -> None:
    view = wide_fleet(2, CHILDREN, Inventory(1))
    groups = tuple(RequestGroup(suffix=str(n), resources=(("VGPU", 1),)) for n in range(CHILDREN))
    found = find_candidates(view, CandidatesRequest(groups=groups), SearchOptions(max_candidates=500))
    assert isinstance(found, Candidates)
    assert len(found.requests) == 500
    assert found.effort.steps <= 500 * CHILDREN * 2


def puzzles(hosts: int) -> View:
    """Hosts whose children all differ in size, so that no two dead ends are alike; nor are two hosts, for
    each has a device more of a size of its own, which takes no large group."""
    view = wide_fleet(hosts, 0, Inventory(1))
    for host in range(hosts):
        for child in range(14):
            device = ProviderId(f"host-{host}-device-{child}")
            carry_out(view, CreateProvider(device, device, ProviderId(f"host-{host}")))
            carry_out(view, SetInventories(device, None, {"VGPU": Inventory(103 + child)}))
        device = ProviderId(f"host-{host}-device")
        carry_out(view, CreateProvider(device, device, ProviderId(f"host-{host}")))
        carry_out(view, SetInventories(device, None, {"VGPU": Inventory(200 + host, max_unit=50)}))
    return view


def puzzle() -> CandidatesRequest:
    """A child holds two groups of 51, one of each, or three of 34, and the device more one of 34: that is one
    of 34 too few beside 14 of 51, and neither counting nor matching shows it."""
    amounts = [51] * 14 + [34] * 23
    groups = tuple(RequestGroup(suffix=str(n), resources=(("VGPU", a),)) for n, a in enumerate(amounts))
    return CandidatesRequest(groups=groups, limit=10)


def test_a_puzzle_is_given_up_and_the_next_host_is_tried() -> None:
    found = find_candidates(puzzles(3), puzzle(), BOUNDED)
    assert isinstance(found, Candidates)
    assert found.effort.gave_up == 3
    # What is looked at ahead counts, too.
    assert found.effort.steps <= found.effort.fruitless == 3 * FRUITLESS_MAX


def test_a_fleet_of_puzzles_gets_less_and_less_patience() -> None:
    hosts = FRUITLESS_MANY // FRUITLESS_MAX + 20
    found = find_candidates(puzzles(hosts), puzzle(), BOUNDED)
    assert isinstance(found, Candidates)
    assert found.effort.gave_up == hosts
    assert found.effort.fruitless == FRUITLESS_MANY + 20 * FRUITLESS_LEAST


def test_a_search_gives_up_after_so_many_fruitless_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.search.assignments.FRUITLESS_MANY", FRUITLESS_MAX)
    monkeypatch.setattr("berth.search.assignments.FRUITLESS_END", FRUITLESS_MAX + 2 * FRUITLESS_LEAST)
    found = find_candidates(puzzles(6), puzzle(), BOUNDED)
    assert isinstance(found, Candidates)
    assert found.effort.gave_up == 6
    assert found.effort.fruitless == FRUITLESS_MAX + 2 * FRUITLESS_LEAST


def test_required_traits_over_many_providers_do_not_multiply() -> None:
    """One spanning group, a trait that none of its providers has: every pairing would fail at its end."""
    view = wide_fleet(1, 40, Inventory(1))
    for child in range(40):
        device = ProviderId(f"host-0-device-{child}")
        carry_out(view, SetInventories(device, None, {"VGPU": Inventory(1), "FPGA": Inventory(1)}))
    carry_out(view, SetTraits(ProviderId("host-0"), None, frozenset(["HW_CPU_X86_AVX"])))
    group = RequestGroup(resources=(("VGPU", 1), ("FPGA", 1)), required=(("HW_CPU_X86_AVX",),))
    found = find_candidates(view, CandidatesRequest(groups=(group,)), BOUNDED)
    assert isinstance(found, Candidates)
    assert list(found.requests) == []
    assert found.effort.steps == 0
