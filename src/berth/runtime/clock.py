"""Time, as a value that is passed in: all that is recorded, decided or retried by time is given a ``Clock``.

Three kinds of code read the machine's clock themselves, because no decision and no record depends on it: the
deadlines of processes and connections (serving, the supervisor and the housekeeper of the command line, log
output, busy databases), and the Date header of a response, and how fast the simulator was.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol


class Clock(Protocol):
    def now_ns(self) -> int:
        """Wall time since 1970, for people and records. It may jump, also backwards."""

    def monotonic_ns(self) -> int:
        """Time that only grows, for intervals. Its zero means nothing."""


class SystemClock:
    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class TimeShare:
    """Work that is worth a share of a process's time and no more: once it was done, there is none until the
    time that it took is that share of all. One at a time."""

    def __init__(self, clock: Clock, share: float) -> None:
        self._clock = clock
        self._share = share
        self._is_taken = False
        self._free_at_ns = 0

    @property
    def is_free(self) -> bool:
        return not self._is_taken and self._clock.monotonic_ns() >= self._free_at_ns

    @contextlib.contextmanager
    def spend(self) -> Iterator[None]:
        began_ns, self._is_taken = self._clock.monotonic_ns(), True
        try:
            yield
        finally:
            self._free_at_ns = began_ns + int((self._clock.monotonic_ns() - began_ns) / self._share)
            self._is_taken = False
