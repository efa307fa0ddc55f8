"""Moves of servers that use a shared pool: what is held there is held once, at every step of every operation,
unless the server goes where its pool cannot be used."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from berth.api.kernel.rejections import nova_problem, why_no_place
from berth.doctor.findings import examine
from berth.ledger import decide
from berth.model import commands as c
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import Inventory
from berth.model.rejections import NoFit, PoolShortage, Rejection, UnitsViolated
from berth.model.servers import Flavor, Server
from berth.sagas import create
from tests.unit.sagas.regions import Faults, Region, S, pool_id

pytestmark = pytest.mark.fast

POOL = pool_id(1)
SEGMENT = pool_id(2)
IP = "IPV4_ADDRESS"
MOVES = ["resize", "migrate", "live_migrate", "evacuate"]


def flavor(disk_gb: int, vcpus: int = 1, addresses: int = 0) -> Flavor:
    specs = {f"resources:{IP}": str(addresses)} if addresses else {}
    name = f"{vcpus}x{disk_gb}"
    return Flavor(id=name, name=name, vcpus=vcpus, memory_mb=512, disk_gb=disk_gb, extra_specs=specs)


def pooled(total: int = 100, hosts: int = 3) -> Region:
    """Hosts without a disk, all of them with one pool."""
    region = Region(hosts=hosts, disk_gb=0)
    region.add_pool(1, range(1, hosts + 1), DISK_GB=total)
    return region


def used(region: Region, pool: ProviderId = POOL, name: str = "DISK_GB") -> int:
    record = region.view.providers[pool]
    class_id = region.view.classes.id_of(name)
    assert class_id is not None
    return record.used.get(class_id, 0)


def begin_move(region: Region, name: str, **more: Any) -> object:
    """Begin a move of server s; its host goes down first, for an evacuation."""
    if name == "evacuate":
        place = region.server(S).place
        assert place is not None
        region.set_down(int(place.name.removeprefix("host-")))
    if name == "resize":
        more.setdefault("flavor", flavor(40, vcpus=2))
    return region.begin(name, S, **more)


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("fails", [None, "prepare", "build", "send", "receive", "live migrate"])
def test_a_move_in_a_pool_that_is_nearly_full(name: str, fails: str | None) -> None:
    region = pooled()
    for id in (S, "other"):
        region.run("create", id, flavor=flavor(40))
    assert begin_move(region, name) is None
    assert used(region) == 80
    assert {step for step, amount in uses(region, Faults([fails] if fails else [])) if amount != 80} == set()
    if region.server(S).state == "resized":
        assert used(region) == 80
        region.run("confirm", S)
    assert used(region) == 80
    assert region.held(S)[POOL] == {"DISK_GB": 40}
    assert examine(region.view, region.now_s) == ()


def uses(region: Region, faults: Faults, pool: ProviderId = POOL) -> Iterator[tuple[str, int]]:
    """What the pool has in use after each step of the run in the outbox."""
    seen: list[tuple[str, int]] = []
    region.watch = lambda run: seen.append((f"{run.phase} {run.step}", used(region, pool)))
    region.carry_out(faults)
    region.watch = None
    assert seen
    return iter(seen)


@pytest.mark.parametrize("name", MOVES)
def test_a_move_with_every_address_taken(name: str) -> None:
    region = pooled()
    region.add_pool(2, range(1, 4), **{IP: 3})
    for id in (S, "t", "u"):
        region.run("create", id, flavor=flavor(10, addresses=1))
    assert begin_move(region, name, **({"flavor": flavor(10, 2, 1)} if name == "resize" else {})) is None
    assert used(region, SEGMENT, IP) == 3
    region.carry_out()
    assert used(region, SEGMENT, IP) == 3
    assert region.held(S)[SEGMENT] == {IP: 1}


@pytest.mark.parametrize("end", ["confirm", "revert"])
@pytest.mark.parametrize(("to", "meanwhile"), [(60, 100), (20, 80), (40, 80), (1, 80)])
def test_a_resize_claims_the_difference_and_lets_it_go_at_its_end(end: str, to: int, meanwhile: int) -> None:
    region = pooled()
    for id in (S, "other"):
        region.run("create", id, flavor=flavor(40))
    before = region.held(S)
    assert begin_move(region, "resize", flavor=flavor(to, vcpus=2)) is None
    assert used(region) == meanwhile
    region.carry_out()
    assert used(region) == meanwhile
    region.run(end, S)
    assert used(region) == (40 + to if end == "confirm" else 80)
    if end == "revert":
        assert region.held(S) == before
    assert len(region.view.consumers) == 2
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("end", ["confirm", "revert", "fail"])
@pytest.mark.parametrize("units", [{"min_unit": 20}, {"min_unit": 40, "step_size": 20}])
def test_a_resize_may_leave_less_than_a_unit_of_the_pool_to_the_migration(
    end: str, units: dict[str, int]
) -> None:
    """The migration keeps what is not used any more, until that is settled: 60 - 40, or 30 - 20."""
    region = pooled()
    before, to = (60, 40) if "step_size" in units else (30, 20)
    region.do(c.SetInventories(POOL, None, {"DISK_GB": Inventory(100, **units)}))
    region.run("create", S, flavor=flavor(before))
    assert begin_move(region, "resize", flavor=flavor(to, vcpus=2)) is None
    assert used(region) == before
    faults = Faults(["receive"] if end == "fail" else [])
    assert {amount for _, amount in uses(region, faults)} == {before}
    if end != "fail":
        region.run(end, S)
    assert used(region) == (to if end == "confirm" else before)
    assert region.server(S).state == "active"
    assert examine(region.view, region.now_s) == ()


def test_a_resize_to_less_than_a_unit_of_the_pool_is_refused() -> None:
    region = pooled()
    region.do(c.SetInventories(POOL, None, {"DISK_GB": Inventory(100, min_unit=20)}))
    region.run("create", S, flavor=flavor(30))
    assert isinstance(begin_move(region, "resize", flavor=flavor(10, vcpus=2)), NoFit)
    assert used(region) == 30


def test_what_was_shared_with_the_migration_is_given_back_though_the_units_of_the_pool_have_shrunk() -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(60))
    region.run("resize", S, flavor=flavor(40, vcpus=2))
    region.do(c.SetInventories(POOL, None, {"DISK_GB": Inventory(100, max_unit=50)}))
    region.run("revert", S)
    assert region.server(S).state == "active"
    assert region.held(S)[POOL] == {"DISK_GB": 60}
    assert examine(region.view, region.now_s) == ()


def test_a_migration_holds_a_part_of_one_server_not_the_sum_of_several() -> None:
    """Otherwise any amount could be collected in it, and handed on."""
    region = pooled()
    region.do(c.SetInventories(POOL, None, {"DISK_GB": Inventory(100, max_unit=50)}))
    servers = [ConsumerId(str(uuid.UUID(int=number))) for number in (1, 2)]
    half = ((POOL, (("DISK_GB", 50),)),)
    for id in servers:
        region.do(c.ReplaceAllocations((c.Claim(id, half, "p", "u", None, "INSTANCE"),)))
    whole = ((POOL, (("DISK_GB", 100),)),)
    claims = (
        c.Claim(ConsumerId(str(uuid.UUID(int=3))), whole, "p", "u", None, "MIGRATION"),
        *(c.Claim(id, (), "p", "u", 1, "INSTANCE") for id in servers),
    )
    assert isinstance(decide(region.view, c.ReplaceAllocations(claims), region.now_s), UnitsViolated)


def test_a_resize_by_more_than_is_free_names_the_pool() -> None:
    region = pooled()
    for id in (S, "other"):
        region.run("create", id, flavor=flavor(40))
    before = region.view.state()
    refused = begin_move(region, "resize", flavor=flavor(61))
    assert isinstance(refused, NoFit)
    short = PoolShortage("pool-1", "DISK_GB", asked=61, free=20, capacity=100, held=40)
    assert [pool for step in refused.steps for pool in step.pools] == [short]
    words = "The pool pool-1 has 20 of 100 DISK_GB free, beside 40 that it holds already; 61 are asked for."
    assert words in nova_problem(refused).text
    assert "pool-1" not in nova_problem(refused, names_hosts=False).text
    assert region.view.state() == before


def test_a_server_for_which_the_pool_has_too_little_is_told_so() -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(70))
    refused = region.begin("create", "other", flavor=flavor(40))
    assert isinstance(refused, NoFit)
    words = "The pool pool-1 has 30 of 100 DISK_GB free; 40 are asked for."
    assert words in why_no_place(refused)


def test_the_fault_names_the_pool_of_an_alternate_that_has_run_full_meanwhile() -> None:
    region = Region(hosts=2, disk_gb=0)
    for number in (1, 2):
        region.add_pool(number, [number], DISK_GB=100)
    assert region.begin("create", S, flavor=flavor(40)) is None
    other = 2 if POOL in region.held(S) else 1
    region.claim("greedy", (pool_id(other), (("DISK_GB", 90),)))
    region.carry_out(Faults(["build"]))
    assert region.server(S).state == "error"
    fault = region.server(S).fault
    assert fault is not None
    assert fault.message == "build has failed"
    assert f"others use 90 of 100 on pool-{other}" in (fault.details or "")
    assert region.held(S) == {}


def test_only_pools_that_would_have_helped_are_named() -> None:
    """host-1 has a pool that is full; host-2 has none; another pool serves no host at all."""
    region = Region(hosts=2, disk_gb=0)
    region.add_pool(1, [1], DISK_GB=10)
    region.add_pool(2, [], DISK_GB=20)
    refused = region.begin("create", S, flavor=flavor(40))
    assert isinstance(refused, NoFit)
    assert {pool.pool for step in refused.steps for pool in step.pools} == {"pool-1"}
    refused = region.begin("create", S, flavor=flavor(40, vcpus=9))
    assert isinstance(refused, NoFit)
    assert not any(step.pools for step in refused.steps), "the hosts were removed before"


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_a_move_to_another_pool_holds_both_until_it_is_settled(end: str) -> None:
    region = Region(hosts=2, disk_gb=0)
    region.add_pool(1, [1], DISK_GB=100)
    region.add_pool(2, [2], DISK_GB=100)
    region.run("create", S, flavor=flavor(40))
    source, dest = (POOL, SEGMENT) if POOL in region.held(S) else (SEGMENT, POOL)
    region.run("migrate", S)
    assert (used(region, source), used(region, dest)) == (40, 40)
    region.run(end, S)
    held = dest if end == "confirm" else source
    assert (used(region, source), used(region, dest)) == ((0, 40) if held == dest else (40, 0))
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", MOVES)
def test_of_two_pools_the_one_that_the_server_uses_is_taken_again(name: str) -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(40))
    region.add_pool(2, range(1, 4), DISK_GB=1000)
    assert begin_move(region, name) is None
    region.carry_out()
    assert (used(region), used(region, SEGMENT)) == (40, 0)


def test_a_host_with_a_disk_of_its_own_leaves_the_disk_in_the_pool() -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(40))
    for number in (1, 2, 3):
        id = region.view.names[f"host-{number}"].id
        region.add_inventory(id, "DISK_GB", 500)
    region.run("migrate", S)
    assert region.held(S)[POOL] == {"DISK_GB": 40}
    assert used(region) == 40


@pytest.mark.parametrize("fails", [[], ["prepare"]])
def test_an_alternate_with_another_pool(fails: list[str]) -> None:
    """host-1 and host-2 share a pool, host-3 has another: whichever is tried, the allocations are right."""
    region = Region(hosts=3, disk_gb=0)
    region.add_pool(1, [1, 2], DISK_GB=50)
    region.run("create", S, flavor=flavor(40))
    region.add_pool(2, [3], DISK_GB=50)
    source = region.server(S).place
    assert source is not None
    region.run("migrate", S, Faults(once=["prepare"]))
    moved = region.server(S).place
    assert moved is not None
    pools = {"host-1": POOL, "host-2": POOL, "host-3": SEGMENT}
    apart = pools[moved.name] != POOL
    assert (used(region), used(region, SEGMENT)) == ((40, 40) if apart else (40, 0))
    region.run("revert", S, Faults(fails))
    assert (used(region), used(region, SEGMENT)) == (40, 0)
    assert region.held(S)[POOL] == {"DISK_GB": 40}
    assert examine(region.view, region.now_s) == ()


def test_an_evacuation_in_a_full_pool_and_the_release_after_it() -> None:
    region = pooled(total=40)
    region.run("create", S, flavor=flavor(40))
    place = region.server(S).place
    assert place is not None
    assert begin_move(region, "evacuate") is None
    region.carry_out()
    assert used(region) == 40
    number = int(place.name.removeprefix("host-"))
    region.set_down(number, down=False)
    region.release(number)
    assert used(region) == 40
    assert len(region.view.consumers) == 1
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("end", ["confirm", "revert"])
@pytest.mark.parametrize("name", ["resize", "migrate"])
def test_what_others_have_added_in_the_pool_stays_there(name: str, end: str) -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(40))
    host = next(part for part in region.server(S).held if part[0] != POOL)
    region.claim(S, host, (POOL, (("DISK_GB", 45),)))
    assert begin_move(region, name, policy="merge") is None
    assert used(region) == 45
    region.carry_out()
    assert used(region) == 45
    region.run(end, S)
    assert region.held(S)[POOL] == {"DISK_GB": 45}
    assert region.server(S).kept == ((POOL, (("DISK_GB", 5),)),)
    assert len(region.view.consumers) == 1
    assert examine(region.view, region.now_s) == ()


def test_what_others_have_added_in_a_pool_goes_along_to_another() -> None:
    region = Region(hosts=2, disk_gb=0)
    region.add_pool(1, [1], DISK_GB=100)
    region.add_pool(2, [2], DISK_GB=100)
    region.run("create", S, flavor=flavor(40))
    source, dest = (POOL, SEGMENT) if POOL in region.held(S) else (SEGMENT, POOL)
    host = next(part for part in region.server(S).held if part[0] != source)
    region.claim(S, host, (source, (("DISK_GB", 45),)))
    assert begin_move(region, "migrate", policy="merge") is None
    region.carry_out()
    assert (used(region, source), used(region, dest)) == (45, 45)
    region.run("confirm", S)
    assert (used(region, source), used(region, dest)) == (0, 45)


@pytest.mark.parametrize(("to", "meanwhile"), [(60, 60), (20, 40)])
@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_a_resize_that_stays_on_its_host(end: str, to: int, meanwhile: int) -> None:
    region = pooled(total=60, hosts=1)
    region.run("create", S, flavor=flavor(40))
    region.run("resize", S, flavor=flavor(to, vcpus=2))
    assert used(region) == meanwhile
    region.run(end, S)
    assert used(region) == (to if end == "confirm" else 40)
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", ["resize", "migrate", "evacuate"])
def test_a_migration_keeps_the_place_of_its_server_in_a_group_though_the_pool_is_shared(name: str) -> None:
    """What is left to the migration is less than the server held. It stands for the server all the same:
    otherwise another member could take the place, and a revert would break the policy."""
    region = pooled(hosts=2)
    region.group("g", "anti-affinity")
    region.run("create", S, flavor=flavor(40), group="g")
    assert begin_move(region, name) is None
    if name == "evacuate":
        place = region.server(S).place
        assert place is not None
        region.set_down(int(place.name.removeprefix("host-")), down=False)
    (migration,) = region.migrations(S)
    assert region.view.groups.memberships[ConsumerId(migration.id)].stands_for == S
    assert isinstance(region.begin("create", region.ids.uuid(), flavor=flavor(10), group="g"), NoFit)
    region.carry_out()
    assert isinstance(region.begin("create", region.ids.uuid(), flavor=flavor(10), group="g"), NoFit)
    if name != "evacuate":
        region.run("revert", S)
        assert region.server(S).state == "active"
        assert ConsumerId(migration.id) not in region.view.groups.memberships


# -- operations that are no moves ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stop", "rebuild", "shelve"])
def test_what_stays_on_its_host_keeps_what_it_has(name: str) -> None:
    region = pooled()
    region.run("create", S, flavor=flavor(40))
    assert region.begin(name, S) is None
    assert {amount for _, amount in uses(region, Faults())} == {40}
    assert used(region) == 40
    region.run("delete", S)
    assert used(region) == 0


def test_a_shelved_server_leaves_the_pool_and_claims_anew() -> None:
    region = pooled(total=60)
    region.run("create", S, flavor=flavor(40))
    region.run("shelve_away", S)
    assert used(region) == 0
    other = region.ids.uuid()
    region.run("create", other, flavor=flavor(40))
    refused = region.begin("unshelve", S)
    assert isinstance(refused, NoFit)
    assert "The pool pool-1 has 20 of 60 DISK_GB free; 40 are asked for." in nova_problem(refused).text
    region.run("delete", other)
    region.run("unshelve", S, Faults(once=["build"]))
    assert (region.server(S).state, used(region)) == ("active", 40)
    region.run("shelve", S)
    region.run("shelve_offload", S)
    assert used(region) == 0
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("fails", [Faults(once=["build"]), Faults(["build"])])
def test_a_failed_build_takes_its_claim_to_the_pool_of_the_alternate(fails: Faults) -> None:
    region = Region(hosts=2, disk_gb=0)
    for number in (1, 2):
        region.add_pool(number, [number], DISK_GB=50)
    region.run("create", S, fails, flavor=flavor(40))
    server = region.server(S)
    assert used(region) + used(region, SEGMENT) == (40 if server.state == "active" else 0)
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", ["resize", "migrate"])
def test_a_server_that_is_deleted_in_the_middle_of_a_move_leaves_nothing(name: str) -> None:
    region = Region(hosts=2, disk_gb=0)
    for number in (1, 2):
        region.add_pool(number, [number], DISK_GB=100)
    region.run("create", S, flavor=flavor(40))
    assert begin_move(region, name) is None
    region.carry_out()
    region.run("delete", S)
    assert (used(region), used(region, SEGMENT)) == (0, 0)
    assert not region.view.consumers


def test_of_many_servers_as_many_are_created_as_the_pool_has_room_for() -> None:
    region = pooled(total=100)

    def propose(at_least: int) -> Rejection | None:
        servers = tuple(
            Server(id=region.ids.uuid(), name="s", project="project", user="user", flavor=flavor(30))
            for _ in range(5)
        )
        return region.tries(
            lambda view, now_s: create.propose(view, now_s, region.context(), servers, at_least)
        )

    refused = propose(4)
    assert isinstance(refused, NoFit)
    assert (refused.fitting, used(region)) == (3, 0)
    assert "The pool pool-1 has 10 of 100 DISK_GB free; 30 are asked for." in why_no_place(refused)
    assert propose(2) is None
    assert (len(region.view.consumers), used(region)) == (3, 90)


# -- local or pool ------------------------------------------------------------------------------


def placed(place: str, disk_gb: int = 40) -> Flavor:
    specs, name = {"berth:disk": place}, f"{place}-{disk_gb}"
    return Flavor(id=name, name=name, vcpus=1, memory_mb=512, disk_gb=disk_gb, extra_specs=specs)


def with_both(hosts: int = 2) -> Region:
    """Hosts with a disk of their own, all of them with one pool."""
    region = Region(hosts=hosts, disk_gb=100)
    region.add_pool(1, range(1, hosts + 1), DISK_GB=100)
    return region


def held_disk(region: Region, id: str = S) -> dict[str, int]:
    """The disk that a server holds, by "pool" or "local"."""
    return {
        "pool" if provider == POOL else "local": amounts["DISK_GB"]
        for provider, amounts in region.held(id).items()
        if "DISK_GB" in amounts
    }


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("place", ["local", "pool"])
def test_a_flavor_says_local_or_pool(place: str, name: str) -> None:
    region = with_both()
    region.run("create", S, flavor=placed(place))
    assert held_disk(region) == {place: 40}
    assert begin_move(region, name, **({"flavor": placed(place, 50)} if name == "resize" else {})) is None
    region.carry_out()
    assert held_disk(region) == {place: 50 if name == "resize" else 40}
    assert used(region) == (0 if place == "local" else 50 if name == "resize" else 40)
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("end", ["confirm", "revert"])
@pytest.mark.parametrize(("before", "after"), [("local", "pool"), ("pool", "local")])
def test_a_resize_from_local_to_pool_holds_both_until_it_is_settled(
    before: str, after: str, end: str
) -> None:
    region = with_both()
    region.run("create", S, flavor=placed(before))
    region.run("resize", S, flavor=placed(after, 30))
    assert used(region) == (40 if before == "pool" else 30)
    assert held_disk(region) == {after: 30}
    region.run(end, S)
    assert held_disk(region) == ({after: 30} if end == "confirm" else {before: 40})
    assert used(region) == held_disk(region).get("pool", 0)
    assert examine(region.view, region.now_s) == ()


def test_neither_takes_what_the_other_has() -> None:
    region = Region(hosts=1, disk_gb=0)
    region.add_pool(1, [1], DISK_GB=100)
    assert isinstance(region.begin("create", S, flavor=placed("local")), NoFit)
    region = Region(hosts=1, disk_gb=100)
    assert isinstance(region.begin("create", S, flavor=placed("pool")), NoFit)
