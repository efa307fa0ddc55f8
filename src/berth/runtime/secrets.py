"""Secrets: made from the kernel's randomness, kept as digests, compared in constant time, and read only from
files that their owner alone may use.

A plain SHA-256 is enough for what is made here: 256 random bits cannot be guessed from their digest.
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import IO, Any, Final


def new_secret() -> str:
    """A new secret, of letters, digits, '-' and '_'."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def is_secret_of(secret: str, digest: str) -> bool:
    """Whether this is the secret that a digest was made of."""
    return hmac.compare_digest(digest_of(secret).encode(), digest.encode())


OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def refuse_others(path: Path | str, file: IO[Any]) -> str | None:
    """Why an open file cannot hold a secret, in words for the operator; None if it can."""
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if mode & OF_OTHERS:
        return f"{path}: it can be used by others than its owner (mode {mode:04o}); run: chmod 600 {path}"
    return None


def keep_files_private() -> None:
    """Let this process, and those that it starts, create files and folders for their owner alone."""
    os.umask(OF_OTHERS)
