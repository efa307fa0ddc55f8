"""The parent of the workers: forks them, watches them, replaces one that dies, passes a stop on.

    a worker:    running --(killed, or no heartbeat)--> waiting --(after a pause)--> running ...
    the server:  running --(SIGTERM, SIGINT)--> stopping --(all have ended, or were killed)--> status 0
                     \\--(a worker ends by itself, or dies too often)--> stopping --> status 1

A worker that hangs or is killed is an accident: it is replaced while the others serve. A worker that exits
by itself, with a status, has a reason that a restart would meet again: the server stops, and whoever started
it decides (docs/decisions/018-workers-are-replaced.md). Workers are forked, so what was made before the fork
(a pipe, a setting) is theirs too.
"""

import ctypes
import logging
import multiprocessing
import multiprocessing.connection
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, Final

from berth.serving.heartbeat import LOOK_S, Heartbeat, Watch
from berth.serving.limits import STOP_GRACE_S, Limits
from berth.serving.worker import STOP_SIGNALS

_PR_SET_PDEATHSIG: Final = 1
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LONGEST_S: Final = 8.0
_STEADY_S: Final = 60.0
"""A worker that has run for so long starts over with its count of deaths."""
_DEATHS_MAX: Final = 6
"""A worker that dies more often than this in quick succession stops the server."""

_log = logging.getLogger(__name__)


Work = Callable[[int, Heartbeat], int]
"""What a worker runs, given its number, from 1 on, and its heartbeat; it returns the exit status."""


def run_workers(
    count: int,
    work: Work,
    limits: Limits,
    *,
    hung_after_s: float,
    on_death: Callable[[int], None] = lambda _: None,
    heartbeat: Heartbeat | None = None,
) -> int:
    """Run ``work`` in so many processes until told to stop; the exit status. ``on_death`` is given the
    process id of each worker that was killed, before it is replaced. ``heartbeat`` is this process's own, if
    it is watched itself."""
    with _Signals() as signals:
        workers = [_Worker(number, work, signals, hung_after_s) for number in range(1, count + 1)]
        for worker in workers:
            worker.start()
        death = _watch(workers, signals, on_death, heartbeat)
        if death is not None and not signals.told_to_stop:
            _log.error("%s; the server stops", death)
        _stop(workers, limits.drain_s + STOP_GRACE_S)
    return 0 if signals.told_to_stop else 1


def _watch(
    workers: Sequence["_Worker"],
    signals: "_Signals",
    on_death: Callable[[int], None],
    heartbeat: Heartbeat | None,
) -> str | None:
    """Watch and replace workers until there is a signal to stop (None), or one cannot be replaced: how it
    died."""
    while not signals.told_to_stop:
        if heartbeat is not None:
            heartbeat.beat()
            # Not assigned: a signal may have set it since the loop's condition was read.
            if heartbeat.is_orphan:
                signals.told_to_stop = True
        awaited: list[Any] = [signals.socket, *(worker.sentinel for worker in workers if worker.is_running)]
        multiprocessing.connection.wait(awaited, LOOK_S)
        now_s = time.monotonic()
        for worker in workers:
            if not worker.is_running:
                worker.start_when_due(now_s)
                continue
            death = worker.look()
            if death is None:
                continue
            if not worker.is_replaceable:
                return death
            on_death(worker.pid)
            pause_s = worker.replace(now_s)
            _log.error("%s; restarting it in %g s", death, pause_s)
    return None


def _stop(workers: Sequence["_Worker"], within_s: float) -> None:
    running = [worker.process for worker in workers if worker.process is not None]
    deadline_s = time.monotonic() + within_s
    for process in running:
        process.terminate()
    for process in running:
        process.join(max(deadline_s - time.monotonic(), 0))
    for process in running:
        if process.exitcode is None:
            _log.warning("%s did not stop within %g s, killing it", process.name, within_s)
            process.kill()
            process.join()


