"""What can be done to a server, what it holds after each, and who may ask for it."""

from pathlib import Path
from typing import Any

import pytest

from berth.model.servers import Migration
from tests.unit.compute.fleets import hear, known_fleet
from tests.worlds import AVX, CIRROS, HUGE, LARGE, SECRET, SMALL, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

SMALL_HOLDS = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}
LARGE_HOLDS = {"VCPU": 4, "MEMORY_MB": 4096, "DISK_GB": 20}


def message(answer: HttpAnswer) -> str:
    [(_, error)] = answer.json.items()
    assert error["code"] == answer.status
    text: str = error["message"]
    return text


async def status(region: RegionWorld, id: str) -> str:
    text: str = (await region.server(id))["status"]
    return text


async def host(region: RegionWorld, id: str) -> str:
    name: str = (await region.server(id))["OS-EXT-SRV-ATTR:host"]
    return name


def migration(region: RegionWorld, id: str) -> Migration:
    return region.migrations(id)[-1]


# -- resize and cold migration ------------------------------------------------------------------


async def test_a_resize_waits_for_its_confirmation(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(host="host-1")
    assert (await region.act(id, "resize", {"flavorRef": LARGE.id})).status == 202
    assert await status(region, id) == "RESIZE"
    await region.finish(id)
    shown = await region.server(id)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("VERIFY_RESIZE", "large")
    move = migration(region, id)
    assert await region.held(id) == {shown["OS-EXT-SRV-ATTR:host"]: LARGE_HOLDS}
    assert await region.held(move.id) == {"host-1": SMALL_HOLDS}
    confirmed = await region.act(id, "confirmResize")
    assert (confirmed.status, confirmed.body) == (204, b"")
    await region.finish(id)
    assert await status(region, id) == "ACTIVE"
    assert await region.held(id) == {shown["OS-EXT-SRV-ATTR:host"]: LARGE_HOLDS}
    assert await region.held(move.id) == {}


async def test_a_resize_is_reverted(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(host="host-1")
    await region.act(id, "resize", {"flavorRef": LARGE.id})
    await region.finish(id)
    assert (await region.act(id, "revertResize")).status == 202
    assert await status(region, id) == "REVERT_RESIZE"
    await region.finish(id)
    shown = await region.server(id)
    assert (shown["status"], shown["flavor"]["original_name"]) == ("ACTIVE", "small")
    assert await region.held(id) == {"host-1": SMALL_HOLDS}
    assert await region.held(migration(region, id).id) == {}


async def test_what_cannot_be_resized_says_why(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who="ann:green")
    for body, code, said in (
        ({"flavorRef": "99"}, 400, "Flavor 99 could not be found."),
        ({"flavorRef": SECRET.id}, 400, "Flavor 4 could not be found."),
        ({"flavorRef": SMALL.id}, 400, "already has the flavor 1"),
        ({"flavorRef": HUGE.id}, 400, "No valid host was found. Nothing free fits"),
        ({}, 400, "flavorRef"),
        (None, 400, "Invalid input"),
    ):
        answer = await region.act(id, "resize", body, who="ann:green")
        assert (answer.status, said in message(answer)) == (code, True), answer.body
    for name in ("confirmResize", "revertResize"):
        answer = await region.act(id, name)
        assert (answer.status, "it must be in error or resized" in message(answer)) == (409, True)
    assert region.record(id).run is None
    assert not region.migrations(id)


async def test_a_cold_migration_goes_elsewhere(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(host="host-1")
    assert (await region.act(id, "migrate")).status == 202
    await region.finish(id)
    assert (await status(region, id), await host(region, id) != "host-1") == ("VERIFY_RESIZE", True)
    await region.act(id, "confirmResize")
    await region.finish(id)
    assert (await region.act(id, "migrate", {"host": "host-1"})).status == 202
    await region.finish(id)
    assert await host(region, id) == "host-1"
    assert (await region.act(id, "revertResize")).status == 202


async def test_a_host_to_move_to_must_be_there_and_fit(region: RegionWorld) -> None:
    await region.fleet(count=2)
    id = await region.active(host="host-1")
    old = await region.act(id, "migrate", {"host": "host-2"}, version="2.55")
    assert (old.status, "needs microversion 2.56 or later" in message(old)) == (400, True)
    await region.host_status(2, disabled=True)
    for name, body in (("migrate", {}), ("os-migrateLive", {"block_migration": "auto"})):
        for where, said in (
            ("host-9", "There is no host host-9 with an agent"),
            ("host-2", "No valid host was found."),
        ):
            answer = await region.act(id, name, {**body, "host": where})
            assert (answer.status, said in message(answer)) == (400, True), answer.body
    assert region.record(id).run is None


async def test_a_server_can_move_when_those_it_was_to_avoid_are_gone(region: RegionWorld) -> None:
    await region.fleet()
    other = await region.active("other")
    id = await region.active("one", hints={"different_host": other})
    await region.compute("DELETE", f"/servers/{other}")
    await region.finish(other)
    assert (await region.act(id, "migrate")).status == 202


async def test_one_operation_at_a_time(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    assert (await region.act(id, "resize", {"flavorRef": LARGE.id})).status == 202
    again = await region.act(id, "migrate")
    assert again.status == 409
    assert "while it is in task_state resize_prep: retry when it has finished" in message(again)


# -- live migration and evacuation --------------------------------------------------------------


async def test_a_live_migration_ends_elsewhere(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(host="host-1")
    body = {"host": "host-2", "block_migration": "auto", "force": False}
    assert (await region.act(id, "os-migrateLive", body, version="2.30")).status == 202
    assert await status(region, id) == "MIGRATING"
    assert await region.held(migration(region, id).id) == {"host-1": SMALL_HOLDS}
    await region.finish(id)
    assert (await status(region, id), await host(region, id)) == ("ACTIVE", "host-2")
    assert await region.held(id) == {"host-2": SMALL_HOLDS}
    assert await region.held(migration(region, id).id) == {}


async def test_a_server_is_evacuated_when_its_host_is_down_and_not_before(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(host="host-1")
    early = await region.act(id, "evacuate", {})
    assert (early.status, "is not down" in message(early)) == (409, True)
    await region.host_status(1, down=True)
    stuck = await region.act(id, "migrate")
    assert (stuck.status, "the host host-1 is down" in message(stuck)) == (409, True)
    asked = await region.act(id, "evacuate", {"host": "host-2", "onSharedStorage": False}, version="2.13")
    assert asked.status == 200
    assert await status(region, id) == "REBUILD"
    await region.finish(id)
    assert (await status(region, id), await host(region, id)) == ("ACTIVE", "host-2")
    assert await region.held(id) == {"host-2": SMALL_HOLDS}
    assert await region.held(migration(region, id).id) == {"host-1": SMALL_HOLDS}


@pytest.mark.parametrize(
    ("name", "body"),
    [("migrate", None), ("os-migrateLive", {}), ("evacuate", {}), ("shelveOffload", None)],
)
async def test_moves_take_an_administrator(region: RegionWorld, name: str, body: object) -> None:
    await region.fleet()
    id = await region.active(who="ann:blue")
    answer = await region.act(id, name, body, who="ann:blue")
    assert (answer.status, "Policy doesn't allow" in message(answer)) == (403, True)
    assert region.record(id).run is None


# -- where it is --------------------------------------------------------------------------------


async def test_a_server_is_stopped_and_started(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(who="ann:blue")
    assert (await region.act(id, "os-stop", who="ann:blue")).status == 202
    assert (await region.server(id))["OS-EXT-STS:task_state"] == "powering-off"
    await region.finish(id)
    shown = await region.server(id)
    assert (shown["status"], shown["OS-EXT-STS:power_state"]) == ("SHUTOFF", 4)
    again = await region.act(id, "os-stop")
    assert (again.status, "while it is in vm_state stopped" in message(again)) == (409, True)
    assert (await region.act(id, "os-start")).status == 202
    await region.finish(id)
    assert await status(region, id) == "ACTIVE"


async def test_a_rebuild_takes_another_image_and_name(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    body: dict[str, Any] = {
        "imageRef": CIRROS.id,
        "name": "new",
        "metadata": {"a": "b"},
        "description": "d",
        "key_name": None,
    }
    answer = await region.act(id, "rebuild", body)
    assert answer.status == 202
    shown = answer.json["server"]
    assert (shown["id"], shown["status"], shown["name"]) == (id, "REBUILD", "new")
    assert shown["image"]["id"] == CIRROS.id
    assert region.saga_run(id).spec.name == "new"
    await region.finish(id)
    record = region.record(id)
    assert (record.state, record.image, record.metadata) == ("active", CIRROS.id, {"a": "b"})
    assert (record.description, record.key_name) == ("d", None)


async def test_a_rebuild_is_refused_where_the_image_does_not_fit(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(imageRef=CIRROS.id)
    for body, said in (
        ({"imageRef": AVX.id}, "does not have: HW_CPU_X86_AVX2"),
        ({"imageRef": uuid_of(1)}, f"Image {uuid_of(1)} could not be found."),
        ({"imageRef": CIRROS.id, "name": " "}, "without blanks"),
        ({}, "imageRef"),
    ):
        answer = await region.act(id, "rebuild", body)
        assert (answer.status, said in message(answer)) == (400, True), answer.body
    assert region.record(id).image == CIRROS.id


async def test_a_shelved_server_lets_go_of_its_host(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(host="host-1", who="admin")
    assert (await region.act(id, "shelve")).status == 202
    await region.finish(id)
    shown = await region.server(id)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("SHELVED_OFFLOADED", None)
    assert await region.held(id) == {}
    assert (await region.act(id, "unshelve", {"host": "host-3"})).status == 202
    await region.finish(id)
    assert (await status(region, id), await host(region, id)) == ("ACTIVE", "host-3")
    assert await region.held(id) == {"host-3": SMALL_HOLDS}


async def test_shelved_where_it_is_until_it_is_offloaded(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, shelve_offload=False).running() as region:
        await region.fleet()
        id = await region.active(host="host-1")
        await region.act(id, "shelve")
        await region.finish(id)
        assert await status(region, id) == "SHELVED"
        assert await region.held(id) == {"host-1": SMALL_HOLDS}
        elsewhere = await region.act(id, "unshelve", {"host": "host-2"})
        assert (elsewhere.status, "still on its host" in message(elsewhere)) == (409, True)
        assert (await region.act(id, "unshelve")).status == 202
        await region.finish(id)
        assert (await status(region, id), await host(region, id)) == ("ACTIVE", "host-1")
        await region.act(id, "shelve")
        await region.finish(id)
        assert (await region.act(id, "shelveOffload")).status == 202
        await region.finish(id)
        assert await status(region, id) == "SHELVED_OFFLOADED"
        assert await region.held(id) == {}


async def test_a_server_is_unshelved_into_a_zone_or_out_of_it(region: RegionWorld) -> None:
    await region.fleet()
    await region.join(2, uuid_of(500), uuid_of(600))
    label = {"aggregate": {"kind": "zone", "name": "east", "metadata": {}}}
    await region.change("PUT", f"/berth/v1/aggregates/{uuid_of(600)}", label)
    id = await region.active(who="ann:blue")
    await region.act(id, "shelve", who="ann:blue")
    await region.finish(id)
    for body, version, code in (
        ({"availability_zone": "moon"}, "2.94", 400),
        ({"availability_zone": "east"}, "2.76", 400),
        ({"availability_zone": None}, "2.90", 400),
        ({"host": "host-1"}, "2.94", 403),
        ({"colour": "red"}, "2.94", 400),
    ):
        answer = await region.act(id, "unshelve", body, who="ann:blue", version=version)
        assert answer.status == code, body
    asked = await region.act(id, "unshelve", {"availability_zone": "east"}, who="ann:blue")
    assert asked.status == 202
    await region.finish(id)
    assert (await host(region, id), region.record(id).zone) == ("host-2", "east")
    await region.act(id, "shelve")
    await region.finish(id)
    assert (await region.act(id, "unshelve", {"availability_zone": None})).status == 202
    assert region.record(id).zone is None


# -- bodies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "one action, and it has 0"),
        ({"os-stop": None, "os-start": None}, "one action, and it has 2"),
        ({"changePassword": {"adminPass": "x"}}, "The action changePassword is not supported."),
        ({"os-getConsoleOutput": {}}, "is not supported"),
        ({"reboot": {"type": "FIRM"}}, "Invalid input"),
        ({"reboot": None}, "Invalid input"),
        ({"os-resetState": {"state": "deleted"}}, "Invalid input"),
        ({"createImage": {}}, "Invalid input"),
        ({"createBackup": {"name": "b", "backup_type": "daily", "rotation": -1}}, "Invalid input"),
        ({"rescue": {"rescue_image_ref": CIRROS.id}}, "rescue_image_ref"),
        ({"dance": None}, "Unknown action: dance."),
        ([], "Invalid input"),
    ],
)
async def test_what_is_no_action_is_refused(region: RegionWorld, body: object, said: str) -> None:
    await region.fleet()
    id = await region.active()
    answer = await region.compute("POST", f"/servers/{id}/action", body)
    assert (answer.status, said in message(answer)) == (400, True), answer.body


async def test_a_move_to_another_cell_is_refused_with_the_way_round(region: RegionWorld) -> None:
    await known_fleet(region)
    await hear(region, 3, cell="cell-2")
    id = await region.active(host="host-1", who="admin")
    refused = await region.act(
        id, "os-migrateLive", {"host": "host-3", "block_migration": "auto"}, who="admin"
    )
    assert refused.status == 400
    said = refused.json["badRequest"]["message"]
    assert "only a resize or a cold migration can leave its cell" in said
    assert "Shelve and unshelve the instance" in said
