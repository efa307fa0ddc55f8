"""``berth up --servers``: something to look at, once."""

from collections.abc import AsyncIterator

import pytest

from berth.cli.up import FLAVORS, write_defaults, write_servers
from berth.client import Client, connect_directly
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


@pytest.fixture
async def client(region: RegionWorld) -> AsyncIterator[Client]:
    await region.fleet(2, cells=1)
    client = connect_directly(region.application, {"x-auth-token": "admin"})
    for flavor in FLAVORS:
        await client.ask("DELETE", f"/compute/v2.1/flavors/{flavor.id}")
    await write_defaults(client)
    yield client
    await client.close()


async def list_servers(client: Client) -> dict[str, str]:
    """The flavors of all servers, by their names."""
    found = await client.fetch("GET", "/compute/v2.1/servers/detail")
    names = {flavor.id: flavor.name for flavor in FLAVORS}
    return {server["name"]: names[server["flavor"]["id"]] for server in found["servers"]}


async def test_servers_of_several_flavors_are_created(client: Client) -> None:
    await write_servers(client, 5)
    servers = await list_servers(client)
    assert servers == {
        "web-1": "m1.small",
        "web-2": "m1.small",
        "db-1": "m1.large",
        "db-2": "m1.large",
        "batch": "m1.medium",
    }


async def test_none_are_created_where_there_are_some(client: Client) -> None:
    await write_servers(client, 1)
    await write_servers(client, 5)
    assert list(await list_servers(client)) == ["web"]


async def test_none_are_created_unless_they_are_asked_for(client: Client) -> None:
    await write_servers(client, 0)
    assert await list_servers(client) == {}
