"""All connections of a worker: how many there may be, how long each may take, and how they end.

Time is counted here, in ticks of a second: one sweep over all connections in place of a timer for every
request, and the date of all answers with it.
"""

import asyncio
import resource
import time
from typing import Final

from berth.serving.asgi import Application
from berth.serving.connection import Connection
from berth.serving.exchange import Exchange
from berth.serving.heads import StatusLines
from berth.serving.limits import CONNECTIONS_MAX, OTHER_FILES, REFUSALS_MAX

_TICK_S: Final = 1.0


class Connections:
    """What the connections of a worker share, from the first one to the last.

    serving --drain--> draining --(no connection, nothing in work)--> drained
    """

    def __init__(
        self, application: Application, loop: asyncio.AbstractEventLoop, limit: int = CONNECTIONS_MAX
    ) -> None:
        self.application = application
        self.loop = loop
        self.tick = 0
        self.status_lines = StatusLines(time.time())
        self.is_draining = False
        self._limit = limit
        self._open: set[Connection] = set()
        # The work of clients that have gone: it is finished, and somebody must have a hold of it.
        self._orphans: set[Exchange] = set()
        self._drained = asyncio.Event()
        self._ticking = loop.call_later(_TICK_S, self._tick)

    def __len__(self) -> int:
        return len(self._open)

    def make(self) -> Connection:
        return Connection(self)

    def add(self, connection: Connection) -> None:
        self._open.add(connection)
        if len(self._open) > self._limit + REFUSALS_MAX:
            connection.drop()
        elif len(self._open) > self._limit:
            connection.refuse_crowd()

    def remove(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._see_whether_drained()

    def adopt(self, exchange: Exchange) -> None:
        self._orphans.add(exchange)

    def release(self, exchange: Exchange) -> None:
        if self._orphans:
            self._orphans.discard(exchange)
            self._see_whether_drained()

    async def drain(self) -> None:
        """Finish what is in work, and take no more; when there is nothing left, return."""
        self.is_draining = True
        for connection in list(self._open):
            if connection.is_idle:
                connection.close()
        self._see_whether_drained()
        await self._drained.wait()
        self.stop_ticking()

    def stop_ticking(self) -> None:
        self._ticking.cancel()

    def _see_whether_drained(self) -> None:
        if self.is_draining and not self._open and not self._orphans:
            self._drained.set()

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(_TICK_S, self._tick)
        self.status_lines.set_time(time.time())
        self.pass_second()

    def pass_second(self) -> None:
        """See to it that nobody takes longer than is due."""
        self.tick += 1
        for connection in list(self._open):
            connection.look_at_the_time(self.tick)


def room_for_connections() -> int:
    """How many connections this process can have, after asking for as many as it may want."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + REFUSALS_MAX + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, soft - REFUSALS_MAX - OTHER_FILES))
