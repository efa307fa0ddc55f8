"""The append-only table in SQL that is the one truth. The only package that knows a database exists."""

from berth.journal.backup import (
    Backup,
    BackupError,
    NotEmpty,
    read_backup,
    restore_backup,
    write_backup,
)
from berth.journal.body import Signature
from berth.journal.database import (
    AccessRefused,
    Address,
    AddressError,
    Conflict,
    Damaged,
    Dialect,
    FileGone,
    JournalError,
    JournalFailure,
    NotWritten,
    Pruned,
    RowRefused,
    SqliteAddress,
    WrittenByNewer,
    parse_address,
)
from berth.journal.journal import Journal
from berth.journal.programs import AttachedProgram, Programs
from berth.journal.schema import JournalRow
from berth.journal.snapshots import DamagedSnapshot, Snapshot, Snapshots

__all__ = [
    "AccessRefused",
    "Address",
    "AddressError",
    "AttachedProgram",
    "Backup",
    "BackupError",
    "Conflict",
    "Damaged",
    "DamagedSnapshot",
    "FileGone",
    "Journal",
    "JournalError",
    "JournalFailure",
    "JournalRow",
    "NotEmpty",
    "NotWritten",
    "Programs",
    "Pruned",
    "RowRefused",
    "Signature",
    "Snapshot",
    "Snapshots",
    "SqliteAddress",
    "WrittenByNewer",
    "connect",
    "open_journal",
    "parse_address",
    "read_backup",
    "restore_backup",
    "write_backup",
]


def open_journal(address: Address, *, shared: bool | None, creates: bool | None = None) -> Journal:
    """The journal at an address, ready to use. ``shared``: other processes write to it too. Where the
    database is a server that is always so; a file can be kept for one process. None: this process appends
    nothing, and does not mind who does. ``creates``: whether a file that is missing is created; None: unless
    there was one before."""
    journal = connect(address, shared=shared, creates=creates)
    try:
        journal.prepare()
    except BaseException:
        journal.close()
        raise
    return journal


def connect(address: Address, *, shared: bool | None, creates: bool | None = None) -> Journal:
    """A way to the journal as it is, prepared or not."""
    return Journal(_dialect(address, shared, creates))


def _dialect(address: Address, shared: bool | None, creates: bool | None) -> Dialect:
    # Each driver is imported only by those who use its database.
    if isinstance(address, SqliteAddress):
        from berth.journal.sqlite import sqlite_dialect

        return sqlite_dialect(address.path, shared=shared, creates=creates)
    if address.kind == "postgresql":
        from berth.journal.postgresql import postgresql_dialect

        return postgresql_dialect(address)
    from berth.journal.mysql import mysql_dialect

    return mysql_dialect(address)
