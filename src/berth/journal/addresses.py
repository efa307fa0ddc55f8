"""Database URLs: which engine, which hosts, which database.

sqlite:///berth.db                                    a file, relative; four slashes: absolute
postgresql://user:password@host:5432/berth            one host, or several to try in turn:
mysql://user:password@h1:3306,h2:3306,h3:3306/berth   a Galera cluster (mariadb:// is the same)
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

DEFAULT_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_ALIASES: Final = {"postgres": "postgresql", "mariadb": "mysql"}


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
