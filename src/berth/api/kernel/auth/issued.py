"""Tokens that expire, made for those who have logged in and believed without asking anybody.

    berth1.NAME.GRANT.SEAL        NAME  which entry of the tokens file made it
                                  GRANT what it says, in JSON
                                  SEAL  HMAC-SHA256 of all before, with a key that follows from the entry

Nothing is stored: every worker that has the same file makes and believes the same tokens. One is good until
it expires, or its entry leaves the file. What it says is read only after its seal has been found right.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

import msgspec

_VERSION: Final = "berth1"
_NAME_BYTES: Final = 9
_LENGTH_MAX: Final = 4096


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
        self.name = _text(_derived(digest, b"the name of the entry")[:_NAME_BYTES])

    def issue(self, grant: Grant) -> str:
        said = f"{_VERSION}.{self.name}.{_text(msgspec.json.encode(grant))}"
        return f"{said}.{_text(self._mac(said))}"

    def read(self, token: str) -> Grant | None:
        """What a token says; None if it is not one of this entry's."""
        said, _, mac = token.rpartition(".")
        # compare_digest does not take texts that are not ASCII.
        if not token.isascii() or not hmac.compare_digest(_text(self._mac(said)), mac):
            return None
        try:
            return msgspec.json.decode(_bytes(said.rpartition(".")[2]), type=Grant)
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


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
