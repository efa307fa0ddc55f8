"""Time, as a value that is passed in: all that is recorded, decided or retried by time is given a ``Clock``.

Three kinds of code read the machine's clock themselves, because no decision and no record depends on it: the
deadlines of processes and connections (serving, the supervisor and the housekeeper of the command line, log
output, busy databases), and the Date header of a response, and how fast the simulator was.
"""

import time
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
