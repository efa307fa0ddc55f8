"""The housekeeper: a process beside a server that has snapshots taken, and the thread that keeps it running.

It checks the journal every few seconds, and runs ``berth db snapshot`` when enough was appended: that process
gives its memory back when it ends. The housekeeper ends with the server. A check or a snapshot that fails is
logged and tried again; if the housekeeper exits or hangs, it is restarted after a pause.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple

import msgspec

from berth.engine.snapshots import is_due
from berth.journal import connect, parse_address
from berth.runtime.backoff import Backoff
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging
from berth.serving import BEAT_S, LOOK_S, Heartbeat, Watch, describe_exit

# By its name: it is run as a program, too.
_log = logging.getLogger("berth.cli.housekeeper")
_LOOK_EVERY_S: Final = 10
_NICENESS: Final = 10
_SNAPSHOT_S: Final = 3600
"""A snapshot that takes longer is given up."""
_LISTEN_EVERY_S: Final = 0.2
_STOP_WITHIN_S: Final = 5.0
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_LONGEST_S: Final = 60.0
_STEADY_S: Final = 600.0
"""After running this long, earlier exits are forgotten."""
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


# -- in the server's process --------------------------------------------------------------------


@contextlib.contextmanager
def housekeeper(settings: Settings) -> Iterator[None]:
    """Run a housekeeper while the context is open."""
    keeping = _Keeping(settings)
    # The thread must not handle signals that are meant for the main one: it inherits the block.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    keeping.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        keeping.stop()


class _Running(NamedTuple):
    """A process: ``wait`` gives its exit status, negative if a signal ended it, or None if it has not ended
    in so many seconds; ``tell`` sends it a signal."""

    wait: Callable[[float], int | None]
    tell: Callable[[signal.Signals], None]


class _Keeping(threading.Thread):
    """Waits for the housekeeper to end, and starts another."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="housekeeper watch", daemon=True)
        self._settings = settings
        self._stopping = threading.Event()
        # Held while a process is started, so that none is started after the stop.
        self._starting = threading.Lock()
        self._heartbeat = Heartbeat()
        self._watch = Watch(self._heartbeat, settings.worker_hung_seconds)
        self._running = _fork(settings, self._heartbeat)

    def run(self) -> None:
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LONGEST_S)
        while True:
            started_s = time.monotonic()
            ending = self._wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - started_s > _STEADY_S:
                backoff.reset()
            pause_s = backoff.next_s()
            _log.error("the housekeeper %s; restarting it in %g s", ending, pause_s)
            if self._stopping.wait(pause_s):
                return
            with self._starting:
                if self._stopping.is_set():
                    return
                try:
                    self._running = _execute(self._settings, self._heartbeat)
                except OSError as failure:
                    # The next turn finds again that the process has ended, and pauses longer.
                    _log.error("cannot start the housekeeper: %s", failure)

    def _wait(self) -> str:
        """Wait until the process has ended, and kill it when it hangs: how it ended."""
        self._watch.begin()
        is_killed = False
        while (status := self._running.wait(LOOK_S)) is None:
            if not is_killed and self._watch.is_hung():
                is_killed = True
                self._running.tell(signal.SIGKILL)
        return f"was killed: {self._watch.verdict}" if is_killed else f"ended ({describe_exit(status)})"

    def stop(self) -> None:
        with self._starting:
            self._stopping.set()
        self._running.tell(signal.SIGTERM)
        self.join(_STOP_WITHIN_S)
        if self.is_alive():
            _log.warning("the housekeeper did not stop within %g s, killing it", _STOP_WITHIN_S)
            self._running.tell(signal.SIGKILL)
            self.join(_STOP_WITHIN_S)


