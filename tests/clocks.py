"""A clock for tests: it stands still until it is told to move."""

_SECOND_NS = 1_000_000_000


class FakeClock:
    """Wall and monotonic time move together; the wall starts in 2026."""

    def __init__(self) -> None:
        self._elapsed_ns = 0
        self._started_ns = 1_767_225_600 * _SECOND_NS

    def now_ns(self) -> int:
        return self._started_ns + self._elapsed_ns

    def monotonic_ns(self) -> int:
        return self._elapsed_ns

    def advance(self, seconds: float) -> None:
        self._elapsed_ns += int(seconds * _SECOND_NS)
