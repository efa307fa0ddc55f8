"""A cell whose region is dead: builds that fail are tried elsewhere all the same.

Real processes: a Placement server, a region beside it on the same database, a conductor and its agents. The
conductor's way to Placement leads through a gateway that lets Placement's paths through and nothing else, and
keeps count; which sockets the conductor has is read from the kernel.
"""

import http.client
import http.server
import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import ENTRY, HOST, ServerProcess, berth, running

pytestmark = pytest.mark.crash

PATHS: Final = ("/allocations", "/resource_providers", "/resource_classes", "/traits")
ADMIN: Final = {"x-auth-token": "admin", "openstack-api-version": "compute 2.90, placement 1.39"}
PATIENCE_S: Final = 60


class Gateway:
    """Lets Placement's paths through. ``context`` is everything that came."""

    def __init__(self, target: int) -> None:
        self.asked: list[str] = []
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                gateway.asked.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if not self.path.startswith(PATHS):
                    self._answer(403, b"", "text/plain")
                    return
                connection = http.client.HTTPConnection(HOST, target, timeout=10)
                try:
                    connection.request(self.command, self.path, body or None, dict(self.headers.items()))
                    answer = connection.getresponse()
                    content = answer.read()
                finally:
                    connection.close()
                self._answer(answer.status, content, answer.getheader("content-type") or "")

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                if status != 204:
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = _pass_on

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    @contextmanager
    def open(self) -> Iterator["Gateway"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _berth(folder: Path, name: str, *words: str) -> ServerProcess:
    """A part of Berth; ``{listen}`` among the words is where it is to listen."""
    program = str(Path(sys.executable).with_name("berth"))
    env = {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}

    def command(port: int) -> list[str]:
        return [program, *(word.format(listen=f"{HOST}:{port}") for word in words)]

    env |= {"BERTH_PLACEMENT_TOKEN": "admin"} if name == "cell" else {}
    return ServerProcess(command, folder / f"{name}.log", env, ENTRY)


def _ask(port: int, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        headers = ADMIN | ({"content-type": "application/json"} if content else {})
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (method, path, answer.status, text)
        return json.loads(text) if text else None
    finally:
        connection.close()


def _until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def _peers(pid: int) -> set[int]:
    """The ports that a process has connected to; those who have connected to it are not counted."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    peers, own = set(), set()
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    for row in rows:
        if row[9] in inodes and row[3] == "0A":
            own.add(int(row[1].split(":")[1], 16))
    for row in rows:
        local, remote = (int(row[n].split(":")[1], 16) for n in (1, 2))
        if row[9] in inodes and row[3] == "01" and local not in own:
            peers.add(remote)
    return peers


def _is_built(data: Path, server: str) -> bool:
    """Whether a host's disk has the server, running."""
    states = (json.loads(path.read_text()) for path in (data / "hosts").glob("*.json"))
    return any(state.get("servers", {}).get(server) == "running" for state in states)


def test_failed_builds_are_retried_without_the_region(tmp_path: Path) -> None:
    database, cell_database = (f"sqlite:///{tmp_path / name}.db" for name in ("region", "cell1"))
    data = tmp_path / "agents"
    (data / "control").mkdir(parents=True)
    (data / "control" / "behaviour.toml").write_text(
        'build_seconds = 1.0\n[[rules]]\noutcome = "fail"\nverb = "build"\ntimes = 2\n'
    )
    with ExitStack() as stack:
        placement = stack.enter_context(running(berth(tmp_path, "--workers", "2", database=database)))
        gateway = stack.enter_context(Gateway(placement.port).open())
        words = ["region", "--listen", "{listen}", "--auth", "noauth", "--workers", "2"]
        region = _berth(
            tmp_path, "region", *words, "--database", database, "--cells", f"cell1={cell_database}"
        )
        stack.enter_context(running(region))
        words = ["cell", "--name", "cell1", "--database", cell_database, "--listen", "{listen}"]
        cell = _berth(tmp_path, "cell", *words, "--placement", f"http://{HOST}:{gateway.port}")
        stack.enter_context(running(cell))
        agent = _agents(tmp_path, cell.url, data)
        stack.callback(agent.kill)
        _until(lambda: _hosts_up(region.port) == 4, "4 hosts are up")

        flavor = {"id": "1", "name": "small", "vcpus": 1, "ram": 512, "disk": 1}
        _ask(region.port, "POST", "/compute/v2.1/flavors", {"flavor": flavor})
        context = {"server": {"name": "alone", "flavorRef": "1", "imageRef": "", "networks": "none"}}
        id = _ask(region.port, "POST", "/compute/v2.1/servers", context)["server"]["id"]
        _until(lambda: _runs(tmp_path / "cell1.db") > 0, "the run is in the cell")
        region.kill()

        _until(lambda: _is_built(data, id), "the server is built")
        (host,) = _ask(placement.port, "GET", f"/allocations/{id}")["allocations"]
        assert _peers(cell.pid) <= {gateway.port}, "the conductor talks to somebody else"
        assert all(context.split()[1].startswith(PATHS) for context in gateway.asked), gateway.asked
        assert sum(context == "POST /allocations" for context in gateway.asked) >= 2, "two claims were moved"

        region.start()
        path = f"/compute/v2.1/servers/{id}"
        _until(lambda: _ask(region.port, "GET", path)["server"]["status"] == "ACTIVE", "it is ACTIVE")
        server = _ask(region.port, "GET", path)["server"]
        provider = _ask(placement.port, "GET", f"/resource_providers/{host}")
        assert server["OS-EXT-SRV-ATTR:host"] == provider["name"]
        (action,) = _ask(region.port, "GET", f"{path}/os-instance-actions")["instanceActions"]
        shown = _ask(region.port, "GET", f"{path}/os-instance-actions/{action['request_id']}")
        builds = [e["result"] for e in shown["instanceAction"]["events"] if e["event"] == "build"]
        assert sorted(builds) == ["Error", "Error", "Success"]


def _agents(folder: Path, conductor: str, data: Path) -> ServerProcess:
    words = ["agent", "--conductor", conductor, "--driver", "sim", "--hosts", "4", "--data", str(data)]
    agents = _berth(folder, "agents", *words)
    # It serves nobody: there is nothing to wait for but its hosts.
    agents.launch()
    return agents


def _hosts_up(port: int) -> int:
    services = _ask(port, "GET", "/compute/v2.1/os-services")["services"]
    return sum(service["state"] == "up" for service in services)


def _runs(path: Path) -> int:
    """How many runs there are in a cell's journal, by a look at it."""
    with closing(sqlite3.connect(path)) as connection:
        bodies = connection.execute("SELECT entries FROM journal").fetchall()
    return sum(b"spawning" in body or b"create" in body for (body,) in bodies)
