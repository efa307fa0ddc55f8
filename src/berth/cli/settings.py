"""Settings on the command line: their options, what is refused before anything starts, and ``berth
settings``.

Options follow from the table of settings; there is no second list. A secret has no option: every user of a
machine can read the command lines of its processes.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Final

from berth.cli.command import (
    CELL_NAME,
    CELL_NAME_IS,
    CELLS_MAX,
    add_json,
    add_options,
    format_value,
    read_options,
)
from berth.journal.database import AddressError, parse_address
from berth.runtime import tracing
from berth.runtime.settings import (
    TABLE,
    Resolved,
    Setting,
    SettingsError,
    cells_of,
    refuse_conflicts,
    resolve,
)


def add_settings(command: argparse.ArgumentParser) -> None:
    """An option for every setting that is not a secret, and ``--config``."""
    command.usage = f"{command.prog} [--config FILE] [--SETTING VALUE ...]"
    command.add_argument("--config", metavar="FILE", help="TOML file of settings [BERTH_CONFIG]")
    add_options(command.add_argument_group("settings"), TABLE)


def resolve_settings(arguments: argparse.Namespace) -> Resolved:
    """The settings of a command, from all their sources; SettingsError if they make no sense."""
    return resolve(arguments.config, os.environ, read_options(arguments, TABLE))


# -- refusals -----------------------------------------------------------------------------------


def refuse_unusable(resolved: Resolved) -> None:
    """SettingsError if nothing can be served with these settings."""
    refuse_conflicts(resolved)
    _refuse_database(resolved, "database", resolved.settings.database)
    _refuse_cells(resolved)
    obstacle = tracing.find_obstacle(resolved.settings.trace_endpoint, os.environ)
    if obstacle is not None:
        origin = resolved.origins.get("trace_endpoint", "default")
        raise SettingsError(f"trace_endpoint: {obstacle} (from {origin})")


def refuse_without_cells(resolved: Resolved) -> None:
    """SettingsError if there is no cell: a region without any has nowhere to put a server."""
    if not resolved.settings.cells:
        raise SettingsError(
            "cells: a region needs at least one, given as NAME=DATABASE: "
            "berth region --cells cell1=sqlite:///cell1.db. 'berth serve' serves Placement without any"
        )


def _refuse_cells(resolved: Resolved) -> None:
    given = resolved.settings.cells
    if len(given) > CELLS_MAX:
        raise _make_refusal(
            resolved, f"{len(given)} of them are refused: {CELLS_MAX} are the most there can be"
        )
    names: set[str] = set()
    databases = {resolved.settings.database: "the region"}
    for cell, (name, database) in zip(given, cells_of(given), strict=True):
        if not database:
            raise _make_refusal(resolved, f"{format_value(cell)!r} is refused: NAME=DATABASE is expected")
        if not CELL_NAME.fullmatch(name):
            raise _make_refusal(resolved, f"{name!r} is refused: a name is {CELL_NAME_IS}")
        if name in names:
            raise _make_refusal(resolved, f"two are named {name!r}: give each its own name")
        names.add(name)
        _refuse_database(resolved, "cells", database)
        owner = databases.setdefault(database, f"the cell {name}")
        if owner != f"the cell {name}":
            raise _make_refusal(
                resolved, f"{name} has the database of {owner}, {format_value(database)!r}: give each its own"
            )


def _refuse_database(resolved: Resolved, setting: str, database: str) -> None:
    try:
        parse_address(database)
    except AddressError as error:
        origin = resolved.origins.get(setting, "default")
        raise SettingsError(
            f"{setting}: {format_value(database)!r} is refused: {error} (from {origin})"
        ) from None


def _make_refusal(resolved: Resolved, problem: str) -> SettingsError:
    return SettingsError(f"cells: {problem} (from {resolved.origins.get('cells', 'default')})")


# -- berth settings, and the page in the guides -------------------------------------------------


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_json(command)
    add_settings(command)


def run(arguments: argparse.Namespace) -> int:
    """List all settings; refuse them if nothing can be served with them."""
    # Imported here: those who serve do not need it.
    from berth.cli.output import Screen, TableColumn, TableView

    resolved = resolve_settings(arguments)
    rows = [
        (setting.name, _show_value(setting, resolved), _format_origin(setting, resolved)) for setting in TABLE
    ]
    if arguments.json:
        listed = [dict(zip(("name", "value", "origin"), row, strict=True)) for row in rows]
        Screen().print_json({"settings": listed})
    else:
        Screen().print(TableView(("setting", TableColumn("value", shrinks=True), "origin"), rows))
    refuse_unusable(resolved)
    return 0


def _show_value(setting: Setting, resolved: Resolved) -> str:
    value = getattr(resolved.settings, setting.name)
    return "(hidden)" if setting.about.secret and value is not None else format_value(value)


def _format_origin(setting: Setting, resolved: Resolved) -> str:
    return resolved.origins.get(setting.name, "default")


_PAGE: Final = """\
# Settings

Every setting can be given in three ways; the later wins:

1. a key in the TOML file named by `--config` (or `BERTH_CONFIG`): `workers = 4`
2. an environment variable: `BERTH_WORKERS=4`
3. an option: `--workers 4`

`berth settings` prints the values in force and where each comes from. A name that is not a setting is
refused, and so is a value outside its range: the message says what was given, what is allowed, and where it
was given. If the environment holds other variables that begin with `BERTH_` (Kubernetes makes some for a
service named berth), rename or remove them.

| setting | default | what it is |
| --- | --- | --- |
"""


_DISCOVERY: Final = """
## Discovery

What `berth agent --discover` and `berth inspect` take, as options or as keys of the TOML file that their
`--config` names; the option wins. [devices.md](devices.md) tells what they do.

| setting | default | what it is |
| --- | --- | --- |
"""


def page() -> str:
    """docs/guides/settings.md (``make docs``)."""
    # Imported here: those who serve do not need it.
    from berth.agent.discovery import settings as discovery

    return _PAGE + _format_rows(TABLE) + _DISCOVERY + _format_rows(discovery.TABLE)


def _format_rows(table: Sequence[Setting]) -> str:
    return "".join(f"| `{s.name}` | {format_value(s.default)} | {_describe_setting(s)} |\n" for s in table)


def _describe_setting(setting: Setting) -> str:
    limits = "" if setting.kind is str and not setting.choices else f"; {setting.allowed}"
    return setting.about.help + limits
