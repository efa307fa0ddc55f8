"""Needs: claimed where the server is, at once, and part of every claim and move from then on."""

from collections.abc import Sequence

import msgspec
import pytest

from berth.doctor.findings import examine
from berth.model import commands as c
from berth.model.ids import AggregateId, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, Inventory, Label
from berth.model.rejections import (
    CapacityExceeded,
    NeedDoesNotFit,
    NeedNotFound,
    Rejection,
    ResourceClassNotFound,
    ServerBusy,
    ServerChangedByOthers,
    ServerNotFound,
    ServerUnsettled,
    TooManyNeeds,
    TraitsNotFound,
    UnitsViolated,
)
from berth.model.servers import NEED_GROUPS_TOTAL_MAX, NEEDS_MAX, ConflictPolicy, Need, NeedGroup
from berth.sagas import needs
from berth.sagas.conflicts import ConflictRules, as_dict
from berth.sagas.saga import all_sagas
from tests.unit.sagas.regions import BANDWIDTH, Faults, Region, S, host_id, nic_id, pool_id, prepared

pytestmark = pytest.mark.fast


def put(
    region: Region,
    amount: int = 100,
    name: str = "port",
    *,
    resources: dict[str, int] | None = None,
    required: Sequence[str] = (),
    policy: ConflictPolicy = "fail",
) -> Rejection | None:
    need = Need(name, resources or {BANDWIDTH: amount}, tuple(required))
    return region.tries(lambda view, now_s: needs.set_need(view, now_s, ConflictRules(policy), S, need))


def remove(region: Region, name: str = "port", policy: ConflictPolicy = "fail") -> Rejection | None:
    return region.tries(lambda view, now_s: needs.remove_need(view, now_s, ConflictRules(policy), S, name))


def bandwidth(region: Region, consumer: str = S) -> dict[str, int]:
    """How much of it is held, by the number of the host."""
    return {
        provider[-1]: amounts[BANDWIDTH]
        for provider, amounts in region.held(consumer).items()
        if BANDWIDTH in amounts
    }


def number_of(region: Region) -> str:
    place = region.server(S).place
    assert place is not None
    return place.name.removeprefix("host-")


def is_sound(region: Region) -> bool:
    """Whether the record, its needs and the allocations say the same."""
    server = region.server(S)
    met = sum(n for need in server.needs for _, amounts in need.held for _, n in amounts)
    return (
        as_dict(server.held) == region.held(S)
        and met == sum(bandwidth(region).values())
        and examine(region.view, region.now_s) == ()
    )


@pytest.fixture
def region() -> Region:
    return prepared("migrate")


# -- claimed at once ----------------------------------------------------------------------------


def test_a_need_is_claimed_where_the_server_is(region: Region) -> None:
    before = region.held(S)
    assert put(region) is None
    assert region.held(S) == before | {nic_id(int(number_of(region))): {BANDWIDTH: 100}}
    assert is_sound(region)


def test_putting_it_again_replaces_its_part(region: Region) -> None:
    put(region, 100)
    put(region, 50, "other")
    assert put(region, 900) is None
    assert bandwidth(region) == {number_of(region): 950}
    assert is_sound(region)


def test_what_it_had_counts_as_free_for_what_it_wants(region: Region) -> None:
    assert put(region, 900) is None
    assert put(region, 1000) is None
    assert bandwidth(region) == {number_of(region): 1000}


def test_taking_it_away_gives_it_back(region: Region) -> None:
    before = region.held(S)
    put(region)
    put(region, 7, "other")
    assert remove(region) is None
    assert bandwidth(region) == {number_of(region): 7}
    assert remove(region, "other") is None
    assert region.held(S) == before
    assert region.server(S).needs == ()
    assert is_sound(region)


def test_no_room_is_a_refusal_that_says_so(region: Region) -> None:
    before = region.view.state()
    assert put(region, 1001) == NeedDoesNotFit(S, "port", f"host-{number_of(region)}")
    assert put(region, 1, required=["HW_NIC_SRIOV"]) == NeedDoesNotFit(S, "port", f"host-{number_of(region)}")
    assert region.view.state() == before


