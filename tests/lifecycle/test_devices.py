"""Servers with devices through every operation: after each step allocations, assignments and what the driver
says agree, and no unit is in two places."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
import pytest

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.agent.fleet import SimHost, SimInventory, SimProvider, provider_id
from berth.cell import protocol
from berth.doctor.findings import examine
from berth.model.commands import Enact
from berth.model.events import Origin, RecordChanged
from berth.model.formats import Additions
from berth.model.rejections import NoFit
from berth.model.saga_runs import Agent, Assignment, HostTree, assignment_id
from berth.model.servers import Action, Flavor, Host, Need, Server
from berth.sagas import resize
from berth.sim.cloud import SimCloud
from berth.sim.rest import find_wrong_units
from tests.lifecycle.chaos import Chaos, check_at_rest
from tests.lifecycle.stories import DEVICES_LARGE as LARGE
from tests.lifecycle.stories import DEVICES_SMALL as SMALL
from tests.lifecycle.stories import SMALL as PLAIN
from tests.lifecycle.stories import beginning, done, host_dies, new_server

ADMIN: Final = {"x-auth-token": "admin"}
ORIGIN: Final = Origin("req-1", "test", None, "test")
NOBODY: Final = "00000000-0000-4000-8000-000000000000"
KINDS: Final = {"PCPU": 2, "VGPU": 1, "SRIOV_NET_VF": 1}
QUICK: Final = SimBehaviour(build_seconds=0, live_migrate_seconds=0.05, other_seconds=0)


def make_fleet(count: int, cpus: int = 8, vfs: int = 3) -> list[SimHost]:
    """Hosts with cpus to be had one by one, a card with virtual functions, and a GPU."""
    return [
        SimHost(
            name=f"dev-{number}",
            inventories={kind: SimInventory(total=4096) for kind in ("VCPU", "MEMORY_MB", "DISK_GB")},
            children=(
                SimProvider(name="numa0", inventories={"PCPU": SimInventory(total=cpus)}),
                SimProvider(name="pf0", inventories={"SRIOV_NET_VF": SimInventory(total=vfs)}),
                SimProvider(name="gpu0", inventories={"VGPU": SimInventory(total=4)}),
            ),
        )
        for number in range(1, count + 1)
    ]


@contextlib.asynccontextmanager
async def running(hosts: int = 3, **options: Any) -> AsyncIterator[SimCloud]:
    fleet = options.pop("fleet", None) or make_fleet(hosts)
    cloud = SimCloud(**{"seed": 23, "fleet": fleet, "behaviour": QUICK, **options})
    async with cloud.running():
        yield cloud


async def created(cloud: SimCloud, flavor: Flavor = SMALL) -> Server:
    after = await done(cloud, "create", new_server(cloud, flavor=flavor))
    assert after is not None
    assert after.state == "active"
    return after


async def assigned(cloud: SimCloud, server: Server) -> dict[str, Assignment]:
    """What a server has, by its holder ("server" or "migration") and the name of the host."""
    names = {part.host.id: name for name, part in cloud.hosts.items()}
    found = await cloud.readers["cell1"].read(lambda view: view.records.find(Assignment, "server", server.id))
    return {
        f"{'server' if one.holder == server.id else 'migration'} on {names[one.host]}": one for one in found
    }


async def settled(cloud: SimCloud) -> None:
    """Everything agrees, and the doctor finds nothing."""
    await cloud.all_at_rest()
    for _ in range(200):
        if not await find_wrong_units(cloud):
            break
        await asyncio.sleep(0.5)
    assert await find_wrong_units(cloud) == []
    await check_at_rest(cloud)


def host_of(server: Server | None) -> str:
    assert server is not None
    assert server.place is not None
    return server.place.name


def units_of(one: Assignment) -> set[str]:
    return set(one.unit_names())


# -- one operation after the other --------------------------------------------------------------


async def test_a_server_is_built_with_the_units_of_its_claim() -> None:
    async with running() as cloud:
        server = await created(cloud)
        ((where, one),) = (await assigned(cloud, server)).items()
        host = cloud.hosts[host_of(server)]
        assert where == f"server on {host.name}"
        kinds = {kind: names for kinds in one.units.values() for kind, names in kinds.items()}
        assert {kind: len(names) for kind, names in kinds.items()} == {
            "PCPU": 2,
            "VGPU": 1,
            "SRIOV_NET_VF": 1,
        }
        # Two threads of one core.
        assert kinds["PCPU"] == ("0", "1")
        assert one.counts == {host.host.id: {"MEMORY_MB": 512, "DISK_GB": 1}}
        assert host.state.units == {server.id: one.units}
        await settled(cloud)
        assert await done(cloud, "delete", server) is None
        assert await assigned(cloud, server) == {}
        assert host.state.units == {}


async def test_a_server_without_devices_has_no_assignment() -> None:
    async with running() as cloud:
        plain = await created(cloud, PLAIN)
        assert await assigned(cloud, plain) == {}
        await settled(cloud)


@pytest.mark.parametrize("end", ["confirm", "revert"])
@pytest.mark.parametrize("move", ["resize", "migrate"])
async def test_source_and_destination_have_one_each_until_the_move_ends(move: str, end: str) -> None:
    async with running() as cloud:
        server = new_server(cloud, flavor=SMALL)
        first = await done(cloud, "create", server)
        (before,) = (await assigned(cloud, server)).values()
        assert await cloud.begin(_begin(cloud, move, server)) is None
        moved = await cloud.at_rest(server.id)
        both = await assigned(cloud, server)
        assert both.keys() == {f"server on {host_of(moved)}", f"migration on {host_of(first)}"}
        assert both[f"migration on {host_of(first)}"].units == before.units
        await settled(cloud)
        last = await done(cloud, end, server)
        ((where, one),) = (await assigned(cloud, server)).items()
        assert where == f"server on {host_of(last)}"
        if end == "revert":
            # The old one is found again, unit by unit.
            assert (host_of(last), one.units) == (host_of(first), before.units)
        await settled(cloud)


def _begin(cloud: SimCloud, move: str, server: Server, *, may_stay: bool = False) -> Any:
    context = cloud.context()._replace(resizes_in_place=may_stay)
    if move == "resize":
        return lambda view, now_s: resize.propose(view, now_s, context, server.id, LARGE)
    return beginning(cloud, move, server, context)


@pytest.mark.parametrize("end", ["confirm", "revert", "delete"])
async def test_a_resize_on_one_host_has_both_at_once(end: str) -> None:
    async with running(hosts=1) as cloud:
        server = await created(cloud)
        (before,) = (await assigned(cloud, server)).values()
        assert await cloud.begin(_begin(cloud, "resize", server, may_stay=True)) is None
        moved = await cloud.at_rest(server.id)
        assert moved is not None
        assert moved.state == "resized", moved
        both = await assigned(cloud, server)
        new, old = both["server on dev-1"], both["migration on dev-1"]
        assert old.units == before.units
        assert not units_of(new) & units_of(old)
        assert cloud.hosts["dev-1"].state.units[server.id] == new.units
        await settled(cloud)
        await done(cloud, end, server)
        left = await assigned(cloud, server)
        expected = {"confirm": [new.units], "revert": [old.units], "delete": []}[end]
        assert [one.units for one in left.values()] == expected
        await settled(cloud)


async def test_a_resize_on_one_host_that_fails_gives_back_what_it_had() -> None:
    rule = Rule(outcome="fail", verb="resume", times=1)
    async with running(hosts=1) as cloud:
        server = await created(cloud)
        (before,) = (await assigned(cloud, server)).values()
        cloud.behaviours.replace(msgspec.structs.replace(QUICK, rules=(rule,)))
        assert await cloud.begin(_begin(cloud, "resize", server, may_stay=True)) is None
        back = await cloud.at_rest(server.id)
        assert back is not None
        assert back.state == "active", back
        assert [one.units for one in (await assigned(cloud, server)).values()] == [before.units]
        await settled(cloud)


async def test_a_live_migration_frees_the_source() -> None:
    async with running() as cloud:
        server = await created(cloud)
        moved = await done(cloud, "live_migrate", server)
        assert (await assigned(cloud, server)).keys() == {f"server on {host_of(moved)}"}
        assert cloud.hosts[host_of(server)].state.units == {}
        await settled(cloud)


async def test_a_source_that_was_not_cleaned_up_keeps_the_units_until_it_is() -> None:
    async with running() as cloud:
        server = await created(cloud)
        rule = Rule(outcome="fail", verb="destroy", host=host_of(server), times=3)
        cloud.behaviours.replace(msgspec.structs.replace(QUICK, rules=(rule,)))
        moved = await done(cloud, "live_migrate", server)
        held = await assigned(cloud, server)
        if cloud.hosts[host_of(server)].state.units:
            assert f"migration on {host_of(server)}" in held
        await settled(cloud)
        assert (await assigned(cloud, server)).keys() == {f"server on {host_of(moved)}"}


async def test_an_evacuated_server_keeps_its_old_units_until_the_host_is_clean() -> None:
    async with running() as cloud:
        server = await created(cloud)
        (before,) = (await assigned(cloud, server)).values()
        place = await host_dies(cloud, server)
        moved = await done(cloud, "evacuate", server)
        both = await assigned(cloud, server)
        assert both.keys() == {f"server on {host_of(moved)}", f"migration on {place.name}"}
        assert both[f"migration on {place.name}"].units == before.units
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await settled(cloud)
        assert (await assigned(cloud, server)).keys() == {f"server on {host_of(moved)}"}
        assert cloud.hosts[place.name].state.units == {}


async def test_a_server_deleted_while_its_host_is_down_keeps_its_units_until_it_is_destroyed() -> None:
    async with running(hosts=1) as cloud:
        server = await created(cloud)
        place = await host_dies(cloud, server)
        assert await done(cloud, "delete", server) is None
        assert (await assigned(cloud, server)).keys() == {f"server on {place.name}"}
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await settled(cloud)
        assert await assigned(cloud, server) == {}
        assert cloud.hosts[place.name].state.units == {}


async def test_a_host_is_up_again_though_its_driver_hangs_as_it_destroys_what_was_evacuated() -> None:
    """It destroyed it for ever, and was down for as long."""
    hanging = msgspec.structs.replace(QUICK, rules=(Rule(outcome="hang", verb="destroy", times=2),))
    async with running(behaviour=hanging) as cloud:
        server = await created(cloud)
        place = await host_dies(cloud, server)
        await done(cloud, "evacuate", server)
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await settled(cloud)


async def test_shelving_frees_and_unshelving_assigns_anew() -> None:
    async with running() as cloud:
        server = await created(cloud)
        await done(cloud, "shelve", server)
        assert len(await assigned(cloud, server)) == 1
        await done(cloud, "shelve_offload", server)
        assert await assigned(cloud, server) == {}
        await settled(cloud)
        back = await done(cloud, "unshelve", server)
        assert (await assigned(cloud, server)).keys() == {f"server on {host_of(back)}"}
        await settled(cloud)


async def test_what_is_done_in_place_keeps_the_units() -> None:
    async with running() as cloud:
        server = await created(cloud)
        (before,) = (await assigned(cloud, server)).values()
        for name in ("stop", "start", "rebuild"):
            await done(cloud, name, server)
            assert [one.units for one in (await assigned(cloud, server)).values()] == [before.units], name
            assert cloud.hosts[host_of(server)].state.units[server.id] == before.units
        await settled(cloud)


# -- what goes wrong -------------------------------------------------------------------------------


async def test_an_alternate_gets_units_of_its_own_and_the_failed_host_frees_its() -> None:
    async with running() as cloud:
        rule = Rule(outcome="fail", verb="build", times=1)
        cloud.behaviours.replace(msgspec.structs.replace(QUICK, rules=(rule,)))
        server = await created(cloud)
        assert (await assigned(cloud, server)).keys() == {f"server on {host_of(server)}"}
        await settled(cloud)


async def test_a_failed_build_that_cannot_be_destroyed_keeps_its_units() -> None:
    slow = msgspec.structs.replace(QUICK, build_seconds=20)
    async with running(hosts=2, behaviour=slow) as cloud:
        server = new_server(cloud, flavor=SMALL)
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        await asyncio.sleep(5)
        first = await host_dies(cloud, server)
        after = await cloud.at_rest(server.id)
        assert host_of(after) != first.name
        held = await assigned(cloud, server)
        assert held.keys() == {f"server on {host_of(after)}", f"server on {first.name}"}
        cloud.hosts[first.name].start()
        await cloud.until(lambda view: not len(view.down))
        await settled(cloud)
        assert (await assigned(cloud, server)).keys() == {f"server on {host_of(after)}"}


async def test_servers_get_no_unit_twice_until_there_are_none_left() -> None:
    async with running(hosts=1) as cloud:
        servers = [await created(cloud) for _ in range(3)]
        refused = await cloud.begin(beginning(cloud, "create", new_server(cloud, flavor=SMALL)))
        assert isinstance(refused, NoFit)
        units = [
            one for server in servers for a in (await assigned(cloud, server)).values() for one in units_of(a)
        ]
        assert len(set(units)) == len(units) == 12
        await settled(cloud)


# -- what is shown, found and repaired ---------------------------------------------------------------


async def test_administrators_see_units_and_members_see_kinds_and_counts() -> None:
    async with running() as cloud:
        server = await created(cloud)
        (one,) = (await assigned(cloud, server)).values()
        path = f"/berth/v1/servers/{server.id}/devices"
        shown = (await cloud.client().ask("GET", path)).body["devices"]
        assert {device["resource_class"]: device["count"] for device in shown} == KINDS
        assert {unit for device in shown for unit in device["units"]} == units_of(one)
        assert {device["host"] for device in shown} == {host_of(server)}
        assert {device["provider_name"] for device in shown} == {
            f"{host_of(server)}-{child}" for child in ("numa0", "pf0", "gpu0")
        }
        member = {"x-auth-token": "user:project", "openstack-api-version": "compute 2.94"}
        told = (await cloud.client(member).ask("GET", path)).body["devices"]
        assert {device["resource_class"]: device["count"] for device in told} == KINDS
        assert {device[name] for device in told for name in ("units", "host", "provider")} == {None}
        other = {**member, "x-auth-token": "bob:red"}
        assert (await cloud.client(other).ask("GET", path)).status == 404
        topology = f"/compute/v2.1/servers/{server.id}/topology"
        answer = await cloud.client().ask("GET", topology)
        assert (answer.status, answer.body) == (
            200,
            {
                "nodes": [
                    {
                        "memory_mb": 0,
                        "siblings": [],
                        "vcpu_set": [0, 1],
                        "host_node": 0,
                        "cpu_pinning": {"0": 0, "1": 1},
                    }
                ],
                "pagesize_kb": 4,
            },
        )
        (node,) = (await cloud.client(member).ask("GET", topology)).body["nodes"]
        assert node == {"memory_mb": 0, "siblings": [], "vcpu_set": [0, 1]}
        early = await cloud.client({**ADMIN, "openstack-api-version": "compute 2.77"}).ask("GET", topology)
        assert early.status == 404


async def test_a_migration_is_shown_with_what_it_holds_at_the_source() -> None:
    async with running() as cloud:
        server = await created(cloud)
        assert await cloud.begin(_begin(cloud, "resize", server)) is None
        moved = await cloud.at_rest(server.id)
        shown = (await cloud.client().ask("GET", f"/berth/v1/servers/{server.id}/devices")).body["devices"]
        assert {(device["of"], device["host"]) for device in shown} == {
            ("server", host_of(moved)),
            ("migration", host_of(server)),
        }


async def test_what_is_known_is_shown_while_the_cell_is_away() -> None:
    async with running() as cloud:
        server = await created(cloud)
        cloud.cells["cell1"].kill()
        shown = await cloud.client().ask("GET", f"/berth/v1/servers/{server.id}/devices")
        assert (shown.status, len(shown.body["devices"])) == (200, 3)


async def test_units_follow_a_need_that_is_added_and_removed() -> None:
    async with running() as cloud:
        server = await created(cloud)
        (before,) = (await assigned(cloud, server)).values()
        path = f"/berth/v1/servers/{server.id}/needs/port"
        answer = await cloud.client().ask("PUT", path, {"resources": {"SRIOV_NET_VF": 2}})
        assert answer.status == 200, answer.body
        await cloud.all_at_rest()
        (more,) = (await assigned(cloud, server)).values()
        assert units_of(more) > units_of(before)
        assert len(units_of(more)) == len(units_of(before)) + 2
        # The driver is told with the next command.
        await done(cloud, "stop", server)
        await done(cloud, "start", server)
        await settled(cloud)
        await done(cloud, "stop", server)
        assert (await cloud.client().ask("DELETE", path)).status == 204
        await cloud.all_at_rest()
        (less,) = (await assigned(cloud, server)).values()
        assert less.units == before.units
        await done(cloud, "start", server)
        await settled(cloud)


@pytest.mark.parametrize("smaller", [None, {"SRIOV_NET_VF": 1}, {"VGPU": 1}])
async def test_units_of_a_running_server_are_not_taken_away(smaller: dict[str, int] | None) -> None:
    async with running(hosts=1) as cloud:
        server = await created(cloud)
        path = f"/berth/v1/servers/{server.id}/needs/port"
        put = await cloud.client().ask("PUT", path, {"resources": {"SRIOV_NET_VF": 2}})
        assert put.status == 200, put.body
        await cloud.all_at_rest()
        await done(cloud, "stop", server)
        await done(cloud, "start", server)
        (before,) = (await assigned(cloud, server)).values()

        async def reduce() -> Any:
            if smaller is None:
                return await cloud.client().ask("DELETE", path)
            return await cloud.client().ask("PUT", path, {"resources": smaller})

        refused = await reduce()
        assert (refused.status, refused.body["errors"][0]["detail"]) == (
            409,
            f"Cannot take away SRIOV_NET_VF of the need port: server {server.id} is active and may be using "
            "it. Stop the server first.",
        )
        assert [one.units for one in (await assigned(cloud, server)).values()] == [before.units]
        # It may grow, and shrink when the server is stopped: others are built with what it had.
        await done(cloud, "stop", server)
        assert (await reduce()).status in (200, 204)
        other = await created(cloud)
        await done(cloud, "start", server)
        await settled(cloud)
        (given,) = (await assigned(cloud, other)).values()
        assert units_of(given) & units_of(before)


async def test_a_need_that_is_removed_before_the_region_knows_its_units_frees_them() -> None:
    async with running(hosts=1, fleet=make_fleet(1, vfs=1)) as cloud:
        plain = await created(cloud, PLAIN)
        await done(cloud, "stop", plain)
        path = f"/berth/v1/servers/{plain.id}/needs/port"
        assert (await cloud.client().ask("PUT", path, {"resources": {"SRIOV_NET_VF": 1}})).status == 200
        assert (await cloud.client().ask("DELETE", path)).status == 204
        await cloud.all_at_rest()
        assert await assigned(cloud, plain) == {}
        await created(cloud, SMALL)
        await settled(cloud)


async def test_the_doctor_finds_a_server_without_units_and_has_them_assigned() -> None:
    async with running() as cloud:
        server = await created(cloud)
        (one,) = (await assigned(cloud, server)).values()
        # As of a server that was built by an earlier release.
        reader = cloud.readers["cell1"]
        await reader.submit(Enact((RecordChanged(one, None),)), ORIGIN, lambda view, changed: None)
        await cloud.until(lambda view: not view.records.count(Assignment))
        found = (await cloud.client().ask("GET", "/berth/v1/doctor")).body["findings"]
        assert [finding["kind"] for finding in found] == ["server_without_units"]
        assert "holds 2 PCPU, 1 SRIOV_NET_VF, 1 VGPU" in found[0]["sentence"]
        assert "no units are assigned" in found[0]["sentence"]
        repair = {"findings": [found[0]["id"]], "dry_run": False}
        repaired = await cloud.client().ask("POST", "/berth/v1/doctor/repair", repair)
        assert repaired.status == 200, repaired.body
        await cloud.all_at_rest()
        await settled(cloud)


async def test_a_command_that_hangs_on_a_host_that_was_given_up_keeps_no_units() -> None:
    """The host was down when its run went on elsewhere, and nobody waits for the command any more."""
    hanging = SimBehaviour(rules=(Rule(outcome="hang", verb="build", times=1),))
    async with running(hosts=2, behaviour=hanging) as cloud:
        begun: list[str] = []
        cloud.faults.commanded.append(lambda host, command, driver: begun.append(host))
        server = new_server(cloud, flavor=SMALL)
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        async with asyncio.timeout(60):
            while not begun:
                await asyncio.sleep(0.1)
        cloud.network.block(begun[0], "cell1")
        after = await cloud.at_rest(server.id)
        assert host_of(after) != begun[0]
        cloud.network.unblock_all()
        await cloud.until(lambda view: not len(view.down))
        await settled(cloud)
        assert len(await assigned(cloud, server)) == 1


async def test_the_doctor_takes_no_units_away_from_a_running_server() -> None:
    """It has one more than it holds, and may be using it."""
    async with running() as cloud:
        server = await created(cloud)
        (one,) = (await assigned(cloud, server)).values()
        provider = next(id for id, kinds in one.units.items() if "SRIOV_NET_VF" in kinds)
        reader = cloud.readers["cell1"]
        tree = await reader.read(lambda view: view.records.get(HostTree, one.host))
        assert tree is not None
        (pf,) = [part for part in tree.providers if part.id == provider]
        vfs = {"SRIOV_NET_VF": pf.units["SRIOV_NET_VF"][:2]}
        more = msgspec.structs.replace(one, units={**one.units, provider: vfs})
        await reader.submit(Enact((RecordChanged(one, more),)), ORIGIN, lambda view, changed: None)
        await cloud.until(lambda view: view.records.get(Assignment, one.id) == more)
        (found,) = (await cloud.client().ask("GET", "/berth/v1/doctor")).body["findings"]
        assert "2 SRIOV_NET_VF, 1 VGPU are assigned to it" in found["sentence"]
        assert (found["kind"], found["repair"]) == ("server_without_units", None)
        assert "stopped and started" in found["unsafe"]
        await done(cloud, "stop", server)
        (found,) = (await cloud.client().ask("GET", "/berth/v1/doctor")).body["findings"]
        repair = {"findings": [found["id"]], "dry_run": False}
        repaired = await cloud.client().ask("POST", "/berth/v1/doctor/repair", repair)
        assert repaired.status == 200, repaired.body
        await cloud.all_at_rest()
        await done(cloud, "start", server)
        await settled(cloud)


async def test_the_doctor_finds_units_of_a_server_that_is_gone() -> None:
    async with running() as cloud:
        host = cloud.hosts["dev-1"].host
        provider = f"{host.name}-gpu0"
        stray = Assignment(
            id=assignment_id(NOBODY, host.id),
            server=NOBODY,
            host=host.id,
            holder=NOBODY,
            run="none",
            units={provider_id(provider): {"VGPU": ("unit-1",)}},
            counts={},
        )
        await cloud.begin(lambda view, now_s: Enact((RecordChanged(None, stray),)))
        found = await cloud.read(lambda view: examine(view, 10**10))
        assert [finding.kind for finding in found] == ["stray_assignment"]
        assert "unit-1" in found[0].sentence
        assert found[0].repair is None


# -- agents that lie -------------------------------------------------------------------------------


async def test_a_host_that_names_fewer_units_than_it_said_fails_the_build_and_another_is_tried() -> None:
    async with running(hosts=2) as cloud:
        first = await created(cloud)
        liar = host_of(first)
        # The cell's tree says that the host has no GPU left but the one that is taken.
        reader = cloud.readers["cell1"]
        tree = await reader.read(lambda view: view.records.get(HostTree, cloud.hosts[liar].host.id))
        assert tree is not None
        after = msgspec.structs.replace(
            tree,
            providers=tuple(
                msgspec.structs.replace(one, units={kind: names[:1] for kind, names in one.units.items()})
                for one in tree.providers
            ),
        )
        await reader.submit(Enact((RecordChanged(tree, after),)), ORIGIN, lambda view, changed: None)
        for _ in range(3):
            server = await created(cloud)
            assert host_of(server) != liar
        await cloud.all_at_rest()


async def test_an_agent_that_knows_no_units_gets_no_server_that_needs_them() -> None:
    async with running(hosts=1) as cloud:
        reader = cloud.readers["cell1"]
        agent = await reader.read(lambda view: view.records.get(Agent, cloud.hosts["dev-1"].host.id))
        assert agent is not None
        # As after a downgrade: its host has named units before.
        older = msgspec.structs.replace(agent, protocol=2)
        await reader.submit(Enact((RecordChanged(agent, older),)), ORIGIN, lambda view, changed: None)
        server = new_server(cloud, flavor=SMALL)
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        failed = await cloud.at_rest(server.id)
        assert failed is not None
        assert failed.fault is not None
        assert (failed.state, "too old to know units" in failed.fault.message) == ("error", True)
        assert (await created(cloud, PLAIN)).state == "active"
        await cloud.all_at_rest()
        assert await assigned(cloud, server) == {}


async def test_an_agent_that_knows_no_ports_gets_no_server_that_has_one() -> None:
    async with running(hosts=1) as cloud:
        reader = cloud.readers["cell1"]
        agent = await reader.read(lambda view: view.records.get(Agent, cloud.hosts["dev-1"].host.id))
        assert agent is not None
        older = msgspec.structs.replace(agent, protocol=2)
        await reader.submit(Enact((RecordChanged(agent, older),)), ORIGIN, lambda view, changed: None)
        server = new_server(cloud, flavor=PLAIN, needs=(Need("port-1", {}, port=NOBODY),))
        assert await cloud.begin(beginning(cloud, "create", server)) is None
        failed = await cloud.at_rest(server.id)
        assert failed is not None
        assert failed.fault is not None
        assert (failed.state, "too old to know ports" in failed.fault.message) == ("error", True)


async def test_a_command_that_an_agent_does_not_know_is_not_sent_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if a release to come had a verb that agents of this one do not know."""
    async with running(hosts=1) as cloud:
        server = await created(cloud, PLAIN)
        monkeypatch.setattr(protocol, "_NEEDED", Additions({"AgentCommand.verb=stop": protocol.VERSION + 1}))
        assert await cloud.begin(beginning(cloud, "stop", server)) is None
        failed = await cloud.at_rest(server.id)
        assert failed is not None
        assert failed.state == "active"
        actions = await cloud.read(lambda view: view.records.find(Action, "server", server.id))
        [details] = [event.details for action in actions for event in action.events if event.details]
        assert details == (
            f"the agent of the host dev-1 speaks version {protocol.VERSION} of the agent protocol, which has "
            "no AgentCommand.verb=stop: upgrade it"
        )


