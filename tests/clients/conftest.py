"""A server for clients to drive, which must neither complain meanwhile nor end badly afterwards, and the
command that drives it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.openstack_command import OpenstackCommand, openstack_command
from tests.servers import UPSTREAM, Server, placement, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(placement(tmp_path)) as server:
        yield server
        status = server.stop()
    if not UPSTREAM:
        assert status == 0, server.log
        assert server.complaints() == []


@pytest.fixture(scope="session")
def command() -> Iterator[OpenstackCommand]:
    with openstack_command() as command:
        yield command
