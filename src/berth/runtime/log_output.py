"""How log lines leave the process: through a bounded buffer, and a thread that writes.

A log is often a pipe, and its reader may stop reading. A write would then block the event loop, and the
server with it; and a pipe that is shared with other processes must not be made non-blocking for all of them.
So lines are put into a buffer, which costs as much as a write does, and a thread writes them. When the buffer
is full, lines are dropped and counted; when there is room again, one line says how many are missing.

The thread does not survive a fork. A process that was forked starts with an empty buffer, and with a thread
of its own once it logs something: what the parent had not written yet, the parent writes.
"""

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from select import PIPE_BUF
from typing import Final

BUFFER_CHARACTERS_MAX: Final = 1 << 20

_GATHER_S: Final = 0.02
"""Between two writes: the lines of many requests go out together, and the thread takes no time from them."""
_DRAIN_S: Final = 2.0
_DRAIN_LOOK_S: Final = 0.002


class LogOutput:
    """Writes texts to a file descriptor. ``notice`` is the line that says how many lines were dropped."""

    def __init__(self, descriptor: int, notice: Callable[[int], str]) -> None:
        self.dropped = 0
        """Lines that were dropped since the start."""
        self._descriptor = descriptor
        self._notice = notice
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        # A signal's handler may log while this thread is in here.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._texts: list[str] = []
        self._characters = 0
        # Dropped, and not reported yet.
        self._untold = 0
        self._is_draining = False
        self._thread: threading.Thread | None = None

    # -- what a stream can do -------------------------------------------------------------------

    def write(self, text: str) -> int:
        """Whole lines. Never waits."""
        with self._lock:
            if self._characters + len(text) > BUFFER_CHARACTERS_MAX:
                self._drop(text)
            else:
                self._texts.append(text)
                self._characters += len(text)
            if self._thread is None:
                self._start_thread()
        if not self._wake.is_set():
            self._wake.set()
        return len(text)

    def flush(self) -> None:
        """Nothing: lines are written as soon as they can be. ``drain`` waits for them at the end."""

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    # -- the end --------------------------------------------------------------------------------

    def drain(self, within_s: float = _DRAIN_S) -> None:
        """Wait until everything is written, but not for longer than this."""
        deadline_s = time.monotonic() + within_s
        self._is_draining = True
        while self._characters and time.monotonic() < deadline_s:
            self._wake.set()
            time.sleep(_DRAIN_LOOK_S)
        self._is_draining = False

    def close(self) -> None:
        """Wait for what is to be written, for a while, and let the thread end."""
        self.drain()
        self._thread = None
        self._wake.set()

    # -- the thread -----------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._write_forever, name="log", daemon=True)
        # It inherits that signals are blocked: they are meant for the main thread.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _write_forever(self) -> None:
        while True:
            self._wake.wait()
            if self._thread is not threading.current_thread():
                return
            self._wake.clear()
            with self._lock:
                texts, self._texts = self._texts, []
                untold, self._untold = self._untold, 0
            text = "".join(texts)
            try:
                self._write(text)
                if untold:
                    self._write(self._notice(untold))
            except OSError:
                # The reader is gone, or the disk is full. Only the metrics can tell.
                with self._lock:
                    self._drop(text)
                    self._untold += untold
            with self._lock:
                self._characters -= len(text)
            if not self._is_draining:
                time.sleep(_GATHER_S)

    def _write(self, text: str) -> None:
        for lines in _atomic(text.encode("utf-8", "backslashreplace")):
            left = memoryview(lines)
            while left:
                left = left[os.write(self._descriptor, left) :]

    def _drop(self, text: str) -> None:
        lines = text.count("\n")
        self.dropped += lines
        self._untold += lines


def _atomic(lines: bytes) -> Iterator[bytes]:
    """Whole lines, as many at once as a pipe takes undivided: other processes write to it as well."""
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + PIPE_BUF) + 1
        # A line that is longer goes alone.
        end = end or lines.find(b"\n", start) + 1 or len(lines)
        yield lines[start:end]
        start = end


_all: "weakref.WeakSet[LogOutput]" = weakref.WeakSet()


def _begin_again() -> None:
    for output in _all:
        output._begin()


os.register_at_fork(after_in_child=_begin_again)
