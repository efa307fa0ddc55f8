"""The folder of ``berth up``: what is in it, and where.

    secrets.json   made once: the secrets of users, conductors and agents
    tokens.toml    the users of the region; add yours
    clouds.yaml    for OpenStack clients, written at every start
    up.json        the region's address and the hosts, written at every start
    region.db, NAME.db    the journals
    agents/        the state of simulated hosts, their credentials, and how they are broken
    log/           the log of each process

Only the owner may read these files. Secrets survive restarts.
"""

import fcntl
import hashlib
import os
import secrets
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec

from berth.cli.command import CommandError
from berth.model.counts import count

ADMIN: Final = "admin"
DEMO: Final = "demo"
REGION_NAME: Final = "RegionOne"
_BYTES_MAX: Final = 16 << 20
_PRIVATE: Final = 0o700


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """The passwords of the users, the token of the conductors, and the join token of agents."""

    admin: str
    demo: str
    conductor: str
    agent: str


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The region, cells and hosts that were started last: up.json."""

    url: str
    cells: tuple[str, ...]
    hosts: tuple[str, ...]


Kind = TypeVar("Kind", Secrets, Running)


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def agents(self) -> Path:
        return self.path / "agents"

    @property
    def clouds(self) -> Path:
        return self.path / "clouds.yaml"

    def log(self, part: str) -> Path:
        return self.path / "log" / f"{part}.log"

    # -- reading --------------------------------------------------------------------------------

    def secrets(self) -> Secrets:
        return self._read("secrets.json", Secrets)

    def running(self) -> Running:
        return self._read("up.json", Running)

    def refuse_other_cells(self, cells: tuple[str, ...]) -> None:
        """CommandError if it was run with other cells: hosts and their servers would change cells."""
        before = self.running().cells if (self.path / "up.json").exists() else cells
        if before != cells:
            raise CommandError(
                f"{self.path} has {count(len(before), 'cell')}, and hosts cannot change theirs: "
                f"use --cells {len(before)}, or choose another folder with --data"
            )

    def _read(self, name: str, kind: type[Kind]) -> Kind:
        file = self.path / name
        try:
            with file.open("rb") as opened:
                return msgspec.json.decode(opened.read(_BYTES_MAX), type=kind)
        except FileNotFoundError:
            raise CommandError(f"{self.path}: 'berth up' has not been run with this folder: --data") from None
        except OSError as error:
            raise CommandError(f"{file} cannot be read: {error.strerror}") from error
        except msgspec.MsgspecError as error:
            raise CommandError(f"{file} is not what 'berth up' has written: {error}") from error

    # -- writing --------------------------------------------------------------------------------

    def lock(self) -> IO[bytes]:
        """Keep every other ``berth up`` out of the folder for as long as this is open."""
        try:
            self.path.mkdir(_PRIVATE, parents=True, exist_ok=True)
            lock = os.fdopen(os.open(self.path / "up.lock", os.O_RDWR | os.O_CREAT, 0o600), "wb")
        except OSError as error:
            raise CommandError(f"{self.path} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise CommandError(
                f"another 'berth up' runs in {self.path}: stop it first, or choose another folder with --data"
            ) from error
        return lock

    def prepare(self) -> Secrets:
        """Make what is missing; returns the secrets."""
        try:
            is_new = not (self.path / "secrets.json").exists()
            for folder in (self.path, self.agents, self.path / "log"):
                folder.mkdir(_PRIVATE, parents=True, exist_ok=True)
                if not is_new:
                    # Made by an older Berth, which let others read it.
                    folder.chmod(_PRIVATE)
            if is_new:
                made = Secrets(**{name: secrets.token_urlsafe(24) for name in Secrets.__struct_fields__})
                self._write("secrets.json", msgspec.json.format(msgspec.json.encode(made)))
            known = self.secrets()
            if is_new or not (self.path / "tokens.toml").exists():
                self._write("tokens.toml", _format_tokens(known).encode())
            return known
        except OSError as error:
            raise CommandError(f"{self.path} cannot be used: {error}") from error

    def note(self, running: Running, known: Secrets) -> None:
        """Write clouds.yaml and up.json."""
        self._write("clouds.yaml", _format_clouds(running.url, known).encode())
        self._write("up.json", msgspec.json.format(msgspec.json.encode(running)))

    def _write(self, name: str, content: bytes) -> None:
        """Whole or not at all, and for the owner alone."""
        draft = self.path / f".{name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(self.path / name)


# -- the contents -------------------------------------------------------------------------------

_USERS: Final = (
    (ADMIN, "admin", '"admin", "member", "reader"'),
    (DEMO, "demo", '"member", "reader"'),
    ("conductor", "service", '"service"'),
)


def _format_tokens(known: Secrets) -> str:
    entries = [
        f'[[token]]\ntoken = "sha256:{hashlib.sha256(getattr(known, user).encode()).hexdigest()}"\n'
        f'user = "{user}"\nproject = "{project}"\nroles = [{roles}]\n'
        for user, project, roles in _USERS
    ]
    return "# The users of the region. The secrets themselves are in secrets.json.\n\n" + "\n".join(entries)


def _format_clouds(url: str, known: Secrets) -> str:
    clouds = _format_cloud("berth", url, ADMIN, known.admin) + _format_cloud(
        "berth-demo", url, DEMO, known.demo
    )
    return f"# Written by 'berth up': OS_CLIENT_CONFIG_FILE is to name this file.\nclouds:\n{clouds}"


def _format_cloud(name: str, url: str, user: str, password: str) -> str:
    return f"""\
  {name}:
    auth_type: password
    auth:
      auth_url: {url}/identity/v3
      username: {user}
      password: "{password}"
      project_name: {user}
      user_domain_name: Default
      project_domain_name: Default
    region_name: {REGION_NAME}
    identity_api_version: "3"
    image_api_version: "2"
    compute_api_version: "2.94"
    placement_api_version: "1.39"
    floating_ip_source: "none"
"""
