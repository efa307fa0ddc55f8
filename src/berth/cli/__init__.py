"""The ``berth`` command: reads what was asked, does it, and ends with 0, or with 2 and one clear message."""

import os
import sys
from collections.abc import Sequence

from berth.cli.arguments import given_settings, parser, shown
from berth.cli.listing import render
from berth.journal.addresses import AddressError, parse_address
from berth.runtime.sources import Resolved, SettingsError, refuse_conflicts, resolve

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.command == "demo":
        from berth.cli.demo import demo

        return demo(arguments.listen, arguments.data, arguments.hosts)
    try:
        resolved = resolve(arguments.config, os.environ, given_settings(arguments))
        if arguments.command == "serve":
            return _serve(resolved)
        if arguments.command == "db":
            return _db(resolved, arguments.action)
        if arguments.command == "import":
            return _import(
                resolved, arguments.source, skip_broken=arguments.skip_broken, dry_run=arguments.dry_run
            )
        return _list(resolved)
    except SettingsError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2


def _list(resolved: Resolved) -> int:
    sys.stdout.write(render(resolved))
    _refuse_unusable(resolved)
    return 0


def _refuse_unusable(resolved: Resolved) -> None:
    """Refuse settings that do not go together, and a database that cannot be one."""
    refuse_conflicts(resolved)
    try:
        parse_address(resolved.settings.database)
    except AddressError as error:
        origin = resolved.origins.get("database", "default")
        url = shown(resolved.settings.database)
        raise SettingsError(f"database: {url!r} is refused: {error} (from {origin})") from None


def _db(resolved: Resolved, action: str) -> int:
    _refuse_unusable(resolved)
    from berth.cli.db import run

    return run(action, resolved.settings)


def _import(resolved: Resolved, source: str | None, *, skip_broken: bool, dry_run: bool) -> int:
    _refuse_unusable(resolved)
    from berth.cli.importing import run

    return run(resolved.settings, source, skip_broken=skip_broken, dry_run=dry_run)


def _serve(resolved: Resolved) -> int:
    _refuse_unusable(resolved)
    # Everything else of Berth is imported only here, so that help and refusals come at once.
    from berth.cli.serve import CannotServe, serve
    from berth.main import application

    try:
        return serve(resolved.settings, application)
    except CannotServe as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
