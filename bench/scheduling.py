"""Schedule and claim, for Berth alone: what a second of a scheduler is worth, at two sizes of the fleet, and
what it is worth where hosts have devices.

Upstream has nothing to set against this in one server: its scheduler is a service of its own, which asks
Placement and claims afterwards. Every member is claimed, durably, before it is answered.
"""

import asyncio
import json
import math
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from bench.client import BenchConnection, Operation, request_bytes
from bench.fleets import host_id
from bench.measurement import Measurement, measure_operations
from bench.operations import AMOUNTS, OWNER, constant
from tests.servers import HOST, ServerProcess

CLIENTS: Final = 16
GROUP_MEMBERS: Final = 500
"""After so many members a new group is begun, so that a small fleet is never too small for it."""
ZONES: Final = 3
MULTI_CREATE: Final = 1_000
ROUNDS: Final = 3

PLAIN: Final = {"resources": AMOUNTS, **OWNER}
APART: Final[dict[str, object]] = {"policy": "anti-affinity"}
OVER_ZONES: Final[dict[str, object]] = {"policy": "anti-affinity", "domain": "zone", "max_skew": 1}


class RefusedByServer(Exception):
    """The server did not do what the measurement needs done."""


async def change(connection: BenchConnection, method: str, path: str, body: object) -> Any:
    answer = await connection.ask(request_bytes(method, path, json.dumps(body).encode()))
    if answer.status >= 300:
        raise RefusedByServer(f"{method} {path}: {answer.status} {answer.body.decode()[:500]}")
    return json.loads(answer.body) if answer.body else None


class GroupSequence:
    """The group that members are scheduled into, and the next when it has enough."""

    def __init__(self, rule: dict[str, object]) -> None:
        self._rule = rule
        self._left = 0
        self._current: asyncio.Future[bytes] | None = None

    async def body(self, connection: BenchConnection) -> bytes:
        """What to send for the next member."""
        if self._left == 0:
            self._left = GROUP_MEMBERS
            self._current = asyncio.get_running_loop().create_future()
            made = await change(
                connection, "POST", "/berth/v1/groups", {"group": {"name": "g", **self._rule}}
            )
            self._current.set_result(json.dumps({**PLAIN, "group": made["group"]["uuid"]}).encode())
        self._left -= 1
        assert self._current is not None, "the first member begins a group"
        return await asyncio.shield(self._current)


def one_by_one(body: Callable[[BenchConnection], Awaitable[bytes]]) -> Operation:
    async def schedule(connection: BenchConnection) -> int:
        return (
            await connection.ask(request_bytes("POST", "/berth/v1/schedule", await body(connection)))
        ).status

    return schedule


async def plain(_: BenchConnection) -> bytes:
    return json.dumps(PLAIN).encode()


async def make_zones(port: int, hosts: int) -> None:
    """Put every host into one of the zones."""
    zones = [str(uuid.UUID(int=number + 1)) for number in range(ZONES)]
    connection = await BenchConnection.open(HOST, port)
    for number, zone in enumerate(zones):
        label = {"aggregate": {"kind": "zone", "name": f"zone-{number}"}}
        await change(connection, "PUT", f"/berth/v1/aggregates/{zone}", label)
    connection.close()

    async def some(first: int) -> None:
        connection = await BenchConnection.open(HOST, port)
        for number in range(first, hosts, CLIENTS):
            path = f"/resource_providers/{host_id(number)}/aggregates"
            request = request_bytes("PUT", path, json.dumps([zones[number % ZONES]]).encode(), "1.18")
            answer = await connection.ask(request)
            if answer.status != 200:
                raise RefusedByServer(f"PUT {path}: {answer.status}")
        connection.close()

    await asyncio.gather(*(some(first) for first in range(CLIENTS)))


