"""The benchmarks' workloads at their smallest size: the answers are checked, the time is not."""

import asyncio
import random
from pathlib import Path

import pytest

from bench.client import send_all
from bench.fleets import fleet_requests
from bench.measure import check_answers, claimed_count, request_maker
from bench.workload import Claims, Smallest, Workload, all_workloads
from tests.servers import HOST, berth, running

pytestmark = pytest.mark.http

CLIENTS = 4
CLAIMS = 5
"""Of each client."""


@pytest.mark.parametrize("workload", all_workloads(), ids=lambda workload: workload.name)
def test_smallest_size(workload: Workload, tmp_path: Path) -> None:
    server = berth(tmp_path)
    with running(server):
        asyncio.run(send(workload.smallest, server.port))
        assert server.stop() == 0
    assert server.complaints() == []


async def send(smallest: Smallest, port: int) -> None:
    await send_all(HOST, port, fleet_requests(smallest.fleet))
    if not isinstance(smallest.request, Claims):
        await check_answers(smallest.request, port, deadline_s=30)
        return
    claim = request_maker(smallest.request, random.Random(1))
    await send_all(HOST, port, [[claim() for _ in range(CLAIMS)] for _ in range(CLIENTS)])
    assert await claimed_count(port) == CLIENTS * CLAIMS
