"""A journal in a SQLite file: the embedded default.

The write-ahead log is flushed to disk at every commit (``synchronous=FULL``), so an append that returned
survives the power cord. An append that did not finish is dropped by SQLite at the next start.

A lock file beside the database tells whether this process owns it. One that does need not look for
writes of others before it reads.
"""

import fcntl
import io
import os
import sqlite3
import time
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

import sqlalchemy as sa

from berth.journal.errors import Conflict, JournalError, JournalFailure, NotWritten, RowRefused
from berth.journal.journal import Dialect

_BUSY_TIMEOUT_S: Final = 10
_BUSY_PAUSE_S: Final = 0.02
_REFUSALS: Final = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY))


def sqlite_dialect(path: Path, *, shared: bool | None) -> Dialect:
    """The file at ``path``, created when missing.

    With ``shared`` other processes that say so too may write to it; without, they are kept out. None takes
    no part in that.
    """
    if not path.parent.is_dir():
        raise JournalError(f"cannot create {path}: the folder {path.parent} does not exist")
    lock = _lock(path.with_name(path.name + ".lock"), shared) if shared is not None else io.BytesIO()
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        poolclass=sa.pool.StaticPool,
        connect_args={"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False},
    )
    sa.event.listen(engine, "connect", _configure)
    return Dialect(engine, _meaning, close=lock.close)


def sqlite_reader(path: Path) -> sa.Engine:
    """A file that belongs to another program: nothing in it or beside it is created, set or written."""
    url = sa.URL.create("sqlite", database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})
    return sa.create_engine(url, poolclass=sa.pool.NullPool)


def _meaning(error: BaseException | None) -> type[JournalError]:
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict
    # The extended code's low byte is the primary one.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_TOOBIG:
        return RowRefused
    return NotWritten if code in _REFUSALS else JournalFailure


def _lock(path: Path, shared: bool) -> IO[bytes]:
    try:
        lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "wb")
    except OSError as error:
        raise JournalError(f"cannot open {path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise JournalError(
            f"the database is in use by another process (it holds {path}): stop that one first, "
            "or serve with several workers from one `berth serve --workers N`"
        ) from error
    return lock


def _configure(connection: Any, _: object) -> None:
    # A text that is damaged must not fail here, where nobody knows which row it is of: its checksum tells.
    connection.text_factory = lambda text: text.decode(errors="replace")
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _write_ahead(connection: Any) -> None:
    """Turn the write-ahead log on. SQLite does not wait for others here, as it does everywhere else."""
    deadline_s = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(_BUSY_PAUSE_S)
