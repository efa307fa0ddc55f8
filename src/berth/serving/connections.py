"""All connections of a worker: how many there may be, how long each may take, and how they end.

When all are taken, a new connection takes the place of one that is idle, in this order: connections that have
never sent a whole request, the oldest first; kept ones, by how long they have been idle; requests whose
bodies do not arrive. A request in progress is never ended for another. When an address is at its limit, a new
connection from it takes the place of one from the same address.

Time is counted here, in ticks of a second: one sweep over all connections in place of a timer for every
request, and the date of all answers with it.
"""

import asyncio
import ipaddress
import logging
import resource
import time
from collections import Counter
from typing import Final

from berth.serving.asgi import Application
from berth.serving.connection import Connection
from berth.serving.exchange import Exchange, StatusLines
from berth.serving.limits import CONNECTIONS_LEAST, OTHER_FILES, REFUSALS_MAX, Limits

_TICK_S: Final = 1.0

_log = logging.getLogger(__name__)


class Connections:
    """What the connections of a worker share, from the first one to the last.

    serving --drain--> draining --(no connection, nothing in work)--> drained
    """

    def __init__(
        self, application: Application, loop: asyncio.AbstractEventLoop, limits: Limits | None = None
    ) -> None:
        self.application = application
        self.loop = loop
        self.tick = 0
        self.status_lines = StatusLines(time.time())
        self.is_draining = False
        self.limits = limits or Limits()
        self.body_bytes = 0
        """How many bytes of bodies of requests in progress are held, beyond the free part of each."""
        # In the order in which they came.
        self._open: dict[Connection, None] = {}
        # Evicted connections, until they are closed.
        self._leaving: set[Connection] = set()
        self._of_peer: Counter[str] = Counter()
        # Connections that can be evicted, in the order in which they became idle.
        self._fresh: dict[Connection, None] = {}
        self._kept: dict[Connection, None] = {}
        self._stalled: dict[Connection, None] = {}
        # Requests whose clients have disconnected: the application finishes them. The event loop holds tasks
        # weakly, so they are kept here.
        self._orphans: set[Exchange] = set()
        self._drained = asyncio.Event()
        self._ticking = loop.call_later(_TICK_S, self._tick)

    def __len__(self) -> int:
        return len(self._open) + len(self._leaving)

    def make(self) -> Connection:
        return Connection(self)

    # -- admission ----------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        crowd = ""
        if self._has_its_share(connection.peer) and not self._make_room(connection.peer):
            crowd = "too many connections from this address"
        elif len(self._open) >= self.limits.connections and not self._make_room():
            crowd = "too many connections"
        self._open[connection] = None
        self._of_peer[connection.peer] += 1
        if not crowd or len(self._open) <= self.limits.connections + REFUSALS_MAX:
            self._fresh[connection] = None
            connection.crowd = crowd
        else:
            connection.drop()

    def remove(self, connection: Connection) -> None:
        self._leaving.discard(connection)
        if connection in self._open:
            self._forget(connection)
        self._check_drained()

    def _has_its_share(self, peer: str) -> bool:
        share = self.limits.connections_per_peer
        return share > 0 and self._of_peer[peer] >= share and not is_local(peer)

    def _make_room(self, peer: str | None = None) -> bool:
        """Evict an idle connection, of one peer if it is named; whether there was one."""
        for idle in (self._fresh, self._kept, self._stalled):
            for connection in idle:
                if peer is None or connection.peer == peer:
                    self._forget(connection)
                    self._leaving.add(connection)
                    connection.evict(at_once=len(self._leaving) > REFUSALS_MAX)
                    return True
        return False

    def _forget(self, connection: Connection) -> None:
        del self._open[connection]
        self.note_busy(connection)
        self._of_peer[connection.peer] -= 1
        if not self._of_peer[connection.peer]:
            del self._of_peer[connection.peer]

    def note_kept(self, connection: Connection) -> None:
        """The connection has been answered and is idle."""
        self._kept[connection] = None

    def note_stalled(self, connection: Connection) -> None:
        """The request waits for a body that does not arrive."""
        self._stalled[connection] = None

    def note_busy(self, connection: Connection) -> None:
        self._fresh.pop(connection, None)
        self._kept.pop(connection, None)
        self._stalled.pop(connection, None)

    # -- what is held of bodies -----------------------------------------------------------------

    def has_room_for(self, body_bytes: int) -> bool:
        return self.body_bytes + body_bytes <= self.limits.bodies_bytes

    # -- how they end ---------------------------------------------------------------------------

    def adopt(self, exchange: Exchange) -> None:
        self._orphans.add(exchange)

    def release(self, exchange: Exchange) -> None:
        if self._orphans:
            self._orphans.discard(exchange)
            self._check_drained()

    async def drain(self, within_s: float) -> None:
        """Finish the requests in progress and accept no more; return when none is left or time is up."""
        self.is_draining = True
        for connection in list(self._open):
            if connection.is_idle:
                connection.close()
        self._check_drained()
        try:
            async with asyncio.timeout(within_s):
                await self._drained.wait()
        except TimeoutError:
            unfinished = len(self) + len(self._orphans)
            _log.warning("%d requests did not finish within %g s and are aborted", unfinished, within_s)
            for connection in [*self._open, *self._leaving]:
                connection.drop()
        self.stop_ticking()

    def stop_ticking(self) -> None:
        self._ticking.cancel()

    def _check_drained(self) -> None:
        if self.is_draining and not (self._open or self._leaving or self._orphans):
            self._drained.set()

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(_TICK_S, self._tick)
        self.status_lines.set_time(time.time())
        self.pass_second()

    def pass_second(self) -> None:
        """Count one second, and enforce the deadlines of all connections."""
        self.tick += 1
        for connection in [*self._open, *self._leaving]:
            connection.check_deadlines(self.tick)


def is_local(peer: str) -> bool:
    """Whether an address is of this machine. A connection without an address comes through a Unix socket."""
    try:
        return not peer or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


class TooFewFiles(Exception):
    """The limit of open files is too low to serve. The message is for the operator."""


def room_for_connections(wanted: int) -> int:
    """Raise the limit of open files for so many connections, as far as allowed; how many connections there is
    room for. TooFewFiles if there are fewer than CONNECTIONS_LEAST."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + REFUSALS_MAX + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    # Connections that are refused need files too; where files are few, an eighth is theirs.
    room = min(wanted, max(soft - OTHER_FILES - REFUSALS_MAX, (soft - OTHER_FILES) * 7 // 8))
    if room < CONNECTIONS_LEAST:
        least = OTHER_FILES + CONNECTIONS_LEAST * 8 // 7 + 1
        raise TooFewFiles(
            f"the limit of open files is {soft}, and a server needs at least {least}: raise it "
            "(ulimit -n, or LimitNOFILE= of a systemd unit)"
        )
    return room
