"""How long somebody else waits while a costly request is answered, at 10,000 hosts.

    python -m bench.bystander [--hosts N]

A server is started with a fleet that has everything a request can be costly with. Each shape is sent once,
and meanwhile two bystanders ask without a pause: /healthz, which waits for the event loop alone, and a small
claim, which waits for the writer too. Printed is the longest that either of them has waited. Before the first
shape the same is measured with nothing going on: that is the machine's own noise.
"""

import argparse
import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.client import BenchConnection, request_bytes
from bench.fleets import AGGREGATES, host_id, mixed_providers
from bench.journals import fleet_commands, write_journal
from berth.journal import SqliteAddress, open_journal
from berth.model import commands as c
from berth.model.ids import AggregateId
from berth.model.placement import Label
from tests.servers import HOST, berth, running

POOLS: Final = 50
NODES: Final = 1_000
PAUSE_S: Final = 0.001
IDLE_S: Final = 3.0
QUOTAS: Final = ("instances", "cores", "ram", "server-groups", "server-group-members", "clusters")
SLOW_S: Final = 120.0

OWNER: Final = {"project_id": "bench", "user_id": "bench"}
FLAT: Final = {"VCPU": 1, "MEMORY_MB": 512}


class Shape(NamedTuple):
    title: str
    method: str
    path: str
    body: object = None


class Waits(NamedTuple):
    """The longest waits of the bystanders, and how the shape itself was answered."""

    health_ms: float
    claim_ms: float
    status: int
    seconds: float


# -- shapes -------------------------------------------------------------------------------------


def parts(count: int, **part: Any) -> dict[str, Any]:
    return {f"_{number}": part for number in range(count)}


def shapes() -> Iterator[Shape]:
    """The requests of which each has stopped a server for seconds, and the longest lists."""
    schedule, explain, capacity = (f"/berth/v1/{name}" for name in ("schedule", "explain", "capacity"))
    plain = {"resources": FLAT, **OWNER}
    vcpus = parts(8, resources={"VCPU": 1})
    lists = [list(AGGREGATES)] * 100
    for count in (2, 8):
        asked = {"parts": parts(count, resources={"VCPU": 16}, member_of=lists), "group_policy": "isolate"}
        yield Shape(f"explain, {count} parts x 100 equal member_of", "POST", explain, asked)
    others = [[AGGREGATES[0], str(uuid.UUID(int=number + 1))] for number in range(100)]
    asked = {"parts": parts(8, resources={"VCPU": 16}, member_of=others), "group_policy": "isolate"}
    yield Shape("explain, 8 parts x 100 different member_of", "POST", explain, asked)
    for count, limit in ((64, 1), (51, 1), (20, 10), (8, 10)):
        groups = "&".join(f"resources{number}=DISK_GB:10" for number in range(1, count + 1))
        path = f"/allocation_candidates?{groups}&group_policy=isolate&limit={limit}"
        yield Shape(f"candidates, {count} groups over {POOLS} pools, isolate, limit {limit}", "GET", path)
    yield Shape("candidates, one group, limit 10000", "GET", "/allocation_candidates?resources=VCPU:1")
    same = {"parts": vcpus, "same_subtree": [list(vcpus)]}
    yield Shape("capacity, 8 parts, same_subtree", "POST", capacity, same)
    yield Shape("capacity, plain", "POST", capacity, {"resources": FLAT})
    many = {**plain, "max_count": NODES}
    yield Shape("schedule 1,000", "POST", schedule, many)
    yield Shape("schedule 1,000, 20 alternates", "POST", schedule, {**many, "alternates": 20})
    eight = {**OWNER, "parts": vcpus, "max_count": NODES, "min_count": 1, "alternates": 20}
    yield Shape("schedule 1,000, 8 parts, 20 alternates", "POST", schedule, eight)
    any_of = parts(14, resources={"VCPU": 1}, required=["HW_CPU_X86_AVX2"])
    isolated = {**OWNER, "parts": any_of, "group_policy": "isolate"}
    yield Shape("schedule, 14 parts, isolate", "POST", schedule, isolated)
    gpus = {**OWNER, "parts": parts(64, resources={"VGPU": 1}), "max_count": NODES, "min_count": 1}
    yield Shape("schedule 1,000, 64 VGPU parts", "POST", schedule, gpus)
    yield Shape("schedule 1,000, dry run", "POST", schedule, {**many, "dry_run": True, "alternates": 20})
    yield from clusters()
    group = {"name": "many", "flavorRef": "bench", "min_count": NODES, "networks": "none"}
    yield Shape("1,000 servers", "POST", "/compute/v2.1/servers", {"server": group})
    yield Shape("a claim for 1,000 consumers", "POST", "/allocations", claims(1_000))
    yield from lists_of_everything()


def claims(count: int) -> object:
    """As much as one write may hold, each for another flat host."""
    flat = [number for number in range(2 * count) if number % 20 < 18][:count]
    return {str(uuid.UUID(int=(1 << 64) + number)): claim(host_id(number)) for number in flat}


def claim(host: str) -> dict[str, object]:
    return {
        "allocations": {host: {"resources": {"VCPU": 1, "MEMORY_MB": 128}}},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        **OWNER,
    }


