"""A database of OpenStack Placement 16.0, read and never touched.

All of it is read in one read-only transaction that sees the database as it was when it began, whatever
others write meanwhile; readers of such a transaction take no locks. Tables are read in chunks, each beginning
behind the key of the last, so that no statement is long. A database that is not what is expected is refused
before a row is read, with what is wrong.

The rows are named tuples whose fields are the columns of their table; columns not named are not read.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from berth.journal import Address, SqliteAddress, parse_address
from berth.journal.database import BEGIN_READING


class CannotImport(Exception):
    """The import cannot begin or go on. The message is for the operator, and says what to do."""


REVISIONS: Final = ("a082b8bb98d0", "422ece571366")
"""Schemas that can be read, by their alembic revision: that of 16.0, and the one before it, which differs in
nothing but indexes."""

_CHUNK_ROWS: Final = 5000

RowValues = dict[str, Any]
"""What a statement is given, by column or parameter."""

# -- the tables ---------------------------------------------------------------------------------


class SourceName(NamedTuple):
    """A resource class, a trait."""

    id: int
    name: str
    created_at: datetime | None
    updated_at: datetime | None


class SourceType(NamedTuple):
    id: int
    name: str


class SourceOwner(NamedTuple):
    """A project, a user."""

    id: int
    external_id: str


class SourceAggregate(NamedTuple):
    id: int
    uuid: str | None


class SourceProvider(NamedTuple):
    id: int
    uuid: str
    name: str | None
    generation: int | None
    root_provider_id: int | None
    parent_provider_id: int | None
    created_at: datetime | None
    updated_at: datetime | None


class SourceInventory(NamedTuple):
    id: int
    resource_provider_id: int
    resource_class_id: int
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    created_at: datetime | None
    updated_at: datetime | None


class SourceProviderTrait(NamedTuple):
    resource_provider_id: int
    trait_id: int


class SourceProviderAggregate(NamedTuple):
    resource_provider_id: int
    aggregate_id: int


class SourceConsumer(NamedTuple):
    id: int
    uuid: str
    project_id: int
    user_id: int
    generation: int
    consumer_type_id: int | None
    created_at: datetime | None
    updated_at: datetime | None


class SourceAllocation(NamedTuple):
    id: int
    resource_provider_id: int
    consumer_id: str
    resource_class_id: int
    used: int
    created_at: datetime | None
    updated_at: datetime | None


R = TypeVar("R")


class Table(Generic[R]):
    """A table, and how its rows are made. ``key`` is unique and indexed, and rows come in its order."""

    def __init__(
        self,
        name: str,
        columns: tuple[str, ...],
        make: Callable[[Iterable[Any]], R],
        key: tuple[str, ...] = ("id",),
    ) -> None:
        self.name = name
        self.make = make
        self.columns = columns
        self.key_places = tuple(columns.index(name) for name in key)
        # Only times are given a type: SQLite keeps them as text.
        self.table = sa.table(
            name, *(sa.column(name, sa.DateTime() if name.endswith("_at") else None) for name in columns)
        )
        keys = [self.table.c[name] for name in key]
        self.first = sa.select(*self.table.c).order_by(*keys).limit(_CHUNK_ROWS)
        self.following = self.first.where(_behind(keys))


def _behind(keys: list[sa.ColumnClause[Any]], place: int = 0) -> sa.ColumnElement[bool]:
    """Whether a key is greater than the one in k0, k1, ...

    Spelled out, because MySQL uses no index for (a, b) > (x, y).
    """
    first, *others = keys
    value: sa.BindParameter[Any] = sa.bindparam(f"k{place}")
    if not others:
        return first > value
    return sa.or_(first > value, sa.and_(first == value, _behind(others, place + 1)))


RESOURCE_CLASSES: Final = Table("resource_classes", SourceName._fields, SourceName._make)
TRAITS: Final = Table("traits", SourceName._fields, SourceName._make)
CONSUMER_TYPES: Final = Table("consumer_types", SourceType._fields, SourceType._make)
PROJECTS: Final = Table("projects", SourceOwner._fields, SourceOwner._make)
USERS: Final = Table("users", SourceOwner._fields, SourceOwner._make)
AGGREGATES: Final = Table("placement_aggregates", SourceAggregate._fields, SourceAggregate._make)
PROVIDERS: Final = Table("resource_providers", SourceProvider._fields, SourceProvider._make)
INVENTORIES: Final = Table("inventories", SourceInventory._fields, SourceInventory._make)
PROVIDER_TRAITS: Final = Table(
    "resource_provider_traits",
    SourceProviderTrait._fields,
    SourceProviderTrait._make,
    key=("resource_provider_id", "trait_id"),
)
PROVIDER_AGGREGATES: Final = Table(
    "resource_provider_aggregates",
    SourceProviderAggregate._fields,
    SourceProviderAggregate._make,
    key=("resource_provider_id", "aggregate_id"),
)
CONSUMERS: Final = Table("consumers", SourceConsumer._fields, SourceConsumer._make)
ALLOCATIONS: Final = Table("allocations", SourceAllocation._fields, SourceAllocation._make)

TABLES: Final[tuple[Table[Any], ...]] = (
    RESOURCE_CLASSES,
    TRAITS,
    PROVIDERS,
    INVENTORIES,
    PROVIDER_TRAITS,
    AGGREGATES,
    PROVIDER_AGGREGATES,
    PROJECTS,
    USERS,
    CONSUMER_TYPES,
    CONSUMERS,
    ALLOCATIONS,
)

# -- reading ------------------------------------------------------------------------------------

_DRIVER: Final = re.compile(r"\A(\w+)\+\w+://")
_CHARSET: Final = re.compile(r"\?charset=\w+\Z")


def placement_address(url: str) -> Address:
    """Berth's own forms of URL, and what stands in a placement.conf: the driver named there is not used."""
    return parse_address(_CHARSET.sub("", _DRIVER.sub(r"\1://", url)))


