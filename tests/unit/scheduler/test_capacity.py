"""As many fit as can be claimed, one after the other, by one who tries every order and every candidate."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from berth.ledger import decide
from berth.model.commands import Claim, ReplaceAllocations
from berth.model.events import inverse
from berth.model.ids import ConsumerId, GroupId
from berth.model.placement import SHARES_VIA_AGGREGATE, HostStatus
from berth.model.rejections import GroupNotFound, Rejection
from berth.model.scheduling import Capacity, Hints, HostCandidate, ScheduleRequest
from berth.scheduler.candidates import HostCandidates
from berth.scheduler.capacity.members import count_capacity, find_filters, find_open_hosts
from berth.view import View
from tests.options import scheduler_options
from tests.unit.scheduler.fleets import Fleet, asking, request, resources
from tests.unit.scheduler.fleets_at_random import flat_fleets, nested_fleets, sharing_fleets, tied_fleets

pytestmark = pytest.mark.fast

OPTIONS = scheduler_options()


def counted(fleet: Fleet, wanted: ScheduleRequest) -> Capacity:
    before = fleet.view.state()
    found = count_capacity(fleet.view, wanted, OPTIONS)
    assert isinstance(found, Capacity), found
    assert fleet.view.state() == before, "to count is not to change"
    return found


# -- one who tries everything -------------------------------------------------------------------


def most_by_trying(view: View, wanted: ScheduleRequest, aggregate: str | None = None) -> int:
    """The largest number of members that any sequence of claims could place."""
    return _Trying(view, wanted, aggregate).most(0)


class _Trying:
    def __init__(self, view: View, wanted: ScheduleRequest, aggregate: str | None) -> None:
        self._view = view
        self._wanted = wanted
        self._aggregate = aggregate
        self._seen: dict[object, int] = {}

    def most(self, placed: int) -> int:
        key = self._key()
        if key not in self._seen:
            self._seen[key] = max(
                (1 + self._after(candidate, placed) for candidate in self._candidates()), default=0
            )
        return self._seen[key]

    def _candidates(self) -> Iterator[HostCandidate]:
        view, wanted = self._view, self._wanted
        filters = find_filters(view, wanted, OPTIONS)
        candidates = HostCandidates.of(view, wanted.ask)
        assert not isinstance(filters, Rejection)
        assert not isinstance(candidates, Rejection)
        hosts = find_open_hosts(view, wanted, filters)
        for record in list(view.providers.values()):
            inside = self._aggregate is None or self._aggregate in record.aggregates
            if record.parent is None and hosts[record.row] and inside:
                yield from (
                    candidate for candidate in list(candidates.at(record)) if self._is_accepted(candidate)
                )

    def _is_accepted(self, candidate: HostCandidate) -> bool:
        return not isinstance(decide(self._view, self._claim(candidate, "trial"), 0), Rejection)

    def _after(self, candidate: HostCandidate, placed: int) -> int:
        events = decide(self._view, self._claim(candidate, f"placed-{placed}"), 0)
        assert not isinstance(events, Rejection)
        for event in events:
            self._view.apply(event)
        most = self.most(placed + 1)
        for event in reversed(events):
            self._view.apply(inverse(event))
        return most

    def _claim(self, candidate: HostCandidate, consumer: str) -> ReplaceAllocations:
        claim = Claim(ConsumerId(consumer), candidate.wanted, "p", "u", None, None, self._wanted.group)
        return ReplaceAllocations((claim,))

    def _key(self) -> object:
        used = tuple(tuple(sorted(record.used.items())) for record in self._view.providers.values())
        group = self._view.groups.records.get(self._wanted.group or GroupId(""))
        return used, group and tuple(sorted((host.name, len(who)) for host, who in group.hosts.items()))


# -- at random ---------------------------------------------------------------------------------


def _check(fleet: Fleet, wanted: ScheduleRequest) -> Capacity:
    found = counted(fleet, wanted)
    pairs = [(found.count, found.exact, most_by_trying(fleet.view, wanted))]
    for place in found.places:
        pairs.append((place.count, place.exact, most_by_trying(fleet.view, wanted, place.aggregate)))
    for count, exact, most in pairs:
        assert count == most if exact else count <= most
    return found


@settings(deadline=None, max_examples=300)
@given(flat_fleets())
def test_of_hosts_alone_as_many_fit_as_can_be_claimed(drawn: tuple[Fleet, ScheduleRequest]) -> None:
    fleet, wanted = drawn
    found = _check(fleet, wanted)
    in_several = any(len(record.aggregates) > 1 for record in fleet.view.providers.values())
    assert found.exact or in_several


@settings(deadline=None, max_examples=300)
@given(nested_fleets())
def test_in_trees_no_more_are_counted_than_can_be_claimed(drawn: tuple[Fleet, ScheduleRequest]) -> None:
    _check(*drawn)


@settings(deadline=None, max_examples=100)
@given(tied_fleets())
def test_parts_that_compete_are_not_counted_twice(drawn: tuple[Fleet, ScheduleRequest]) -> None:
    _check(*drawn)


@settings(deadline=None, max_examples=300)
@given(sharing_fleets())
def test_what_is_shared_is_counted_once(drawn: tuple[Fleet, ScheduleRequest]) -> None:
    _check(*drawn)


# -- by example ---------------------------------------------------------------------------------


def test_places_are_counted_each_by_itself_cells_and_zones_first() -> None:
    fleet = Fleet()
    fleet.aggregate("fast")
    fleet.aggregate("r1", "rack")
    fleet.aggregate("east", "zone")
    fleet.aggregate("west", "zone")
    fleet.aggregate("c1", "cell")
    fleet.provider("a", {"VCPU": 8}, aggregates=("c1", "east", "r1", "fast"))
    fleet.provider("b", {"VCPU": 4}, aggregates=("c1", "west", "r1"))
    fleet.take("a", {"VCPU": 3})
    found = counted(fleet, request(asking(resources(VCPU=2))))
    assert (found.count, found.exact, found.hosts) == (4, True, 2)
    assert [(place.kind, place.name, place.count) for place in found.places] == [
        ("cell", "c1", 4),
        ("zone", "east", 2),
        ("zone", "west", 2),
        ("rack", "r1", 4),
        (None, "fast", 2),
    ]


@pytest.mark.parametrize(("skew", "count"), [(1, 1 + 2), (2, 1 + 3), (9, 1 + 8)])
def test_a_rack_that_is_full_holds_the_others_back(skew: int, count: int) -> None:
    fleet = Fleet()
    for rack, cpus in (("r1", 1), ("r2", 8)):
        fleet.aggregate(rack, "rack")
        fleet.provider(f"host-{rack}", {"VCPU": cpus}, aggregates=(rack,))
    group = fleet.group("web", "anti-affinity", "rack", max_skew=skew)
    found = _check(fleet, request(asking(resources(VCPU=1)), group=group))
    assert (found.count, found.exact) == (count, True)


def test_a_pool_serves_each_zone_but_not_both() -> None:
    fleet = Fleet()
    fleet.aggregate("east", "zone")
    fleet.aggregate("west", "zone")
    fleet.provider("a", {"VCPU": 8}, aggregates=("east", "shared"))
    fleet.provider("b", {"VCPU": 8}, aggregates=("west", "shared"))
    fleet.provider("pool", {"DISK_GB": 100}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("shared",))
    found = counted(fleet, request(asking(resources(VCPU=1, DISK_GB=10))))
    assert (found.count, found.exact) == (10, True)
    assert [place.count for place in found.places] == [8, 8]


def test_a_pool_is_counted_beside_parts_that_are_tied() -> None:
    """Nothing was counted on hosts that take their disk from a pool."""
    fleet = Fleet()
    for host, cpus in (("a", 8), ("b", 8), ("c", 3)):
        fleet.provider(host, {"VCPU": cpus}, aggregates=("shared",))
    fleet.provider("pool", {"DISK_GB": 100}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("shared",))
    tied = (resources("1", VCPU=1), resources("2", VCPU=1))
    for disk_gb, count in ((10, 9), (20, 5), (60, 1), (101, 0)):
        found = _check(fleet, request(asking(*tied, resources(DISK_GB=disk_gb))))
        assert (found.count, found.exact) == (count, True)


def test_a_rack_with_a_shared_pool_may_look_better_than_it_is() -> None:
    fleet = Fleet()
    fleet.aggregate("r1", "rack")
    fleet.aggregate("r2", "rack")
    for host in ("a", "b"):
        fleet.provider(host, {"VCPU": 8}, aggregates=("r1", "shared"))
    fleet.provider("c", {"VCPU": 8, "DISK_GB": 40}, aggregates=("r2",))
    fleet.provider("pool", {"DISK_GB": 30}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("shared",))
    wanted = request(asking(resources(VCPU=1, DISK_GB=10)), group=fleet.group("web", "affinity", "rack"))
    assert _check(fleet, wanted).exact is False


def test_isolated_groups_of_a_tree_are_counted_exactly() -> None:
    fleet = Fleet()
    for host in ("a", "b"):
        fleet.provider(host)
        for cell in range(2):
            fleet.provider(f"{host}{cell}", {"PCPU": 16}, parent=host)
    fleet.take("a0", {"PCPU": 8})
    ask = asking(resources("1", PCPU=4), resources("2", PCPU=4), isolate=True)
    found = counted(fleet, request(ask))
    assert (found.count, found.exact) == (2 + 4, True)


def test_a_forced_host_is_counted_whatever_filters_say() -> None:
    fleet = Fleet()
    fleet.provider("a", {"VCPU": 8})
    fleet.provider("b", {"VCPU": 8})
    fleet.status("a", HostStatus(disabled=True))
    ask = asking(resources(VCPU=2))
    assert counted(fleet, request(ask)).count == 4
    assert counted(fleet, request(ask, hints=Hints(forced_host="a"))).count == 4
    assert counted(fleet, request(ask, hints=Hints(ignore_hosts=frozenset({"b"})))).count == 0


def test_an_unknown_group_is_refused() -> None:
    fleet = Fleet()
    fleet.provider("a", {"VCPU": 8})
    wanted = request(asking(resources(VCPU=2)), group=GroupId("nobody's"))
    assert count_capacity(fleet.view, wanted, OPTIONS) == GroupNotFound(GroupId("nobody's"))
