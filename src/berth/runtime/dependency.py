"""Something that a process needs and may lose: its database, its conductor. Lost and regained are a log line
each, however many notice it and however often, and the second says how long it took.

    there --(lost)--> lost --(regained by all who had lost it)--> there

Time is the event loop's, so that a simulated process has simulated outages.
"""

import asyncio
import logging
from collections.abc import Callable


class Dependency:
    """``name`` is what the lines begin with; ``lost_as`` and ``back_as`` are what they say of it. ``told`` is
    called with False when it is lost, and with True when it is back."""

    def __init__(
        self,
        name: str,
        log: logging.Logger,
        *,
        lost_as: str = "unavailable",
        back_as: str = "available again",
        told: Callable[[bool], None] = lambda is_there: None,
    ) -> None:
        self._name = name
        self._log = log
        self._lost_as = lost_as
        self._back_as = back_as
        self._told = told
        self._without: dict[str, None] = {}
        self._since_s = 0.0
        self._level = logging.ERROR

    @property
    def is_lost(self) -> bool:
        return bool(self._without)

    def lose(
        self,
        why: str,
        *,
        by: str = "",
        since_s: float | None = None,
        level: int = logging.ERROR,
    ) -> None:
        """``by``: who has lost it, of several that need it. ``since_s``: when that was, if not now.
        ``level``: of the line; DEBUG, and that it is back too, where other lines say the same."""
        is_first = not self._without
        self._without[by] = None
        if is_first:
            self._since_s = asyncio.get_running_loop().time() if since_s is None else since_s
            self._level = level
            self._log.log(level, "%s: %s: %s", self._name, self._lost_as, why)
            self._told(False)

    def regain(self, *, by: str = "") -> None:
        if by not in self._without:
            return
        self.forget(by)
        if not self._without:
            seconds = asyncio.get_running_loop().time() - self._since_s
            text = "%s: %s after %.1f s"
            self._log.log(
                min(self._level, logging.INFO),
                text,
                self._name,
                self._back_as,
                seconds,
                extra={"seconds": seconds},
            )
            self._told(True)

    def forget(self, by: str) -> None:
        """One of those who had lost it does not need it any more."""
        self._without.pop(by, None)