def test_what_the_ledger_says_of_the_sum_is_passed_on(region: Region) -> None:
    """By itself it has room; with what the server holds there already it does not fit the units."""
    refused = put(region, resources={"VCPU": 7})
    assert isinstance(refused, NeedDoesNotFit)
    assert isinstance(refused.refused, UnitsViolated)
    assert refused.refused.asked == 9


def test_a_need_may_be_more_of_what_the_flavor_has(region: Region) -> None:
    assert put(region, resources={"VCPU": 3}) is None
    assert region.held(S)[host_id(int(number_of(region)))]["VCPU"] == 5
    assert remove(region) is None
    assert region.held(S)[host_id(int(number_of(region)))]["VCPU"] == 2


def test_a_provider_that_shares_can_meet_it(region: Region) -> None:
    pool, aggregate = ProviderId("pool"), AggregateId("20000000-0000-4000-8000-000000000001")
    region.do(c.CreateProvider(pool, "pool"))
    region.do(c.SetInventories(pool, None, {"FPGA": Inventory(4)}))
    region.do(c.SetTraits(pool, None, frozenset({SHARES_VIA_AGGREGATE})))
    region.do(c.SetAggregates(pool, None, (aggregate,)))
    region.do(c.LabelAggregate(aggregate, Label(None, "pool")))
    host = host_id(int(number_of(region)))
    assert isinstance(put(region, resources={"FPGA": 1}), NeedDoesNotFit)
    region.do(c.SetAggregates(host, None, (*region.view.providers[host].aggregates, aggregate)))
    assert put(region, resources={"FPGA": 1}) is None
    assert region.held(S)[pool] == {"FPGA": 1}


def test_needs_with_unknown_names_are_refused(region: Region) -> None:
    assert put(region, resources={"CUSTOM_NONE": 1}) == ResourceClassNotFound("CUSTOM_NONE")
    assert put(region, required=["CUSTOM_NONE"]) == TraitsNotFound(("CUSTOM_NONE",))
    assert remove(region, "none") == NeedNotFound(S, "none")
    need = Need("port", {BANDWIDTH: 1})
    assert needs.set_need(region.view, 0, ConflictRules(), "none", need) == ServerNotFound("none")


def test_a_server_has_so_many_and_no_more(region: Region) -> None:
    for number in range(NEEDS_MAX):
        assert put(region, 1, f"port-{number}") is None
    assert put(region, 1, "one-more") == TooManyNeeds("needs", NEEDS_MAX + 1, NEEDS_MAX)
    assert put(region, 2, "port-0") is None, "one of its own may still change"
    assert bandwidth(region) == {number_of(region): NEEDS_MAX + 1}


# -- beside what else happens -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [saga.name for saga in all_sagas() if saga.name != "create" and saga.task is not None]
)
def test_while_an_operation_is_under_way_the_other_waits(name: str) -> None:
    region = prepared(name)
    assert region.begin(name, S) is None
    before = region.view.state()
    refused = put(region)
    assert isinstance(refused, ServerBusy)
    assert refused.task == region.server(S).task
    assert isinstance(remove(region), ServerBusy)
    assert region.view.state() == before


def test_while_a_resize_waits_for_its_confirmation(region: Region) -> None:
    put(region)
    region.run("resize", S)
    migration = region.migration(S).id
    assert put(region, 200) == ServerUnsettled(S, "change the needs", migration)
    assert remove(region) == ServerUnsettled(S, "change the needs", migration)
    region.run("confirm", S)
    assert put(region, 200) is None
    assert is_sound(region)


def test_one_that_holds_nothing_is_to_have_it_when_it_is_placed() -> None:
    region = prepared("unshelve")
    assert put(region) is None
    assert region.held(S) == {}
    assert region.server(S).needs[0].held == ()
    region.run("unshelve", S)
    assert bandwidth(region) == {number_of(region): 100}
    assert is_sound(region)
    region.run("shelve_away", S)
    assert region.held(S) == {}
    assert remove(region) is None
    assert region.server(S).needs == ()


