"""Scheduling through the API: what is claimed, what is refused and in which words, dry runs and tokens."""

import base64
from collections import Counter
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from berth.api.native.schedule import Chosen, Token, read_token
from berth.model.ids import ConsumerId, ProviderId
from tests.unit.native.refused_schedules import REFUSED
from tests.worlds import ApplicationWorld, HttpAnswer, uuid_of

pytestmark = pytest.mark.fast

HOSTS = 3


async def fleet(world: ApplicationWorld, vcpus: int = 8) -> None:
    for number in range(1, HOSTS + 1):
        await world.host(number, {"VCPU": vcpus, "MEMORY_MB": 4096})


async def ask(world: ApplicationWorld, **body: Any) -> HttpAnswer:
    return await world.ask("POST", "/berth/v1/schedule", body)


async def placed(world: ApplicationWorld, **body: Any) -> Any:
    answer = await ask(world, **body)
    assert answer.status == 200, answer.body
    return answer.json


async def held(world: ApplicationWorld) -> Any:
    return (await world.get("/berth/v1/allocations?limit=1000")).json["allocations"]


async def test_what_is_claimed_says_who_made_it(world: ApplicationWorld) -> None:
    await fleet(world)
    await placed(world, resources={"VCPU": 1}, consumers=[uuid_of(101)])
    await placed(world, resources={"VCPU": 1}, consumers=[uuid_of(102)], consumer_type="INSTANCE")
    consumers = world.engine.view.consumers
    kinds = [consumers[ConsumerId(uuid_of(number))].consumer for number in (101, 102)]
    assert [(one.type, one.made_by) for one in kinds] == [
        ("WORKLOAD", "schedule"),
        ("INSTANCE", "schedule"),
    ]


async def test_what_is_answered_is_claimed(world: ApplicationWorld) -> None:
    await fleet(world)
    answer = await placed(
        world,
        resources={"VCPU": 2},
        consumers=[uuid_of(101)],
        project_id="p",
        user_id="u",
        alternates=5,
    )
    [placement] = answer["placements"]
    assert answer["claimed"] is True
    assert placement["consumer_uuid"] == uuid_of(101)
    assert placement["allocations"] == {placement["host_uuid"]: {"resources": {"VCPU": 2}}}
    assert placement["mappings"] == {"": [placement["host_uuid"]]}
    others = {way["host_name"] for way in placement["alternates"]}
    assert others == {"host-1", "host-2", "host-3"} - {placement["host_name"]}
    [row] = await held(world)
    assert row["consumer_uuid"] == uuid_of(101)
    assert row["resource_provider_uuid"] == placement["host_uuid"]
    assert (row["project_id"], row["user_id"], row["consumer_type"]) == ("p", "u", "WORKLOAD")
    # An alternate can be claimed as it stands.
    swapped = {
        "allocations": placement["alternates"][0]["allocations"],
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
        "consumer_type": "INSTANCE",
    }
    assert (await world.ask("PUT", f"/allocations/{uuid_of(101)}", swapped)).status == 204


async def test_many_are_placed_whole_or_not_at_all(world: ApplicationWorld) -> None:
    await fleet(world, vcpus=4)
    answer = await placed(world, resources={"VCPU": 2}, min_count=2, max_count=20)
    assert len(answer["placements"]) == 6
    refused = await ask(world, resources={"VCPU": 1}, min_count=1, max_count=2)
    assert (refused.status, refused.error["code"]) == (409, "berth.no_fit")
    assert "1 needed, 0 fit." in refused.error["detail"]
    assert len(await held(world)) == 6


async def test_fewer_than_needed_leave_nothing_behind(world: ApplicationWorld) -> None:
    await fleet(world, vcpus=4)
    refused = await ask(world, resources={"VCPU": 2}, max_count=7)
    assert refused.status == 409
    assert "7 needed, 6 fit." in refused.error["detail"]
    assert await held(world) == []


async def test_a_batch_sees_itself(world: ApplicationWorld) -> None:
    await fleet(world)
    made = await world.change(
        "POST", "/berth/v1/groups", {"group": {"name": "db", "policy": "anti-affinity"}}
    )
    group = made["group"]["uuid"]
    answer = await placed(world, resources={"VCPU": 1}, max_count=3, group=group)
    assert {one["host_name"] for one in answer["placements"]} == {"host-1", "host-2", "host-3"}
    full = await ask(world, resources={"VCPU": 1}, group=group)
    assert full.error["code"] == "berth.no_fit"
    shown = (await world.get(f"/berth/v1/groups/{group}")).json["group"]
    assert len(shown["members"]) == 3
    missing = await ask(world, resources={"VCPU": 1}, group=uuid_of(999))
    assert missing.status == 404