class PlacementDatabase:
    """A connection to a Placement database, in one transaction. To be used in a ``with``: what was not
    committed within it is rolled back."""

    def __init__(self, address: Address, of: Literal["primary", "any"]) -> None:
        self.kind: Final = "sqlite" if isinstance(address, SqliteAddress) else address.kind
        self._engine = _engine(address, of)
        self._connection: sa.Connection | None = None

    def begin(self) -> None:
        """Begin the transaction, and refuse a database that is not what is expected."""
        raise NotImplementedError

    def failure(self, error: SQLAlchemyError) -> Exception:
        """What is raised for an error of the database."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            try:
                # Begun by hand: the drivers of a journal commit every statement.
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self.begin()
            except SQLAlchemyError as error:
                raise self.failure(error) from error
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

    @property
    def connection(self) -> sa.Connection:
        assert self._connection is not None, "a database is used in a with"
        return self._connection

    def execute(
        self, statement: sa.Executable, values: RowValues | list[RowValues] | None = None
    ) -> sa.Result[Any]:
        try:
            return self.connection.execute(statement, values)
        except SQLAlchemyError as error:
            raise self.failure(error) from error

    def _close(self) -> None:
        if self._connection is not None:
            # Without a word to the server, which rolls back by itself, and may be gone.
            self._connection.invalidate()
            self._connection.close()
        self._engine.dispose()


class Source(PlacementDatabase):
    """A Placement database at one moment."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, "any")

    def begin(self) -> None:
        for statement in BEGIN_READING[self.kind]:
            self.connection.exec_driver_sql(statement)
        problem = find_schema_problem(self.connection)
        if problem is not None:
            raise CannotImport(f"the source {problem}")

    def failure(self, error: SQLAlchemyError) -> CannotImport:
        return CannotImport(f"cannot read the source: {words_of(error)}")

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        count = sa.func.count
        return {
            table.name: self.execute(sa.select(count()).select_from(table.table)).scalar_one()
            for table in TABLES
        }

    def rows(self, table: Table[R]) -> Iterator[R]:
        """All rows of a table, in the order of its key."""
        found = self.execute(table.first).fetchall()
        while found:
            yield from map(table.make, found)
            if len(found) < _CHUNK_ROWS:
                return
            keys = {f"k{number}": found[-1][place] for number, place in enumerate(table.key_places)}
            found = self.execute(table.following, keys).fetchall()


def words_of(error: SQLAlchemyError) -> str:
    """What the database itself said."""
    return str(getattr(error, "orig", None) or error)


def _engine(address: Address, of: Literal["primary", "any"]) -> sa.Engine:
    # Each driver is imported only by those who use its database.
    if isinstance(address, SqliteAddress):
        from berth.journal.sqlite import sqlite_reader

        return sqlite_reader(address.path)
    if address.kind == "postgresql":
        from berth.journal.postgresql import postgresql_engine

        return postgresql_engine(address, of)
    from berth.journal.mysql import mysql_dialect

    return mysql_dialect(address).engine


def find_schema_problem(connection: sa.Connection) -> str | None:
    """Why a database is not one of Placement 16.0, in words that go on after "the source"; None if it is."""
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names())
    if PROVIDERS.name not in names:
        return (
            "is not a Placement database: it has no table resource_providers. The URL of "
            "Placement's database is the option connection in [placement_database] of placement.conf"
        )
    problem = _find_revision_problem(connection, names)
    if problem is not None:
        return problem
    missing = [table.name for table in TABLES if table.name not in names]
    for table in TABLES:
        if table.name in names:
            columns = {column["name"] for column in inspector.get_columns(table.name)}
            missing += [f"{table.name}.{name}" for name in table.columns if name not in columns]
    if missing:
        return f"lacks tables or columns of a Placement 16.0 database: {', '.join(missing)}"
    return None


def _find_revision_problem(connection: sa.Connection, names: set[str]) -> str | None:
    found = []
    if "alembic_version" in names:
        found = list(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars())
    if len(found) == 1 and found[0] in REVISIONS:
        return None
    revision = ", ".join(map(str, found)) or "none"
    return (
        f"has schema revision {revision}; Berth reads that of Placement 16.0, {REVISIONS[0]}. If it is "
        "older, upgrade it, or a copy of it, with `placement-manage db sync` of Placement 16.0"
    )
