"""The append-only table in SQL that is the one truth. The only package that knows a database exists."""

from berth.journal.journal import Conflict, Journal, JournalError, JournalFailure
from berth.journal.sqlite import open_sqlite

__all__ = ["Conflict", "Journal", "JournalError", "JournalFailure", "open_sqlite"]
