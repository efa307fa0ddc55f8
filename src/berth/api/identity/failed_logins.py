"""Failed logins, counted by address and by user and address: after a few, each makes the next attempt wait
longer.

Whoever fails is told how long to wait by what has failed from the address, whichever user was named: the
answer does not tell whether there is such a user. A login that is right waits only for what has failed for
that user from that address. Names of users that there are not take no memory. Counted in each worker on its
own.
"""

from typing import Final, NamedTuple

from berth.runtime.clock import Clock

FREE: Final = 5
"""So many may fail before the next one has to wait."""
WAIT_MAX_S: Final = 60
_FORGOTTEN_S: Final = 900
_KEYS_MAX: Final = 10_000
_SECOND_NS: Final = 1_000_000_000
_ANYBODY: Final = ""


class _Failures(NamedTuple):
    total: int
    last_ns: int


class FailedLogins:
    """A user is the empty name where there is no such user."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}

    def must_wait(self, user: str, peer: str) -> bool:
        """Whether it is too early to try a login of the user."""
        return user != _ANYBODY and self._left_s(user, peer) > 0

    def wait_s(self, peer: str) -> int:
        """How long whoever fails at an address is told to wait; 0 if not at all."""
        return self._left_s(_ANYBODY, peer)

    def failed(self, user: str, peer: str) -> None:
        for name in dict.fromkeys((_ANYBODY, user)):
            self._count(name, peer)

    def succeeded(self, user: str, peer: str) -> None:
        if user != _ANYBODY:
            self._failures.pop((user, peer), None)

    def _left_s(self, user: str, peer: str) -> int:
        failures = self._failures.get((user, peer))
        if failures is None or failures.total < FREE:
            return 0
        wait_s = min(1 << min(failures.total - FREE, 10), WAIT_MAX_S)
        left_ns = failures.last_ns + wait_s * _SECOND_NS - self._clock.monotonic_ns()
        return max(0, -(-left_ns // _SECOND_NS))

    def _count(self, user: str, peer: str) -> None:
        now_ns = self._clock.monotonic_ns()
        before = self._failures.pop((user, peer), _Failures(0, now_ns))
        count = before.total if now_ns - before.last_ns < _FORGOTTEN_S * _SECOND_NS else 0
        if len(self._failures) >= _KEYS_MAX:
            # The one that failed longest ago: each that fails goes to the end.
            del self._failures[next(iter(self._failures))]
        self._failures[user, peer] = _Failures(count + 1, now_ns)