def test_others_who_have_changed_it_meanwhile(region: Region) -> None:
    card = nic_id(int(number_of(region)))
    held = region.server(S).held
    region.claim(S, *held, (card, ((BANDWIDTH, 10),)))
    assert isinstance(put(region), ServerChangedByOthers)
    assert put(region, policy="merge") is None
    assert bandwidth(region) == {number_of(region): 110}
    assert as_dict(region.server(S).kept) == {card: {BANDWIDTH: 10}}
    assert remove(region) is None
    assert bandwidth(region) == {number_of(region): 10}


# -- moves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resize", "migrate", "live_migrate", "evacuate"])
def test_a_need_goes_with_its_server(name: str) -> None:
    region = prepared(name)
    source = number_of(region)
    if name == "evacuate":
        region.set_down(int(source), down=False)
    put(region)
    if name == "evacuate":
        region.set_down(int(source))
    region.run(name, S)
    assert bandwidth(region) == {number_of(region): 100}
    if name in ("resize", "migrate"):
        assert bandwidth(region, region.migration(S).id) == {source: 100}
        region.run("confirm", S)
    assert is_sound(region)
    assert remove(region) is None
    assert bandwidth(region) == {}


@pytest.mark.parametrize("faults", [Faults(["prepare"]), Faults(["send"]), Faults(["receive"])])
def test_a_need_comes_back_with_its_server(region: Region, faults: Faults) -> None:
    """It is met at the source again, and can be taken away there."""
    source = number_of(region)
    put(region)
    region.run("migrate", S, faults)
    assert number_of(region) == source
    assert bandwidth(region) == {source: 100}
    assert is_sound(region)
    assert remove(region) is None
    assert bandwidth(region) == {}
    assert is_sound(region)


def test_a_need_is_reverted_with_its_server(region: Region) -> None:
    source = number_of(region)
    put(region)
    region.run("migrate", S)
    region.run("revert", S)
    assert bandwidth(region) == {source: 100}
    assert remove(region) is None
    assert bandwidth(region) == {}
    assert is_sound(region)


@pytest.mark.parametrize("name", ["migrate", "unshelve"])
def test_a_need_is_met_at_the_alternate(name: str) -> None:
    region = prepared(name)
    put(region)
    run = region.run(name, S, Faults(once=["prepare", "build"]))
    assert run.attempt == 2
    assert bandwidth(region) == {number_of(region): 100}
    if name == "migrate":
        region.run("confirm", S)
    assert is_sound(region)
    assert remove(region) is None
    assert bandwidth(region) == {}


def test_a_server_is_not_moved_to_where_its_need_cannot_be_met(region: Region) -> None:
    put(region, 600)
    others = [number for number in range(1, 6) if str(number) != number_of(region)]
    for number in others[1:]:
        region.claim(f"other-{number}", (nic_id(number), ((BANDWIDTH, 500),)), type="PORT")
    region.run("migrate", S)
    assert number_of(region) == str(others[0])


def test_a_need_that_fits_nowhere_else_keeps_the_server_where_it_is(region: Region) -> None:
    put(region, 600)
    for number in range(1, 6):
        if str(number) != number_of(region):
            region.claim(f"other-{number}", (nic_id(number), ((BANDWIDTH, 500),)), type="PORT")
    before = region.view.state()
    assert region.begin("migrate", S) is not None
    assert region.view.state() == before


def test_the_sum_is_judged_not_the_part() -> None:
    """Two servers on one host cannot both have what only one of them could."""
    region = Region(hosts=1)
    region.run("create", S)
    region.run("create", "t")
    need = Need("port", {BANDWIDTH: 600})
    assert region.tries(lambda view, now_s: needs.set_need(view, now_s, ConflictRules(), "t", need)) is None
    assert isinstance(put(region, 600), NeedDoesNotFit)
    region.claim("port", (nic_id(1), ((BANDWIDTH, 400),)), type="PORT")
    refused = put(region, 1)
    assert isinstance(refused, NeedDoesNotFit)
    assert not isinstance(refused.refused, CapacityExceeded), "it is found before it is claimed"


