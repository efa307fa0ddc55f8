"""How a process that starts waits for its database: it says so at once, and how long it will wait, and then
that the database is there. What an operator must change first is not waited for: who may get in, a journal
that is damaged, or that a newer release has written."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from berth.journal import AccessRefused, Damaged, WrittenByNewer
from berth.runtime.backoff import Backoff, retry
from berth.runtime.clock import Clock
from berth.runtime.dependency import Dependency

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PERMANENT: Final = (AccessRefused, Damaged, WrittenByNewer)
"""These do not pass by themselves."""


async def wait_for_database(
    step: Callable[[], Awaitable[T]],
    on: tuple[type[Exception], ...],
    *,
    name: str,
    pause_s: float,
    clock: Clock | None = None,
    within_s: float = 0,
) -> T:
    """Repeat a step until the database lets it succeed; with a ``clock``, for ``within_s`` at most."""
    patience = "for as long as it takes" if clock is None else f"for {within_s:g} s at most"
    database = Dependency(name, _log, lost_as=f"unavailable, waiting for it {patience}", back_as="available")

    def notice(error: Exception, _: float) -> None:
        if isinstance(error, _PERMANENT):
            raise error
        database.lose(str(error), level=logging.WARNING)

    backoff = Backoff(pause_s, pause_s)
    opened = await retry(step, on, backoff, clock=clock, within_s=within_s, notice=notice)
    database.regain()
    return opened
