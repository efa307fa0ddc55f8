"""Pools through the native API: objects of their own, and hosts nowhere."""

import asyncio
from typing import Any

import pytest

from berth.model.servers import Flavor
from tests.unit.native import clusters
from tests.worlds import ApplicationWorld, HttpAnswer, RegionWorld, propose_before_writing, uuid_of

pytestmark = pytest.mark.fast

POOLS = "/berth/v1/pools"
SHARED, APART = uuid_of(70), uuid_of(71)
POOL = uuid_of(50)
SHARES = "MISC_SHARES_VIA_AGGREGATE"


def described(**fields: Any) -> dict[str, Any]:
    whole = {"name": "nas", "inventories": {"DISK_GB": {"total": 100}}, "aggregates": [SHARED]}
    return {"pool": {**whole, **fields}}


async def put(world: ApplicationWorld, id: str = POOL, **fields: Any) -> HttpAnswer:
    return await world.ask("PUT", f"{POOLS}/{id}", described(**fields))


async def fleet(world: ApplicationWorld, hosts: int = 3) -> None:
    """Hosts without a disk; all but the last can use the pool."""
    for number in range(1, hosts + 1):
        await world.host(number, {"VCPU": 8})
        await world.join(number, SHARED if number < hosts else APART)


async def test_a_pool_is_created_shown_listed_changed_and_deleted(world: ApplicationWorld) -> None:
    await fleet(world)
    made = await world.ask("POST", POOLS, described(uuid=POOL, traits=["STORAGE_DISK_SSD"]))
    assert made.status == 201
    pool = made.json["pool"]
    assert made.headers["location"] == f"{POOLS}/{pool['uuid']}"
    assert pool == {
        "uuid": pool["uuid"],
        "name": "nas",
        "generation": pool["generation"],
        "inventories": {
            "DISK_GB": {
                "total": 100,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": 2**31 - 1,
                "step_size": 1,
                "allocation_ratio": 1.0,
                "capacity": 100,
                "used": 0,
                "free": 100,
            }
        },
        "traits": ["STORAGE_DISK_SSD"],
        "aggregates": [{"uuid": SHARED, "kind": None, "name": None}],
        "consumers": 0,
        "hosts": 2,
    }
    path = f"{POOLS}/{pool['uuid']}"
    assert (await world.get(path)).json["pool"] == pool
    assert (await world.get(POOLS)).json == {"pools": [pool], "next": None}
    hosts = (await world.get(f"{path}/hosts")).json
    assert hosts["hosts"] == [{"uuid": uuid_of(number), "name": f"host-{number}"} for number in (1, 2)]

    await world.claim(101, {1: {"VCPU": 1}, 50: {"DISK_GB": 40}})
    shown = (await world.get(path)).json["pool"]
    assert (shown["consumers"], shown["inventories"]["DISK_GB"]["used"]) == (1, 40)
    assert shown["inventories"]["DISK_GB"]["free"] == 60

    changed = await put(
        world, pool["uuid"], name="san", inventories={"DISK_GB": {"total": 30}}, aggregates=[SHARED, APART]
    )
    assert changed.status == 200, changed.body
    after = changed.json["pool"]
    assert (after["name"], after["hosts"], after["traits"]) == ("san", 3, [])
    assert after["generation"] > shown["generation"]
    assert after["inventories"]["DISK_GB"]["free"] == 0

    refused = await world.ask("DELETE", path)
    assert (refused.status, refused.error["code"]) == (409, "berth.conflict")
    assert "1 consumer" in refused.error["detail"]
    refused = await put(world, pool["uuid"], inventories={"IPV4_ADDRESS": {"total": 3}})
    assert refused.status == 409
    assert "DISK_GB" in refused.error["detail"]
    await world.change("DELETE", f"/allocations/{uuid_of(101)}")
    assert (await world.ask("DELETE", path)).status == 204
    assert (await world.get(path)).status == 404


