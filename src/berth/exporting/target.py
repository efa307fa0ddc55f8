"""A Placement database that is filled: empty before, and whole or empty afterwards.

The tables are upstream's own: an operator has made them with ``placement-manage db sync``. All rows are
written in one transaction, a bounded number of them in a statement. An export that is killed has written
nothing. Both sides are counted in the end, before the transaction is committed.
"""

from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from berth.exporting.rows import LedgerRows, RowValues
from berth.importing import upstream
from berth.importing.target import count_rows_of
from berth.importing.upstream import TABLES, find_schema_problem, source_address
from berth.journal import Address, AddressError, SqliteAddress
from berth.model.placement import is_custom_name
from berth.runtime.progress import ProgressLine
from berth.view import View

_ROWS_AT_ONCE: Final = 1000
_VOCABULARIES: Final = (upstream.RESOURCE_CLASSES.name, upstream.TRAITS.name)
"""Tables that Placement fills with standard names when it starts."""

_MYSQL_MODE: Final = "SET SESSION sql_mode = 'TRADITIONAL,NO_AUTO_VALUE_ON_ZERO'"
"""The id of the class VCPU is 0, which MySQL would take for "choose one". A text that is too long is an
error."""

target_address = source_address


class CannotExport(Exception):
    """The export cannot be made. The message is for the operator, and says what to do."""


class TableCount(NamedTuple):
    """How many rows of a table the ledger needs, and how many there are in Placement. Standard names that
    Placement had before are counted in neither."""

    table: str
    ledger: int
    placement: int


def differs(counts: Iterable[TableCount]) -> bool:
    return any(one.ledger != one.placement for one in counts)


class Target:
    """To be used in a ``with``: everything that is written becomes durable with ``commit``, or never."""

    def __init__(self, address: Address) -> None:
        if isinstance(address, SqliteAddress):
            raise AddressError("Placement is served from MariaDB, MySQL or PostgreSQL: name one of these")
        self._kind = address.kind
        self._engine = _engine(address)
        self._connection: sa.Connection | None = None
        self._before: dict[str, int] = {}

    def __enter__(self) -> "Target":
        try:
            self._begin()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _begin(self) -> None:
        try:
            # Begun by hand: the drivers of a journal commit every statement.
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            problem = find_schema_problem(self._connection)
            if problem is not None:
                raise CannotExport(
                    f"the target {problem}. Create a database and its tables with `placement-manage db sync` "
                    "of Placement 16.0"
                )
            self._connection.exec_driver_sql("BEGIN")
            if self._kind == "mysql":
                self._connection.exec_driver_sql(_MYSQL_MODE)
        except SQLAlchemyError as error:
            raise _failure(error) from error
        self._refuse_unless_empty()

    def _refuse_unless_empty(self) -> None:
        self._before = {table.name: self._count(table.name) for table in TABLES}
        found = [f"{count:,} {name}" for name, count in self._before.items() if count]
        held = [name for name, count in self._before.items() if count and name not in _VOCABULARIES]
        custom = [name for table in _VOCABULARIES for name in self._names(table) if is_custom_name(name)]
        if held or custom:
            raise CannotExport(
                f"the target is not empty: it has {', '.join(found)}. An export needs the empty tables that "
                "`placement-manage db sync` creates; nothing was changed"
            )

    def write(self, view: View, now_s: int, progress: ProgressLine) -> list[TableCount]:
        """Write all of the ledger; how many rows there are on both sides."""
        classes, traits = map(self._names, _VOCABULARIES)
        rows = LedgerRows(view, classes, traits, now_s)
        expected = count_rows_of(view, rows.class_names, rows.trait_names)
        for name, values in rows.tables():
            remaining = progress.over(name, expected.get(name, 0), values)
            while some := list(islice(remaining, _ROWS_AT_ONCE)):
                self._execute(_insert(name, some[0]), some)
        self._move_sequences()
        return [
            TableCount(name, expected.get(name, 0), self._count(name) - before)
            for name, before in self._before.items()
        ]

    def commit(self) -> None:
        assert self._connection is not None, "a target is used in a with"
        try:
            self._connection.exec_driver_sql("COMMIT")
        except SQLAlchemyError as error:
            raise CannotExport(
                f"whether the export was written is unknown: {_words_of(error)}. Look into the target: it "
                "has everything, or nothing"
            ) from error

    def _move_sequences(self) -> None:
        """Have PostgreSQL choose ids behind those that were written."""
        if self._kind != "postgresql":
            return
        for table in TABLES:
            if "id" in table.columns:
                self._execute(
                    sa.text(
                        f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                        f"coalesce((SELECT max(id) FROM {table.name}), 0) + 1, false)"
                    )
                )

    def _names(self, table: str) -> dict[str, int]:
        rows = self._execute(sa.select(sa.column("name"), sa.column("id")).select_from(sa.table(table)))
        return {row.name: row.id for row in rows}

    def _count(self, table: str) -> int:
        count: int = self._execute(sa.select(sa.func.count()).select_from(sa.table(table))).scalar_one()
        return count

    def _execute(self, statement: Any, values: list[RowValues] | None = None) -> sa.Result[Any]:
        assert self._connection is not None, "a target is used in a with"
        try:
            return self._connection.execute(statement, values)
        except SQLAlchemyError as error:
            raise _failure(error) from error

    def _close(self) -> None:
        if self._connection is not None:
            # What was not committed is rolled back by the server.
            self._connection.invalidate()
            self._connection.close()
        self._engine.dispose()


def _insert(table: str, row: RowValues) -> sa.Insert:
    return sa.insert(sa.table(table, *map(sa.column, row)))


def _failure(error: SQLAlchemyError) -> CannotExport:
    return CannotExport(f"the target answered: {_words_of(error)}; nothing was written")


def _words_of(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error)


def _engine(address: Address) -> sa.Engine:
    # Each driver is imported only by those who use its database.
    assert not isinstance(address, SqliteAddress), "it is refused before"
    if address.kind == "postgresql":
        from berth.journal.postgresql import postgresql_engine

        return postgresql_engine(address, "primary")
    from berth.journal.mysql import mysql_dialect

    return mysql_dialect(address).engine
