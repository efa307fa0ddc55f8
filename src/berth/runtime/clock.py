"""Time, as a thing that is handed in. Nothing outside this module asks the machine what time it is."""

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