async def test_members_do_not_read_the_names_of_units_in_faults() -> None:
    async with running(hosts=1) as cloud:
        server = await created(cloud)
        (one,) = (await assigned(cloud, server)).values()
        other = new_server(cloud, flavor=SMALL)
        # The driver has given what the cell gives to the next server.
        host = cloud.hosts["dev-1"]
        tree = await cloud.readers["cell1"].read(lambda view: view.records.get(HostTree, host.host.id))
        assert tree is not None
        names = [name for part in tree.providers for name in part.units.get("SRIOV_NET_VF", ())]
        host.state.units[server.id] = {**one.units, provider_id("dev-1-pf0"): {"SRIOV_NET_VF": tuple(names)}}
        assert await cloud.begin(beginning(cloud, "create", other)) is None
        failed = await cloud.at_rest(other.id)
        assert failed is not None
        assert failed.fault is not None
        (taken,) = [name for name in names if name in failed.fault.message]
        member = cloud.client(
            {"x-auth-token": f"user:{failed.project}", "openstack-api-version": "compute 2.94"}
        )
        shown = (await member.ask("GET", f"/compute/v2.1/servers/{other.id}")).body["server"]["fault"]
        assert taken not in shown["message"]
        assert "unit of SRIOV_NET_VF" in shown["message"]