async def test_pools_are_listed_in_pages(world: ApplicationWorld) -> None:
    for number in range(3):
        assert (await put(world, uuid_of(50 + number), name=f"pool-{number}")).status == 200
    first = (await world.get(f"{POOLS}?limit=2")).json
    assert [pool["name"] for pool in first["pools"]] == ["pool-0", "pool-1"]
    rest = (await world.get(first["next"])).json
    assert [pool["name"] for pool in rest["pools"]] == ["pool-2"]
    assert rest["next"] is None


async def test_the_hosts_of_a_pool_are_listed_in_pages(world: ApplicationWorld) -> None:
    await fleet(world, 4)
    await put(world)
    first = (await world.get(f"{POOLS}/{POOL}/hosts?limit=2")).json
    rest = (await world.get(first["next"])).json
    assert [host["name"] for page in (first, rest) for host in page["hosts"]] == [
        "host-1",
        "host-2",
        "host-3",
    ]


async def test_a_pool_that_is_as_described_does_not_change(world: ApplicationWorld) -> None:
    first = await put(world)
    again = await put(world)
    assert again.json == first.json
    events = (await world.get("/berth/v1/events?limit=1000")).json
    await put(world)
    assert (await world.get("/berth/v1/events?limit=1000")).json == events


async def test_a_change_names_the_generation_that_was_read(world: ApplicationWorld) -> None:
    generation = (await put(world)).json["pool"]["generation"]
    refused = await put(world, generation=generation + 1, name="late")
    assert (refused.status, refused.error["code"]) == (409, "berth.conflict")
    assert "read it again" in refused.error["detail"]
    changed = await put(world, generation=generation, aggregates=[APART])
    assert changed.json["pool"]["generation"] == generation + 1
    assert (await put(world, generation=generation, aggregates=[])).status == 409
    assert (await put(world, uuid_of(51), name="other", generation=0)).status == 404


@pytest.mark.parametrize(
    "changed",
    [
        {"inventories": {"DISK_GB": {"total": 50}}},
        {"traits": ["STORAGE_DISK_SSD"]},
        {"name": "san"},
        {"aggregates": [APART]},
    ],
    ids=lambda changed: next(iter(changed)),
)
@pytest.mark.parametrize("other", [{"inventories": {"DISK_GB": {"total": 200}}}, {"name": "other"}])
async def test_of_two_changes_of_one_generation_one_is_refused(
    world: ApplicationWorld,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    other: dict[str, Any],
) -> None:
    generation = (await put(world)).json["pool"]["generation"]
    propose_before_writing(world.engine, 2, monkeypatch)
    answers = await asyncio.gather(
        put(world, generation=generation, **other), put(world, generation=generation, **changed)
    )
    written, refused = sorted(answers, key=lambda answer: answer.status)
    assert (written.status, refused.status) == (200, 409)
    assert refused.error["code"] == "berth.conflict"
    assert (await world.get(f"{POOLS}/{POOL}")).json == written.json


async def test_a_new_name_advances_the_generation(world: ApplicationWorld) -> None:
    generation = (await put(world)).json["pool"]["generation"]
    assert (await put(world, generation=generation, name="san")).status == 200
    assert (await put(world, generation=generation, name="other")).status == 409


@pytest.mark.parametrize("id", ["nas", "5" * 32, f"{POOL}0"])
async def test_a_pool_is_named_by_a_uuid(world: ApplicationWorld, id: str) -> None:
    refused = await put(world, id)
    assert (refused.status, refused.error["code"]) == (400, "berth.bad_parameter")
    assert id in refused.error["detail"]
    assert (await world.get(POOLS)).json["pools"] == []
    assert (await put(world, POOL.upper())).json["pool"]["uuid"] == POOL


