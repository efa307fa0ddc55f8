"""What is logged of an operation: each fact in one line, with the ids of its request, by region, cell and
agent."""

import asyncio
import logging
import re

import pytest

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.sim.cloud import SimCloud

GLOBAL = "req-01234567-89ab-cdef-0123-456789abcdef"
HEADERS = {
    "x-auth-token": "admin",
    "openstack-api-version": "compute 2.94",
    "x-openstack-request-id": GLOBAL,
}
REGION = ("berth.region.cell_links", "berth.region.status_sync", "berth.api.compute.servers.create")
CELL = ("berth.cell.conductor",)
AGENT = ("berth.agent.commands",)


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def create(cloud: SimCloud, *, vcpus: int = 1) -> tuple[str, str]:
    """The ids of a new server, and of the request for it."""
    client = cloud.client(HEADERS)
    flavor = {"flavor": {"name": "f", "vcpus": vcpus, "ram": 512, "disk": 1, "id": "f"}}
    assert (await client.ask("POST", "/compute/v2.1/flavors", flavor)).status == 200
    body = {"server": {"name": "s", "flavorRef": "f", "networks": "none"}}
    answer = await client.ask("POST", "/compute/v2.1/servers", body)
    assert answer.status == 202, answer
    await cloud.at_rest(answer.body["server"]["id"])
    return answer.body["server"]["id"], answer.headers["x-openstack-request-id"]


class Lines:
    """The lines about a server that some loggers have written."""

    def __init__(self, caplog: pytest.LogCaptureFixture, server: str, loggers: tuple[str, ...]) -> None:
        self.records = [
            record
            for record in caplog.records
            if record.name in loggers and getattr(record, "server", None) == server
        ]

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def count(self, text: str) -> int:
        return sum(text in line for line in self.texts)


async def test_a_build_that_fails_on_its_first_host(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCloud(seed=5, hosts=3).running() as cloud:
        once = Rule(outcome="fail", verb="build", times=1)
        cloud.behaviours.replace(SimBehaviour(rules=(once,)))
        id, request_id = await create(cloud)
        await cloud.all_at_rest()
    region, cell, agent = (Lines(caplog, id, loggers) for loggers in (REGION, CELL, AGENT))
    for lines in (region, cell):
        assert lines.count("create begun") == 1
        assert lines.count("create: step build failed on host-") == 1
        assert lines.count("create: step build undone on host-") == 1
        assert lines.count("create: alternate host-") == 1
        assert lines.count("taken, attempt 2") == 1
        assert lines.count("create done on host-") == 1
        assert "attempt 2" in lines.texts[-1]
        assert len(lines.texts) == 5
    assert agent.count("build begun") == 2
    assert agent.count("build failed after") == 1
    assert agent.count("build done in") == 1
    assert agent.count("destroy done in") == 1
    for record in (*region.records, *cell.records, *agent.records):
        assert record.__dict__["request_id"] == f"{request_id} {GLOBAL}"
        assert record.__dict__["host"].startswith("host-")
    ended = [record for record in (*region.records, *cell.records) if "create done" in record.getMessage()]
    assert all(record.__dict__["seconds"] >= 0 for record in ended)
    # A region knows to the second when it was asked.
    assert re.search(r" in \d+ s, attempt 2", region.texts[-1])
    assert re.search(r" in \d+\.\d s, attempt 2", cell.texts[-1])
    failed = next(text for text in cell.texts if "step build failed" in text)
    assert "attempt 1, next: undo build: " in failed


async def test_a_build_that_fails_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    never = SimBehaviour(rules=(Rule(outcome="fail", verb="build"),))
    async with SimCloud(seed=5, hosts=2, behaviour=never).running() as cloud:
        id, _ = await create(cloud)
        await cloud.all_at_rest()
    for loggers in (REGION, CELL):
        [end] = [
            record
            for record in Lines(caplog, id, loggers).records
            if "create failed on" in record.getMessage()
        ]
        assert end.levelname == "WARNING"
        assert "attempt 2: " in end.getMessage()


async def test_a_server_that_fits_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCloud(seed=5, hosts=2).running() as cloud:
        id, request_id = await create(cloud, vcpus=10_000)
    [record] = Lines(caplog, id, REGION).records
    assert record.getMessage().startswith(f"server {id}: create failed, no host was found: ")
    assert record.__dict__["request_id"] == f"{request_id} {GLOBAL}"


async def test_a_run_that_another_conductor_goes_on_with(caplog: pytest.LogCaptureFixture) -> None:
    slow = SimBehaviour(build_seconds=60)
    async with SimCloud(seed=5, hosts=2, behaviour=slow).running() as cloud:
        client = cloud.client(HEADERS)
        flavor = {"flavor": {"name": "f", "vcpus": 1, "ram": 512, "disk": 1, "id": "f"}}
        await client.ask("POST", "/compute/v2.1/flavors", flavor)
        body = {"server": {"name": "s", "flavorRef": "f", "networks": "none"}}
        id = (await client.ask("POST", "/compute/v2.1/servers", body)).body["server"]["id"]
        await asyncio.sleep(10)
        cloud.cells["cell1"].kill()
        cloud.cells["cell1"].start()
        await cloud.at_rest(id)
    lines = Lines(caplog, id, CELL)
    assert lines.count("create begun on host-") == 1
    assert lines.count("create resumed on host-") == 1
    assert lines.count("attempt 1, next: build") == 1
    assert lines.count("create done on host-") == 1
