"""What goes wrong with one look or one snapshot does not end the housekeeper."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from berth.cli import housekeeper
from berth.runtime.settings import Settings
from berth.serving import Heartbeat

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is forked")

_FORK = multiprocessing.get_context("fork")


def keep_house_badly(folder: Path, parent: int) -> None:
    """In a process of its own: looks fail in several ways, and one of them does not."""
    looks = iter([OSError("no more processes"), ValueError("a bug"), None])

    def is_due(settings: Settings) -> bool:
        failure = next(looks, None)
        if failure is not None:
            raise failure
        return True

    def take_snapshot(settings: Settings, stop: threading.Event, heartbeat: Heartbeat) -> None:
        (folder / "taken").touch()

    housekeeper._LOOK_EVERY_S = 0.01  # type: ignore[misc,assignment]
    housekeeper._is_due = is_due
    housekeeper._take_snapshot = take_snapshot
    with (folder / "log").open("w") as log:
        sys.stderr = log
        housekeeper.keep_house(Settings(log_format="text"), Heartbeat(parent=parent))


def test_the_housekeeper_continues_after_failures_and_ends_when_stopped(tmp_path: Path) -> None:
    process = _FORK.Process(target=keep_house_badly, args=(tmp_path, os.getpid()))
    process.start()
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "taken").exists():
            assert process.is_alive(), "it has ended"
            assert time.monotonic() < deadline, "no snapshot was taken"
            time.sleep(0.01)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        process.join(10)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
    said = (tmp_path / "log").read_text()
    assert "no snapshot was taken, next try in 0 s: no more processes" in said
    assert "a bug" in said


def test_the_housekeeper_ends_when_the_server_is_gone(tmp_path: Path) -> None:
    process = _FORK.Process(target=keep_house_badly, args=(tmp_path, 1))
    process.start()
    process.join(20)
    assert process.exitcode == 0


def test_a_housekeeper_is_restarted_as_soon_as_it_can_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The machine that had no memory for the first may have none for the next either."""
    failures = iter([OSError(12, "Cannot allocate memory"), OSError(11, "no more processes")])
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        started.append(Popen(*words, **options))
        return started[-1]

    Popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(housekeeper, "_PAUSE_FIRST_S", 0.01)
    settings = Settings(database=f"sqlite:///{tmp_path}/berth.db")
    with housekeeper.housekeeper(settings):
        (first,) = (child for child in multiprocessing.active_children() if child.name == "housekeeper")
        first.kill()
        deadline = time.monotonic() + 20
        while not started:
            assert time.monotonic() < deadline, "no other was started"
            time.sleep(0.01)


@pytest.mark.timeout(20)
def test_its_settings_have_come_before_the_pipe_ends() -> None:
    """A worker that is forked in that moment has the other end of the pipe too, and keeps it."""
    settings = Settings(database="sqlite:///a line\nand another")
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        try:
            os.write(writing, housekeeper.encode_settings(settings))
            assert housekeeper.read_settings(stream) == settings
        finally:
            os.close(writing)
