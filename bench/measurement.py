"""One workload on one server: send it, time it, count what the servers spent on it, check the answers."""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bench import meter
from bench.client import BenchConnection, BrokenServer, LoadResult, Operation, load, request_bytes
from bench.fleets import FleetProvider
from bench.operations import PROJECT, Clients, candidates_path
from bench.workload import Request, Searches
from tests.servers import HOST, ServerProcess

WARM_UP_S: Final = 0.5
ALONE_S: Final = 2.0
LONG_NS: Final = 500_000_000
SAMPLES: Final = 5
INVENTORY_FIELDS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class Measurement(msgspec.Struct, frozen=True):
    """What one side did. Without operations, ``problem`` says what happened instead."""

    operations: int = 0
    failures: dict[int, int] = {}
    latency_ms: float | None = None
    latency_p99_ms: float | None = None
    latency_max_ms: float | None = None
    throughput_per_s: float | None = None
    cpu_ms: float | None = None
    """Of the server's processes, for each operation that succeeded."""
    cpu_max_ms: float | None = None
    """Of the server's processes, for the operation that took them the most: the part of the longest wait that
    other load on the machine has no share in. Where one client asks."""
    database_cpu_ms: float | None = None
    """Of the database server's."""
    memory_peak_mb: float | None = None
    client_busy: float | None = None
    problem: str | None = None
    waited_s: float | None = None
    spent_cpu_ms: float | None = None
    """Of the server's processes, until it was given up."""


async def check_answers(request: Request, port: int, deadline_s: float) -> None:
    """Ask once for candidates and count them."""
    if isinstance(request, Searches):
        body = await ask(port, candidates_path(request.query), deadline_s)
        found = len(body["allocation_requests"])
        assert found == request.answers, f"{found} candidates, {request.answers} expected"


async def check_fleet(fleet: Sequence[FleetProvider], port: int) -> None:
    """Let the server say how many providers there are, and of some of them what they have."""
    found = len((await ask(port, "/resource_providers"))["resource_providers"])
    assert found == len(fleet), f"{found} providers, {len(fleet)} expected"
    for provider in fleet[:: max(1, len(fleet) // SAMPLES)]:
        path = f"/resource_providers/{provider.id}"
        body = await ask(port, path)
        assert body["generation"] == provider.generation
        assert body["parent_provider_uuid"] == provider.parent_id
        inventories = (await ask(port, f"{path}/inventories"))["inventories"]
        assert inventories == {
            name: {field: getattr(inventory, field) for field in INVENTORY_FIELDS}
            for name, inventory in provider.inventories.items()
        }
        assert set((await ask(port, f"{path}/traits"))["traits"]) == set(provider.traits)
        assert set((await ask(port, f"{path}/aggregates"))["aggregates"]) == set(provider.aggregates)


async def claimed_count(port: int) -> int:
    """How many consumers the server says the claims have made."""
    usages = (await ask(port, f"/usages?project_id={PROJECT}"))["usages"]
    count: int = usages["INSTANCE"]["consumer_count"] if usages else 0
    return count


async def ask(port: int, path: str, deadline_s: float = 60) -> Any:
    connection = await BenchConnection.open(HOST, port)
    try:
        async with asyncio.timeout(deadline_s):
            answer = await connection.ask(request_bytes("GET", path))
    finally:
        connection.close()
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def measure(
    server: ServerProcess,
    database_pid: int | None,
    request: Request,
    *,
    concurrency: int,
    seconds: float,
    deadline_s: float,
) -> Measurement:
    """Send a request for a time. A server that does not answer in time, or dies, is a result too."""
    begun_s, begun_cpu_s = time.monotonic(), meter.cpu_s(server.pid)
    try:
        await check_answers(request, server.port, deadline_s)
        async with asyncio.timeout(seconds + 2 * deadline_s):
            return await _measure(server, database_pid, Clients(request, concurrency), seconds)
    except TimeoutError:
        problem = f"no answer within {deadline_s:.0f} s"
    except (BrokenServer, OSError):
        problem = "the server died"
    return Measurement(
        problem=problem,
        waited_s=time.monotonic() - begun_s,
        spent_cpu_ms=(meter.cpu_s(server.pid) - begun_cpu_s) * 1000,
        memory_peak_mb=meter.memory_peak_mb(server.pid),
    )


async def _measure(
    server: ServerProcess, database_pid: int | None, clients: Clients, seconds: float
) -> Measurement:
    measured = await measure_operations(server, database_pid, clients.operations, seconds)
    if not measured.failures and measured.problem is None:
        assert await claimed_count(server.port) == clients.claimed, "acknowledged claims are missing"
    return measured


async def measure_operations(
    server: ServerProcess, database_pid: int | None, operations: Sequence[Operation], seconds: float
) -> Measurement:
    """What operations cost that each client repeats for a time, after a little while to warm up."""

    async def send(seconds: float) -> LoadResult:
        return await load(HOST, server.port, operations, seconds=seconds)

    def spent_s() -> tuple[float, float]:
        return meter.cpu_s(server.pid), 0.0 if database_pid is None else meter.cpu_s(database_pid)

    warm_up = await send(WARM_UP_S)
    before_s = spent_s()
    seen = await send(seconds)
    cpu_s, database_cpu_s = (after - before for after, before in zip(spent_s(), before_s, strict=True))
    count = len(seen.latencies_ns)
    failures = dict(seen.failures + warm_up.failures)
    if not count:
        return Measurement(failures=failures, problem="nothing succeeded")
    is_alone = len(operations) == 1 and statistics.median(seen.latencies_ns) < LONG_NS
    return Measurement(
        operations=count,
        failures=failures,
        latency_ms=statistics.median(seen.latencies_ns) / 1e6,
        latency_max_ms=max(seen.latencies_ns) / 1e6,
        latency_p99_ms=sorted(seen.latencies_ns)[int(count * 0.99)] / 1e6,
        throughput_per_s=count / seen.seconds,
        cpu_ms=cpu_s / count * 1000,
        cpu_max_ms=await longest_cpu_ms(server, operations[0]) if is_alone else None,
        database_cpu_ms=None if database_pid is None else database_cpu_s / count * 1000,
        memory_peak_mb=meter.memory_peak_mb(server.pid),
        client_busy=seen.client_busy,
    )


async def longest_cpu_ms(server: ServerProcess, operation: Operation) -> float:
    """The most that any of some operations in a row takes of the server's processes."""
    pids = meter.processes_of(server.pid)
    connection = await BenchConnection.open(HOST, server.port)
    longest_ns, until_s = 0, time.monotonic() + ALONE_S
    try:
        while time.monotonic() < until_s:
            before_ns = meter.cpu_ns(pids)
            await operation(connection)
            longest_ns = max(longest_ns, meter.cpu_ns(pids) - before_ns)
    finally:
        connection.close()
    return longest_ns / 1e6
