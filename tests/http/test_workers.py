"""Several workers over one journal: whoever answers, it is as if there were one."""

import http.client
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import HOST, ServerProcess, berth, running

pytestmark = pytest.mark.http

HEADERS = {
    "x-auth-token": "admin",
    "openstack-api-version": "placement 1.39",
    "content-type": "application/json",
}
WORKERS = 3
CONNECTIONS = 12
ROUNDS = 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(berth(tmp_path, "--workers", str(WORKERS))) as server:
        yield server


class KeptConnection:
    """A connection that stays open, and so stays with one worker."""

    def __init__(self, server: ServerProcess) -> None:
        self._http = http.client.HTTPConnection(HOST, server.port, timeout=30)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        self._http.request(method, path, None if body is None else json.dumps(body), HEADERS)
        reply = self._http.getresponse()
        return reply.status, reply.read()

    def json(self, method: str, path: str, body: object = None) -> dict[str, object]:
        status, text = self.call(method, path, body)
        assert status == 200, text
        parsed: dict[str, object] = json.loads(text)
        return parsed

    def worker(self) -> str:
        """Which process is at the other end: when it was started tells workers apart."""
        metrics = self.call("GET", "/metrics")[1].decode()
        (line,) = (line for line in metrics.splitlines() if line.startswith("process_resident_memory_bytes "))
        return line


@pytest.fixture
def lines(server: ServerProcess) -> Iterator[list[KeptConnection]]:
    """Connections to more than one worker. The first worker may answer long before the others are there."""
    deadline_s = time.monotonic() + 30
    while True:
        opened = [KeptConnection(server) for _ in range(CONNECTIONS)]
        if len({connection.worker() for connection in opened}) > 1:
            break
        for connection in opened:
            connection.close()
        assert time.monotonic() < deadline_s, "all connections went to one worker"
    yield opened
    for connection in opened:
        connection.close()


def test_a_write_through_one_worker_is_seen_through_all_others_at_once(lines: list[KeptConnection]) -> None:
    provider = str(uuid.uuid4())
    lines[0].json("POST", "/resource_providers", {"name": "host", "uuid": provider})
    for number in range(ROUNDS):
        writer, reader = lines[number % CONNECTIONS], lines[(number * 7 + 1) % CONNECTIONS]
        renamed = writer.json("PUT", f"/resource_providers/{provider}", {"name": f"host-{number}"})
        assert renamed["name"] == f"host-{number}"
        assert reader.json("GET", f"/resource_providers/{provider}")["name"] == f"host-{number}"


def test_no_two_workers_give_the_last_unit_away(lines: list[KeptConnection]) -> None:
    provider = str(uuid.uuid4())
    lines[0].json("POST", "/resource_providers", {"name": "host", "uuid": provider})
    lines[0].json(
        "PUT",
        f"/resource_providers/{provider}/inventories",
        {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 50}}},
    )
    claim = {
        "allocations": {provider: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    statuses = [
        lines[number % CONNECTIONS].call("PUT", f"/allocations/{uuid.uuid4()}", claim)[0]
        for number in range(60)
    ]
    assert statuses.count(204) == 50
    assert statuses.count(409) == 10
    usages = [line.json("GET", f"/resource_providers/{provider}/usages")["usages"] for line in lines]
    assert usages == [{"VCPU": 50}] * CONNECTIONS
