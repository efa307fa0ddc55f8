"""What a member can find out about other projects' servers, about hosts and about the fleet: nothing."""

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from berth.model.servers import Fault
from tests.unit.native.clusters import CLUSTERS, created, kept, shown
from tests.worlds import CIRROS, HUGE, LARGE, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

ANN, BOB = "ann:blue", "bob:red"
FLEET = ("host-", "hosts left", "host left", "free")


def said(answer: HttpAnswer) -> str:
    [fault] = answer.json.values()
    text: str = fault["message"]
    return text


def tells_of_hosts(text: str | None) -> list[str]:
    return [word for word in FLEET if word in (text or "").replace("Nothing free", "")]


# -- hints --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", ["same_host", "different_host"])
async def test_a_hint_names_servers_that_are_there_for_the_caller(region: RegionWorld, hint: str) -> None:
    await region.fleet()
    hers = await region.create("hers", who=ANN)
    body: dict[str, Any] = {"server": {"name": "his", "flavorRef": "1"}}
    answers = []
    for named in (hers, uuid_of(4711)):
        body["os:scheduler_hints"] = {hint: [named]}
        answer = await region.compute("POST", "/servers", body, who=BOB)
        answers.append((answer.status, said(answer).replace(named, "ID")))
    # One of another project is refused in the very words for one that there is not.
    assert answers[0] == answers[1]
    assert answers[0][0] == 400
    body["os:scheduler_hints"] = {hint: [hers]}
    for who in (ANN, "admin"):
        assert (await region.compute("POST", "/servers", body, who=who)).status == 202


# -- no place -----------------------------------------------------------------------------------


async def test_a_member_learns_what_to_change_and_not_what_there_is(region: RegionWorld) -> None:
    await region.fleet()
    await region.host_status(1, disabled=True)
    id = await region.create("big", who=ANN, flavorRef=HUGE.id)
    fault = (await region.server(id, who=ANN))["fault"]
    assert fault["message"] == (
        "No valid host was found. Nothing free fits the request. Change the flavor huge, or retry later."
    )
    assert "Of 3 hosts 1 is removed by enabled" in fault["details"]
    assert "host-" not in fault["details"]
    path = f"/servers/{id}/os-instance-actions"
    [action] = (await region.compute("GET", path, who=ANN)).json["instanceActions"]
    assert action["message"] == fault["message"]
    whole = (await region.compute("GET", f"{path}/{action['request_id']}", who=ANN)).json["instanceAction"]
    assert tells_of_hosts(str(whole)) == []
    assert [event.keys() & {"host", "details", "traceback"} for event in whole["events"]] == [set()]
    # An administrator reads all of it.
    assert "hosts left" in (await region.server(id))["fault"]["message"]
    [action] = (await region.compute("GET", path)).json["instanceActions"]
    assert "hosts left" in action["message"]


async def test_a_move_that_finds_no_place(region: RegionWorld) -> None:
    await region.fleet(count=1)
    id = await region.active(who=ANN)
    await region.put(msgspec.structs.replace(LARGE, vcpus=64))
    for who, is_told in ((ANN, False), ("admin", True)):
        answer = await region.act(id, "resize", {"flavorRef": LARGE.id}, who=who)
        assert (answer.status, said(answer).startswith("No valid host was found.")) == (400, True)
        assert bool(tells_of_hosts(said(answer))) == is_told


# -- hosts --------------------------------------------------------------------------------------


async def test_a_host_that_is_down_is_not_named(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who=ANN)
    place = region.record(id).place
    assert place is not None
    await region.host_status(int(place.name.removeprefix("host-")), down=True)
    answer = await region.act(id, "os-stop", who=ANN)
    assert (answer.status, said(answer)) == (
        409,
        "Cannot 'stop': the host is down. Wait until it is back, or evacuate.",
    )
    assert place.name in said(await region.act(id, "os-stop"))


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("the host host-2 is down", "the host is down"),
        ("host-2: no space left", "a host: no space left"),
        (f"it is on {uuid_of(2)}.", "it is on a host."),
        ("disk of host-22 is full", "disk of host-22 is full"),
        ("VF 3 of host-2_0000:81:00.0 is gone", "VF 3 of a host:81:00.0 is gone"),
        ("host-2.example.net: refused", "a host: refused"),
        (
            "Unable to create allocation for 'VCPU' on resource provider 'x'. others use 3 of 8.",
            "What it needs could not be claimed. Retry later, or ask an administrator.",
        ),
    ],
)
async def test_a_fault_names_no_host(region: RegionWorld, stored: str, shown: str) -> None:
    await region.fleet()
    id = await region.active(who=ANN)
    fault = Fault(stored, 5, details="host-2 said so")
    await region.put(msgspec.structs.replace(region.record(id), state="error", fault=fault))
    seen = (await region.server(id, who=ANN))["fault"]
    assert (seen["message"], "details" in seen) == (shown, False)
    seen = (await region.server(id))["fault"]
    assert (seen["message"], seen["details"]) == (stored, "host-2 said so")