async def test_hosts_that_are_disabled_down_or_ignored_are_not_chosen(world: ApplicationWorld) -> None:
    await fleet(world)
    await world.change("PUT", f"/berth/v1/hosts/{uuid_of(1)}", {"host": {"disabled": True}})
    await world.change("PUT", f"/berth/v1/hosts/{uuid_of(2)}", {"host": {"down": True}})
    answer = await placed(world, resources={"VCPU": 1}, max_count=4)
    assert Counter(one["host_name"] for one in answer["placements"]) == {"host-3": 4}
    refused = await ask(world, resources={"VCPU": 1}, hints={"ignore_hosts": ["host-3"]})
    assert refused.error["code"] == "berth.no_fit"
    forced = await placed(world, resources={"VCPU": 1}, hints={"forced_host": "host-1"})
    assert forced["placements"][0]["host_name"] == "host-1"
    unknown = await ask(world, resources={"VCPU": 1}, hints={"forced_host": "host-9"})
    assert (unknown.status, unknown.error["code"]) == (400, "berth.bad_body")
    assert "forced_host names host-9, but no host has that name or uuid" in unknown.error["detail"]


async def test_a_dry_run_claims_nothing_and_its_token_claims_exactly_that(world: ApplicationWorld) -> None:
    await fleet(world)
    planned = await placed(world, resources={"VCPU": 8}, max_count=2, dry_run=True)
    assert planned["claimed"] is False
    assert await held(world) == []
    done = await placed(world, token=planned["token"])
    assert [(one["consumer_uuid"], one["allocations"]) for one in done["placements"]] == [
        (one["consumer_uuid"], one["allocations"]) for one in planned["placements"]
    ]
    assert len(await held(world)) == 2
    again = await ask(world, token=planned["token"])
    assert (again.status, again.error["code"]) == (409, "berth.plan_moved")
    assert "The plan is stale: it was made at index" in again.error["detail"]


async def test_a_token_is_refused_when_its_host_has_been_taken_or_disabled(world: ApplicationWorld) -> None:
    await fleet(world)
    planned = await placed(world, resources={"VCPU": 8}, dry_run=True)
    host = planned["placements"][0]["host_name"]
    await placed(world, resources={"VCPU": 1}, hints={"forced_host": host})
    taken = await ask(world, token=planned["token"])
    assert taken.error["code"] == "berth.plan_moved"
    assert "would exceed the capacity" in taken.error["detail"]
    planned = await placed(world, resources={"VCPU": 1}, dry_run=True)
    host = planned["placements"][0]["host_uuid"]
    await world.change("PUT", f"/berth/v1/hosts/{host}", {"host": {"disabled": True, "reason": "disks"}})
    disabled = await ask(world, token=planned["token"])
    assert disabled.error["code"] == "berth.plan_moved"
    assert "disks" in disabled.error["detail"]
    metrics = (await world.get("/metrics")).body.decode()
    for kind in ("CapacityExceeded", "PlanStale"):
        assert f'berth_rejections_total{{kind="{kind}"}} 1.0' in metrics


async def test_a_token_that_was_made_up_gets_no_further_than_a_request_would(world: ApplicationWorld) -> None:
    await fleet(world)
    planned = await placed(world, resources={"VCPU": 2}, dry_run=True)
    true = read_token(planned["token"])
    [one] = true.chosen
    other = uuid_of(3) if one.host != uuid_of(3) else uuid_of(2)
    twice = (*one.wanted, *one.wanted)
    made_up = [
        (),
        (one, one),
        (Chosen(ConsumerId("not a uuid"), one.host, one.wanted),),
        (Chosen(one.member, ProviderId("gone"), one.wanted),),
        (Chosen(one.member, ProviderId(other), one.wanted),),
        (Chosen(one.member, one.host, ()),),
        (Chosen(one.member, one.host, twice),),
        (Chosen(one.member, one.host, ((ProviderId(one.host), (("VCPU", 1), ("VCPU", 1))),)),),
        (Chosen(one.member, one.host, ((ProviderId(one.host), (("VCPU", 3), ("MEMORY_MB", -1))),)),),
        (Chosen(one.member, one.host, ((ProviderId(one.host), (("VCPU", 3),)),)),),
    ]
    for chosen in made_up:
        body = msgspec.msgpack.encode(Token(true.index, true.asked, chosen))
        forged = base64.urlsafe_b64encode(blake2b(body, digest_size=12).digest() + body).decode()
        answer = await ask(world, token=forged)
        assert (answer.status, answer.error["code"]) == (409, "berth.plan_moved"), chosen
    body = msgspec.msgpack.encode((0, {"resources": {"VCPU": 1}, "consumers": ["?"]}, []))
    forged = base64.urlsafe_b64encode(blake2b(body, digest_size=12).digest() + body).decode()
    assert (await ask(world, token=forged)).status == 400
    assert await held(world) == []


