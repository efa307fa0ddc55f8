"""The hosts of a cell: who is there, who has been silent for too long, and what is on them that should not
be.

Heartbeats are not written down; that a host is down, or up again, is. One that comes back is up only when
nothing is on it that is not to be there: what was evacuated is destroyed first, and then its migrations let
go.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from berth.cell.desk import Desk
from berth.cell.protocol import Orders, Poll, Register, Stray
from berth.cell.providers import Providers
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.commands import Enact
from berth.model.orders import Agent, Instance
from berth.model.origin import Origin
from berth.model.rejections import RecordMoved
from berth.operations import in_cell
from berth.operations.sweeping import sweep
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.view import View

_log = logging.getLogger(__name__)
_ORIGIN: Final = Origin("", "conductor", None, "hosts")
_LAST: Final = 1 << 62
"""A fence behind every version of an order."""


class UnknownHost(Exception):
    """It has not registered, or not with this conductor."""


class _Known(NamedTuple):
    """What is known of a host that is heard of."""

    strays: tuple[Stray, ...]
    is_down: bool
    was_evacuated: bool


def _known(view: View, host: str, servers: tuple[str, ...]) -> _Known | None:
    """All that a poll asks of the journal, at one look; None of a host that has not registered."""
    agent = view.records.get(Agent, host)
    if agent is None:
        return None
    expected = in_cell.expected_on(view, host)
    strays = tuple(
        Stray(server=id, fence=(in_cell.last_number(view, id), _LAST)) for id in servers if id not in expected
    )
    return _Known(strays, agent.is_down, bool(view.records.find(Instance, "evacuated", host)))


class Hosts:
    def __init__(
        self, engine: Engine, providers: Providers, desk: Desk, clock: Clock, ids: Ids, silence_s: float
    ) -> None:
        self._engine = engine
        self._providers = providers
        self._desk = desk
        self._clock = clock
        self._ids = ids
        self._silence_ns = int(silence_s * 1e9)
        self._heard_ns: dict[str, int] = {}

    async def register(self, host: Register) -> None:
        """Take a host in: into the books, and into the journal."""
        await self._providers.write(host)
        now_s = self._clock.now_ns() // 1_000_000_000
        agent = Agent(
            id=host.host,
            name=host.name,
            driver=host.driver,
            is_down=True,
            registered_at_s=now_s,
            changed_at_s=now_s,
        )
        await self._enact(lambda view: in_cell.registered(view, agent))
        await self._hear(host.host, host.servers)

    async def poll(self, poll: Poll) -> Orders:
        """What a host is to do, as soon as there is anything, or after the time it waits."""
        host = poll.host
        # Before anything that may have to wait: it is not the host that is silent then.
        self._heard_ns[host] = self._clock.monotonic_ns()
        strays = await self._hear(host, poll.servers)
        orders, aborts = self._desk.for_host(host, poll.busy)
        fresh_aborts = tuple(id for id in aborts if id in poll.busy)
        if not strays and not orders and not fresh_aborts and poll.wait_seconds:
            await self._desk.news(host, poll.wait_seconds)
            orders, aborts = self._desk.for_host(host, poll.busy)
        self._heard_ns[host] = self._clock.monotonic_ns()
        return Orders(orders=orders, aborts=aborts, strays=strays)

    async def watch(self) -> None:
        """Mark hosts down that are silent, for ever. After a start everybody has a while to be heard of."""
        started_ns = self._clock.monotonic_ns()
        while not self._engine.stopping:
            await asyncio.sleep(self._silence_ns / 4e9)
            try:
                agents = await self._engine.read(lambda view: list(view.records.all(Agent)))
                now_ns = self._clock.monotonic_ns()
                for agent in agents:
                    silent_ns = now_ns - self._heard_ns.get(agent.id, started_ns)
                    if not agent.is_down and silent_ns > self._silence_ns:
                        await self._mark_down(agent)
            except (Unavailable, Overloaded) as away:
                _log.warning("the cell's journal is away: %s", away)
                # Nobody could be heard meanwhile: everybody has a while again.
                started_ns = self._clock.monotonic_ns()
                self._heard_ns.clear()
            except Exception:
                _log.exception("the watch stumbled")

    async def _mark_down(self, agent: Agent) -> None:
        now_s = self._clock.now_ns() // 1_000_000_000
        await self._enact(lambda view: in_cell.marked(view, agent.id, True, now_s))
        self._desk.give_up(agent.id, f"the host {agent.name} is down")
        _log.warning("the host %s is down: it has not been heard of", agent.name)

    async def _hear(self, host: str, servers: tuple[str, ...]) -> tuple[Stray, ...]:
        """Note that a host is there; what is on it that should not be."""
        self._heard_ns[host] = self._clock.monotonic_ns()
        known = await self._engine.read(lambda view: _known(view, host, servers))
        if known is None:
            raise UnknownHost(host)
        if known.strays:
            return known.strays
        now_ns = self._clock.now_ns()
        if known.is_down:
            await self._enact(lambda view: in_cell.marked(view, host, False, now_ns // 1_000_000_000))
        if known.was_evacuated:
            await self._enact(lambda view: sweep(view, self._ids, host, now_ns))
        return ()

    async def _enact(self, make: Callable[[View], Enact | None]) -> None:
        """Have a change made that may turn out not to be needed."""
        await self._engine.submit(
            lambda view, _: make(view) or RecordMoved("", ""), _ORIGIN, lambda view, changed: None
        )
