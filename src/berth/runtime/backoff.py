"""Pauses between attempts, and loops that never give up.

A pause is twice the one before, up to the longest; the first success starts over. Where many would come back
at the same moment (a fleet whose conductor was away), each pause is drawn between a half and the whole.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from berth.runtime.clock import Clock

T = TypeVar("T")


class Backoff:
    def __init__(self, first_s: float, longest_s: float, rng: random.Random | None = None) -> None:
        """``rng``: draw pauses with it; without one they are exact."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._rng = rng
        self._next_s = first_s

    @property
    def is_longest(self) -> bool:
        """Whether pauses have stopped growing: what was tried has failed for a while."""
        return self._next_s >= self._longest_s

    def next_s(self) -> float:
        """How long to pause now. The next pause is longer."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s if self._rng is None else pause_s * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._next_s = self._first_s

    async def pause(self) -> None:
        await asyncio.sleep(self.next_s())


async def retry(
    step: Callable[[], Awaitable[T]],
    on: tuple[type[Exception], ...],
    backoff: Backoff,
    *,
    clock: Clock | None = None,
    within_s: float = 0,
    notice: Callable[[Exception, float], None] = lambda error, pause_s: None,
) -> T:
    """Repeat a step until it succeeds; with a ``clock``, for ``within_s`` at most: instead of a pause that
    would end later, the last error is raised. ``notice`` is told of each failure and the pause after it."""
    deadline_ns = 0 if clock is None else clock.monotonic_ns() + int(within_s * 1e9)
    while True:
        try:
            return await step()
        except on as error:
            pause_s = backoff.next_s()
            if clock is not None and clock.monotonic_ns() + int(pause_s * 1e9) > deadline_ns:
                raise
            notice(error, pause_s)
        await asyncio.sleep(pause_s)


async def keep_running(
    name: str,
    step: Callable[[], Awaitable[None]],
    *,
    is_stopping: Callable[[], bool],
    outages: tuple[type[Exception], ...],
    log: logging.Logger,
    first_s: float = 1.0,
    longest_s: float = 10.0,
) -> None:
    """Repeat a step until ``is_stopping``, whatever it raises: outages are expected and told in a line when
    they begin, all else is a bug and told whole. A success after a failure is told too."""
    backoff = Backoff(first_s, longest_s)
    failing_since_s: float | None = None
    while not is_stopping():
        try:
            await step()
        except outages as outage:
            pause_s = backoff.next_s()
            level = logging.WARNING if failing_since_s is None else logging.DEBUG
            log.log(level, "%s: retrying in %g s: %s", name, pause_s, outage)
        except Exception:
            pause_s = backoff.next_s()
            log.exception("%s: unexpected error, retrying in %g s", name, pause_s)
        else:
            if failing_since_s is not None:
                seconds = asyncio.get_running_loop().time() - failing_since_s
                log.info("%s: works again after %.1f s", name, seconds, extra={"seconds": seconds})
            failing_since_s = None
            backoff.reset()
            continue
        if failing_since_s is None:
            failing_since_s = asyncio.get_running_loop().time()
        await asyncio.sleep(pause_s)
