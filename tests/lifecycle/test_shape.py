"""A host's shape changes while servers are on it: what they hold goes with it in one step, or nothing changes
and a complaint says why."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.agent.fleet import SimInventory, SimProvider, provider_id
from berth.cell import shape
from berth.doctor.findings import examine
from berth.model.ids import ConsumerId
from berth.model.saga_runs import Assignment, assignment_id
from berth.model.servers import Flavor, Migration, Server
from berth.sagas import create
from berth.sagas.conflicts import as_dict, held_now
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import beginning, done, new_server
from tests.lifecycle.test_hosts import ID, NAME, PATIENCE_S, Operator, running

CELLS: Final = [provider_id(f"{NAME}-numa{number}") for number in (0, 1)]
DISK: Final = {"DISK_GB": SimInventory(total=2000)}


def numa_cell(number: int, vcpus: int = 16, memory_mb: int = 65_536) -> SimProvider:
    return SimProvider(
        name=f"numa{number}",
        inventories={
            "VCPU": SimInventory(total=vcpus),
            "MEMORY_MB": SimInventory(total=memory_mb),
        },
        traits=("HW_NUMA_ROOT",),
    )


async def create_here(operator: Operator, **fields: Any) -> Server:
    server = new_server(operator.cloud, **fields)
    await begin_here(operator, server)
    found = await operator.cloud.at_rest(server.id)
    assert found is not None
    assert found.fault is None
    return found


async def begin_here(operator: Operator, server: Server) -> None:
    context = operator.cloud.context()
    refused = await operator.cloud.begin(
        lambda view, now_s: create.propose(view, now_s, context, (server,), 1, host=NAME)
    )
    assert refused is None


async def until_gone(operator: Operator, kind: str = "VCPU") -> None:
    """Wait until the host itself has none of a class any more."""
    async with asyncio.timeout(PATIENCE_S):
        while kind in await operator.inventories(ID):
            await asyncio.sleep(0.5)


async def held(operator: Operator, server: Server) -> dict[str, dict[str, int]]:
    """What a server holds; its record says the same."""
    record = await operator.cloud.server(server.id)
    assert record is not None
    found = await operator.cloud.read(lambda view: as_dict(held_now(view, server.id)))
    generation = await operator.cloud.read(
        lambda view: view.consumers[ConsumerId(server.id)].consumer.generation
    )
    assert (as_dict(record.held), record.generation) == (found, generation)
    return found


async def test_servers_follow_when_numa_is_enabled() -> None:
    async with running() as operator:
        servers = [await create_here(operator) for _ in range(3)]
        moved = await create_here(operator)
        await done(operator.cloud, "resize", moved)
        await operator.restart(numa_cell(0, vcpus=2), numa_cell(1), inventories=DISK)
        await until_gone(operator)
        await operator.is_up_for_a_while()
        assert await operator.complaints() == []
        homes = [await held(operator, server) for server in servers]
        small = {"VCPU": 1, "MEMORY_MB": 512}
        assert [one[ID] for one in homes] == [{"DISK_GB": 1}] * 3
        cells = [cell for one in homes for cell in CELLS if one.get(cell) == small]
        assert len(cells) == 3, "each has its processors and its memory in one cell"
        assert await operator.cloud.read(lambda view: examine(view, 10**10)) == ()
        await done(operator.cloud, "revert", moved)
        for server in servers:
            await done(operator.cloud, "live_migrate", server)
        await check_at_rest(operator.cloud)


async def test_a_server_that_fits_into_no_single_cell_is_split() -> None:
    async with running() as operator:
        wide = await create_here(
            operator, flavor=Flavor(id="wide", name="wide", vcpus=24, memory_mb=1024, disk_gb=1)
        )
        await operator.restart(numa_cell(0), numa_cell(1), inventories=DISK)
        await until_gone(operator)
        found = await held(operator, wide)
        assert [found[cell]["VCPU"] for cell in CELLS] == [16, 8]
        assert sum(found[cell].get("MEMORY_MB", 0) for cell in CELLS) == 1024
        await check_at_rest(operator.cloud)


async def test_nothing_changes_if_one_would_have_no_room() -> None:
    async with running() as operator:
        servers = [await create_here(operator) for _ in range(3)]
        before = [await held(operator, server) for server in servers]
        await operator.restart(numa_cell(0, vcpus=1), numa_cell(1, vcpus=1), inventories=DISK)
        (complaint,) = await operator.until_complaints("no room for 1 of VCPU of")
        stranded = [server for server in servers if server.id in complaint]
        assert len(stranded) == 1
        assert [await held(operator, server) for server in servers] == before
        assert "VCPU" in await operator.inventories(ID)
        assert not await operator.is_there(CELLS[0])
        await operator.is_up_for_a_while()
        # It is moved away, and the others follow.
        await done(operator.cloud, "live_migrate", stranded[0])
        await operator.until_complaints()
        await until_gone(operator)
        await check_at_rest(operator.cloud)


async def test_a_busy_server_puts_it_off() -> None:
    async with running() as operator:
        cloud = operator.cloud
        server = await create_here(operator)
        before = await held(operator, server)
        cloud.behaviours.replace(SimBehaviour(rules=(Rule(outcome="late", verb="stop", seconds=40),)))
        assert await cloud.begin(beginning(cloud, "stop", server)) is None
        await operator.restart(numa_cell(0), numa_cell(1), inventories=DISK)
        await operator.until_complaints(f"server {server.id} while it is powering-off")
        assert await operator.cloud.read(lambda view: as_dict(held_now(view, server.id))) == before
        await cloud.at_rest(server.id)
        await operator.until_complaints()
        await until_gone(operator)
        await held(operator, server)
        await done(cloud, "start", server)
        await check_at_rest(cloud)


async def test_an_operators_ratio_goes_with_its_class() -> None:
    async with running() as operator:
        vcpu = (await operator.inventories(ID))["VCPU"]
        await operator.write(ID, {"VCPU": vcpu | {"allocation_ratio": 16.0}})
        servers = [await create_here(operator) for _ in range(3)]
        await operator.restart(numa_cell(0, vcpus=1), inventories=DISK)
        await until_gone(operator)
        await operator.is_up_for_a_while()
        assert (await operator.inventories(CELLS[0]))["VCPU"]["allocation_ratio"] == 16.0
        for server in servers:
            assert (await held(operator, server))[CELLS[0]] == {"VCPU": 1, "MEMORY_MB": 512}


PINNED: Final = Flavor(
    id="pinned",
    name="pinned",
    vcpus=2,
    memory_mb=512,
    disk_gb=1,
    extra_specs={"resources:VCPU": "0", "resources:PCPU": "2"},
)


def pinned_cell(number: int, cpus: Sequence[int]) -> SimProvider:
    units = tuple(map(str, cpus))
    return SimProvider(
        name=f"numa{number}",
        inventories={"PCPU": SimInventory(total=len(units)), "MEMORY_MB": SimInventory(total=65_536)},
        traits=("HW_NUMA_ROOT",),
        units={"PCPU": units},
    )


def cpus_of(operator: Operator, holder: str) -> dict[str, tuple[str, ...]]:
    """Which cpus a consumer has, by provider, as its cell knows it."""
    engine = operator.cloud.cells["cell1"].find_engine()
    assert engine is not None
    found = engine.view.records.get(Assignment, assignment_id(holder, ID))
    assert found is not None
    return {provider: kinds["PCPU"] for provider, kinds in found.units.items()}


async def with_pinned_servers(operator: Operator) -> list[Server]:
    """Three servers of two cpus each, on a host that does not say which cell its cpus are of."""
    whole = {**DISK, "PCPU": SimInventory(total=8), "MEMORY_MB": SimInventory(total=131_072)}
    units = {"PCPU": tuple(map(str, range(8)))}
    another = operator.cloud.hosts["host-0003"]
    another.kill()
    another.host = msgspec.structs.replace(another.host, inventories=whole, units=units)
    another.start()
    await operator.restart(inventories=whole, units=units)
    async with asyncio.timeout(PATIENCE_S):
        while "PCPU" not in await operator.inventories(ID):
            await asyncio.sleep(0.5)
    return [await create_here(operator, flavor=PINNED) for _ in range(3)]


async def test_servers_keep_their_cpus_when_numa_is_enabled() -> None:
    async with running() as operator:
        servers = await with_pinned_servers(operator)
        moved = servers[2]
        await done(operator.cloud, "migrate", moved)
        migration = await operator.cloud.read(
            lambda view: view.records.find(Migration, "server", moved.id)[-1].id
        )
        holders = [servers[0].id, servers[1].id, migration]
        before = [cpus_of(operator, holder)[ID] for holder in holders]
        assert before == [("0", "1"), ("2", "3"), ("4", "5")]
        await operator.restart(
            pinned_cell(0, range(4)), pinned_cell(1, range(4, 8)), inventories=DISK, units={}
        )
        await until_gone(operator, "PCPU")
        await operator.is_up_for_a_while()
        after = [cpus_of(operator, holder) for holder in holders]
        assert after == [{CELLS[0]: before[0]}, {CELLS[0]: before[1]}, {CELLS[1]: before[2]}]
        for server in servers[:2]:
            assert (await held(operator, server))[CELLS[0]] == {"PCPU": 2, "MEMORY_MB": 512}
        await done(operator.cloud, "revert", moved)
        assert cpus_of(operator, moved.id) == {CELLS[1]: before[2]}
        assert await operator.complaints() == []
        await check_at_rest(operator.cloud)


async def test_a_server_whose_cpu_is_gone_keeps_the_old_shape() -> None:
    async with running() as operator:
        servers = await with_pinned_servers(operator)
        await operator.restart(
            pinned_cell(0, (0, 1, 2)), pinned_cell(1, range(4, 8)), inventories=DISK, units={}
        )
        (complaint,) = await operator.until_complaints("no room for 1 of PCPU of")
        assert servers[1].id in complaint
        assert cpus_of(operator, servers[1].id) == {ID: ("2", "3")}
        assert "PCPU" in await operator.inventories(ID)


def paged_cell(number: int, pages: int, **sizes: int) -> SimProvider:
    cell = numa_cell(number, **sizes)
    paged = {**cell.inventories, "CUSTOM_MEMORY_PAGES_2M": SimInventory(total=pages)}
    return msgspec.structs.replace(cell, inventories=paged if pages else cell.inventories)


async def test_servers_follow_when_two_cells_become_one() -> None:
    """One of the classes was there before in the cell that is left, and another was not."""
    flavor = Flavor(
        id="paged",
        name="paged",
        vcpus=1,
        memory_mb=512,
        disk_gb=1,
        extra_specs={"resources:CUSTOM_MEMORY_PAGES_2M": "2"},
    )
    async with running() as operator:
        await operator.restart(numa_cell(0, vcpus=1), paged_cell(1, 8), inventories=DISK)
        await until_gone(operator)
        await operator.until_written(CELLS[1])
        servers = [await create_here(operator, flavor=flavor) for _ in range(2)]
        await operator.restart(paged_cell(0, 8, vcpus=17, memory_mb=131_072), inventories=DISK)
        async with asyncio.timeout(PATIENCE_S):
            while await operator.is_there(CELLS[1]):
                await asyncio.sleep(0.5)
        assert await operator.complaints() == []
        for server in servers:
            found = await held(operator, server)
            assert found[CELLS[0]] == {"VCPU": 1, "MEMORY_MB": 512, "CUSTOM_MEMORY_PAGES_2M": 2}
            await done(operator.cloud, "stop", server)
        await check_at_rest(operator.cloud)


async def test_servers_follow_when_one_cell_becomes_two() -> None:
    """The first cell keeps its name and has half of what it had: what has gone with the other half is in use
    there."""
    async with running() as operator:
        pinned = await with_pinned_servers(operator)
        await operator.restart(pinned_cell(0, range(8)), inventories=DISK, units={})
        await until_gone(operator, "PCPU")
        before = {server.id: cpus_of(operator, server.id)[CELLS[0]] for server in pinned}
        await operator.restart(pinned_cell(0, range(4)), pinned_cell(1, range(4, 8)), inventories=DISK)
        await operator.until_written(CELLS[1])
        await operator.is_up_for_a_while()
        assert await operator.complaints() == []
        for server in pinned:
            cell = CELLS[int(before[server.id][0]) // 4]
            assert cpus_of(operator, server.id) == {cell: before[server.id]}
            assert (await held(operator, server))[cell]["PCPU"] == 2
        await create_here(operator, flavor=PINNED)
        await operator.cloud.all_at_rest()
        assert await operator.cloud.read(lambda view: examine(view, 10**10)) == ()
        await check_at_rest(operator.cloud)


async def test_a_cell_that_becomes_two_while_a_server_is_busy_waits_for_it() -> None:
    async with running() as operator:
        cloud = operator.cloud
        servers = await with_pinned_servers(operator)
        await operator.restart(pinned_cell(0, range(8)), inventories=DISK, units={})
        await until_gone(operator, "PCPU")
        cloud.behaviours.replace(SimBehaviour(rules=(Rule(outcome="late", verb="stop", seconds=40),)))
        assert await cloud.begin(beginning(cloud, "stop", servers[2])) is None
        await operator.restart(pinned_cell(0, range(4)), pinned_cell(1, range(4, 8)), inventories=DISK)
        await operator.until_complaints(f"server {servers[2].id} while it is powering-off")
        assert (await operator.inventories(CELLS[0]))["PCPU"]["total"] == 8
        await cloud.at_rest(servers[2].id)
        await operator.until_complaints()
        assert (await held(operator, servers[2]))[CELLS[1]]["PCPU"] == 2
        await done(cloud, "start", servers[2])
        await check_at_rest(cloud)


async def test_a_host_is_told_what_to_do_though_its_report_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of ours left hosts up that never polled."""
    async with running() as operator:
        server = await create_here(operator)

        def fail(before: object, now: object) -> None:
            raise KeyError(ID)

        monkeypatch.setattr(shape, "find_gone", fail)
        await operator.restart(numa_cell(0), inventories=DISK)
        await operator.until_complaints("because of an internal error")
        await done(operator.cloud, "stop", server)
        monkeypatch.undo()
        await operator.until_complaints()
        await until_gone(operator)
        await check_at_rest(operator.cloud)


