"""The mailbox: commands that wait for the agents of hosts, from when the conductor delivers one until the
agent reports its outcome, its deadline passes, or its host is down.

Nothing here survives a restart: the conductor then delivers the same commands again, under the same ids.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from berth.cell.protocol import AgentCommand, ReportedAddress


class CommandOutcome(NamedTuple):
    """How a command has ended. ``error`` None: it was carried out; then the server has these addresses."""

    error: str | None
    addresses: tuple[ReportedAddress, ...] = ()


class _Waiting:
    def __init__(self, command: AgentCommand, outcome: "asyncio.Future[CommandOutcome]") -> None:
        self.command = command
        self.outcome = outcome
        self.is_aborted = False


class Mailbox:
    def __init__(self) -> None:
        self._by_host: dict[str, dict[str, _Waiting]] = {}
        self._news: dict[str, asyncio.Event] = {}

    async def deliver(self, host: str, command: AgentCommand, within_s: float) -> CommandOutcome:
        """Have an agent carry a command out. Past its deadline the
        command has failed, whatever the agent may still do."""
        outcome: asyncio.Future[CommandOutcome] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(command, outcome)
        self._by_host.setdefault(host, {})[command.id] = waiting
        self._wake(host)
        try:
            async with asyncio.timeout(max(within_s, 0)):
                return await outcome
        except TimeoutError:
            return CommandOutcome(f"no answer within {within_s:.3g} seconds")
        finally:
            if self._by_host.get(host, {}).get(command.id) is waiting:
                del self._by_host[host][command.id]

    def settle(
        self, host: str, command: str, error: str | None, addresses: tuple[ReportedAddress, ...] = ()
    ) -> bool:
        """Take an agent's report. Whether the conductor waits for it."""
        waiting = self._by_host.get(host, {}).get(command)
        if waiting is None or waiting.outcome.done():
            return False
        waiting.outcome.set_result(CommandOutcome(error, addresses))
        return True

    def give_up(self, host: str, reason: str) -> None:
        """Fail all commands of a host that is down."""
        for command in list(self._by_host.get(host, {})):
            self.settle(host, command, reason)

    def abort(self, host: str, command: str) -> None:
        waiting = self._by_host.get(host, {}).get(command)
        if waiting is not None and not waiting.is_aborted:
            waiting.is_aborted = True
            self._wake(host)

    def find_commands(
        self, host: str, busy: Iterable[str]
    ) -> tuple[tuple[AgentCommand, ...], tuple[str, ...]]:
        """Commands that a host is not busy with yet, and the ids of those that it is to give up."""
        here = self._by_host.get(host)
        if not here:
            return (), ()
        known = set(busy)
        fresh = tuple(waiting.command for id, waiting in here.items() if id not in known)
        return fresh, tuple(id for id, waiting in here.items() if waiting.is_aborted)

    async def wait(self, host: str, within_s: float) -> None:
        """Wait until there may be something new for a host, or for ``within_s``."""
        event = self._news.setdefault(host, asyncio.Event())
        timer = asyncio.get_running_loop().call_later(within_s, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()
        event.clear()

    def _wake(self, host: str) -> None:
        self._news.setdefault(host, asyncio.Event()).set()
