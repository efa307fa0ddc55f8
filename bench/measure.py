"""One workload on one server: send it, time it, count what the server spent on it, check the answers."""

import asyncio
import json
import random
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bench import meter
from bench.client import BrokenServer, Connection, Load, load, request_bytes
from bench.fleets import host_uuid
from bench.workload import Candidates, Claims, Granular, Request, Workload
from tests.servers import HOST, Server

PROJECT: Final = "bench"
WARM_UP_S: Final = 0.5


class Measurement(msgspec.Struct, frozen=True):
    """What one side did at one concurrency. Without operations, ``problem`` says what happened instead."""

    side: str
    concurrency: int
    operations: int = 0
    failures: dict[int, int] = {}
    latency_ms: float | None = None
    latency_p99_ms: float | None = None
    throughput_per_s: float | None = None
    cpu_ms: float | None = None
    memory_peak_mb: float | None = None
    problem: str | None = None
    waited_s: float | None = None


def request_maker(request: Request, dice: random.Random) -> Callable[[], bytes]:
    """What makes the next request to send."""
    if not isinstance(request, Claims):
        constant = request_bytes("GET", f"/allocation_candidates?{request.query}")
        return lambda: constant
    hosts = [host_uuid(number) for number in range(request.hosts)]
    template = json.dumps(
        {
            "allocations": {"HOST": {"resources": {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 10}}},
            "project_id": PROJECT,
            "user_id": PROJECT,
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
    )
    before, _, after = template.partition("HOST")

    def claim() -> bytes:
        consumer = uuid.UUID(int=dice.getrandbits(128), version=4)
        body = f"{before}{dice.choice(hosts)}{after}".encode()
        return request_bytes("PUT", f"/allocations/{consumer}", body)

    return claim


async def check_answers(request: Request, port: int, deadline_s: float) -> None:
    """Ask once for candidates and count them."""
    if isinstance(request, Candidates | Granular):
        body = await ask(port, f"/allocation_candidates?{request.query}", deadline_s)
        found = len(body["allocation_requests"])
        assert found == request.answers, f"{found} candidates, {request.answers} expected"


async def claimed_count(port: int) -> int:
    """How many consumers the server says the claims have made."""
    usages = (await ask(port, f"/usages?project_id={PROJECT}"))["usages"]
    count: int = usages["INSTANCE"]["consumer_count"] if usages else 0
    return count


async def ask(port: int, path: str, deadline_s: float = 60) -> Any:
    connection = await Connection.open(HOST, port)
    try:
        async with asyncio.timeout(deadline_s):
            answer = await connection.ask(request_bytes("GET", path))
    finally:
        connection.close()
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def measure(
    side: str, server: Server, workload: Workload, concurrency: int, *, check: bool
) -> Measurement:
    """Send a workload for its time. A server that does not answer in time, or dies, is a result too."""
    begun_s = time.monotonic()
    try:
        if check:
            await check_answers(workload.request, server.port, workload.deadline_s)
        return await _measure(side, server, workload, concurrency)
    except TimeoutError:
        problem = f"no answer within {workload.deadline_s:.0f} s"
    except (BrokenServer, OSError):
        problem = "the server died"
    return Measurement(
        side,
        concurrency,
        problem=problem,
        waited_s=time.monotonic() - begun_s,
        memory_peak_mb=meter.memory_peak_mb(server.pid),
    )


async def _measure(side: str, server: Server, workload: Workload, concurrency: int) -> Measurement:
    make_request = request_maker(workload.request, random.Random(concurrency))

    async def send(seconds: float) -> Load:
        return await load(HOST, server.port, make_request, concurrency=concurrency, seconds=seconds)

    claims = isinstance(workload.request, Claims)
    claimed = await claimed_count(server.port) if claims else 0
    warm_up = await send(WARM_UP_S)
    cpu_before_s = meter.cpu_s(server.pid)
    seen = await send(workload.seconds)
    cpu_s = meter.cpu_s(server.pid) - cpu_before_s
    operations = len(seen.latencies_ns)
    if claims and not seen.failures and not warm_up.failures:
        claimed = await claimed_count(server.port) - claimed
        assert claimed == operations + len(warm_up.latencies_ns), "acknowledged claims are missing"
    if not operations:
        return Measurement(side, concurrency, failures=dict(seen.failures), problem="nothing succeeded")
    return Measurement(
        side,
        concurrency,
        operations=operations,
        failures=dict(seen.failures),
        latency_ms=statistics.median(seen.latencies_ns) / 1e6,
        latency_p99_ms=sorted(seen.latencies_ns)[int(operations * 0.99)] / 1e6,
        throughput_per_s=operations / seen.seconds,
        cpu_ms=cpu_s / operations * 1000,
        memory_peak_mb=meter.memory_peak_mb(server.pid),
    )