def card(*functions: str) -> SimProvider:
    return SimProvider(
        name="pf0",
        inventories={"SRIOV_NET_VF": SimInventory(total=len(functions))},
        units={"SRIOV_NET_VF": functions},
    )


async def test_a_server_whose_function_is_gone_gets_another_when_it_starts() -> None:
    flavor = Flavor(
        id="vf", name="vf", vcpus=1, memory_mb=512, disk_gb=1, extra_specs={"resources:SRIOV_NET_VF": "1"}
    )
    async with running() as operator:
        await operator.restart(card("a", "b", "c"))
        await operator.until_written(provider_id(f"{NAME}-pf0"))
        server = await create_here(operator, flavor=flavor)
        given = operator.cloud.hosts[NAME].state.units[server.id]
        assert given == {provider_id(f"{NAME}-pf0"): {"SRIOV_NET_VF": ("a",)}}
        await operator.restart(card("b", "c"))
        (complaint,) = await operator.until_complaints("is gone from the host")
        assert server.id in complaint
        await done(operator.cloud, "stop", server)
        after = await done(operator.cloud, "start", server)
        assert after is not None
        assert (after.state, after.fault) == ("active", None)
        given = operator.cloud.hosts[NAME].state.units[server.id]
        assert given == {provider_id(f"{NAME}-pf0"): {"SRIOV_NET_VF": ("b",)}}
