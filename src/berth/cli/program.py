"""The commands of ``berth``. Each is a module with ``add_arguments`` and ``run``."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

from berth import __version__
from berth.cli.command import CommandError, clean
from berth.cli.parser import CommandParser
from berth.runtime.settings import SettingsError

_DESCRIPTION: Final = """\
A placement control plane that speaks the OpenStack Placement API."""

_EXAMPLES: Final = """\
examples:
  berth up                               a region, two cells and a simulated fleet, and what to try
  berth status                           of the region that runs in ./data, or that OS_CLOUD names
  berth why --flavor m1.large --count 3  why it does not fit, and the smallest change that would help
  berth who host-0001                    who holds what there
  berth serve                            Placement on 127.0.0.1:8778, in ./berth.db, every token accepted
  berth region --cells cell1=sqlite:///cell1.db  servers too; each cell is run by a 'berth cell' of its own
  BERTH_WORKERS=4 berth settings         what would be used, and where it comes from

'berth COMMAND --help' tells more. The exit status is 0 if all is well, 1 if something is not well, and 2 if
the request was refused or the region is unreachable.
"""

_LOOK: Final = "look at a region"
_CHANGE: Final = "change it"
_TRY: Final = "try it out"
_SERVE: Final = "run it"
_REST: Final = "set it up"

_COMMANDS: Final = (
    ("status", "status", _LOOK, "show whether everything is well, what is wrong, and what to do about it"),
    ("hosts", "hosts", _LOOK, "list hosts: how they are doing, and how full they are"),
    ("host", "host", _LOOK, "show a host with its providers and who holds them; disable and enable it"),
    ("servers", "servers", _LOOK, "list servers: where they are, and what is wrong with them"),
    ("ops", "ops", _LOOK, "list operations that are under way, and those that failed last"),
    ("op", "op", _LOOK, "show what was done to a server, operation by operation and step by step"),
    ("top", "top", _LOOK, "show the fullest hosts, live"),
    ("who", "who", _LOOK, "show who holds a host or a provider, or what a consumer holds"),
    ("why", "why", _LOOK, "explain why a request fits nowhere, or where it would go"),
    ("fit", "why", _LOOK, "count how many more of something fit, and where"),
    ("log", "log", _LOOK, "show who changed what, when, and by which request"),
    ("cells", "cells", _LOOK, "list cells: whether they can be reached, and what waits for them"),
    ("pools", "pools", _LOOK, "list what hosts share, and how much of it is used"),
    ("doctor", "doctor", _LOOK, "compare servers with their allocations, list what is wrong, repair it"),
    ("drain", "drain", _CHANGE, "have all servers leave a host: the plan first, then one after the other"),
    ("pool", "pool", _CHANGE, "list, create, change and delete what hosts share: storage, addresses"),
    ("cluster", "cluster", _CHANGE, "create, watch, scale, repair and delete clusters of servers"),
    ("up", "up", _TRY, "run a region, its cells and a simulated fleet, for a first look"),
    ("sim", "sim", _TRY, "break or heal a host of the simulated fleet of 'berth up'"),
    ("serve", "serve", _SERVE, "serve the Placement API until stopped (SIGTERM or Ctrl-C)"),
    ("region", "serve", _SERVE, "serve Placement, and servers in cells (--cells), until stopped"),
    ("cell", "cell", _SERVE, "run the conductor of a cell until stopped (SIGTERM or Ctrl-C)"),
    ("agent", "agent", _SERVE, "run the agents of hosts until stopped (SIGTERM or Ctrl-C)"),
    ("settings", "settings", _REST, "list all settings with their values and where those come from"),
    ("db", "db", _REST, "prepare, check, back up or restore the database"),
    (
        "import",
        "placement_import",
        _REST,
        "import an OpenStack Placement database into an empty one",
    ),
    (
        "export",
        "placement_export",
        _REST,
        "export the ledger into an empty OpenStack Placement database",
    ),
    ("inspect", "inspect", _REST, "print what discovery finds on this machine, and talk to nobody"),
    ("completion", "completion", _REST, "print a script that completes commands in bash, zsh or fish"),
    ("man", "man", _REST, "print the manual page of a command, or write all of them"),
)
"""The name, the module, the group in help, and the summary of each command."""


_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_program(argv: Sequence[str] | None) -> int:
    try:
        try:
            arguments = make_parser().parse_args(argv)
            status: int = arguments.run(arguments)
            return status
        finally:
            # What cannot be written is noticed here, and not when Python ends.
            if sys.stdout is not None:
                sys.stdout.flush()
    except (CommandError, SettingsError) as error:
        # The words may be a server's: only what can be printed goes to the terminal.
        print("berth: " + "\n".join(map(clean, str(error).splitlines())), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough (| head).
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _discard_output()
        what = error.filename or "the output"
        print(f"berth: {what} cannot be written: {error.strerror}", file=sys.stderr)
        return 2


def _discard_output() -> None:
    """Python would complain of what is left when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class TopParser(CommandParser):
    """The parser of ``berth`` itself: its help has the commands in groups."""

    def format_help(self) -> str:
        groups = dict.fromkeys(group for _, _, group, _ in _COMMANDS)
        lines = [self.format_usage(), _DESCRIPTION]
        for heading in groups:
            lines += ["", f"{heading}:"]
            lines += [f"  {name:<12}{summary}" for name, _, group, summary in _COMMANDS if group == heading]
        lines += ["", "options:", "  -h, --help  show this help", "  --version   show the version"]
        return "\n".join([*lines, "", _EXAMPLES])


def make_parser() -> CommandParser:
    top = TopParser("berth", description=_DESCRIPTION, epilog=_EXAMPLES)
    top.add_argument("--version", action="version", version=f"berth {__version__}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for name, module, _, summary in _COMMANDS:
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.module = module
    return top
