"""/os-aggregates and /os-availability-zone: what they say, and what that makes of hosts in the ledger."""

from typing import Any

import pytest

from berth.model.ids import AggregateId, ProviderId
from berth.sagas.hosts import cell_aggregate
from tests.unit.compute.fleets import CELL, hear, known_fleet
from tests.worlds import SMALL, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast


async def new(region: RegionWorld, name: str, zone: str | None = None) -> Any:
    body = {"aggregate": {"name": name, "availability_zone": zone}}
    answer = await region.compute("POST", "/os-aggregates", body)
    assert answer.status == 200, answer.body
    return answer.json["aggregate"]


async def act(region: RegionWorld, aggregate: Any, action: str, **body: Any) -> HttpAnswer:
    return await region.compute("POST", f"/os-aggregates/{aggregate['id']}/action", {action: body})


async def add(region: RegionWorld, aggregate: Any, number: int) -> HttpAnswer:
    return await act(region, aggregate, "add_host", host=f"host-{number}")


def zones_of(region: RegionWorld, number: int) -> list[str]:
    """The names of zones that the scheduler sees a host in."""
    view = region.engine.view
    host = view.providers[ProviderId(uuid_of(number))]
    labels = view.groups.labels
    return [labels[AggregateId(id)].name or "" for id in view.groups.domains_of(host, "zone")]


def aggregates_of(region: RegionWorld, number: int) -> set[str]:
    return set(region.engine.view.providers[ProviderId(uuid_of(number))].aggregates)


def zones_known(region: RegionWorld) -> set[str | None]:
    groups = region.engine.view.groups
    return {groups.labels[id].name for id in groups.of_kind("zone")}


async def test_an_aggregate_is_shown_as_nova_shows_it(region: RegionWorld) -> None:
    await known_fleet(region)
    made = await new(region, "fast", "east")
    again = await new(region, "other")
    assert [made["id"], again["id"]] == [1, 2]
    await add(region, made, 2)
    await add(region, made, 1)
    answer = await act(region, made, "set_metadata", metadata={"ssd": "true", "old": "x"})
    assert answer.status == 200
    answer = await act(region, made, "set_metadata", metadata={"old": None})
    shown = answer.json["aggregate"]
    assert shown == {
        "id": 1,
        "uuid": made["uuid"],
        "name": "fast",
        "availability_zone": "east",
        "hosts": ["host-1", "host-2"],
        "metadata": {"ssd": "true", "availability_zone": "east"},
        "created_at": "2026-01-01T00:00:00.000000",
        "updated_at": "2026-01-01T00:00:00.000000",
        "deleted": False,
        "deleted_at": None,
    }
    listed = (await region.compute("GET", "/os-aggregates", version="2.40")).json["aggregates"]
    assert listed[0] == {key: value for key, value in shown.items() if key != "uuid"}
    assert (await region.compute("GET", "/os-aggregates/1")).json["aggregate"] == shown
    for who, path, status in (("ann", "/os-aggregates", 403), ("admin", "/os-aggregates/9", 404)):
        assert (await region.compute("GET", path, who=who)).status == status


async def test_metadata_is_what_flavors_can_ask_for(region: RegionWorld) -> None:
    await known_fleet(region)
    fast = await new(region, "fast")
    await add(region, fast, 3)
    await act(region, fast, "set_metadata", metadata={"ssd": "true"})
    specs = {"extra_specs": {"aggregate_instance_extra_specs:ssd": "true"}}
    assert (await region.compute("POST", f"/flavors/{SMALL.id}/os-extra_specs", specs)).status == 200
    place = region.record(await region.create()).place
    assert place is not None
    assert (place.name, place.cell) == ("host-3", CELL)


async def test_hosts_come_and_go_with_what_others_have_put_them_in_left_alone(region: RegionWorld) -> None:
    await known_fleet(region)
    before = aggregates_of(region, 1)
    assert before == {cell_aggregate(CELL)}
    fast = await new(region, "fast", "east")
    assert (await add(region, fast, 1)).status == 200
    assert before < aggregates_of(region, 1)
    assert fast["uuid"] in aggregates_of(region, 1)
    assert zones_of(region, 1) == ["east"]
    assert (await add(region, fast, 1)).status == 409
    assert (await act(region, fast, "add_host", host="nobody")).status == 404
    assert (await act(region, fast, "remove_host", host="host-2")).status == 404
    gone = await act(region, fast, "remove_host", host="host-1")
    assert gone.json["aggregate"]["hosts"] == []
    assert aggregates_of(region, 1) == before


async def test_a_zone_stays_as_long_as_an_aggregate_of_the_host_names_it(region: RegionWorld) -> None:
    await known_fleet(region)
    one, two = await new(region, "one", "east"), await new(region, "two", "east")
    for aggregate in (one, two):
        await add(region, aggregate, 1)
    await act(region, one, "remove_host", host="host-1")
    assert zones_of(region, 1) == ["east"]
    await act(region, two, "remove_host", host="host-1")
    assert zones_of(region, 1) == []
    assert zones_known(region) == {"east"}
    for aggregate in (one, two):
        assert (await region.compute("DELETE", f"/os-aggregates/{aggregate['id']}")).status == 200
    assert zones_known(region) == set()
    assert (await region.compute("GET", "/os-aggregates")).json == {"aggregates": []}


