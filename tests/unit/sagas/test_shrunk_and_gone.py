"""Moves of servers whose hosts and pools have changed under them: an inventory has become smaller than what
is held of it, a pool is gone. Nobody is kept where they are by that, and nothing is destroyed that cannot be
given back."""

import pytest

from berth.doctor.findings import Moment, examine, find_again
from berth.doctor.repairs import repair
from berth.model import commands as c
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import Inventory
from berth.model.rejections import ClaimedProviderNotFound, ServerChangedByOthers
from berth.model.servers import ConflictPolicy, Place
from tests.unit.sagas.regions import LARGE, Faults, Region, S
from tests.unit.sagas.test_pools import IP, MOVES, POOL, begin_move, flavor, pooled, used

pytestmark = pytest.mark.fast


def place_of(region: Region) -> Place:
    place = region.server(S).place
    assert place is not None
    return place


def with_large() -> Region:
    region = Region()
    region.run("create", S, flavor=LARGE)
    return region


def shrink(region: Region, host: str) -> None:
    """A host has room for servers of two VCPUs at most; s has four."""
    inventories = {
        "VCPU": Inventory(2, max_unit=2),
        "MEMORY_MB": Inventory(4096),
        "DISK_GB": Inventory(100),
    }
    region.do(c.SetInventories(ProviderId(host), None, inventories))


@pytest.mark.parametrize("name", MOVES)
def test_a_server_leaves_a_host_that_has_become_too_small_for_it(name: str) -> None:
    region = with_large()
    source = place_of(region)
    shrink(region, source.id)
    assert begin_move(region, name) is None
    region.carry_out()
    assert place_of(region) != source
    assert examine(region.view, region.now_s) == ()


def test_a_server_in_a_full_pool_leaves_a_host_that_has_become_too_small_for_it() -> None:
    region = pooled(total=40)
    region.run("create", S, flavor=flavor(40, vcpus=4))
    source = place_of(region)
    inventories = {"VCPU": Inventory(2, max_unit=2), "MEMORY_MB": Inventory(4096)}
    region.do(c.SetInventories(ProviderId(source.id), None, inventories))
    region.run("migrate", S)
    assert place_of(region) != source
    assert used(region) == 40


@pytest.mark.parametrize("fails", ["prepare", "send", "receive", None])
def test_a_server_goes_back_to_a_host_that_has_become_too_small_for_it(fails: str | None) -> None:
    region = with_large()
    source, before = place_of(region), region.held(S)
    assert begin_move(region, "migrate") is None
    shrink(region, source.id)
    region.carry_out(Faults([fails] if fails else []))
    if fails is None:
        assert region.run("revert", S).phase == "done"
    assert place_of(region) == source
    assert region.held(S) == before
    assert examine(region.view, region.now_s) == ()


def test_nothing_new_of_odd_units_is_claimed_on_such_a_host() -> None:
    region = with_large()
    source = place_of(region)
    shrink(region, source.id)
    region.do(c.DeleteAllocations(ConsumerId(S)))
    wanted = ((ProviderId(source.id), (("VCPU", 4),)),)
    claim = c.Claim(ConsumerId("other"), wanted, "project", "user")
    assert region.tries(lambda view, now_s: c.ReplaceAllocations((claim,))) is not None


def without_pool(*, is_resized: bool) -> Region:
    """Somebody has deleted the server's allocations and then the pool that it used."""
    region = Region(hosts=3)
    region.add_pool(1, range(1, 4), **{IP: 10})
    region.run("create", S, flavor=flavor(10, addresses=1))
    if is_resized:
        region.run("resize", S, flavor=flavor(20, addresses=1))
    region.do(c.DeleteAllocations(ConsumerId(S)))
    region.do(c.DeleteProvider(POOL))
    return region


@pytest.mark.parametrize("policy", ["fail", "retry", "merge"])
@pytest.mark.parametrize("name", MOVES)
def test_a_server_whose_pool_is_gone_can_be_moved(name: str, policy: ConflictPolicy) -> None:
    region = without_pool(is_resized=False)
    region.add_pool(2, range(1, 4), **{IP: 10})
    more = {"flavor": flavor(20, addresses=1)} if name == "resize" else {}
    refused = begin_move(region, name, policy=policy, **more)
    assert isinstance(refused, ServerChangedByOthers) == (policy == "fail")
    if refused is not None:
        assert region.begin(name, S, policy=policy, **more) is None
    region.carry_out()
    assert sorted(region.held(S).values(), key=len)[0] == {IP: 1}
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("policy", ["retry", "merge"])
def test_a_revert_is_refused_before_anything_is_destroyed_where_the_pool_is_gone(
    policy: ConflictPolicy,
) -> None:
    region = without_pool(is_resized=True)
    before = region.view.state()
    assert isinstance(region.begin("revert", S, policy=policy), ClaimedProviderNotFound)
    assert region.view.state() == before


@pytest.mark.parametrize("policy", ["retry", "merge"])
@pytest.mark.parametrize("is_full", [False, True])
def test_a_revert_claims_what_is_missing_in_the_pool_first(policy: ConflictPolicy, is_full: bool) -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(40))
    before = region.held(S)
    region.run("migrate", S)
    region.do(c.DeleteAllocations(ConsumerId(S)))
    if is_full:
        region.claim("another", (POOL, (("DISK_GB", 90),)), type="LICENSE")
    refused = region.begin("revert", S, policy=policy)
    assert (refused is not None) == is_full
    if not is_full:
        assert region.carry_out().phase == "done"
        assert region.held(S) == before
        assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("policy", ["retry", "merge"])
def test_the_doctor_claims_what_a_confirmed_server_had_lost(policy: ConflictPolicy) -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(40))
    region.run("migrate", S)
    before = region.held(S)
    region.do(c.DeleteAllocations(ConsumerId(S)))
    region.run("confirm", S, policy=policy)
    (finding,) = examine(region.view, region.now_s)
    assert finding.kind == "server_without_allocations"
    moment = Moment(region.now_s)
    assert region.tries(lambda view, now_s: repair(view, finding.id, moment)) is None
    assert find_again(region.view, finding.id, moment) is None
    assert region.held(S) == before
    region.run("migrate", S)
    assert examine(region.view, region.now_s) == ()
