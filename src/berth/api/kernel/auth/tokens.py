"""Callers listed in a file, for deployments without a Keystone.

    [[token]]
    token = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    user = "nova"
    project = "service"
    roles = ["admin", "service"]

``token`` is the token itself, or ``sha256:`` and the hex digest of it; then the file holds no token that
could be sent as it stands. The file is read at the start, where anything wrong with it is refused by the
entry's number and field, and again when it changes; a change that cannot be read is reported and the
callers known before stay. A file that others than its owner may read or write is refused.

Where users can log in (``/identity/v3``) the token is their password, and what they get for it is one that
expires; both are accepted. Such a token is believed without asking anybody:

    berth1.NAME.GRANT.SEAL        NAME  which entry of the tokens file made it
                                  GRANT what it says, in JSON
                                  SEAL  HMAC-SHA256 of all before, with a key that follows from the entry

Nothing is stored: every worker that has the same file makes and believes the same tokens. One is good until
it expires, or its entry leaves the file. What it says is read only after its seal has been found right. The
keys follow from the digests, so there the file is a secret even if it has no token in it.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.api.kernel.auth.caller import TOKEN_HEADER, Caller, with_implied
from berth.api.kernel.auth.followed_file import FollowedFile
from berth.runtime.clock import Clock
from berth.runtime.secrets import refuse_others

_log = logging.getLogger(__name__)

LENGTH_MIN: Final = 16
"""Shorter tokens can be guessed."""

_DIGEST_PREFIX: Final = "sha256:"
_FIELDS: Final = frozenset(("token", "user", "project", "roles"))

_VERSION: Final = "berth1"
_NAME_BYTES: Final = 9
_LENGTH_MAX: Final = 4096


# -- tokens that a login issues -----------------------------------------------------------------


class Grant(msgspec.Struct, frozen=True):
    """What an issued token says. ``methods`` are the ways in which its user has proved who it is; ``audit``
    tells it from others."""

    user: str
    project: str
    methods: tuple[str, ...]
    issued_at_s: int
    expires_at_s: int
    audit: str = ""


class Seal:
    """Makes and reads the tokens of one entry, whose ``digest`` is a secret."""

    __slots__ = ("_key", "name")

    def __init__(self, digest: bytes) -> None:
        self._key = _derived(digest, b"the key that seals issued tokens")
        self.name = _encode_text(_derived(digest, b"the name of the entry")[:_NAME_BYTES])

    def issue(self, grant: Grant) -> str:
        said = f"{_VERSION}.{self.name}.{_encode_text(msgspec.json.encode(grant))}"
        return f"{said}.{_encode_text(self._mac(said))}"

    def read(self, token: str) -> Grant | None:
        """What a token says; None if it is not one of this entry's."""
        said, _, mac = token.rpartition(".")
        # compare_digest does not take texts that are not ASCII.
        if not token.isascii() or not hmac.compare_digest(_encode_text(self._mac(said)), mac):
            return None
        try:
            return msgspec.json.decode(_decode_text(said.rpartition(".")[2]), type=Grant)
        except (msgspec.DecodeError, binascii.Error):
            return None

    def _mac(self, said: str) -> bytes:
        return hmac.digest(self._key, said.encode(), "sha256")


def entry_named_in(token: str) -> str | None:
    """The name of the entry that a token says it is of; None for one that was not issued."""
    parts = token.split(".") if len(token) <= _LENGTH_MAX else []
    return parts[1] if len(parts) == 4 and parts[0] == _VERSION else None


def _derived(digest: bytes, purpose: bytes) -> bytes:
    return hmac.digest(digest, b"berth: " + purpose, hashlib.sha256)


