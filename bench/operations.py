"""What the clients of a workload do, one operation after the other.

An operation is one request or a few that belong together. It succeeds when all of them do. Clients keep
count of the consumers whose claims were acknowledged, for the server's own count to be compared with.
"""

import json
import random
import uuid
from typing import Final

import msgspec

from bench.client import BenchConnection, Operation, request_bytes
from bench.fleets import host_id
from bench.workload import Accelerated, CandidateQuery, Claims, Cycles, Granular, Mixed, Moves, Request

PROJECT: Final = "bench"
AMOUNTS: Final = {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 10}
OWNER: Final = {"project_id": PROJECT, "user_id": PROJECT, "consumer_type": "INSTANCE"}
PARTS: Final = ("inventories", "usages", "allocations", "traits", "aggregates")
"""What a compute service reads of its host, all the time."""

NEW_OWNER: Final = b"," + json.dumps({**OWNER, "consumer_generation": None}).encode()[1:]
"""The end of a claim whose beginning a server has given as a candidate."""


class Clients:
    """The clients of one workload on one server. ``claimed`` counts the consumers they have made, which have
    other names with another ``seed``."""

    def __init__(self, request: Request, concurrency: int, seed: int = 0) -> None:
        self.claimed = 0
        self._dice = random.Random(concurrency + 1_000 * seed)
        self.operations: list[Operation]
        if isinstance(request, Moves):
            hosts = _hosts(request.hosts)
            self.operations = [Mover(self, self._dice, hosts) for _ in range(concurrency)]
        else:
            self.operations = [self._operation(request)] * concurrency

    def _operation(
        self, request: CandidateQuery | Granular | Accelerated | Claims | Cycles | Mixed
    ) -> Operation:
        match request:
            case CandidateQuery() | Granular() | Accelerated():
                return constant(request_bytes("GET", candidates_path(request.query)))
            case Claims():
                return self._claims(_hosts(request.hosts))
            case Cycles():
                return self._cycles(request_bytes("GET", candidates_path(request.query)))
            case Mixed():
                return self._mixed(_hosts(request.hosts), request.reads_percent / 100)

    def _claims(self, hosts: list[str]) -> Operation:
        before, _, after = json.dumps(_claim("HOST", None)).partition("HOST")

        async def claim(connection: BenchConnection) -> int:
            return await self._put(connection, f"{before}{self._dice.choice(hosts)}{after}".encode())

        return claim

    def _cycles(self, search: bytes) -> Operation:
        async def cycle(connection: BenchConnection) -> int:
            answer = await connection.ask(search)
            if answer.status != 200:
                return answer.status
            found = _decode_found(answer.body).allocation_requests
            return await self._put(connection, bytes(self._dice.choice(found)).rstrip()[:-1] + NEW_OWNER)

        return cycle

    def _mixed(self, hosts: list[str], reads: float) -> Operation:
        claim = self._claims(hosts)
        requests = [
            request_bytes("GET", f"/resource_providers/{host}/{part}") for host in hosts for part in PARTS
        ]

        async def read_or_claim(connection: BenchConnection) -> int:
            if self._dice.random() < reads:
                return (await connection.ask(self._dice.choice(requests))).status
            return await claim(connection)

        return read_or_claim

    async def _put(self, connection: BenchConnection, body: bytes) -> int:
        path = f"/allocations/{new_uuid(self._dice)}"
        answer = await connection.ask(request_bytes("PUT", path, body))
        self.claimed += answer.status < 300
        return answer.status


class Mover:
    """A client with two consumers of its own, an instance and a migration.

    In every operation the instance moves to another host, and the migration takes its place: both are
    written in one POST, or neither is. The first operation makes the two.
    """

    def __init__(self, clients: Clients, dice: random.Random, hosts: list[str]) -> None:
        self.clients, self._dice, self._hosts = clients, dice, hosts
        self._instance, self._migration = new_uuid(dice), new_uuid(dice)
        self._host = dice.choice(hosts)
        self._generation: int | None = None

    async def __call__(self, connection: BenchConnection) -> int:
        host = self._dice.choice(self._hosts)
        claims = {
            self._instance: _claim(host, self._generation),
            self._migration: _claim(self._host, self._generation),
        }
        answer = await connection.ask(request_bytes("POST", "/allocations", json.dumps(claims).encode()))
        if answer.status < 300:
            self.clients.claimed += 2 if self._generation is None else 0
            self._host, self._generation = host, (self._generation or 0) + 1
        else:
            await self._find_out(connection)
        return answer.status

    async def _find_out(self, connection: BenchConnection) -> None:
        """After a refusal: is anything there, and of which generation?"""
        answer = await connection.ask(request_bytes("GET", f"/allocations/{self._instance}"))
        if answer.status == 200:
            self._generation = json.loads(answer.body).get("consumer_generation")


class Found(msgspec.Struct):
    allocation_requests: list[msgspec.Raw]


_decode_found: Final = msgspec.json.Decoder(Found).decode


def constant(request: bytes) -> Operation:
    """The same request every time."""

    async def ask(connection: BenchConnection) -> int:
        return (await connection.ask(request)).status

    return ask


def candidates_path(query: str) -> str:
    return f"/allocation_candidates?{query}"


def new_uuid(dice: random.Random) -> str:
    return str(uuid.UUID(int=dice.getrandbits(128), version=4))


def _hosts(count: int) -> list[str]:
    return [host_id(number) for number in range(count)]


def _claim(host: str, generation: int | None) -> dict[str, object]:
    return {"allocations": {host: {"resources": AMOUNTS}}, **OWNER, "consumer_generation": generation}
