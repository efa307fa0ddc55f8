"""The throwaway primary and standby do what tests rely on, and the journal finds the one to write to."""

import contextlib

import pytest
import sqlalchemy as sa

from berth.journal import JournalFailure, connect, open_journal, parse_address
from berth.model.events import Batch
from berth.model.ids import Index
from tests.databases import statements
from tests.databases.standby import Pair


def batch(index: int) -> Batch:
    return Batch(Index(index), f"batch-{index}", 0, ())


def test_a_standby_has_what_was_committed_and_takes_no_writes_until_it_is_promoted(pair: Pair) -> None:
    statements.execute(pair.primary.url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert pair.standby.is_standby()
    with pytest.raises(sa.exc.DBAPIError, match="read-only"):
        statements.execute(pair.standby.url, "INSERT INTO t VALUES (1)")
    with pytest.raises(JournalFailure, match="hot standby"):
        open_journal(parse_address(pair.standby.url), shared=True)
    pair.lose_primary()
    pair.promote()
    assert not pair.primary.is_standby()
    statements.execute(pair.primary.url, "INSERT INTO t VALUES (1)")
    pair.rejoin()
    assert pair.standby.is_standby()
    statements.execute(pair.primary.url, "INSERT INTO t VALUES (2)")
    pair.lose_primary()
    pair.promote()
    assert statements.execute(pair.primary.url, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_a_journal_goes_on_where_its_newest_primary_is(pair: Pair) -> None:
    """Through one journal: the primary, nobody, the promoted one, that one beside the one it has replaced."""
    with contextlib.closing(open_journal(parse_address(pair.url), shared=True)) as journal:
        journal.append(batch(1))
        pair.lose_primary()
        # Once because the connection is dead, once because there is no host for a new one.
        for reason in ("closed the connection", "hot standby"):
            with pytest.raises(JournalFailure, match=reason):
                journal.append(batch(2))
        pair.promote()
        journal.append(batch(2))
        pair.standby.start()
        pair.primary.disconnect("berth")
        with pytest.raises(JournalFailure):
            journal.tail()
        assert journal.tail() == 2
        # Also for one that has not seen how it came about.
        with contextlib.closing(connect(parse_address(pair.url), shared=True)) as other:
            assert other.tail() == 2
        pair.primary.stop()
        for reason in (
            "terminating connection",
            "a stale primary on timeline 1, replaced by one on timeline 2",
        ):
            with pytest.raises(JournalFailure, match=reason):
                journal.tail()
        pair.primary.start()
        assert [found.id for found in journal.read(Index(0))] == ["batch-1", "batch-2"]