@pytest.mark.parametrize(
    ("properties", "needed", "found"),
    [
        ({"hw_architecture": "aarch64"}, "the architecture aarch64", "it does not say its architecture"),
        ({"img_hv_type": "xen"}, "the hypervisor xen", "it has no agent"),
    ],
)
async def test_an_image_that_the_host_does_not_suit(
    region: RegionWorld, properties: dict[str, str], needed: str, found: str
) -> None:
    await region.fleet()
    image = msgspec.structs.replace(CIRROS, id=uuid_of(950), properties=properties)
    await region.put(image)
    id = await region.active(who=ANN, imageRef=CIRROS.id)
    for who, is_told in ((ANN, False), ("admin", True)):
        answer = await region.act(id, "rebuild", {"imageRef": image.id}, who=who)
        assert (answer.status, needed in said(answer)) == (400, True)
        assert ("host-" in said(answer), found in said(answer)) == (is_told, is_told)


async def test_a_manager_moves_servers_and_does_not_learn_where(region: RegionWorld) -> None:
    manager = {"x-roles": "manager"}

    await region.fleet()
    id = await region.active(who=ANN)
    body = {"host": None, "block_migration": "auto"}
    named = body | {"host": "host-1"}
    assert (await region.act(id, "os-migrateLive", named, who=ANN, headers=manager)).status == 403
    assert (await region.act(id, "os-migrateLive", body, who=ANN, headers=manager)).status == 202
    hosts = ("source_compute", "source_node", "dest_compute", "dest_node", "dest_host")
    for path in ("/os-migrations?project_id=blue", f"/servers/{id}/migrations"):
        [seen] = (await region.compute("GET", path, who=ANN, headers=manager)).json["migrations"]
        assert {seen[name] for name in hosts} == {None}
        [seen] = (await region.compute("GET", path)).json["migrations"]
        assert None not in {seen[name] for name in hosts}
    for path in ("/os-migrations", "/os-migrations?project_id=red"):
        assert (await region.compute("GET", path, who=ANN, headers=manager)).status == 403
    # Nor can it be guessed: neither the host, nor whether others have such a migration.
    for query in ("host=host-1", "source_compute=host-1"):
        path = f"/os-migrations?project_id=blue&{query}"
        assert (await region.compute("GET", path, who=ANN, headers=manager)).status == 403
        assert (await region.compute("GET", path)).status == 200
    [migration] = region.migrations(id)
    answers = [
        await region.compute(
            "GET", f"/os-migrations?project_id=red&marker={marker}", who=BOB, headers=manager
        )
        for marker in (migration.id, uuid_of(4711))
    ]
    assert [answer.status for answer in answers] == [400, 400]


async def test_a_cluster_that_does_not_fit(region: RegionWorld) -> None:
    await region.fleet()
    body = {"cluster": {"name": "c", "node_groups": [{"name": "w", "flavor": "huge", "count": 2}]}}
    for who, is_told in ((ANN, False), ("admin", True)):
        headers = {"x-roles": "member"} if who == ANN else {}
        answer = await region.ask("POST", "/berth/v1/clusters", body, token=who, headers=headers)
        assert (answer.status, answer.error["code"]) == (409, "berth.no_fit")
        assert bool(tells_of_hosts(answer.error["detail"])) == is_told
        assert "there is no place for its 2 new nodes" in answer.error["detail"]


async def test_a_project_beyond_its_quota_does_not_learn_what_would_fit(tmp_path: Path) -> None:
    """28 nodes of which 4 fit on a host: that told how many hosts there are."""
    async with RegionWorld(tmp_path, quota_instances=2).running() as region:
        await region.fleet(count=7)
        group = {"name": "w", "flavor": "small", "count": 28, "processes": ["p"]}
        body = {"cluster": {"name": "c", "node_groups": [group], "anti_affinity": ["p"]}}
        answer = await region.ask("POST", CLUSTERS, body, token=ANN, headers={"x-roles": "member"})
        assert (answer.status, answer.error["code"]) == (403, "berth.quota_exceeded")


