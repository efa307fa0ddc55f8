"""Reboot, pause, suspend, rescue, images and backups, soft deletion, and states that are reset: what a server
is meanwhile and afterwards, as Nova says it."""

from pathlib import Path
from typing import Any

import pytest

from berth.model.servers import DeletedServer, Image
from berth.sagas import proposals
from berth.sagas.reclaim import forget_servers, reclaim_servers
from tests.worlds import CIRROS, LARGE, SMALL, RegionWorld

pytestmark = pytest.mark.fast

ACTIVE = ("ACTIVE", "active", None, 1)


async def shown(region: RegionWorld, id: str) -> tuple[Any, ...]:
    server = await region.server(id)
    names = ("vm_state", "task_state", "power_state")
    return (server["status"], *(server[f"OS-EXT-STS:{name}"] for name in names))


@pytest.mark.parametrize(
    ("action", "body", "status", "meanwhile", "after", "back"),
    [
        (
            "reboot",
            {"type": "SOFT"},
            202,
            ("REBOOT", "active", "rebooting", 1),
            ACTIVE,
            None,
        ),
        (
            "reboot",
            {"type": "hard"},
            202,
            ("HARD_REBOOT", "active", "rebooting_hard", 1),
            ACTIVE,
            None,
        ),
        ("pause", None, 202, ("ACTIVE", "active", "pausing", 1), ("PAUSED", "paused", None, 3), "unpause"),
        (
            "suspend",
            None,
            202,
            ("ACTIVE", "active", "suspending", 1),
            ("SUSPENDED", "suspended", None, 7),
            "resume",
        ),
        (
            "rescue",
            None,
            200,
            ("ACTIVE", "active", "rescuing", 1),
            ("RESCUE", "rescued", None, 1),
            "unrescue",
        ),
    ],
)
async def test_a_verb_and_its_opposite(
    region: RegionWorld,
    action: str,
    body: object,
    status: int,
    meanwhile: tuple[Any, ...],
    after: tuple[Any, ...],
    back: str | None,
) -> None:
    await region.fleet()
    id = await region.active()
    assert (await region.act(id, action, body)).status == status
    assert await shown(region, id) == meanwhile
    await region.finish(id)
    assert await shown(region, id) == after
    if back is not None:
        refused = await region.act(id, action, body)
        assert refused.status == 409
        assert f"while it is in vm_state {after[1]}" in refused.json["conflictingRequest"]["message"]
        assert (await region.act(id, back)).status == 202
        await region.finish(id)
        assert await shown(region, id) == ACTIVE
        assert (await region.act(id, back)).status == 409
    actions = (await region.compute("GET", f"/servers/{id}/os-instance-actions")).json["instanceActions"]
    assert [one["action"] for one in actions] == [*([back] if back else []), action, "create"]