def test_a_revert_takes_along_what_others_added_in_a_pool(region: Region) -> None:
    """It was refused, as if a pool were no place for what is beside the server's host."""
    pool, aggregate = pool_id(1), AggregateId("20000000-0000-4000-8000-000000000001")
    region.do(c.CreateProvider(pool, "pool"))
    region.do(c.SetInventories(pool, None, {"FPGA": Inventory(4)}))
    region.do(c.SetTraits(pool, None, frozenset({SHARES_VIA_AGGREGATE})))
    region.do(c.SetAggregates(pool, None, (aggregate,)))
    for number in range(1, 6):
        host = host_id(number)
        region.do(c.SetAggregates(host, None, (*region.view.providers[host].aggregates, aggregate)))
    region.run("migrate", S)
    region.claim(S, *region.server(S).held, (pool, (("FPGA", 1),)))
    region.run("revert", S, policy="merge")
    assert region.held(S)[pool] == {"FPGA": 1}
    assert as_dict(region.server(S).kept) == {pool: {"FPGA": 1}}


# -- several groups -----------------------------------------------------------------------------


PACKETS = "NET_PACKET_RATE_KILOPACKET_PER_SEC"


def switch_id(number: int) -> ProviderId:
    return ProviderId(f"30000000-0000-4000-8000-{number:012}")


@pytest.fixture
def switched() -> Region:
    """Each host has a virtual switch for packets beside its card, and the card is below the switch on the
    hosts of odd numbers alone."""
    region = Region()
    region.do(c.CreateTrait("CUSTOM_PHYSNET_A"))
    for number in range(1, 6):
        region.do(c.CreateProvider(switch_id(number), f"switch-{number}", host_id(number)))
        region.do(c.SetInventories(switch_id(number), None, {PACKETS: Inventory(1000)}))
        card = region.view.providers[nic_id(number)]
        region.do(c.SetTraits(card.id, None, frozenset(("CUSTOM_PHYSNET_A",))))
        if number % 2:
            region.do(c.UpdateProvider(card.id, card.name, switch_id(number), may_reparent=True))
    return region


def grouped(*, same_subtree: bool = False, packets: int = 100) -> Need:
    return Need(
        "port",
        {},
        groups=(
            NeedGroup("bandwidth", {BANDWIDTH: 400}, ("CUSTOM_PHYSNET_A",)),
            NeedGroup("packets", {PACKETS: packets}, (), ("CUSTOM_PHYSNET_A",)),
        ),
        same_subtree=("bandwidth", "packets") if same_subtree else (),
    )


def set_grouped(region: Region, need: Need) -> Rejection | None:
    return region.tries(lambda view, now_s: needs.set_need(view, now_s, ConflictRules(), S, need))


def is_met_by_groups(region: Region) -> bool:
    """Whether each group is met by the provider that has what it asks for, on the server's host."""
    (need,) = region.server(S).needs
    number = int(number_of(region))
    return as_dict(need.held) == {nic_id(number): {BANDWIDTH: 400}, switch_id(number): {PACKETS: 100}} and [
        as_dict(group.held) for group in need.groups
    ] == [{nic_id(number): {BANDWIDTH: 400}}, {switch_id(number): {PACKETS: 100}}]


def test_each_group_is_met_by_a_provider_of_its_own(switched: Region) -> None:
    switched.run("create", S)
    before = switched.held(S)
    assert set_grouped(switched, grouped()) is None
    assert is_met_by_groups(switched)
    assert remove(switched) is None
    assert switched.held(S) == before


