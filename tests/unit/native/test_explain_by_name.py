"""POST /berth/v1/explain of a flavor by name, an image, and a server: which hosts each constraint removes.
And what members are told who ask for themselves: numbers and what to change, no hosts."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from berth.scheduler.explain import explanation
from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        await region.fleet(3)
        yield region


async def explain(region: RegionWorld, body: object, **how: Any) -> Any:
    answer = await region.ask("POST", "/berth/v1/explain", body, **how)
    assert answer.status == 200, answer.body
    return answer.json["explanation"]


def steps(explained: Any) -> dict[str, Any]:
    return {step["constraint"]: step for step in explained["steps"]}


@pytest.mark.parametrize("named", ["huge", "3"])
async def test_a_flavor_is_known_by_its_name_and_its_id(region: RegionWorld, named: str) -> None:
    explained = await explain(region, {"flavor": named})
    step = steps(explained)["resources:VCPU"]
    assert (step["removed"], step["hosts"]) == (3, ["host-1", "host-2", "host-3"])
    assert (explained["fitting"], explained["change"]["best"] is None) == (0, False)
    sizes = {"vcpus": 64, "ram": 4096, "disk": 20}
    assert await explain(region, {"flavor": sizes}) == explained


async def test_an_image_binds_a_flavor_to_hosts(region: RegionWorld) -> None:
    for named in ("avx", uuid_of(901)):
        explained = await explain(region, {"flavor": "small", "image": named})
        assert explained["fitting"] == 0
        assert any("HW_CPU_X86_AVX2" in step["asked"] for step in explained["steps"] if step["removed"])
    counted = await region.ask("POST", "/berth/v1/capacity", {"flavor": "small", "image": "cirros"})
    assert counted.json["capacity"]["count"] == 12


async def test_no_more_hosts_are_named_than_are_shown(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "REMOVED_NAMED_MAX", 2)
    step = steps(await explain(region, {"flavor": "huge"}))["resources:VCPU"]
    assert (step["removed"], step["hosts"]) == (3, ["host-1", "host-2"])


async def test_a_server_is_explained_with_all_that_it_needs(region: RegionWorld) -> None:
    group = await region.group()
    servers = [await region.active(f"s{n}", hints={"group": group}) for n in range(3)]
    explained = await explain(region, {"server": servers[0]})
    assert (explained["needed"], explained["fitting"]) == (1, 1), "where it is now it would fit again"
    assert "(anti-affinity)" in explained["text"]
    removed = [step for step in explained["steps"] if step["removed"]]
    assert sum(step["removed"] for step in removed) == 2, "the hosts of the other two"
    away = {(await region.server(id))["OS-EXT-SRV-ATTR:host"] for id in servers[1:]}
    assert {host for step in removed for host in step["hosts"]} == away


async def test_a_server_that_nowhere_had_room_for_says_why_and_what_would_help(region: RegionWorld) -> None:
    id = await region.create("big", flavorRef="3")
    server = await region.server(id)
    assert server["status"] == "ERROR"
    assert "VCPU" in server["fault"]["message"], "the fault keeps the text"
    explained = await explain(region, {"server": id})
    assert "It fits nowhere." in explained["text"]
    assert explained["change"]["best"]["changes"][0]["subject"] == "VCPU"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"flavor": "none"}, 404, "There is no flavor none."),
        ({"flavor": "small", "image": "none"}, 404, "There is no image none."),
        ({"server": uuid_of(77)}, 404, f"There is no server {uuid_of(77)}."),
        ({"server": uuid_of(77), "flavor": "small"}, 400, "leave out everything but hosts beside it"),
        ({"server": "name"}, 400, "expected here"),
    ],
)
async def test_what_is_not_there_is_refused_by_name(
    region: RegionWorld, body: object, status: int, words: str
) -> None:
    answer = await region.ask("POST", "/berth/v1/explain", body)
    assert answer.status == status
    assert words in answer.error["detail"]


# -- members ------------------------------------------------------------------------------------

MEMBER: dict[str, Any] = {"token": "ann:blue"}


async def test_a_member_learns_numbers_and_what_to_change(region: RegionWorld) -> None:
    await region.host_status(2, disabled=True, reason="secret reason")
    explained = await explain(region, {"flavor": "huge", "count": 2}, **MEMBER)
    assert explained["hosts_total"] == 3
    assert steps(explained)["resources:VCPU"]["removed"] == 2
    best = explained["change"]["best"]
    assert best["changes"][0]["subject"] == "VCPU"
    for told in ("host-1", "host-2", "host-3", "secret reason", uuid_of(1)):
        assert told not in json.dumps(explained)


async def test_a_member_is_told_of_no_change_that_only_an_operator_can_make(region: RegionWorld) -> None:
    for number in (1, 2, 3):
        await region.host_status(number, disabled=True)
    for_all = await explain(region, {"flavor": "small"})
    assert for_all["change"]["best"]["changes"][0]["kind"] == "enable_host"
    explained = await explain(region, {"flavor": "small"}, **MEMBER)
    assert explained["change"]["best"] is None
    assert "host-" not in json.dumps(explained)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"flavor": "small", "hosts": ["host-1"]}, "hosts"),
        ({"flavor": "small", "hints": {"forced_host": "host-1"}}, "hints.forced_host"),
        ({"flavor": "small", "hints": {"host_names": ["host-*"]}}, "hints.host_names"),
        ({"resources": {"VCPU": 1}, "in_tree": uuid_of(1)}, "in_tree"),
        ({"parts": {"a": {"resources": {"VCPU": 1}, "member_of": [[uuid_of(500)]]}}}, "member_of"),
    ],
)
async def test_a_member_may_not_name_hosts(region: RegionWorld, body: object, field: str) -> None:
    answer = await region.ask("POST", "/berth/v1/explain", body, **MEMBER)
    assert (answer.status, answer.error["code"]) == (403, "berth.forbidden")
    assert answer.error["detail"].startswith(f"{field}: ")


async def test_what_belongs_to_others_is_not_there_for_a_member(region: RegionWorld) -> None:
    id = await region.active("theirs", who="bob:red")
    group = await region.group()
    for body, words in (
        ({"server": id}, f"There is no server {id}."),
        ({"flavor": "small", "group": group}, group),
        ({"flavor": "small", "hints": {"same_host": [id]}}, id),
    ):
        answer = await region.ask("POST", "/berth/v1/explain", body, **MEMBER)
        assert answer.status in (400, 404), body
        assert words in answer.error["detail"]
    own = await region.active("ours", who="ann:blue")
    explained = await explain(region, {"server": own}, **MEMBER)
    assert (explained["fitting"], "host-" in json.dumps(explained)) == (1, False)
    secret = await explain(region, {"flavor": "secret"}, **MEMBER)
    assert secret["fitting"] == 1
    refused = await region.ask("POST", "/berth/v1/explain", {"flavor": "secret"}, token="bob:red")
    assert refused.status == 404


async def test_a_group_is_known_by_its_name_to_those_it_is_there_for(region: RegionWorld) -> None:
    theirs = await region.group()
    body = {"flavor": "small", "group": "g"}
    refused = await region.ask("POST", "/berth/v1/explain", body, **MEMBER)
    assert (refused.status, refused.error["detail"]) == (404, "There is no group g.")
    own = await region.group(who="ann:blue")
    explained = await explain(region, body, **MEMBER)
    assert explained == await explain(region, {"flavor": "small", "group": own.upper()}, **MEMBER)
    assert "in the group g (anti-affinity)" in explained["text"]
    for path in ("explain", "capacity", "schedule"):
        ambiguous = await region.ask("POST", f"/berth/v1/{path}", body)
        assert (ambiguous.status, ambiguous.error["code"]) == (400, "berth.bad_body"), path
        assert ", ".join(sorted((own, theirs))) in ambiguous.error["detail"]


async def test_a_claim_may_name_its_group(region: RegionWorld) -> None:
    group = await region.group()
    answer = await region.ask("POST", "/berth/v1/schedule", {"resources": {"VCPU": 1}, "group": "g"})
    assert answer.status == 200, answer.body
    [placed] = answer.json["placements"]
    members = (await region.get(f"/berth/v1/groups/{group}")).json["group"]["members"]
    assert [member["consumer_uuid"] for member in members] == [placed["consumer_uuid"]]
