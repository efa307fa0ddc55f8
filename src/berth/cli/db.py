"""``berth db``: what an operator does to the database itself."""

import sys

from berth.engine.housekeeping import problems, take_snapshot
from berth.journal import JournalError, connect, open_journal, parse_address
from berth.runtime.clock import SystemClock
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging


def upgrade(settings: Settings) -> int:
    """Create what is missing in the database, or bring it up to this program."""
    open_journal(parse_address(settings.database), shared=None, creates=True).close()
    print("the database is ready")
    return 0


def check(settings: Settings) -> int:
    """Say what is wrong with the database; the status tells whether anything is."""
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


def snapshot(settings: Settings) -> int:
    """Write a snapshot and prune the journal, now."""
    configure_logging(settings)
    journal = open_journal(parse_address(settings.database), shared=None, creates=False)
    try:
        index = take_snapshot(journal, SystemClock().now_ns(), settings.journal_keep_batches)
        print(f"snapshot {index} is written")
        return 0
    finally:
        journal.close()


ACTIONS = {"upgrade": upgrade, "check": check, "snapshot": snapshot}


def run(action: str, settings: Settings) -> int:
    try:
        return ACTIONS[action](settings)
    except JournalError as error:
        print(f"berth: {error}", file=sys.stderr)
        return 1
