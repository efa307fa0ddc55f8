"""What all tests may ask for, and which of them one process runs one after the other."""

import os
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.databases.fixtures"]

MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES: Final = 4 << 30


def keep_files_in_memory() -> None:
    """Where there is room. Each commit to a disk would be waited for, and no test takes the power away: what
    is killed leaves files in memory as it leaves them on a disk."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= MEMORY_BYTES and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


# Before anything asks where files go: processes that are started are to know it, too.
keep_files_in_memory()

# No test asserts a time: an example that takes long on a busy machine is no failure.
settings.register_profile("berth", deadline=None)
settings.load_profile("berth")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio."""
    return "asyncio"


class _GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """For ``--dist loadgroup``. pytest-xdist's own reads groups from names of tests that pytest has made
    anew since, and would send every test to another process."""
    return _GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def find_group(nodeid: str) -> str:
    """The tests of a file on one kind of database are a group. A process starts a database server of its own
    when a test first needs it, and keeps it. A cluster takes long to start: all its tests share one. So do
    those of the console, with a cloud and a browser."""
    if "galera" in nodeid:
        return "galera"
    path, _, name = nodeid.partition("::")
    if path.startswith("tests/console/"):
        return "console"
    kind = next((kind for kind in ("mariadb", "postgresql") if kind in name), "")
    return f"{path} {kind}"
