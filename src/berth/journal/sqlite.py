"""A journal in a SQLite file: the embedded default.

The write-ahead log is flushed to disk at every commit (``synchronous=FULL``), so an append that returned
survives a power failure. An append that did not finish is dropped by SQLite at the next start.

A lock file beside the database tells whether this process owns it. The owner need not look for writes of
others before it reads. The lock file also records that there was a database: a missing database is not
replaced by an empty one unless the caller says so.

A file that was removed or replaced can be written to for as long as it is open, and all of it is lost. So
before and after each append the path is compared with the file that was opened. Its inode cannot be reused
while it is open.

The files are for their owner alone: journals hold the names and data of all tenants.
"""

import contextlib
import fcntl
import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import sqlalchemy as sa

from berth.journal.database import Conflict, Dialect, JournalError, JournalFailure, NotWritten, RowRefused

_BUSY_TIMEOUT_S: Final = 10
_BUSY_PAUSE_S: Final = 0.02
_SQLITE: Final = b"SQLite format 3\0"
"""How every database of SQLite begins, but for one that nothing was ever written to."""
_MARK: Final = b"There is a database of Berth beside this file.\n"
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_REFUSALS: Final = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY))


def sqlite_dialect(path: Path, *, shared: bool | None, creates: bool | None) -> Dialect:
    """The file at ``path``. One that is missing is created, or not, or (None) unless there was one before.

    With ``shared`` other processes that say so too may write to it; without, they are kept out. None takes
    no part in that.
    """
    if not path.parent.is_dir():
        raise JournalError(f"cannot create {path}: the folder {path.parent} does not exist")
    _refuse_other_files(path)
    lock_path = path.with_name(path.name + ".lock")
    lock = _lock(lock_path, shared) if shared is not None else None
    close = lock.close if lock is not None else lambda: None
    try:
        if not path.exists():
            _create(path, lock_path, creates)
        if lock is not None:
            _make_private(path)
    except BaseException:
        close()
        raise
    file = _OpenFile(path)
    engine = sa.create_engine("sqlite://", creator=file.connect, poolclass=sa.pool.StaticPool)
    sa.event.listen(engine, "close", file.forget)
    return Dialect(
        engine,
        meaning_of,
        missing=file.missing,
        prepared=lambda: _mark(lock) if lock is not None else None,
        close=close,
    )


class _OpenFile:
    """Which file a connection has open, and whether its path still names that one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._paths = (path, path.with_name(path.name + "-wal"))
        self._opened: dict[Path, tuple[int, int]] = {}

    def connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path))}?mode=rw"
        before = _identity(self._path)
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, check_same_thread=False)
        try:
            _configure(connection)
            if before is None or _identity(self._path) != before:
                raise sqlite3.OperationalError(f"{self._path} was replaced while it was being opened")
            self._opened = {self._path: before}
        except BaseException:
            connection.close()
            raise
        return connection

    def forget(self, *_: object) -> None:
        """The connection is closed. SQLite may remove its log then."""
        self._opened = {}

    def missing(self) -> str | None:
        opened = self._opened
        for path in self._paths if opened else ():
            now = _identity(path)
            if now is not None:
                # SQLite makes the log when it is written to for the first time.
                opened.setdefault(path, now)
            if now != opened.get(path):
                what = "gone" if now is None else "replaced by another file"
                return (
                    f"the database cannot be written to: {path} was opened and is {what} now. "
                    "Stop the server, put the file back and start it again"
                )
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create(path: Path, lock_path: Path, creates: bool | None) -> None:
    """An empty file, which is an empty database."""
    if creates is False:
        raise JournalError(f"there is no database at {path}: `berth db upgrade` creates it")
    if creates is None and _was_prepared(lock_path):
        raise JournalError(
            f"{path} is gone, and {lock_path} says that there was a database. Put the file back, from a "
            "backup if need be; `berth db upgrade` creates an empty one"
        )
    with contextlib.suppress(FileExistsError):  # another process was quicker
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            raise JournalError(f"cannot create {path}: {error.strerror}") from error


def _refuse_other_files(path: Path) -> None:
    """A file that is there and is no database, because its name was mistyped, is left as it is: it is not for
    this program to lock it, or to take it from others."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_SQLITE))
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error
    if begins not in (b"", _SQLITE):
        raise JournalError(f"{path} is no SQLite database: name another file. Nothing was changed")


def _was_prepared(lock_path: Path) -> bool:
    try:
        return lock_path.stat().st_size > 0
    except OSError:
        return False


def _mark(lock: IO[bytes]) -> None:
    os.pwrite(lock.fileno(), _MARK, 0)


def _make_private(path: Path) -> None:
    """Take from others what an older Berth has let them read. SQLite gives new files beside it its mode."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            file = path.with_name(name)
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & _OF_OTHERS:
                file.chmod(mode & ~_OF_OTHERS)


def sqlite_reader(path: Path) -> sa.Engine:
    """A file that belongs to another program: nothing in it or beside it is created, set or written."""
    url = sa.URL.create("sqlite", database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})
    return sa.create_engine(url, poolclass=sa.pool.NullPool)


def meaning_of(error: BaseException | None) -> type[JournalError]:
    """What an error of the driver means."""
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


def _configure(connection: sqlite3.Connection) -> None:
    # A text that is damaged must not fail here, where nobody knows which row it is of: its checksum tells.
    connection.text_factory = lambda text: text.decode(errors="replace")
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _write_ahead(connection: sqlite3.Connection) -> None:
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
