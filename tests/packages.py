"""The Debian packages that checks and tests need, for throwaway databases, to look at this machine, for a
browser, for alerts, for disk images and for what reads the command line's scripts, and the npm packages for
the console: looked for, and installed where that can be done.

Installing needs root and apt-get. It starts no service, and happens in one process at a time, so test runs
that begin together do not fight over dpkg. Anywhere else ``PackageMissing`` says what is missing, for the
tests to be skipped with that reason. Nothing is ever removed or upgraded on purpose.

``python -m tests.packages`` installs all of it ahead of a test run; it fails only where it could
have installed something and did not.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

EVIDENCE: Final = {
    "postgresql": "/usr/lib/postgresql/*/bin/postgres",
    "mariadb-server": "/usr/sbin/mariadbd",
    "galera-4": "/usr/lib/galera/libgalera_smm.so",
    "rsync": "/usr/bin/rsync",
    "lsof": "/usr/bin/lsof",
    "util-linux": "/usr/bin/lscpu",
    "pciutils": "/usr/bin/lspci",
    "numactl": "/usr/bin/numactl",
    "chromium": "/usr/bin/chromium",
    "fonts-liberation": "/usr/share/fonts/truetype/liberation*/LiberationSans-Regular.ttf",
    "nodejs": "/usr/bin/node",
    "npm": "/usr/bin/npm",
    "systemd": "/usr/bin/systemd-analyze",
    "haproxy": "/usr/sbin/haproxy",
    "prometheus": "/usr/bin/promtool",
    "zsh": "/usr/bin/zsh",
    "fish": "/usr/bin/fish",
    "groff-base": "/usr/bin/groff",
    "qemu-utils": "/usr/bin/qemu-img",
}
"""A file of each package. dpkg is not asked: a server from elsewhere in the same place serves as well."""

POSTGRESQL: Final = ("postgresql",)
MARIADB: Final = ("mariadb-server",)
# Galera copies a node with a shell script around rsync, which finds its listening port with lsof.
GALERA: Final = ("mariadb-server", "galera-4", "rsync", "lsof")

MACHINE: Final = ("util-linux", "pciutils", "numactl")
"""What tells of the machine at hand."""

BROWSER: Final = ("chromium", "fonts-liberation")
NODE: Final = ("nodejs", "npm")
SYSTEMD: Final = ("systemd",)
HAPROXY: Final = ("haproxy",)
PROMETHEUS: Final = ("prometheus",)

NPM_FOLDER: Final = Path(__file__).resolve().parents[1] / "tools" / "console"
"""Has the npm packages, pinned with their hashes in package-lock.json."""

LOCK_PATH: Final = Path("/tmp/berth-test-packages.lock")
POLICY_PATH: Final = Path("/usr/sbin/policy-rc.d")
INSTALL_S: Final = 600


class PackageMissing(Exception):
    """A package is not there and could not be installed; the message says which, and why."""


def require(*packages: str) -> None:
    """Return with the packages there, or raise ``PackageMissing``."""
    if not _can_install():
        if absent := _absent(packages):
            raise PackageMissing(f"needs {', '.join(absent)}; installing takes root and apt-get")
        return
    with _one_process_at_a_time():
        # Only now: a package that another process is unpacking has its files before it has its user.
        if absent := _absent(packages):
            _install(absent)
        if absent := _absent(packages):
            raise PackageMissing(f"apt-get has installed {', '.join(absent)}, but not where it is looked for")


def require_npm_packages() -> Path:
    """The folder that has the npm packages as they are pinned, or ``PackageMissing``."""
    require(*NODE)
    installed, lock = NPM_FOLDER / "node_modules", NPM_FOLDER / "package-lock.json"
    stamp = installed / ".complete"
    with _one_process_at_a_time():
        if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
            _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=NPM_FOLDER)
            stamp.write_bytes(lock.read_bytes())
    return installed


def _absent(packages: tuple[str, ...]) -> list[str]:
    return [package for package in packages if not glob.glob(EVIDENCE[package])]


def _can_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install(packages: list[str]) -> None:
    with _no_service_started():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *packages)


def _apt_get(*words: str) -> None:
    _run("apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=300", *words)


def _run(*words: str, cwd: Path | None = None) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        result = subprocess.run(
            words,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_S,
        )
    except subprocess.TimeoutExpired as error:
        raise PackageMissing(f"{' '.join(words)} did not end within {INSTALL_S} s") from error
    if result.returncode != 0:
        raise PackageMissing(f"{' '.join(words)} failed; its output ends:\n{result.stdout[-2000:]}")


@contextlib.contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    with LOCK_PATH.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _no_service_started() -> Iterator[None]:
    """Debian's packages ask this program before they start a service; 101 forbids it.

    One that is there already is its owner's, and stays.
    """
    if POLICY_PATH.exists():
        yield
        return
    POLICY_PATH.write_text("#!/bin/sh\nexit 101\n")
    try:
        POLICY_PATH.chmod(0o755)
        yield
    finally:
        POLICY_PATH.unlink()


def main() -> int:
    try:
        require(*EVIDENCE)
        require_npm_packages()
    except PackageMissing as error:
        print(f"packages for tests: {error}", file=sys.stderr)
        return 1 if _can_install() else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
