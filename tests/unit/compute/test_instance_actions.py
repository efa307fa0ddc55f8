"""What happened to a server, step by step."""

from typing import Any

import pytest

from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


async def actions(region: RegionWorld, id: str, query: str = "", **how: Any) -> Any:
    answer = await region.compute("GET", f"/servers/{id}/os-instance-actions?{query}", **how)
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_build_that_fails_everywhere_has_an_event_for_each_host(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create(who="ann:blue")
    await region.finish(id, "no luck")
    [action] = (await actions(region, id))["instanceActions"]
    assert (action["action"], action["message"]) == ("create", "Error: no luck")
    assert (action["instance_uuid"], action["user_id"], action["project_id"]) == (id, "ann", "blue")
    assert action["updated_at"] == "2026-01-01T00:00:00.000000"
    path = f"/servers/{id}/os-instance-actions/{action['request_id']}"
    whole = (await region.compute("GET", path)).json["instanceAction"]
    builds = [event for event in whole["events"] if event["event"] == "build"]
    assert {event["host"] for event in builds} == {"host-1", "host-2", "host-3"}
    assert {(event["result"], event["details"]) for event in builds} == {("Error", "no luck")}
    assert [event["event"] for event in whole["events"]].count("move the claim") == 2
    assert all(event["traceback"] is None for event in whole["events"])
    mine = (await region.compute("GET", path, who="ann:blue")).json["instanceAction"]["events"]
    assert {len(event["hostId"]) for event in mine if event["event"] == "build"} == {56}
    assert not [event for event in mine if "host" in event or "traceback" in event]
    old = (await region.compute("GET", path, who="ann:blue", version="2.50")).json["instanceAction"]
    assert "events" not in old
    assert "updated_at" not in old


async def test_actions_are_listed_newest_first_in_pages(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    for name in ("os-stop", "os-start"):
        region.clock.advance(60)
        await region.act(id, name)
        await region.finish(id)
    found = (await actions(region, id))["instanceActions"]
    assert [one["action"] for one in found] == ["start", "stop", "create"]
    page = await actions(region, id, "limit=2")
    assert [one["action"] for one in page["instanceActions"]] == ["start", "stop"]
    [link] = page["links"]
    assert f"marker={found[1]['request_id']}" in link["href"]
    rest = await actions(region, id, f"limit=2&marker={found[1]['request_id']}")
    assert ([one["action"] for one in rest["instanceActions"]], "links" in rest) == (["create"], False)
    late = await actions(region, id, "changes-since=2026-01-01T00:00:30")
    assert len(late["instanceActions"]) == 2
    early = await actions(region, id, "changes-before=2026-01-01T00:00:30")
    assert [one["action"] for one in early["instanceActions"]] == ["create"]
    assert len((await actions(region, id, version="2.57"))["instanceActions"]) == 3
    early_page = f"/servers/{id}/os-instance-actions?limit=1"
    assert (await region.compute("GET", early_page, version="2.57")).status == 400


async def test_what_was_never_asked_is_not_found(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active()
    assert (await region.compute("GET", f"/servers/{id}/os-instance-actions/req-x")).status == 404
    assert (await region.compute("GET", f"/servers/{id}/os-instance-actions?marker=req-x")).status == 400
