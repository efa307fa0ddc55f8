"""Hosts whose agents discover what their machines have: servers can use all of it, as many fit as there are
devices, and a NIC that is split while a server has it whole is split for others when that server is gone."""

import asyncio
import contextlib
import functools
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.agent.discovery import Discovery, DiscoverySettings
from berth.agent.drivers.sim import NAME
from berth.agent.fleet import SimHost, provider_id
from berth.agent.machine import Machine
from berth.api.kernel.rejections import berth_problem
from berth.cell.protocol import Register
from berth.doctor.findings import examine
from berth.model.rejections import NoFit, RevertBegun, SourceUnitsGone
from berth.model.saga_runs import HostTree
from berth.model.servers import Flavor, Host, Server
from berth.sagas import create, resize
from berth.sagas.conflicts import as_dict, held_now
from berth.sagas.requests import copy_flavor
from berth.sim.cloud import Begin, HostPart, SimCloud
from berth.sim.faults import StepFault
from berth.sim.rest import find_wrong_disks, find_wrong_units
from berth.sim.world import Process
from tests import sysroots
from tests.lifecycle.stories import beginning, done, host_dies, new_server
from tests.lifecycle.test_devices import QUICK, assigned, created, host_of, settled, units_of
from tests.lifecycle.test_hosts import PATIENCE_S, Operator

WHOLE_CLASS: Final = "CUSTOM_PCI_15B3_1017"
WHOLE_PF: Final = "0000:af:00.0"
ALIAS: Final = '{"name": "vf", "resource_class": "SRIOV_NET_VF"}'


def make_flavor(name: str, kind: str) -> Flavor:
    """No processors: the devices are to run out first."""
    specs = {"resources:VCPU": "0", f"resources:{kind}": "1"}
    return Flavor(id=name, name=name, vcpus=1, memory_mb=64, disk_gb=0, extra_specs=specs)


WITH_VF: Final = make_flavor("vf", "SRIOV_NET_VF")
WITH_PF: Final = make_flavor("pf", WHOLE_CLASS)


class DiscoveredHost(HostPart):
    """A host with an agent that reads its machine from a folder."""

    def __init__(self, cloud: SimCloud, host: SimHost, root: Path, **more: Any) -> None:
        super().__init__(cloud, host)
        self.root = root
        settings = DiscoverySettings(sysroot=str(root), host_name=host.name, disk_gb=1000, **more)
        self.machine = Machine(Discovery(settings))

    async def _run(self, process: Process) -> None:
        machine = self.machine
        report = Register(host=machine.id, name=machine.name, driver=NAME, providers=machine.providers)
        agent = self.make_agent(process, report, lambda: machine.providers)
        async with asyncio.TaskGroup() as group:
            group.create_task(machine.watch(lambda: agent.renew(machine.providers)))
            group.create_task(agent.run())


@contextlib.asynccontextmanager
async def discovered(
    folder: Path,
    trees: Mapping[str, Callable[[Path], None]],
    aliases: tuple[str, ...] = (),
    **settings: Any,
) -> AsyncIterator[SimCloud]:
    """A cloud of machines, each by its name and what writes its folder."""
    fleet = [SimHost(name=name) for name in trees]
    cloud = SimCloud(seed=7, fleet=fleet, behaviour=QUICK, pci_aliases=aliases)
    for name, write in trees.items():
        write(folder / name)
        cloud.hosts[name] = DiscoveredHost(cloud, cloud.hosts[name].host, folder / name, **settings)
    async with cloud.running():
        # A host is up before all that it reported is written.
        for part in cloud.hosts.values():
            assert isinstance(part, DiscoveredHost)
            filled = [provider.id for provider in part.machine.providers if provider.inventories]
            await Operator(cloud).until_written(filled[-1])
        yield cloud


async def refused(cloud: SimCloud, flavor: Flavor) -> str:
    """Why another server does not fit, as the API says it."""
    refusal = await cloud.begin(beginning(cloud, "create", new_server(cloud, flavor=flavor)))
    assert isinstance(refusal, NoFit), refusal
    return berth_problem(refusal).text


