"""How the journal lies in its database: the tables, the row of a batch, and the checksum of the row.

``journal`` holds batches, and ``journal_anchor`` the checksum of the last one that was pruned; ``snapshot``
and ``snapshot_part`` hold images of the view, so that a start need not read the journal from its beginning;
``journal_program`` lists the programs that use the journal.
One number, the schema version, says which program the tables are for. A database is created by the first
program that finds it empty, upgraded by ``create_tables``, and refused, untouched, when a newer program has
written it.

``digest`` = blake2b(digest of the row before, index, batch id, time, body). So a byte that changed, a row
that was removed, inserted or exchanged with another shows at the first index where it matters. What this
chain cannot show is a journal that ends too early: nothing follows there that could disagree. Rows that were
written before there were checksums have none. They stand only at the beginning: behind a row with a checksum
every row has one.
"""

import hashlib
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from berth.journal.database import Damaged, JournalError
from berth.model.ids import Index

VERSION: Final = 2

DIGEST_LENGTH: Final = 32
_DIGEST_BYTES: Final = DIGEST_LENGTH // 2

_METADATA = sa.MetaData()

# MySQL's plain BLOB ends at 64 KiB.
_Body = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")

JOURNAL: Final = sa.Table(
    "journal",
    _METADATA,
    sa.Column("idx", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batch_id", sa.String(36), nullable=False),
    sa.Column("at_ns", sa.BigInteger, nullable=False),
    sa.Column("entries", _Body, nullable=False),
    sa.Column("digest", sa.String(DIGEST_LENGTH)),
    mysql_engine="InnoDB",
)

JOURNAL_ANCHOR: Final = sa.Table(
    "journal_anchor",
    _METADATA,
    sa.Column("idx", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.String(DIGEST_LENGTH)),
    mysql_engine="InnoDB",
)

SNAPSHOT: Final = sa.Table(
    "snapshot",
    _METADATA,
    sa.Column("idx", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("parts", sa.Integer, nullable=False),
    sa.Column("at_ns", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(DIGEST_LENGTH)),
    mysql_engine="InnoDB",
)

SNAPSHOT_PART: Final = sa.Table(
    "snapshot_part",
    _METADATA,
    sa.Column("idx", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("checksum", sa.String(64), nullable=False),
    sa.Column("body", _Body, nullable=False),
    mysql_engine="InnoDB",
)

PROGRAM: Final = sa.Table(
    "journal_program",
    _METADATA,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("version", sa.String(40), nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("part", sa.String(100), nullable=False),
    sa.Column("place", sa.String(300), nullable=False),
    sa.Column("seen_at_ns", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)
"""Schema 2 had it not at first. Programs that do not know it do without, so it is no schema of its own."""

_SCHEMA = sa.Table(
    "journal_schema",
    _METADATA,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    mysql_engine="InnoDB",
)


_ADDED: Final = (JOURNAL.c.digest, SNAPSHOT.c.digest)
"""Columns that schema 1 did not have. They are empty in rows that were written before."""

_ENTRIES_BEFORE: Final = "body"
"""The name of ``journal.entries`` in schema 1. It has another one so that the database refuses a program of
schema 1 that still runs after the upgrade: rows without a checksum would damage the chain."""


def create_tables(connection: sa.Connection) -> None:
    """Bring the database to this program's version, from nothing or from an older one."""
    found = version_of(connection)
    if found == VERSION:
        if not sa.inspect(connection).has_table(PROGRAM.name):
            _create(connection, PROGRAM)
        return
    _refuse_newer(found)
    for table in _METADATA.sorted_tables:
        _create(connection, table)
    for column in _ADDED:
        kind = column.type.compile(connection.dialect)
        _alter(connection, column, f"ADD COLUMN {column.name} {kind}")
    # Last: until then older programs write, and from then on none does.
    _alter(connection, JOURNAL.c.entries, f"RENAME COLUMN {_ENTRIES_BEFORE} TO {JOURNAL.c.entries.name}")
    try:
        connection.execute(sa.insert(_SCHEMA), {"version": VERSION})
    except IntegrityError:
        return  # another process did it in the same moment
    connection.execute(sa.delete(_SCHEMA).where(_SCHEMA.c.version < VERSION))


def _create(connection: sa.Connection, table: sa.Table) -> None:
    try:
        # Not create_all: it looks first, and workers that start together would all look first.
        connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
    except (IntegrityError, ProgrammingError):
        # PostgreSQL lets one of two that create the same table at once fail all the same.
        if not sa.inspect(connection).has_table(table.name):
            raise


def _alter(connection: sa.Connection, column: sa.Column[Any], change: str) -> None:
    """Change a table that an older program has made so that it has a column, unless another process was
    quicker."""
    if _has_column(connection, column):
        return
    try:
        connection.execute(sa.text(f"ALTER TABLE {column.table.name} {change}"))
    except DBAPIError:
        if not _has_column(connection, column):
            raise


def _has_column(connection: sa.Connection, column: sa.Column[Any]) -> bool:
    return any(
        found["name"] == column.name for found in sa.inspect(connection).get_columns(column.table.name)
    )


def check_version(connection: sa.Connection) -> None:
    """Refuse a database that is empty, older or newer than this release."""
    found = version_of(connection)
    _refuse_newer(found)
    if found is None:
        raise JournalError(
            "the database is empty: run `berth db upgrade` or `berth serve` to create the tables"
        )
    if found < VERSION:
        raise JournalError(
            f"the database has schema {found}, this release needs {VERSION}: run `berth db upgrade`"
        )


def version_of(connection: sa.Connection) -> int | None:
    """The schema version of the database; None if it has none yet."""
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return None
    version: int | None = connection.execute(sa.select(sa.func.max(_SCHEMA.c.version))).scalar()
    return version


def _refuse_newer(found: int | None) -> None:
    if found is not None and found > VERSION:
        raise JournalError(
            f"the database has schema {found}, this release supports {VERSION}: "
            "use the newer release that wrote it; nothing was changed"
        )


class JournalRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the table holds of one batch. ``digest`` is None where it was written before there were any."""

    index: Index
    batch_id: str
    at_ns: int
    body: bytes
    digest: str | None


def digest_of(previous: str | None, index: int, batch_id: str, at_ns: int, body: bytes) -> str:
    """``previous`` is None before the first row, and behind rows that have no checksum."""
    head = f"{previous or ''} {index} {batch_id} {at_ns} "
    digest = hashlib.blake2b(head.encode(), digest_size=_DIGEST_BYTES)
    digest.update(body)
    return digest.hexdigest()


def verify(previous: str | None, row: JournalRow) -> None:
    """``Damaged`` if the row is not what was written behind the row whose digest is ``previous``."""
    if row.digest is None:
        if previous is None:
            return
        raise Damaged(
            f"journal entry {row.index} is damaged: it has no checksum, and entry {row.index - 1} has one. "
            "Restore the database from a backup"
        )
    try:
        found = digest_of(previous, row.index, row.batch_id, row.at_ns, row.body)
    except TypeError:
        found = None  # SQLite gives a column of any type back as it was put in
    if found != row.digest:
        raise Damaged(
            f"journal entry {row.index} is damaged: its checksum does not match its content and "
            f"entry {row.index - 1}. Restore the database from a backup"
        )
