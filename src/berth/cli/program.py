"""The commands of ``berth``. Each is a module with ``add_arguments`` and ``run``."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from berth import __version__
from berth.cli.command import CommandError
from berth.cli.parser import CommandParser
from berth.runtime.settings import SettingsError

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
    ("hosts", "hosts", "list hosts: how they are doing, and how full they are"),
    ("host", "host", "show a host with its providers and who holds them; disable and enable it"),
    ("servers", "servers", "list servers: where they are, and what is wrong with them"),
    ("who", "who", "show who holds a host or a provider, or what a consumer holds"),
    ("why", "why", "explain why a request fits nowhere, or where it would go"),
    ("fit", "why", "count how many more of something fit, and where"),
    ("pools", "pools", "list what hosts share, and how much of it is used"),
    ("doctor", "doctor", "compare servers and migrations with their allocations, and list what is wrong"),
    ("pool", "pool", "list, create, change and delete what hosts share: storage, addresses"),
    ("cluster", "cluster", "create, watch, scale, repair and delete clusters of servers"),
    ("up", "up", "run a region, its cells and a simulated fleet, for a first look"),
    ("sim", "sim", "break or heal a host of the simulated fleet of 'berth up'"),
    ("serve", "serve", "serve the Placement API until stopped (SIGTERM or Ctrl-C)"),
    ("region", "serve", "serve Placement, and servers in cells (--cells), until stopped"),
    ("cell", "cell", "run the conductor of a cell until stopped (SIGTERM or Ctrl-C)"),
    ("agent", "agent", "run the agents of hosts until stopped (SIGTERM or Ctrl-C)"),
    ("inspect", "inspect", "print what discovery finds on this machine, and talk to nobody"),
    ("settings", "settings", "list all settings with their values and where those come from"),
    ("db", "db", "prepare, check or snapshot the database"),
    ("import", "placement_import", "import an existing OpenStack Placement database into an empty one"),
)
"""The name, the module and the summary of each command."""


def run_program(argv: Sequence[str] | None) -> int:
    arguments = make_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        return status
    except (CommandError, SettingsError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough (| head). Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def make_parser() -> CommandParser:
    top = CommandParser(prog="berth", description=_DESCRIPTION, epilog=_EXAMPLES)
    top.add_argument("--version", action="version", version=f"berth {__version__}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for name, module, summary in _COMMANDS:
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.module = module
    return top
