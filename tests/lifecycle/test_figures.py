"""The figures of a region and of its cells, as ``/metrics`` shows them."""

import asyncio
from typing import Any

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.cell import figures as cell_figures
from berth.region import figures
from berth.region.figures import CUSTOM_CLASSES_MAX, read_figures
from berth.runtime.telemetry import Figures
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import done, new_server

HEADERS = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39, compute 2.94"}


def now_s(cloud: SimCloud) -> int:
    return cloud.outside.clock.now_ns() // 1_000_000_000


async def look(cloud: SimCloud) -> Figures:
    return await cloud.read(lambda view: read_figures(view, cloud.settings, now_s(cloud)))


async def test_capacity_hosts_servers_and_cells() -> None:
    async with SimCloud(seed=7, hosts=4, cells=2).running() as cloud:
        await asyncio.sleep(120)
        before = await look(cloud)
        await done(cloud, "create", new_server(cloud))
        after = await look(cloud)
        assert after[cell_figures.HOSTS] == {("up",): 4, ("down",): 0, ("disabled",): 0}
        assert after[figures.SERVERS] == {("active",): 1}
        assert after[figures.CELL_UP] == {("cell1",): True, ("cell2",): True}
        assert all(now_s(cloud) - at_s < 180 for at_s in after[figures.CONDUCTOR_HEARD].values())
        assert set(after[figures.WAITING].values()) == {0}
        vcpus = [labels for labels in after[figures.CAPACITY] if labels[1] == "VCPU"]
        assert sorted(vcpus) == [("cell1", "VCPU"), ("cell2", "VCPU")]
        for labels, capacity in after[figures.CAPACITY].items():
            assert after[figures.FREE][labels] == capacity - after[figures.USED][labels]
        assert sum(after[figures.USED].values()) > sum(before[figures.USED].values())


async def test_operations_under_way_and_overdue() -> None:
    slow = SimBehaviour(rules=(Rule(outcome="hang", verb="build"),))
    async with SimCloud(seed=7, hosts=2, behaviour=slow).running() as cloud:
        client = cloud.client(HEADERS)
        flavor: dict[str, Any] = {"flavor": {"name": "f", "vcpus": 1, "ram": 512, "disk": 1, "id": "f"}}
        await client.ask("POST", "/compute/v2.1/flavors", flavor)
        body = {"server": {"name": "s", "flavorRef": "f", "networks": "none"}}
        assert (await client.ask("POST", "/compute/v2.1/servers", body)).status == 202
        await asyncio.sleep(60)
        found = await look(cloud)
        assert found[cell_figures.UNDER_WAY] == {("create",): 1}
        assert found[cell_figures.OVERDUE] == {("create",): 0}
        engine = cloud.cells["cell1"].find_engine()
        assert engine is not None
        in_cell = cell_figures.read_figures(engine.view, cloud.outside.clock.now_ns())
        assert in_cell[cell_figures.UNDER_WAY] == {("create",): 1}
        assert in_cell[cell_figures.HOSTS] == {("up",): 2, ("down",): 0}
        # Nothing ends the step without its conductor.
        cloud.cells["cell1"].kill()
        await asyncio.sleep(600)
        found = await look(cloud)
        assert found[cell_figures.OVERDUE] == {("create",): 1}


async def test_classes_that_others_make_up_are_bounded() -> None:
    async with SimCloud(seed=7, hosts=1).running() as cloud:
        client = cloud.client(HEADERS)
        provider = {"name": "many", "uuid": "10000000-0000-4000-8000-000000000001"}
        assert (await client.ask("POST", "/resource_providers", provider)).status == 200
        names = [f"CUSTOM_{number:03}" for number in range(CUSTOM_CLASSES_MAX + 5)]
        for name in names:
            assert (await client.ask("PUT", f"/resource_classes/{name}")).status == 201
        inventories = {name: {"total": 1} for name in names}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        path = f"/resource_providers/{provider['uuid']}/inventories"
        assert (await client.ask("PUT", path, body)).status == 200
        shown = [labels[1] for labels in (await look(cloud))[figures.CAPACITY] if labels[1] in names]
        assert shown == names[:CUSTOM_CLASSES_MAX]
