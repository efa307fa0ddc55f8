"""/flavors: made, shown, narrowed down, changed, and who may use them."""

from pathlib import Path
from typing import Any

import pytest

from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast


def flavor(name: str = "small", **fields: Any) -> dict[str, Any]:
    return {"flavor": {"name": name, "ram": 512, "vcpus": 1, "disk": 5, **fields}}


async def made(region: RegionWorld, *names: str, **fields: Any) -> None:
    for name in names:
        answer = await region.compute("POST", "/flavors", flavor(name, id=name, **fields))
        assert answer.status == 200, answer.body


async def names(region: RegionWorld, query: str = "", **how: Any) -> list[str]:
    answer = await region.compute("GET", f"/flavors{query}", **how)
    assert answer.status == 200, answer.body
    return [one["name"] for one in answer.json["flavors"]]


async def test_a_flavor_is_shown_as_nova_shows_it(region: RegionWorld) -> None:
    prefixed: dict[str, Any] = {"OS-FLV-EXT-DATA:ephemeral": 3, "os-flavor-access:is_public": True}
    body = flavor(id="7", ram="2048", swap=0, rxtx_factor=1.0, description="for all", **prefixed)
    answer = await region.compute("POST", "/flavors", body, headers={"host": "cloud:1"})
    base = "http://cloud:1/compute"
    assert answer.status == 200
    assert answer.json["flavor"] == {
        "id": "7",
        "name": "small",
        "links": [
            {"rel": "self", "href": f"{base}/v2.1/flavors/7"},
            {"rel": "bookmark", "href": f"{base}/flavors/7"},
        ],
        "description": "for all",
        "ram": 2048,
        "disk": 5,
        "vcpus": 1,
        "swap": 0,
        "OS-FLV-EXT-DATA:ephemeral": 3,
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": True,
        "rxtx_factor": 1.0,
        "extra_specs": {},
    }
    again = await region.compute("GET", "/flavors/7", headers={"host": "cloud:1"})
    assert again.json == answer.json
    old = (await region.compute("GET", "/flavors/7", version="2.1")).json["flavor"]
    assert old["swap"] == ""
    assert not {"description", "extra_specs"} & old.keys()


@pytest.mark.parametrize("id", [None, "auto", ""])
async def test_an_id_that_is_not_given_is_drawn(region: RegionWorld, id: str | None) -> None:
    answer = await region.compute("POST", "/flavors", flavor(id=id))
    assert len(answer.json["flavor"]["id"]) == 36


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vcpus": 0}, "Invalid input: vcpus is 0; it must be a whole number from 1 to 2147483647."),
        ({"ram": -1}, "Invalid input: ram is -1; it must be a whole number from 1 to 2147483647."),
        ({"disk": "x"}, "Invalid input: disk is 'x'; it must be a whole number from 0 to 2147483647."),
        (
            {"swap": 1 << 31},
            "Invalid input: swap is 2147483648; it must be a whole number from 0 to 2147483647.",
        ),
        ({"name": " a"}, "name is ' a'; it must have 1 to 255 characters, without spaces at its ends."),
        (
            {"id": "a/b"},
            "id is 'a/b'; it must have 1 to 255 letters, digits, dots, dashes, underscores or spaces.",
        ),
        ({"cpus": 1}, "Invalid input: Object contains unknown field `cpus` - at `$.flavor`"),
    ],
)
async def test_a_flavor_that_cannot_be(region: RegionWorld, change: dict[str, Any], why: str) -> None:
    answer = await region.compute("POST", "/flavors", flavor(**change))
    assert (answer.status, answer.json) == (400, {"badRequest": {"code": 400, "message": why}})
    assert await names(region) == []


async def test_ids_and_names_are_had_once_and_only_admins_make_them(region: RegionWorld) -> None:
    await made(region, "a")
    same_id = await region.compute("POST", "/flavors", flavor("b", id="a"))
    same_name = await region.compute("POST", "/flavors", flavor("a", id="b"))
    assert [same_id.status, same_name.status] == [409, 409]
    assert (await region.compute("POST", "/flavors", flavor("c"), who="ann")).status == 403
    assert await names(region) == ["a"]


async def test_lists_are_narrowed_and_cut_into_pages(region: RegionWorld) -> None:
    await made(region, "a", "b", "c")
    await made(region, "big", ram=4096, disk=50)
    assert await names(region, "?minRam=4096") == ["big"]
    assert await names(region, "?minDisk=6") == ["big"]
    assert await names(region, "?sort_key=memory_mb&sort_dir=desc&limit=1") == ["big"]
    first = (await region.compute("GET", "/flavors/detail?limit=2", headers={"host": "h"})).json
    assert [one["ram"] for one in first["flavors"]] == [512, 512]
    assert first["flavors_links"] == [
        {"rel": "next", "href": "http://h/compute/v2.1/flavors/detail?limit=2&marker=b"}
    ]
    rest = (await region.compute("GET", "/flavors?limit=2&marker=b")).json
    assert [one["name"] for one in rest["flavors"]] == ["big", "c"]
    assert "flavors_links" not in rest
    assert (await region.compute("GET", "/flavors?marker=none")).status == 400
    assert (await region.compute("GET", "/flavors?minRam=lots")).status == 400
    assert (await region.compute("GET", "/flavors?sort_key=taste")).status == 400