@pytest.mark.parametrize("token", ["", "?", "AAAA", base64.urlsafe_b64encode(b"x" * 64).decode(), "ä"])
async def test_a_token_that_is_none_of_ours_is_refused(world: ApplicationWorld, token: str) -> None:
    answer = await ask(world, token=token)
    assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")
    assert "not one that a dry run gave out" in answer.error["detail"]


@pytest.mark.parametrize(("body", "words"), REFUSED)
async def test_a_request_that_cannot_be_is_refused(
    world: ApplicationWorld, body: dict[str, Any], words: str
) -> None:
    answer = await ask(world, **body)
    assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")
    assert words in answer.error["detail"]


async def test_unknown_names_are_refused(world: ApplicationWorld) -> None:
    await fleet(world)
    for body in ({"resources": {"CUSTOM_X": 1}}, {"resources": {"VCPU": 1}, "required": ["CUSTOM_T"]}):
        answer = await ask(world, **body)
        assert (answer.status, answer.error["code"]) == (400, "berth.bad_body")
        assert answer.error["detail"].startswith("There is no ")


async def test_a_consumer_that_is_there_already(world: ApplicationWorld) -> None:
    await fleet(world)
    await placed(world, resources={"VCPU": 1}, consumers=[uuid_of(101)])
    answer = await ask(world, resources={"VCPU": 1}, consumers=[uuid_of(101)])
    assert (answer.status, answer.error["code"]) == (409, "berth.conflict")
    assert f"Consumer {uuid_of(101)} is there already" in answer.error["detail"]


async def test_a_refusal_explains_why_nothing_fits(world: ApplicationWorld) -> None:
    await fleet(world)
    refused = await ask(world, resources={"VCPU": 9}, explain=True)
    explanation = refused.error["explanation"]
    assert explanation["fitting"] == 0
    assert explanation["steps"][-2]["left"] == 0
    assert "8" in explanation["change"]["text"]
    asked = {"resources": {"VCPU": 9}, "hosts": ["host-1"]}
    answer = await world.ask("POST", "/berth/v1/explain", asked)
    assert answer.status == 200
    [host] = answer.json["explanation"]["hosts"]
    [check] = [check for check in host["checks"] if not check["ok"]][:1]
    assert (check["free"], check["limit"]) == (8, 8)


async def test_a_placement_explains_why_it_was_chosen(world: ApplicationWorld) -> None:
    await fleet(world)
    answer = await placed(world, resources={"VCPU": 1}, explain=True)
    assert answer["explanation"]["fitting"] == 1


async def test_capacity_counts_how_many_more_fit(world: ApplicationWorld) -> None:
    await fleet(world)
    body = {"flavor": {"vcpus": 3, "ram": 512}}
    answer = await world.ask("POST", "/berth/v1/capacity", body)
    assert answer.status == 200, answer.body
    counted = answer.json["capacity"]
    assert (counted["count"], counted["exact"], counted["hosts"]) == (6, True, 3)


async def test_the_same_seed_chooses_the_same(world: ApplicationWorld) -> None:
    await fleet(world)
    chosen = set()
    for _ in range(5):
        answer = await placed(world, resources={"VCPU": 1}, seed=7, dry_run=True)
        chosen.add(answer["placements"][0]["host_name"])
    assert len(chosen) == 1


async def test_aggregates_must_say_what_the_flavor_wants_and_what_the_request_wants(
    world: ApplicationWorld,
) -> None:
    """What the request wanted took the place of what its flavor wanted under the same key."""
    await fleet(world)
    for number, ranks in ((1, "5"), (2, "5, 9")):
        await world.join(number, uuid_of(800 + number))
        label = {"kind": None, "name": f"rank-{number}", "metadata": {"rank": ranks}}
        await world.change("PUT", f"/berth/v1/aggregates/{uuid_of(800 + number)}", {"aggregate": label})
    flavor = {"vcpus": 1, "ram": 0, "extra_specs": {"aggregate_instance_extra_specs:rank": "5"}}
    found = {
        (await placed(world, flavor=flavor, metadata={"rank": ">= 9"}))["placements"][0]["host_name"]
        for _ in range(3)
    }
    assert found == {"host-2"}
    wrong = await ask(world, flavor=flavor, metadata={"rank": ">= high"})
    assert (wrong.status, "one number after >=" in wrong.error["detail"]) == (400, True)


