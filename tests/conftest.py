"""What all tests may ask for, and which of them one process runs one after the other."""

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["tests.databases.fixtures"]

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