async def test_a_hard_reboot_runs_what_does_not_run(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    for action in ("os-stop", "pause", "suspend"):
        assert (await region.act(id, action)).status == 202
        await region.finish(id)
        assert (await region.act(id, "reboot", {"type": "SOFT"})).status == 409
        assert (await region.act(id, "reboot", {"type": "HARD"})).status == 202
        assert (await shown(region, id))[0] in ("SHUTOFF", "PAUSED", "SUSPENDED")
        await region.finish(id)
        assert (await shown(region, id))[0] == "ACTIVE"


async def test_a_host_that_fails_leaves_a_server_as_it_was(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    await region.act(id, "suspend")
    await region.finish(id, "no room for its memory")
    assert await shown(region, id) == ACTIVE
    assert region.record(id).fault is not None


async def test_a_password_of_a_rescue_is_answered(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    answer = await region.act(id, "rescue", {"adminPass": "secret"})
    assert answer.json == {"adminPass": "secret"}
    await region.finish(id)
    await region.act(id, "unrescue")
    await region.finish(id)
    assert len((await region.act(id, "rescue")).json["adminPass"]) == 12


async def test_administrators_reset_a_state(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create()
    assert (await region.act(id, "os-resetState", {"state": "error"})).status == 409
    await region.finish(id)
    assert (await region.act(id, "os-resetState", {"state": "error"})).status == 202
    assert (await shown(region, id))[0] == "ERROR"
    assert (await region.act(id, "os-resetState", {"state": "active"})).status == 202
    assert (await shown(region, id))[0] == "ACTIVE"
    await region.act(id, "resize", {"flavorRef": LARGE.id})
    await region.finish(id)
    assert (await region.act(id, "os-resetState", {"state": "active"})).status == 409
    assert (await region.act(id, "os-resetState", {"state": "error"})).status == 202
    assert (await region.act(id, "revertResize")).status == 202


# -- images -------------------------------------------------------------------------------------


def image_of(region: RegionWorld, id: str) -> Image | None:
    return region.engine.view.records.get(Image, id)


async def test_an_image_is_made_of_a_server(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(imageRef=CIRROS.id)
    answer = await region.act(id, "createImage", {"name": "mine", "metadata": {"os": "cirros"}})
    assert answer.status == 202
    image = answer.json["image_id"]
    assert (await shown(region, id))[2] == "image_snapshot"
    made = (await region.ask("GET", f"/image/v2/images/{image}", token="admin")).json
    assert (made["name"], made["status"], made["visibility"], made["min_disk"]) == (
        "mine",
        "queued",
        "private",
        SMALL.disk_gb,
    )
    assert (made["instance_uuid"], made["image_type"], made["base_image_ref"], made["os"]) == (
        id,
        "snapshot",
        CIRROS.id,
        "cirros",
    )
    await region.finish(id)
    assert (await shown(region, id))[0] == "ACTIVE"
    made = (await region.ask("GET", f"/image/v2/images/{image}", token="admin")).json
    assert (made["status"], made["size"]) == ("active", 0)
    assert (await region.act(id, "rebuild", {"imageRef": image})).status == 202


async def test_before_microversion_45_the_image_is_named_in_a_header(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    answer = await region.act(id, "createImage", {"name": "mine"}, version="2.44")
    assert (answer.status, answer.body) == (202, b"")
    assert answer.headers["location"].endswith(f"/image/v2/images/{region.record(id).run}")


async def test_an_image_that_cannot_be_made_is_gone(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    image = (await region.act(id, "createImage", {"name": "mine"})).json["image_id"]
    assert image_of(region, image) is not None
    await region.finish(id, "no space left")
    assert image_of(region, image) is None
    assert (await shown(region, id))[0] == "ACTIVE"


async def make_backup(region: RegionWorld, id: str, rotation: int, kind: str = "daily") -> str:
    region.clock.advance(1)
    body = {"name": "b", "backup_type": kind, "rotation": rotation}
    answer = await region.act(id, "createBackup", body)
    assert answer.status == 202
    assert (await shown(region, id))[2] == "image_backup"
    image = region.record(id).run or ""
    assert answer.body == b"" if rotation == 0 else answer.json == {"image_id": image}
    await region.finish(id)
    return image


async def test_the_oldest_backups_of_a_type_go_when_a_new_one_is_there(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    weekly = await make_backup(region, id, 1, "weekly")
    first, second, third = [await make_backup(region, id, 2) for _ in range(3)]
    kept = [image for image in (weekly, first, second, third) if image_of(region, image) is not None]
    assert kept == [weekly, second, third]
    await region.act(id, "createBackup", {"name": "b", "backup_type": "daily", "rotation": 1})
    await region.finish(id, "no space left")
    assert image_of(region, second) is not None, "a backup that fails replaces none"
    fourth = await make_backup(region, id, 0)
    left = [image for image in (weekly, second, third, fourth) if image_of(region, image) is not None]
    assert left == [weekly]


# -- soft deletion ------------------------------------------------------------------------------


async def test_a_server_is_kept_for_a_while_and_restored(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, reclaim_instance_interval=3600).running() as region:
        await region.fleet()
        id = await region.active()
        assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
        assert (await shown(region, id))[2] == "soft-deleting"
        await region.finish(id)
        assert await shown(region, id) == ("SOFT_DELETED", "soft-delete", None, 4)
        assert await region.held(id)
        assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
        assert (await region.act(id, "os-start")).status == 409
        assert (await region.act(id, "restore")).status == 202
        assert (await shown(region, id))[2] == "restoring"
        await region.finish(id)
        assert await shown(region, id) == ACTIVE
        assert (await region.act(id, "restore")).status == 409


async def test_a_server_that_was_soft_deleted_is_deleted_for_good(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, reclaim_instance_interval=3600).running() as region:
        await region.fleet()
        ids = [await region.active(name) for name in ("a", "b")]
        for id in ids:
            await region.compute("DELETE", f"/servers/{id}")
            await region.finish(id)
        assert (await region.act(ids[0], "forceDelete")).status == 202
        await region.finish(ids[0])
        assert (await region.compute("GET", f"/servers/{ids[0]}")).status == 404
        at = region.parts.services
        reclaim = reclaim_servers(at.engine, at.clock, at.ids, at.scheduler, at.settings)
        await reclaim._advance_all()
        assert region.record(ids[1]).run is None, "it is not due yet"
        region.clock.advance(3600)
        await reclaim._advance_all()
        assert region.record(ids[1]).task == "deleting"
        await region.finish(ids[1])
        assert await region.held(ids[1]) == {}


async def test_what_never_ran_is_deleted_at_once(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, reclaim_instance_interval=3600).running() as region:
        await region.fleet()
        id = await region.create()
        await region.finish(id, "broken")
        assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
        assert (await region.compute("GET", f"/servers/{id}")).status == 404


async def test_a_deletion_that_waits_is_as_soft_as_was_asked(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, reclaim_instance_interval=3600).running() as region:
        await region.fleet()
        id = await region.active()
        run = await region.act(id, "reboot", {"type": "SOFT"})
        assert run.status == 202
        run_of_reboot = region.saga_run(id)
        assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
        await region.carry_out(run_of_reboot)
        assert region.record(id).task == "soft-deleting"
        await region.finish(id)
        assert (await shown(region, id))[0] == "SOFT_DELETED"


# -- deleted servers ----------------------------------------------------------------------------


async def test_deleted_servers_are_listed_for_administrators_until_they_are_forgotten(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, deleted_servers_seconds=600).running() as region:
        await region.fleet()
        ids = [await region.active(name) for name in ("a", "b")]
        failed = await region.create("c")
        await region.finish(failed, "broken")
        for id in (ids[0], failed):
            assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
        await region.finish(ids[0])
        for query in ("deleted=true", "status=deleted"):
            listed = (await region.compute("GET", f"/servers/detail?all_tenants=1&{query}")).json["servers"]
            assert [one["id"] for one in listed] == [ids[0]], "one that never ran is not remembered"
            assert (listed[0]["status"], listed[0]["OS-EXT-STS:vm_state"]) == ("DELETED", "deleted")
            assert listed[0]["OS-SRV-USG:terminated_at"] is not None
            refused = await region.compute("GET", f"/servers?{query}", who="ann:green")
            assert refused.status == 403
        living = (await region.compute("GET", "/servers?deleted=false")).json["servers"]
        assert [one["id"] for one in living] == [ids[1]]
        assert (await region.compute("GET", f"/servers/{ids[0]}")).status == 404
        at = region.parts.services
        forget = forget_servers(at.engine, at.clock, at.settings)
        await forget._advance_all()
        assert len(region.engine.view.records.all(DeletedServer)) == 1, "it is not due yet"
        region.clock.advance(600)
        await forget._advance_all()
        assert not region.engine.view.records.all(DeletedServer)


async def test_no_more_deleted_servers_are_remembered_than_the_maximum(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "DELETED_MAX", 2)
    await region.fleet()
    ids = [await region.active(name) for name in ("a", "b", "c")]
    for id in ids:
        await region.compute("DELETE", f"/servers/{id}")
        await region.finish(id)
    assert [one.id for one in region.engine.view.records.all(DeletedServer)] == ids[1:]
