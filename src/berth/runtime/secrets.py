"""Secrets: made from the kernel's randomness, kept by others as digests, compared in constant time.

A plain SHA-256 is enough for what is made here: 256 random bits cannot be guessed from their digest.
"""

import hashlib
import hmac
import secrets


def new_secret() -> str:
    """A new secret, of letters, digits, '-' and '_'."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def is_secret_of(secret: str, digest: str) -> bool:
    """Whether this is the secret that a digest was made of."""
    return hmac.compare_digest(digest_of(secret).encode(), digest.encode())
