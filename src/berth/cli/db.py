"""``berth db``: prepare, check or snapshot the database."""

import argparse
import sys
from typing import Any, Final, NamedTuple

from berth.cli.command import add_action, add_json, format_value
from berth.cli.output import Screen, show_patience
from berth.cli.settings import add_settings, refuse_unusable, resolve_settings
from berth.engine.snapshots import problems, take_snapshot
from berth.journal import JournalError, connect, open_journal, parse_address
from berth.runtime.clock import SystemClock
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging


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


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when all is well, 1 when something is wrong with the database."""
    resolved = resolve_settings(arguments)
    refuse_unusable(resolved)
    try:
        with show_patience(f"{arguments.action} of {format_value(resolved.settings.database)}"):
            outcome = _ACTIONS[arguments.action](resolved.settings)
    except JournalError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        Screen().print_json(outcome.data)
    else:
        print(outcome.text)
    return outcome.status


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


_ACTIONS: Final = {"upgrade": _upgrade, "check": _check, "snapshot": _snapshot}
