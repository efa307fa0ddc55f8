"""By which address answers say that things are found, in every API; and where an API begins."""

from pathlib import Path
from typing import Any

import pytest

from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


async def links(region: RegionWorld, headers: dict[str, str]) -> list[str]:
    """A link of each API: compute, image, identity (versions and catalog) and Placement."""
    compute = await region.ask("GET", "/compute", token=None, headers=headers)
    image = await region.ask("GET", "/image", token=None, headers=headers)
    identity = await region.ask("GET", "/identity/v3", token=None, headers=headers)
    login = {"auth": {"identity": {"methods": ["token"], "token": {"id": "ann:blue"}}}}
    catalog = await region.ask("POST", "/identity/v3/auth/tokens", login, token=None, headers=headers)
    name = f"host-{len(headers)}-{'-'.join(headers.values())}"
    made = await region.ask("POST", "/resource_providers", {"name": name}, headers=headers)
    found: list[Any] = [
        compute.json["versions"][0]["links"][0]["href"].removesuffix("/compute/v2.1/"),
        image.json["versions"][0]["links"][0]["href"].removesuffix("/image/v2/"),
        identity.json["version"]["links"][0]["href"].removesuffix("/identity/v3/"),
        catalog.json["token"]["catalog"][0]["endpoints"][0]["url"].removesuffix("/compute/v2.1"),
        made.headers["location"].partition("/resource_providers/")[0],
    ]
    return found


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"host": "c:1"}, "http://c:1"),
        ({"host": "c:1", "x-forwarded-proto": "https"}, "https://c:1"),
        ({"host": "c:1", "x-forwarded-proto": "HTTPS"}, "https://c:1"),
        ({"host": "c:1", "x-forwarded-proto": "https, http"}, "https://c:1"),
        ({"host": "c:1", "x-forwarded-proto": "javascript"}, "http://c:1"),
        ({"host": "c:1", "x-forwarded-proto": "https://evil.example/?"}, "http://c:1"),
        ({}, ""),
    ],
)
async def test_every_api_says_the_same_of_where_it_is(
    region: RegionWorld, headers: dict[str, str], origin: str
) -> None:
    assert await links(region, headers) == [origin] * 5


async def test_a_public_url_is_believed_before_any_header(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, public_url="https://berth.example:8443/x").running() as region:
        headers = {"host": "evil.example", "x-forwarded-proto": "http"}
        assert await links(region, headers) == ["https://berth.example:8443/x"] * 5


@pytest.mark.parametrize(
    "path",
    [
        "/compute/v2.1servers",
        "/compute/servers",
        "/compute/v2.0/servers",
        "/identity/v3users",
        "/identity/users",
        "/identity/v3auth/tokens",
        "/image/v2images",
        "/image/images",
        "/berth/v1groups",
    ],
)
async def test_a_prefix_ends_where_it_ends(region: RegionWorld, path: str) -> None:
    answer = await region.ask("GET", path, token="admin:blue", headers={"x-roles": "admin"})
    assert answer.status == 404
