"""The ``berth`` command: reads what was asked, does it, and ends with 0, or with 2 and one clear message."""

import os
import sys
from collections.abc import Sequence

from berth.cli.arguments import given_settings, parser
from berth.cli.listing import render
from berth.runtime.sources import Resolved, SettingsError, refuse_conflicts, resolve

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.command == "demo":
        from berth.cli.demo import demo

        return demo(arguments.listen, arguments.data, arguments.hosts)
    try:
        resolved = resolve(arguments.config, os.environ, given_settings(arguments))
        return _serve(resolved) if arguments.command == "serve" else _list(resolved)
    except SettingsError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2


def _list(resolved: Resolved) -> int:
    sys.stdout.write(render(resolved))
    refuse_conflicts(resolved)
    return 0


def _serve(resolved: Resolved) -> int:
    refuse_conflicts(resolved)
    # Everything else of Berth is imported only here, so that help and refusals come at once.
    from berth.cli.serve import CannotServe, serve
    from berth.main import application

    try:
        return serve(resolved.settings, application)
    except CannotServe as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
