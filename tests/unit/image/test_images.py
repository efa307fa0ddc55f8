"""/image/v2: images are made, filled, found, changed and deleted; by whom, and what they may say."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import SMALL, HttpAnswer, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

IMAGES = "/image/v2/images"
PATCH = "application/openstack-images-v2.1-json-patch"


async def new(region: RegionWorld, name: str = "cirros", who: str = "ann:blue", **fields: Any) -> Any:
    body = {"name": name, "disk_format": "raw", "container_format": "bare", **fields}
    answer = await region.ask("POST", IMAGES, body, token=who)
    assert answer.status == 201, answer.body
    return answer.json


async def names(region: RegionWorld, query: str = "", who: str = "ann:blue") -> list[str]:
    answer = await region.ask("GET", f"{IMAGES}{query}", token=who)
    assert answer.status == 200, answer.body
    return sorted(image["name"] for image in answer.json["images"])


async def patch(
    region: RegionWorld, id: str, *steps: Sequence[Any], who: str = "ann:blue", media: str = PATCH
) -> HttpAnswer:
    body = [dict(zip(("op", "path", "value"), step, strict=False)) for step in steps]
    return await region.ask("PATCH", f"{IMAGES}/{id}", body, token=who, headers={"content-type": media})


async def upload(
    region: RegionWorld, id: str, content: bytes = b"content", who: str = "ann:blue"
) -> HttpAnswer:
    headers = {"content-type": "application/octet-stream"}
    return await region.ask_raw("PUT", f"{IMAGES}/{id}/file", content, token=who, headers=headers)


async def test_versions_are_for_everybody(region: RegionWorld) -> None:
    for path in ("/image", "/image/", "/image/versions", "/image/v2", "/image/v2/"):
        answer = await region.ask("GET", path, token=None, headers={"host": "c:1"})
        assert answer.status == (300 if path.rstrip("/") == "/image" else 200)
        versions = answer.json["versions"]
        assert [one["status"] for one in versions].count("CURRENT") == 1
        assert versions[0] == {
            "id": "v2.9",
            "status": "CURRENT",
            "links": [{"rel": "self", "href": "http://c:1/image/v2/"}],
        }
    refused = await region.ask("GET", IMAGES, token=None)
    assert (refused.status, refused.json["code"]) == (401, "401 Unauthorized")
    assert (await region.ask("GET", "/image/v1/images")).status == 404


async def test_an_image_is_queued_until_it_has_content(region: RegionWorld) -> None:
    answer = await region.ask(
        "POST",
        IMAGES,
        {"name": "x", "id": uuid_of(5), "disk_format": "raw", "container_format": "bare", "os": "linux"},
        token="ann:blue",
        headers={"host": "c:1"},
    )
    assert answer.status == 201
    assert answer.headers["location"] == f"http://c:1{IMAGES}/{uuid_of(5)}"
    made = answer.json
    assert made == {
        "id": uuid_of(5),
        "name": "x",
        "status": "queued",
        "visibility": "shared",
        "owner": "blue",
        "tags": [],
        "disk_format": "raw",
        "container_format": "bare",
        "min_disk": 0,
        "min_ram": 0,
        "protected": False,
        "os_hidden": False,
        "size": None,
        "virtual_size": None,
        "checksum": None,
        "os_hash_algo": None,
        "os_hash_value": None,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "self": f"/v2/images/{uuid_of(5)}",
        "file": f"/v2/images/{uuid_of(5)}/file",
        "schema": "/v2/schemas/image",
        "os": "linux",
    }
    path = f"{IMAGES}/{uuid_of(5)}/file"
    assert (await region.ask("GET", path, token="ann:blue")).status == 204
    assert (await upload(region, uuid_of(5), b"content")).status == 204
    shown = (await region.ask("GET", f"{IMAGES}/{uuid_of(5)}", token="ann:blue")).json
    assert shown == made | {
        "status": "active",
        "size": 7,
        "virtual_size": 7,
        "checksum": hashlib.md5(b"content").hexdigest(),
        "os_hash_algo": "sha512",
        "os_hash_value": hashlib.sha512(b"content").hexdigest(),
    }
    assert (await upload(region, uuid_of(5))).status == 409
    assert (await region.ask("GET", path, token="ann:blue")).body == b"content"
    assert (await region.ask("POST", IMAGES, {"id": uuid_of(5)}, token="ann:blue")).status == 409


async def test_content_needs_to_be_of_a_format(region: RegionWorld) -> None:
    image = await new(region, disk_format=None)
    assert (await upload(region, image["id"])).status == 400
    assert (await patch(region, image["id"], ("replace", "/disk_format", "raw"))).status == 200
    assert (await upload(region, image["id"], b"")).status == 204
    # Nothing is content too, and can be had back.
    assert (await region.ask("GET", f"{IMAGES}/{image['id']}/file", token="ann:blue")).status == 204


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ({"disk_format": "floppy"}, 400, "disk_format is 'floppy'; it must be one of ami, "),
        ({"visibility": "secret"}, 400, "visibility is 'secret'; it must be one of public, private, "),
        ({"visibility": "public"}, 403, "Policy doesn't allow publicize_image"),
        ({"owner": "red"}, 403, "Policy doesn't allow add_image"),
        ({"min_disk": -1}, 400, "min_disk is '-1'; it must be a whole number from 0 to 2147483647."),
        ({"min_ram": True}, 400, "min_ram is 'True'; it must be a whole number"),
        ({"protected": "yes"}, 400, "protected is 'yes'; it must be true or false."),
        ({"id": "five"}, 400, "id is 'five'; it must be a uuid."),
        ({"status": "active"}, 403, "Attribute 'status' is read-only."),
        ({"hw_cpu_cores": 2}, 400, "hw_cpu_cores is '2'; it must be a text"),
        ({"tags": ["x" * 256]}, 400, "A tag is "),
        ({"tags": "x"}, 400, "tags is 'x'; it must be a list of at most 128 texts."),
        (
            {"trait:HW_CPU_X86_AVX2": "forbidden"},
            400,
            "trait:HW_CPU_X86_AVX2 is 'forbidden'; it must be required",
        ),
        ({"trait:lower": "required"}, 400, "trait:lower is 'required'; it must be the name of a trait"),
        (
            {f"p{number}": "" for number in range(129)},
            413,
            "The limit has been exceeded on the number of allowed image properties.",
        ),
    ],
)
async def test_what_an_image_may_not_say(
    region: RegionWorld, fields: dict[str, Any], status: int, why: str
) -> None:
    answer = await region.ask("POST", IMAGES, fields, token="ann:blue")
    assert answer.status == status
    assert answer.json["message"].startswith(why)
    assert await names(region) == []


async def test_whose_images_are_seen_and_changed_by_whom(region: RegionWorld) -> None:
    mine = await new(region, "mine", visibility="private")
    public = await new(region, "public", "admin", visibility="public")
    crowd = await new(region, "crowd", "admin", visibility="community")
    await new(region, "hidden", os_hidden=True)
    assert await names(region) == ["mine", "public"]
    assert await names(region, "?visibility=community") == ["crowd"]
    assert await names(region, "?visibility=all", "bob:red") == ["crowd", "public"]
    assert await names(region, "?os_hidden=true") == ["hidden"]
    assert await names(region, who="admin") == ["crowd", "mine", "public"]
    for id, who, status in (
        (mine["id"], "bob:red", 404),
        (crowd["id"], "bob:red", 200),
        (mine["id"], "admin", 200),
    ):
        assert (await region.ask("GET", f"{IMAGES}/{id}", token=who)).status == status
    rename = ("replace", "/name", "x")
    assert (await patch(region, public["id"], rename)).status == 403
    assert (await patch(region, mine["id"], rename, who="bob:red")).status == 404
    assert (await region.ask("DELETE", f"{IMAGES}/{public['id']}", token="ann:blue")).status == 403
    assert (await upload(region, public["id"])).status == 403
    assert (await patch(region, mine["id"], ("replace", "/visibility", "public"))).status == 403
    assert (await patch(region, mine["id"], ("replace", "/owner", "red"))).status == 403
    assert (await patch(region, mine["id"], ("replace", "/owner", "red"), who="admin")).status == 200
    assert await names(region) == ["public"]


async def test_lists_are_narrowed_and_cut_into_pages(region: RegionWorld) -> None:
    for number in range(5):
        await new(region, f"i{number}", tags=["odd", "x"] if number % 2 else ["x"], os_distro=f"d{number}")
        region.clock.advance(1)
    assert await names(region, "?name=i2") == ["i2"]
    assert await names(region, "?tag=x&tag=odd") == ["i1", "i3"]
    assert await names(region, "?os_distro=d4&status=queued") == ["i4"]
    assert await names(region, "?status=active") == []
    assert await names(region, "?owner=blue&protected=false") == [f"i{number}" for number in range(5)]
    assert await names(region, "?size_min=1") == []
    first = (await region.ask("GET", f"{IMAGES}?tag=x&limit=2&sort=name:asc", token="ann:blue")).json
    assert [image["name"] for image in first["images"]] == ["i0", "i1"]
    marker = first["images"][-1]["id"]
    assert first["next"] == f"/v2/images?tag=x&limit=2&sort=name%3Aasc&marker={marker}"
    rest = (await region.ask("GET", f"/image{first['next']}", token="ann:blue")).json
    assert [image["name"] for image in rest["images"]] == ["i2", "i3"]
    last = (await region.ask("GET", f"/image{rest['next']}", token="ann:blue")).json
    assert ([image["name"] for image in last["images"]], "next" in last) == (["i4"], False)
    newest = (await region.ask("GET", f"{IMAGES}?limit=2", token="ann:blue")).json
    assert [image["name"] for image in newest["images"]] == ["i4", "i3"]
    for query in ("?marker=none", "?limit=x", "?size_min=-1"):
        assert (await region.ask("GET", f"{IMAGES}{query}", token="ann:blue")).status == 400


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sort=name:desc", ["i2", "i1", "i0"]),
        ("sort_key=name&sort_dir=asc", ["i0", "i1", "i2"]),
        ("sort_key=status&sort_key=name&sort_dir=asc", ["i0", "i1", "i2"]),
        ("name=in:i0,i2&sort=created_at:asc", ["i0", "i2"]),
        ("created_at=gte:2026-01-01T00:00:01Z&sort=name:asc", ["i1", "i2"]),
        ("created_at=lt:2026-01-01T00:00:01Z", ["i0"]),
        ("member_status=accepted&visibility=shared&sort=name:asc", ["i0", "i1", "i2"]),
        ("no_such_property=x", []),
    ],
)
async def test_a_list_is_what_was_asked_for(region: RegionWorld, query: str, found: list[str]) -> None:
    for number in range(3):
        await new(region, f"i{number}")
        region.clock.advance(1)
    answer = await region.ask("GET", f"{IMAGES}?{query}", token="ann:blue")
    assert [image["name"] for image in answer.json["images"]] == found


@pytest.mark.parametrize(
    "query",
    [
        "sort=colour:asc",
        "sort=name:up",
        "sort=name&sort_key=id",
        "sort_key=name&sort_dir=asc&sort_dir=desc",
        "visibility=open",
        "member_status=perhaps",
        "os_hidden=perhaps",
        "created_at=gte:yesterday",
        "name=a&name=b",
    ],
)
async def test_a_list_is_refused_with_a_word_that_it_does_not_know(region: RegionWorld, query: str) -> None:
    assert (await region.ask("GET", f"{IMAGES}?{query}", token="ann:blue")).status == 400


async def test_a_query_of_too_many_parameters_is_refused(region: RegionWorld) -> None:
    """It was answered with 500, in another API's shape."""
    answer = await region.ask(
        "GET", f"{IMAGES}?" + "&".join(f"tag=t{n}" for n in range(101)), token="ann:blue"
    )
    assert answer.status == 400
    assert answer.json["message"] == "The query has more than 100 parameters."


