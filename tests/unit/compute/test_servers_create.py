"""POST /servers: what is claimed and ordered, and how requests are refused."""

from typing import Any

import pytest

from berth.model.saga_runs import Outbox
from berth.model.servers import Server
from berth.runtime.ids import Ids
from tests.worlds import (
    AVX,
    CIRROS,
    HUGE,
    PRIVATE,
    QUEUED,
    SECRET,
    SMALL,
    WIDE,
    RegionWorld,
    uuid_of,
)

pytestmark = pytest.mark.fast

SMALL_HOLDS = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}


def body(**fields: Any) -> dict[str, Any]:
    return {"server": {"name": "one", "flavorRef": SMALL.id, **fields}}


async def test_a_server_is_claimed_ordered_and_shown_in_one_act(region: RegionWorld) -> None:
    await region.fleet()
    made = await region.compute(
        "POST",
        "/servers",
        body(
            imageRef=CIRROS.id,
            networks="auto",
            metadata={"a": "b"},
            description="mine",
            security_groups=[{"name": "default"}],
            config_drive=False,
            block_device_mapping_v2=[
                {
                    "uuid": CIRROS.id,
                    "boot_index": 0,
                    "source_type": "image",
                    "destination_type": "local",
                    "delete_on_termination": True,
                }
            ],
        ),
        who="ann:blue",
    )
    assert made.status == 202
    answered = made.json["server"]
    id = answered["id"]
    assert made.headers["location"].endswith(f"/compute/v2.1/servers/{id}")
    assert {link["rel"] for link in answered["links"]} == {"self", "bookmark"}
    assert answered["OS-DCF:diskConfig"] == "MANUAL"
    record = region.record(id)
    assert record.place is not None
    assert await region.held(id) == {record.place.name: SMALL_HOLDS}
    run = region.saga_run(id)
    assert (run.saga, run.dest, run.spec.image) == ("create", record.place, CIRROS.id)
    assert len(run.alternates) == 2
    outbox = region.engine.view.records.get(Outbox, run.id)
    assert outbox is not None
    assert outbox.cell == "cell-1"
    shown = await region.server(id, who="ann:blue")
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("BUILD", "spawning")
    assert (shown["tenant_id"], shown["user_id"], shown["key_name"]) == ("blue", "ann", None)
    assert (shown["metadata"], shown["description"]) == ({"a": "b"}, "mine")
    await region.finish(id)
    assert (await region.server(id))["status"] == "ACTIVE"


async def test_a_password_is_answered_as_it_is_given_or_made(region: RegionWorld) -> None:
    await region.fleet()
    made = [await region.compute("POST", "/servers", body()) for _ in range(2)]
    first, second = (answer.json["server"]["adminPass"] for answer in made)
    assert first != second
    assert (len(first), first.isalnum()) == (12, True)
    given = await region.compute("POST", "/servers", body(adminPass="mine"))
    assert given.json["server"]["adminPass"] == "mine"


async def test_several_are_numbered_and_come_with_one_reservation(region: RegionWorld) -> None:
    await region.fleet()
    asked = body(name="web", min_count=2, max_count=3, return_reservation_id=True)
    made = await region.compute("POST", "/servers", asked)
    assert made.status == 202
    reservation = made.json["reservation_id"]
    await region.create("other")
    found = (await region.compute("GET", f"/servers/detail?reservation_id={reservation}")).json["servers"]
    assert sorted(one["name"] for one in found) == ["web-1", "web-2", "web-3"]
    assert {one["OS-EXT-SRV-ATTR:reservation_id"] for one in found} == {reservation}


async def test_as_many_as_fit_are_made_if_these_are_enough(region: RegionWorld) -> None:
    await region.fleet()
    group = await region.group()
    first = await region.create("web", {"group": group}, min_count=2, max_count=5)
    servers = list(region.engine.view.records.all(Server))
    assert [server.name for server in servers] == ["web-1", "web-2", "web-3"]
    assert servers[0].id == first
    places = {server.place.name for server in servers if server.place is not None}
    assert places == {"host-1", "host-2", "host-3"}
    assert (await region.server(first))["server_groups"] == [group]


