"""``berth db``: prepare, check, snapshot, back up or restore the database."""

import argparse
import sys
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
    connect,
    open_journal,
    parse_address,
    read_backup,
    restore_backup,
    write_backup,
)
from berth.journal.backup import Over
from berth.model.ids import Index
from berth.runtime.clock import SystemClock
from berth.runtime.progress import ProgressLine
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging
from berth.view.snapshot import FORMAT

INDEX_MAX: Final = 2**63 - 1


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("upgrade", "create what is missing in the database, or bring it up to this program"),
        ("check", "list what is wrong with the database, if anything is"),
        ("snapshot", "write a snapshot and prune the journal, now"),
    ):
        action = add_action(actions, name, summary)
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
        return _ACTIONS[arguments.action](settings)


class DatabaseOutcome(NamedTuple):
    """What was done or found: as JSON, and in words."""

    data: dict[str, Any]
    text: str
    status: int = 0


def _upgrade(settings: Settings) -> DatabaseOutcome:
    """Create what is missing in the database, or bring it up to this program."""
    open_journal(parse_address(settings.database), shared=None, creates=True).close()
    return DatabaseOutcome({"ready": True}, "the database is ready")


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
        text += f"\n{unverified} entries were written before there were checksums and were not verified"
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
