"""Agents with a real conductor and a real Placement server: what they report is in Placement, commands reach
them, and a host that dies is down until it is back and clean."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.agent.fleet import SimHost, provider_id, simulated_fleet
from berth.agent.process import AgentSettings, break_host, heal_host, run_agents
from berth.agent.state import AgentState, state_path
from berth.cell import saga_runs
from berth.cell.application import Cell, CellSettings
from berth.cell.journal import open_cell_engine
from berth.client import Client
from berth.engine import Engine
from berth.model.events import Origin
from berth.model.rejections import RecordMoved
from berth.model.saga_runs import Agent, ClaimSnapshot, SagaRun, Spec
from berth.model.servers import Place
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.sagas.hosts import cell_aggregate
from tests.servers import ServerProcess, berth
from tests.servers import running as server_running
from tests.unit.agent.conductors import FLAVOR, PACE, QUICK, served, server_id

pytestmark = pytest.mark.http

HEARTBEAT_TIMEOUT_S = 1.5
PATIENCE_S = 30
CELL = "cell1"
TOKEN = "agents-only"


@pytest.fixture
def placement(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_running(berth(tmp_path)) as server:
        yield server


class CellWorld:
    """``url`` is the cell's."""

    def __init__(
        self, data: Path, engine: Engine, placement_client: Client, hosts: tuple[SimHost, ...], url: str
    ) -> None:
        self.data = data
        self.url = url
        self.hosts = hosts
        self._engine = engine
        self._placement = placement_client

    async def asked(self, path: str) -> Any:
        answer = await self._placement.ask("GET", path)
        assert answer.status == 200, answer.detail
        return answer.body

    async def command(self, saga: str, number: int, host: SimHost) -> None:
        """Write a run into the cell's journal, as a region does."""
        run = SagaRun(
            id=f"{saga} {number}",
            number=number,
            server=server_id(),
            saga=saga,
            request_id="req-1",
            spec=Spec("web-1", "project", "user", FLAVOR),
            project="project",
            user="user",
            dest=Place(id=host.id, name=host.name, cell=CELL),
            claim=ClaimSnapshot((), None),
        )
        await self._engine.submit(
            lambda view, now_s: (
                saga_runs.accept_run(view, run, now_s * 10**9) or RecordMoved("SagaRun", run.id)
            ),
            Origin("req-1", "test", None, "test"),
            lambda view, changed: None,
        )

    async def until_done(self, id: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                run = await self._engine.read(lambda view: view.records.get(SagaRun, id))
                assert run is not None
                assert run.phase != "failed", run.reason
                if run.phase == "done":
                    return
                await asyncio.sleep(0.01)

    async def until_down(self, host: SimHost, is_down: bool) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                agent = await self._engine.read(lambda view: view.records.get(Agent, host.id))
                if agent is not None and agent.is_down is is_down:
                    return
                await asyncio.sleep(0.01)

    def disk(self, host: SimHost) -> dict[str, str]:
        """What is on a host for good."""
        return dict(AgentState(state_path(self.data, host.name)).disk)


@contextlib.asynccontextmanager
async def world(placement: ServerProcess, directory: Path, hosts: int) -> AsyncIterator[CellWorld]:
    """A cell with hosts, as the region sees it: through the cell's journal."""
    database = f"sqlite:///{directory / 'cell.db'}"
    given = CellSettings(
        name=CELL,
        database=database,
        placement=placement.url,
        placement_token=lambda: "admin",
        agent_token=TOKEN,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
    )
    fleet = tuple(simulated_fleet(hosts))
    headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
    placement_client = Client(placement.url, headers)
    cell = Cell(given)
    async with cell.running(), served(cell) as url:
        engine = open_cell_engine(database, SystemClock(), Ids())
        await engine.start()
        agents = AgentSettings(
            conductor=url, data=directory / "agents", hosts=fleet, token=TOKEN, behaviour=QUICK, pace=PACE
        )
        stop = asyncio.Event()
        task = asyncio.create_task(run_agents(agents, stop))
        try:
            yield CellWorld(directory / "agents", engine, placement_client, fleet, url)
        finally:
            stop.set()
            await task
            await engine.stop()
            await placement_client.close()


async def until_holds(check: Callable[[], Awaitable[None]]) -> None:
    """Repeat a check until it holds: a host is up before its whole tree is in Placement."""
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            return await check()
        except AssertionError:
            if asyncio.get_running_loop().time() > deadline_s:
                raise
        await asyncio.sleep(0.05)


async def test_a_host_registers_and_its_tree_is_in_placement(
    placement: ServerProcess, tmp_path: Path
) -> None:
    async with world(placement, tmp_path, hosts=4) as seen:
        for host in seen.hosts:
            await seen.until_down(host, False)
        last = seen.hosts[3]

        async def check() -> None:
            tree = await seen.asked(f"/resource_providers?in_tree={last.id}")
            assert {one["name"]: one["parent_provider_uuid"] for one in tree["resource_providers"]} == {
                "host-0004": None,
                "host-0004-gpu0": last.id,
                "host-0004-gpu1": last.id,
            }
            found = await seen.asked(f"/resource_providers/{last.id}/inventories")
            amounts = {name: (one["total"], one["reserved"]) for name, one in found["inventories"].items()}
            assert amounts == {"VCPU": (32, 0), "MEMORY_MB": (131072, 4096), "DISK_GB": (2000, 0)}
            gpu = await seen.asked(f"/resource_providers/{provider_id('host-0004-gpu1')}/inventories")
            assert gpu["inventories"]["VGPU"]["total"] == 4
            traits = await seen.asked(f"/resource_providers/{last.id}/traits")
            assert sorted(traits["traits"]) == ["COMPUTE_NODE", "HW_ARCH_X86_64", "HW_CPU_X86_AVX2"]
            joined = await seen.asked(f"/resource_providers/{last.id}/aggregates")
            assert joined["aggregates"] == [cell_aggregate(CELL)]

        await until_holds(check)


async def test_a_host_that_dies_is_down_and_up_again_when_it_is_clean(
    placement: ServerProcess, tmp_path: Path
) -> None:
    async with world(placement, tmp_path, hosts=2) as seen:
        one, other = seen.hosts
        await seen.until_down(one, False)
        await seen.until_down(other, False)
        await seen.command("create", 1, one)
        await seen.until_done("create 1")
        assert seen.disk(one) == {server_id(): "running"}
        break_host(seen.data, one.name)
        await seen.until_down(one, True)
        # It is deleted behind the host's back, which keeps it until it is told.
        await seen.command("delete", 2, one)
        await seen.until_done("delete 2")
        assert seen.disk(one) == {server_id(): "running"}
        heal_host(seen.data, one.name)
        await seen.until_down(one, False)
        assert seen.disk(one) == {}
        await seen.until_down(other, False)


async def test_a_cell_says_how_it_is_as_a_region_does(placement: ServerProcess, tmp_path: Path) -> None:
    async with world(placement, tmp_path, hosts=1) as seen:
        await seen.until_down(seen.hosts[0], False)
        async with httpx.AsyncClient(base_url=seen.url) as cell:
            assert (await cell.get("/healthz")).json() == {"status": "alive"}
            assert (await cell.get("/readyz")).json()["status"] == "ready"
            assert (await cell.post("/metrics")).status_code == 405
            assert (await cell.get("/livez")).status_code == 401
            metrics = (await cell.get("/metrics")).text
    registered = 'berth_requests_total{method="POST",route="/agent/v1/register",status="200"} 1.0'
    assert registered in metrics
    assert "berth_journal_index " in metrics
