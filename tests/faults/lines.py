"""Connections that know who answers them.

A kept connection stays with one worker, and the kernel knows which: the process that holds the other end
of the socket. A refusal for lack of service must say when to come back, whatever the test is about, so
that is checked here, on every answer.
"""

import contextlib
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.placement import PlacementAnswer, PlacementClient
from tests.servers import ServerProcess

LOST: Final = (OSError, http.client.HTTPException)
"""What a client sees when nobody answers: whether its request was carried out, it does not know."""

UNAVAILABLE: Final = 503
TIMEOUT_S: Final = 60
CONNECTIONS_MAX: Final = 100


class Line(PlacementClient):
    """One connection to a server; not to be shared between threads."""

    def __init__(self, server: ServerProcess, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(server.url, "1.39", timeout_s)

    def ask(self, method: str, path: str, body: object = None) -> PlacementAnswer:
        headers = {
            "x-auth-token": "admin",
            "accept": "application/json",
            "content-type": "application/json",
            "openstack-api-version": f"placement {self.version}",
        }
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status == UNAVAILABLE:
            assert response.headers["retry-after"] is not None, f"{method} {path}: 503 without Retry-After"
        return PlacementAnswer(response.status, json.loads(text) if text else None)

    def worker(self) -> int:
        """The process at the other end."""
        self.ask("GET", "/healthz")
        assert self._connection.sock is not None, "the server closed the connection"
        inode = _inode(self._connection.port, self._connection.sock.getsockname()[1])
        return _holder(f"socket:[{inode}]")


def lines_to_all_workers(server: ServerProcess, workers: int) -> list[Line]:
    """A line to each worker of a server. The kernel spreads connections at random, so many are tried."""
    lines: dict[int, Line] = {}
    for _ in range(CONNECTIONS_MAX):
        line = Line(server)
        if lines.setdefault(line.worker(), line) is not line:
            line.close()
        if len(lines) == workers:
            return list(lines.values())
    raise AssertionError(f"{CONNECTIONS_MAX} connections found {len(lines)} of {workers} workers")


@contextlib.contextmanager
def line_to(server: ServerProcess, timeout_s: float = TIMEOUT_S) -> Iterator[Line]:
    with contextlib.closing(Line(server, timeout_s)) as line:
        yield line


def worker_of(server: ServerProcess) -> int:
    """The process that answers, of a server with one worker."""
    with line_to(server) as line:
        return line.worker()


def kill_worker(server: ServerProcess, worker: int) -> None:
    """Kill the one worker of a server, and wait until the one that replaces it answers."""
    os.kill(worker, signal.SIGKILL)
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        with contextlib.suppress(*LOST):
            if worker_of(server) != worker:
                return
        assert time.monotonic() < end_s, f"no worker took the place of {worker} within {TIMEOUT_S} s"
        time.sleep(0.05)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _inode(server_port: int, client_port: int) -> str:
    """The socket at the server's end of a connection over loopback."""
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = row.split()
        local, remote = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
        if (local, remote) == (server_port, client_port):
            return fields[9]
    raise AssertionError("the kernel does not list the connection")


def _holder(name: str) -> int:
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == name:
                return int(path.parts[2])
    raise AssertionError(f"nobody holds {name}")