def test_groups_move_and_come_back_with_the_server(switched: Region) -> None:
    switched.run("create", S)
    assert set_grouped(switched, grouped()) is None
    source = number_of(switched)
    switched.run("migrate", S)
    assert number_of(switched) != source
    assert is_met_by_groups(switched)
    switched.run("revert", S)
    assert number_of(switched) == source
    assert is_met_by_groups(switched)
    switched.run("shelve_away", S)
    (need,) = switched.server(S).needs
    assert (need.held, [group.held for group in need.groups]) == ((), [(), ()])
    switched.run("unshelve", S)
    assert is_met_by_groups(switched)


def test_groups_of_one_subtree_are_met_where_there_is_one(switched: Region) -> None:
    switched.run("create", S, needs=(grouped(same_subtree=True),))
    assert int(number_of(switched)) % 2
    assert is_met_by_groups(switched)
    switched.run("migrate", S)
    assert int(number_of(switched)) % 2
    assert is_met_by_groups(switched)


def test_two_groups_on_one_provider_are_both_counted(region: Region) -> None:
    need = Need("port", {}, groups=(NeedGroup("in", {BANDWIDTH: 300}), NeedGroup("out", {BANDWIDTH: 200})))
    assert set_grouped(region, need) is None
    assert bandwidth(region) == {number_of(region): 500}
    (met,) = region.server(S).needs
    assert as_dict(met.held) == {nic_id(int(number_of(region))): {BANDWIDTH: 500}}
    assert remove(region) is None
    assert bandwidth(region) == {}


def test_groups_that_are_isolated_have_a_provider_each(region: Region) -> None:
    groups = (NeedGroup("in", {BANDWIDTH: 300}), NeedGroup("out", {BANDWIDTH: 200}))
    need = Need("port", {}, groups=groups, isolates=True)
    number = int(number_of(region))
    assert set_grouped(region, need) == NeedDoesNotFit(S, "port", f"host-{number}"), "it has one card"
    for host in range(1, 6):
        region.do(c.CreateProvider(switch_id(host), f"second-{host}", host_id(host)))
        region.do(c.SetInventories(switch_id(host), None, {BANDWIDTH: Inventory(1000)}))
    assert set_grouped(region, need) is None
    (met,) = region.server(S).needs
    assert {provider for group in met.groups for provider, _ in group.held} == {
        nic_id(number),
        switch_id(number),
    }
    region.run("migrate", S)
    number = int(number_of(region))
    assert sorted(as_dict(region.server(S).needs[0].held)) == [nic_id(number), switch_id(number)]


def test_the_group_that_does_not_fit_is_named(switched: Region) -> None:
    switched.run("create", S)
    host = f"host-{number_of(switched)}"
    assert set_grouped(switched, grouped(packets=1001)) == NeedDoesNotFit(S, "port", host, None, "packets")
    both = Need("port", {}, groups=(NeedGroup("in", {BANDWIDTH: 600}), NeedGroup("out", {BANDWIDTH: 600})))
    assert set_grouped(switched, both) == NeedDoesNotFit(S, "port", host), "each would fit by itself"


def test_a_server_has_so_many_groups_and_no_more(region: Region) -> None:
    groups = tuple(NeedGroup(f"g{number}", {BANDWIDTH: 1}) for number in range(NEED_GROUPS_TOTAL_MAX // 4))
    for number in range(4):
        assert set_grouped(region, Need(f"port-{number}", {}, groups=groups)) is None
    refused = set_grouped(region, Need("more", {BANDWIDTH: 1}))
    assert refused == TooManyNeeds("groups in its needs", NEED_GROUPS_TOTAL_MAX + 1, NEED_GROUPS_TOTAL_MAX)


def test_a_need_of_before_there_were_groups_is_one_group() -> None:
    old = (
        b'{"name":"port","resources":{"VCPU":1},"required":["A"],"forbidden":[],"held":[["p",[["VCPU",1]]]]}'
    )
    need = msgspec.json.decode(old, type=Need)
    held = ((ProviderId("p"), (("VCPU", 1),)),)
    assert need.parts == (NeedGroup("", {"VCPU": 1}, ("A",), (), held),)
    assert (need.groups, need.port) == ((), None)
