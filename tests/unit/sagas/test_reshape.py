"""A reshape moves what servers hold to other providers, and is no conflict: their records follow."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest

from berth.cell.shape import find_gone
from berth.doctor.findings import examine
from berth.ledger import decide
from berth.model import commands as c
from berth.model.commands import Command
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import Inventory
from berth.model.rejections import RecordMoved, Rejection, ServerBusy, ServerChangedByOthers
from berth.model.saga_runs import OwnedProvider
from berth.model.servers import Need, NeedGroup
from berth.sagas.conflicts import ConflictRules, as_dict
from berth.sagas.needs import set_need
from berth.sagas.reshape import propose_reshape
from berth.view import View
from tests.unit.sagas.regions import BANDWIDTH, Region, S, host_id, nic_id

pytestmark = pytest.mark.fast

T = TypeVar("T")


def cell_id(number: int, cell: int) -> ProviderId:
    return ProviderId(f"40000000-0000-4000-8{cell:03}-{number:012}")


Amounts = dict[str, dict[str, int]]


def reshape(
    region: Region, number: int, claims: dict[str, Amounts], *, by_cell: bool = False
) -> Rejection | None:
    return make_reshape(
        region,
        number,
        claims,
        lambda view, command: region.tries(
            lambda view, now_s: propose_reshape(view, msgspec.structs.replace(command, by_cell=by_cell))
        ),
    )


def make_reshape(
    region: Region, number: int, claims: dict[str, Amounts], use: Callable[[View, c.Reshape], T]
) -> T:
    """The processors and the memory of a host go to two NUMA cells below it; ``claims`` say what goes with
    them."""
    view, host = region.view, host_id(number)
    inventories = {host: {"DISK_GB": Inventory(100)}}
    for cell in (0, 1):
        region.do(c.CreateProvider(cell_id(number, cell), f"host-{number}-numa{cell}", host))
        inventories[cell_id(number, cell)] = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(2048)}
    command = c.Reshape(
        tuple(
            c.NewInventories(id, view.providers[id].stamp.generation, new) for id, new in inventories.items()
        ),
        tuple(
            c.Claim(
                ConsumerId(consumer),
                tuple((ProviderId(id), tuple(amounts.items())) for id, amounts in wanted.items()),
                "project",
                "user",
                view.consumers[ConsumerId(consumer)].consumer.generation,
                "INSTANCE",
            )
            for consumer, wanted in claims.items()
        ),
    )
    return use(view, command)


def split(region: Region, consumer: str, number: int, cell: int) -> dict[str, dict[str, int]]:
    """What a consumer holds, with the processors and memory of a host in one of its cells."""
    held = region.held(consumer)
    root = held.pop(host_id(number))
    moved = {name: root.pop(name) for name in ("VCPU", "MEMORY_MB")}
    return {**held, **({host_id(number): root} if root else {}), cell_id(number, cell): moved}


def number_of(region: Region, id: str = S) -> int:
    place = region.server(id).place
    assert place is not None
    return int(place.name.removeprefix("host-"))


def test_a_server_can_be_moved_after_a_reshape_as_if_nothing_had_been() -> None:
    region = Region()
    region.run("create", S)
    number = number_of(region)
    assert reshape(region, number, {S: split(region, S, number, 1)}) is None
    server = region.server(S)
    assert as_dict(server.held) == region.held(S) == split_of(number, 1)
    assert server.generation == region.view.consumers[ConsumerId(S)].consumer.generation
    assert examine(region.view, region.now_s) == ()
    region.run("resize", S)
    region.run("confirm", S)
    assert examine(region.view, region.now_s) == ()


def split_of(number: int, cell: int) -> dict[str, dict[str, int]]:
    return {host_id(number): {"DISK_GB": 5}, cell_id(number, cell): {"VCPU": 2, "MEMORY_MB": 512}}


def test_a_migration_that_waits_for_its_confirmation_follows_too() -> None:
    region = Region()
    region.run("create", S)
    source = number_of(region)
    region.run("resize", S)
    migration = region.migration(S)
    assert reshape(region, source, {migration.id: split(region, migration.id, source, 0)}) is None
    assert as_dict(region.migration(S).held) == region.held(migration.id)
    region.run("revert", S)
    assert region.held(S) == {
        host_id(source): {"DISK_GB": 5},
        cell_id(source, 0): {"VCPU": 2, "MEMORY_MB": 512},
    }
    assert examine(region.view, region.now_s) == ()


def test_needs_are_found_again_where_they_went() -> None:
    region = Region()
    region.run("create", S)
    number = number_of(region)
    for name in ("here", "there"):
        need = Need(name, {BANDWIDTH: 100})
        rules = ConflictRules("fail")
        assert region.tries(lambda view, now_s: set_need(view, now_s, rules, S, need)) is None  # noqa: B023
    claims = split(region, S, number, 0)
    other = ProviderId("50000000-0000-4000-8000-000000000009")
    region.do(c.CreateProvider(other, "another-nic", host_id(number)))
    region.do(c.SetInventories(other, None, {BANDWIDTH: Inventory(100)}))
    claims[nic_id(number)] = {BANDWIDTH: 100}
    claims[other] = {BANDWIDTH: 100}
    assert reshape(region, number, {S: claims}) is None
    assert {need.name: as_dict(need.held) for need in region.server(S).needs} == {
        "here": {nic_id(number): {BANDWIDTH: 100}},
        "there": {other: {BANDWIDTH: 100}},
    }
    region.run("migrate", S)
    assert examine(region.view, region.now_s) == ()


def test_each_group_of_a_need_is_found_again_where_it_went() -> None:
    region = Region()
    region.run("create", S)
    number = number_of(region)
    groups = (NeedGroup("in", {BANDWIDTH: 300}), NeedGroup("out", {BANDWIDTH: 200}))
    rules, need = ConflictRules("fail"), Need("port", {}, groups=groups)
    assert region.tries(lambda view, now_s: set_need(view, now_s, rules, S, need)) is None
    other = ProviderId("50000000-0000-4000-8000-000000000009")
    region.do(c.CreateProvider(other, "another-nic", host_id(number)))
    region.do(c.SetInventories(other, None, {BANDWIDTH: Inventory(200)}))
    claims = split(region, S, number, 0)
    claims[nic_id(number)] = {BANDWIDTH: 300}
    claims[other] = {BANDWIDTH: 200}
    assert reshape(region, number, {S: claims}) is None
    (after,) = region.server(S).needs
    assert {group.name: as_dict(group.held) for group in after.groups} == {
        "in": {nic_id(number): {BANDWIDTH: 300}},
        "out": {other: {BANDWIDTH: 200}},
    }
    assert as_dict(after.held) == {nic_id(number): {BANDWIDTH: 300}, other: {BANDWIDTH: 200}}


def test_what_others_had_added_is_still_known_as_theirs() -> None:
    region = Region()
    region.run("create", S)
    held = {**region.held(S), nic_id(number_of(region)): {BANDWIDTH: 100}}
    region.claim(S, *((ProviderId(id), tuple(amounts.items())) for id, amounts in held.items()))
    region.run("live_migrate", S, policy="merge")
    number = number_of(region)
    kept = {nic_id(number): {BANDWIDTH: 100}}
    assert as_dict(region.server(S).kept) == kept
    assert reshape(region, number, {S: split(region, S, number, 0)}) is None
    assert as_dict(region.server(S).kept) == kept
    region.run("live_migrate", S)
    assert bandwidth_of(region) == 100


def bandwidth_of(region: Region) -> int:
    return sum(amounts.get(BANDWIDTH, 0) for amounts in region.held(S).values())


def test_a_reshape_that_gives_less_is_another_clients_change() -> None:
    region = Region()
    region.run("create", S)
    number = number_of(region)
    less = split(region, S, number, 0)
    less[cell_id(number, 0)]["VCPU"] = 1
    assert reshape(region, number, {S: less}) is None
    assert isinstance(region.begin("migrate", S), ServerChangedByOthers)


def test_a_busy_server_keeps_what_its_run_says() -> None:
    region = Region()
    region.run("create", S)
    number = number_of(region)
    before = region.server(S).held
    assert region.begin("stop", S) is None
    assert reshape(region, number, {S: split(region, S, number, 0)}) is None
    assert region.server(S).held == before


def test_a_cell_waits_until_a_server_is_not_busy() -> None:
    region = Region()
    region.run("create", S)
    number = number_of(region)
    before = region.held(S)
    assert region.begin("stop", S) is None
    refused = reshape(region, number, {S: split(region, S, number, 0)}, by_cell=True)
    assert refused == ServerBusy(S, "reshape the allocations", "powering-off")
    assert region.held(S) == before


def test_a_cell_waits_until_the_server_of_a_migration_is_not_busy() -> None:
    region = Region()
    region.run("create", S)
    source = number_of(region)
    region.run("resize", S)
    migration = region.migration(S).id
    assert region.begin("revert", S) is None
    refused = reshape(region, source, {migration: split(region, migration, source, 0)}, by_cell=True)
    assert isinstance(refused, ServerBusy)


@pytest.mark.parametrize("saga", ["confirm", "revert"])
def test_a_reshape_that_is_judged_after_an_operation_has_begun_is_refused(saga: str) -> None:
    """It was proposed while the server was not busy, and lost the race for the journal."""
    region = Region()
    region.run("create", S)
    source = number_of(region)
    region.run("resize", S)
    migration = region.migration(S).id
    proposed: list[Command] = []

    def propose(view: View, command: c.Reshape) -> None:
        found = propose_reshape(view, msgspec.structs.replace(command, by_cell=True))
        assert not isinstance(found, Rejection)
        proposed.append(found)

    make_reshape(region, source, {migration: split(region, migration, source, 0)}, propose)
    assert region.begin(saga, S) is None
    assert decide(region.view, proposed[0], region.now_s) == RecordMoved("Server", S)


def test_a_device_that_has_lost_its_bandwidth_keeps_what_servers_have_of_it() -> None:
    """The link of one card is down, and that of another has come up the same minute."""
    bandwidth = {"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(1000)}
    vfs = {"SRIOV_NET_VF": Inventory(2)}
    before = (
        OwnedProvider("host", {"DISK_GB": Inventory(10)}),
        OwnedProvider("nic-1", vfs | bandwidth, units={"SRIOV_NET_VF": ("a", "b")}),
        OwnedProvider("nic-2", vfs, units={"SRIOV_NET_VF": ("c", "d")}),
    )
    now = (
        before[0],
        OwnedProvider("nic-1", vfs, units={"SRIOV_NET_VF": ("a", "b")}),
        OwnedProvider("nic-2", vfs | bandwidth, units={"SRIOV_NET_VF": ("c", "d")}),
    )
    assert find_gone(before, now) == {}