async def has_complaint(cloud: SimCloud, *words: str) -> None:
    """Wait until the hosts have a complaint with these words in it, or none without words."""

    def is_so(complaints: list[str]) -> bool:
        return len(complaints) == bool(words) and all(word in one for one in complaints for word in words)

    await cloud.until(
        lambda view: is_so([text for host in view.records.all(Host) for text in host.complaints])
    )


async def test_a_whole_nic_is_split_while_a_server_has_it(tmp_path: Path) -> None:
    """The first host has two NICs of 8 VFs, the second one of 8 VFs and a whole one."""
    trees = {"first": sysroots.two_pfs, "second": sysroots.whole_pf}
    async with discovered(tmp_path, trees) as cloud:
        servers = [await created(cloud, WITH_VF) for _ in range(24)]
        whole = await created(cloud, WITH_PF)
        assert Counter(map(host_of, servers)) == {"first": 16, "second": 8}
        assert host_of(whole) == "second"
        assert "SRIOV_NET_VF" in await refused(cloud, WITH_VF)
        assert WHOLE_CLASS in await refused(cloud, WITH_PF)
        await settled(cloud)

        second = cloud.hosts["second"]
        assert isinstance(second, DiscoveredHost)
        sysroots.Machine(second.root).split(WHOLE_PF, 1, 8)
        second.machine.look_soon()
        await has_complaint(cloud, WHOLE_CLASS, f"in use by {whole.id}", "nothing new fits on it")
        assert await find_unit_classes(cloud, second) == await find_unit_classes_in_cell(cloud, second)
        assert WHOLE_CLASS in str(await find_unit_classes(cloud, second))
        assert "SRIOV_NET_VF" in await refused(cloud, WITH_VF)
        assert WHOLE_CLASS in await refused(cloud, WITH_PF)
        # Nothing is lost, also when both sides of the cell have started again.
        second.kill_agent()
        second.start()
        cloud.cells["cell1"].restart()
        await asyncio.sleep(2.5 * cloud.heartbeat_timeout_s)
        await cloud.until(lambda view: not len(view.down))
        for server in (whole, *servers):
            found = await cloud.server(server.id)
            assert found is not None
            assert (found.state, found.place) == ("active", server.place)
        (kept,) = (await assigned(cloud, whole)).values()
        assert units_of(kept) == {WHOLE_PF}
        assert second.state.units[whole.id] == kept.units
        assert await find_wrong_units(cloud) == []
        assert await find_wrong_disks(cloud) == []
        (finding,) = await cloud.read(lambda view: examine(view, 10**10))
        assert finding.kind == "host_complaint"
        await has_complaint(cloud, whole.id)

        assert await done(cloud, "delete", whole) is None
        await has_complaint(cloud)
        assert WHOLE_CLASS in await refused(cloud, WITH_PF)
        more = [await created(cloud, WITH_VF) for _ in range(8)]
        assert Counter(map(host_of, more)) == {"second": 8}
        units = [units_of(one) for server in more for one in (await assigned(cloud, server)).values()]
        assert len(set().union(*units)) == 8
        assert "SRIOV_NET_VF" in await refused(cloud, WITH_VF)
        await settled(cloud)
        for server in (*servers, *more):
            await done(cloud, "delete", server)
        await settled(cloud)


async def test_a_nic_that_is_split_while_a_move_waits_names_the_server(tmp_path: Path) -> None:
    async with discovered(tmp_path, dict.fromkeys(("first", "second"), sysroots.whole_pf)) as cloud:
        whole = await created(cloud, WITH_PF)
        source = cloud.hosts[host_of(whole)]
        moved = await done(cloud, "migrate", whole)
        assert moved is not None
        assert isinstance(source, DiscoveredHost)
        sysroots.Machine(source.root).split(WHOLE_PF, 1, 8)
        source.machine.look_soon()
        await has_complaint(cloud, WHOLE_CLASS, f"in use by {whole.id} (migration {moved.migration})")
        await done(cloud, "confirm", whole)
        await has_complaint(cloud)
        more = [await created(cloud, WITH_VF) for _ in range(8)]
        assert source.name in map(host_of, more)
        await settled(cloud)