class _Worker:
    """One worker and its replacements.

    ``process`` is None while a replacement is pending.
    """

    def __init__(self, number: int, work: Work, signals: "_Signals", hung_after_s: float) -> None:
        self.process: BaseProcess | None = None
        self.pid = 0
        self._number = number
        self._work = work
        self._signals = signals
        self._heartbeat = Heartbeat()
        self._watch = Watch(self._heartbeat, hung_after_s)
        self._started_s = 0.0
        self._due_s = 0.0
        # In quick succession: a worker that ran for _STEADY_S starts over.
        self._deaths = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def sentinel(self) -> int:
        assert self.process is not None, "only a process can be waited for"
        return self.process.sentinel

    def start(self) -> None:
        self._started_s = time.monotonic()
        self._watch.begin()
        process = multiprocessing.get_context("fork").Process(
            target=_work,
            args=(self._work, self._number, self._signals, self._heartbeat),
            name=f"worker {self._number}",
        )
        with _block_signals():
            process.start()
        self.process, self.pid = process, process.pid or 0

    def start_when_due(self, now_s: float) -> None:
        if now_s < self._due_s:
            return
        try:
            self.start()
        except OSError as failure:
            # Out of memory, perhaps, which may be why the last one was killed. The others go on serving.
            self._due_s = now_s + _PAUSE_LONGEST_S
            _log.error(
                "worker %d: cannot start, retrying in %g s: %s", self._number, _PAUSE_LONGEST_S, failure
            )

    def look(self) -> str | None:
        """How the worker died, if it did. One that hangs is killed."""
        process = self.process
        assert process is not None, "only a process can be looked at"
        if process.exitcode is not None:
            return f"{process.name} ended ({describe_exit(process.exitcode)})"
        if not self._watch.is_hung():
            return None
        process.kill()
        process.join()
        return f"{process.name} was killed: {self._watch.verdict}"

    @property
    def is_replaceable(self) -> bool:
        """Whether a worker that has died is replaced. One that exits by itself would do so again, unless it
        replaces one that was killed: then what killed that one may still last."""
        assert self.process is not None, "only a process can have died"
        if time.monotonic() - self._started_s > _STEADY_S:
            self._deaths = 0
        was_killed = (self.process.exitcode or 0) < 0
        return self._deaths < _DEATHS_MAX and (was_killed or self._deaths > 0)

    def replace(self, now_s: float) -> float:
        """Schedule a replacement; the pause until then."""
        self.process = None
        # Not runtime.backoff: the server knows nothing of Berth, and the import contracts keep it so.
        pause_s: float = min(_PAUSE_FIRST_S * 2**self._deaths, _PAUSE_LONGEST_S)
        self._deaths += 1
        self._due_s = now_s + pause_s
        return pause_s


def describe_exit(status: int) -> str:
    """How a process has ended, by its exit status or the signal that ended it."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


class _Signals:
    """Handles signals to stop: sets ``told_to_stop``, and makes ``socket`` readable."""

    def __init__(self) -> None:
        self.told_to_stop = False
        self.socket, self._waking = socket.socketpair()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_Signals":
        self._waking.setblocking(False)
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.close()

    def close(self) -> None:
        self.socket.close()
        self._waking.close()

    def _on_signal(self, *_: object) -> None:
        self.told_to_stop = True
        self._waking.send(b"!")


@contextmanager
def _block_signals() -> Iterator[None]:
    """Block signals to stop. A process that is forked meanwhile has them blocked until it can handle them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


# -- in a worker --------------------------------------------------------------------------------


def _work(work: Work, number: int, signals: _Signals, heartbeat: Heartbeat) -> None:
    signals.close()
    _end_with_parent(heartbeat)
    try:
        sys.exit(work(number, heartbeat))
    finally:
        logging.shutdown()


def _end_with_parent(heartbeat: Heartbeat) -> None:
    """Stop this worker when the parent is gone, even if it was killed: nothing else would stop it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if heartbeat.is_orphan:
        sys.exit(1)
