"""``berth cell``: the conductor of a cell, and the housekeeper of its journal beside it.

    address free? -> housekeeper starts -> conductor works -> told to stop -> it finishes -> housekeeper ends

It knows its own database, Placement's endpoint and the address of its agent API, and nothing else. The
conductor is one process, and its parent watches it: one that hangs or is killed is replaced. If it ends by
itself unasked, the status is not 0, and what started it decides whether it is started again.
"""

import argparse
import contextlib
import functools
import logging
import os
import signal
from pathlib import Path

from berth import __version__
from berth.cell.application import Cell, CellSettings
from berth.cell.conductor import Deadlines
from berth.cli.command import (
    CELL_NAME_IS,
    DAY_S,
    CommandError,
    add_ca_file,
    add_heartbeat_timeout,
    add_logging,
    add_seconds,
    add_token_file,
    add_trace_endpoint,
    add_worker_hung_seconds,
    cell_name,
    describe,
    find_secret,
    format_value,
    listen_address,
    refuse_untraceable,
    require_secret,
    url,
)
from berth.cli.housekeeper import housekeeper
from berth.cli.serve import keep_freed_memory, limits_of
from berth.client import Token, keystone_token
from berth.journal import AddressError, parse_address
from berth.runtime import tracing
from berth.runtime.metrics import MetricsMemory
from berth.runtime.secrets import keep_files_private
from berth.runtime.settings import Settings, is_loopback
from berth.runtime.telemetry import configure_logging
from berth.serving import (
    Address,
    CannotListen,
    Heartbeat,
    Limits,
    free_address,
    run_workers,
    serve_until_stopped,
)

