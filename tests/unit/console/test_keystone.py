"""Signing in at the Keystone of the operator: a page may ask its own origin alone, so the server asks."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.keystone import PASSWORD, FakeKeystone, running
from tests.worlds import ApplicationWorld, HttpAnswer

TOKENS = "/console/keystone/v3/auth/tokens"


def login(**changes: Any) -> bytes:
    domain = {"name": "Default"}
    user = {"name": "nova", "password": PASSWORD, "domain": domain} | changes
    scope = {"project": {"name": "admin", "domain": domain}}
    identity = {"methods": ["password"], "password": {"user": user}}
    return json.dumps({"auth": {"identity": identity, "scope": scope}}).encode()


@pytest.fixture
async def keystone() -> AsyncIterator[FakeKeystone]:
    with running() as keystone:
        yield keystone


@pytest.fixture
async def world(keystone: FakeKeystone, tmp_path: Path) -> AsyncIterator[ApplicationWorld]:
    settings: dict[str, Any] = {
        "auth": "keystone",
        "keystone_auth_url": keystone.url,
        "keystone_username": "placement",
        "keystone_password": PASSWORD,
        "keystone_timeout_seconds": 5,
    }
    async with ApplicationWorld(tmp_path, **settings).running() as world:
        yield world


async def sign_in(world: ApplicationWorld, body: bytes) -> HttpAnswer:
    return await world.ask_raw("POST", TOKENS, body, token=None)


async def test_the_settings_name_the_way_to_keystone(world: ApplicationWorld) -> None:
    settings = (await world.ask_raw("GET", "/console/settings.json", None, token=None)).json
    assert (settings["auth"], settings["identity"]) == ("keystone", "console/keystone/v3")


async def test_keystone_issues_the_token(world: ApplicationWorld, keystone: FakeKeystone) -> None:
    answer = await sign_in(world, login())
    assert (answer.status, answer.headers["x-subject-token"]) == (201, "service-token-1")
    assert keystone.logins == 1


async def test_what_keystone_refuses_is_refused(world: ApplicationWorld) -> None:
    answer = await sign_in(world, login(password="wrong"))
    assert answer.status == 401
    assert "x-subject-token" not in answer.headers


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"auth": {}}', login(more=1), login(name=""), login(password="x" * 5000)]
)
async def test_nothing_but_a_sign_in_is_passed_on(
    world: ApplicationWorld, keystone: FakeKeystone, body: bytes
) -> None:
    answer = await sign_in(world, body)
    assert answer.status == 400
    assert "not a valid sign-in" in answer.json["error"]["message"]
    assert keystone.logins == 0


async def test_a_keystone_that_is_away_is_not_the_callers_fault(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "auth": "keystone",
        "keystone_auth_url": "http://127.0.0.1:9",
        "keystone_username": "placement",
        "keystone_password": PASSWORD,
    }
    async with ApplicationWorld(tmp_path, **settings).running() as world:
        answer = await sign_in(world, login())
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "Keystone is unreachable" in answer.json["error"]["message"]


async def test_without_keystone_there_is_no_way_to_it(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        assert (await sign_in(world, login())).status == 405


async def test_signing_out_is_passed_on(world: ApplicationWorld, keystone: FakeKeystone) -> None:
    token = (await sign_in(world, login())).headers["x-subject-token"]
    answer = await world.ask_raw("DELETE", TOKENS, None, token=token, headers={"x-subject-token": token})
    assert answer.status == 204
    assert keystone.revoked == [token]
