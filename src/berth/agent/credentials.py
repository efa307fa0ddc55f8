"""The credential of a host, in a file that its owner alone can read.

    DATA/credentials/HOST        what the agent shows
    DATA/credentials/HOST~next   what it will be, while it is being changed

A credential is made, and is on the disk, before it is sent for the first time: an agent that loses an answer
sends the same one again. The same goes for a change: until the conductor has confirmed it, the conductor may
know either of the two, so an agent whose credential is refused tries the other.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from berth.agent.conductor import ConductorClient, CredentialRefused
from berth.agent.state import DISK, Files, StateError
from berth.cell.protocol import CREDENTIAL_HEADER, NewCredential
from berth.runtime.secrets import new_secret

FOLDER: Final = "credentials"
_MARK: Final = "~"
"""Stands in no name of a host."""
_CREDENTIAL: Final = re.compile(r"([0-9a-f-]{36}):([A-Za-z0-9_-]{32,128})\Z")


class Credential:
    """The credential of one host. ``id`` is the host's uuid; ``make`` makes a secret."""

    def __init__(
        self,
        data: Path,
        host: str,
        id: str,
        files: Files = DISK,
        make: Callable[[], str] = new_secret,
    ) -> None:
        self.id = id
        self._files = files
        self._new_secret = make
        self._path = credential_path(data, host)
        self._secret: str | None = None

    def header(self) -> tuple[str, str]:
        """What is shown to the conductor; made when there is none."""
        if self._secret is None:
            self._secret = self._read(self._path) or self._make(self._path)
        return CREDENTIAL_HEADER, f"{self.id}:{self._secret}"

    def take_other(self) -> bool:
        """Use the other credential of the files, after one was refused. Whether there is another."""
        found = (self._read(path) for path in (self._path, _next(self._path)))
        other = next((secret for secret in found if secret not in (None, self._secret)), None)
        self._secret = other or self._secret
        return other is not None

    def propose(self) -> str:
        """The next secret, already on disk; the same until it is accepted."""
        path = _next(self._path)
        return self._read(path) or self._make(path)

    def accept(self, secret: str) -> None:
        """The conductor knows the next one now."""
        self._write(self._path, secret)
        self._files.remove(_next(self._path))
        self._secret = secret

    def _make(self, path: Path) -> str:
        secret = self._new_secret()
        self._write(path, secret)
        return secret

    def _write(self, path: Path, secret: str) -> None:
        try:
            self._files.replace(path, f"{self.id}:{secret}\n".encode())
        except OSError as error:
            raise StateError(f"{path}: the credential cannot be written: {error.strerror}") from error

    def _read(self, path: Path) -> str | None:
        found = _read(path, self._files)
        if found is not None and found[0] != self.id:
            raise StateError(f"{path}: this is the credential of the host {found[0]}, not of {self.id}")
        return None if found is None else found[1]


async def rotate(credential: Credential, conductor: ConductorClient) -> None:
    """Have a host's credential replaced by a new one."""
    wanted = NewCredential(host=credential.id, credential=credential.propose())
    conductor.show(credential.header())
    try:
        await conductor.change_credential(wanted)
    except CredentialRefused:
        # An earlier attempt may have succeeded: then the next credential is valid already.
        if not credential.take_other():
            raise
        conductor.show(credential.header())
        await conductor.change_credential(wanted)
    credential.accept(wanted.credential)


def kept_credential(data: Path, host: str) -> Credential | None:
    """The credential of a host as a folder has it."""
    found = _read(credential_path(data, host), DISK)
    return None if found is None else Credential(data, host, found[0])


def credential_path(data: Path, host: str) -> Path:
    return data / FOLDER / host


def hosts_with_credentials(data: Path) -> list[str]:
    """The names of the hosts that have a credential in a folder."""
    try:
        return sorted(path.name for path in (data / FOLDER).iterdir() if _MARK not in path.name)
    except FileNotFoundError:
        return []


def _next(path: Path) -> Path:
    return path.with_name(f"{path.name}{_MARK}next")


def _read(path: Path, files: Files) -> tuple[str, str] | None:
    """The host's uuid and its secret; None if there is no such file."""
    try:
        text = files.read(path).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"{path}: the credential cannot be read: {error}") from error
    found = _CREDENTIAL.match(text)
    if found is None:
        raise StateError(f"{path}: this is not a credential. Remove it, and readmit the host")
    return found[1], found[2]
