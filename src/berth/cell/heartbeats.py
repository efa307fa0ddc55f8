"""Heartbeats: when each host was last heard of, and which hosts are down.

Every poll and registration is a heartbeat. Heartbeats are kept in memory alone; that a host is down, or up
again, is in the journal. **A host is down when no heartbeat has come within the timeout, and for no other
reason.** After a start, and after the journal was unavailable, every host has one timeout to be heard of.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from berth.cell import saga_runs
from berth.cell.mailbox import Mailbox
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Enact
from berth.model.rejections import Rejection
from berth.model.saga_runs import Agent
from berth.runtime.clock import Clock
from berth.view import View

_log = logging.getLogger(__name__)

Enactment = Callable[[Callable[[View], Enact | Rejection | None]], Awaitable[object]]
"""Has a change made in the cell's journal, as long as this conductor's term lasts."""


class ConductorReplaced(Exception):
    """Another conductor has taken over the cell: nothing is written here any more."""


class Heartbeats:
    def __init__(
        self, engine: Engine, mailbox: Mailbox, clock: Clock, timeout_s: float, enact: Enactment
    ) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._clock = clock
        self._timeout_s = timeout_s
        self._enact = enact
        self._heard_ns: dict[str, int] = {}

    def hear(self, host: str) -> None:
        self._heard_ns[host] = self._clock.monotonic_ns()

    async def watch(self) -> None:
        """Mark hosts down, until another conductor has taken over."""
        started_ns = self._clock.monotonic_ns()
        while not self._engine.stopping:
            await asyncio.sleep(self._timeout_s / 4)
            try:
                await self._mark_silent(started_ns)
            except ConductorReplaced:
                return
            except (Unavailable, Overloaded) as error:
                _log.warning("the cell's journal is unavailable, no host is marked down meanwhile: %s", error)
                # No heartbeat could be heard meanwhile.
                started_ns = self._clock.monotonic_ns()
                self._heard_ns.clear()
            except Exception:
                _log.exception("checking heartbeats failed unexpectedly, retrying")

    async def _mark_silent(self, started_ns: int) -> None:
        agents = await self._engine.read(lambda view: list(view.records.all(Agent)))
        now_ns = self._clock.monotonic_ns()
        for agent in agents:
            silent_s = (now_ns - self._heard_ns.get(agent.id, started_ns)) / 1e9
            if not agent.is_down and silent_s > self._timeout_s:
                await self._mark_down(agent)

    async def _mark_down(self, agent: Agent) -> None:
        now_s = self._clock.now_ns() // 1_000_000_000
        await self._enact(lambda view: saga_runs.mark_host(view, agent.id, True, now_s))
        self._mailbox.give_up(agent.id, f"the host {agent.name} is down")
        _log.warning("%s: down, no heartbeat within %g s", agent.name, self._timeout_s)
