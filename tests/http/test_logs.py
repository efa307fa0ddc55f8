"""A server whose log nobody reads."""

import http.client
import json
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.servers import HOST, berth, free_port
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.http

LONG = "x" * 50_000
REQUESTS = 60


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=WITHIN_S)
    with closing(connection):
        connection.request("GET", path, headers={"x-auth-token": "admin"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def test_a_log_that_nobody_reads_does_not_stop_the_server(tmp_path: Path) -> None:
    server, port = berth(tmp_path), free_port()
    process = subprocess.Popen(server.command(port), env=server.env, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        deadline = time.monotonic() + WITHIN_S
        while True:
            with suppress(OSError):
                if get(port, "/readyz")[0] == 200:
                    break
            assert time.monotonic() < deadline, "it does not start"
            time.sleep(0.02)
        for _ in range(REQUESTS):
            # A long line for the log: a pipe holds little more than one of them.
            assert get(port, f"/resource_providers?name={LONG}")[0] == 200
        assert get(port, "/healthz")[0] == 200
        metrics = get(port, "/metrics")[1]
        [dropped] = [
            float(line.split()[1])
            for line in metrics.splitlines()
            if line.startswith("berth_log_lines_dropped_total ")
        ]
        assert dropped > 0
        process.terminate()
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    notices = [line for line in lines if "log lines were dropped" in line.get("message", "")]
    assert {notice["level"] for notice in notices} == {"WARNING"}
    requests = [line for line in lines if LONG in line.get("path", "")]
    assert len(requests) + sum(int(notice["message"].split()[0]) for notice in notices) >= REQUESTS
