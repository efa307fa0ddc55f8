"""A process of berth up that hangs is noticed, killed with all that it has started, and restarted."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.cli.supervisor import ChildProcess, Supervisor
from tests.servers import free_port
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

AGENT = "agent --conductor http://127.0.0.1:1 --driver sim --hosts 1 --data agents"
CELL = "cell --name c --database sqlite:///c.db --placement http://127.0.0.1:1 --listen 127.0.0.1:{port}"
SERVER = "serve --database sqlite:///s.db --listen 127.0.0.1:{port} --auth noauth"


def children() -> set[int]:
    lists = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(child) for numbers in lists for child in numbers.read_text().split()}


@pytest.mark.parametrize("words", [AGENT, CELL, SERVER])
async def test_a_process_that_hangs_is_killed_and_restarted(tmp_path: Path, words: str) -> None:
    said: list[str] = []
    child = ChildProcess(
        name="it",
        words=tuple(words.format(port=free_port()).split()),
        variables={"BERTH_PLACEMENT_TOKEN": "x" * 20} if words == CELL else {},
        folder=tmp_path,
        log=tmp_path / "log",
    )

    before = children()
    supervisor = Supervisor(said.append, hung_after_s=6)
    supervisor.start(child)
    supervisor.is_up = True
    try:
        async with asyncio.timeout(80):
            log = tmp_path / "log"
            await until(lambda: log.exists() and log.read_text())
            # For longer than the heartbeat timeout: heartbeats go on.
            await asyncio.sleep(7)
            assert said == []
            [hung] = children() - before
            os.kill(hung, signal.SIGSTOP)
            await until(lambda: children() - before - {hung})
    finally:
        await supervisor.stop()
    assert said == ["it has ended (SIGKILL, after no heartbeat for 6 s), restarting in 0.5 s"]


async def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    child = ChildProcess(name="it", words=("--version",), variables={}, folder=tmp_path, log=tmp_path / "log")
    start, started = asyncio.create_subprocess_exec, asyncio.Event()

    async def start_but_once(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        if not said:
            raise OSError(12, "Cannot allocate memory")
        started.set()
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_but_once)

    supervisor = Supervisor(said.append, hung_after_s=60)
    supervisor.start(child)
    supervisor.is_up = True
    try:
        async with asyncio.timeout(20):
            await started.wait()
    finally:
        await supervisor.stop()
    assert said[0] == "it has ended (cannot be started: Cannot allocate memory), restarting in 0.5 s"