_log = logging.getLogger(__name__)


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "It knows its own database and Placement's endpoint, and calls nothing else. It authenticates to\n"
        "Placement with the token in BERTH_PLACEMENT_TOKEN (or one of Keystone's, of the user in\n"
        "BERTH_KEYSTONE_AUTH_URL, _USERNAME, _PASSWORD and _PROJECT_NAME). Hosts join it with the token in\n"
        "BERTH_AGENT_TOKEN.",
    )
    command.add_argument(
        "--name", type=cell_name, required=True, help=f"the cell's name in the region: {CELL_NAME_IS}"
    )
    command.add_argument(
        "--database",
        metavar="URL",
        help="the database of the cell's journal; if the URL has a password, use BERTH_DATABASE instead",
    )
    command.add_argument("--placement", metavar="URL", type=url, required=True, help="Placement's endpoint")
    command.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=listen_address,
        required=True,
        help="address of the agent API",
    )
    add_ca_file(command)
    add_token_file(command, "--placement-token-file", "BERTH_PLACEMENT_TOKEN")
    add_token_file(command, "--agent-token-file", "BERTH_AGENT_TOKEN")
    add_heartbeat_timeout(command, 30)
    add_worker_hung_seconds(command, "a conductor")
    add_seconds(command, "--step-seconds", 60, 0.1, DAY_S, "timeout of an agent command")
    add_seconds(command, "--build-seconds", 300, 0.1, DAY_S, "timeout of a build, a rebuild or a snapshot")
    add_seconds(command, "--live-migrate-seconds", 3600, 0.1, DAY_S, "timeout of a live migration")
    add_logging(command, "info")
    add_trace_endpoint(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the cell until told to stop; the exit status."""
    keep_files_private()
    # The housekeeper and the log read settings; a cell has few of them.
    settings = Settings(
        listen=arguments.listen,
        database=arguments.database or os.environ.get("BERTH_DATABASE", ""),
        log_level=arguments.log_level,
        log_format=arguments.log_format,
        snapshot_every_batches=5_000,
        journal_keep_batches=1_000,
        worker_hung_seconds=arguments.worker_hung_seconds,
        trace_endpoint=arguments.trace_endpoint,
    )
    refuse_untraceable(settings.trace_endpoint)
    configure_logging(settings)
    cell = _read_cell_settings(arguments, settings)
    try:
        address = free_address(settings.listen_host, settings.listen_port)
    except CannotListen as error:
        raise CommandError(f"cannot listen on {settings.listen}: {error}") from error
    return _serve(cell, settings, address, limits_of(settings))


def _read_cell_settings(arguments: argparse.Namespace, settings: Settings) -> CellSettings:
    if not settings.database:
        raise CommandError("--database or BERTH_DATABASE must name the cell's database")
    try:
        parse_address(settings.database)
    except AddressError as error:
        raise CommandError(f"--database: {format_value(settings.database)!r} is refused: {error}") from None
    agent_token = find_secret("BERTH_AGENT_TOKEN", arguments.agent_token_file)
    if agent_token is None and not is_loopback(settings.listen_host):
        raise CommandError(
            f"--listen: {settings.listen} can be reached by others, and without a join token any host may "
            "join. Set BERTH_AGENT_TOKEN or --agent-token-file, or listen on 127.0.0.1"
        )
    return CellSettings(
        name=arguments.name,
        database=settings.database,
        placement=arguments.placement,
        placement_token=_find_placement_token(arguments.placement_token_file),
        ca_file=arguments.ca_file,
        agent_token=agent_token,
        heartbeat_timeout_seconds=arguments.heartbeat_timeout,
        deadlines=Deadlines(arguments.step_seconds, arguments.build_seconds, arguments.live_migrate_seconds),
    )


def _find_placement_token(file: Path | None) -> Token:
    """The source of the cell's token for Placement. When a token is refused, the file is read again, or
    Keystone asked again."""
    url = os.environ.get("BERTH_KEYSTONE_AUTH_URL")
    if url is None:
        token = functools.partial(
            require_secret,
            "BERTH_PLACEMENT_TOKEN",
            file,
            "--placement-token-file",
            "the cell's token for Placement, unless BERTH_KEYSTONE_AUTH_URL is set",
        )
        token()
        return token
    names = ("USERNAME", "PASSWORD", "PROJECT_NAME")
    user, password, project = (os.environ.get(f"BERTH_KEYSTONE_{name}") for name in names)
    if not user or not password or not project:
        variables = ", ".join(f"BERTH_KEYSTONE_{name}" for name in names)
        raise CommandError(f"BERTH_KEYSTONE_AUTH_URL is set: {variables} are needed too")
    domains = (
        os.environ.get(f"BERTH_KEYSTONE_{name}_DOMAIN_NAME", "Default") for name in ("USER", "PROJECT")
    )
    return keystone_token(url, user, password, project, *domains)


def _serve(cell: CellSettings, settings: Settings, address: Address, limits: Limits) -> int:
    _log.info(
        "Berth %s: the cell %s at http://%s, database %s, Placement %s",
        __version__,
        cell.name,
        settings.listen,
        format_value(cell.database),
        format_value(cell.placement),
    )
    with housekeeper(settings):
        status = run_workers(
            1,
            functools.partial(_work, cell, settings, MetricsMemory(), address, limits),
            limits,
            hung_after_s=settings.worker_hung_seconds,
            heartbeat=Heartbeat.inherited(),
        )
    if status == 0:
        _log.info("stopped")
    return status


def _work(
    cell: CellSettings,
    settings: Settings,
    memory: MetricsMemory,
    address: Address,
    limits: Limits,
    _: int,
    heartbeat: Heartbeat,
) -> int:
    """The conductor, in its process; its exit status."""
    configure_logging(settings)
    keep_freed_memory()
    with tracing.exporting("berth-cell", settings.trace_endpoint, {"berth.cell": cell.name}):
        status = serve_until_stopped(Cell(cell, memory=memory), address, limits, heartbeat)
    if status == 0 and not heartbeat.is_orphan:
        # A conductor that another one has replaced stops by itself: then the whole command stops, with status
        # 0. The id of a parent that is gone may belong to another process by now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(heartbeat.parent, signal.SIGTERM)
    return status
