"""The life of one worker process.

    startup --> listening --(SIGTERM, SIGINT)--> draining --> shutdown --> exit 0
        \\--(fails)--> exit 1       a stop that comes during the startup ends it there, with 0

Signals to stop are held back from the fork until there is a loop that hears them: none is lost.

A worker ends by its own deadlines: draining has one, and behind it an alarm ends the process whatever it
does. The parent has the same in mind, but it may be gone; then there is less time, because whoever restarts
the server waits for what this one holds.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvloop

from berth.serving.asgi import Application
from berth.serving.connections import Connections
from berth.serving.heartbeat import Heartbeat, beat_from_loop
from berth.serving.lifespan import Lifespan, StartupFailed
from berth.serving.limits import ORPHAN_DRAIN_S, STOP_GRACE_S, Limits
from berth.serving.listening import BACKLOG, Address, CannotListen, listener

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


def serve_until_stopped(
    application: Application,
    address: Address,
    limits: Limits | None = None,
    heartbeat: Heartbeat | None = None,
) -> int:
    """Serve in this process until told to stop; the exit status. One that is watched shows its heartbeat."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_live(application, address, limits or Limits(), heartbeat))
        except StartupFailed as failure:
            _log.error("%s", failure)
            return 1
        except CannotListen as failure:
            _log.error("cannot listen: %s", failure)
            return 1
    return 0


async def _live(
    application: Application, address: Address, limits: Limits, heartbeat: Heartbeat | None
) -> None:
    def drain_s() -> float:
        """The time that there is for requests in progress."""
        is_orphan = heartbeat is not None and heartbeat.is_orphan
        return min(limits.drain_s, ORPHAN_DRAIN_S) if is_orphan else limits.drain_s

    stop = _stop_event(drain_s)

    def stop_here() -> None:
        """Not every kernel sends a signal when the parent is gone, and an application may end by itself."""
        if not stop.is_set():
            _end_within(drain_s())
            stop.set()

    if heartbeat is not None:
        beat_from_loop(heartbeat, stop_here)
    lifespan = Lifespan(application, stop_here)
    if not await lifespan.start(stop):
        return
    try:
        await _serve(application, address, limits, stop, lifespan, drain_s)
    finally:
        await lifespan.end()


async def _serve(
    application: Application,
    address: Address,
    limits: Limits,
    stop: asyncio.Event,
    lifespan: Lifespan,
    drain_s: Callable[[], float],
) -> None:
    loop = asyncio.get_running_loop()
    connections = Connections(application, loop, limits)
    server = await loop.create_server(connections.make, sock=listener(address), backlog=BACKLOG)
    await stop.wait()
    server.close()
    lifespan.drain()
    await connections.drain(drain_s())


def _end_within(drain_s: float) -> None:
    """Have the kernel end this process, if it has not ended by then."""
    signal.setitimer(signal.ITIMER_REAL, drain_s + STOP_GRACE_S)


def _stop_event(drain_s: Callable[[], float]) -> asyncio.Event:
    """Set when this process is told to stop, or was since it was forked. From then on the process has so much
    time, and then some to shut down; the kernel ends it if it has not ended by then."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def tell(number: int, frame: FrameType | None) -> None:
        _end_within(drain_s())
        # A worker whose startup has failed may be told to stop when its loop is closed already.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in STOP_SIGNALS:
        signal.signal(number, tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return stop
