"""Two releases of Berth: this one, as a wheel, and a next one that has something new.

The next one is this one with another version, the next format, and a field that this one does not know: a
host's status has a ticket, which is taken from a reason that names one.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from berth.model.formats import FORMAT, THIS_PROGRAM, Program
from tests.servers import HOST, ROOT, ServerProcess, free_port
from tests.waiting import WITHIN_S

NEXT: Final = Program("99.0.0", FORMAT + 1)
TICKET: Final = "TICKET-7"
"""A reason that the next release has a field for."""
_PROGRAM: Final = (sys.executable, "-P", "-m", "berth.cli")
_SOURCES: Final = ("src", "pyproject.toml", "README.md", "LICENSE")
_PATCHES: Final = (
    ("__init__.py", f'__version__ = "{THIS_PROGRAM.version}"', f'__version__ = "{NEXT.version}"'),
    ("model/formats.py", f"FORMAT: Final = {FORMAT}\n", f"FORMAT: Final = {NEXT.format}\n"),
    (
        "model/formats.py",
        "ADDED: Final[dict[str, int]] = {",
        f'ADDED: Final[dict[str, int]] = {{"HostStatus.ticket": {NEXT.format}, ',
    ),
    (
        "model/placement.py",
        "    build_failures: int = 0\n    reason: str | None = None\n",
        "    build_failures: int = 0\n    reason: str | None = None\n    ticket: str | None = None\n",
    ),
    (
        "api/native/hosts.py",
        "HostStatus(asked.disabled, asked.down, asked.build_failures, asked.reason)",
        "HostStatus(asked.disabled, asked.down, asked.build_failures, asked.reason,\n"
        "        asked.reason if (asked.reason or '').startswith('TICKET') else None)",
    ),
    ("api/native/hosts.py", "reason=status.reason,", "reason=status.ticket and f'see {status.ticket}',"),
)


class Release(NamedTuple):
    """A release that is installed in a folder of its own."""

    program: Program
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        return {**kept, "PYTHONPATH": str(self.folder)}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``berth`` with these words, as this release."""
        command = [*_PROGRAM, *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )


def install_releases(directory: Path) -> tuple[Release, Release]:
    """This release, as a wheel is installed, and the next. Processes that run tests together share a
    directory, and the first of them installs for all."""
    this = Release(THIS_PROGRAM, directory / "this" / "installed")
    next_ = Release(NEXT, directory / "next")
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not next_.folder.exists():
            _install(directory / "this", this.folder)
            _change(this.folder, directory / "unfinished").rename(next_.folder)
    return this, next_


def _install(directory: Path, installed: Path) -> None:
    source = directory / "source"
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.pyc", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    _call([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source)])
    (wheel,) = directory.glob("*.whl")
    assert wheel.name.startswith(f"berth-{THIS_PROGRAM.version}-")
    _call([*pip, "install", "--no-deps", "--no-compile", "--target", str(installed), str(wheel)])


def _change(installed: Path, folder: Path) -> Path:
    """Make the next release of one that is installed."""
    shutil.copytree(installed, folder)
    for name, before, after in _PATCHES:
        file = folder / "berth" / name
        text = file.read_text()
        assert text.count(before) == 1, f"{name} has no {before!r} to change"
        file.write_text(text.replace(before, after))
    return folder


def _call(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"


class ReleasedServer(ServerProcess):
    """A server of a release, which can be replaced by that of another. ``words`` are its command and options;
    ``is_at_home``: it listens at the same address whenever it is started."""

    def __init__(
        self,
        release: Release,
        directory: Path,
        *words: str,
        listens_by: str = "--listen",
        is_at_home: bool = False,
    ) -> None:
        directory.mkdir()
        self.words = words
        super().__init__(
            lambda port: [*_PROGRAM, *self.words, listens_by, f"{HOST}:{port}"],
            directory / "server.log",
            release.env,
            address=(HOST, free_port()) if is_at_home else None,
        )

    def replace(self, release: Release) -> None:
        self.stop(WITHIN_S)
        self.env = {**self.env, **release.env} if self.env else release.env
        self.start()