async def measure_all(
    server: ServerProcess, database_pid: int | None, hosts: int, seconds: float
) -> list[tuple[str, int, Measurement]]:
    """Each way of scheduling on the same fleet, which fills up meanwhile, but not nearly."""
    await make_zones(server.port, hosts)
    ways: Sequence[tuple[str, Operation]] = (
        ("schedule and claim, plain", one_by_one(plain)),
        ("schedule and claim, anti-affinity", one_by_one(GroupSequence(APART).body)),
        ("schedule and claim, spread over 3 zones", one_by_one(GroupSequence(OVER_ZONES).body)),
    )
    found = []
    for title, operation in ways:
        measured = await measure_operations(server, database_pid, [operation] * CLIENTS, seconds)
        found.append((title, CLIENTS, measured))
    # One client: such a request is no ordinary load.
    many = json.dumps({**PLAIN, "max_count": MULTI_CREATE}).encode()
    operation = constant(request_bytes("POST", "/berth/v1/schedule", many))
    measured = await measure_operations(server, database_pid, [operation], seconds)
    return [*found, (f"{MULTI_CREATE:,} members in one request", 1, measured)]


# -- devices --------------------------------------------------------------------------------------

NUMA_GUEST: Final[dict[str, object]] = {
    "flavor": {
        "vcpus": 16,
        "ram": 131_072,
        "disk": 100,
        "extra_specs": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"},
    },
    **OWNER,
}
LARGE_GUEST: Final[dict[str, object]] = {
    "flavor": {
        "vcpus": 130,
        "ram": 131_072,
        "disk": 100,
        "extra_specs": {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"},
    },
    **OWNER,
}
"""Its cells have more processors than those of any host."""


def beside_cells(cells: int, gpus: int) -> dict[str, object]:
    """Guests of some NUMA cells, each with processors of its own and so many GPUs beside it, and a port of a
    network card for every GPU."""
    parts: dict[str, object] = {}
    together = []
    for cell in range(cells):
        parts[f"_CELL{cell}"] = {
            "resources": {"PCPU": 8, "MEMORY_MB": 65_536},
            "required": ["HW_NUMA_ROOT"],
        }
        near = [f"_CELL{cell}"]
        for gpu in range(gpus):
            parts[f"_GPU{cell}_{gpu}"] = {"resources": {"PGPU": 1}}
            parts[f"_NIC{cell}_{gpu}"] = {"resources": {"SRIOV_NET_VF": 1}}
            near += [f"_GPU{cell}_{gpu}", f"_NIC{cell}_{gpu}"]
        together.append(near)
    return {"resources": {"DISK_GB": 100}, "parts": parts, "same_subtree": together, **OWNER}


def placed_and_released(body: dict[str, object]) -> Operation:
    """Schedule, claim and release, so that no run ends because a fleet is full."""
    request = request_bytes("POST", "/berth/v1/schedule", json.dumps(body).encode())

    async def cycle(connection: BenchConnection) -> int:
        answer = await connection.ask(request)
        if answer.status >= 300:
            return answer.status
        [placed] = json.loads(answer.body)["placements"]
        path = f"/allocations/{placed['consumer_uuid']}"
        return (await connection.ask(request_bytes("DELETE", path))).status

    return cycle


def refused(body: dict[str, object]) -> Operation:
    """A request that no host can meet; that it is refused is its success."""
    request = request_bytes("POST", "/berth/v1/schedule", json.dumps(body).encode())

    async def ask(connection: BenchConnection) -> int:
        status = (await connection.ask(request)).status
        return 200 if status == 409 else status or 500

    return ask


async def measure_devices(
    server: ServerProcess, database_pid: int | None, hosts: int, seconds: float
) -> list[tuple[str, int, Measurement]]:
    """Each request for devices on a fleet that has them, in rounds: of those the quietest counts, for the
    longest wait is to be the server's and not the machine's."""
    ways: Sequence[tuple[str, Operation]] = (
        *(
            (
                f"GPUs with ports: {gpus} beside each of {cells} NUMA cells",
                placed_and_released(beside_cells(cells, gpus)),
            )
            for cells, gpus in ((1, 1), (1, 2), (1, 4), (2, 4))
        ),
        ("2 NUMA cells with dedicated processors", placed_and_released(NUMA_GUEST)),
        ("2 NUMA cells of 65 dedicated processors on cells of 64: refused", refused(LARGE_GUEST)),
        ("5 GPUs beside a cell of 4: refused", refused(beside_cells(1, 5))),
        ("9 GPUs beside 3 cells of a host of 2: refused", refused(beside_cells(3, 3))),
    )
    found = []
    for title, operation in ways:
        rounds = [
            await measure_operations(server, database_pid, [operation], seconds / ROUNDS)
            for _ in range(ROUNDS)
        ]
        found.append((title, 1, min(rounds, key=lambda one: one.latency_max_ms or math.inf)))
    return found
