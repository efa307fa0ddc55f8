"""Runs an application under granian: one parent that watches, ``workers`` processes that serve.

    parent: address free? -> workers start -> SIGTERM -> workers finish what is in flight -> exit 0
    worker: application made -> its startup -> serve -> its shutdown

A worker whose startup fails, or that dies, ends the whole server with a status that is not 0: whoever
started Berth decides whether it is started again. Granian is told as little as it needs; what it logs goes
where the rest of the log goes.
"""

import ctypes
import functools
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from granian.constants import HTTPModes, Interfaces, Loops
from granian.log import LogLevels
from granian.server.mp import MPServer

from berth import __version__
from berth.api.http import Receive, Scope, Send
from berth.cli.arguments import shown
from berth.cli.housekeeper import keep_house
from berth.runtime.memory import keep_freed_memory
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging
from berth.runtime.turns import Turns

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

BACKLOG: Final = 1024
_PR_SET_PDEATHSIG: Final = 1


class CannotServe(Exception):
    """The server cannot be started. The message is for the operator."""


Build = Callable[[Settings, Turns | None], Application]
"""Makes the application of a worker, which takes turns with the others."""


def serve(settings: Settings, build: Build) -> int:
    """Serve what ``build`` makes until told to stop; the exit status. ``build`` runs in every worker."""
    configure_logging(settings)
    host = _free_address(settings)
    _log.info(
        "Berth %s: http://%s, database %s, auth %s, workers %d",
        __version__,
        settings.listen,
        shown(settings.database),
        settings.auth,
        settings.workers,
    )
    server = _server(settings, host)
    logging.getLogger("_granian").addFilter(server.has_reason)
    # Elsewhere workers are not forked, and would not have its pipe.
    turns = Turns() if settings.workers > 1 and sys.platform == "linux" else None
    loader = functools.partial(_load, settings, build, turns, os.getpid())
    housekeeper = multiprocessing.get_context("spawn").Process(
        target=keep_house, args=(settings, os.getpid()), name="housekeeper", daemon=True
    )
    housekeeper.start()
    try:
        server.serve(target_loader=loader, wrap_loader=False)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    finally:
        housekeeper.terminate()
        housekeeper.join()
    _log.info("stopped")
    return 0


class _Server(MPServer):
    """Granian's server, which knows when it began to stop its workers.

    It asks whether a worker has ended right after having seen it end, in another thread, and on a busy
    machine may not know yet: then it says that it kills one that refused to stop. Said before the time for
    that is up, it is not so, and goes unsaid.
    """

    stopping_since_s: float | None = None

    def _stop_workers(self) -> None:
        self.stopping_since_s = time.monotonic()
        super()._stop_workers()  # type: ignore[no-untyped-call]

    def has_reason(self, record: logging.LogRecord) -> bool:
        if not record.getMessage().startswith("Killing worker") or self.stopping_since_s is None:
            return True
        return time.monotonic() - self.stopping_since_s >= (self.workers_kill_timeout or 0)


def _server(settings: Settings, host: str) -> _Server:
    return _Server(
        "berth",
        address=host,
        port=settings.listen_port,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        # Granian would divide the backlog by the workers; connections are not spread that evenly.
        backpressure=BACKLOG,
        log_level=LogLevels.debug if settings.log_level == "debug" else LogLevels.warning,
        # Levels only: the handlers are ours, and stay.
        log_dictconfig={
            "incremental": True,
            "formatters": {},
            "handlers": {},
            "loggers": {"_granian": {"propagate": True}},
        },
        log_access=False,
        respawn_failed_workers=False,
        workers_kill_timeout=settings.shutdown_seconds,
    )


def _free_address(settings: Settings) -> str:
    """The address to bind, in numbers; CannotServe if somebody else listens there.

    Granian's sockets share their port with whoever asks to share, another Berth too. A socket that does
    not share finds out.
    """
    try:
        found = socket.getaddrinfo(
            settings.listen_host, settings.listen_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise CannotServe(f"cannot listen on {settings.listen}: {error.strerror}") from error
    return str(address[0])


# -- in a worker --------------------------------------------------------------------------------


def _load(settings: Settings, build: Build, turns: Turns | None, parent: int) -> Application:
    # Until granian sets its own handlers, the parent's are inherited, and would swallow a stop.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with(parent)
    configure_logging(settings)
    keep_freed_memory()
    logging.getLogger("_granian").addFilter(_said_already)
    return _with_honest_startup(build(settings, turns))


def _end_with(parent: int) -> None:
    """Stop this worker when the parent is gone, even if killed: nobody could stop it otherwise."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)


def _said_already(record: logging.LogRecord) -> bool:
    """Granian logs why a startup failed, and then that it failed."""
    return record.getMessage() != "ASGI lifespan startup failed"


def _with_honest_startup(application: Application) -> Application:
    """The application, with an exception in its startup told as a failed startup.

    Granian takes the exception to mean that the application has no startup, and would serve without.
    """

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Not a coroutine itself: requests pass without one more step each.
        if scope["type"] == "lifespan":
            return _live(application, scope, receive, send)
        return application(scope, receive, send)

    return call


async def _live(application: Application, scope: Scope, receive: Receive, send: Send) -> None:
    started = False

    async def watch(message: Any) -> None:
        nonlocal started
        started = started or message["type"].startswith("lifespan.startup")
        await send(message)

    try:
        await application(scope, receive, watch)
    except Exception as error:
        if started:
            raise
        _log.debug("startup failed", exc_info=True)
        text = str(error) or type(error).__name__
        await send({"type": "lifespan.startup.failed", "message": f"cannot start: {text}"})
