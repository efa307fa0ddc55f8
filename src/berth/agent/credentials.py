"""The credential of a host, in a file that its owner alone can read.

    DATA/credentials/HOST        what the agent shows
    DATA/credentials/HOST.next   what it will be, while it is being changed

A credential is made, and is on the disk, before it is shown for the first time: whoever loses an answer shows
the same one again. The same goes for a change: until the conductor has said yes, either of the two may be
the one that it knows, so an agent whose credential is refused tries the other.
"""

import re
from pathlib import Path
from typing import Final

from berth.agent.state import StateError, replace_file
from berth.cell.protocol import CREDENTIAL_HEADER
from berth.runtime.secrets import new_secret

FOLDER: Final = "credentials"
_NEXT: Final = ".next"
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{32,128}\Z")


class Credential:
    """The credential of one host. ``id`` is the host's uuid."""

    def __init__(self, data: Path, host: str, id: str) -> None:
        self._path = credential_path(data, host)
        self._id = id
        self._secret: str | None = None

    def header(self) -> tuple[str, str]:
        """What is shown to the conductor; made when there is none."""
        if self._secret is None:
            self._secret = _read(self._path) or self._made(self._path)
        return CREDENTIAL_HEADER, f"{self._id}:{self._secret}"

    def take_other(self) -> bool:
        """Take what else the files hold, after what was shown has been refused. Whether there is anything."""
        others = [
            secret
            for path in (self._path, _next(self._path))
            if (secret := _read(path)) is not None and secret != self._secret
        ]
        if others:
            self._secret = others[0]
        return bool(others)

    def propose(self) -> str:
        """The secret that shall be next, on the disk already; the same until it is accepted."""
        path = _next(self._path)
        return _read(path) or self._made(path)

    def accept(self, secret: str) -> None:
        """The conductor knows the next one now."""
        replace_file(self._path, secret.encode() + b"\n")
        _next(self._path).unlink(missing_ok=True)
        self._secret = secret

    def _made(self, path: Path) -> str:
        secret = new_secret()
        try:
            replace_file(path, secret.encode() + b"\n")
        except OSError as error:
            raise StateError(f"{path}: the credential cannot be written: {error.strerror}") from error
        return secret


def credential_path(data: Path, host: str) -> Path:
    return data / FOLDER / host


def hosts_with_credentials(data: Path) -> list[str]:
    """The names of the hosts that have a credential in a folder."""
    try:
        return sorted(path.name for path in (data / FOLDER).iterdir() if path.suffix not in (_NEXT, ".new"))
    except FileNotFoundError:
        return []


def _next(path: Path) -> Path:
    return path.with_name(path.name + _NEXT)


def _read(path: Path) -> str | None:
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"{path}: the credential cannot be read: {error}") from error
    if _SECRET.match(text) is None:
        raise StateError(f"{path}: this is not a credential; 'berth agent readmit' tells how to make another")
    return text
