"""``berth demo``, and the commands that it and the README tell a newcomer to try."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import HOST, ROOT, Server

pytestmark = [
    pytest.mark.http,
    pytest.mark.skipif(
        shutil.which("curl") is None, reason="curl is not installed, and newcomers are told to use it"
    ),
]

DEFAULT_URL = "http://127.0.0.1:8778"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("demo")
    program = str(Path(sys.executable).with_name("berth"))
    server = Server(
        lambda port: [
            program,
            "demo",
            "--listen",
            f"{HOST}:{port}",
            "--data",
            str(folder / "data"),
            "--hosts",
            "4",
        ],
        folder / "demo.log",
    )
    server.start()
    try:
        wait_until_filled(server)
        yield server
    finally:
        assert server.stop() == 0, server.log
    assert "ERROR" not in server.log


def wait_until_filled(server: Server, starts: int = 1) -> None:
    """Until the demo has said all it has to say, after this many starts."""
    deadline_s = time.monotonic() + 60
    while server.log.count("Ctrl-C stops it.") < starts:
        assert server.process is not None
        assert server.process.poll() is None, server.log
        assert time.monotonic() < deadline_s, server.log
        time.sleep(0.05)


def shell(script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_command_that_the_demo_prints_works(demo: Server) -> None:
    numbered = re.split(r"\n  \d\. .*\n", demo.log.partition("Try, from another terminal:")[2])[1:]
    search, claim, usage = (part.partition("\n\n")[0] for part in numbered)
    found = json.loads(shell(search))
    assert len(found["allocation_requests"]) == 2
    assert "HTTP/1.1 204" in shell(claim)
    shown = shell(usage)
    assert re.search(r"VCPU *\| *2 ", shown), shown
    assert re.search(r"MEMORY_MB *\| *4096 ", shown), shown


def test_the_commands_of_the_readme_work(demo: Server) -> None:
    block = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    assert DEFAULT_URL in block[1]
    printed = shell(block[1].replace(DEFAULT_URL, demo.url))
    assert '"allocation_requests":[{' in printed
    assert "HTTP/1.1 204" in printed
    last = printed.strip().splitlines()[-1]
    held, end = json.JSONDecoder().raw_decode(last)
    placed = json.loads(last[end:])
    assert len(placed["placements"]) == 3
    consumer = "22222222-2222-4222-8222-222222222222"
    assert held["allocations"][consumer]["resources"] == {"VCPU": 2, "MEMORY_MB": 4096}


def test_a_second_start_finds_the_fleet_and_keeps_it(demo: Server) -> None:
    demo.stop()
    demo.start()
    wait_until_filled(demo, starts=2)
    listed = shell(f"curl -s -H 'X-Auth-Token: admin' {demo.url}/resource_providers")
    names = [provider["name"] for provider in json.loads(listed)["resource_providers"]]
    assert sorted(names) == [
        "host-0000",
        "host-0000-gpu0",
        "host-0000-gpu1",
        "host-0001",
        "host-0002",
        "host-0003",
    ]