def _encode_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode_text(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# -- the callers of the file --------------------------------------------------------------------


class TokensFileError(Exception):
    """The file cannot be used. The message names the file, the entry and the field."""


class TokenEntry(msgspec.Struct, frozen=True):
    """A caller of the file, and what it is known by."""

    digest: bytes
    caller: Caller
    seal: Seal


class Tokens:
    """Knows the callers of one file. The constructor raises TokensFileError if it cannot be used.

    ``issues``: tokens are issued, and those are believed too."""

    challenge: Final = None

    def __init__(self, path: str, clock: Clock, *, issues: bool = False) -> None:
        self._clock = clock
        self._issues = issues
        self._file = FollowedFile(Path(path), clock)
        self._entries = _load(self._file.path)

    async def identify(self, headers: Mapping[str, str], peer: str = "") -> Caller | None:
        token = headers.get(TOKEN_HEADER)
        if token is None:
            return None
        found = self.known_by_token(token)
        return None if found is None else found[0].caller

    def known_by_token(self, token: str) -> tuple[TokenEntry, Grant | None] | None:
        """Whose token it is, and what it says if it was issued; None if it is not known, or has expired."""
        issued = self._issued(token) if self._issues else None
        if issued is not None:
            return issued
        # Header values are bytes that were read as latin-1: this is what the caller sent.
        entry = self._known_by(token.encode("latin-1", "replace"))
        return None if entry is None else (entry, None)

    def known_by_password(self, user: str, password: str) -> TokenEntry | None:
        """Who logs in; None if there is no such user, or this is not the user's token."""
        entry = self._known_by(password.encode())
        if entry is None or not hmac.compare_digest(user.encode(), (entry.caller.user_id or "").encode()):
            return None
        return entry

    def callers(self) -> tuple[Caller, ...]:
        """All that the file names."""
        return tuple(entry.caller for entry in self._current())

    def _issued(self, token: str) -> tuple[TokenEntry, Grant] | None:
        name = entry_named_in(token)
        for entry in self._current() if name is not None else ():
            if entry.seal.name != name:
                continue
            grant = entry.seal.read(token)
            if grant is None or self._clock.now_ns() >= grant.expires_at_s * 1_000_000_000:
                continue
            # An entry that was given to another user or project does not bring its old tokens along.
            if (grant.user, grant.project) == (entry.caller.user_id, entry.caller.project_id):
                return entry, grant
        return None

    def _known_by(self, token: bytes) -> TokenEntry | None:
        digest = hashlib.sha256(token).digest()
        found = None
        # Every entry is compared, so that the time taken says nothing about which one was near.
        for entry in self._current():
            if hmac.compare_digest(digest, entry.digest):
                found = entry
        return found

    def _current(self) -> tuple[TokenEntry, ...]:
        if self._file.has_changed():
            self._read_again()
        return self._entries

    def _read_again(self) -> None:
        try:
            self._entries = _load(self._file.path)
        except TokensFileError as error:
            _log.error("the old tokens stay valid: %s", error)
        else:
            _log.info("%s: changed, read %d tokens", self._file.path, len(self._entries))


def _load(path: Path) -> tuple[TokenEntry, ...]:
    tables = _read(path)
    entries = tuple(_entry(table, f"{path}: token {number}") for number, table in enumerate(tables, 1))
    numbers: dict[bytes, int] = {}
    for number, entry in enumerate(entries, 1):
        first = numbers.setdefault(entry.digest, number)
        if first != number:
            raise TokensFileError(f"{path}: token {number}: token is the same as that of token {first}")
    return entries


def _read(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            shared = refuse_others(path, file)
            if shared is not None:
                raise TokensFileError(shared)
            content = tomllib.load(file)
    except OSError as error:
        raise TokensFileError(f"{path}: cannot read the tokens: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TokensFileError(f"{path}: invalid TOML: {error}") from error
    tables = content.pop("token", None)
    if content:
        raise TokensFileError(f"{path}: unknown key {min(content)}; only [[token]] entries are expected")
    if not isinstance(tables, list) or not tables:
        raise TokensFileError(f"{path}: it has no [[token]] entry")
    return tables


def _entry(table: Any, where: str) -> TokenEntry:
    if not isinstance(table, dict):
        raise TokensFileError(f"{where}: it must be written as a [[token]] table")
    unknown = sorted(table.keys() - _FIELDS)
    if unknown:
        raise TokensFileError(f"{where}: unknown field {unknown[0]}; known are {', '.join(sorted(_FIELDS))}")
    user = _text(table, "user", where)
    project = _text(table, "project", where)
    digest = _digest(_text(table, "token", where), where)
    return TokenEntry(digest, Caller(user, project, _roles(table, where)), Seal(digest))


def _text(table: dict[str, Any], field: str, where: str) -> str:
    value = table.get(field)
    if not isinstance(value, str) or not value:
        raise TokensFileError(f"{where}: {field} must be a string that is not empty")
    return value


def _roles(table: dict[str, Any], where: str) -> tuple[str, ...]:
    roles = table.get("roles", [])
    if not isinstance(roles, list) or not all(isinstance(role, str) and role for role in roles):
        raise TokensFileError(f"{where}: roles must be a list of strings")
    return with_implied(tuple(roles))


def _digest(token: str, where: str) -> bytes:
    if not token.startswith(_DIGEST_PREFIX):
        if len(token) < LENGTH_MIN:
            raise TokensFileError(
                f"{where}: token has {len(token)} characters; it must have at least {LENGTH_MIN}"
            )
        if not (token.isascii() and token.isprintable() and token == token.strip()):
            raise TokensFileError(
                f"{where}: token must be printable ASCII without spaces at its ends: "
                "others do not pass through an HTTP header as they are"
            )
        return hashlib.sha256(token.encode()).digest()
    try:
        digest = bytes.fromhex(token.removeprefix(_DIGEST_PREFIX))
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise TokensFileError(f"{where}: token must have 64 hex digits after {_DIGEST_PREFIX}")
    return digest