@pytest.mark.parametrize("how", ["update", "set_metadata"])
async def test_a_zone_is_changed_and_taken_away(region: RegionWorld, how: str) -> None:
    async def rezone(region: RegionWorld, aggregate: Any, zone: str | None) -> HttpAnswer:
        if how == "set_metadata":
            return await act(region, aggregate, how, metadata={"availability_zone": zone})
        body = {"aggregate": {"availability_zone": zone}}
        return await region.compute("PUT", f"/os-aggregates/{aggregate['id']}", body)

    await known_fleet(region)
    fast = await new(region, "fast", "east")
    await add(region, fast, 1)
    await add(region, fast, 2)
    assert (await rezone(region, fast, "west")).json["aggregate"]["availability_zone"] == "west"
    assert [zones_of(region, number) for number in (1, 2, 3)] == [["west"], ["west"], []]
    assert zones_known(region) == {"west"}
    shown = (await rezone(region, fast, None)).json["aggregate"]
    assert (shown["availability_zone"], shown["metadata"]) == (None, {})
    assert [zones_of(region, number) for number in (1, 2, 3)] == [[], [], []]
    assert zones_known(region) == set()
    assert shown["hosts"] == ["host-1", "host-2"]


async def test_a_host_is_in_one_zone_only(region: RegionWorld) -> None:
    await known_fleet(region)
    east, west, plain = [
        await new(region, name, zone) for name, zone in (("e", "east"), ("w", "west"), ("p", None))
    ]
    for aggregate in (east, plain):
        assert (await add(region, aggregate, 1)).status == 200
    refused = await add(region, west, 1)
    assert refused.status == 409
    assert refused.json["conflictingRequest"]["message"] == (
        "Host host-1 is in the availability zone east already, and cannot be in west too: remove it from "
        "the aggregate that puts it there first."
    )
    change = {"aggregate": {"availability_zone": "west"}}
    assert (await region.compute("PUT", f"/os-aggregates/{plain['id']}", change)).status == 409
    assert zones_of(region, 1) == ["east"]
    assert (await region.compute("GET", f"/os-aggregates/{plain['id']}")).json["aggregate"] == {
        **plain,
        "metadata": {},
        "hosts": ["host-1"],
        "updated_at": "2026-01-01T00:00:00.000000",
    }
    # In two that name the same zone it may be.
    change = {"aggregate": {"availability_zone": "east"}}
    assert (await region.compute("PUT", f"/os-aggregates/{plain['id']}", change)).status == 200


async def test_what_an_aggregate_may_be_called(region: RegionWorld) -> None:
    await known_fleet(region, 1)
    first, second = await new(region, "first"), await new(region, "second")
    for body, status in (
        ({"name": "first"}, 409),
        ({"name": " x"}, 400),
        ({"name": "x", "availability_zone": "a:b"}, 400),
        ({"name": "x", "availability_zone": "nova"}, 400),
        ({"name": ""}, 400),
    ):
        assert (await region.compute("POST", "/os-aggregates", {"aggregate": body})).status == status
    path = f"/os-aggregates/{second['id']}"
    assert (await region.compute("PUT", path, {"aggregate": {"name": "first"}})).status == 409
    assert (await region.compute("PUT", path, {"aggregate": {}})).status == 400
    assert (await region.compute("PUT", path, {"aggregate": {"name": "third"}})).status == 200
    await add(region, first, 1)
    refused = await region.compute("DELETE", f"/os-aggregates/{first['id']}")
    assert refused.status == 409
    assert refused.json["conflictingRequest"]["message"] == (
        "Aggregate 1 has 1 host: remove it from the aggregate first."
    )
    both = {"add_host": {"host": "host-1"}, "set_metadata": {"metadata": {}}}
    assert (await region.compute("POST", f"{path}/action", both)).status == 400


async def test_zones_and_whether_there_is_a_host_to_be_had(region: RegionWorld) -> None:
    await known_fleet(region)
    east = await new(region, "e", "east")
    await add(region, east, 1)
    await hear(region, 1, is_down=True)
    await region.host_status(2, disabled=True)
    answer = await region.compute("GET", "/os-availability-zone", who="ann")
    assert answer.json == {
        "availabilityZoneInfo": [
            {"zoneName": "east", "zoneState": {"available": False}, "hosts": None},
            {"zoneName": "nova", "zoneState": {"available": True}, "hosts": None},
        ]
    }
    assert (await region.compute("GET", "/os-availability-zone/detail", who="ann")).status == 403
    detail = (await region.compute("GET", "/os-availability-zone/detail")).json["availabilityZoneInfo"]
    at = "2026-01-01T00:00:00.000000"
    assert [zone["hosts"] for zone in detail] == [
        {"host-1": {"nova-compute": {"active": True, "available": False, "updated_at": at}}},
        {
            "host-2": {"nova-compute": {"active": False, "available": True, "updated_at": at}},
            "host-3": {"nova-compute": {"active": True, "available": True, "updated_at": at}},
        },
    ]


async def test_a_server_goes_to_the_zone_that_it_asks_for(region: RegionWorld) -> None:
    await known_fleet(region)
    east = await new(region, "e", "east")
    await add(region, east, 2)
    place = region.record(await region.create(availability_zone="east")).place
    assert place is not None
    assert place.name == "host-2"


async def test_the_zone_of_a_host_with_servers_stays(region: RegionWorld) -> None:
    await known_fleet(region)
    east = await new(region, "east", "east")
    assert (await add(region, east, 1)).status == 200
    id = await region.active(host="host-1", who="admin")
    change = {"aggregate": {"availability_zone": "west"}}
    for refused in (
        await act(region, east, "remove_host", host="host-1"),
        await region.compute("PUT", f"/os-aggregates/{east['id']}", change),
    ):
        assert refused.status == 409
        assert "cannot change: it has 1 server." in refused.json["conflictingRequest"]["message"]
    assert zones_of(region, 1) == ["east"]
    # What is no zone is nobody's promise.
    assert (await add(region, await new(region, "fast"), 1)).status == 200
    await region.act(id, "forceDelete")
    await region.carry_out(region.saga_run(id))
    assert (await act(region, east, "remove_host", host="host-1")).status == 200
