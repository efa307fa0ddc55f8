"""Hosts whose agents discover what their machines have: as many servers fit as there are devices, and a NIC
that is split while a server has it whole is split for others when that server is gone."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from berth.agent.discovery import Discovery, DiscoverySettings
from berth.agent.drivers.sim import NAME
from berth.agent.fleet import SimHost, provider_id
from berth.agent.machine import Machine
from berth.api.kernel.rejections import berth_problem
from berth.cell.protocol import Register
from berth.doctor.findings import examine
from berth.model.rejections import NoFit
from berth.model.servers import Flavor, Host
from berth.sim.cloud import HostPart, SimCloud
from berth.sim.rest import find_wrong_disks, find_wrong_units
from berth.sim.world import Process
from tests import sysroots
from tests.lifecycle.stories import beginning, done, new_server
from tests.lifecycle.test_devices import QUICK, assigned, created, host_of, settled, units_of
from tests.lifecycle.test_hosts import Operator

WHOLE_CLASS: Final = "CUSTOM_PCI_15B3_1017"
WHOLE_PF: Final = "0000:af:00.0"


def make_flavor(name: str, kind: str) -> Flavor:
    """No processors: the devices are to run out first."""
    specs = {"resources:VCPU": "0", f"resources:{kind}": "1"}
    return Flavor(id=name, name=name, vcpus=1, memory_mb=64, disk_gb=0, extra_specs=specs)


WITH_VF: Final = make_flavor("vf", "SRIOV_NET_VF")
WITH_PF: Final = make_flavor("pf", WHOLE_CLASS)


class DiscoveredHost(HostPart):
    """A host with an agent that reads its machine from a folder."""

    def __init__(self, cloud: SimCloud, host: SimHost, root: Path) -> None:
        super().__init__(cloud, host)
        self.root = root
        self.machine = Machine(Discovery(DiscoverySettings(sysroot=str(root), host_name=host.name)))

    async def _run(self, process: Process) -> None:
        machine = self.machine
        report = Register(host=machine.id, name=machine.name, driver=NAME, providers=machine.providers)
        agent = self.make_agent(process, report, lambda: machine.providers)
        async with asyncio.TaskGroup() as group:
            group.create_task(machine.watch(lambda: agent.renew(machine.providers)))
            group.create_task(agent.run())


@contextlib.asynccontextmanager
async def discovered(folder: Path, **trees: Callable[[Path], None]) -> AsyncIterator[SimCloud]:
    """A cloud of machines, each by its name and what writes its folder."""
    cloud = SimCloud(seed=7, fleet=[SimHost(name=name) for name in trees], behaviour=QUICK)
    for name, write in trees.items():
        write(folder / name)
        cloud.hosts[name] = DiscoveredHost(cloud, cloud.hosts[name].host, folder / name)
    async with cloud.running():
        # A host is up before all that it reported is written.
        for name in trees:
            await Operator(cloud).until_written(provider_id(f"{name}-pci-{WHOLE_PF}"))
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
    async with discovered(tmp_path, first=sysroots.two_pfs, second=sysroots.whole_pf) as cloud:
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
