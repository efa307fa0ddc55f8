"""A journal in PostgreSQL, through psycopg; with several hosts, on a primary with standbys.

Policy: of the hosts that take writes, the one that was promoted last. Standbys are passed over. So is a
primary that was lost and replaced: when it comes back it does not know, takes itself for the primary, and
lacks what has been written since. But a standby begins a new timeline when it is promoted. So of two
primaries the one on the lower timeline was replaced, and one on a lower timeline than was seen before is not
used even where it is alone. (Seen by this process: one that was not running at the time cannot tell. To keep
a replaced primary from coming back is the task of the tool that promotes.) The rejected alternative is
libpq's: the first host that says it is a primary.
"""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import sqlalchemy as sa

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
        "23505",  # unique_violation: the index is taken
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
    )
)
_REFUSED: Final = frozenset(
    (
        "53100",  # disk_full
        "25006",  # read_only_sql_transaction
    )
)
_TOO_LARGE: Final = frozenset(
    (
        "54000",  # program_limit_exceeded: a value of more than a gigabyte
        "08P01",  # protocol_violation: a message longer than the protocol has
    )
)


_NO_ACCESS: Final = frozenset(
    (
        "28P01",  # invalid_password
        "28000",  # invalid_authorization_specification
        "3D000",  # invalid_catalog_name
        "42501",  # insufficient_privilege
    )
)
_NO_ACCESS_WORDS: Final = re.compile(
    'authentication failed|(role|database) ".*" does not exist|no pg_hba.conf entry|permission denied'
    "|is not permitted to log in|Name or service not known|No address associated with hostname"
)
"""Of a connection that is refused the driver has no code, only the words. A server that speaks another
language is waited for."""


_Connection = psycopg.Connection[Any]


def postgresql_dialect(address: ServerAddress) -> Dialect:
    hosts = _PostgresqlHosts(address)
    engine = sa.create_engine("postgresql+psycopg://", creator=hosts.connect, poolclass=sa.pool.NullPool)
    # A primary that is read-only for a while still answers reads, and its journal is current.
    return Dialect(engine, _meaning, reconnects_when_refused=True, interrupt=_interrupt)


def _interrupt(connection: _Connection) -> None:
    """Close the connection under a statement that waits for it: libpq itself has no limit."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)


class _NoWriter(psycopg.OperationalError):
    """None of several hosts takes writes, by what each of them said. ``is_hopeless``: nor will any."""

    def __init__(self, errors: dict[str, psycopg.Error]) -> None:
        said = "; ".join(f"{host}: {error}" for host, error in errors.items())
        super().__init__(f"no host accepts writes; {said}")
        self.is_hopeless = all(_meaning(error) is AccessRefused for error in errors.values())


class _PostgresqlHosts:
    """The hosts of an address, and the highest timeline that any of them was seen on."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._timeline = 0

    def connect(self) -> _Connection:
        """A connection to the host to write to. All are asked, for the last may have replaced the first."""
        if len(self._address.hosts) == 1:
            return _connect(self._address, self._address.hosts, "primary")
        found: _Connection | None = None
        errors: dict[str, psycopg.Error] = {}
        for host in self._address.hosts:
            try:
                connection = self._unless_replaced(host, found)
            except psycopg.Error as error:
                errors[f"{host[0]}:{host[1]}"] = error
                continue
            if found is not None:
                found.close()
            found = connection
        if found is None:
            raise _NoWriter(errors)
        return found

    def _unless_replaced(self, host: tuple[str, int], other: _Connection | None) -> _Connection:
        """A connection to a primary on a higher timeline than the other one's, and on none lower than was
        seen before."""
        connection = _connect(self._address, (host,), "primary")
        try:
            timeline = _timeline(connection)
            if timeline < self._timeline or (other is not None and timeline == self._timeline):
                raise psycopg.OperationalError(
                    f"a stale primary on timeline {timeline}, replaced by one on timeline {self._timeline}. "
                    "Make it a standby of that one; if it was restored on purpose, restart this process"
                )
        except psycopg.Error:
            connection.close()
            raise
        self._timeline = timeline
        return connection


def _timeline(connection: _Connection) -> int:
    """How often a standby was promoted, more or less. The file that is being written has it in its name."""
    with _limited(connection):
        row = connection.execute("SELECT pg_walfile_name(pg_current_wal_lsn())").fetchone()
        connection.rollback()
    assert row is not None, "a function of one value gives one row"
    return int(row[0][:8], 16)


@contextlib.contextmanager
def _limited(connection: _Connection) -> Iterator[None]:
    """Let no wait be longer than a statement may take."""
    timer = threading.Timer(STATEMENT_TIMEOUT_S, _interrupt, (connection,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _connect(address: ServerAddress, hosts: tuple[tuple[str, int], ...], session: str) -> _Connection:
    return psycopg.connect(
        user=address.user,
        password=address.password,
        dbname=address.database,
        host=",".join(host for host, _ in hosts),
        port=",".join(str(port) for _, port in hosts),
        target_session_attrs=session,
        connect_timeout=CONNECT_TIMEOUT_S,
        options=f"-c statement_timeout={STATEMENT_TIMEOUT_S * 1000}",
        tcp_user_timeout=STATEMENT_TIMEOUT_S * 1000,
        # A machine that has lost its power is noticed after ten seconds, not after two hours.
        keepalives_idle=4,
        keepalives_interval=2,
        keepalives_count=3,
        application_name="berth",
    )


def postgresql_engine(address: ServerAddress, session: str) -> sa.Engine:
    """``session``: "primary" passes over hosts that follow another, "any" takes the first that answers."""
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: _connect(address, address.hosts, session),
        poolclass=sa.pool.NullPool,
    )


def _meaning(error: BaseException | None) -> type[JournalError]:
    state = getattr(error, "sqlstate", None)
    if state in _CONFLICTS:
        return Conflict
    if state in _TOO_LARGE:
        return RowRefused
    if state in _REFUSED:
        return NotWritten
    return AccessRefused if _is_access_refused(error, state) else JournalFailure


def _is_access_refused(error: BaseException | None, state: str | None) -> bool:
    if state is not None:
        return state in _NO_ACCESS
    if isinstance(error, _NoWriter):
        return error.is_hopeless
    return isinstance(error, psycopg.OperationalError) and _NO_ACCESS_WORDS.search(str(error)) is not None
