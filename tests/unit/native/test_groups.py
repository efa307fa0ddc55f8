"""Groups, aggregates and hosts through the native API, and what their rules do to the Placement API."""

from typing import Any

import pytest

from berth.model.servers import Host
from berth.view.records import Records
from tests.unit.native.refused_schedules import REFUSED_GROUPS
from tests.worlds import ApplicationWorld, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

HOSTS = 3


async def fleet(world: ApplicationWorld) -> None:
    for number in range(1, HOSTS + 1):
        await world.host(number)


async def group(world: ApplicationWorld, **fields: Any) -> str:
    body = {"group": {"name": "db", "policy": "anti-affinity", **fields}}
    id: str = (await world.change("POST", "/berth/v1/groups", body))["group"]["uuid"]
    return id


async def claim(
    world: ApplicationWorld, consumer: int, host: int | None, generation: int | None = None
) -> HttpAnswer:
    held = {} if host is None else {uuid_of(host): {"resources": {"VCPU": 1}}}
    body = {
        "allocations": held,
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }
    return await world.ask("PUT", f"/allocations/{uuid_of(consumer)}", body)


async def post(world: ApplicationWorld, **held: tuple[int | None, int | None]) -> HttpAnswer:
    """POST /allocations: by consumer number, the host and the generation."""
    body = {
        uuid_of(int(consumer[1:])): {
            "allocations": {} if host is None else {uuid_of(host): {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": generation,
            "consumer_type": "INSTANCE",
        }
        for consumer, (host, generation) in held.items()
    }
    return await world.ask("POST", "/allocations", body)


async def test_a_group_is_created_shown_listed_changed_and_deleted(world: ApplicationWorld) -> None:
    await fleet(world)
    made = await world.ask(
        "POST",
        "/berth/v1/groups",
        {"group": {"name": "db", "policy": "anti-affinity", "members": [uuid_of(101)]}},
    )
    assert made.status == 201
    it = made.json["group"]
    assert made.headers["location"] == f"/berth/v1/groups/{it['uuid']}"
    assert (it["max_per_domain"], it["max_skew"], it["domain"]) == (1, None, "host")
    assert (await claim(world, 101, 2)).status == 204
    shown = (await world.get(f"/berth/v1/groups/{it['uuid']}")).json["group"]
    assert shown["members"] == [
        {
            "consumer_uuid": uuid_of(101),
            "name": None,
            "stands_for": uuid_of(101),
            "standing": [{"host_uuid": uuid_of(2), "host_name": "host-2", "domains": [uuid_of(2)]}],
        }
    ]
    assert shown["domains"] == [{"domain": uuid_of(2), "name": "host-2", "members": 1}]
    assert shown["domains_total"] == len((await world.get("/berth/v1/hosts")).json["hosts"])
    [listed] = (await world.get("/berth/v1/groups")).json["groups"]
    assert listed["member_count"] == 1
    assert (await world.get("/berth/v1/groups?project=nobody")).json["groups"] == []
    changed = await world.change(
        "PATCH", f"/berth/v1/groups/{it['uuid']}", {"group": {"name": "new", "max_per_domain": 2}}
    )
    assert (changed["group"]["name"], changed["group"]["max_per_domain"]) == ("new", 2)
    refused = await world.ask("DELETE", f"/berth/v1/groups/{it['uuid']}")
    assert (refused.status, refused.error["code"]) == (409, "berth.conflict")
    assert "has 1 member: remove it first, or delete it with force=true" in refused.error["detail"]
    assert (await world.ask("DELETE", f"/berth/v1/groups/{it['uuid']}?force=true")).status == 204
    assert (await world.get(f"/berth/v1/groups/{it['uuid']}")).status == 404


async def test_a_claim_that_breaks_a_policy_is_refused_whoever_asks(world: ApplicationWorld) -> None:
    await fleet(world)
    id = await group(world, members=[uuid_of(101), uuid_of(102)])
    assert (await claim(world, 101, 1)).status == 204
    for refused in (await claim(world, 102, 1), await post(world, c102=(1, None))):
        assert refused.status == 409
        assert refused.error["code"] == "berth.group_policy"
        assert (
            f"The anti-affinity of group db ({id}) keeps consumer {uuid_of(102)} from host host-1: "
            "it would have 2 members, and at most 1 may share one. Hosts of the members: "
            f"{uuid_of(101)} on host-1. Try another host."
        ) in refused.error["detail"]
    assert (await claim(world, 102, 2)).status == 204
    # Two members of one request see each other.
    await world.change("POST", f"/berth/v1/groups/{id}/members", {"add": [uuid_of(103), uuid_of(104)]})
    assert (await post(world, c103=(3, None), c104=(3, None))).status == 409


async def test_while_a_move_waits_nobody_takes_the_place_it_came_from(world: ApplicationWorld) -> None:
    await fleet(world)
    id = await group(world, members=[uuid_of(101), uuid_of(102)])
    await claim(world, 101, 1)
    # As Nova does it: what the server held becomes the migration's, then the server claims elsewhere.
    assert (await post(world, c900=(1, None), c101=(None, 1))).status == 204
    assert (await claim(world, 101, 2)).status == 204
    shown = (await world.get(f"/berth/v1/groups/{id}")).json["group"]
    assert [(m["consumer_uuid"], m["stands_for"]) for m in shown["members"]] == [
        (uuid_of(101), uuid_of(101)),
        (uuid_of(102), uuid_of(102)),
        (uuid_of(900), uuid_of(101)),
    ]
    for host in (1, 2):
        assert (await claim(world, 102, host)).error["code"] == "berth.group_policy"
    # Revert: the migration gives back what it held.
    assert (await post(world, c900=(None, 1), c101=(1, 1))).status == 204
    assert (await claim(world, 102, 2)).status == 204
    shown = (await world.get(f"/berth/v1/groups/{id}")).json["group"]
    assert uuid_of(900) not in [m["consumer_uuid"] for m in shown["members"]]


async def test_racks_and_zones_are_aggregates_with_a_kind(world: ApplicationWorld) -> None:
    await fleet(world)
    racks = [uuid_of(501), uuid_of(502)]
    for number, rack in ((1, racks[0]), (2, racks[0]), (3, racks[1])):
        await world.join(number, rack)
    for number, rack in enumerate(racks):
        body = {"aggregate": {"kind": "rack", "name": f"r{number}", "metadata": {"ssd": "yes"}}}
        labelled = await world.change("PUT", f"/berth/v1/aggregates/{rack}", body)
        assert labelled["aggregate"]["name"] == f"r{number}"
    listed = (await world.get("/berth/v1/aggregates?kind=rack")).json["aggregates"]
    assert [(one["name"], one["providers"]) for one in listed] == [("r0", 2), ("r1", 1)]
    await group(world, domain="rack", members=[uuid_of(101), uuid_of(102)])
    await claim(world, 101, 1)
    refused = await claim(world, 102, 2)
    assert "from host host-2 in r0: it would have 2 members" in refused.error["detail"]
    assert (await claim(world, 102, 3)).status == 204
    [first, *_] = (await world.get("/berth/v1/hosts")).json["hosts"]
    assert first["domains"] == [{"uuid": racks[0], "kind": "rack", "name": "r0"}]
    assert (await world.ask("DELETE", f"/berth/v1/aggregates/{racks[0]}")).status == 204
    last = await world.ask("DELETE", f"/berth/v1/aggregates/{racks[1]}")
    assert last.status == 409
    assert "This is the last rack, and groups use the kind" in last.error["detail"]


async def test_hosts_say_how_they_are_doing(world: ApplicationWorld) -> None:
    await fleet(world)
    await world.host(4, parent=1)
    body = {"host": {"disabled": True, "reason": "new disks"}}
    answered = await world.change("PUT", f"/berth/v1/hosts/{uuid_of(2)}", body)
    assert (answered["host"]["disabled"], answered["host"]["reason"]) == (True, "new disks")
    listed = (await world.get("/berth/v1/hosts?limit=2")).json
    assert [host["disabled"] for host in listed["hosts"]] == [False, True]
    assert len((await world.get(listed["next"])).json["hosts"]) == 1
    below = await world.ask("PUT", f"/berth/v1/hosts/{uuid_of(4)}", body)
    assert below.status == 409
    assert f"use {uuid_of(1)}, the root of its tree" in below.error["detail"]
    assert (await world.ask("PUT", f"/berth/v1/hosts/{uuid_of(77)}", body)).status == 404
    # One that comes to stand below another is no host any more.
    for parent in (uuid_of(1), None):
        place = {"name": "host-2", "parent_provider_uuid": parent}
        await world.change("PUT", f"/resource_providers/{uuid_of(2)}", place)
    listed = (await world.get("/berth/v1/hosts")).json["hosts"]
    assert [host["disabled"] for host in listed] == [False] * 3
    traits = (await world.get(f"/resource_providers/{uuid_of(2)}/traits")).json["traits"]
    assert traits == [], "nor has it the mark of a disabled one"


async def test_a_page_of_hosts_looks_at_no_others(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts are those with a provider, those with an agent, and those with both, in one order."""
    await region.fleet(3)
    first = (await region.get("/berth/v1/hosts")).json["hosts"][0]["uuid"]
    bare = [f"ffffffff-0000-4000-8000-{number:012}" for number in range(300)]
    await region.put(
        Host(id=first, number=1, name="host", cell="cell1", registered_at_s=1),
        *(Host(id=id, number=2, name=id, cell="cell1", registered_at_s=1) for id in bare),
    )
    looked_at = 0
    find_all = Records.all

    def count_all(records: Records, kind: type[Any]) -> Any:
        nonlocal looked_at
        looked_at += records.count(kind)
        return find_all(records, kind)

    monkeypatch.setattr(Records, "all", count_all)
    page = (await region.get("/berth/v1/hosts?limit=2")).json
    listed = [host["uuid"] for host in page["hosts"]]
    assert listed[0] == first
    while "next" in page and page["next"] is not None:
        page = (await region.get(page["next"].replace("limit=2", "limit=100"))).json
        listed += [host["uuid"] for host in page["hosts"]]
    assert (listed[3:], len(listed)) == (bare, 303)
    assert looked_at == 0


async def test_a_pool_is_not_listed_as_a_host(world: ApplicationWorld) -> None:
    await fleet(world)
    await world.host(4, {"DISK_GB": 100})
    path = f"/resource_providers/{uuid_of(4)}/traits"
    traits = (await world.get(path)).json | {"traits": ["MISC_SHARES_VIA_AGGREGATE"]}
    await world.change("PUT", path, traits)
    listed = (await world.get("/berth/v1/hosts")).json["hosts"]
    assert [host["uuid"] for host in listed] == [uuid_of(number) for number in (1, 2, 3)]


@pytest.mark.parametrize(("body", "words"), REFUSED_GROUPS)
async def test_a_group_that_cannot_be_is_refused(world: ApplicationWorld, body: object, words: str) -> None:
    answer = await world.ask("POST", "/berth/v1/groups", body)
    assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")
    assert words in answer.error["detail"]


async def test_a_consumer_is_in_one_group(world: ApplicationWorld) -> None:
    id = await group(world, members=[uuid_of(101)])
    other = await world.ask(
        "POST",
        "/berth/v1/groups",
        {"group": {"name": "b", "policy": "affinity", "members": [uuid_of(101)]}},
    )
    assert other.status == 409
    assert f"is already a member of group {id}" in other.error["detail"]
    same = {"group": {"uuid": id, "name": "b", "policy": "affinity"}}
    assert "already" in (await world.ask("POST", "/berth/v1/groups", same)).error["detail"]


async def test_a_body_of_another_kind_is_refused(world: ApplicationWorld) -> None:
    headers = {"content-type": "text/plain"}
    answer = await world.ask("POST", "/berth/v1/groups", {}, headers=headers)
    assert (answer.status, answer.error["code"]) == (415, "berth.unsupported_media")


async def test_events_show_changes_of_groups(world: ApplicationWorld) -> None:
    await fleet(world)
    id = await group(world, members=[uuid_of(101)])
    await world.change("PUT", f"/berth/v1/hosts/{uuid_of(1)}", {"host": {"down": True}})
    events = (await world.get("/berth/v1/events?limit=1000")).json["events"]
    [*_, created, host] = events
    kinds = [(change["kind"], change.get("group")) for change in created["changes"]]
    assert kinds == [("group", id), ("member", None)]
    assert host["changes"][0]["after"]["down"] is True
