"""Python packages for tests, in folders beside .venv: installed once, used by processes that are told so.

Test runs that begin together wait for the first. Where they cannot be installed, ``PackagesMissing`` says
why, for the tests to be skipped with that reason.
"""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.servers import ROOT

_MARK: Final = "complete"
_INSTALL_S: Final = 600


class PackagesMissing(Exception):
    """They are not there, and could not be installed; the message says why."""


def package_folder(name: str) -> Path:
    """The folder that has what requirements-NAME.txt pins: a process that is to find it has it in its
    PYTHONPATH."""
    requirements, folder = ROOT / f"requirements-{name}.txt", ROOT / "build" / name
    folder.parent.mkdir(exist_ok=True)
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    mark = folder / _MARK
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != wanted:
            _install(requirements, folder)
            mark.write_text(wanted)
    return folder


def _install(requirements: Path, folder: Path) -> None:
    words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes"]
    words += ["--upgrade", "--target", str(folder), "--requirement", str(requirements)]
    command = [sys.executable, "-m", "pip", "install", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise PackagesMissing(
            f"pip was not done with {requirements.name} after {_INSTALL_S} seconds"
        ) from None
    if done.returncode != 0:
        raise PackagesMissing(f"pip cannot install {requirements.name}: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    print(package_folder(sys.argv[1]))
