"""The words of the command line. Flags follow from the table of settings; there is no second list.

A secret has no flag: every user of a machine can read the command lines of its processes.
"""

import argparse
from typing import Final

from berth import __version__
from berth.cli.arguments_of_parts import add_parts
from berth.cli.cluster_arguments import add_cluster
from berth.runtime.settings import TABLE, Setting, redact_password

_DESCRIPTION: Final = """\
A placement control plane that speaks the OpenStack Placement API."""

_EXAMPLES: Final = """\
examples:
  berth up                                       a region, two cells and a simulated fleet, and what to try
  berth serve                                    on 127.0.0.1:8778, in ./berth.db, believing every token
  berth serve --listen 0.0.0.0:8778 --auth tokens --tokens-file /etc/berth/tokens.toml
  berth serve --config /etc/berth/berth.toml
  berth region --cells cell1=sqlite:///cell1.db  servers too; each cell is run by a 'berth cell' of its own
  berth import --from mysql://placement:secret@db/placement --database postgresql://berth@db/berth
  BERTH_WORKERS=4 berth settings                 what would be used, and where it comes from

Settings come from, later wins: defaults, the TOML file of --config (or BERTH_CONFIG), BERTH_* variables,
flags. 'workers = 4' in the file, BERTH_WORKERS=4 and --workers 4 say the same.
"""

_FORMAT: Final = argparse.RawDescriptionHelpFormatter


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="berth",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=_FORMAT,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"berth {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    database = commands.add_parser("db", help="prepare, check or snapshot the database")
    actions = database.add_subparsers(dest="action", metavar="ACTION", required=True)
    for container, name, summary in (
        (commands, "serve", "serve the Placement API until told to stop (SIGTERM or Ctrl-C)"),
        (commands, "region", "serve Placement and servers in cells (--cells) until told to stop"),
        (commands, "settings", "list all settings with their values and where those come from"),
        (actions, "upgrade", "create what is missing in the database, or bring it up to this program"),
        (actions, "check", "say what is wrong with the database, if anything is"),
        (actions, "snapshot", "write a snapshot and prune the journal, now"),
    ):
        command = container.add_parser(
            name,
            usage=f"berth {name} [--config FILE] [--SETTING VALUE ...]",
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_EXAMPLES,
            formatter_class=_FORMAT,
            allow_abbrev=False,
        )
        command.add_argument("--config", metavar="FILE", help="TOML file of settings [BERTH_CONFIG]")
        _add_flags(command)
    _add_import(commands)
    add_parts(commands)
    add_cluster(commands)
    return top


def _add_import(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    summary = "bring an existing OpenStack Placement database over into an empty one"
    command = commands.add_parser(
        "import",
        usage="berth import --from URL [--skip-broken] [--dry-run] [--config FILE] [--SETTING VALUE ...]",
        help=summary,
        description=summary[0].upper() + summary[1:] + ". The source is only read.",
        formatter_class=_FORMAT,
        allow_abbrev=False,
    )
    command.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help="Placement's database (sqlite, postgresql, mysql) [OS_PLACEMENT_DATABASE__CONNECTION]",
    )
    command.add_argument(
        "--skip-broken", action="store_true", help="leave out, and list, what cannot be brought over"
    )
    command.add_argument("--dry-run", action="store_true", help="read and report, and write nothing")
    command.add_argument("--config", metavar="FILE", help="TOML file of settings [BERTH_CONFIG]")
    _add_flags(command)


def given_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings among the arguments, as texts."""
    given = vars(arguments)
    names = (setting.name for setting in TABLE if setting.name in given)
    return {name: _text(given[name]) for name in names}


def _text(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _add_flags(command: argparse.ArgumentParser) -> None:
    settings = command.add_argument_group("settings")
    for setting in TABLE:
        if setting.about.secret:
            continue
        words = f"{setting.about.help} [{_limits(setting)}]".replace("%", "%%")
        if setting.kind is bool:
            action = argparse.BooleanOptionalAction
            settings.add_argument(setting.flag, action=action, default=argparse.SUPPRESS, help=words)
        else:
            metavar = _metavar(setting)
            settings.add_argument(setting.flag, metavar=metavar, default=argparse.SUPPRESS, help=words)


def _metavar(setting: Setting) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    if setting.kind is int:
        return "N"
    return "A,B,..." if setting.kind is tuple else setting.name.rpartition("_")[2].upper()


def _limits(setting: Setting) -> str:
    limits = f"{setting.about.low} to {setting.about.high}, " if setting.kind is int else ""
    return f"{limits}default {shown(setting.default)}"


def shown(value: object) -> str:
    """A setting's value for people, without the password that it may hold."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(redact_password(item) for item in value)
    return redact_password(str(value))
