"""How log lines leave the process: through a bounded buffer, and a thread that writes.

A log is often a pipe, and its reader may stop reading. A write would then block the event loop, and the
server with it; and a pipe that is shared with other processes must not be made non-blocking for all of them.
So lines go into a buffer, which costs no more than a write, and a thread writes them. When the buffer is
full, lines are dropped and counted; when there is room again, one line says how many were dropped.

The thread does not survive a fork. A forked process starts with an empty buffer, and starts its own thread
when it first logs something: the parent writes what it had buffered.
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
"""Between two writes, so that the lines of many requests are written together."""
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
        # Reentrant: a signal handler may log while this thread holds it.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._texts: list[str] = []
        self._characters = 0
        # Lines that were dropped and are not reported yet.
        self._unreported = 0
        self._is_draining = False
        self._thread: threading.Thread | None = None

    # -- what a stream can do -------------------------------------------------------------------

    def write(self, text: str) -> int:
        """Take whole lines. Never blocks."""
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
        """Does nothing: lines are written as soon as they can be. ``drain`` waits for them at the end."""

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    # -- the end --------------------------------------------------------------------------------

    def drain(self, within_s: float = _DRAIN_S) -> None:
        """Wait until everything is written, for ``within_s`` at most."""
        deadline_s = time.monotonic() + within_s
        self._is_draining = True
        while self._characters and time.monotonic() < deadline_s:
            self._wake.set()
            time.sleep(_DRAIN_LOOK_S)
        self._is_draining = False

    def close(self) -> None:
        """Wait a while for what is buffered to be written, and end the thread."""
        self.drain()
        self._thread = None
        self._wake.set()

    # -- the thread -----------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._write_forever, name="log", daemon=True)
        # The thread inherits the mask: signals are for the main thread.
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
                unreported, self._unreported = self._unreported, 0
            text = "".join(texts)
            try:
                self._write(text)
                if unreported:
                    self._write(self._notice(unreported))
            except OSError:
                # The reader is gone, or the disk is full. The dropped lines are counted in the metrics.
                with self._lock:
                    self._drop(text)
                    self._unreported += unreported
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
        self._unreported += lines


def _atomic(lines: bytes) -> Iterator[bytes]:
    """Pieces of whole lines, each small enough for a pipe to take at once: others write to it too."""
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + PIPE_BUF) + 1
        # A longer line is a piece of its own.
        end = end or lines.find(b"\n", start) + 1 or len(lines)
        yield lines[start:end]
        start = end


_all: "weakref.WeakSet[LogOutput]" = weakref.WeakSet()


def _begin_again() -> None:
    for output in _all:
        output._begin()


os.register_at_fork(after_in_child=_begin_again)
