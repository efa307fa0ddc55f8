"""/os-keypairs: public keys of users, which servers are created with.

A key pair belongs to a user, whatever its project. Of a pair that is made here (before microversion 2.92) the
private key is in the answer and nowhere else. A server keeps a copy of its public key, so a key pair can be
deleted at any time. Keys are made by a library (decision 044).
"""

import asyncio
import base64
import binascii
import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import UNSET, Meta, UnsetType

from berth.api.compute.versions import require_since
from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query, render_list
from berth.api.kernel.problem import Problem, forbidden
from berth.api.kernel.router import Route
from berth.api.kernel.times import show_plain_time
from berth.ledger import next_number, remove_record, replace_record
from berth.ledger.quotas import limits_of
from berth.model.commands import Command, Enact
from berth.model.quotas import UNLIMITED
from berth.model.rejections import KeyPairExists, KeyPairNotFound, KeyPairsExceeded, Rejection
from berth.model.servers import KeyPair, key_pair_id
from berth.view import View

_TYPES: Final = 2
_OF_OTHERS: Final = 10
_PAGES: Final = 35
_ONLY_IMPORTED: Final = 92
QUERY: Final = {"user_id": _OF_OTHERS, "limit": _PAGES, "marker": _PAGES}
QUERY_ONE: Final = {"user_id": _OF_OTHERS}
_KEY_MAX: Final = 16 << 10
_RSA_BITS: Final = 2048
_CERTIFICATE_DAYS: Final = 3650
_MADE_AT_ONCE: Final = 2
_NAME: Final = re.compile(r"[A-Za-z0-9 _-]{1,255}")
_NAME_LATER: Final = re.compile(r"[A-Za-z0-9 _@.-]{1,255}")
_SSH: Final = re.compile(r"(ssh|ecdsa|sk)-[A-Za-z0-9@.-]{1,60}")

_MAKERS: Final = ThreadPoolExecutor(_MADE_AT_ONCE, "key pairs")
"""Keys are made in threads of their own, and only so many: each takes a core for a tenth of a second."""