async def test_an_explanation_is_for_the_project_of_who_asks(world: ApplicationWorld) -> None:
    await fleet(world)
    for number in range(1, HOSTS + 1):
        await world.join(number, uuid_of(800))
    label = {"kind": None, "name": "blue-only", "metadata": {"filter_tenant_id": "blue"}}
    await world.change("PUT", f"/berth/v1/aggregates/{uuid_of(800)}", {"aggregate": label})
    for who, fitting in (("ann:blue", 1), ("bob:red", 0)):
        body = {"resources": {"VCPU": 1}}
        answer = await world.ask("POST", "/berth/v1/explain", body, token=who, headers={"x-roles": "admin"})
        assert answer.json["explanation"]["fitting"] == fitting
    refused = answer.json["explanation"]["steps"]
    assert any("open to the project red" in step["asked"] for step in refused)


@pytest.mark.parametrize("path", ["schedule", "explain", "capacity"])
async def test_flavors_and_images_are_judged_as_those_of_servers(world: ApplicationWorld, path: str) -> None:
    await fleet(world)
    flavor = {"vcpus": 1, "ram": 0}
    for body, key in (
        ({"flavor": {**flavor, "extra_specs": {"hw:numa_nodes": "banana"}}}, "hw:numa_nodes"),
        ({"flavor": flavor, "image": {"properties": {"hw_numa_nodes": "2"}}}, "hw_numa_nodes"),
    ):
        answer = await world.ask("POST", f"/berth/v1/{path}", body)
        assert (answer.status, key in answer.error["detail"]) == (400, True)


async def test_what_stands_beside_a_flavor_with_cells_is_kept(world: ApplicationWorld) -> None:
    await fleet(world)
    flavor = {"vcpus": 1, "ram": 1, "extra_specs": {"hw:mem_page_size": "small"}}
    for number in (1, 2, 3):
        found = await placed(world, flavor=flavor, in_tree=uuid_of(number), dry_run=True)
        assert found["placements"][0]["host_name"] == f"host-{number}"
    lacking = await ask(world, flavor=flavor, required=["HW_CPU_X86_AVX2"])
    assert lacking.status == 409
    await world.join(2, uuid_of(800))
    found = await placed(world, flavor=flavor, member_of=[[uuid_of(800)]], dry_run=True)
    assert found["placements"][0]["host_name"] == "host-2"


@pytest.mark.parametrize("flavor", [True, False])
async def test_the_aggregates_that_a_request_names_are_those_of_the_host_and_not_of_its_pool(
    world: ApplicationWorld, flavor: bool
) -> None:
    await fleet(world)
    pool, shared, east, west = (uuid_of(number) for number in (800, 801, 802, 803))
    await world.host(9, {"DISK_GB": 100})
    shares = {"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}
    await world.change("PUT", f"/resource_providers/{uuid_of(9)}/traits", shares)
    await world.join(9, shared, west)
    await world.join(1, shared, west)
    await world.join(2, shared, east)
    await world.join(3, shared, east, pool)
    size = {"vcpus": 1, "ram": 1, "disk": 10}
    needs = {"flavor": size} if flavor else {"resources": {"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 10}}
    for where, hosts in (
        ({"member_of": [[east]]}, {"host-2", "host-3"}),
        ({"member_of": [[east], [pool]]}, {"host-3"}),
        ({"not_member_of": [west]}, {"host-2", "host-3"}),
        ({"member_of": [[west]], "not_member_of": [pool]}, {"host-1"}),
    ):
        answer = await placed(world, **needs, **where, dry_run=True, alternates=5)
        [one] = answer["placements"]
        assert {one["host_name"], *(other["host_name"] for other in one["alternates"])} == hosts
        assert set(one["allocations"]) == {one["host_uuid"], uuid_of(9)}
    refused = await ask(world, **needs, member_of=[[uuid_of(899)]])
    assert refused.status == 409
    assert uuid_of(899) in refused.error["detail"]
    explained = await world.ask("POST", "/berth/v1/explain", {**needs, "member_of": [[uuid_of(899)]]})
    assert f"outside of the aggregate {uuid_of(899)}" in str(explained.json)


async def test_aggregates_beside_parts_are_those_of_the_host(world: ApplicationWorld) -> None:
    await fleet(world)
    await world.join(2, uuid_of(800))
    parts = {"_A": {"resources": {"VCPU": 1}}}
    answer = await placed(world, parts=parts, member_of=[[uuid_of(800)]], dry_run=True)
    assert answer["placements"][0]["host_name"] == "host-2"


@pytest.mark.parametrize(
    "beside", [{"required": ["HW_CPU_X86_AVX2"]}, {"forbidden": ["HW_CPU_X86_AVX2"]}, {"in_tree": uuid_of(1)}]
)
async def test_what_is_asked_of_resources_is_refused_without_them(
    world: ApplicationWorld, beside: dict[str, object]
) -> None:
    await fleet(world)
    refused = await ask(world, parts={"_A": {"resources": {"VCPU": 1}}}, **beside)
    assert refused.status == 400
    assert next(iter(beside)) in refused.error["detail"]