async def test_units_that_a_host_says_others_have_are_complaints() -> None:
    async with running(hosts=1) as cloud:
        servers = [await created(cloud) for _ in range(2)]
        host = cloud.hosts["dev-1"]
        mine, other = (host.state.units[server.id] for server in servers)
        host.state.units[servers[0].id] = other
        host.kill_agent()
        host.start()
        await cloud.until(lambda view: any(one.complaints for one in view.records.all(Host)))
        (record,) = await cloud.read(lambda view: list(view.records.all(Host)))
        assert mine != other
        assert f"Server {servers[0].id} has the units" in record.complaints[0]
        assert f"which belong to {servers[1].id}" in record.complaints[0]
        assert f"Server {servers[0].id} does not have the units" in record.complaints[1]
        # The host is up all the same, and others are unharmed.
        assert not record.is_silent


@pytest.mark.parametrize("operation", ["create", "resize", "live_migrate", "revert", "confirm", "delete"])
async def test_a_conductor_that_dies_at_any_step_finds_its_assignments(operation: str) -> None:
    slow = SimBehaviour(build_seconds=5, live_migrate_seconds=5, other_seconds=5)
    for at_s in (0.5, 3.0, 8.0, 13.0, 18.0):
        async with running(behaviour=slow) as cloud:
            server = new_server(cloud, flavor=SMALL)
            if operation != "create":
                await done(cloud, "create", server)
            if operation in ("revert", "confirm"):
                assert await cloud.begin(_begin(cloud, "resize", server)) is None
                await cloud.at_rest(server.id)
            begin: Callable[..., Any] = _begin(cloud, operation, server)
            assert await cloud.begin(begin) is None
            await asyncio.sleep(at_s)
            cloud.cells["cell1"].kill()
            cloud.cells["cell1"].start()
            await settled(cloud)


@pytest.mark.parametrize("seed", range(3))
async def test_random_operations_while_hosts_and_conductors_die(seed: int) -> None:
    behaviour = SimBehaviour(failure_rate=0.05)
    async with running(fleet=make_fleet(12), seed=seed, workers=2, behaviour=behaviour) as cloud:
        chaos = Chaos(cloud, seed, flavors=(SMALL, LARGE, PLAIN))
        await chaos.run(150)
        await settled(cloud)