async def test_a_patch_adds_replaces_and_removes(region: RegionWorld) -> None:
    image = await new(region, old="1", gone="2", tags=["b"])
    region.clock.advance(5)
    answer = await patch(
        region,
        image["id"],
        ("add", "/trait:HW_CPU_X86_AVX2", "required"),
        ("replace", "/old", "3"),
        ("remove", "/gone"),
        ("add", "/a~1b", "4"),
        ("replace", "/min_ram", 64),
        ("add", "/tags/0", "c"),
        ("add", "/tags/-", "a"),
        ("remove", "/tags/1"),
    )
    assert answer.status == 200
    changed = {key: value for key, value in answer.json.items() if image.get(key) != value}
    assert changed == {
        "trait:HW_CPU_X86_AVX2": "required",
        "old": "3",
        "a/b": "4",
        "min_ram": 64,
        "tags": ["a", "c"],
        "updated_at": "2026-01-01T00:00:05Z",
    }
    assert image.keys() - answer.json.keys() == {"gone"}


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (("replace", "/none", "x"), 409),
        (("remove", "/none"), 409),
        (("remove", "/name"), 403),
        (("replace", "/status", "active"), 403),
        (("add", "/id", "x"), 403),
        (("add", "name", "x"), 400),
        (("add", "/a/b", "x"), 400),
        (("add", "/tags/7", "x"), 409),
        (("replace", "/tags/-", "x"), 409),
        (("add", "/tags/-", 5), 400),
        (("move", "/name", "x"), 400),
        (("add", "/trait:X", "forbidden"), 400),
    ],
)
async def test_a_step_that_cannot_be_done_undoes_the_others(
    region: RegionWorld, step: Sequence[Any], status: int
) -> None:
    image = await new(region)
    answer = await patch(region, image["id"], ("replace", "/name", "y"), step)
    assert answer.status == status, answer.body
    assert (await region.ask("GET", f"{IMAGES}/{image['id']}", token="ann:blue")).json == image


