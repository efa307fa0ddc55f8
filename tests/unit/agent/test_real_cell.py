"""Agents with a real conductor and a real Placement server: what they report is in Placement, commands reach
them, and a host that dies is down until it is back and clean."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.agent.discovery import Discovery, DiscoverySettings
from berth.agent.fleet import SimHost, provider_id, simulated_fleet
from berth.agent.machine import Machine
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
from tests.sysroots import two_pfs
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

    async def claim(self, consumer: str, provider: str, kind: str) -> None:
        body = {
            "allocations": {provider: {"resources": {kind: 1}}},
            "consumer_generation": None,
            "project_id": "p",
            "user_id": "u",
            "consumer_type": "INSTANCE",
        }
        answer = await self._placement.ask("PUT", f"/allocations/{consumer}", body)
        assert answer.status == 204, answer.detail

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

    async def find_agent(self, host: str) -> Agent:
        agent = await self._engine.read(lambda view: view.records.get(Agent, host))
        assert agent is not None
        return agent

    def disk(self, host: SimHost) -> dict[str, str]:
        """What is on a host for good."""
        return dict(AgentState(state_path(self.data, host.name)).disk)


@contextlib.asynccontextmanager
async def world(
    placement: ServerProcess, directory: Path, hosts: int, machine: Machine | None = None
) -> AsyncIterator[CellWorld]:
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
            conductor=url,
            data=directory / "agents",
            hosts=fleet,
            machine=machine,
            token=TOKEN,
            behaviour=QUICK,
            pace=PACE,
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


async def test_what_is_discovered_is_in_placement_and_follows_the_machine(
    placement: ServerProcess, tmp_path: Path
) -> None:
    """Two PFs go: the one that nobody uses is deleted, of the other nothing new can be had."""
    root = tmp_path / "machine"
    two_pfs(root)
    machine = Machine(Discovery(DiscoverySettings(sysroot=str(root), dedicated_cpus="4-7")), look_every_s=0.1)
    used, free = (provider_id(f"node-1-pci-0000:{bus}:00.0") for bus in ("3b", "af"))
    async with world(placement, tmp_path, hosts=0, machine=machine) as seen:

        async def check_tree() -> None:
            tree = await seen.asked(f"/resource_providers?in_tree={machine.id}")
            names = {one["uuid"]: one["name"] for one in tree["resource_providers"]}
            assert {
                one["name"]: names.get(one["parent_provider_uuid"]) for one in tree["resource_providers"]
            } == {
                "node-1": None,
                "node-1-numa0": "node-1",
                "node-1-numa1": "node-1",
                "node-1-pci-0000:3b:00.0": "node-1-numa0",
                "node-1-pci-0000:af:00.0": "node-1-numa1",
            }
            found = await seen.asked(f"/resource_providers/{provider_id('node-1-numa1')}/inventories")
            amounts = {kind: one["total"] for kind, one in found["inventories"].items()}
            assert amounts == {"PCPU": 4, "VCPU": 4, "MEMORY_MB": 64512, "CUSTOM_MEMORY_PAGES_2M": 512}
            for nic in (used, free):
                inventories = (await seen.asked(f"/resource_providers/{nic}/inventories"))["inventories"]
                assert inventories["SRIOV_NET_VF"]["total"] == 8

        await until_holds(check_tree)
        await seen.claim(server_id(), used, "SRIOV_NET_VF")
        for address in ("0000:3b:00.0", "0000:af:00.0"):
            (root / "sys/bus/pci/devices" / address).unlink()

        async def check_gone() -> None:
            tree = await seen.asked(f"/resource_providers?in_tree={machine.id}")
            ids = {one["uuid"] for one in tree["resource_providers"]}
            assert free not in ids
            assert used in ids
            inventories = (await seen.asked(f"/resource_providers/{used}/inventories"))["inventories"]
            assert inventories["SRIOV_NET_VF"]["reserved"] == 8
            agent = await seen.find_agent(machine.id)
            assert any(server_id() in complaint for complaint in agent.complaints)

        await until_holds(check_gone)


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


LIAR = "aaaaaaaa-0000-4000-8000-000000000001"


def lie(root: str = "", rest: str = "") -> bytes:
    """A registration with more in its first provider, and behind all of them."""
    provider = f'{{"id": "{LIAR}", "name": "liar"{root}}}'
    return f'{{"host": "{LIAR}", "name": "liar", "driver": "sim", "providers": [{provider}{rest}}}'.encode()


LIES = {
    "deep": (lie(rest=f'], "x": {"[" * 100_000}{"]" * 100_000}'), "maximum recursion depth"),
    "no text": (lie(rest="]").replace(b"liar", b"\xff\xfe"), "can't decode byte 0xff"),
    "a million units": (lie(', "units": {"PCPU": ["1"' + ', "1"' * 1_000_000 + "]}", "]"), "100000 values"),
    "a million providers": (lie(rest=", {}" * 1_000_000 + "]"), "100000 values"),
    "many servers": (lie(rest='], "servers": ["1"' + ', "1"' * 200_000 + "]"), "100000 values"),
    "a circle": (lie(f', "parent": "{LIAR}"', "]"), "without a parent"),
    "a large number": (lie(', "inventories": {"VCPU": {"total": 1e400}}', "]"), "out of range"),
    "a name of two lines": (lie(rest="]").replace(b"liar", b"liar\\nERROR"), "matching regex"),
    "no number": (lie(', "inventories": {"VCPU": {"total": NaN}}', "]"), "malformed"),
}


async def test_bodies_of_agents_that_lie_are_refused_with_words_and_the_others_are_heard(
    placement: ServerProcess, tmp_path: Path
) -> None:
    headers = {"x-agent-token": TOKEN, "x-agent-credential": f"{LIAR}:{'s' * 43}", "x-agent-version": "3"}
    async with world(placement, tmp_path, hosts=1) as seen:
        await seen.until_down(seen.hosts[0], False)
        async with httpx.AsyncClient(base_url=seen.url, headers=headers, timeout=PATIENCE_S) as cell:
            for name, (body, words) in LIES.items():
                answer = await cell.post("/agent/v1/register", content=body)
                assert answer.status_code == 400, (name, answer.text)
                assert words in answer.text, name
            assert len((await seen.asked("/resource_providers"))["resource_providers"]) == 1
            assert (await cell.post("/agent/v1/register", content=lie(rest="]"))).status_code == 200
            del cell.headers["x-agent-token"]
            servers = [server_id(number) for number in range(1000)]
            answer = await cell.post("/agent/v1/poll", json={"host": LIAR, "servers": servers})
            # They are no leftovers of this cell, and not for it to destroy.
            assert answer.json().get("strays", []) == []
            metrics = (await cell.get("/metrics")).text
        assert 'status="500"' not in metrics
        assert not (await seen.find_agent(seen.hosts[0].id)).is_down