class NewKeyPair(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    public_key: Annotated[str, Meta(max_length=_KEY_MAX)] | UnsetType | None = UNSET
    type: Literal["ssh", "x509"] | UnsetType = UNSET
    user_id: Annotated[str, Meta(min_length=1, max_length=255)] | UnsetType = UNSET


class CreateKeyPair(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    keypair: NewKeyPair


# -- reading ------------------------------------------------------------------------------------


async def list_keypairs(call: Call) -> Response:
    query = read_query(call, "key pairs", QUERY)
    user = _read_user(call, query.get("user_id"))

    def answer(view: View) -> Response:
        found = sorted(view.records.find(KeyPair, "user", user), key=lambda pair: pair.name)
        view.steps.take(len(found))
        shown, links = render_list(
            call, found, lambda pair: pair.name, lambda pair: {"keypair": _show_summary(call, pair)}
        )
        return json({"keypairs": shown} | ({"keypairs_links": links} if links else {}))

    return await call.read(answer)


async def show_keypair(call: Call) -> Response:
    user = _read_user(call, read_query(call, "a key pair", QUERY_ONE).get("user_id"))

    def answer(view: View) -> Response:
        pair = call.accept(find_key_pair(view, user, call.params[0]))
        times = {"created_at": show_plain_time(pair.created_at_s), "updated_at": None, "deleted_at": None}
        own = {"id": pair.number, "user_id": pair.user, "deleted": False}
        return json({"keypair": _show_summary(call, pair) | own | times})

    return await call.read(answer)


def find_key_pair(view: View, user: str, name: str) -> KeyPair | KeyPairNotFound:
    return view.records.get(KeyPair, key_pair_id(user, name)) or KeyPairNotFound(name, user)


def _show_summary(call: Call, pair: KeyPair) -> dict[str, Any]:
    shown = {"name": pair.name, "public_key": pair.public_key, "fingerprint": pair.fingerprint}
    return shown if call.version < _TYPES else {**shown, "type": pair.type}


def _read_user(call: Call, named: str | UnsetType | None) -> str:
    """The user whose key pairs a request is about. To name another user is for administrators."""
    if not isinstance(named, str) or named == call.user:
        return call.user
    if not call.is_admin:
        raise forbidden(call.rules[0])
    return named


# -- changing -----------------------------------------------------------------------------------


async def create_keypair(call: Call) -> Response:
    asked = call.decode(CreateKeyPair).keypair
    require_since(call, asked, {"type": _TYPES, "user_id": _OF_OTHERS})
    user = _read_user(call, asked.user_id)
    kind = asked.type if isinstance(asked.type, str) else "ssh"
    _check_name(call, asked.name)
    private_key = None
    if isinstance(asked.public_key, str):
        public_key = asked.public_key
    else:
        if call.version >= _ONLY_IMPORTED:
            raise Problem(
                400, f"Invalid input: public_key is required from microversion 2.{_ONLY_IMPORTED} on."
            )
        make = _make_keys if kind == "ssh" else partial(_make_certificate, user, call.now_s)
        public_key, private_key = await asyncio.get_running_loop().run_in_executor(_MAKERS, make)
    pair = KeyPair(
        id=key_pair_id(user, asked.name),
        name=asked.name,
        user=user,
        public_key=public_key,
        fingerprint=_make_fingerprint(kind, public_key),
        type=kind,
    )

    def propose(view: View, now_s: int) -> Command | Rejection:
        if view.records.get(KeyPair, pair.id) is not None:
            return KeyPairExists(pair.name)
        limit = limits_of(view, call.quotas, call.project)["key_pairs"]
        if limit != UNLIMITED and view.records.count_found(KeyPair, "user", user) >= limit:
            return KeyPairsExceeded(user, limit)
        number = next_number(view, "key_pair")
        made = msgspec.structs.replace(pair, number=number.value, created_at_s=now_s)
        return Enact((replace_record(view, number), replace_record(view, made)))

    shown = _show_summary(call, pair) | {"user_id": user}
    if private_key is not None:
        shown["private_key"] = private_key
    return await call.submit(
        propose, lambda view: json({"keypair": shown}, 200 if call.version < _TYPES else 201)
    )


async def delete_keypair(call: Call) -> Response:
    user = _read_user(call, call.query_values().get("user_id"))
    read_query(call, "a key pair", QUERY_ONE)

    def propose(view: View, now_s: int) -> Command | Rejection:
        pair = find_key_pair(view, user, call.params[0])
        return pair if isinstance(pair, Rejection) else Enact((remove_record(view, pair),))

    return await call.submit(propose, lambda view: Response(202 if call.version < _TYPES else 204))


def _check_name(call: Call, name: str) -> None:
    is_later = call.version >= _ONLY_IMPORTED
    if (_NAME_LATER if is_later else _NAME).fullmatch(name) is None or name != name.strip():
        others = "spaces, dashes, underscores, dots or @" if is_later else "spaces, dashes or underscores"
        raise Problem(
            400,
            f"Invalid input: name is {name[:100]!r}; it must have letters, digits, {others}, without spaces "
            "at its ends.",
        )


# -- keys ---------------------------------------------------------------------------------------


def _make_keys() -> tuple[str, str]:
    """A new public and private key, as OpenSSH writes them."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.decode()} Generated-by-Berth", private.decode()


def _make_certificate(user: str, now_s: int) -> tuple[str, str]:
    """A new certificate of a user, signed with its own key, and that key: for WinRM, as Nova makes it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user[:64])])
    now = datetime.fromtimestamp(now_s, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_CERTIFICATE_DAYS))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def _make_fingerprint(kind: str, public_key: str) -> str:
    """The fingerprint of a public key as Nova shows it; Problem if it is not a key."""
    try:
        digest = _digest_ssh(public_key) if kind == "ssh" else _digest_certificate(public_key)
    except ValueError as error:
        raise Problem(
            400, f"Keypair data is invalid: public_key has no fingerprint: {str(error)[:200]}."
        ) from None
    return ":".join(f"{byte:02x}" for byte in digest)


def _digest_ssh(public_key: str) -> bytes:
    parts = public_key.split()
    if len(parts) < 2 or _SSH.fullmatch(parts[0]) is None:
        raise ValueError("it must be a key type, and the key in base64")
    try:
        content = base64.b64decode(parts[1], validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64: {error}") from None
    named = parts[0].encode()
    if content[:4] != len(named).to_bytes(4) or content[4 : 4 + len(named)] != named:
        raise ValueError(f"it is not a key of the type {parts[0]}")
    return hashlib.md5(content, usedforsecurity=False).digest()


def _digest_certificate(public_key: str) -> bytes:
    # The digest is what Nova shows; it protects nothing.
    return x509.load_pem_x509_certificate(public_key.encode()).fingerprint(hashes.SHA1())


_RULE: Final = "os_compute_api:os-keypairs"
ROUTES: Final = (
    Route("GET", "/os-keypairs", list_keypairs, policy=f"{_RULE}:index"),
    Route("POST", "/os-keypairs", create_keypair, policy=f"{_RULE}:create"),
    Route("GET", "/os-keypairs/{name}", show_keypair, policy=f"{_RULE}:show"),
    Route("DELETE", "/os-keypairs/{name}", delete_keypair, policy=f"{_RULE}:delete"),
)