async def test_a_private_flavor_is_there_for_those_who_have_access(region: RegionWorld) -> None:
    await made(region, "open")
    await made(region, "secret", **{"os-flavor-access:is_public": False})
    assert await names(region) == ["open"]
    assert await names(region, "?is_public=None") == ["open", "secret"]
    assert await names(region, "?is_public=false") == ["secret"]
    assert (await region.compute("GET", "/flavors/secret", who="ann:blue")).status == 404
    grant = {"addTenantAccess": {"tenant": "blue"}}
    answer = await region.compute("POST", "/flavors/secret/action", grant)
    assert answer.json == {"flavor_access": [{"flavor_id": "secret", "tenant_id": "blue"}]}
    assert (await region.compute("POST", "/flavors/secret/action", grant)).status == 409
    assert (await region.compute("POST", "/flavors/open/action", grant)).status == 409
    assert (await region.compute("GET", "/flavors/secret", who="ann:blue")).status == 200
    assert await names(region, who="ann:blue") == ["open", "secret"]
    assert await names(region, "?is_public=false", who="ann:blue") == ["secret"]
    assert await names(region, "?is_public=None", who="ann:blue") == ["open", "secret"]
    assert await names(region, "?is_public=false", who="bob:red") == []
    assert await names(region, "?is_public=None", who="bob:red") == ["open"]
    assert (await region.compute("GET", "/flavors/open/os-flavor-access")).status == 404
    take = {"removeTenantAccess": {"tenant": "blue"}}
    assert (await region.compute("POST", "/flavors/secret/action", take)).json == {"flavor_access": []}
    assert (await region.compute("POST", "/flavors/secret/action", take)).status == 404
    assert (await region.compute("GET", "/flavors/secret/os-flavor-access")).json == {"flavor_access": []}


async def test_a_project_may_give_its_own_access_up(tmp_path: Path) -> None:
    """Where the policy lets members do that: the flavor is not there for them any more, and the change is
    answered all the same."""
    file = tmp_path / "policy.yaml"
    file.write_text('"os_compute_api:os-flavor-access:remove_tenant_access": "role:member"\n')
    async with RegionWorld(tmp_path, policy_file=str(file)).running() as region:
        await made(region, "secret", **{"os-flavor-access:is_public": False})
        for tenant in ("blue", "red"):
            await region.compute("POST", "/flavors/secret/action", {"addTenantAccess": {"tenant": tenant}})
        take = {"removeTenantAccess": {"tenant": "blue"}}
        answer = await region.compute("POST", "/flavors/secret/action", take, who="ann:blue")
        assert (answer.status, answer.json["flavor_access"]) == (
            200,
            [{"flavor_id": "secret", "tenant_id": "red"}],
        )
        assert (await region.compute("GET", "/flavors/secret", who="ann:blue")).status == 404


async def test_extra_specs_are_added_changed_and_taken_away(region: RegionWorld) -> None:
    await made(region, "a")
    path = "/flavors/a/os-extra_specs"
    specs = {"quota:cpu_shares": "100", "resources:VGPU": 1}
    answer = await region.compute("POST", path, {"extra_specs": specs})
    assert answer.json == {"extra_specs": {"quota:cpu_shares": "100", "resources:VGPU": "1"}}
    assert (await region.compute("PUT", f"{path}/resources:VGPU", {"resources:VGPU": "2"})).json == {
        "resources:VGPU": "2"
    }
    assert (await region.compute("GET", f"{path}/resources:VGPU")).json == {"resources:VGPU": "2"}
    assert (await region.compute("PUT", f"{path}/other", {"resources:VGPU": "2"})).status == 400
    assert (await region.compute("DELETE", f"{path}/quota:cpu_shares")).status == 200
    assert (await region.compute("DELETE", f"{path}/quota:cpu_shares")).status == 404
    assert (await region.compute("GET", path)).json == {"extra_specs": {"resources:VGPU": "2"}}
    shown = (await region.compute("GET", "/flavors/a", version="2.61")).json["flavor"]
    assert shown["extra_specs"] == {"resources:VGPU": "2"}
    assert (await region.compute("POST", path, {"extra_specs": {"a:c": "b"}}, who="ann")).status == 403


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ({"trait:HW_CPU": "maybe"}, "trait:HW_CPU is 'maybe'; it must be required or forbidden."),
        ({"group_policy": "x"}, "group_policy is 'x'; it must be none or isolate."),
        ({"a/b": "x"}, "The key 'a/b' must have 1 to 255 letters, digits, spaces or any of _:.-"),
    ],
)
async def test_extra_specs_that_nobody_understands(
    region: RegionWorld, specs: dict[str, str], why: str
) -> None:
    await made(region, "a")
    answer = await region.compute("POST", "/flavors/a/os-extra_specs", {"extra_specs": specs})
    assert (answer.status, answer.json["badRequest"]["message"]) == (400, why)
    assert (await region.compute("GET", "/flavors/a/os-extra_specs")).json == {"extra_specs": {}}


async def test_a_description_is_changed_and_a_flavor_deleted(region: RegionWorld) -> None:
    await made(region, "a")
    body = {"flavor": {"description": "new"}}
    assert (await region.compute("PUT", "/flavors/a", body, version="2.54")).status == 404
    assert (await region.compute("PUT", "/flavors/a", body, version="2.55")).status == 200
    assert (await region.compute("GET", "/flavors/a")).json["flavor"]["description"] == "new"
    assert (await region.compute("POST", "/flavors", flavor(description="x"), version="2.54")).status == 400
    assert (await region.compute("DELETE", "/flavors/a", who="ann")).status == 403
    assert (await region.compute("DELETE", "/flavors/a")).status == 202
    assert (await region.compute("DELETE", "/flavors/a")).status == 404
    # The name can be had again.
    await made(region, "a")