async def test_a_patch_in_the_words_of_an_older_draft(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    headers = {"content-type": "application/openstack-images-v2.0-json-patch"}

    async def change(*steps: Any) -> HttpAnswer:
        return await region.ask("PATCH", f"{IMAGES}/{id}", steps, token="ann:blue", headers=headers)

    changed = await change({"replace": "/name", "value": "x"}, {"add": "/os_distro", "value": "alpine"})
    assert (changed.status, changed.json["name"], changed.json["os_distro"]) == (200, "x", "alpine")
    assert "os_distro" not in (await change({"remove": "/os_distro"})).json
    for wrong in ({"value": 1}, {"add": "/a", "remove": "/b"}, {"move": "/a"}, {"add": "a", "value": "b"}):
        assert (await change(wrong)).status == 400


async def test_names_that_are_glances_own_are_refused(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    assert (await patch(region, id, ("add", "/os_glance_foo", "x"))).status == 403
    refused = await region.ask("POST", IMAGES, {"name": "x", "os_glance_foo": "bar"}, token="ann:blue")
    assert (refused.status, refused.json["message"]) == (403, "Attribute 'os_glance_foo' is reserved.")


async def test_an_image_of_a_kernel_is_kept_and_makes_no_server(region: RegionWorld) -> None:
    id = (await new(region, visibility="private", ramdisk_id=uuid_of(1)))["id"]
    await upload(region, id)
    body = {"server": {"name": "n", "flavorRef": "1", "imageRef": id, "networks": "none"}}
    await region.put(SMALL)
    answer = await region.compute("POST", "/servers", body, who="ann:blue")
    assert answer.status == 400
    assert "ramdisk_id" in answer.json["badRequest"]["message"]


async def test_a_path_without_an_id_is_not_the_list(region: RegionWorld) -> None:
    for method in ("GET", "DELETE"):
        assert (await region.ask(method, f"{IMAGES}/", token="ann:blue")).status == 404
    assert (await region.ask("GET", "/image/v2/info/import")).json["import-methods"]["value"] == []


async def test_a_patch_is_known_by_its_type(region: RegionWorld) -> None:
    image = await new(region)
    answer = await patch(region, image["id"], ("replace", "/name", "y"), media="application/json")
    assert (answer.status, answer.json["code"]) == (415, "415 Unsupported Media Type")


async def test_tags_protection_and_deactivation(region: RegionWorld) -> None:
    image = await new(region, protected=True)
    path = f"{IMAGES}/{image['id']}"

    async def status(method: str, below: str, who: str = "ann:blue") -> int:
        return (await region.ask(method, path + below, token=who)).status

    assert await status("PUT", "/tags/blue") == 204
    assert await status("PUT", "/tags/blue") == 204
    assert (await region.ask("GET", path, token="ann:blue")).json["tags"] == ["blue"]
    assert await status("DELETE", "/tags/blue") == 204
    assert await status("DELETE", "/tags/blue") == 404
    assert await status("DELETE", "") == 403
    assert await status("POST", "/actions/deactivate", "admin") == 403
    await upload(region, image["id"])
    assert await status("POST", "/actions/deactivate", "bob:red") == 404
    assert await status("POST", "/actions/deactivate") == 204
    assert (await region.ask("GET", path, token="ann:blue")).json["status"] == "deactivated"
    assert await status("POST", "/actions/reactivate", "admin") == 204
    assert (await region.ask("GET", f"{path}/members", token="ann:blue")).json["members"] == []
    await patch(region, image["id"], ("replace", "/protected", False))
    assert await status("DELETE", "") == 204
    assert await status("DELETE", "") == 404


async def test_schemas_say_what_an_image_looks_like(region: RegionWorld) -> None:
    image = await new(region)
    schema = (await region.ask("GET", "/image/v2/schemas/image")).json
    assert schema["properties"].keys() == image.keys()
    images = (await region.ask("GET", "/image/v2/schemas/images")).json
    assert images["properties"]["images"]["items"] == schema
    member = (await region.ask("GET", "/image/v2/schemas/member")).json
    members = (await region.ask("GET", "/image/v2/schemas/members")).json
    assert members["properties"]["members"]["items"] == member


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/metadefs/namespaces", "Metadata definitions"),
        ("/schemas/metadefs/namespace", "Metadata definitions"),
        ("/tasks", "Tasks"),
        ("/info/stores", "Several stores"),
        ("/cache", "The image cache"),
        (f"/images/{uuid_of(1)}/import", "Image import"),
        (f"/images/{uuid_of(1)}/stage", "Image import"),
        (f"/images/{uuid_of(1)}/locations", "Locations of images"),
    ],
)
async def test_what_is_not_offered_is_refused_by_its_name(region: RegionWorld, path: str, name: str) -> None:
    for method in ("GET", "POST"):
        answer = await region.ask(method, f"/image/v2{path}")
        assert (answer.status, answer.json["message"]) == (
            404,
            f"{name}: not offered by this image service.",
        )


async def test_a_project_is_told_how_much_it_has(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_images=3, quota_image_size_total=2).running() as region:
        await upload(region, (await new(region))["id"], b"x" * (1 << 20))
        await new(region, "empty")
        assert (await region.ask("GET", "/image/v2/info/usage", token="ann:blue")).json["usage"] == {
            "image_size_total": {"limit": 2, "usage": 1},
            "image_count_total": {"limit": 3, "usage": 2},
        }
