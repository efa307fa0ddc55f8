"""Members of images: the owner shares, the member accepts, and nobody else learns of it."""

from typing import Any

import pytest

from tests.unit.image.test_images import IMAGES, names, new, patch, upload
from tests.worlds import HttpAnswer, RegionWorld

pytestmark = pytest.mark.fast


async def share(region: RegionWorld, id: str, project: str, who: str = "ann:blue") -> HttpAnswer:
    return await region.ask("POST", f"{IMAGES}/{id}/members", {"member": project}, token=who)


async def answer(region: RegionWorld, id: str, project: str, status: str, who: str) -> HttpAnswer:
    return await region.ask("PUT", f"{IMAGES}/{id}/members/{project}", {"status": status}, token=who)


async def members(region: RegionWorld, id: str, who: str) -> Any:
    listed = await region.ask("GET", f"{IMAGES}/{id}/members", token=who)
    return listed.status if listed.status != 200 else [one["member_id"] for one in listed.json["members"]]


async def test_an_image_is_shared_and_accepted(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    await upload(region, id)
    assert (await region.ask("GET", f"{IMAGES}/{id}", token="bob:red")).status == 404
    shared = await share(region, id, "red")
    assert shared.status == 200
    assert shared.json == {
        "image_id": id,
        "member_id": "red",
        "status": "pending",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "schema": "/v2/schemas/member",
    }
    # It can be used by its id, and is in no list that was not asked for it.
    assert (await region.ask("GET", f"{IMAGES}/{id}", token="bob:red")).status == 200
    assert (await region.ask("GET", f"{IMAGES}/{id}/file", token="bob:red")).body == b"content"
    assert await names(region, who="bob:red") == []
    assert await names(region, "?member_status=pending", who="bob:red") == ["cirros"]
    assert await names(region, "?visibility=shared&member_status=all", who="bob:red") == ["cirros"]
    accepted = await answer(region, id, "red", "accepted", "bob:red")
    assert (accepted.status, accepted.json["status"]) == (200, "accepted")
    assert await names(region, who="bob:red") == ["cirros"]
    assert await names(region, "?member_status=rejected", who="bob:red") == []
    assert (await answer(region, id, "red", "rejected", "bob:red")).status == 200
    assert await names(region, who="bob:red") == []
    assert (await region.ask("DELETE", f"{IMAGES}/{id}/members/red", token="ann:blue")).status == 204
    assert (await region.ask("GET", f"{IMAGES}/{id}", token="bob:red")).status == 404


async def test_who_may_do_what(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    await share(region, id, "red")
    await share(region, id, "green")
    assert await members(region, id, "ann:blue") == ["red", "green"]
    assert await members(region, id, "bob:red") == ["red"]
    assert await members(region, id, "eve:black") == 404
    path = f"{IMAGES}/{id}/members"

    async def status(method: str, below: str, who: str, body: object = None) -> int:
        return (await region.ask(method, path + below, body, token=who)).status

    assert await status("GET", "/red", "ann:blue") == 200
    assert await status("GET", "/red", "bob:red") == 200
    assert await status("GET", "/green", "bob:red") == 404
    assert await status("GET", "/red", "eve:black") == 404
    assert await status("GET", "/black", "ann:blue") == 404
    accepted = {"status": "accepted"}
    assert await status("PUT", "/red", "ann:blue", accepted) == 403
    assert await status("PUT", "/green", "bob:red", accepted) == 404
    assert await status("PUT", "/red", "bob:red", {"status": "notavalidstatus"}) == 400
    assert await status("PUT", "/red", "bob:red", {"status": "accepted", "member_id": "x"}) == 400
    assert await status("PUT", "/red", "bob:red", {"status": "accepted", "member": "red"}) == 200
    assert await status("PUT", "/red", "admin", accepted) == 200
    assert await status("DELETE", "/red", "bob:red") == 403
    assert await status("POST", "", "bob:red", {"member": "black"}) == 403
    assert await status("POST", "", "ann:blue", {"member": "red"}) == 409
    assert await status("POST", "", "ann:blue", {"member": ""}) == 400
    assert await status("POST", "", "ann:blue", {}) == 400
    assert await status("DELETE", "/black", "ann:blue") == 404
    assert (await patch(region, id, ("replace", "/name", "x"), who="bob:red")).status == 403


async def test_only_a_shared_image_has_members(region: RegionWorld) -> None:
    id = (await new(region, visibility="private"))["id"]
    refused = await share(region, id, "red")
    assert (refused.status, refused.json["message"]) == (
        403,
        f"Only shared images have members: image {id} is private.",
    )
    assert await members(region, id, "ann:blue") == 403
    await patch(region, id, ("replace", "/visibility", "shared"))
    await share(region, id, "red")
    assert (await region.ask("GET", f"{IMAGES}/{id}", token="bob:red")).status == 200
    await patch(region, id, ("replace", "/visibility", "private"))
    assert (await region.ask("GET", f"{IMAGES}/{id}", token="bob:red")).status == 404


async def test_there_is_an_end_to_members(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    for number in range(128):
        assert (await share(region, id, f"p{number}")).status == 200
    assert (await share(region, id, "one-more")).status == 413