async def test_the_case_of_an_aggregate_does_not_matter(world: ApplicationWorld) -> None:
    shared, spelled = "abcdef00-0000-4000-8000-000000000070", "ABCDEF00-0000-4000-8000-000000000071"
    for number, aggregate in ((1, shared), (2, spelled)):
        await world.host(number, {"VCPU": 8})
        await world.join(number, aggregate)

    def seen(answer: HttpAnswer) -> tuple[list[str], int]:
        pool = answer.json["pool"]
        return [aggregate["uuid"] for aggregate in pool["aggregates"]], pool["hosts"]

    made = await put(world, aggregates=[shared.upper(), shared])
    assert seen(made) == ([shared], 1)
    assert seen(await world.ask("POST", POOLS, described(name="b", aggregates=[shared.upper()]))) == (
        [shared],
        1,
    )
    # Placement keeps the case in which a host has joined an aggregate: so does a pool.
    assert seen(await put(world, aggregates=[spelled])) == ([spelled], 1)
    assert seen(await put(world, aggregates=[spelled])) == ([spelled], 1)


async def test_an_answer_that_the_client_has_is_not_sent_again(world: ApplicationWorld) -> None:
    await put(world)
    tag = (await world.get(f"{POOLS}/{POOL}")).headers["etag"]
    assert (await world.get(f"{POOLS}/{POOL}", if_none_match=tag)).status == 304
    await put(world, name="san")
    assert (await world.get(f"{POOLS}/{POOL}", if_none_match=tag)).status == 200


async def test_custom_names_are_created_with_the_pool(world: ApplicationWorld) -> None:
    made = await put(world, inventories={"CUSTOM_LICENCE": {"total": 5}}, traits=["CUSTOM_FAST"])
    assert made.json["pool"]["traits"] == ["CUSTOM_FAST"]
    assert (await world.get("/resource_classes/CUSTOM_LICENCE")).status == 200
    names = (await world.get(f"/resource_providers/{POOL}/traits")).json["traits"]
    assert sorted(names) == ["CUSTOM_FAST", SHARES]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"inventories": {}}, "inventories"),
        ({"inventories": {"VCPU": {"total": 8}}}, "VCPU is what hosts have"),
        ({"inventories": {"DISC_GB": {"total": 8}}}, "DISC_GB is no resource class"),
        ({"inventories": {"DISK_GB": {"total": 0}}}, "total"),
        ({"inventories": {"DISK_GB": {"total": 8, "reserved": 9}}}, "9 cannot be reserved of 8"),
        ({"inventories": {"DISK_GB": {"total": 8, "size": 9}}}, "size"),
        ({"traits": ["FAST"]}, "FAST is no trait"),
        ({"aggregates": ["rack-7"]}, "aggregates"),
        ({"name": ""}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"owner": "me"}, "owner"),
    ],
)
async def test_what_no_pool_can_be_is_refused_by_name(
    fields: dict[str, Any], words: str, world: ApplicationWorld
) -> None:
    refused = await put(world, **fields)
    assert (refused.status, refused.error["code"]) == (400, "berth.bad_body")
    assert words in refused.error["detail"]
    assert (await world.get(POOLS)).json["pools"] == []


async def test_a_host_is_not_made_a_pool_and_names_are_unique(world: ApplicationWorld) -> None:
    await fleet(world)
    refused = await put(world, uuid_of(1))
    assert refused.status == 409
    assert "host-1" in refused.error["detail"]
    assert (await put(world, name="host-1")).status == 409
    assert (await world.ask("POST", POOLS, described(uuid=uuid_of(1)))).status == 409
    assert (await world.ask("DELETE", f"{POOLS}/{uuid_of(1)}")).status == 404
    assert (await world.get(f"{POOLS}/{uuid_of(1)}")).status == 404


async def test_a_pool_that_another_client_of_placement_has_made_is_one(world: ApplicationWorld) -> None:
    await fleet(world)
    await world.host(50, {"DISK_GB": 10})
    await world.join(50, SHARED)
    assert (await world.get(POOLS)).json["pools"] == []
    generation = (await world.get(f"/resource_providers/{POOL}")).json["generation"]
    body = {"resource_provider_generation": generation, "traits": [SHARES]}
    await world.change("PUT", f"/resource_providers/{POOL}/traits", body)
    [pool] = (await world.get(POOLS)).json["pools"]
    assert (pool["name"], pool["hosts"]) == ("host-50", 2)


