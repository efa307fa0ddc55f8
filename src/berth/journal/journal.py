"""Append and read batches over SQL.

Policy: ``journal(idx)`` is the primary key, and an append inserts the index it expects, last seen + 1.
If the key is taken, another writer was first: ``Conflict``, and nothing was written. No lock, no leader
and no isolation level is trusted: a unique key is enough. A process that was stopped while its index was
pruned would find the key free; so an append also requires that nothing follows its index, and pruning always
keeps the newest row.

A new connection may lead to another host, which may lack what this process has read or written: a standby
whose primary did not wait for it. There the next append would leave a gap that nobody can read past. So a
connection is used only if the last batch that was seen is there, or others behind it. What was seen may also
have come from another process, which has its connection to the host before. So an append also asks that the
row before it be the one that it follows.

Every row has a checksum that ties it to the row before (``schema``), and whatever is read is verified. The
digest of the row before an append is known from the last row that was read, written or taken over; if that is
another row, it is looked up.

The rejected alternative is a table per noun (providers, inventories, allocations), changed in place
under locks or with compare-and-swap per row. It makes a claim as many statements as it has parts, and
every one of them a place to lose a race.

The journal has a format (``model.formats``), which its rows say, and no row has a lower one than the row
before. A program that meets a row of a format that it does not read stops there: ``WrittenByNewer``. It
cannot have written behind that row, because an append names the row that it follows. ``raise_format`` writes
a row with nothing in it but the next format.

What is different between databases is a ``Dialect``: how to connect, and what an error means. The two
statements that every request may cost, the append and the look at the tail, go to the driver as they are:
SQLAlchemy's part in them would take as long as the driver's.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from berth.journal.body import (
    SIGNATURE_BYTES_MAX,
    Signature,
    decode_entries,
    encode_entries,
    encode_signature,
    find_unknown,
    split_signature,
)
from berth.journal.database import (
    BEGIN_READING,
    STATEMENT_TIMEOUT_S,
    Conflict,
    Damaged,
    Dialect,
    FileGone,
    JournalError,
    JournalFailure,
    NotWritten,
    Pruned,
    Watchdog,
    WrittenByNewer,
)
from berth.journal.schema import (
    JOURNAL,
    JOURNAL_ANCHOR,
    SNAPSHOT_PART,
    VERSION,
    JournalRow,
    check_version,
    create_tables,
    digest_of,
    verify,
    version_of,
)
from berth.model.events import Batch, Entry, Origin
from berth.model.formats import THIS_PROGRAM, Program
from berth.model.ids import Index

T = TypeVar("T")

_FIRST_ROWS: Final = 8
"""How many rows are read without asking first how large they are."""
_CHUNK_ROWS: Final = 1000
ROWS_BYTES: Final = 4 << 20
"""How many rows, and how much of the journal, are read together behind those."""
_ROWS_MAX: Final = 1 << 62

_PREPARE_ATTEMPTS: Final = 20
"""More than there are processes that start together."""

_RAISE_ATTEMPTS: Final = 1000
"""More often than others can be quicker: each of them has a disk to wait for."""

_RECENT: Final = 256

_PROBE_INDEX: Final = -1
_PROBE_BYTES: Final = 16 << 10
"""More than a page of any database: there has to be room for it."""

_TAIL: Final = sa.select(sa.func.coalesce(sa.func.max(JOURNAL.c.idx), 0))
_NEWEST: Final = (
    sa.select(
        JOURNAL.c.idx,
        sa.func.substr(JOURNAL.c.entries, 1, SIGNATURE_BYTES_MAX, type_=sa.LargeBinary()).label("start"),
    )
    .order_by(JOURNAL.c.idx.desc())
    .limit(1)
)
_HEAD: Final = sa.select(sa.func.coalesce(sa.func.min(JOURNAL.c.idx), 1))
_UNVERIFIED: Final = sa.select(sa.func.count()).where(JOURNAL.c.digest.is_(None))
_FROM: Final = (
    sa.select(JOURNAL.c.idx, JOURNAL.c.batch_id)
    .where(JOURNAL.c.idx >= sa.bindparam("index"))
    .order_by(JOURNAL.c.idx)
    .limit(1)
)
_DIGEST: Final = sa.union_all(
    sa.select(JOURNAL.c.digest).where(JOURNAL.c.idx == sa.bindparam("index")),
    sa.select(JOURNAL_ANCHOR.c.digest).where(JOURNAL_ANCHOR.c.idx == sa.bindparam("index")),
)
_SIZES: Final = (
    sa.select(sa.func.length(JOURNAL.c.entries))
    .where(JOURNAL.c.idx > sa.bindparam("after"))
    .order_by(JOURNAL.c.idx)
    .limit(sa.bindparam("count"))
)
_PRUNE: Final = sa.delete(JOURNAL).where(JOURNAL.c.idx <= sa.bindparam("until"))


class Journal:
    """One process's way into the journal. Its methods block; one thread at a time may call them.
    ``program``: the release that the process is of."""

    def __init__(self, dialect: Dialect, program: Program = THIS_PROGRAM) -> None:
        self._dialect = dialect
        self.program = program
        self._engine = dialect.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._connection: sa.Connection | None = None
        # The newest row that was read, written or taken over: its index, the id of its batch, its digest.
        self._seen: tuple[int, str, str | None] | None = None
        # The digests of the last rows, each with its index: who follows the history a few rows behind the end
        # need not look them up.
        self._recent: list[tuple[int, str | None]] = [(0, None)] * _RECENT
        self._watchdog = Watchdog(STATEMENT_TIMEOUT_S) if dialect.interrupt is not None else None
        sql = dialect.engine.dialect
        assert sql.loaded_dbapi is not None, "an engine has loaded its driver"
        self._driver_error: type[Exception] = sql.loaded_dbapi.Error
        mark = "?" if sql.paramstyle == "qmark" else "%s"
        columns = "idx, batch_id, at_ns, entries, digest"
        marks = ", ".join([mark] * 5)
        source = " FROM DUAL" if sql.name in ("mysql", "mariadb") else ""
        self._fill = f"INSERT INTO journal ({columns}) VALUES ({marks})"
        follows = f"SELECT 1 FROM journal WHERE idx = {mark} AND coalesce(digest, '') = {mark}"
        self._append = (
            f"INSERT INTO journal ({columns}) SELECT {marks}{source} "
            f"WHERE NOT EXISTS (SELECT 1 FROM journal WHERE idx > {mark}) "
            f"AND ({mark} = 1 OR EXISTS ({follows}))"
        )
        self._after = f"SELECT {columns} FROM journal WHERE idx > {mark} ORDER BY idx LIMIT {mark}"
        # Whether what is read is the database as it was at one moment: then a connection cannot be replaced.
        self._is_still = False

    def prepare(self) -> None:
        """Create the tables in an empty database; refuse one that a newer program has written.

        Processes that start together all do this. Galera lets one of two win, also where they agree, and the
        other looks again at what is left to do."""
        for attempt in range(1, _PREPARE_ATTEMPTS + 1):
            try:
                self._do(self._create_tables, writes=True)
                break
            except Conflict:
                if attempt == _PREPARE_ATTEMPTS:
                    raise
        self._dialect.prepared()

    def missing(self) -> str | None:
        """Why whatever is appended now would be lost, if it would be."""
        return self._dialect.missing()

    def check(self) -> None:
        """Refuse a database that this program cannot use as it is."""
        self._do(check_version, writes=False)
        self.signature()

    def _create_tables(self, connection: sa.Connection) -> None:
        # Before anything is changed. Tables of another schema are refused, or older than any signature.
        if version_of(connection) == VERSION:
            self._newest_signature(connection)
        create_tables(connection)

    def format(self) -> int:
        """The format of the journal; the newest that this program writes, if there is nothing in it yet."""
        return self.signature().format

    def signature(self) -> Signature:
        """The format of the journal, and the version of the program that wrote its last row. In an empty
        journal it is what this program would write. ``WrittenByNewer`` if it does not read that."""
        found: Signature = self._do(self._newest_signature, writes=False)
        return found

    def _newest_signature(self, connection: sa.Connection) -> Signature:
        row = connection.execute(_NEWEST).first()
        if row is None:
            return Signature(self.program.format, self.program.version)
        try:
            signature, _ = split_signature(row.start)
        except (ValueError, TypeError) as error:
            raise Damaged(f"journal entry {row.idx} cannot be read: {error}") from error
        self.refuse_newer(f"journal entry {row.idx}", signature)
        return signature

    def refuse_newer(self, what: str, signature: Signature) -> None:
        """``WrittenByNewer`` if this program does not read the format of something."""
        if signature.format > self.program.format:
            raise WrittenByNewer(
                f"{what} was written by {signature}; this is Berth {self.program.version}, which reads up to "
                f"format {self.program.format}. Nothing was changed. Install Berth {signature.version} or "
                "newer, or restore a backup from before 'berth db upgrade --finish'"
            )

    def raise_format(self, origin: Origin, batch_id: str, at_ns: int) -> Signature:
        """Bring the journal to the newest format of this program, in a row of its own: from there on older
        programs stop. The signature before."""
        for _ in range(_RAISE_ATTEMPTS):
            before, tail = self.signature(), self.tail()
            if before.format == self.program.format:
                return before
            entries = (Entry(origin, ()),)
            with contextlib.suppress(Conflict):
                self.append(Batch(Index(tail + 1), batch_id, at_ns, entries, format=self.program.format))
                return before
        raise JournalFailure("journal write contention: the format was not raised. Try again")

    def append(self, batch: Batch) -> JournalRow:
        """Write a batch at its index, durably; the row as it was written. ``Conflict`` if the index is taken,
        or was."""
        index, before = batch.index, Index(batch.index - 1)
        previous = self.digest_at(before)
        row = self.row_of(batch, previous)
        if self._insert(self._append, row, index, index, before, previous or "") == 0:
            self._do(self._refuse_another_past, writes=False)
            raise Conflict(f"the journal has entries after index {index}")
        self._see(row)
        return row

    def row_of(self, batch: Batch, previous: str | None) -> JournalRow:
        """The row of a batch, behind the row whose digest is ``previous``. Nothing is written."""
        body = encode_entries(batch.entries) if batch.body is None else batch.body
        body = encode_signature(Signature(batch.format, self.program.version)) + body
        digest = digest_of(previous, batch.index, batch.id, batch.at_ns, body)
        return JournalRow(batch.index, batch.id, batch.at_ns, body, digest)

    def fill(self, *rows: JournalRow) -> None:
        """Write rows at their indices, all or none, whatever follows them: for an import or a restore, which
        write the first row last. ``Conflict`` if an index is taken."""
        values = [(row.index, row.batch_id, row.at_ns, row.body, row.digest) for row in rows]

        def insert(cursor: Any) -> None:
            self._refuse_missing()
            cursor.execute("BEGIN")
            try:
                cursor.executemany(self._fill, values)
                cursor.execute("COMMIT")
            except self._driver_error:
                with contextlib.suppress(self._driver_error):  # the connection may be gone
                    cursor.execute("ROLLBACK")
                raise

        self._with_cursor(insert, writes=True)
        self._refuse_missing()

    def take_over(self, row: JournalRow) -> Batch:
        """The batch that another process has appended, from its row, without asking the database for it."""
        if self._seen is not None and self._seen[0] == row.index - 1:
            verify(self._seen[2], row)
        self._see(row)
        return self._batch_of(row)

    def digest_at(self, index: Index) -> str | None:
        """The digest of the row at an index that is kept, or was the last to be pruned. None where there is
        no such row, or it has none."""
        return next(iter(self._digests(index)), None)

    def _digests(self, index: Index) -> list[str | None]:
        """The digest at an index, as a list: an empty one where there is no such row."""
        if index == 0:
            return [None]
        # Read once: while history is read in one thread, another may take over the next row.
        found, digest = self._recent[index % _RECENT]
        if found == index:
            return [digest]
        return list(self.execute(_DIGEST, {"index": index}).scalars())

    def _see(self, row: JournalRow) -> None:
        self._recent[row.index % _RECENT] = (row.index, row.digest)
        if self._seen is None or self._seen[0] < row.index:
            self._seen = (row.index, row.batch_id, row.digest)

    def _insert(self, statement: str, row: JournalRow, *more: int | str) -> int:
        """How many rows were written: one, or none."""
        values = (row.index, row.batch_id, row.at_ns, row.body, row.digest, *more)

        def insert(cursor: Any) -> int:
            self._refuse_missing()
            cursor.execute(statement, values)
            count: int = cursor.rowcount
            return count

        count = self._with_cursor(insert, writes=True)
        self._refuse_missing()
        return count

    def _refuse_missing(self) -> None:
        missing = self._dialect.missing()
        if missing is not None:
            raise FileGone(missing)

    def read(self, after: Index, count_max: int | None = None) -> Iterator[Batch]:
        """The batches behind ``after``, in order, without a gap; ``Pruned`` where they are not kept,
        ``Damaged`` at one that is not what was written."""
        return map(self._batch_of, self._read_rows(after, count_max, _FIRST_ROWS))

    def read_some(self, after: Index) -> tuple[list[Batch], bool]:
        """The batches behind ``after`` as ``read`` reads them, as far as they fit into memory together; and
        whether they are all."""
        batches = list(self.read(after, _FIRST_ROWS))
        if len(batches) < _FIRST_ROWS:
            return batches, True
        last = batches[-1].index
        count = self._count_small(last, _CHUNK_ROWS)
        batches.extend(map(self._batch_of, self._read_rows(last, count, count)))
        return batches, False

    def read_rows(self, after: Index, until: Index) -> Iterator[JournalRow]:
        """The rows behind ``after`` up to ``until``, as ``read`` reads them; ``Damaged`` if they end
        before."""
        for row in self._read_rows(after, until - after, 0):
            yield row
            after = row.index
        if after < until:
            raise Damaged(f"the journal has no entry {after + 1}")

    def _read_rows(self, after: Index, count_max: int | None, first: int) -> Iterator[JournalRow]:
        """The rows behind an index, verified. Those that are small enough are fetched together. How large
        the ``first`` are is not asked: whoever follows the journal mostly finds one or none."""
        # Before the rows: what is pruned in between then shows as a missing beginning.
        previous = self._digests(after)
        expected = after + 1
        left = _ROWS_MAX if count_max is None else count_max
        count = min(left, first) or self._count_small(after, left)
        while count:
            rows = self._rows_after(expected - 1, count)
            for row in rows:
                if row.index != expected:
                    if expected == after + 1:
                        raise Pruned(after, row.index)
                    raise Damaged(f"the journal has no entry {expected}, but has entry {row.index}")
                if previous:
                    verify(previous[0], row)
                previous = [row.digest]
                yield row
                expected += 1
            if rows:
                self._see(rows[-1])
            if len(rows) < count:
                return
            left -= len(rows)
            count = self._count_small(Index(expected - 1), left)

    def _count_small(self, after: Index, count_max: int) -> int:
        """How many of the rows behind an index are small enough to be read together: those of ``ROWS_BYTES``,
        or one."""
        if not count_max:
            return 0
        sizes = self.execute(_SIZES, {"after": after, "count": min(count_max, _CHUNK_ROWS)}).scalars().all()
        total = count = 0
        for size in sizes:
            total += size
            if count and total > ROWS_BYTES:
                break
            count += 1
        return count

    def find_unknown(self) -> str | None:
        """What of all that is kept this program would skip, in words; None if it reads all of it."""
        index = self.head() - 1
        while count := self._count_small(Index(index), _CHUNK_ROWS):
            rows = self._rows_after(index, count)
            for row in rows:
                signature, body = split_signature(row.body)
                unknown = find_unknown(body)
                if unknown is not None:
                    by = f" (written by {signature})" if signature.version else ""
                    return f"journal entry {row.index}{by} has what this release does not know: {unknown}"
            index = rows[-1].index
        return None

    def head(self) -> Index:
        """The first index that is kept; the first that will be written, if there is none."""
        return Index(self.execute(_HEAD).scalar_one())

    def unverified(self) -> int:
        """How many entries that are kept have no checksum: they were written before there were any."""
        count: int = self.execute(_UNVERIFIED).scalar_one()
        return count

    def tail(self) -> Index:
        """The last index anybody has written."""
        return Index(self.execute(_TAIL).scalar_one())

    def probe(self) -> None:
        """Write something of no meaning and take it back; ``NotWritten`` if the database still refuses to."""
        forget = sa.delete(SNAPSHOT_PART).where(SNAPSHOT_PART.c.idx == _PROBE_INDEX)
        self.execute(forget)
        with contextlib.suppress(Conflict):  # another process tries the same: then it can be done
            row = {"idx": _PROBE_INDEX, "part": 0, "checksum": "", "body": bytes(_PROBE_BYTES)}
            self.execute(sa.insert(SNAPSHOT_PART), row)
        self.execute(forget)

    def prune(self, until: Index) -> None:
        """Forget the batches up to and including an index, but for its digest: the next row follows it."""
        self.keep_digest(until, self.digest_at(until))
        self.execute(_PRUNE, {"until": until})
        self.execute(sa.delete(JOURNAL_ANCHOR).where(JOURNAL_ANCHOR.c.idx < until))

    def keep_digest(self, index: Index, digest: str | None) -> None:
        """Write the digest of the last row that was pruned: the journal begins behind it."""
        with contextlib.suppress(Conflict):  # another process prunes to the same index
            self.execute(sa.insert(JOURNAL_ANCHOR), {"idx": index, "digest": digest})

    @contextlib.contextmanager
    def stand_still(self) -> Iterator[None]:
        """Read the database as it is now, whatever others write and prune meanwhile. Nothing can be written.
        If the connection is lost, all that is read afterwards fails (JournalFailure)."""
        name = self._engine.dialect.name
        statements = BEGIN_READING["mysql" if name == "mariadb" else name]

        def begin(connection: sa.Connection) -> None:
            for statement in statements:
                connection.exec_driver_sql(statement)

        self._do(begin, writes=False)
        self._is_still = True
        try:
            yield
        finally:
            self._is_still = False
            self._drop_connection()

    def _do(self, work: Callable[[sa.Connection], Any], *, writes: bool) -> Any:
        """Use the connection; whatever fails, fails as one of our errors.

        What an error means depends on who gets it. A lock that timed out tells a writer that
        another was first; a reader (on Galera a read waits too) learns only that the database failed it.
        """
        try:
            if self._connection is None:
                if self._is_still:
                    raise JournalFailure("the connection to the database was lost: start again")
                self._connection = self._engine.connect()
                self._watched(self._refuse_another_past, self._connection)
            return self._watched(work, self._connection)
        except DBAPIError as error:
            raise self._failed(error.orig, writes) from error
        except self._driver_error as error:
            raise self._failed(error, writes) from error
        except SQLAlchemyError as error:
            self._drop_connection()
            raise JournalFailure(f"database failure: {error}") from error

    def _failed(self, error: BaseException | None, writes: bool) -> JournalError:
        """What an error of the driver means. A connection that is of no use any more is dropped."""
        meaning = self._dialect.meaning(error) if writes else JournalFailure
        refused = issubclass(meaning, NotWritten) and self._dialect.reconnects_when_refused
        if issubclass(meaning, JournalFailure) or refused:
            self._drop_connection()
        return meaning(f"the database answered: {error}")

    def _refuse_another_past(self, connection: sa.Connection) -> None:
        if self._seen is None:
            return
        index, id, _ = self._seen
        row = connection.execute(_FROM, {"index": index}).first()
        if row is None or (row.idx == index and row.batch_id != id):
            self._drop_connection()
            raise JournalFailure(
                f"journal entry {index} is missing or differs from the one read before: the database was "
                "restored, or a lagging standby took over. Bring back the database that has the entry; to "
                "continue without it, restart all servers"
            )

    def _watched(self, work: Callable[[sa.Connection], Any], connection: sa.Connection) -> Any:
        watchdog, interrupt = self._watchdog, self._dialect.interrupt
        if watchdog is None or interrupt is None:
            return work(connection)
        driver = connection.connection.driver_connection
        watchdog.begin(lambda: interrupt(driver))
        try:
            return work(connection)
        finally:
            watchdog.end()

    def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
        self._drop_connection()
        self._engine.dispose()
        self._dialect.close()

    def execute(self, statement: Any, parameters: dict[str, Any] | None = None) -> sa.CursorResult[Any]:
        """One statement, for what is kept beside the journal."""
        result: sa.CursorResult[Any] = self._do(
            lambda connection: connection.execute(statement, parameters),
            writes=getattr(statement, "is_dml", False),
        )
        return result

    def _rows_after(self, index: int, count: int) -> list[JournalRow]:
        def select(cursor: Any) -> list[JournalRow]:
            cursor.execute(self._after, (index, count))
            return [JournalRow(*row) for row in cursor.fetchall()]

        return self._with_cursor(select, writes=False)

    def _with_cursor(self, use: Callable[[Any], T], *, writes: bool) -> T:
        """Work for the driver itself, past SQLAlchemy."""

        def work(connection: sa.Connection) -> T:
            driver: Any = connection.connection.driver_connection
            cursor = driver.cursor()
            try:
                return use(cursor)
            finally:
                cursor.close()

        done: T = self._do(work, writes=writes)
        return done

    def _batch_of(self, row: JournalRow) -> Batch:
        signature = Signature()
        try:
            signature, body = split_signature(row.body)
            self.refuse_newer(f"journal entry {row.index}", signature)
            entries = decode_entries(body)
        except (msgspec.MsgspecError, zlib.error, ValueError, TypeError, RecursionError) as error:
            # A text that is no UTF-8 is a ValueError, a body that is none of bytes a TypeError.
            by = f" (written by {signature})" if signature.version else ""
            raise Damaged(f"journal entry {row.index}{by} cannot be read: {error}") from error
        return Batch(row.index, row.batch_id, row.at_ns, entries, format=signature.format)

    def _drop_connection(self) -> None:
        """A connection that has failed once is not trusted again, and neither is its host, for now."""
        self._dialect.next_host()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.invalidate()
            connection.close()