async def test_a_move_is_not_reverted_to_a_host_that_has_lost_the_device(tmp_path: Path) -> None:
    """The revert destroyed the server at its destination, and ended in ERROR."""
    async with discovered(tmp_path, dict.fromkeys(("first", "second"), sysroots.whole_pf)) as cloud:
        whole = await created(cloud, WITH_PF)
        source = cloud.hosts[host_of(whole)]
        moved = await done(cloud, "migrate", whole)
        assert moved is not None
        assert isinstance(source, DiscoveredHost)
        before = shutil.copytree(source.root, tmp_path / "before", symlinks=True)
        sysroots.Machine(source.root).split(WHOLE_PF, 1, 8)
        source.machine.look_soon()
        await has_complaint(cloud, WHOLE_CLASS)
        refused = await cloud.begin(beginning(cloud, "revert", whole))
        assert refused == SourceUnitsGone(whole.id, source.name, (f"{WHOLE_CLASS} {WHOLE_PF}",))
        assert await cloud.server(whole.id) == moved
        answer = await cloud.client().ask(
            "POST", f"/compute/v2.1/servers/{whole.id}/action", {"revertResize": None}
        )
        assert answer.status == 409
        assert answer.body["conflictingRequest"]["message"] == (
            f"Cannot 'revertResize' instance {whole.id}: its source {source.name} does not have "
            f"{WHOLE_CLASS} {WHOLE_PF} any more. Confirm it, or give the source back what is missing and "
            "revert it then."
        )
        # It is whole again.
        shutil.rmtree(source.root)
        before.rename(source.root)
        source.machine.look_soon()
        await has_complaint(cloud)
        back = await done(cloud, "revert", whole)
        assert host_of(back) == source.name
        await settled(cloud)


async def test_a_revert_that_has_begun_can_end_where_the_device_is_lost_since(tmp_path: Path) -> None:
    """It could be neither confirmed nor reverted: the destination may be destroyed, the device is lost. At
    its source the server is in ERROR, where it can be rebuilt, evacuated or deleted."""
    async with discovered(tmp_path, dict.fromkeys(("first", "second"), sysroots.whole_pf)) as cloud:
        whole = await created(cloud, WITH_PF)
        source = cloud.hosts[host_of(whole)]
        assert isinstance(source, DiscoveredHost)
        await done(cloud, "migrate", whole)
        cloud.faults.add(StepFault(whole.id, "revert", 1, "forward", "fail"))
        assert await cloud.begin(beginning(cloud, "revert", whole)) is None
        await cloud.all_at_rest()
        sysroots.Machine(source.root).split(WHOLE_PF, 1, 8)
        source.machine.look_soon()
        await has_complaint(cloud, WHOLE_CLASS)
        assert isinstance(await cloud.begin(beginning(cloud, "confirm", whole)), RevertBegun)
        assert await cloud.begin(beginning(cloud, "revert", whole)) is None
        await cloud.all_at_rest()
        back = await cloud.server(whole.id)
        assert back is not None
        assert (back.state, host_of(back), back.migration) == ("error", source.name, None)
        assert await done(cloud, "delete", whole) is None
        await settled(cloud)


async def find_unit_classes(cloud: SimCloud, part: HostPart) -> set[tuple[str, str]]:
    """The classes with units of a host, as the region knows them."""
    host = await cloud.read(lambda view: view.records.get(Host, part.host.id))
    assert host is not None
    return {(id, kind) for id, kinds in host.unit_classes for kind in kinds}


async def find_unit_classes_in_cell(cloud: SimCloud, part: HostPart) -> set[tuple[str, str]]:
    """The same as they were written to Placement."""
    tree = await cloud.readers["cell1"].read(lambda view: view.records.get(HostTree, part.host.id))
    assert tree is not None
    return {(one.id, kind) for one in tree.providers for kind in one.units}


DEDICATED: Final = {"arm64": "1-2", "hole_in_cpus": "1,5,9,13", "power9": "4-6,16-19", "s390x": "1"}
"""Which cpus are dedicated, where it is not 1 and 3."""


