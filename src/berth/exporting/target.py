"""A Placement database that is filled: empty before, and whole or empty afterwards.

The tables are upstream's own: an operator has made them with ``placement-manage db sync``. All rows are
written in one transaction, a bounded number of them in a statement. An export that is killed has written
nothing. Both sides are counted in the end, before the transaction is committed.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from berth.exporting.rows import LedgerRows
from berth.importing import upstream
from berth.importing.target import count_rows_of
from berth.importing.upstream import (
    TABLES,
    PlacementDatabase,
    RowValues,
    find_schema_problem,
    words_of,
)
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


class Target(PlacementDatabase):
    """Everything that is written becomes durable with ``commit``, or never."""

    def __init__(self, address: Address) -> None:
        if isinstance(address, SqliteAddress):
            raise AddressError("Placement is served from MariaDB, MySQL or PostgreSQL: name one of these")
        super().__init__(address, "primary")
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        problem = find_schema_problem(self.connection)
        if problem is not None:
            raise CannotExport(
                f"the target {problem}. Create a database and its tables with `placement-manage db sync` "
                "of Placement 16.0"
            )
        self.connection.exec_driver_sql("BEGIN")
        if self.kind == "mysql":
            self.connection.exec_driver_sql(_MYSQL_MODE)
        self._refuse_unless_empty()

    def failure(self, error: SQLAlchemyError) -> CannotExport:
        return CannotExport(f"the target answered: {words_of(error)}; nothing was written")

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
                self.execute(_insert(name, some[0]), some)
        self._move_sequences()
        return [
            TableCount(name, expected.get(name, 0), self._count(name) - before)
            for name, before in self._before.items()
        ]

    def commit(self) -> None:
        try:
            self.connection.exec_driver_sql("COMMIT")
        except SQLAlchemyError as error:
            raise CannotExport(
                f"whether the export was written is unknown: {words_of(error)}. Look into the target: it "
                "has everything, or nothing"
            ) from error

    def _move_sequences(self) -> None:
        """Have PostgreSQL choose ids behind those that were written."""
        if self.kind != "postgresql":
            return
        for table in TABLES:
            if "id" in table.columns:
                self.execute(
                    sa.text(
                        f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                        f"coalesce((SELECT max(id) FROM {table.name}), 0) + 1, false)"
                    )
                )

    def _names(self, table: str) -> dict[str, int]:
        rows = self.execute(sa.select(sa.column("name"), sa.column("id")).select_from(sa.table(table)))
        return {row.name: row.id for row in rows}

    def _count(self, table: str) -> int:
        count: int = self.execute(sa.select(sa.func.count()).select_from(sa.table(table))).scalar_one()
        return count


def _insert(table: str, row: RowValues) -> sa.Insert:
    return sa.insert(sa.table(table, *map(sa.column, row)))
