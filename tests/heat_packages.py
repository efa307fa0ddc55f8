"""OpenStack Heat for tests, in a folder beside .venv: installed once, used by processes that are told so.

``python -m tests.heat_packages`` installs it ahead of a test run. Test runs that begin together wait for the
first. Where it cannot be installed, ``HeatMissing`` says why, for the tests to be skipped with that reason.
"""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.servers import ROOT

REQUIREMENTS: Final = ROOT / "requirements-heat.txt"
FOLDER: Final = ROOT / "build" / "heat"
_MARK: Final = "complete"
_INSTALL_S: Final = 600


class HeatMissing(Exception):
    """Heat is not there, and could not be installed; the message says why."""


def heat_folder() -> Path:
    """The folder that a process which is to find Heat has in its PYTHONPATH."""
    FOLDER.parent.mkdir(exist_ok=True)
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    mark = FOLDER / _MARK
    with (FOLDER.parent / "heat.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != wanted:
            _install()
            mark.write_text(wanted)
    return FOLDER


def _install() -> None:
    words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes"]
    words += ["--upgrade", "--target", str(FOLDER), "--requirement", str(REQUIREMENTS)]
    command = [sys.executable, "-m", "pip", "install", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise HeatMissing(f"pip was not done with {REQUIREMENTS.name} after {_INSTALL_S} seconds") from None
    if done.returncode != 0:
        raise HeatMissing(f"pip cannot install {REQUIREMENTS.name}: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    print(heat_folder())
