"""``berth cell``: the conductor of a cell, and the housekeeper of its journal beside it.

    address free? -> housekeeper starts -> conductor works -> told to stop -> it finishes -> housekeeper ends

All that it knows of the world is its own database, Placement's endpoint, and where agents knock. One process
does the work: an end that is not asked for ends it with a status that is not 0, and whoever started it
decides what then.
"""

import argparse
import functools
import logging
import os
import signal
import sys
from pathlib import Path

from berth import __version__
from berth.cell.application import Cell, CellSettings
from berth.cell.conductor import Deadlines
from berth.cli.arguments import shown
from berth.cli.housekeeper import housekeeper
from berth.cli.secrets import SecretError, needed, secret
from berth.cli.serve import CannotServe, limits_of
from berth.client import Token
from berth.client.tokens import keystone_token
from berth.journal import AddressError, parse_address
from berth.runtime.memory import keep_freed_memory
from berth.runtime.settings import Settings, is_loopback
from berth.runtime.telemetry import configure_logging
from berth.serving import Address, CannotListen, Limits, free_address, serve_until_stopped

_log = logging.getLogger(__name__)


class CellRefused(Exception):
    """The cell cannot be run like this. The message is for the operator."""


def run(arguments: argparse.Namespace) -> int:
    """Run the cell until told to stop; the exit status."""
    # For the housekeeper and the log, which know settings; a cell has few of them.
    settings = Settings(
        listen=arguments.listen,
        database=arguments.database or os.environ.get("BERTH_DATABASE", ""),
        log_level=arguments.log_level,
        log_format=arguments.log_format,
        snapshot_every_batches=5_000,
        journal_keep_batches=1_000,
    )
    configure_logging(settings)
    try:
        cell = _cell_settings(arguments, settings)
        address = free_address(settings.listen_host, settings.listen_port)
        limits = limits_of(settings)
    except (CannotServe, CellRefused, SecretError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
    except CannotListen as error:
        print(f"berth: cannot listen on {settings.listen}: {error}", file=sys.stderr)
        return 2
    return _serve(cell, settings, address, limits)


def _cell_settings(arguments: argparse.Namespace, settings: Settings) -> CellSettings:
    if not settings.database:
        raise CellRefused("--database or BERTH_DATABASE must name the cell's database")
    try:
        parse_address(settings.database)
    except AddressError as error:
        raise CellRefused(f"--database: {shown(settings.database)!r} is refused: {error}") from None
    agent_token = secret("BERTH_AGENT_TOKEN", arguments.agent_token_file)
    if agent_token is None and not is_loopback(settings.listen_host):
        raise CellRefused(
            f"--listen: {settings.listen} can be reached by others, and without a join token any host may "
            "join. Set BERTH_AGENT_TOKEN or --agent-token-file, or listen on 127.0.0.1"
        )
    return CellSettings(
        name=arguments.name,
        database=settings.database,
        placement=arguments.placement,
        placement_token=_placement_token(arguments.placement_token_file),
        ca_file=arguments.ca_file,
        agent_token=agent_token,
        silence_seconds=arguments.silence_seconds,
        deadlines=Deadlines(arguments.step_seconds, arguments.build_seconds, arguments.live_migrate_seconds),
    )


def _placement_token(file: Path | None) -> Token:
    """Where the token comes from that the cell shows Placement. A file is read again when what it held is not
    good any more; Keystone is asked again."""
    url = os.environ.get("BERTH_KEYSTONE_AUTH_URL")
    if url is None:
        token = functools.partial(
            needed,
            "BERTH_PLACEMENT_TOKEN",
            file,
            "--placement-token-file",
            "the token that the cell shows Placement, unless BERTH_KEYSTONE_AUTH_URL says where to get one",
        )
        token()
        return token
    names = ("USERNAME", "PASSWORD", "PROJECT_NAME")
    user, password, project = (os.environ.get(f"BERTH_KEYSTONE_{name}") for name in names)
    if not user or not password or not project:
        variables = ", ".join(f"BERTH_KEYSTONE_{name}" for name in names)
        raise CellRefused(f"BERTH_KEYSTONE_AUTH_URL is set, and then {variables} are needed")
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
        shown(cell.database),
        shown(cell.placement),
    )
    with housekeeper(settings):
        # Held back until there is somebody who hears them; the housekeeper hears its own.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        keep_freed_memory()
        status = serve_until_stopped(Cell(cell), address, limits)
    if status == 0:
        _log.info("stopped")
    return status
