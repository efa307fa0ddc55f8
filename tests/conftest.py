"""What all tests may ask for, and which of them one process runs one after the other."""

import pytest
from hypothesis import settings

pytest_plugins = ["tests.databases.fixtures"]

# No test asserts a time: an example that takes long on a busy machine is no failure.
settings.register_profile("berth", deadline=None)
settings.load_profile("berth")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For ``--dist loadgroup``."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))


def _group_of(item: pytest.Item) -> str:
    """The tests of a file on one kind of database are a group. A process starts a database server of its own
    when a test first needs it, and keeps it. A cluster takes long to start: all its tests share one. So do
    those of the console, with a cloud and a browser."""
    params = (
        item.callspec.params.values()
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else ()
    )
    named = {str(value) for value in params} | set(getattr(item, "fixturenames", ()))
    for shared in ("galera", "browser"):
        if shared in named:
            return shared
    kind = next((kind for kind in ("mariadb", "postgresql") if kind in named), "")
    return f"{item.path} {kind}"
