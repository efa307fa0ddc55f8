"""What the journal has to know of a database: its address, its errors, and how it differs from others.

Addresses are URLs: which engine, which hosts, which database.

sqlite:///berth.db                                    a file, relative; four slashes: absolute
postgresql://user:password@host:5432/berth            one host, or several to try in turn:
mysql://user:password@h1:3306,h2:3306,h3:3306/berth   a Galera cluster (mariadb:// is the same)

Errors are named by their consequence for the writer. Each database has one module that maps the errors of its
driver to them and returns a ``Dialect``.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import sqlalchemy as sa

from berth.model.ids import Index

CONNECT_TIMEOUT_S: Final = 3
STATEMENT_TIMEOUT_S: Final = 10
"""How long a statement may take before the database counts as gone."""

BEGIN_READING: Final = {
    "sqlite": ("PRAGMA query_only = ON", "BEGIN"),
    "postgresql": ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    "mysql": (
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ),
}
"""How a transaction begins that sees the database as it was at one moment, and takes no locks."""

DEFAULT_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_ALIASES: Final = {"postgres": "postgresql", "mariadb": "mysql"}
_WATCH_EVERY_S: Final = 1.0


class JournalError(Exception):
    """The root of everything that is wrong with a journal; by itself: it cannot be used, and a person must
    look at it."""


class Damaged(JournalError):
    """An entry is not what was written. The message names its index; a person must restore the database."""


class WrittenByNewer(JournalError):
    """A newer release of Berth has written this, in a format that this program does not read. Nothing was
    changed."""


class Conflict(JournalError):
    """Another writer was first; nothing was written. Read what it wrote, and decide anew."""


class NotWritten(JournalError):
    """The database refuses to write (its disk is full, it is read-only), and nothing was written."""


class RowRefused(NotWritten):
    """The database takes no row of this size, and nothing was written. A smaller batch may get in."""


class FileGone(NotWritten):
    """The file that is open is not the one that its path names any more: what is written to it is lost."""


class JournalFailure(JournalError):
    """The database did not do its part. Whether an append got in is unknown until it is read again."""


class AccessRefused(JournalFailure):
    """The database lets nobody in by this address: the user, the password, the rights or the name of the
    database or of its host is wrong. It does not pass by itself."""


class Pruned(JournalError):
    """What was asked for is older than what is kept; ``oldest`` is the first index still there."""

    def __init__(self, after: Index, oldest: Index) -> None:
        super().__init__(f"entries after {after} were requested, the oldest kept is {oldest}")
        self.oldest = oldest


class AddressError(ValueError):
    """The URL is not one of a database that Berth can use. The message says what is expected."""


class SqliteAddress(msgspec.Struct, frozen=True):
    path: Path


class ServerAddress(msgspec.Struct, frozen=True):
    """``kind`` is postgresql or mysql; hosts are in the order in which they are tried."""

    kind: str
    hosts: tuple[tuple[str, int], ...]
    database: str
    user: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        """For logs: without the password."""
        user = f"{self.user}@" if self.user else ""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.kind}://{user}{hosts}/{self.database}"


Address = SqliteAddress | ServerAddress


def parse_address(url: str) -> Address:
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise AddressError("a URL is expected: sqlite:///PATH, postgresql://HOST/NAME or mysql://HOST/NAME")
    if scheme == "sqlite":
        return SqliteAddress(_sqlite_path(rest))
    kind = _ALIASES.get(scheme, scheme)
    if kind not in DEFAULT_PORTS:
        raise AddressError(f"{scheme} is not supported; use sqlite, postgresql, mysql or mariadb")
    return _server(kind, rest)


def _sqlite_path(rest: str) -> Path:
    if rest in ("", "/") or ":memory:" in rest:
        raise AddressError("a database in memory loses all data on exit; name a file: sqlite:///berth.db")
    if not rest.startswith("/"):
        raise AddressError("use three slashes before a relative path, four before an absolute one")
    return Path(rest[1:])


def _server(kind: str, rest: str) -> ServerAddress:
    authority, _, database = rest.partition("/")
    if "@" in database:
        raise AddressError("write a slash in a user name or password as %2F")
    if not database or "?" in database or "/" in database:
        raise AddressError(f"it must end with the name of a database, without options: {kind}://HOST/NAME")
    credentials, _, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    return ServerAddress(
        kind,
        tuple(_host(kind, text) for text in hosts.split(",")),
        unquote(database),
        unquote(user) or None,
        unquote(password) or None,
    )


def _host(kind: str, text: str) -> tuple[str, int]:
    host, port = text, str(DEFAULT_PORTS[kind])
    if not text.endswith("]") and ":" in text:
        host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host:
        raise AddressError("the host name is missing")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise AddressError(f"{port!r} is not a port from 1 to 65535")
    return host, int(port)


class Dialect(msgspec.Struct, frozen=True):
    """``meaning`` says what kind of error an exception of the driver is; ``next_host`` turns to another host,
    where there are several; ``reconnects_when_refused`` has another host tried after one that refused to
    write, for it may have been demoted; ``interrupt`` ends a wait on the driver's own connection, where the
    driver has no limit for it; ``missing`` says why what is written now would be lost, if it would;
    ``prepared`` is called once the tables are there; ``close`` releases what else is held."""

    engine: sa.Engine
    meaning: Callable[[BaseException | None], type[JournalError]]
    next_host: Callable[[], None] = lambda: None
    reconnects_when_refused: bool = False
    interrupt: Callable[[Any], None] | None = None
    missing: Callable[[], str | None] = lambda: None
    prepared: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


class Watchdog:
    """Ends every wait for a database whose driver has no limit for it. A server that hangs, or a machine that
    has lost its power, does not say so: the connection is closed under the driver, and the statement fails
    like any other. One statement at a time is watched; to begin or end a watch sets one variable."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._watched: tuple[float, Callable[[], None]] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="journal-watchdog", daemon=True)
        self._thread.start()

    def begin(self, interrupt: Callable[[], None]) -> None:
        self._watched = (time.monotonic() + self._limit_s, interrupt)

    def end(self) -> None:
        self._watched = None

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_EVERY_S):
            watched = self._watched
            if watched is not None and time.monotonic() > watched[0] and self._watched is watched:
                self._watched = None
                watched[1]()
