"""A standby takes over that had not received everything: nothing is written where there would be a gap."""

import contextlib

import pytest

from berth.journal import JournalFailure, open_journal, parse_address
from berth.model.events import Batch
from berth.model.ids import Index
from tests.databases.standby import Pair


def batch(index: int) -> Batch:
    return Batch(Index(index), f"batch-{index}", 0, ())


def test_a_host_that_lacks_what_was_acknowledged_is_not_used(pair: Pair) -> None:
    """The primary does not wait for its standby, which is away for the last write."""
    with contextlib.closing(open_journal(parse_address(pair.url), shared=True)) as journal:
        journal.append(batch(1))
        pair.primary.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        pair.primary.execute("SELECT pg_reload_conf()")
        pair.standby.kill()
        journal.append(batch(2))
        pair.lose_primary()
        pair.standby.start()
        pair.promote()
        with pytest.raises(JournalFailure):
            journal.tail()
        with pytest.raises(JournalFailure, match="entry 2 is missing or differs"):
            journal.append(batch(3))
        with pytest.raises(JournalFailure, match="entry 2 is missing or differs"):
            list(journal.read(Index(2)))
    # One that starts anew takes the database as it is.
    with contextlib.closing(open_journal(parse_address(pair.url), shared=True)) as journal:
        journal.append(batch(2))