@pytest.mark.parametrize("tree", sysroots.TREES)
async def test_servers_use_all_that_is_discovered(tmp_path: Path, tree: str) -> None:
    """A server for each class of each kind of machine, through every move."""
    names = ("one", "two", "three")
    cpus = DEDICATED.get(tree, "1,3")
    async with discovered(tmp_path, dict.fromkeys(names, sysroots.TREES[tree]), dedicated_cpus=cpus) as cloud:
        part = cloud.hosts["one"]
        assert isinstance(part, DiscoveredHost)
        inventories = [provider.inventories for provider in part.machine.providers]
        kinds = sorted({kind for one in inventories for kind in one} - {"DISK_GB", "MEMORY_MB"})
        servers = [await created(cloud, make_flavor(kind, kind)) for kind in kinds]
        for kind, server in zip(kinds, servers, strict=True):
            assert any(kind in dict(amounts) for _, amounts in server.held), kind
        await settled(cloud)
        moves = ("migrate", "revert", "migrate", "confirm", "shelve_away", "unshelve", "live_migrate")
        for move in moves:
            for server in servers:
                await done(cloud, move, server)
            await settled(cloud)
        context = cloud.context()._replace(resizes_in_place=False)
        for end in ("revert", "confirm"):
            for kind, server in zip(kinds, servers, strict=True):
                larger = msgspec.structs.replace(make_flavor(kind, kind), id=f"{kind}-large", memory_mb=128)
                begin = functools.partial(resize.propose, context=context, id=server.id, flavor=larger)
                assert await cloud.begin(begin) is None
                await cloud.at_rest(server.id)
            await settled(cloud)
            for server in servers:
                await done(cloud, end, server)
            await settled(cloud)
        place = await host_dies(cloud, servers[0])
        for server in servers:
            found = await cloud.server(server.id)
            if host_of(found) == place.name:
                await done(cloud, "evacuate", server)
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        await settled(cloud)
        for server in servers:
            await done(cloud, "delete", server)
        await settled(cloud)


