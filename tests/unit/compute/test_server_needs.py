"""``berth:needs`` of POST /servers: claimed with the server, all of it or nothing, and shown to those who may
know."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from berth.model.saga_runs import Outbox
from berth.model.servers import Server
from tests.worlds import SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
PACKETS = "NET_PACKET_RATE_KILOPACKET_PER_SEC"
NEED = {"name": "uplink", "resources": {BANDWIDTH: 400}}
TWO_GROUPS: dict[str, Any] = {
    "name": "uplink",
    "groups": [
        {"name": "bandwidth", "resources": {BANDWIDTH: 400}},
        {"name": "packets", "resources": {PACKETS: 100}},
    ],
    "same_subtree": ["bandwidth", "packets"],
}


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    """Three hosts, each with a network card that has 1000 of bandwidth and of packets."""
    async with RegionWorld(tmp_path).running() as region:
        await region.fleet()
        for number in range(1, 4):
            await region.host(10 + number, {BANDWIDTH: 1000, PACKETS: 1000}, parent=number)
        yield region


def having(*needs: Any) -> dict[str, Any]:
    return {"berth:needs": needs}


def body(*needs: Any, **fields: Any) -> dict[str, Any]:
    return {"server": {"name": "one", "flavorRef": SMALL.id, "berth:needs": needs, **fields}}


async def cards_of(region: RegionWorld, id: str) -> dict[str, dict[str, int]]:
    """What a server holds on network cards, by the number of the host."""
    return {
        name.removeprefix("host-1"): held
        for name, held in (await region.held(id)).items()
        if len(name) > len("host-1")
    }


def number_of(region: RegionWorld, id: str) -> str:
    place = region.record(id).place
    assert place is not None
    return place.name.removeprefix("host-")


async def test_a_need_is_claimed_with_the_server_and_shown(region: RegionWorld) -> None:
    id = await region.create(**having(NEED))
    number = number_of(region, id)
    assert await cards_of(region, id) == {number: {BANDWIDTH: 400}}
    [shown] = (await region.server(id))["berth:needs"]
    assert shown["allocations"] == {uuid_of(10 + int(number)): {BANDWIDTH: 400}}
    listed = (await region.compute("GET", "/servers/detail")).json["servers"]
    assert listed[0]["berth:needs"] == [shown]
    native = (await region.get(f"/berth/v1/servers/{id}/needs")).json["needs"]
    assert native == [shown]
    await region.finish(id)
    assert (await region.act(id, "migrate")).status == 202
    await region.finish(id)
    assert await cards_of(region, id) == {number_of(region, id): {BANDWIDTH: 400}}
    assert number_of(region, id) != number


async def test_each_group_is_shown_with_where_it_is_met(region: RegionWorld) -> None:
    id = await region.create(**having(TWO_GROUPS))
    card = uuid_of(10 + int(number_of(region, id)))
    [shown] = (await region.server(id))["berth:needs"]
    assert [group["allocations"] for group in shown["groups"]] == [
        {card: {BANDWIDTH: 400}},
        {card: {PACKETS: 100}},
    ]


async def test_each_of_several_servers_has_its_own(region: RegionWorld) -> None:
    await region.create(**having(NEED | {"resources": {BANDWIDTH: 600}}), min_count=3, max_count=3)
    servers = list(region.engine.view.records.all(Server))
    assert len(servers) == 3
    places = {number_of(region, server.id) for server in servers}
    assert places == {"1", "2", "3"}, "no card has enough for two"
    for server in servers:
        assert await cards_of(region, server.id) == {number_of(region, server.id): {BANDWIDTH: 600}}


@pytest.mark.parametrize(
    ("need", "named"),
    [
        (NEED | {"resources": {BANDWIDTH: 2000}}, "the need uplink"),
        (
            {
                "name": "uplink",
                "groups": [TWO_GROUPS["groups"][0], {"name": "packets", "resources": {PACKETS: 2000}}],
            },
            "the group packets of the need uplink",
        ),
    ],
)
async def test_a_fault_names_the_need_that_is_not_met(
    region: RegionWorld, need: dict[str, Any], named: str
) -> None:
    id = await region.create(**having(need))
    assert region.record(id).state == "error"
    assert not list(region.engine.view.records.all(Outbox))
    assert await region.held(id) == {}
    shown = await region.server(id)
    assert f"for {named}: 0 hosts left" in shown["fault"]["message"]
    assert shown["berth:needs"][0]["allocations"] == {}


async def test_a_member_learns_which_need_is_not_met_and_nothing_of_hosts(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"berth:needs:create": "role:member"\n')
    async with RegionWorld(tmp_path, policy_file=str(policy)).running() as region:
        await region.fleet()
        await region.host(11, {BANDWIDTH: 1000}, parent=1)
        id = await region.create(who="ann:blue", **having(NEED | {"resources": {BANDWIDTH: 2000}}))
        shown = await region.server(id, who="ann:blue")
        assert shown["fault"]["message"] == (
            "No valid host was found. No host can meet the need uplink. Change the flavor small or the need "
            "uplink, or retry later."
        )
        assert "berth:needs" not in shown


async def test_a_move_that_cannot_meet_a_need_names_it(region: RegionWorld) -> None:
    id = await region.active(**having(NEED | {"resources": {BANDWIDTH: 900}}))
    await region.active("two", **having(NEED))
    await region.active("three", **having(NEED))
    answer = await region.act(id, "migrate")
    assert answer.status == 400
    assert "for the need uplink: 0 hosts left" in answer.json["badRequest"]["message"]


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ([NEED, NEED], "berth:needs: the name of a need is uplink more than once"),
        ([{"name": "uplink"}], "need uplink: neither resources nor groups"),
        ([NEED | {"resources": {"CUSTOM_NONE": 1}}], "There is no resource class CUSTOM_NONE."),
        ([NEED | {"required": ["CUSTOM_NONE"]}], "There is no trait CUSTOM_NONE."),
        ([NEED | {"color": "red"}], "color"),
        ([NEED | {"name": "a b"}], "name"),
        ([{"resources": {BANDWIDTH: 1}}], "name"),
        ([NEED | {"name": f"n{number}"} for number in range(17)], "berth:needs"),
        (
            [
                {
                    "name": f"n{number}",
                    "groups": [{"name": f"g{one}", "resources": {BANDWIDTH: 1}} for one in range(8)],
                }
                for number in range(5)
            ],
            "40 groups in its needs; the maximum is 32",
        ),
        ({"name": "uplink"}, "berth:needs"),
    ],
)
async def test_wrong_needs_are_refused_by_name(region: RegionWorld, needs: Any, words: str) -> None:
    answer = await region.compute(
        "POST", "/servers", body() | {"server": body()["server"] | {"berth:needs": needs}}
    )
    assert answer.status == 400
    assert words in answer.json["badRequest"]["message"]
    assert not list(region.engine.view.records.all(Server))


async def test_needs_are_for_administrators_and_services(region: RegionWorld) -> None:
    answer = await region.compute("POST", "/servers", body(NEED), who="ann:blue")
    assert answer.status == 403
    assert "berth:needs:create" in answer.json["forbidden"]["message"]
    assert (await region.compute("POST", "/servers", body(), who="ann:blue")).status == 202
