"""GET /berth/v1/caller: who is calling, and what the policy lets it do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from berth.api.native.routes import ROUTES
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        yield region


async def test_an_administrator_is_let_in_everywhere(region: RegionWorld) -> None:
    caller = (await region.get("/berth/v1/caller")).json
    assert (caller["user_id"], caller["project_id"], caller["is_admin"]) == ("admin", "admin", True)
    assert {route.policy for route in ROUTES} <= set(caller["rules"])


async def test_a_member_is_told_what_it_may_do_and_gets_it(region: RegionWorld) -> None:
    caller = (await region.ask("GET", "/berth/v1/caller", token="blue")).json
    assert (caller["is_admin"], caller["roles"]) == (False, ["member", "reader"])
    assert caller["rules"] == sorted(caller["rules"])
    for rule, path in (("berth:clusters:list", "/clusters"), ("berth:hosts:list", "/hosts")):
        answer = await region.ask("GET", f"/berth/v1{path}", token="blue")
        assert (answer.status == 200) == (rule in caller["rules"])


async def test_a_policy_file_shows(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"berth:hosts:list": "role:member"\n')
    async with RegionWorld(tmp_path, policy_file=str(policy)).running() as region:
        rules = (await region.ask("GET", "/berth/v1/caller", token="blue")).json["rules"]
    assert "berth:hosts:list" in rules
    assert "berth:hosts:update" not in rules