async def test_a_pool_that_is_full_is_named_in_the_explanation(world: ApplicationWorld) -> None:
    await fleet(world)
    await put(world)
    await world.claim(101, {1: {"VCPU": 1}, 50: {"DISK_GB": 80}})
    asked = {"resources": {"VCPU": 1, "DISK_GB": 40}}
    explained = (await world.ask("POST", "/berth/v1/explain", asked)).json["explanation"]
    words = "The pool nas has 20 of 100 DISK_GB free; 40 are asked for."
    assert words in explained["text"]
    [step] = (step for step in explained["steps"] if step["pools"])
    assert step["constraint"] == "resources:DISK_GB"
    [pool] = step["pools"]
    assert (pool["pool"], pool["asked"], pool["free"], pool["capacity"]) == ("nas", 40, 20, 100)
    refused = await world.ask("POST", "/berth/v1/schedule", asked)
    assert (refused.status, refused.error["code"]) == (409, "berth.no_fit")
    assert words in refused.error["detail"]


async def test_the_nodes_of_a_cluster_have_their_disks_in_the_pool(region: RegionWorld) -> None:
    await clusters.fleet(region, 3)
    specs = {"berth:disk": "pool"}
    await region.put(Flavor(id="9", name="pooled", vcpus=1, memory_mb=512, disk_gb=30, extra_specs=specs))
    await put(region, aggregates=[uuid_of(clusters.CELL)])

    async def ask(nodes: int) -> HttpAnswer:
        body = clusters.cluster(clusters.data(nodes, flavor="pooled"))
        return await region.ask("POST", clusters.CLUSTERS, body)

    refused = await ask(4)
    assert (refused.status, refused.error["code"]) == (409, "berth.no_fit")
    assert "The pool nas has 10 of 100 DISK_GB free; 30 are asked for." in refused.error["detail"]
    assert (await ask(3)).status == 202
    shown = (await region.get(f"{POOLS}/{POOL}")).json["pool"]
    assert (shown["inventories"]["DISK_GB"]["used"], shown["hosts"]) == (90, 3)


async def test_a_pool_is_in_no_count_of_hosts(world: ApplicationWorld) -> None:
    await fleet(world)
    await put(world)
    names = {host["name"] for host in (await world.get("/berth/v1/hosts")).json["hosts"]}
    assert names == {"host-1", "host-2", "host-3"}
    for answer in (
        await world.get(f"/berth/v1/hosts/{POOL}"),
        await world.ask("PUT", f"/berth/v1/hosts/{POOL}", {"host": {"disabled": True}}),
    ):
        assert answer.status == 409
        assert "nas" in answer.error["detail"]
    by_root = (await world.get("/berth/v1/usage?by=root")).json["usage"]
    assert {row["name"] for row in by_root} == names
    assert (await world.get("/berth/v1/usage?by=root&resource_class=DISK_GB")).json["usage"] == []
    by_provider = (await world.get("/berth/v1/usage?by=provider&resource_class=DISK_GB")).json["usage"]
    assert [row["name"] for row in by_provider] == ["nas"]
    asked = {"resources": {"DISK_GB": 10}}
    capacity = (await world.ask("POST", "/berth/v1/capacity", asked)).json["capacity"]
    assert (capacity["count"], capacity["hosts"]) == (0, 0)
    capacity = (await world.ask("POST", "/berth/v1/capacity", {"resources": {"VCPU": 1, "DISK_GB": 10}})).json
    assert (capacity["capacity"]["count"], capacity["capacity"]["hosts"]) == (10, 2)
    explained = (await world.ask("POST", "/berth/v1/explain", asked)).json["explanation"]
    assert explained["hosts_total"] == 3
    forced = {"resources": {"DISK_GB": 10}, "hints": {"forced_host": "nas"}}
    assert (await world.ask("POST", "/berth/v1/schedule", forced)).status == 400