def clusters() -> Iterator[Shape]:
    path = "/berth/v1/clusters"
    yield Shape("cluster of 1,000, no anti-affinity", "POST", path, cluster("plain", NODES))
    apart = {"anti_affinity": ["p"], "anti_affinity_ratio": 1}
    yield Shape("cluster of 1,000, one per host", "POST", path, cluster("apart", NODES, **apart))
    racks = {**apart, "anti_affinity_domain": "rack"}
    yield Shape("cluster of 1,000, one per rack: refused", "POST", path, cluster("refused", NODES, **racks))


def cluster(name: str, count: int, **how: object) -> object:
    node_group = {"name": "w", "count": count, "flavor": "bench", "image": None, "processes": ["p"]}
    return {"cluster": {"name": name, "node_groups": [node_group], **how}}


def lists_of_everything() -> Iterator[Shape]:
    paths = (
        "/metrics",
        "/resource_providers",
        "/usages?project_id=bench",
        "/berth/v1/hosts",
        "/berth/v1/usage?by=aggregate",
        "/berth/v1/consumers",
        "/berth/v1/clusters",
        "/berth/v1/groups",
        "/berth/v1/doctor",
        "/compute/v2.1/servers/detail?all_tenants=1",
        "/compute/v2.1/os-hypervisors/detail",
        "/compute/v2.1/os-services",
        "/compute/v2.1/os-aggregates",
        "/compute/v2.1/os-server-groups?all_projects=1",
    )
    for path in paths:
        yield Shape(f"GET {path}", "GET", path)


# -- measuring ----------------------------------------------------------------------------------


async def longest_wait(port: int, request: Callable[[], bytes], until: asyncio.Event) -> float:
    """The longest answer in milliseconds, over requests that are sent one after the other."""
    connection = await BenchConnection.open(HOST, port)
    longest_s = 0.0
    with closing(connection):
        while not until.is_set():
            begun_s = time.perf_counter()
            await connection.ask(request())
            longest_s = max(longest_s, time.perf_counter() - begun_s)
            await asyncio.sleep(PAUSE_S)
    return longest_s * 1e3


def health() -> bytes:
    return request_bytes("GET", "/healthz")


def small_claim() -> bytes:
    return request_bytes("PUT", f"/allocations/{uuid.uuid4()}", json.dumps(claim(host_id(0))).encode())


async def measure(port: int, shape: Shape | None) -> Waits:
    over = asyncio.Event()
    bystanders = [asyncio.create_task(longest_wait(port, ask, over)) for ask in (health, small_claim)]
    await asyncio.sleep(0.1)
    begun_s = time.perf_counter()
    status = 0
    if shape is None:
        await asyncio.sleep(IDLE_S)
    else:
        body = b"" if shape.body is None else json.dumps(shape.body).encode()
        connection = await BenchConnection.open(HOST, port)
        with closing(connection):
            async with asyncio.timeout(SLOW_S):
                answer = await connection.ask(_with_versions(request_bytes(shape.method, shape.path, body)))
        status = answer.status
        if status >= 400:
            print(f"    {status}: {answer.body[:300].decode()}")
    seconds = time.perf_counter() - begun_s
    await asyncio.sleep(0.1)
    over.set()
    health_ms, claim_ms = await asyncio.gather(*bystanders)
    return Waits(health_ms, claim_ms, status, seconds)


def _with_versions(request: bytes) -> bytes:
    return request.replace(b"placement 1.39\r\n", b"placement 1.39,compute 2.94\r\n")


async def prepare(port: int) -> None:
    """What clusters and servers need, and a request to every route, so that all have metrics."""
    flavor = {"name": "bench", "id": "bench", "vcpus": 1, "ram": 512, "disk": 0}
    connection = await BenchConnection.open(HOST, port)
    with closing(connection):
        body = json.dumps({"flavor": flavor}).encode()
        await connection.ask(_with_versions(request_bytes("POST", "/compute/v2.1/flavors", body)))


async def measure_all(port: int) -> None:
    await prepare(port)
    print(f"{'':<58} {'/healthz':>9} {'a claim':>9} {'itself':>9}")
    for shape in (None, *shapes()):
        found = await measure(port, shape)
        title = "nothing" if shape is None else f"{shape.title} ({found.status})"
        print(
            f"{title:<58} {found.health_ms:>6.1f} ms {found.claim_ms:>6.1f} ms {found.seconds:>7.2f} s",
            flush=True,
        )


def host_commands(hosts: int) -> Iterator[c.Command]:
    yield from fleet_commands(mixed_providers(hosts, POOLS))
    yield c.LabelAggregate(AggregateId(AGGREGATES[0]), Label("cell", "cell1"))
    yield c.LabelAggregate(AggregateId(AGGREGATES[1]), Label("rack", "rack1"))


def main() -> None:
    parser = argparse.ArgumentParser(description="How long somebody else waits for a costly request.")
    parser.add_argument("--hosts", type=int, default=10_000)
    hosts = parser.parse_args().hosts
    with tempfile.TemporaryDirectory(prefix="berth-bystander-") as name:
        directory = Path(name)
        database = directory / "berth.db"
        with closing(open_journal(SqliteAddress(database), shared=False)) as journal:
            write_journal(journal, host_commands(hosts))
        cells = f"cell1=sqlite:///{directory / 'cell1.db'}"
        quotas = [word for name in QUOTAS for word in (f"--quota-{name}", "-1")]
        options = ("--cells", cells, *quotas)
        with running(berth(directory, *options, database=database), timeout_s=300) as server:
            asyncio.run(measure_all(server.port))


if __name__ == "__main__":
    main()
