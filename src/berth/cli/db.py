"""``berth db``: prepare, upgrade, check, snapshot, back up or restore the database."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from berth import __version__
from berth.cli.command import add_action, add_json, format_value, whole
from berth.cli.output import Screen, show_patience
from berth.cli.settings import add_settings, refuse_unusable, resolve_settings
from berth.engine.snapshots import describe, problems, start_view, take_snapshot
from berth.journal import (
    Backup,
    BackupError,
    Journal,
    JournalError,
    NotEmpty,
    Programs,
    connect,
    open_journal,
    parse_address,
    read_backup,
    restore_backup,
    write_backup,
)
from berth.journal.backup import Over
from berth.model.counts import count
from berth.model.events import Origin
from berth.model.formats import FORMAT, THIS_PROGRAM
from berth.model.ids import Index
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.progress import ProgressLine
from berth.runtime.settings import Settings, cells_of
from berth.runtime.telemetry import configure_logging

INDEX_MAX: Final = 2**63 - 1

ACTION: Final = "berth:db upgrade --finish"
"""What the journal says of the row that raises its format."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("upgrade", "create what is missing in the database, or bring it up to this program"),
        ("check", "list what is wrong with the database, if anything is"),
        ("snapshot", "write a snapshot and prune the journal, now"),
    ):
        action = add_action(actions, name, summary)
        if name == "upgrade":
            action.add_argument(
                "--finish",
                action="store_true",
                help="raise the format of the journal to the newest of this release: older releases stop. "
                "This cannot be undone",
            )
        add_json(action)
        add_settings(action)
    for name, summary, more in (
        ("backup", "write all of a database into a file, also while servers use it", "FILE must not exist."),
        ("restore", "write a backup into an empty database", "The kind of database may be another."),
    ):
        action = add_action(actions, name, summary, more)
        action.add_argument("file", metavar="FILE", type=Path)
        index = ""
        if name == "restore":
            index = "[--index N] "
            help = "restore the state at this index, not at the end of the backup"
            action.add_argument("--index", metavar="N", type=whole(1, INDEX_MAX), help=help)
        add_json(action)
        add_settings(action)
        action.usage = f"{action.prog} FILE {index}[--json] [--config FILE] [--SETTING VALUE ...]"
    verify = add_action(actions, "verify", "read a backup to its end, and say what it holds")
    verify.add_argument("file", metavar="FILE", type=Path)
    add_json(verify)


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when all is well, 1 when something is wrong with the database or the file."""
    try:
        outcome = _verify(arguments) if arguments.action == "verify" else _use_database(arguments)
    except JournalError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        Screen().print_json(outcome.data)
    else:
        print(outcome.text)
    return outcome.status


def _use_database(arguments: argparse.Namespace) -> "DatabaseOutcome":
    resolved = resolve_settings(arguments)
    refuse_unusable(resolved)
    settings = resolved.settings
    if arguments.action == "backup":
        return _backup(settings, arguments.file)
    if arguments.action == "restore":
        return _restore(settings, arguments.file, arguments.index)
    with show_patience(f"{arguments.action} of {format_value(settings.database)}"):
        if arguments.action == "upgrade" and arguments.finish:
            return _finish(settings)
        return _ACTIONS[arguments.action](settings)


class DatabaseOutcome(NamedTuple):
    """What was done or found: as JSON, and in words."""

    data: dict[str, Any]
    text: str
    status: int = 0


def _upgrade(settings: Settings) -> DatabaseOutcome:
    """Create what is missing in the database, or bring it up to this program; and say what is left to do."""
    with closing(open_journal(parse_address(settings.database), shared=None, creates=True)) as journal:
        standing = _look(journal)
    return DatabaseOutcome(standing.data, f"the database is ready\n{standing.text}")


def _finish(settings: Settings) -> DatabaseOutcome:
    """Raise the format of the journal, unless somebody would be surprised by it."""
    cells = [f"{name} ({format})" for name, format in _older_cells(settings)]
    if cells:
        raise JournalError(
            f"these cells have an older format than {FORMAT}: {', '.join(cells)}. Finish the upgrade of each "
            "cell's database first, then that of the region's"
        )
    # Shared: nobody who thinks that it has a file for itself may be surprised.
    with closing(open_journal(parse_address(settings.database), shared=True, creates=False)) as journal:
        standing = _look(journal)
        if standing.older:
            raise JournalError(
                f"these programs would stop: {', '.join(standing.older)}. Replace them by Berth "
                f"{__version__} first, or wait two minutes if they have ended. Nothing was changed"
            )
        origin = Origin(Ids().request_id(), None, None, ACTION)
        before = journal.raise_format(origin, Ids().batch_id(), SystemClock().now_ns())
        after = _look(journal)
    if before.format == FORMAT:
        return DatabaseOutcome(after.data, f"nothing to do: the journal has format {FORMAT} already")
    text = f"the journal has format {FORMAT} now: releases before Berth {__version__} do not read it any more"
    return DatabaseOutcome(after.data, text)


class _Standing(NamedTuple):
    """How far an upgrade is: as JSON, in words, and the programs that would stop if it was finished."""

    data: dict[str, Any]
    text: str
    older: list[str]


def _look(journal: Journal) -> _Standing:
    signature, attached = journal.signature(), Programs(journal).attached(SystemClock().now_ns())
    described = [f"Berth {one.program.version}, {one.part}, {one.place}" for one in attached]
    older = [words for one, words in zip(attached, described, strict=True) if one.program.format < FORMAT]
    lines = [f"format {signature.format}; this is {THIS_PROGRAM}"]
    lines += [f"in use by {words}" for words in described]
    if older:
        lines.append(
            f"next: replace what reads only formats before {FORMAT} ({len(older)} of {len(described)})"
        )
    elif signature.format < FORMAT:
        lines.append(
            "next: when every server, cell and region that uses this database is of this release, run "
            "`berth db upgrade --finish`. It cannot be undone: no older release reads the database afterwards"
        )
    data = {
        "ready": True,
        "format": signature.format,
        "format_max": FORMAT,
        "written_by": signature.version or None,
        "programs": [
            {
                "version": one.program.version,
                "format_max": one.program.format,
                "part": one.part,
                "place": one.place,
            }
            for one in attached
        ],
    }
    return _Standing(data, "\n".join(lines), older)


def _older_cells(settings: Settings) -> Iterator[tuple[str, int]]:
    """The cells of a region whose journals have an older format than this program's, with that format."""
    for name, database in cells_of(settings.cells):
        with closing(connect(parse_address(database), shared=None, creates=False)) as journal:
            journal.check()
            format = journal.format()
        if format < FORMAT:
            yield name, format


