"""The life of one worker process.

    startup --> listening --(SIGTERM, SIGINT)--> draining --> shutdown --> exit 0
        \\--(fails)--> exit 1       a stop that comes during the startup ends it there, with 0

Signals to stop are held back from the fork until there is a loop that hears them: none is lost. They are
handled as Python's signals, not the loop's, so that a part of the application may listen to them as well
(api/native/stopping.py). How long draining may take is the parent's business, who has the means to end it.
"""

import asyncio
import contextlib
import logging
import signal
from types import FrameType
from typing import Final

import uvloop

from berth.serving.asgi import Application
from berth.serving.connections import Connections, room_for_connections
from berth.serving.lifespan import Lifespan, StartupFailed
from berth.serving.listening import BACKLOG, Address, CannotListen, listener

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


def serve_until_stopped(application: Application, address: Address) -> int:
    """Serve in this process until told to stop; the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_live(application, address))
        except StartupFailed as failure:
            _log.error("%s", failure)
            return 1
        except CannotListen as failure:
            _log.error("cannot listen: %s", failure)
            return 1
    return 0


async def _live(application: Application, address: Address) -> None:
    stop = _stop_event()
    lifespan = Lifespan(application)
    if not await lifespan.start(stop):
        return
    try:
        await _serve(application, address, stop)
    finally:
        await lifespan.end()


async def _serve(application: Application, address: Address, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    connections = Connections(application, loop, room_for_connections())
    server = await loop.create_server(connections.make, sock=listener(address), backlog=BACKLOG)
    await stop.wait()
    server.close()
    await connections.drain()


def _stop_event() -> asyncio.Event:
    """Set when this process is told to stop, or was since it was forked."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def tell(number: int, frame: FrameType | None) -> None:
        # A worker whose startup has failed may be told to stop when its loop is closed already.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    for number in STOP_SIGNALS:
        signal.signal(number, tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return stop
