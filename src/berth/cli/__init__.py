"""The ``berth`` command: reads the command line, runs one command, and returns its exit status.

The status is 0 on success, and 2 with one clear message when the command line, the settings or the
environment cannot be used. Each command is a module with ``add_arguments`` and ``run``; only the module of
the command that was given is imported, so that help comes at once.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from berth import __version__
from berth.cli.command import FORMATTER, CommandError
from berth.runtime.settings import SettingsError

__all__ = ["main"]

_DESCRIPTION: Final = """\
A placement control plane that speaks the OpenStack Placement API."""

_EXAMPLES: Final = """\
examples:
  berth up                                       a region, two cells and a simulated fleet, and what to try
  berth serve                                    on 127.0.0.1:8778, in ./berth.db, every token accepted
  berth serve --listen 0.0.0.0:8778 --auth tokens --tokens-file /etc/berth/tokens.toml
  berth serve --config /etc/berth/berth.toml
  berth region --cells cell1=sqlite:///cell1.db  servers too; each cell is run by a 'berth cell' of its own
  berth import --from mysql://placement:secret@db/placement --database postgresql://berth@db/berth
  berth inspect --dedicated-cpus 4-15            what an agent would report of this machine
  BERTH_WORKERS=4 berth settings                 what would be used, and where it comes from

Settings come from, later wins: defaults, the TOML file of --config (or BERTH_CONFIG), BERTH_* variables,
options. 'workers = 4' in the file, BERTH_WORKERS=4 and --workers 4 are the same.
"""

_COMMANDS: Final = (
    ("db", "db", "prepare, check or snapshot the database"),
    ("serve", "serve", "serve the Placement API until stopped (SIGTERM or Ctrl-C)"),
    ("region", "serve", "serve Placement, and servers in cells (--cells), until stopped"),
    ("settings", "settings", "list all settings with their values and where those come from"),
    ("import", "placement_import", "import an existing OpenStack Placement database into an empty one"),
    ("up", "up", "run a region, its cells and a simulated fleet, for a first look"),
    ("cell", "cell", "run the conductor of a cell until stopped (SIGTERM or Ctrl-C)"),
    ("agent", "agent", "run the agents of hosts until stopped (SIGTERM or Ctrl-C)"),
    ("inspect", "inspect", "print what discovery finds on this machine, and talk to nobody"),
    ("sim", "sim", "break or heal a host of the simulated fleet of 'berth up'"),
    ("doctor", "doctor", "compare servers and migrations with their allocations, and list what is wrong"),
    ("pool", "pool", "list, create, change and delete what hosts share: storage, addresses"),
    ("cluster", "cluster", "create, watch, scale, repair and delete clusters of servers"),
)
"""The name, the module and the summary of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        return status
    except (CommandError, SettingsError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2


class _CommandParser(argparse.ArgumentParser):
    """Gets its arguments from its module when its command is the one that was given."""

    module: str | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.module is not None:
            command = import_module(f"berth.cli.{self.module}")
            self.module = None
            command.add_arguments(self)
            self.set_defaults(run=command.run)
        return super().parse_known_args(args, namespace)


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="berth",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=FORMATTER,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"berth {__version__}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_CommandParser
    )
    for name, module, summary in _COMMANDS:
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=FORMATTER,
            allow_abbrev=False,
        )
        command.module = module
    return top