async def test_where_nothing_fits_servers_say_so_and_hold_nothing(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create("big", flavorRef=HUGE.id, min_count=2, max_count=4)
    servers = list(region.engine.view.records.all(Server))
    assert [(one.name, one.state) for one in servers] == [("big-1", "error"), ("big-2", "error")]
    shown = await region.server(id)
    assert (shown["status"], shown["OS-EXT-STS:task_state"], shown["hostId"]) == ("ERROR", None, "")
    assert shown["OS-EXT-SRV-ATTR:host"] is None
    assert shown["fault"]["code"] == 500
    assert shown["fault"]["message"].startswith("No valid host was found. 2 needed, 0 fit.")
    assert "VCPU" in shown["fault"]["message"]
    assert not list(region.engine.view.records.all(Outbox))
    assert await region.held(id) == {}
    [action] = (await region.compute("GET", f"/servers/{id}/os-instance-actions")).json["instanceActions"]
    assert action["message"] == shown["fault"]["message"]
    assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
    assert (await region.compute("GET", f"/servers/{id}")).status == 404


async def test_a_group_that_allows_no_more_leaves_one_in_error(region: RegionWorld) -> None:
    await region.fleet(count=1)
    group = await region.group()
    await region.create("a", {"group": group})
    id = await region.create("b", {"group": group})
    shown = await region.server(id)
    assert shown["status"] == "ERROR"
    assert "anti-affinity" in shown["fault"]["message"]


async def test_hints_keep_servers_near_and_apart(region: RegionWorld) -> None:
    await region.fleet()
    one = await region.create("one")
    near = await region.create("near", {"same_host": one})
    far = await region.create("far", {"different_host": [one]})
    assert region.record(near).place == region.record(one).place
    assert region.record(far).place != region.record(one).place


@pytest.mark.parametrize("zone", ["nova:host-2", ":host-2", "nova:host-2:host-2", "nova::host-2"])
async def test_an_administrator_can_force_a_host(region: RegionWorld, zone: str) -> None:
    await region.fleet()
    # No filter is asked about a host that is forced.
    await region.host_status(2, disabled=True)
    id = await region.create(availability_zone=zone)
    assert (await region.server(id))["OS-EXT-SRV-ATTR:host"] == "host-2"
    refused = await region.compute("POST", "/servers", body(availability_zone=zone), who="ann:blue")
    assert refused.status == 403


async def test_a_host_that_is_asked_for_must_pass_the_filters(region: RegionWorld) -> None:
    await region.fleet()
    for field in ("host", "hypervisor_hostname"):
        id = await region.create(**{field: "host-3"})
        assert (await region.server(id))["OS-EXT-SRV-ATTR:host"] == "host-3"
    await region.host_status(3, disabled=True)
    id = await region.create(host="host-3")
    assert (await region.server(id))["status"] == "ERROR"
    assert (await region.compute("POST", "/servers", body(host="host-3"), who="ann:blue")).status == 403
    old = await region.compute("POST", "/servers", body(host="host-3"), version="2.73")
    assert old.status == 400
    assert "needs microversion 2.74 or later" in old.json["badRequest"]["message"]


async def test_zones_are_kept_to(region: RegionWorld) -> None:
    await region.fleet()
    await region.join(2, uuid_of(500), uuid_of(600))
    label = {"aggregate": {"kind": "zone", "name": "east", "metadata": {}}}
    await region.change("PUT", f"/berth/v1/aggregates/{uuid_of(600)}", label)
    east = [await region.create("e", availability_zone="east") for _ in range(3)]
    west = [await region.create("w", availability_zone="nova") for _ in range(3)]
    assert {(await region.server(id))["OS-EXT-SRV-ATTR:host"] for id in east} == {"host-2"}
    assert {(await region.server(id))["OS-EXT-SRV-ATTR:host"] for id in west} == {"host-1", "host-3"}
    assert (await region.server(east[0]))["OS-EXT-AZ:availability_zone"] == "east"
    assert (await region.server(west[0]))["OS-EXT-AZ:availability_zone"] == "nova"


async def test_an_image_binds_a_server_to_hosts(region: RegionWorld) -> None:
    await region.fleet()
    await region.change(
        "PUT",
        f"/resource_providers/{uuid_of(2)}/traits",
        {"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2"]},
    )
    id = await region.create(imageRef=AVX.id)
    place = region.record(id).place
    assert place is not None
    assert place.name == "host-2"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such flavor": ({"flavorRef": "99"}, "Flavor 99 could not be found."),
    "somebody else's flavor": ({"flavorRef": SECRET.id}, "Flavor 4 could not be found."),
    "no such image": ({"imageRef": uuid_of(999)}, f"Image {uuid_of(999)} could not be found."),
    "an image without data": ({"imageRef": QUEUED.id}, "is queued: it must be active"),
    "somebody else's image": ({"imageRef": PRIVATE.id}, f"Image {PRIVATE.id} could not be found."),
    "an image that needs more disk": ({"imageRef": WIDE.id}, "needs at least 15: choose a larger flavor"),
    "no such zone": ({"availability_zone": "moon"}, "availability zone moon is not available"),
    "more than a zone and a host": ({"availability_zone": "a:b:c:d"}, "it must be ZONE, ZONE:HOST"),
    "less than nothing": ({"min_count": 0}, "$.server.min_count"),
    "too many": ({"max_count": 1001}, "$.server.max_count"),
    "more at least than at most": ({"min_count": 3, "max_count": 2}, "must not be above max_count"),
    "no name": ({"name": ""}, "$.server.name"),
    "a name with blanks around it": ({"name": " x"}, "without blanks"),
    "a word that nobody knows": ({"colour": "red"}, "colour"),
    "metadata with strange keys": ({"metadata": {"a/b": "c"}}, "$.server.metadata"),
    "a tag with a comma": ({"tags": ["x,y"]}, "$.server.tags"),
    "too many tags": ({"tags": [str(number) for number in range(51)]}, "$.server.tags"),
    "a key pair that is not there": ({"key_name": "mine"}, "there is no key pair mine"),
    "user data that is not base64": ({"user_data": "a!"}, "user_data must be in base64"),
    "more user data than fits": ({"user_data": "a" * 65_536}, "$.server.user_data"),
    "an access address that is none": ({"accessIPv4": "fd00::1"}, "accessIPv4 is 'fd00::1'"),
    "a host name that is none": ({"hostname": "-web"}, "$.server.hostname"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_request_is_refused_and_leaves_nothing(region: RegionWorld, case: str) -> None:
    fields, said = REFUSED[case]

    await region.fleet()
    answer = await region.compute("POST", "/servers", body(**fields), who="ann:green")
    assert answer.status == 400
    assert said in answer.json["badRequest"]["message"]
    assert not list(region.engine.view.records.all(Server))


async def test_wrong_hosts_and_hints_are_refused(region: RegionWorld) -> None:
    await region.fleet()
    group = await region.group(who="admin:red")
    for asked, who, said in (
        (body(availability_zone="nova:host-9"), "admin", "There is no host host-9 with an agent"),
        (body(host="host-*"), "admin", "There is no host host-* with an agent"),
        (body(host="host-1", availability_zone="nova:host-2"), "admin", "names several hosts"),
        (body() | {"os:scheduler_hints": {"group": uuid_of(1)}}, "admin", "which is not a server group"),
        (body() | {"os:scheduler_hints": {"group": group}}, "ann:blue", "which is not a server group"),
        (body() | {"os:scheduler_hints": {"same_host": uuid_of(77)}}, "admin", "which holds no allocations"),
    ):
        answer = await region.compute("POST", "/servers", asked, who=who)
        assert (answer.status, said in answer.json["badRequest"]["message"]) == (400, True), answer.json
    much = body(metadata={f"k{number}": "" for number in range(129)})
    assert (await region.compute("POST", "/servers", much)).status == 403
    assert not list(region.engine.view.records.all(Server))


async def test_who_has_the_flavor_or_the_image_may_use_it(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create(flavorRef=SECRET.id, imageRef=PRIVATE.id, who="ann:blue")
    assert (await region.server(id))["flavor"]["original_name"] == "secret"


async def test_a_consumer_that_is_there_already_is_a_bug_to_be_reported(region: RegionWorld) -> None:
    await region.fleet()
    claimed = {
        "allocations": {uuid_of(1): {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    # The compute API will draw the same id, after that of the request.
    upcoming = Ids(seed=7)
    upcoming.request_id()
    await region.change("PUT", f"/allocations/{upcoming.uuid()}", claimed)
    region.ids.begin_anew(7)
    answer = await region.compute("POST", "/servers", body())
    assert answer.status == 500
    assert "This is a bug: please report it" in answer.json["computeFault"]["message"]
    assert not list(region.engine.view.records.all(Server))
