"""The ``berth`` command: reads what was asked, does it, and ends with 0, or with 2 and one clear message."""

import argparse
import os
import sys
from collections.abc import Sequence

from berth.cli.arguments import given_settings, parser
from berth.cli.listing import render
from berth.cli.refusals import refuse_unusable, refuse_without_cells
from berth.runtime.permissions import keep_files_private
from berth.runtime.sources import Resolved, SettingsError, resolve

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if "config" not in arguments:
        return _run_part(arguments)
    try:
        resolved = resolve(arguments.config, os.environ, given_settings(arguments))
        match arguments.command:
            case "serve":
                return _serve(resolved)
            case "region":
                refuse_without_cells(resolved)
                return _serve(resolved)
            case "db":
                return _db(resolved, arguments.action)
            case "import":
                return _import(
                    resolved, arguments.source, skip_broken=arguments.skip_broken, dry_run=arguments.dry_run
                )
        return _list(resolved)
    except SettingsError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2


def _run_part(arguments: argparse.Namespace) -> int:
    """A command that has no settings of a server."""
    # Everything else of Berth is imported only here, so that help and refusals come at once.
    if arguments.command in ("up", "cell", "agent"):
        keep_files_private()
    match arguments.command:
        case "up":
            from berth.cli.up import run
        case "cell":
            from berth.cli.cell import run
        case "agent":
            from berth.cli.agent import run
        case "sim":
            from berth.cli.sim import run
        case "cluster":
            from berth.cli.cluster import run
        case _:
            from berth.cli.doctor_call import run
    return run(arguments)


def _list(resolved: Resolved) -> int:
    sys.stdout.write(render(resolved))
    refuse_unusable(resolved)
    return 0


def _db(resolved: Resolved, action: str) -> int:
    refuse_unusable(resolved)
    from berth.cli.db import run

    return run(action, resolved.settings)


def _import(resolved: Resolved, source: str | None, *, skip_broken: bool, dry_run: bool) -> int:
    refuse_unusable(resolved)
    from berth.cli.importing import run

    return run(resolved.settings, source, skip_broken=skip_broken, dry_run=dry_run)


def _serve(resolved: Resolved) -> int:
    refuse_unusable(resolved)
    keep_files_private()
    from berth.cli.serve import CannotServe, serve
    from berth.main import application

    try:
        return serve(resolved.settings, application)
    except CannotServe as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
