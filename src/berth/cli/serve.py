"""``berth serve`` and ``berth region``: the workers that serve, and the housekeeper beside them.

    address free? -> housekeeper and workers start -> told to stop -> workers finish -> housekeeper ends

A worker whose startup fails, or that ends by itself, ends the whole server with a status that is not 0:
what started Berth decides whether it is started again. A worker that hangs or is killed is replaced. How a
worker serves is the business of ``serving``.
"""

import argparse
import ctypes
import functools
import logging
import sys
from collections.abc import Callable
from typing import Final

from berth import __version__
from berth.api.image.api import is_upload
from berth.cli.command import CommandError, format_value
from berth.cli.housekeeper import housekeeper
from berth.cli.settings import (
    add_settings,
    refuse_unusable,
    refuse_without_cells,
    resolve_settings,
)
from berth.main import keeps_images
from berth.runtime import tracing
from berth.runtime.metrics import MetricsMemory
from berth.runtime.secrets import keep_files_private
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging
from berth.runtime.turns import Turns
from berth.serving import (
    Address,
    Application,
    CannotListen,
    Heartbeat,
    Limits,
    TooFewFiles,
    free_address,
    room_for_connections,
    run_workers,
    serve_until_stopped,
    streams_nothing,
)

_log = logging.getLogger(__name__)

Build = Callable[[Settings, Turns | None, int, MetricsMemory], Application]
"""Makes the application of a worker, given its number; workers take turns to write, and share a memory for
what they count."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_settings(command)


def run(arguments: argparse.Namespace) -> int:
    resolved = resolve_settings(arguments)
    if arguments.command == "region":
        refuse_without_cells(resolved)
    refuse_unusable(resolved)
    keep_files_private()
    # All of the server is imported here, so that help and refusals come at once.
    from berth.main import application

    return serve(resolved.settings, application)


def serve(settings: Settings, build: Build) -> int:
    """Serve what ``build`` makes until told to stop; the exit status. ``build`` runs in every worker."""
    configure_logging(settings)
    try:
        address = free_address(settings.listen_host, settings.listen_port)
    except CannotListen as error:
        raise CommandError(f"cannot listen on {settings.listen}: {error}") from error
    limits = limits_of(settings)
    _log.info(
        "Berth %s: http://%s, database %s, auth %s, workers %d",
        __version__,
        settings.listen,
        format_value(settings.database),
        settings.auth,
        settings.workers,
    )
    with housekeeper(settings):
        turns = Turns() if settings.workers > 1 else None
        status = run_workers(
            settings.workers,
            functools.partial(
                _work, settings, build, turns, MetricsMemory(settings.workers), address, limits
            ),
            limits,
            hung_after_s=settings.worker_hung_seconds,
            on_death=turns.recover if turns is not None else lambda _: None,
            heartbeat=Heartbeat.inherited(),
        )
    if status == 0:
        _log.info("stopped")
    return status


def limits_of(settings: Settings) -> Limits:
    """The limits of the connections of a process, as far as it may open files for them; CommandError if it
    may open too few."""
    wanted = settings.connections_max
    try:
        connections = room_for_connections(wanted)
    except TooFewFiles as error:
        raise CommandError(str(error)) from error
    if connections < wanted:
        _log.warning(
            "connections_max is %d, but the limit of open files leaves room for %d connections to each "
            "worker: raise it (ulimit -n, or LimitNOFILE= of a systemd unit)",
            wanted,
            connections,
        )
    return Limits(
        connections=connections,
        connections_per_peer=settings.connections_per_peer_max,
        bodies_bytes=settings.bodies_bytes_max,
        streams_body=is_upload if keeps_images(settings) else streams_nothing,
        drain_s=settings.shutdown_seconds,
    )


def _work(
    settings: Settings,
    build: Build,
    turns: Turns | None,
    memory: MetricsMemory,
    address: Address,
    limits: Limits,
    number: int,
    heartbeat: Heartbeat,
) -> int:
    """The work of one worker, in its process; its exit status."""
    configure_logging(settings)
    keep_freed_memory()
    about = {"berth.worker": number}
    with tracing.exporting("berth-region", settings.trace_endpoint, about, settings.trace_ratio):
        return serve_until_stopped(build(settings, turns, number, memory), address, limits, heartbeat)


# -- memory -------------------------------------------------------------------------------------


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES_MAX: Final = 64 << 20
"""How much freed memory at the top of the heap is kept."""

HEAP_BLOCK_BYTES_MAX: Final = 32 << 20
"""Larger blocks come from the kernel and go back to it. The C library accepts no higher limit."""


def keep_freed_memory() -> None:
    """Keep a bounded amount of freed memory for the next answer, where the C library allows it (glibc).

    An answer with a thousand candidates is built from a few strings of half a megabyte each. By default glibc
    asks the kernel for pages for every one of them and gives them back at once: the faults cost more than the
    search.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
