"""The parent of the workers, where the machine gives it no process for a worker."""

import itertools
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest

from berth.serving import Heartbeat, Limits, processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")

_FORK = multiprocessing.get_context("fork")


def serve(folder: Path) -> None:
    """Of one worker that is killed at first, and whose replacement cannot be forked at first."""
    fork, forks = os.fork, itertools.count(1)

    def fork_but_once() -> int:
        if next(forks) == 2:
            raise OSError(12, "Cannot allocate memory")
        return fork()

    def work(number: int, heartbeat: Heartbeat) -> int:
        if not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getppid(), signal.SIGTERM)
        signal.sigwait([signal.SIGTERM])
        return 0

    os.fork = fork_but_once
    processes._PAUSE_FIRST_S = processes._PAUSE_LONGEST_S = 0.01  # type: ignore[misc]
    sys.exit(processes.run_workers(1, work, Limits(), hung_after_s=60))


def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    server = _FORK.Process(target=serve, args=(tmp_path,))
    server.start()
    server.join(30)
    try:
        assert server.exitcode == 0, "it was told to stop by the worker that took the place of the first"
    finally:
        server.kill()
        server.join()


class StoppedMeanwhile(Heartbeat):
    """Of a parent that is told to stop, once, in the moment in which it asks whether it is an orphan."""

    is_told = False

    @property
    def is_orphan(self) -> bool:
        if not self.is_told:
            self.is_told = True
            signal.raise_signal(signal.SIGTERM)
        return False


def serve_watched() -> None:
    def work(number: int, heartbeat: Heartbeat) -> int:
        signal.sigwait([signal.SIGTERM])
        return 0

    sys.exit(processes.run_workers(1, work, Limits(), hung_after_s=60, heartbeat=StoppedMeanwhile()))


def test_a_stop_that_comes_while_the_parent_looks_for_its_own_parent_is_not_lost() -> None:
    server = _FORK.Process(target=serve_watched)
    server.start()
    server.join(30)
    try:
        assert server.exitcode == 0
    finally:
        server.kill()
        server.join()