async def test_a_cluster_says_that_the_quota_leaves_no_room(region: RegionWorld) -> None:
    await region.fleet()
    group = {"name": "w", "flavor": "small", "count": 2}
    made = await created(region, {"cluster": {"name": "c", "node_groups": [group]}}, token=ANN)
    await kept(region)
    path = f"{CLUSTERS}/{made['uuid']}"
    await region.ask("POST", f"{path}/nodes/w-0/replace", {"force": True}, token=ANN)
    quota = {"instances": 1, "cores": 2, "force": True}
    await region.compute("PUT", "/os-quota-sets/blue", {"quota_set": quota})
    await kept(region)
    words = "the quota of cores, instances leaves no room for a replacement of w-0; retrying"
    for who in (ANN, "admin"):
        assert (await shown(region, made["uuid"], token=who))["fault"] == words


@pytest.mark.parametrize("who", [ANN, "admin"])
@pytest.mark.parametrize("visibility", ["community", "private"])
async def test_an_image_of_another_project_is_not_taken_by_its_name(
    region: RegionWorld, visibility: Literal["community", "private"], who: str
) -> None:
    """Whoever gave an image the name of another one had it put on the nodes of others, or kept them out."""
    await region.fleet()
    theirs = msgspec.structs.replace(CIRROS, id=uuid_of(960), visibility=visibility, owner="red")
    await region.put(theirs, msgspec.structs.replace(theirs, id=uuid_of(961), name="golden"))

    def body(image: str) -> dict[str, Any]:
        group = {"name": "w", "flavor": "small", "count": 1, "image": image}
        return {"cluster": {"name": "c", "node_groups": [group]}}

    made = await created(region, body("cirros"), token=who)
    assert region.record(made["nodes"][0]["server_uuid"]).image == CIRROS.id
    assert (await region.ask("POST", CLUSTERS, body("golden"), token=who)).status == 400
    named = await region.ask("POST", CLUSTERS, body(theirs.id), token=who)
    assert named.status == (400 if (visibility, who) == ("private", ANN) else 202)


# -- locks --------------------------------------------------------------------------------------


async def test_an_administrators_lock_is_the_administrators(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who=ANN)
    assert (await region.act(id, "lock", {"locked_reason": "abuse"})).status == 202
    # The owner's own lock on top of it changes nothing.
    assert (await region.act(id, "lock", {"locked_reason": "mine"}, who=ANN)).status == 202
    refused = await region.act(id, "unlock", who=ANN)
    assert (refused.status, "unlock_override" in said(refused)) == (403, True)
    seen = await region.server(id, who=ANN)
    assert (seen["locked"], seen["locked_reason"]) == (True, "abuse")
    assert (await region.act(id, "os-stop", who=ANN)).status == 409
    assert (await region.act(id, "unlock")).status == 202
    seen = await region.server(id, who=ANN)
    assert (seen["locked"], seen["locked_reason"]) == (False, None)


async def test_an_owners_lock_is_undone_by_both(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who=ANN)
    for who in (ANN, "admin"):
        assert (await region.act(id, "lock", who=ANN)).status == 202
        assert (await region.act(id, "unlock", who=who)).status == 202
        assert (await region.server(id, who=ANN))["locked"] is False
    assert "locked_reason" not in await region.server(id, version="2.72")


async def test_a_cluster_does_not_take_a_locked_server_away(region: RegionWorld) -> None:
    """An administrator's lock was undone by deleting the cluster that the server was a node of."""
    await region.fleet()
    group = {"name": "w", "flavor": "small", "count": 2}
    made = await created(region, {"cluster": {"name": "c", "node_groups": [group]}}, token=ANN)
    await kept(region)
    id = made["nodes"][0]["server_uuid"]
    assert (await region.act(id, "lock")).status == 202
    assert (await region.ask("DELETE", f"{CLUSTERS}/{made['uuid']}", token=ANN)).status == 202
    await kept(region)
    seen = await shown(region, made["uuid"], token=ANN)
    [node] = seen["nodes"]
    assert (seen["state"], node["server_uuid"], node["status"]) == ("deleting", id, "ACTIVE")
    assert node["fault"] == "The server is locked: it is deleted as soon as it is unlocked."
    assert (await region.act(id, "unlock")).status == 202
    await kept(region)
    assert (await region.ask("GET", f"{CLUSTERS}/{made['uuid']}", token=ANN)).status == 404


async def test_a_live_migration_of_a_locked_server_is_not_aborted(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who=ANN)
    assert (await region.act(id, "os-migrateLive", {"block_migration": "auto"})).status == 202
    assert (await region.act(id, "lock")).status == 202
    [migration] = region.migrations(id)
    path, manager = f"/servers/{id}/migrations/{migration.id}", {"x-roles": "manager"}
    assert (await region.compute("DELETE", path, who=ANN, headers=manager)).status == 409
    assert (await region.compute("DELETE", path)).status == 202
