"""A journal in MariaDB or MySQL; with several hosts, in a Galera cluster.

The hosts are tried in the order given, beginning with the one that last worked. On Galera a read waits until
the node has applied what the cluster had committed when it arrived (``wsrep_sync_wait``), so that a worker on
one node sees what another has written through the next. A node that has lost the majority refuses, and the
next host is tried.
"""

import socket
from typing import Any, Final

import pymysql
import sqlalchemy as sa
from pymysql.cursors import Cursor

from berth.journal.database import (
    CONNECT_TIMEOUT_S,
    STATEMENT_TIMEOUT_S,
    AccessRefused,
    Conflict,
    Dialect,
    JournalError,
    JournalFailure,
    NotWritten,
    RowRefused,
    ServerAddress,
)

_CONFLICTS: Final = frozenset(
    (
        1062,  # duplicate entry: the index is taken
        1205,  # lock wait timeout: another append holds the index
        1213,  # deadlock, or on Galera: certification failed, another node was first
        3101,  # the same, as MySQL group replication says it
    )
)
_REFUSED: Final = frozenset(
    (
        1021,  # disk full
        1114,  # table full
        1290,  # the server runs read-only
        1792,  # a read-only transaction
        1836,  # read-only mode
    )
)
_NO_ACCESS: Final = frozenset(
    (
        1044,  # no rights to the database
        1045,  # wrong user or password
        1049,  # unknown database
        1142,  # no rights to a table
        1698,  # wrong user or password, as a plugin says it
    )
)
_TOO_LARGE: Final = 1153
"""The statement is larger than max_allowed_packet."""
_UNKNOWN_VARIABLE: Final = 1193
_NOT_READY: Final = 1047


def mysql_dialect(address: ServerAddress) -> Dialect:
    hosts = _MysqlHosts(address)
    engine = sa.create_engine("mysql+pymysql://", creator=hosts.connect, poolclass=sa.pool.NullPool)
    return Dialect(engine, _meaning, next_host=hosts.turn, reconnects_when_refused=True)


class _Cursor(Cursor):  # type: ignore[misc]
    """Refuses a statement that the server would not accept. The server itself may close the connection in the
    middle of it, and that looks like an outage."""

    def execute(self, query: str, args: object = None) -> int:
        statement = self.mogrify(query, args)
        # Bytes are one character each in it; one more says what kind of packet it is.
        if len(statement) + 1 > self.connection.max_allowed_packet:
            raise pymysql.OperationalError(
                _TOO_LARGE,
                f"a statement of {len(statement)} bytes is larger than max_allowed_packet, "
                f"{self.connection.max_allowed_packet} bytes",
            )
        count: int = super().execute(statement)
        return count


class _MysqlHosts:
    """The hosts of an address, and which of them is next."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._next = 0

    def turn(self) -> None:
        self._next = (self._next + 1) % len(self._address.hosts)

    def connect(self) -> Any:
        """A connection to the first host that answers, from the next one on."""
        last: pymysql.Error | None = None
        passing: pymysql.Error | None = None
        for _ in self._address.hosts:
            host, port = self._address.hosts[self._next]
            try:
                return self._connect(host, port)
            except pymysql.Error as error:
                last = error
                if _meaning(error) is not AccessRefused:
                    passing = error
                self.turn()
        assert last is not None, "an address has at least one host"
        # Of several hosts one that may come back is worth waiting for.
        raise passing or last

    def _connect(self, host: str, port: int) -> Any:
        connection = pymysql.connect(
            host=host,
            port=port,
            user=self._address.user,
            password=self._address.password or "",
            database=self._address.database,
            charset="utf8mb4",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=STATEMENT_TIMEOUT_S,
            write_timeout=STATEMENT_TIMEOUT_S,
            autocommit=True,
            cursorclass=_Cursor,
        )
        try:
            with connection.cursor() as cursor:
                # An append looks behind its index. At the default level the look would lock others out.
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute("SELECT @@max_allowed_packet")
                [connection.max_allowed_packet] = cursor.fetchone()
                _wait_for_the_cluster(cursor)
                _refuse_minority(cursor)
        except pymysql.Error:
            connection.close()
            raise
        return connection


def _wait_for_the_cluster(cursor: Any) -> None:
    """Have reads wait for what was committed elsewhere; a server that is no part of a cluster knows no such
    thing."""
    try:
        cursor.execute("SET SESSION wsrep_sync_wait = 1")
    except pymysql.Error as error:
        if error.args[0] != _UNKNOWN_VARIABLE:
            raise


def _refuse_minority(cursor: Any) -> None:
    """A node that has lost the majority lets one in, and refuses everything else."""
    cursor.execute("SHOW STATUS LIKE 'wsrep_cluster_status'")
    status = cursor.fetchone()
    if status is not None and status[1] == "non-Primary":
        raise pymysql.OperationalError(_NOT_READY, "the node is not in the cluster's primary component")


def _meaning(error: BaseException | None) -> type[JournalError]:
    number = error.args[0] if error is not None and error.args else None
    if number in _CONFLICTS:
        return Conflict
    if number == _TOO_LARGE:
        return RowRefused
    if number in _REFUSED:
        return NotWritten
    return AccessRefused if number in _NO_ACCESS or _is_unknown_host(error) else JournalFailure


def _is_unknown_host(error: BaseException | None) -> bool:
    cause = getattr(error, "original_exception", None)
    return isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
