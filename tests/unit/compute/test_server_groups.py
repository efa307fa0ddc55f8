"""/os-server-groups: what they say in each microversion, whose they are, and who is in them."""

from typing import Any

import pytest

from berth.model.ids import GroupId
from tests.unit.compute.fleets import known_fleet
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


async def new(region: RegionWorld, version: str = "2.64", who: str = "ann:blue", **fields: Any) -> Any:
    answer = await region.compute(
        "POST", "/os-server-groups", {"server_group": {"name": "g", **fields}}, version=version, who=who
    )
    return answer.json["server_group"] if answer.status == 200 else answer


async def test_a_group_of_each_generation_of_the_api(region: RegionWorld) -> None:
    old = await new(region, "2.1", policies=["affinity"])
    assert {key: old[key] for key in old if key != "id"} == {
        "name": "g",
        "members": [],
        "policies": ["affinity"],
        "metadata": {},
    }
    soft = await new(region, "2.15", policies=["soft-affinity"])
    assert (soft["project_id"], soft["user_id"]) == ("blue", "ann")
    wide = await new(region, policy="anti-affinity", rules={"max_server_per_host": "3"})
    assert {key: wide[key] for key in wide if key != "id"} == {
        "name": "g",
        "members": [],
        "policy": "anti-affinity",
        "rules": {"max_server_per_host": 3},
        "project_id": "blue",
        "user_id": "ann",
    }
    group = region.engine.view.groups.records[GroupId(wide["id"])].group
    assert (group.domain, group.max_per_domain) == ("host", 3)
    narrow = await new(region, policy="anti-affinity")
    assert narrow["rules"] == {"max_server_per_host": 1}
    assert (await new(region, policy="affinity"))["rules"] == {}


@pytest.mark.parametrize(
    ("version", "fields", "why"),
    [
        (
            "2.14",
            {"policies": ["soft-affinity"]},
            "The policy is 'soft-affinity'; it must be one of affinity, ",
        ),
        ("2.63", {"policies": ["affinity", "anti-affinity"]}, "policies must be a list of one policy."),
        ("2.63", {"policy": "affinity"}, "policy and rules are for microversion 2.64 and later."),
        ("2.64", {"policies": ["affinity"]}, "From microversion 2.64 on a group has policy, not policies."),
        (
            "2.64",
            {"policy": "affinity", "rules": {"max_server_per_host": 2}},
            "max_server_per_host is for the policy anti-affinity; this group has affinity: leave it out.",
        ),
        (
            "2.64",
            {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}},
            "Invalid input: max_server_per_host is 0; it must be a whole number from 1 to 10000.",
        ),
        ("2.64", {"policy": "near"}, "The policy is 'near'; it must be one of affinity, "),
    ],
)
async def test_a_group_that_cannot_be(
    region: RegionWorld, version: str, fields: dict[str, Any], why: str
) -> None:
    answer = await new(region, version, **fields)
    assert answer.status == 400
    assert answer.json["badRequest"]["message"].startswith(why)


async def test_groups_are_a_projects_own(region: RegionWorld) -> None:
    blue, red = (
        await new(region, policy="affinity", who="ann:blue"),
        await new(region, policy="affinity", who="bob:red"),
    )

    async def listed(query: str, who: str) -> list[str]:
        answer = await region.compute("GET", f"/os-server-groups{query}", who=who)
        return [one["id"] for one in answer.json["server_groups"]]

    assert await listed("", "ann:blue") == [blue["id"]]
    refused = await region.compute("GET", "/os-server-groups?all_projects=True", who="ann:blue")
    assert refused.status == 403
    assert set(await listed("?all_projects=True", "admin")) == {blue["id"], red["id"]}
    first = await listed("?all_projects=True&limit=1", "admin")
    assert first + await listed("?all_projects=True&limit=1&offset=1", "admin") == sorted(
        (blue["id"], red["id"])
    )
    assert (await region.compute("GET", f"/os-server-groups/{red['id']}", who="ann:blue")).status == 404
    assert (await region.compute("DELETE", f"/os-server-groups/{red['id']}", who="ann:blue")).status == 404
    assert (await region.compute("GET", f"/os-server-groups/{red['id']}")).json["server_group"] == red


async def test_members_are_servers_and_stay_when_their_group_goes(region: RegionWorld) -> None:
    await known_fleet(region)
    group = await new(region, policy="anti-affinity")
    ids = [await region.active(name, hints={"group": group["id"]}, who="ann:blue") for name in ("a", "b")]
    moved = await region.act(ids[0], "migrate")
    assert moved.status == 202
    # While it moves, the migration is in the group too.
    assert len(region.engine.view.groups.records[GroupId(group["id"])].members) == 3
    path = f"/os-server-groups/{group['id']}"
    shown = (await region.compute("GET", path, who="ann:blue")).json["server_group"]
    assert sorted(shown["members"]) == sorted(ids)
    assert (await region.compute("DELETE", path, who="ann:blue")).status == 204
    assert (await region.compute("GET", path, who="ann:blue")).status == 404
    assert [region.record(id).group for id in ids] == [None, None]
    # And can still be moved.
    assert (await region.act(ids[1], "migrate")).status == 202
