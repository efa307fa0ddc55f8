"""What settings are refused before anything is started with them: those that do not go together, a database
that cannot be one, and cells that cannot be told apart."""

from berth.cli.arguments import shown
from berth.cli.cell_names import CELL_NAME, CELL_NAME_IS, CELLS_MAX
from berth.journal.addresses import AddressError, parse_address
from berth.runtime.settings import cells_of
from berth.runtime.sources import Resolved, SettingsError, refuse_conflicts


def refuse_unusable(resolved: Resolved) -> None:
    """SettingsError if these settings cannot be served with."""
    refuse_conflicts(resolved)
    _refuse_database(resolved, "database", resolved.settings.database)
    _refuse_cells(resolved)


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
        raise _refusal(resolved, f"{len(given)} of them are refused: {CELLS_MAX} are the most there can be")
    names: set[str] = set()
    databases = {resolved.settings.database: "the region"}
    for cell, (name, database) in zip(given, cells_of(given), strict=True):
        if not database:
            raise _refusal(resolved, f"{shown(cell)!r} is refused: NAME=DATABASE is expected")
        if not CELL_NAME.fullmatch(name):
            raise _refusal(resolved, f"{name!r} is refused: a name is {CELL_NAME_IS}")
        if name in names:
            raise _refusal(resolved, f"two are named {name!r}: give each its own name")
        names.add(name)
        _refuse_database(resolved, "cells", database)
        owner = databases.setdefault(database, f"the cell {name}")
        if owner != f"the cell {name}":
            raise _refusal(
                resolved, f"{name} has the database of {owner}, {shown(database)!r}: give each its own"
            )


def _refuse_database(resolved: Resolved, setting: str, database: str) -> None:
    try:
        parse_address(database)
    except AddressError as error:
        origin = resolved.origins.get(setting, "default")
        raise SettingsError(f"{setting}: {shown(database)!r} is refused: {error} (from {origin})") from None


def _refusal(resolved: Resolved, problem: str) -> SettingsError:
    return SettingsError(f"cells: {problem} (from {resolved.origins.get('cells', 'default')})")
