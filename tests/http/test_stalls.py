"""A costly request over HTTP: others are answered before it is, and when its client leaves it ends."""

import http.client
import json
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.servers import HOST, ServerProcess, berth, running
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.http

HEADERS = {
    "x-auth-token": "admin",
    "openstack-api-version": "placement 1.39",
    "content-type": "application/json",
}
HOSTS = 60
COSTLY = {"resources": {"VCPU": 1}, "max_count": 1000, "alternates": 20, "project_id": "p", "user_id": "u"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(berth(tmp_path_factory.mktemp("stalls"))) as server:
        for number in range(HOSTS):
            id = str(uuid.UUID(int=number + 1))
            call(server, "POST", "/resource_providers", {"name": f"host-{number}", "uuid": id})
            inventory = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 100_000}}}
            call(server, "PUT", f"/resource_providers/{id}/inventories", inventory)
        yield server


def call(server: ServerProcess, method: str, path: str, body: object = None) -> bytes:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    connection.request(method, path, None if body is None else json.dumps(body), HEADERS)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, text
    return text


def send_costly(server: ServerProcess) -> socket.socket:
    """The request on its way; the connection on which its answer will come."""
    body = json.dumps(COSTLY).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    connection = socket.create_connection((HOST, server.port), timeout=60)
    text = f"POST /berth/v1/schedule HTTP/1.1\r\nhost: x\r\n{head}content-length: {len(body)}\r\n\r\n"
    connection.sendall(text.encode() + body)
    return connection


def children_of(server: ServerProcess) -> set[str]:
    """The processes below the server's worker."""
    workers = _below(str(server.pid))
    return {child for worker in workers for child in _below(worker)}


def _below(pid: str) -> list[str]:
    return subprocess.run(["pgrep", "-P", pid], capture_output=True, text=True, check=False).stdout.split()


def wait_until_children(server: ServerProcess, there: bool) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while bool(children_of(server)) != there:
        assert time.monotonic() < deadline_s, "the children of the server did not come or go"


def has_come(connection: socket.socket) -> bool:
    """Whether anything of an answer is there."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.setblocking(True)


def test_others_are_answered_before_a_costly_request_is(server: ServerProcess) -> None:
    with send_costly(server) as connection:
        wait_until_children(server, True)
        for path in ("/healthz", "/resource_providers", "/metrics"):
            call(server, "GET", path)
        assert not has_come(connection), "the costly one is still being worked on"
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_the_work_ends_when_its_client_leaves(server: ServerProcess) -> None:
    before = call(server, "GET", "/resource_providers")
    with send_costly(server):
        wait_until_children(server, True)
    wait_until_children(server, False)
    assert call(server, "GET", "/resource_providers") == before, "nothing was claimed"
