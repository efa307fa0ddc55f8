"""``berth import``: import an existing Placement database into an empty one of Berth's."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Final, TypeVar

from berth.cli.command import CommandError, add_json, describe, format_value
from berth.cli.output import Screen
from berth.cli.settings import add_settings, refuse_unusable, resolve_settings
from berth.engine import start_view
from berth.importing import (
    CannotImport,
    ConvertedSource,
    ImportFindings,
    PlacementDatabase,
    Source,
    append_all,
    convert_source,
    count_rows,
    differs,
    findings_text,
    placement_address,
    refuse_unless_empty,
    table_text,
)
from berth.journal import Address, AddressError, Journal, JournalError, open_journal, parse_address
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.progress import ProgressLine
from berth.view import View

DATABASE_VARIABLE: Final = "OS_PLACEMENT_DATABASE__CONNECTION"
"""Where Placement looks for its database, if not in a file. A password shows less there than in a flag."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The source is only read.")
    add_settings(command)
    command.usage = (
        "berth import --from URL [--skip-broken] [--dry-run] [--json] [--config FILE] [--SETTING VALUE ...]"
    )
    command.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help=f"Placement's database (sqlite, postgresql, mysql) [{DATABASE_VARIABLE}]",
    )
    command.add_argument(
        "--skip-broken", action="store_true", help="leave out, and list, what cannot be imported"
    )
    command.add_argument("--dry-run", action="store_true", help="read and report, and write nothing")
    add_json(command)


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when all was imported, 1 when not."""
    resolved = resolve_settings(arguments)
    refuse_unusable(resolved)
    source = find_database("--from", arguments.source, Source)
    try:
        if arguments.dry_run:
            return _dry_run(source, as_json=arguments.json)
        # A database file is locked against other processes meanwhile.
        journal = open_journal(parse_address(resolved.settings.database), shared=False)
        try:
            return _import(source, journal, skip_broken=arguments.skip_broken, as_json=arguments.json)
        finally:
            journal.close()
    except (CannotImport, JournalError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1


D = TypeVar("D", bound=PlacementDatabase)


def find_database(flag: str, url: str | None, make: Callable[[Address], D]) -> D:
    """The Placement database that a flag or the variable names."""
    url = url or os.environ.get(DATABASE_VARIABLE)
    if url is None:
        raise CommandError(f"{flag} or {DATABASE_VARIABLE} must name Placement's database")
    try:
        return make(placement_address(url))
    except AddressError as error:
        raise CommandError(f"{flag}: {format_value(url)!r} is refused: {error}") from None


def _dry_run(source: Source, *, as_json: bool) -> int:
    findings, clock = ImportFindings(), SystemClock()
    converted = _read(source, findings, ProgressLine(clock, sys.stderr), clock)
    if as_json:
        _print_json(converted, findings, None)
    else:
        sys.stdout.write(findings_text(findings, complete=True) + table_text(converted, findings, None))
        print("nothing was written")
    return 1 if findings.left_out or differs(converted, findings, None) else 0


def _import(source: Source, journal: Journal, *, skip_broken: bool, as_json: bool) -> int:
    refuse_unless_empty(journal)
    findings, clock = ImportFindings(), SystemClock()
    progress = ProgressLine(clock, sys.stderr)
    converted = _read(source, findings, progress, clock)
    if not as_json:
        sys.stdout.write(findings_text(findings, complete=skip_broken))
    if findings.left_out and not skip_broken:
        if as_json:
            _print_json(converted, findings, None)
        raise CannotImport("nothing was written. Repair the source, or import the rest with --skip-broken")
    append_all(journal, converted.batches, Ids(), clock, progress)
    view = start_view(journal)
    if as_json:
        _print_json(converted, findings, view)
    else:
        sys.stdout.write(table_text(converted, findings, view))
    if differs(converted, findings, view):
        raise CannotImport("the two sides differ: do not use the target, and report this as a bug")
    if not as_json:
        print(f"the import is complete; the journal ends at index {view.index}")
    return 0


def _print_json(converted: ConvertedSource, findings: ImportFindings, view: View | None) -> None:
    Screen().print_json(
        {
            "tables": count_rows(converted, findings, view),
            "left_out": list(findings.left_out.values()),
            "notes": list(findings.notes.values()),
            "index": None if view is None else view.index,
        }
    )


def _read(
    source: Source, findings: ImportFindings, progress: ProgressLine, clock: SystemClock
) -> ConvertedSource:
    with source:
        return convert_source(source, findings, progress, clock.now_ns() // 1_000_000_000)
