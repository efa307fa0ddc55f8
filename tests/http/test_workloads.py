"""The benchmarks' workloads at their smallest size: the answers are checked, the time is not."""

import contextlib
from pathlib import Path

import pytest

from bench import databases
from bench.client import load
from bench.fleets import providers
from bench.journals import fleet_commands, write_journal
from bench.measurement import check_answers, check_fleet, claimed_count
from bench.operations import Clients
from bench.sides import MEMORY_LIMIT_KB, Berth
from bench.workload import Claims, Mixed, Smallest, Workload, all_workloads
from berth.journal import SqliteAddress, open_journal
from tests.servers import HOST, berth, running
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.http

CLIENTS = 4
SECONDS = 0.2


@pytest.mark.parametrize("workload", all_workloads(), ids=lambda workload: workload.name)
async def test_the_smallest_size_is_answered_rightly(workload: Workload, tmp_path: Path) -> None:
    fleet = providers(workload.smallest.fleet)
    with contextlib.closing(open_journal(SqliteAddress(tmp_path / "berth.db"), shared=False)) as journal:
        write_journal(journal, fleet_commands(fleet))
    server = berth(tmp_path)
    with running(server):
        await send(workload.smallest, server.port)
        assert server.stop(WITHIN_S) == 0
    assert server.complaints() == []


async def send(smallest: Smallest, port: int) -> None:
    await check_fleet(list(providers(smallest.fleet)), port)
    await check_answers(smallest.request, port, deadline_s=30)
    clients = Clients(smallest.request, CLIENTS)
    seen = await load(HOST, port, clients.operations, seconds=SECONDS)
    assert seen.latencies_ns
    assert not seen.failures
    assert await claimed_count(port) == clients.claimed
    if isinstance(smallest.request, Claims | Mixed):
        assert clients.claimed > 0


async def test_a_workload_that_a_server_may_die_of_runs_within_a_memory_limit(tmp_path: Path) -> None:
    workload = next(workload for workload in all_workloads() if workload.hostile)
    with databases.sqlite() as files:
        side = Berth(files, 1)
        side.load("fleet", workload.smallest.fleet)
        with running(side.server("fleet", tmp_path, limited=True)) as server:
            limits = Path("/proc", str(server.pid), "limits").read_text()
            assert str(MEMORY_LIMIT_KB * 1024) in limits
            await send(workload.smallest, server.port)
