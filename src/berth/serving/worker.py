"""The life of one worker process, and the address that it listens on.

    startup --> listening --(SIGTERM, SIGINT)--> draining --> shutdown --> exit 0
        \\--(fails)--> exit 1       a stop that comes during the startup ends it there, with 0

Signals to stop are blocked from the fork until there is an event loop that handles them: none is lost.

A worker ends by its own deadlines: draining has one, and after it an alarm ends the process in any case. The
parent enforces the same, but the parent may be gone. Then there is less time, because whoever restarts the
server waits for what this worker holds.

Each worker listens with a socket of its own, and the kernel spreads new connections over them. Such sockets
share their port with any process that asks to share it, another Berth included; so the parent first binds one
that does not.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NamedTuple

import uvloop

from berth.serving.asgi import Application, ApplicationFailed, Lifespan, StartupFailed
from berth.serving.connections import Connections
from berth.serving.heartbeat import Heartbeat, beat_from_loop
from berth.serving.limits import ORPHAN_DRAIN_S, STOP_GRACE_S, Limits

_BACKLOG: Final = 1024

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The address cannot be used; the message says why."""


class Address(NamedTuple):
    """An address in numbers, as its family spells it."""

    family: socket.AddressFamily
    spelled: Any


def free_address(host: str, port: int) -> Address:
    """The address to listen on; CannotListen if there is none, or another process listens there."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, spelled = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(spelled)
    except OSError as error:
        raise CannotListen(error.strerror) from error
    return Address(family, spelled)


def _listener(address: Address) -> socket.socket:
    """A socket that shares the address with those of the other workers. It does not listen yet."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address.spelled)
    except OSError as error:
        sock.close()
        raise CannotListen(error.strerror) from error
    return sock


def serve_until_stopped(
    application: Application,
    address: Address,
    limits: Limits | None = None,
    heartbeat: Heartbeat | None = None,
) -> int:
    """Serve in this process until told to stop; the exit status. A given ``heartbeat`` is kept beating."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_live(application, address, limits or Limits(), heartbeat))
        except (StartupFailed, ApplicationFailed) as failure:
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
        """How long requests in progress may still take."""
        is_orphan = heartbeat is not None and heartbeat.is_orphan
        return min(limits.drain_s, ORPHAN_DRAIN_S) if is_orphan else limits.drain_s

    stop = _stop_event(drain_s)

    def stop_here() -> None:
        """For a kernel that sends no signal when the parent is gone, and an application that asks to stop."""
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
    server = await loop.create_server(connections.make, sock=_listener(address), backlog=_BACKLOG)
    await stop.wait()
    server.close()
    lifespan.drain()
    await connections.drain(drain_s())


async def listen(application: Application, address: Address) -> asyncio.Server:
    """Serve an application without a lifespan beside the work of this process, until that ends."""
    loop = asyncio.get_running_loop()
    connections = Connections(application, loop, Limits(connections=64))
    return await loop.create_server(connections.make, sock=_listener(address), backlog=_BACKLOG)


def _end_within(drain_s: float) -> None:
    """Have the kernel end this process, if it has not ended by then."""
    signal.setitimer(signal.ITIMER_REAL, drain_s + STOP_GRACE_S)


def _stop_event(drain_s: Callable[[], float]) -> asyncio.Event:
    """Set when this process is told to stop, or was since it was forked. From then on the process has
    ``drain_s()`` for requests in progress and STOP_GRACE_S to shut down; then the kernel ends it."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        _end_within(drain_s())
        # The loop is closed already if the startup has failed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return stop
