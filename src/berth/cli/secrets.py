"""Secrets that a command needs: from the environment, or from a file that only its owner may read. A secret
has no option, because every user of a machine can read the command lines of its processes."""

import os
from pathlib import Path
from typing import Final

from berth.cli.command import CommandError
from berth.runtime.secrets import refuse_others

_BYTES_MAX: Final = 4096


def find_secret(variable: str, file: Path | None) -> str | None:
    """The content of the file if one is named, else of the variable; None if neither is there."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        with file.open("rb") as opened:
            shared = refuse_others(file, opened)
            content = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"{file}: the secret cannot be read: {error.strerror}") from error
    if shared is not None:
        raise CommandError(shared)
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > _BYTES_MAX or not text.isprintable():
        raise CommandError(f"{file}: one line of printable ASCII is expected in it, and nothing else")
    return text


def require_secret(variable: str, file: Path | None, flag: str, what: str) -> str:
    """A secret that must be there."""
    found = find_secret(variable, file)
    if found is None:
        raise CommandError(f"{variable} or {flag} must hold {what}")
    return found
