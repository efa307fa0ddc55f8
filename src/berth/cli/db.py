"""``berth db``: prepare, check or snapshot the database."""

import argparse
import sys

from berth.cli.command import add_action
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
        add_settings(add_action(actions, name, summary))


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when all is well, 1 when something is wrong with the database."""
    resolved = resolve_settings(arguments)
    refuse_unusable(resolved)
    try:
        return _ACTIONS[arguments.action](resolved.settings)
    except JournalError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1


def _upgrade(settings: Settings) -> int:
    """Create what is missing in the database, or bring it up to this program."""
    open_journal(parse_address(settings.database), shared=None, creates=True).close()
    print("the database is ready")
    return 0


def _check(settings: Settings) -> int:
    """List what is wrong with the database."""
    journal = connect(parse_address(settings.database), shared=None, creates=False)
    try:
        found = problems(journal)
        if found:
            print("\n".join(found))
            return 1
        print(f"nothing is wrong; the journal ends at index {journal.tail()}")
        if unverified := journal.unverified():
            print(f"{unverified} entries were written before there were checksums and were not verified")
        return 0
    finally:
        journal.close()


def _snapshot(settings: Settings) -> int:
    """Write a snapshot and prune the journal, now."""
    configure_logging(settings)
    journal = open_journal(parse_address(settings.database), shared=None, creates=False)
    try:
        index = take_snapshot(journal, SystemClock().now_ns(), settings.journal_keep_batches)
        print(f"snapshot {index} is written")
        return 0
    finally:
        journal.close()


_ACTIONS = {"upgrade": _upgrade, "check": _check, "snapshot": _snapshot}