def _check(settings: Settings) -> DatabaseOutcome:
    """List what is wrong with the database."""
    journal = connect(parse_address(settings.database), shared=None, creates=False)
    try:
        found = problems(journal)
        if found:
            return DatabaseOutcome({"problems": found}, "\n".join(found), 1)
        index, unverified = journal.tail(), journal.unverified()
    finally:
        journal.close()
    text = f"nothing is wrong; the journal ends at index {index}"
    if unverified:
        text += f"\nnot verified, from before there were checksums: {count(unverified, 'entry', 'entries')}"
    return DatabaseOutcome({"problems": [], "index": index, "unverified": unverified}, text)


def _snapshot(settings: Settings) -> DatabaseOutcome:
    """Write a snapshot and prune the journal, now."""
    configure_logging(settings)
    journal = open_journal(parse_address(settings.database), shared=None, creates=False)
    try:
        index = take_snapshot(journal, SystemClock().now_ns(), settings.journal_keep_batches)
        return DatabaseOutcome({"snapshot": index}, f"snapshot {index} is written")
    finally:
        journal.close()


# -- backups ------------------------------------------------------------------------------------


def _backup(settings: Settings, file: Path) -> DatabaseOutcome:
    """Write all of a database into a file."""
    clock = SystemClock()
    journal = connect(parse_address(settings.database), shared=None, creates=False)
    try:
        backup = write_backup(
            journal, file, FORMAT, f"berth {__version__}", clock.now_ns(), _show_progress(clock)
        )
    finally:
        journal.close()
    return _describe_backup(backup, f"{file} is written")


def _verify(arguments: argparse.Namespace) -> DatabaseOutcome:
    """Read a backup to its end."""
    return _describe_backup(_read(arguments.file), f"{arguments.file} is whole")


def _read(file: Path) -> Backup:
    return read_backup(file, _show_progress(SystemClock()))


def _show_progress(clock: SystemClock) -> Over:
    return ProgressLine(clock, sys.stderr).over


def _describe_backup(backup: Backup, words: str) -> DatabaseOutcome:
    head, earliest = backup.head, backup.earliest(FORMAT)
    made_at = datetime.fromtimestamp(head.made_at_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    data = {
        "file": str(backup.path),
        "bytes": backup.size,
        "made_at": made_at,
        "program": head.program,
        "first": head.first,
        "index": head.last,
        "restores_from": earliest,
    }
    text = (
        f"{words}: made by {head.program} at {made_at}, {backup.size:,} bytes; "
        f"it can be restored to any index from {earliest} to {head.last}"
    )
    return DatabaseOutcome(data, text)


def _restore(settings: Settings, file: Path, index: int | None) -> DatabaseOutcome:
    """Write a backup into an empty database. All of the file is read before the database is touched."""
    backup = _read(file)
    last = backup.choose_last(None if index is None else Index(index), FORMAT)
    # A database file is locked against other processes meanwhile.
    journal = open_journal(parse_address(settings.database), shared=False, creates=True)
    try:
        try:
            restore_backup(backup, journal, last, FORMAT, _show_progress(SystemClock()))
        except NotEmpty as error:
            raise BackupError(f"{_describe_database(journal) or error}; nothing was changed") from error
        view = start_view(journal)
    finally:
        journal.close()
    text = f"{file} is restored: {describe(view)}"
    return DatabaseOutcome({"file": str(file), "index": view.index}, text)


def _describe_database(journal: Journal) -> str | None:
    """What is in a database that should be empty; None if no server could start on it."""
    try:
        return f"the database is not empty: {describe(start_view(journal))}. A restore needs an empty one"
    except JournalError:
        return None


_ACTIONS: Final = {"upgrade": _upgrade, "check": _check, "snapshot": _snapshot}
