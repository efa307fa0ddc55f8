"""Failed logins, counted by user and peer address: after a few, each makes the next attempt wait longer.

A user that there is not is no user: all of those of an address are counted as one, so that guessing names
takes no memory, and nobody who logs in rightly waits for it. Counted in each worker on its own.
"""

from typing import Final, NamedTuple

from berth.runtime.clock import Clock

FREE: Final = 5
"""So many may fail before the next one has to wait."""
WAIT_MAX_S: Final = 60
_FORGOTTEN_S: Final = 900
_KEYS_MAX: Final = 10_000
_SECOND_NS: Final = 1_000_000_000


class _Failures(NamedTuple):
    total: int
    last_ns: int


class FailedLogins:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}

    def wait_s(self, user: str, peer: str) -> int:
        """How long the next attempt has to wait; 0 if it need not."""
        failures = self._failures.get((user, peer))
        if failures is None or failures.total < FREE:
            return 0
        wait_s = min(1 << min(failures.total - FREE, 10), WAIT_MAX_S)
        left_ns = failures.last_ns + wait_s * _SECOND_NS - self._clock.monotonic_ns()
        return max(0, -(-left_ns // _SECOND_NS))

    def failed(self, user: str, peer: str) -> None:
        now_ns = self._clock.monotonic_ns()
        before = self._failures.pop((user, peer), _Failures(0, now_ns))
        count = before.total if now_ns - before.last_ns < _FORGOTTEN_S * _SECOND_NS else 0
        if len(self._failures) >= _KEYS_MAX:
            # The one that failed longest ago: each that fails goes to the end.
            del self._failures[next(iter(self._failures))]
        self._failures[user, peer] = _Failures(count + 1, now_ns)

    def succeeded(self, user: str, peer: str) -> None:
        self._failures.pop((user, peer), None)
