"""A journal in PostgreSQL, through psycopg. Of several hosts the one that takes writes is chosen by libpq."""

import contextlib
import os
import socket
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from berth.journal.addresses import ServerAddress
from berth.journal.errors import Conflict, JournalError, JournalFailure, NotWritten
from berth.journal.journal import STATEMENT_TIMEOUT_S, Dialect

_CONNECT_TIMEOUT_S: Final = 3

_FIRST: Final = frozenset(
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


def postgresql_dialect(address: ServerAddress) -> Dialect:
    # A primary that is read-only for a while still answers reads, and its journal is current.
    return Dialect(
        postgresql_engine(address, "primary"), _meaning, reconnects_when_refused=True, interrupt=_interrupt
    )


def _interrupt(connection: psycopg.Connection[Any]) -> None:
    """Close the connection under whoever waits on it: libpq itself waits without an end."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)


def postgresql_engine(address: ServerAddress, session: str) -> sa.Engine:
    """``session``: "primary" passes over hosts that follow another, "any" takes the first that answers."""
    url = sa.URL.create(
        "postgresql+psycopg", username=address.user, password=address.password, database=address.database
    )
    return sa.create_engine(
        url,
        poolclass=sa.pool.NullPool,
        connect_args={
            "host": ",".join(host for host, _ in address.hosts),
            "port": ",".join(str(port) for _, port in address.hosts),
            "target_session_attrs": session,
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "options": f"-c statement_timeout={STATEMENT_TIMEOUT_S * 1000}",
            "tcp_user_timeout": STATEMENT_TIMEOUT_S * 1000,
            # A machine that has lost its power is noticed after ten seconds, not after two hours.
            "keepalives_idle": 4,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "application_name": "berth",
        },
    )


def _meaning(error: BaseException | None) -> type[JournalError]:
    state = getattr(error, "sqlstate", None)
    if state in _FIRST:
        return Conflict
    return NotWritten if state in _REFUSED else JournalFailure
