"""Tempest in a virtual environment of its own, ``build/tempest``: it pins what the rest does not want.

Installed once, and again when ``requirements-tempest.txt`` changes. Runs that begin together wait for the
first.
"""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.servers import ROOT

REQUIREMENTS: Final = ROOT / "requirements-tempest.txt"
FOLDER: Final = ROOT / "build" / "tempest"
_INSTALL_S: Final = 900


class TempestMissing(Exception):
    """Tempest is not there, and could not be installed; the message says why."""


def find_python() -> Path:
    """The Python that has Tempest."""
    FOLDER.parent.mkdir(exist_ok=True)
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    mark, python = FOLDER / "complete", FOLDER / "bin" / "python"
    with (FOLDER.parent / "tempest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != wanted:
            _run(sys.executable, "-m", "venv", "--clear", str(FOLDER))
            words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
            _run(str(python), "-m", "pip", "install", *words, "--requirement", str(REQUIREMENTS))
            mark.write_text(wanted)
    return python


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise TempestMissing(f"{words[-1]} was not installed after {_INSTALL_S} seconds") from None
    if done.returncode != 0:
        raise TempestMissing(f"{' '.join(words)} failed: {done.stderr.strip()[-500:]}")
