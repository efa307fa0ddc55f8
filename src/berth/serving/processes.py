"""The parent of the workers: forks them, watches them, passes a stop on.

    running --(SIGTERM, SIGINT)--> stopping --(all have ended, or were killed for want of time)--> status 0
        \\--(a worker ends)--> stopping the others --> status 1

A worker that ends by itself ends the server, whatever its reason: whoever started Berth decides whether it is
started again. Workers are forked, so what was made before (a pipe, a setting) is theirs too.
"""

import ctypes
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, Final

from berth.serving.worker import STOP_SIGNALS

_PR_SET_PDEATHSIG: Final = 1

_log = logging.getLogger(__name__)


def run_workers(count: int, work: Callable[[int], int], stop_within_s: float) -> int:
    """Run ``work`` in so many processes until told to stop; the exit status. ``work`` is given each one's
    number, from 1 on, and gives its status."""
    with _Signals() as signals:
        workers = [_start(number, work, signals) for number in range(1, count + 1)]
        fallen = _watch(workers, signals)
        if fallen is not None and not signals.told_to_stop:
            _log.error("%s ended (%s); the server ends with it", fallen.name, _ending(fallen))
        _stop(workers, stop_within_s)
    return 0 if signals.told_to_stop else 1


def _start(number: int, work: Callable[[int], int], signals: "_Signals") -> BaseProcess:
    worker = multiprocessing.get_context("fork").Process(
        target=_work, args=(work, number, signals, os.getpid()), name=f"worker {number}"
    )
    with _held_back():
        worker.start()
    return worker


def _watch(workers: Sequence[BaseProcess], signals: "_Signals") -> BaseProcess | None:
    """Wait until there is a signal to stop, or a worker has ended: that one."""
    awaited: list[Any] = [signals.socket, *(worker.sentinel for worker in workers)]
    while not signals.told_to_stop:
        multiprocessing.connection.wait(awaited)
        for worker in workers:
            if worker.exitcode is not None:
                return worker
    return None


def _stop(workers: Sequence[BaseProcess], within_s: float) -> None:
    deadline_s = time.monotonic() + within_s
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(max(deadline_s - time.monotonic(), 0))
    for worker in workers:
        if worker.exitcode is None:
            _log.warning("%s did not end within %g seconds and is killed", worker.name, within_s)
            worker.kill()
            worker.join()


def _ending(worker: BaseProcess) -> str:
    code = worker.exitcode or 0
    return f"status {code}" if code >= 0 else signal.Signals(-code).name


class _Signals:
    """Hears signals to stop, and wakes whoever waits for its socket."""

    def __init__(self) -> None:
        self.told_to_stop = False
        self.socket, self._waking = socket.socketpair()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_Signals":
        self._waking.setblocking(False)
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.close()

    def close(self) -> None:
        self.socket.close()
        self._waking.close()

    def _hear(self, *_: object) -> None:
        self.told_to_stop = True
        self._waking.send(b"!")


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals to stop wait. What is forked meanwhile has them wait too, until it can hear them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


# -- in a worker --------------------------------------------------------------------------------


def _work(work: Callable[[int], int], number: int, signals: _Signals, parent: int) -> None:
    signals.close()
    _end_with(parent)
    sys.exit(work(number))


def _end_with(parent: int) -> None:
    """Stop this worker when the parent is gone, even if killed: nobody could stop it otherwise."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)
