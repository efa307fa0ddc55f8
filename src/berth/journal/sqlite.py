"""A journal in a SQLite file: the embedded default.

The write-ahead log is flushed to disk at every commit (``synchronous=FULL``), so an append that returned
survives the power cord. An append that did not finish is dropped by SQLite at the next start.

A lock file beside the database tells whether this process owns it. One that does need not look for
writes of others before it reads.
"""

import fcntl
import os
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from berth.journal.journal import Journal, JournalError

_BUSY_TIMEOUT_S: Final = 10


def open_sqlite(path: Path, *, shared: bool) -> Journal:
    """The journal in the file at ``path``, created when missing.

    With ``shared`` other processes that say so too may write to it; without, they are kept out.
    """
    if not path.parent.is_dir():
        raise JournalError(f"cannot create {path}: the folder {path.parent} does not exist")
    lock = _lock(path.with_name(path.name + ".lock"), shared)
    engine = sa.create_engine(
        f"sqlite:///{path}",
        poolclass=sa.pool.StaticPool,
        connect_args={"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False},
    )
    sa.event.listen(engine, "connect", _configure)
    journal = _LockedJournal(engine, lock)
    try:
        journal.prepare()
    except BaseException:
        journal.close()
        raise
    return journal


class _LockedJournal(Journal):
    """A journal that holds its lock file as long as it is open."""

    def __init__(self, engine: sa.Engine, lock: IO[bytes]) -> None:
        super().__init__(engine)
        self._lock = lock

    def close(self) -> None:
        super().close()
        self._lock.close()


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
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
