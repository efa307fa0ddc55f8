"""The machine that an agent runs on: what discovery finds there, looked at again every minute and when asked.

A look that was cut short, or that the settings do not fit any more, changes nothing: what could not be read
must not look as if it was gone. If the first look is cut short, it is repeated with more time, which later
looks have, too; if that is not enough, the agent does not start.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from berth.agent.discovery import Budget, DiscoveredHost, Discovery, DiscoveryError, ProviderConfigError
from berth.cell.protocol import ReportedProvider

LOOK_EVERY_S: Final = 60.0
SLOW_LOOK: Final = Budget(seconds=30.0)
"""For machines whose folders cannot be read in the usual time."""
_NAMES_SHOWN: Final = 5

_log = logging.getLogger(__name__)


class Machine:
    """It is looked at once when it is made: DiscoveryError or ProviderConfigError if the settings do not fit
    it, DiscoveryError also if it cannot be read whole."""

    def __init__(self, discovery: Discovery, look_every_s: float = LOOK_EVERY_S) -> None:
        self._discovery = discovery
        self._look_every_s = look_every_s
        self._asked = asyncio.Event()
        self._budget = Budget()
        self._found = discovery.look(self._budget)
        if not self._found.is_complete:
            self._budget = SLOW_LOOK
            self._found = discovery.look(self._budget)
        if not self._found.is_complete:
            raise DiscoveryError(f"{self.name}: the machine was not read whole: {self._found.cut_short}")

    @property
    def name(self) -> str:
        return self._found.name

    @property
    def id(self) -> str:
        return self._found.providers[0].id

    @property
    def providers(self) -> tuple[ReportedProvider, ...]:
        return self._found.providers

    def look_soon(self) -> None:
        """Look again now, and not in a minute."""
        self._asked.set()

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Look every minute, and when asked; ``on_change`` is called when the providers have changed."""
        self._log_left_out(self._found)
        while True:
            try:
                async with asyncio.timeout(self._look_every_s):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            if await self._look():
                on_change()

    async def _look(self) -> bool:
        """Whether the machine has changed."""
        try:
            found = await asyncio.to_thread(self._discovery.look, self._budget)
        except (DiscoveryError, ProviderConfigError) as error:
            _log.warning("%s: discovery failed, keeping the last report: %s", self.name, error)
            return False
        if not found.is_complete:
            _log.warning(
                "%s: discovery was cut short, keeping the last report: %s", self.name, found.cut_short
            )
            return False
        before, self._found = self._found, found
        if found.left_out != before.left_out:
            self._log_left_out(found)
        if found.providers == before.providers:
            return False
        _log.info("%s: the machine has changed, registering again: %s", self.name, _describe(before, found))
        return True

    def _log_left_out(self, found: DiscoveredHost) -> None:
        if found.left_out:
            count = len(found.left_out)
            _log.warning("%s: discovery left %d things out; 'berth inspect' lists them", self.name, count)
        for one in found.left_out:
            _log.debug("%s: left out: %s: %s", self.name, one.path, one.reason)


def _describe(before: DiscoveredHost, after: DiscoveredHost) -> str:
    old = {provider.name: provider for provider in before.providers}
    new = {provider.name: provider for provider in after.providers}
    words = {
        "new": new.keys() - old.keys(),
        "gone": old.keys() - new.keys(),
        "changed": {name for name in old.keys() & new.keys() if old[name] != new[name]},
    }
    return "; ".join(f"{word} {_list_some(names)}" for word, names in words.items() if names)


def _list_some(names: set[str]) -> str:
    some = ", ".join(sorted(names)[:_NAMES_SHOWN])
    return some if len(names) <= _NAMES_SHOWN else f"{some} and {len(names) - _NAMES_SHOWN} more"
