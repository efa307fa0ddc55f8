"""``berth import``: an existing Placement database, brought over into an empty one of Berth's."""

import os
import sys
from typing import Final

from berth.cli.arguments import shown
from berth.engine import start_view
from berth.importing import (
    CannotImport,
    Findings,
    Progress,
    Source,
    Transcript,
    append_all,
    differs,
    findings_text,
    refuse_unless_empty,
    source_address,
    table_text,
    transcribe,
)
from berth.journal import AddressError, Journal, JournalError, open_journal, parse_address
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings

SOURCE_VARIABLE: Final = "OS_PLACEMENT_DATABASE__CONNECTION"
"""Where Placement looks for its database, if not in a file. A password shows less there than in a flag."""


def run(settings: Settings, url: str | None, *, skip_broken: bool, dry_run: bool) -> int:
    """The exit status: 0 when all was brought over, 1 when not, 2 when what was asked cannot be."""
    url = url or os.environ.get(SOURCE_VARIABLE)
    if url is None:
        print(f"berth: --from or {SOURCE_VARIABLE} must name Placement's database", file=sys.stderr)
        return 2
    try:
        source = Source(source_address(url))
    except AddressError as error:
        print(f"berth: --from: {shown(url)!r} is refused: {error}", file=sys.stderr)
        return 2
    try:
        if dry_run:
            return _dry_run(source)
        # A file is kept from every other process meanwhile.
        journal = open_journal(parse_address(settings.database), shared=False)
        try:
            return _import(source, journal, skip_broken=skip_broken)
        finally:
            journal.close()
    except (CannotImport, JournalError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1


def _dry_run(source: Source) -> int:
    findings, clock = Findings(), SystemClock()
    transcript = _read(source, findings, Progress(clock, sys.stderr), clock)
    sys.stdout.write(findings_text(findings, complete=True) + table_text(transcript, findings, None))
    print("nothing was written")
    return 1 if findings.left_out or differs(transcript, findings, None) else 0


def _import(source: Source, journal: Journal, *, skip_broken: bool) -> int:
    refuse_unless_empty(journal)
    findings, clock = Findings(), SystemClock()
    progress = Progress(clock, sys.stderr)
    transcript = _read(source, findings, progress, clock)
    sys.stdout.write(findings_text(findings, complete=skip_broken))
    if findings.left_out and not skip_broken:
        raise CannotImport("nothing was written. Mend the source, or import what can be with --skip-broken")
    append_all(journal, transcript.batches, Ids(), clock, progress)
    view = start_view(journal)
    sys.stdout.write(table_text(transcript, findings, view))
    if differs(transcript, findings, view):
        raise CannotImport("the two sides differ: do not use the target, and report this as a bug")
    print(f"all is brought over; the journal ends at index {view.index}")
    return 0


def _read(source: Source, findings: Findings, progress: Progress, clock: SystemClock) -> Transcript:
    with source:
        return transcribe(source, findings, progress, clock.now_ns() // 1_000_000_000)
