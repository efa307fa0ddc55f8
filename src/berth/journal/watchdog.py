"""An end to every wait for a database, where its driver knows none.

A server that hangs, or a machine that has lost its power, does not say so. A driver that waits for it
without a limit is woken by having its connection closed under it: then the statement fails like any other.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

_LOOK_EVERY_S: Final = 1.0


class Watchdog:
    """Watches one statement at a time. Beginning and ending a watch costs no more than setting a variable."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._watched: tuple[float, Callable[[], None]] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="journal-watchdog", daemon=True)
        self._thread.start()

    def begin(self, interrupt: Callable[[], None]) -> None:
        self._watched = (time.monotonic() + self._limit_s, interrupt)

    def end(self) -> None:
        self._watched = None

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_EVERY_S):
            watched = self._watched
            if watched is not None and time.monotonic() > watched[0] and self._watched is watched:
                self._watched = None
                watched[1]()
