"""A server for clients to drive, which must neither complain meanwhile nor end badly afterwards, and the
command that drives it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import UPSTREAM, ServerProcess, placement, running
from tests.waiting import WITHIN_S
from tests.warm_start import COMMANDS, WarmCommand


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(placement(tmp_path)) as server:
        yield server
        status = server.stop(WITHIN_S)
    if not UPSTREAM:
        assert status == 0, server.log
        assert server.complaints() == []


@pytest.fixture(scope="session")
def command() -> WarmCommand:
    """The ``openstack`` command with its plugins."""
    return COMMANDS["openstack"]
