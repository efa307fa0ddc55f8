"""Plans on their way out and back: a dry run hands its plan out as a token, and keeps nothing.

A token is the plan itself, with a digest that tells a mangled one. It is no secret and gives no rights: who
sends it needs the same permission as for any claim, and the ledger judges it like any claim.
"""

import base64
import binascii
from hashlib import blake2b
from typing import Final

import msgspec

from berth.api.native.errors import BAD_BODY, NativeProblem
from berth.model.scheduling import Plan

_DIGEST_BYTES: Final = 12
_DECODER: Final = msgspec.msgpack.Decoder(Plan)


def token_of(plan: Plan) -> str:
    body = msgspec.msgpack.encode(plan)
    return base64.urlsafe_b64encode(_digest(body) + body).decode()


def plan_of(token: str) -> Plan:
    try:
        content = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(body):
            raise ValueError("the digest does not match")
        return _DECODER.decode(body)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        text = (
            "The token is not one that a dry run gave out: it is incomplete, changed, or of another version."
        )
        raise NativeProblem(400, BAD_BODY, text) from None


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