def _fork(settings: Settings, heartbeat: Heartbeat) -> _Running:
    # The first one is forked: a new process would spend half a second on imports, which the first requests
    # would feel.
    process = multiprocessing.get_context("fork").Process(
        target=keep_house, args=(settings, heartbeat), name="housekeeper", daemon=True
    )
    process.start()
    assert process.pid is not None, "a started process has an id"
    pid = process.pid

    def wait(seconds: float) -> int | None:
        process.join(seconds)
        return process.exitcode

    def tell(number: signal.Signals) -> None:
        if process.is_alive():
            os.kill(pid, number)

    return _Running(wait, tell)


def _execute(settings: Settings, heartbeat: Heartbeat) -> _Running:
    # Not forked: by now the server has threads, connections and a listening socket, none of which another
    # process may inherit. The settings may hold passwords, so they do not go on the command line.
    process = subprocess.Popen(
        [sys.executable, "-m", "berth.cli.housekeeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **heartbeat.variables},
        pass_fds=(heartbeat.file,),
    )
    assert process.stdin is not None, "it was asked for"
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(encode_settings(settings))

    def wait(seconds: float) -> int | None:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    return _Running(wait, process.send_signal)


def encode_settings(settings: Settings) -> bytes:
    return msgspec.json.encode(settings) + b"\n"


def read_settings(stream: BinaryIO) -> Settings:
    """What was encoded. It ends with the line and not with the pipe: a worker that is forked in that moment
    has the other end of the pipe too, and keeps it."""
    return msgspec.json.decode(stream.readline(), type=Settings)


# -- in the housekeeper's process ---------------------------------------------------------------


def keep_house(settings: Settings, heartbeat: Heartbeat) -> None:
    """Check the journal until told to stop, or until the server is gone."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    configure_logging(settings)
    os.nice(_NICENESS)
    try:
        while _wait_for_next(stop, heartbeat):
            try:
                if _is_due(settings):
                    _take_snapshot(settings, stop, heartbeat)
            except Exception as error:
                _log.warning("no snapshot was taken, next try in %d s: %s", _LOOK_EVERY_S, error)
                _log.debug("no snapshot was taken", exc_info=True)
    finally:
        logging.shutdown()


def _wait_for_next(stop: threading.Event, heartbeat: Heartbeat) -> bool:
    """Wait until the next check is due; False if there is none."""
    look_s = time.monotonic() + _LOOK_EVERY_S
    while not heartbeat.is_orphan:
        heartbeat.beat()
        left_s = look_s - time.monotonic()
        if left_s <= 0 or stop.wait(min(left_s, BEAT_S)):
            return not stop.is_set()
    return False


def _is_due(settings: Settings) -> bool:
    journal = connect(parse_address(settings.database), shared=None, creates=False)
    try:
        return is_due(journal, settings.snapshot_every_batches)
    finally:
        journal.close()


def _take_snapshot(settings: Settings, stop: threading.Event, heartbeat: Heartbeat) -> None:
    # In the environment, and not on the command line: the address may hold a password.
    env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    env["BERTH_DATABASE"] = settings.database
    env["BERTH_JOURNAL_KEEP_BATCHES"] = str(settings.journal_keep_batches)
    words = [sys.executable, "-m", "berth.cli", "db", "snapshot"]
    process = subprocess.Popen(
        words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    deadline_s = time.monotonic() + _SNAPSHOT_S
    while True:
        try:
            _, said = process.communicate(timeout=_LISTEN_EVERY_S)
            break
        except subprocess.TimeoutExpired:
            heartbeat.beat()
            if stop.is_set() or heartbeat.is_orphan or time.monotonic() > deadline_s:
                # What it has written is not a snapshot before the last part is in.
                process.kill()
    if process.returncode and not stop.is_set():
        _log.warning("no snapshot was taken (%s): %s", describe_exit(process.returncode), said.strip()[-500:])


if __name__ == "__main__":
    own = Heartbeat.inherited()
    assert own is not None, "the server starts it with one"
    keep_house(read_settings(sys.stdin.buffer), own)