HARD: Final = {
    "one cell": {"hw:numa_nodes": "1", "hw:cpu_policy": "dedicated", "pci_passthrough:alias": "vf:1"},
    "two cells": {"hw:numa_nodes": "2", "hw:cpu_policy": "dedicated", "pci_passthrough:alias": "vf:2"},
    "pages": {"hw:mem_page_size": "2MB", "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "1"},
    "emulator": {
        "hw:cpu_policy": "dedicated",
        "hw:emulator_threads_policy": "isolate",
        "pci_passthrough:alias": "vf:1",
        "hw:pci_numa_affinity_policy": "required",
    },
    "plain": {},
}
"""Flavors of two cpus and 256 MB."""


def make_hard(name: str) -> Flavor:
    return Flavor(id=name, name=name, vcpus=2, memory_mb=256, disk_gb=1, extra_specs=HARD[name])


def count_units(name: str, threads: int) -> dict[str, int]:
    """The units of such a server, on a host with so many threads to a core."""
    cpus = {"one cell": (2,), "two cells": (1, 1), "pages": (1,), "emulator": (3,), "plain": ()}[name]
    vfs = {"one cell": 1, "two cells": 2, "emulator": 1}.get(name, 0)
    counts = {"PCPU": sum(-(-count // threads) * threads for count in cpus), "SRIOV_NET_VF": vfs}
    return {kind: count for kind, count in counts.items() if count}


@pytest.mark.parametrize("may_stay", [False, True])
async def test_a_resize_between_flavors_about_hardware(tmp_path: Path, may_stay: bool) -> None:
    """After each step the units that are held, assigned and used are those that the flavor asks for."""
    names = ("one",) if may_stay else ("one", "two")
    trees = dict.fromkeys(names, sysroots.two_pfs)
    settings: dict[str, Any] = {"dedicated_cpus": "1-6,9-14", "aliases": (ALIAS,)}
    async with discovered(tmp_path, trees, **settings) as cloud:
        context = cloud.context()._replace(resizes_in_place=may_stay)

        def begin(server: Server, flavor: str) -> Begin:
            kept = copy_flavor(make_hard(flavor), cloud.scheduler.devices)
            return lambda view, now_s: resize.propose(view, now_s, context, server.id, kept)

        async def check(server: Server, flavor: str) -> None:
            await settled(cloud)
            found = await cloud.server(server.id)
            assert found is not None
            part = cloud.hosts[host_of(found)]
            cores = [provider.siblings for provider in machine_of(part).providers if provider.siblings]
            wanted = count_units(flavor, 2 if cores else 1)
            held = {kind: sum(dict(amounts).get(kind, 0) for _, amounts in found.held) for kind in wanted}
            assert held == wanted
            mine = (await assigned(cloud, server)).get(f"server on {part.name}")
            kinds = [] if mine is None else [pair for one in mine.units.values() for pair in one.items()]
            assert sum(wanted.values()) == sum(len(units) for _, units in kinds)
            assert part.state.units.get(server.id, {}) == ({} if mine is None else mine.units)

        server = await created(cloud, make_hard("plain"))
        # From each flavor to the next one, and back first.
        for before, after in pairwise(("plain", *HARD)):
            for end, flavor in (("revert", before), ("confirm", after)):
                refusal = await cloud.begin(begin(server, after))
                assert refusal is None, refusal
                moved = await cloud.at_rest(server.id)
                assert moved is not None
                assert (moved.state, moved.fault) == ("resized", None)
                assert (moved.place == server.place) is may_stay
                await check(server, after)
                settled_there = await done(cloud, end, server)
                assert settled_there is not None
                server = settled_there
                await check(server, flavor)


async def create_on(cloud: SimCloud, host: str, kind: str) -> Server:
    """A server with one of a class."""
    server, context = new_server(cloud, flavor=make_flavor(kind, kind)), cloud.context()
    refusal = await cloud.begin(
        lambda view, now_s: create.propose(view, now_s, context, (server,), 1, host=host)
    )
    assert refusal is None, refusal
    found = await cloud.at_rest(server.id)
    assert host_of(found) == host
    return server


async def held_by(cloud: SimCloud, server: Server) -> set[tuple[str, str]]:
    """What a server holds: the names of providers, each with a class."""
    held = await cloud.read(lambda view: as_dict(held_now(view, server.id)))
    names = {one.id: one.name for part in cloud.hosts.values() for one in machine_of(part).providers}
    return {(names[id], kind) for id, amounts in held.items() for kind in amounts}


async def list_units(cloud: SimCloud, server: Server) -> list[str]:
    return sorted(unit for one in (await assigned(cloud, server)).values() for unit in units_of(one))


def machine_of(part: HostPart) -> Machine:
    assert isinstance(part, DiscoveredHost)
    return part.machine


async def test_servers_follow_when_a_machine_says_which_cells_it_has(tmp_path: Path) -> None:
    """NUMA is enabled: cpus, memory, pages and devices are in cells now."""
    trees = dict.fromkeys(("one", "two"), sysroots.no_numa)
    async with discovered(tmp_path, trees, dedicated_cpus="1,3") as cloud:
        kinds = ("VCPU", "PCPU", "CUSTOM_MEMORY_PAGES_2M", "SRIOV_NET_VF", "PGPU")
        servers = {kind: await create_on(cloud, "one", kind) for kind in kinds}
        before = {kind: await list_units(cloud, servers[kind]) for kind in kinds}
        root = sysroots.Machine(tmp_path / "one", "one")
        root.cell(0, "0-1", 8, {2048: 256})
        root.cell(1, "2-3", 8, {2048: 256})
        for address in ("0000:03:00.0", *(f"0000:03:01.{number}" for number in range(4))):
            root.write(f"sys/bus/pci/devices/{address}/numa_node", 1)
        machine_of(cloud.hosts["one"]).look_soon()
        await until_has(cloud, "one", "VCPU", False)
        await settled(cloud)
        for kind in kinds:
            assert await list_units(cloud, servers[kind]) == before[kind]
            held = await held_by(cloud, servers[kind])
            assert {"one-numa0", "one-numa1"} & {name for name, _ in held}, held
            assert ("one", "MEMORY_MB") not in held
        for move in ("migrate", "revert"):
            for server in servers.values():
                await done(cloud, move, server)
            await settled(cloud)
        # It is disabled again.
        shutil.rmtree(tmp_path / "one/sys/devices/system/node")
        machine_of(cloud.hosts["one"]).look_soon()
        await until_has(cloud, "one", "VCPU", True)
        await settled(cloud)
        for kind in kinds:
            assert await list_units(cloud, servers[kind]) == before[kind]
            assert ("one", "MEMORY_MB") in await held_by(cloud, servers[kind])
        for move in ("live_migrate", "shelve_away", "unshelve", "delete"):
            for server in servers.values():
                await done(cloud, move, server)
            await settled(cloud)


async def until_has(cloud: SimCloud, provider: str, kind: str, has: bool) -> None:
    """Wait until a provider has a class, or has none of it."""
    async with asyncio.timeout(PATIENCE_S):
        while (kind in await Operator(cloud).inventories(provider_id(provider))) is not has:
            await asyncio.sleep(0.5)


async def test_a_gpu_is_partitioned_while_a_server_has_it_whole(tmp_path: Path) -> None:
    async with discovered(tmp_path, {"one": sysroots.every_kind}) as cloud:
        server = await create_on(cloud, "one", "PGPU")
        root = sysroots.Machine(tmp_path / "one", "one")
        gpu = "sys/devices/pci0000:c1/0000:c1:00.0"
        root.mdev_type(gpu, "nvidia-474", 7)
        machine = machine_of(cloud.hosts["one"])
        machine.look_soon()
        await has_complaint(cloud, "PGPU", server.id)
        vgpu = make_flavor("VGPU", "VGPU")
        # The other GPU has 4 of the type that is in use.
        others = [await created(cloud, vgpu) for _ in range(4)]
        assert "VGPU" in await refused(cloud, vgpu)
        await done(cloud, "delete", server)
        await has_complaint(cloud)
        others += [await created(cloud, vgpu) for _ in range(7)]
        assert "VGPU" in await refused(cloud, vgpu)
        await settled(cloud)


async def test_a_device_that_is_gone_for_a_while_is_its_servers_when_it_is_back(tmp_path: Path) -> None:
    async with discovered(tmp_path, {"one": sysroots.every_kind}) as cloud:
        server = await create_on(cloud, "one", "PGPU")
        link = tmp_path / "one" / "sys/bus/pci/devices/0000:c1:00.0"
        target = link.readlink()
        link.unlink()
        machine_of(cloud.hosts["one"]).look_soon()
        await has_complaint(cloud, "is gone from the host and in use by", server.id)
        assert "PGPU" in await refused(cloud, make_flavor("PGPU", "PGPU"))
        link.symlink_to(target)
        machine_of(cloud.hosts["one"]).look_soon()
        await has_complaint(cloud)
        await settled(cloud)
        (one,) = (await assigned(cloud, server)).values()
        assert units_of(one) == {"0000:c1:00.0"}
        await done(cloud, "delete", server)
        await create_on(cloud, "one", "PGPU")
        await settled(cloud)


async def test_a_server_whose_vf_is_gone_is_named(tmp_path: Path) -> None:
    """A NIC has fewer VFs than before, and more than are in use."""
    async with discovered(tmp_path, {"one": sysroots.every_kind}) as cloud:
        servers = [await create_on(cloud, "one", "SRIOV_NET_VF") for _ in range(6)]
        gone = await list_units(cloud, servers[5])
        for server in servers[:4]:
            await done(cloud, "delete", server)
        nic = tmp_path / "one" / "sys/devices/pci0000:3b/0000:3b:00.0"
        (nic / "sriov_numvfs").write_text("5\n")
        for number in range(5, 8):
            link = nic / f"virtfn{number}"
            (tmp_path / "one/sys/bus/pci/devices" / link.readlink().name).unlink()
            link.unlink()
        machine_of(cloud.hosts["one"]).look_soon()
        await has_complaint(cloud, *gone, f"in use by {servers[5].id}")
        # Of 5 that are there one is in use; the sixth counts until it is released.
        more = [await create_on(cloud, "one", "SRIOV_NET_VF") for _ in range(3)]
        assert "SRIOV_NET_VF" in await refused(cloud, WITH_VF)
        await done(cloud, "delete", servers[5])
        await has_complaint(cloud)
        more.append(await create_on(cloud, "one", "SRIOV_NET_VF"))
        assert len({unit for server in more for unit in await list_units(cloud, server)}) == 4
        await settled(cloud)
