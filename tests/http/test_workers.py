"""Several workers over one journal: whoever answers, it is as if there were one."""

import contextlib
import http.client
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.api.kernel.health import METRICS_KEPT_S
from tests.servers import HOST, ServerProcess, berth, running
from tests.waiting import WITHIN_S

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
        self._server = server
        self._http = http.client.HTTPConnection(HOST, server.port, timeout=WITHIN_S)

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

    def worker(self) -> int:
        """Which process is at the other end: the one that has the socket open."""
        self.call("GET", "/healthz")
        socket = f"socket:[{self._find_inode()}]"
        for pid in children_of(self._server.pid):
            with contextlib.suppress(OSError):
                for file in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if str(file.readlink()) == socket:
                            return pid
        raise AssertionError("no worker has the connection")

    def _find_inode(self) -> str:
        """Of the server's end of the connection."""
        ours = self._http.sock.getsockname()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            local, remote = (int(words[number].rpartition(":")[2], 16) for number in (1, 2))
            if (local, remote) == (self._server.port, ours):
                return words[9]
        raise AssertionError("there is no such connection")


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def read_metrics(connection: KeptConnection) -> dict[str, float]:
    status, text = connection.call("GET", "/metrics")
    assert status == 200
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def lines(server: ServerProcess) -> Iterator[list[KeptConnection]]:
    """Connections to more than one worker, when all are there: the first may answer long before the
    others."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        opened = [KeptConnection(server) for _ in range(CONNECTIONS)]
        started = [name for name in read_metrics(opened[0]) if name.startswith("berth_worker_starts_total{")]
        if len(started) == WORKERS and len({connection.worker() for connection in opened}) > 1:
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


TRAITS = 'berth_requests_total{method="GET",route="/traits",status="200"}'


def test_every_worker_shows_what_all_have_counted(lines: list[KeptConnection]) -> None:
    for connection in lines:
        for _ in range(5):
            assert connection.call("GET", "/traits")[0] == 200
    time.sleep(METRICS_KEPT_S)
    shown = {connection.worker(): read_metrics(connection) for connection in lines}
    assert len(shown) > 1
    for metrics in shown.values():
        assert metrics[TRAITS] == 5 * len(lines)
        assert metrics['berth_request_seconds_count{method="GET",route="/traits"}'] == 5 * len(lines)
        pids = {metrics[f'berth_worker_pid{{worker="{number}"}}'] for number in range(1, WORKERS + 1)}
        assert set(shown) <= pids
        for number in range(1, WORKERS + 1):
            assert metrics[f'process_resident_memory_bytes{{worker="{number}"}}'] > 0
            assert metrics[f'berth_worker_starts_total{{worker="{number}"}}'] == 1
            assert (
                time.time() - metrics[f'berth_worker_heartbeat_timestamp_seconds{{worker="{number}"}}'] < 60
            )


def test_what_a_worker_has_counted_outlives_it(server: ServerProcess, lines: list[KeptConnection]) -> None:
    for connection in lines:
        assert connection.call("GET", "/traits")[0] == 200
    by_worker = {connection.worker(): connection for connection in lines}
    killed, other = list(by_worker)[:2]
    os.kill(killed, signal.SIGKILL)
    deadline_s = time.monotonic() + WITHIN_S
    seen = 0.0
    while True:
        time.sleep(METRICS_KEPT_S)
        metrics = read_metrics(by_worker[other])
        assert metrics[TRAITS] >= max(len(lines), seen), "a counter went back"
        seen = metrics[TRAITS]
        starts = [
            metrics[f'berth_worker_starts_total{{worker="{number}"}}'] for number in range(1, WORKERS + 1)
        ]
        if sum(starts) == WORKERS + 1:
            break
        assert time.monotonic() < deadline_s, "the worker is not replaced"
    with contextlib.closing(KeptConnection(server)) as fresh:
        assert fresh.call("GET", "/traits")[0] == 200
    time.sleep(METRICS_KEPT_S)
    assert read_metrics(by_worker[other])[TRAITS] == len(lines) + 1
