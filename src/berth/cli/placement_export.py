"""``berth export``: write the ledger into an empty Placement database."""

import argparse
import sys

from berth.cli.command import add_json, describe
from berth.cli.output import Screen, TableColumn, TableView
from berth.cli.placement_import import DATABASE_VARIABLE, find_database
from berth.cli.settings import add_settings, refuse_unusable, resolve_settings
from berth.engine import start_view
from berth.exporting import CannotExport, TableCount, Target, count_unplaced, differs
from berth.journal import JournalError, open_journal, parse_address
from berth.runtime.clock import SystemClock
from berth.runtime.progress import ProgressLine
from berth.view import View


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "Its tables are made by 'placement-manage db sync' of Placement 16.0. Berth's own database is only "
        "read.",
    )
    add_settings(command)
    command.usage = "berth export --to URL [--json] [--config FILE] [--SETTING VALUE ...]"
    command.add_argument(
        "--to",
        dest="target",
        metavar="URL",
        help=f"an empty database of Placement (postgresql, mysql) [{DATABASE_VARIABLE}]",
    )
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when all was exported, 1 when not."""
    resolved = resolve_settings(arguments)
    refuse_unusable(resolved)
    target = find_database("--to", arguments.target, Target)
    clock = SystemClock()
    try:
        view = _read_view(resolved.settings.database)
        with target:
            counts = target.write(view, clock.now_ns() // 1_000_000_000, ProgressLine(clock, sys.stderr))
            if differs(counts):
                raise CannotExport(
                    f"the two sides differ, nothing was written: {counts}. Report this as a bug"
                )
            target.commit()
    except (CannotExport, JournalError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1
    _show(view, counts, as_json=arguments.json)
    return 0


def _read_view(database: str) -> View:
    journal = open_journal(parse_address(database), shared=None, creates=False)
    try:
        return start_view(journal)
    finally:
        journal.close()


def _show(view: View, counts: list[TableCount], *, as_json: bool) -> None:
    unplaced = count_unplaced(view)
    if as_json:
        tables = [one._asdict() for one in counts]
        Screen().print_json({"tables": tables, "no_place": unplaced, "index": view.index})
        return
    columns = ("table", TableColumn("in Berth", is_number=True), TableColumn("in Placement", is_number=True))
    rows = [(one.table, f"{one.ledger:,}", f"{one.placement:,}") for one in counts]
    Screen().print(TableView(columns, rows))
    if unplaced:
        print("no place in Placement, and not exported:")
        for words, count in unplaced.items():
            print(f"  {count:,} {words}")
    print(f"the export is complete: the ledger at index {view.index}")
