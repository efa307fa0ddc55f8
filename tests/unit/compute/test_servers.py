"""Servers listed, shown at several microversions, renamed, noted about and deleted, and who may."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from berth.api.kernel.regexes import Regex
from berth.model.saga_runs import Outbox
from berth.model.servers import STATUSES, Fault
from tests.worlds import CIRROS, LARGE, SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast


async def names(region: RegionWorld, query: str = "", **how: Any) -> list[str]:
    answer = await region.compute("GET", f"/servers?{query}", **how)
    assert answer.status == 200, answer.body
    return [one["name"] for one in answer.json["servers"]]


# -- showing ------------------------------------------------------------------------------------


async def test_what_is_shown_grows_with_the_version(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(imageRef=CIRROS.id, flavorRef=LARGE.id)
    old = await region.server(id, version="2.1")
    assert old["flavor"]["id"] == LARGE.id
    assert old["image"]["id"] == CIRROS.id
    assert not {"locked", "description", "tags", "server_groups", "host_status"} & set(old)
    new = await region.server(id)
    assert new["flavor"] == {
        "vcpus": 4,
        "ram": 4096,
        "disk": 20,
        "ephemeral": 0,
        "swap": 0,
        "original_name": "large",
        "extra_specs": {"site:note": "x"},
    }
    assert (new["locked"], new["description"], new["tags"], new["server_groups"]) == (False, None, [], [])
    assert (new["host_status"], new["progress"], new["OS-EXT-STS:power_state"]) == ("UP", 100, 1)
    assert new["OS-SRV-USG:launched_at"] == "2026-01-01T00:00:00.000000"
    assert (new["created"], new["updated"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert "fault" not in new


async def test_where_a_server_is_is_not_for_everybody(region: RegionWorld) -> None:
    await region.fleet(count=1)
    blue = [await region.active(name, who="ann:blue") for name in ("a", "b")]
    green = await region.active("c", who="bob:green")
    shown = [await region.server(id, who="ann:blue") for id in blue]
    assert not [key for key in shown[0] if key.startswith("OS-EXT-SRV-ATTR") or key == "host_status"]
    assert shown[0]["hostId"] == shown[1]["hostId"] != ""
    assert (await region.server(green, who="bob:green"))["hostId"] != shown[0]["hostId"]
    assert (await region.server(blue[0]))["OS-EXT-SRV-ATTR:host"] == "host-1"


async def test_another_projects_server_is_not_there(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who="ann:blue")
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", {"server": {"name": "x"}}),
        ("DELETE", "", None),
        ("GET", "/metadata", None),
        ("PUT", "/metadata", {"metadata": {}}),
        ("POST", "/action", {"os-stop": None}),
        ("POST", "/action", {"lock": None}),
        ("GET", "/os-instance-actions", None),
        ("GET", "/os-interface", None),
    ):
        answer = await region.compute(method, f"/servers/{id}{path}", body, who="bob:green")
        assert answer.status == 404, (method, path)
        assert answer.json["itemNotFound"]["message"] == f"Instance {id} could not be found."
    assert region.record(id).state == "active"


async def test_how_the_host_of_a_server_is_doing(region: RegionWorld) -> None:
    await region.fleet(count=1)
    id = await region.active()
    await region.host_status(1, disabled=True)
    assert (await region.server(id))["host_status"] == "MAINTENANCE"
    await region.host_status(1, down=True)
    assert (await region.server(id))["host_status"] == "DOWN"


async def test_a_fault_is_shown_while_the_server_is_in_error(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create(who="ann:blue")
    await region.finish(id, "the disk is full")
    shown = await region.server(id, who="ann:blue")
    assert shown["fault"] == {
        "code": 500,
        "created": "2026-01-01T00:00:00Z",
        "message": "the disk is full",
    }
    assert await region.held(id) == {}
    server = region.record(id)
    await region.put(msgspec.structs.replace(server, fault=Fault("m", 0, details="d")))
    assert (await region.server(id))["fault"]["details"] == "d"
    await region.put(msgspec.structs.replace(server, state="active"))
    assert "fault" not in await region.server(id)


async def test_a_server_that_fitted_nowhere_says_why_it_did_not_then(region: RegionWorld) -> None:
    """Whatever has changed since. Its owner is told numbers, and no hosts."""
    await region.fleet(3)
    id = await region.create("big", flavorRef="3", who="ann:blue")
    await region.host_status(1, down=True)
    told = (await region.server(id))["fault"]["details"]
    assert "It fits nowhere. All 3 hosts are removed by resources:VCPU" in told
    assert "Closest is host-" in told
    assert "It would fit with" in told
    owner = (await region.server(id, who="ann:blue"))["fault"]["details"]
    assert "All 3 hosts are removed by resources:VCPU" in owner
    assert "It would fit with" in owner
    assert "host-" not in owner


async def test_explanations_take_no_more_than_their_share_of_the_time(region: RegionWorld) -> None:
    """A client that goes on asking for what fits nowhere gets refusals, without an explanation each."""
    await region.fleet(3)
    share = region.parts.services.explanations
    with share.spend():
        region.clock.advance(1)
        assert not share.is_free
        id = await region.create("big", flavorRef="3")
    assert "details" not in (await region.server(id))["fault"]
    region.clock.advance(8.9)
    assert not share.is_free
    region.clock.advance(0.2)
    assert "details" in (await region.server(await region.create("big", flavorRef="3")))["fault"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("os-security-groups", {"security_groups": []}),
        ("os-interface", {"interfaceAttachments": []}),
        ("os-volume_attachments", {"volumeAttachments": []}),
    ],
)
async def test_what_other_services_have_is_an_empty_list(
    region: RegionWorld, path: str, body: object
) -> None:
    await region.fleet()
    id = await region.active()
    assert (await region.compute("GET", f"/servers/{id}/{path}")).json == body
    assert (await region.compute("GET", f"/servers/{uuid_of(1)}/{path}")).status == 404


# -- listing ------------------------------------------------------------------------------------


async def test_pages_are_cut_newest_first(region: RegionWorld) -> None:
    await region.fleet()
    for number in range(5):
        await region.create(f"s{number}")
        region.clock.advance(1)
    path: str | None = "/servers?limit=2&status=BUILD"
    seen = []
    while path is not None:
        page = (await region.compute("GET", path)).json
        seen.append([one["name"] for one in page["servers"]])
        [link] = page.get("servers_links", [None])
        parts = urlsplit(link["href"]) if link is not None else None
        path = None if parts is None else f"{parts.path.removeprefix('/compute/v2.1')}?{parts.query}"
    assert seen == [["s4", "s3"], ["s2", "s1"], ["s0"]]
    assert (await region.compute("GET", "/servers?limit=0")).json == {"servers": []}
    for query in ("limit=-1", "limit=x", f"marker={uuid_of(1)}"):
        assert (await region.compute("GET", f"/servers?{query}")).status == 400, query


async def test_a_project_sees_its_own(region: RegionWorld) -> None:
    await region.fleet()
    await region.create("b", who="ann:blue")
    await region.create("g", who="bob:green")
    await region.create("a")
    assert await names(region, who="ann:blue") == ["b"]
    assert await names(region, "project_id=blue", who="ann:blue") == ["b"]
    assert (await region.compute("GET", "/servers?project_id=green", who="ann:blue")).status == 403
    assert await names(region, "project_id=green") == ["g"]
    assert (await region.compute("GET", "/servers?project_id=green&all_tenants=0")).status == 400
    assert await names(region) == ["a"]
    assert sorted(await names(region, "all_tenants=True")) == ["a", "b", "g"]
    assert await names(region, "all_tenants=1&project_id=green") == ["g"]
    assert await names(region, "all_tenants=0") == ["a"]
    refused = await region.compute("GET", "/servers?all_tenants=1", who="ann:blue")
    assert (refused.status, "get_all_tenants" in refused.json["forbidden"]["message"]) == (403, True)
    assert (await region.compute("GET", "/servers?all_tenants=perhaps")).status == 400


async def test_lists_are_filtered(region: RegionWorld) -> None:
    await region.fleet()
    one = await region.active("web-one", host="host-1", imageRef=CIRROS.id)
    region.clock.advance(60)
    two = await region.create("web-two", host="host-2", flavorRef=LARGE.id)
    await region.act(one, "lock")
    for query, found in (
        ("name=web", ["web-two", "web-one"]),
        ("name=^web-t", ["web-two"]),
        ("name=eb-one$", ["web-one"]),
        ("name=^b", []),
        ("status=active", ["web-one"]),
        ("status=BUILD", ["web-two"]),
        ("status=SHELVED", []),
        ("vm_state=active", ["web-one"]),
        ("task_state=spawning", ["web-two"]),
        ("power_state=1", ["web-one"]),
        ("host=host-2", ["web-two"]),
        (f"flavor={LARGE.id}", ["web-two"]),
        (f"image={CIRROS.id}", ["web-one"]),
        (f"uuid={two}", ["web-two"]),
        ("key_name=k", []),
        ("locked=true", ["web-one"]),
        ("availability_zone=nova", ["web-two", "web-one"]),
        ("changes-before=2026-01-01T00:00:30Z", []),
        ("changes-since=2026-01-01T00:00:30", ["web-two", "web-one"]),
        ("deleted=true", []),
        ("deleted=false", ["web-two", "web-one"]),
        ("sort_key=created_at&sort_dir=desc", ["web-two", "web-one"]),
    ):
        assert await names(region, query) == found, query
    detailed = (await region.compute("GET", "/servers/detail?name=one")).json["servers"]
    assert [(it["id"], it["status"], "server_groups" in it) for it in detailed] == [(one, "ACTIVE", False)]
    assert (await region.compute("GET", "/servers?changes-since=yesterday")).status == 400


async def test_a_status_that_does_not_exist_is_refused_as_in_nova(region: RegionWorld) -> None:
    await region.fleet()
    await region.active("web")
    refused = await region.compute("GET", "/servers?status=nonsense")
    message = refused.json["badRequest"]["message"]
    assert (refused.status, "there is no status 'nonsense'" in message) == (400, True)
    assert ", ".join(sorted(STATUSES)) in message
    assert await names(region, "status=nonsense", version="2.37") == []
    assert await names(region, "status=paused") == []


async def test_hosts_are_no_filter_for_those_who_must_not_know_them(region: RegionWorld) -> None:
    await region.fleet()
    refused = await region.compute("GET", "/servers?host=nowhere", who="ann:blue")
    assert (refused.status, "allow_all_filters" in refused.json["forbidden"]["message"]) == (403, True)


@pytest.mark.parametrize(
    ("pattern", "name", "is_like"),
    [
        ("", "anything", True),
        ("a.c", "a.c", True),
        ("a.c", "abc", True),
        ("^a$", "a", True),
        ("^a$", "aa", False),
        ("^aa$", "a", False),
        ("a.*c", "xabcx", True),
        ("c.*a", "abc", False),
        ("^ab.*ba$", "aba", False),
        ("^ab.*ba$", "abba", True),
        ("a.*b.*c$", "abbc", True),
        (r"a\.b", "a.b", True),
        ("(x+x+)+y", "x" * 5000, False),
    ],
)
def test_names_are_looked_for(pattern: str, name: str, is_like: bool) -> None:
    assert Regex(pattern).matches(name) is is_like


# -- changing -----------------------------------------------------------------------------------


async def test_a_server_is_renamed_also_while_it_is_busy(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create(description="old")
    body = {"server": {"name": "new", "description": None}}
    changed = await region.compute("PUT", f"/servers/{id}", body)
    assert (changed.status, changed.json["server"]["name"]) == (200, "new")
    assert changed.json["server"]["description"] is None
    await region.finish(id)
    assert [region.record(id).name, region.record(id).state] == ["new", "active"]
    for wrong, version in (
        ({"server": {"name": ""}}, "2.94"),
        ({"server": {"name": "x\n"}}, "2.94"),
        ({"server": {"flavorRef": "1"}}, "2.94"),
        ({"server": {"description": "x"}}, "2.18"),
        ({}, "2.94"),
    ):
        answer = await region.compute("PUT", f"/servers/{id}", wrong, version=version)
        assert answer.status == 400, wrong
    assert region.record(id).name == "new"


async def test_metadata_comes_and_goes(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(metadata={"a": "1"})
    path = f"/servers/{id}/metadata"
    added = await region.compute("POST", path, {"metadata": {"b": "2"}})
    assert added.json == {"metadata": {"a": "1", "b": "2"}}
    assert (await region.compute("PUT", f"{path}/c", {"meta": {"c": "3"}})).json == {"meta": {"c": "3"}}
    assert (await region.compute("GET", f"{path}/c")).json == {"meta": {"c": "3"}}
    assert (await region.compute("DELETE", f"{path}/a")).status == 204
    assert (await region.compute("GET", path)).json == {"metadata": {"b": "2", "c": "3"}}
    assert (await region.compute("PUT", path, {"metadata": {"z": ""}})).json == {"metadata": {"z": ""}}
    for method, where, body, status in (
        ("GET", "/a", None, 404),
        ("DELETE", "/a", None, 404),
        ("PUT", "/a", {"meta": {"b": "1"}}, 400),
        ("PUT", "/a", {"meta": {"a": "1", "b": "1"}}, 400),
        ("POST", "", {"metadata": {"a": 1}}, 400),
        ("POST", "", {"metadata": {f"k{number}": "" for number in range(128)}}, 403),
    ):
        answer = await region.compute(method, f"{path}{where}", body)
        assert answer.status == status, (method, where)
    assert region.record(id).metadata == {"z": ""}


async def test_a_locked_server_is_only_looked_at(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who="ann:blue")
    assert (await region.act(id, "lock", {"locked_reason": "mine"}, who="ann:blue")).status == 202
    assert (await region.server(id, who="ann:blue"))["locked"] is True
    for method, path, body in (
        ("DELETE", "", None),
        ("POST", "/action", {"os-stop": None}),
        ("POST", "/action", {"forceDelete": None}),
        ("PUT", "/metadata", {"metadata": {}}),
    ):
        answer = await region.compute(method, f"/servers/{id}{path}", body, who="ann:blue")
        assert answer.status == 409
        assert answer.json["conflictingRequest"]["message"] == f"Instance {id} is locked: unlock it first."
    assert (await region.act(id, "os-stop")).status == 202
    await region.finish(id)
    assert (await region.act(id, "unlock", who="ann:blue")).status == 202
    assert (await region.act(id, "os-start", who="ann:blue")).status == 202


async def test_what_the_api_refuses_in_the_writers_turn_is_a_rejection_that_is_counted(
    region: RegionWorld,
) -> None:
    await region.fleet()
    id = await region.active(who="ann:blue")
    await region.act(id, "lock", who="ann:blue")
    for name in ("os-stop", "shelve", "forceDelete"):
        assert (await region.act(id, name, who="ann:blue")).status == 409
    flavor = {"flavor": {"name": SMALL.name, "vcpus": 1, "ram": 1, "disk": 1}}
    assert (await region.compute("POST", "/flavors", flavor)).status == 409
    metrics = (await region.ask("GET", "/metrics")).body.decode()
    assert 'berth_rejections_total{kind="ServerLocked"} 3.0' in metrics
    assert 'berth_rejections_total{kind="FlavorExists"} 1.0' in metrics


# -- deleting -----------------------------------------------------------------------------------


async def test_a_server_is_deleted_once_however_often_it_is_asked(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
    run = region.saga_run(id)
    assert run.saga == "delete"
    assert (await region.server(id))["OS-EXT-STS:task_state"] == "deleting"
    assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
    assert region.saga_run(id) == run
    assert await region.held(id) != {}
    await region.finish(id)
    assert await region.held(id) == {}
    assert (await region.compute("GET", f"/servers/{id}")).status == 404
    assert (await region.compute("DELETE", f"/servers/{id}")).status == 404


async def test_a_busy_server_is_deleted_as_soon_as_what_is_under_way_is_aborted(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create()
    for method, path, body, status in (
        ("DELETE", f"/servers/{id}", None, 204),
        ("DELETE", f"/servers/{id}", None, 204),
        ("POST", f"/servers/{id}/action", {"forceDelete": None}, 202),
    ):
        assert (await region.compute(method, path, body)).status == status
        shown = (await region.compute("GET", f"/servers/{id}")).json["server"]
        assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("BUILD", "deleting")
    answer = await region.compute("POST", f"/servers/{id}/action", {"os-stop": None})
    assert answer.status == 409
    assert "while it is in task_state deleting" in answer.json["conflictingRequest"]["message"]
    aborted = [one.abort for one in region.engine.view.records.all(Outbox) if one.abort is not None]
    assert aborted == [region.record(id).run]


async def add_bandwidth(region: RegionWorld, id: str) -> None:
    """Somebody else changes what a server holds."""
    found = await region.change("GET", f"/allocations/{id}")
    [(host, there)] = found["allocations"].items()
    body = {
        "allocations": {host: {"resources": there["resources"] | {"VCPU": 3}}},
        "project_id": found["project_id"],
        "user_id": found["user_id"],
        "consumer_generation": found["consumer_generation"],
        "consumer_type": "INSTANCE",
    }
    await region.change("PUT", f"/allocations/{id}", body)


@pytest.mark.parametrize("policy", ["fail", "retry", "merge"])
async def test_what_others_have_changed_is_reported_once(region: RegionWorld, policy: str) -> None:
    await region.fleet()
    id = await region.active()
    await add_bandwidth(region, id)
    refused = await region.compute("DELETE", f"/servers/{id}")
    assert refused.status == 409
    message = refused.json["conflictingRequest"]["message"]
    assert "another client has changed its allocations" in message
    assert "Send the request again to continue: what was added is kept." in message
    wrong = await region.compute("DELETE", f"/servers/{id}", headers={"x-berth-conflict-policy": "hope"})
    assert wrong.status == 400
    asked = {"x-berth-conflict-policy": policy}
    assert (await region.compute("DELETE", f"/servers/{id}", headers=asked)).status == 204
    await region.finish(id)
    assert await region.held(id) == {}


async def test_a_repeated_request_is_refused_until_the_doctor_where_the_deployment_says_so(
    tmp_path: Path,
) -> None:
    async with RegionWorld(tmp_path, conflict_repeat="refuse").running() as region:
        await region.fleet()
        id = await region.active()
        await add_bandwidth(region, id)
        for _ in range(3):
            refused = await region.compute("DELETE", f"/servers/{id}")
            assert refused.status == 409
            assert "until an administrator repairs" in refused.json["conflictingRequest"]["message"]
        asked = {"x-berth-conflict-policy": "merge"}
        assert (await region.compute("DELETE", f"/servers/{id}", headers=asked)).status == 204


@pytest.mark.parametrize("count", [64])
async def test_of_many_requests_after_one_foreign_write_one_goes_on(region: RegionWorld, count: int) -> None:
    await region.fleet()
    id = await region.active()
    await add_bandwidth(region, id)
    answers = await asyncio.gather(*(region.act(id, "migrate") for _ in range(count)))
    statuses = Counter(answer.status for answer in answers)
    assert statuses == {202: 1, 409: count - 1}
    words = [a.json["conflictingRequest"]["message"] for a in answers if a.status == 409]
    assert len([word for word in words if "another client has changed" in word]) == 1
    assert len([word for word in words if "while it is in task_state" in word]) == count - 2
    await region.finish(id)
    held = await region.held(id)
    assert [amounts["VCPU"] for amounts in held.values()] == [3]


async def test_a_forced_deletion_does_not_mind(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    await add_bandwidth(region, id)
    assert (await region.act(id, "forceDelete")).status == 202
    await region.finish(id)
    assert await region.held(id) == {}
    assert (await region.compute("GET", f"/servers/{id}")).status == 404
