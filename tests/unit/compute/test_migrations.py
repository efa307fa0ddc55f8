"""Moves listed, filtered and aborted."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from berth.model.saga_runs import Outbox, SagaRun
from berth.sagas import runner
from tests.worlds import LARGE, RegionWorld, uuid_of

pytestmark = pytest.mark.fast


async def listed(region: RegionWorld, query: str = "", version: str = "2.94") -> list[Any]:
    answer = await region.compute("GET", f"/os-migrations?{query}", version=version)
    assert answer.status == 200, answer.body
    found: list[Any] = answer.json["migrations"]
    return found


async def live(region: RegionWorld) -> str:
    """A server that is being migrated."""
    id = await region.active("live", host="host-1")
    asked = await region.act(id, "os-migrateLive", {"host": "host-2", "block_migration": "auto"})
    assert asked.status == 202
    await region.bring_up(begun(region.saga_run(id), region))
    return id


def begun(run: SagaRun, region: RegionWorld) -> SagaRun:
    """A saga run at its second step."""
    return runner.record_success(run, region.clock.now_ns())


async def test_moves_are_listed_newest_first(region: RegionWorld) -> None:
    await region.fleet()
    resized = await region.active("resized", host="host-3")
    await region.act(resized, "resize", {"flavorRef": LARGE.id})
    await region.finish(resized)
    moving = await live(region)
    second, first = await listed(region)
    assert (second["id"], first["id"]) == (2, 1)
    assert (first["migration_type"], first["status"]) == ("resize", "finished")
    assert (first["old_instance_type_id"], first["new_instance_type_id"]) == (1, 2)
    assert (second["migration_type"], second["status"]) == ("live-migration", "running")
    assert (second["source_compute"], second["dest_compute"]) == ("host-1", "host-2")
    assert (second["instance_uuid"], second["project_id"]) == (moving, "admin")
    assert second["created_at"] == "2026-01-01T00:00:00.000000"
    assert [link["rel"] for link in second["links"]] == ["self", "bookmark"]
    for query, numbers in (
        ("status=finished", [1]),
        ("status=running", [2]),
        ("host=host-2&migration_type=live-migration", [2]),
        ("source_compute=host-3", [1]),
        (f"instance_uuid={moving}", [2]),
        ("project_id=nobody", []),
        ("changes-since=2026-01-02T00:00:00", []),
        ("changes-before=2026-01-02T00:00:00", [2, 1]),
    ):
        assert [one["id"] for one in await listed(region, query)] == numbers, query
    page = (await region.compute("GET", "/os-migrations?limit=1")).json
    [link] = page["migrations_links"]
    parts = urlsplit(link["href"])
    rest = await region.compute("GET", f"/os-migrations?{parts.query}")
    assert [one["id"] for one in rest.json["migrations"]] == [1]
    assert "migrations_links" not in rest.json
    assert (await region.compute("GET", f"/os-migrations?marker={uuid_of(1)}")).status == 400


async def test_earlier_versions_say_less(region: RegionWorld) -> None:
    await region.fleet()
    await live(region)
    [old] = await listed(region, "hidden=false", version="2.1")
    assert not {"uuid", "migration_type", "links", "project_id"} & set(old)
    [newer] = await listed(region, version="2.59")
    assert "uuid" in newer
    assert "project_id" not in newer


async def test_moves_are_for_administrators(region: RegionWorld) -> None:
    await region.fleet()
    id = await live(region)
    for method, path in (
        ("GET", "/os-migrations"),
        ("GET", f"/servers/{id}/migrations"),
        ("DELETE", f"/servers/{id}/migrations/1"),
    ):
        assert (await region.compute(method, path, who="ann:admin")).status == 403


async def test_a_live_migration_is_shown_while_it_is_under_way(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active("live", host="host-1")
    await region.act(id, "os-migrateLive", {"host": "host-2", "block_migration": "auto"})
    run = region.saga_run(id)
    await region.bring_up(begun(run, region))
    [one] = (await region.compute("GET", f"/servers/{id}/migrations")).json["migrations"]
    assert (one["id"], one["server_uuid"], one["status"]) == (1, id, "running")
    for name in ("1", one["uuid"]):
        shown = await region.compute("GET", f"/servers/{id}/migrations/{name}")
        assert shown.json["migration"] == one
    assert (await region.compute("GET", f"/servers/{id}/migrations", version="2.22")).status == 404
    forced = await region.compute("POST", f"/servers/{id}/migrations/1/action", {"force_complete": None})
    assert (forced.status, "cannot be forced" in forced.json["badRequest"]["message"]) == (400, True)
    await region.carry_out(begun(run, region))
    assert (await region.compute("GET", f"/servers/{id}/migrations")).json == {"migrations": []}
    assert (await region.compute("GET", f"/servers/{id}/migrations/1")).status == 404


async def test_a_live_migration_is_aborted(region: RegionWorld) -> None:
    await region.fleet()
    id = await live(region)
    run = region.record(id).run
    answer = await region.compute("DELETE", f"/servers/{id}/migrations/1")
    assert (answer.status, answer.body) == (202, b"")
    [outbox] = region.engine.view.records.all(Outbox)
    assert (outbox.cell, outbox.abort) == ("cell-1", run)
    for path, status in (("migrations/7", 404), (f"migrations/{uuid_of(1)}", 404)):
        assert (await region.compute("DELETE", f"/servers/{id}/{path}")).status == status


async def test_only_a_live_migration_can_be_aborted(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    await region.act(id, "migrate")
    answer = await region.compute("DELETE", f"/servers/{id}/migrations/1")
    assert answer.status == 409
    assert "only a running live migration" in answer.json["conflictingRequest"]["message"]
