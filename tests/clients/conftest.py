"""A server for clients to drive, which must neither complain meanwhile nor end badly afterwards, and the
command that drives it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.forked_command import ForkedCommand, forked_command
from tests.servers import UPSTREAM, ServerProcess, placement, running

PLUGINS = (
    "openstack.cli.base",
    "openstack.cli.extension",
    "openstack.common",
    "openstack.compute.v2",
    "openstack.identity.v3",
    "openstack.image.v2",
    "openstack.placement.v1",
    "cliff.formatter.list",
    "cliff.formatter.show",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(placement(tmp_path)) as server:
        yield server
        status = server.stop()
    if not UPSTREAM:
        assert status == 0, server.log
        assert server.complaints() == []


@pytest.fixture(scope="session")
def command() -> Iterator[ForkedCommand]:
    """The ``openstack`` command with its plugins."""
    with forked_command("openstackclient.shell:main", *PLUGINS) as command:
        yield command
