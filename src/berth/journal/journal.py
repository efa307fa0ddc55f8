"""Append and read batches over SQL.

Policy: ``journal(idx)`` is the primary key, and an append inserts the index it expects, last seen + 1.
If the key is taken, another writer was first: ``Conflict``, and nothing was written. No lock, no leader
and no isolation level is trusted: a unique key is enough.

The rejected alternative is a table per noun (providers, inventories, allocations), changed in place
under locks or with compare-and-swap per row. It makes a claim as many statements as it has parts, and
every one of them a place to lose a race.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from berth.model.batches import Batch, Entry
from berth.model.ids import Index

SCHEMA_VERSION: Final = 1
"""What this program writes and reads. A database with a newer one is refused, and left untouched."""

_READ_BATCHES: Final = 1000

_METADATA = sa.MetaData()

_JOURNAL = sa.Table(
    "journal",
    _METADATA,
    sa.Column("idx", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batch_id", sa.String(36), nullable=False),
    sa.Column("at_ns", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

_SCHEMA = sa.Table(
    "journal_schema",
    _METADATA,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)


class JournalError(Exception):
    """The root of everything that is wrong with a journal."""


class Conflict(JournalError):
    """Another writer has taken the index; nothing was written."""


class JournalFailure(JournalError):
    """The database did not do its part. Whether an append got in is unknown until it is read again."""


class Journal:
    """One process's way into the journal. Its methods block; they may be called from any one thread at a
    time."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._connection: sa.Connection | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(tuple[Entry, ...])
        self._insert = sa.insert(_JOURNAL)
        self._after = (
            sa.select(_JOURNAL.c.idx, _JOURNAL.c.batch_id, _JOURNAL.c.at_ns, _JOURNAL.c.body)
            .where(_JOURNAL.c.idx > sa.bindparam("after"))
            .order_by(_JOURNAL.c.idx)
            .limit(_READ_BATCHES)
        )
        self._tail = sa.select(sa.func.coalesce(sa.func.max(_JOURNAL.c.idx), 0))

    def prepare(self) -> None:
        """Create the tables in an empty database; refuse one that a newer program has written."""
        try:
            found = self._schema_version()
            if found is None:
                for table in _METADATA.sorted_tables:
                    # Not create_all: it looks first, and workers that start together would all look first.
                    self._execute(sa.schema.CreateTable(table, if_not_exists=True))
                self._execute(sa.insert(_SCHEMA), {"version": SCHEMA_VERSION})
                return
        except IntegrityError:
            return  # another process prepared it in the same moment
        except DBAPIError as error:
            raise self._failed(error) from error
        if found > SCHEMA_VERSION:
            raise JournalError(
                f"the database has journal schema {found}, this program knows {SCHEMA_VERSION}: "
                "use the newer program that wrote it; nothing was changed"
            )

    def _schema_version(self) -> int | None:
        """What the database says it is; None where it says nothing yet."""
        if not sa.inspect(self._engine).has_table(_SCHEMA.name):
            return None
        version: int | None = self._execute(sa.select(_SCHEMA.c.version)).scalar()
        return version

    def append(self, batch: Batch) -> None:
        """Write a batch at its index, durably; ``Conflict`` if the index is taken."""
        row = {
            "idx": batch.index,
            "batch_id": batch.id,
            "at_ns": batch.at_ns,
            "body": self._encoder.encode(batch.entries),
        }
        try:
            self._execute(self._insert, row)
        except IntegrityError as error:
            raise Conflict(f"journal index {batch.index} is taken") from error
        except DBAPIError as error:
            raise self._failed(error) from error

    def read(self, after: Index) -> Iterator[Batch]:
        """All batches behind ``after``, in order, without a gap."""
        expected = after + 1
        while True:
            try:
                rows: Sequence[Any] = self._execute(self._after, {"after": expected - 1}).fetchall()
            except DBAPIError as error:
                raise self._failed(error) from error
            for idx, batch_id, at_ns, body in rows:
                if idx != expected:
                    raise JournalError(f"the journal has no index {expected}, but has {idx} behind it")
                yield Batch(Index(idx), batch_id, at_ns, self._decode(idx, body))
                expected += 1
            if len(rows) < _READ_BATCHES:
                return

    def tail(self) -> Index:
        """The last index anybody has written."""
        try:
            return Index(self._execute(self._tail).scalar_one())
        except DBAPIError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._drop_connection()
        self._engine.dispose()

    def _decode(self, idx: int, body: bytes) -> tuple[Entry, ...]:
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise JournalError(f"journal entry {idx} cannot be read: {error}") from error

    def _execute(self, statement: Any, parameters: dict[str, Any] | None = None) -> sa.CursorResult[Any]:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection.execute(statement, parameters)

    def _failed(self, error: DBAPIError) -> JournalFailure:
        # A connection that has failed once is not trusted again.
        self._drop_connection()
        return JournalFailure(f"the database failed: {error.orig}")

    def _drop_connection(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.invalidate()
            connection.close()
