"""What requests of a member may write: small ones write little, and what would write much is refused."""

import sqlite3
from typing import Any

import pytest

from berth.model.servers import Flavor, Image, Server
from tests.worlds import CIRROS, SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

IMAGES = "/image/v2/images"
PATCH = {"content-type": "application/openstack-images-v2.1-json-patch"}
KIB = 1 << 10
NOTES = {f"note{n}": "v" * 1000 for n in range(60)}
"""Properties of 60 KB that nobody but people reads."""
TEXTS = (
    "hw_machine_type",
    "img_owner_id",
    "img_root_device_name",
    "os_admin_user",
    "os_command_line",
    "os_distro",
    "os_version",
)
TRAITS = {f"trait:CUSTOM_{n}_{'A' * 200}": "required" for n in range(80)}
"""Properties of 17 KB that the scheduler reads."""
FAT = Image(id=uuid_of(950), name="fat", status="active", visibility="public", properties=NOTES)
READ = Image(
    id=uuid_of(951),
    name="read",
    status="active",
    visibility="public",
    properties=dict.fromkeys(TEXTS, "\U0001d11e" * 255),
)
OLD = Image(
    id=uuid_of(952),
    name="old",
    status="active",
    visibility="public",
    properties=TRAITS,
)


def written(region: RegionWorld) -> int:
    """How many bytes the journal has."""
    connection = sqlite3.connect(region.path / "journal.db")
    [(size,)] = connection.execute("SELECT sum(length(entries)) FROM journal")
    return int(size)


async def ask_for(region: RegionWorld, **fields: Any) -> Any:
    body = {"server": {"name": "s", "flavorRef": SMALL.id, **fields}}
    return await region.compute("POST", "/servers", body, who="ann:blue")


async def usable(region: RegionWorld) -> None:
    await region.fleet(2)
    await region.put(FAT, READ, OLD)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({f"p{n}": "v" * 65_000 for n in range(2)}, "would have 130004 bytes together"),
        ({f"p{n}": "é" * 300 for n in range(128)}, "would have 77202 bytes together"),
        ({f"p{n}": "v" for n in range(129)}, "Attempted: 129, Maximum: 128"),
    ],
)
async def test_an_image_has_64_kib_of_properties(
    region: RegionWorld, properties: dict[str, str], message: str
) -> None:
    made = await region.ask("POST", IMAGES, {"name": "fat", **properties}, token="ann:blue")
    assert made.status == 413, made.body
    assert message in made.json["message"]
    small = await region.ask("POST", IMAGES, {"name": "small"}, token="ann:blue")
    steps = [{"op": "add", "path": f"/{name}", "value": value} for name, value in properties.items()]
    path = f"{IMAGES}/{small.json['id']}"
    patched = await region.ask("PATCH", path, steps, token="ann:blue", headers=PATCH)
    assert patched.status == 413, patched.body
    assert message in patched.json["message"]


async def test_of_what_the_scheduler_reads_an_image_has_16_kib(region: RegionWorld) -> None:
    answer = await region.ask("POST", IMAGES, {"name": "fat", **TRAITS}, token="ann:blue")
    assert answer.status == 400
    assert "16384 bytes at most" in answer.json["message"]


async def test_a_server_keeps_only_what_is_read_of_its_image(region: RegionWorld) -> None:
    """100 servers of an image of 60 KB: 6 MB were written, and as much again with every change of them."""
    await usable(region)
    before = written(region)
    assert (await ask_for(region, imageRef=FAT.id, min_count=100)).status == 202
    assert written(region) - before < 200 * KIB
    for server in region.engine.view.records.all(Server):
        assert server.image_properties == {}


async def test_locking_a_server_writes_little(region: RegionWorld) -> None:
    await usable(region)
    id = await region.active(imageRef=FAT.id, who="ann:blue")
    before = written(region)
    for action in ("lock", "unlock") * 10:
        assert (await region.act(id, action, who="ann:blue")).status == 202
    assert written(region) - before < 20 * 2 * KIB


async def test_a_rebuild_keeps_only_what_is_read_of_the_image(region: RegionWorld) -> None:
    await usable(region)
    id = await region.active(imageRef=CIRROS.id, who="ann:blue")
    assert (await region.act(id, "rebuild", {"imageRef": FAT.id}, who="ann:blue")).status == 202
    assert (region.record(id).image, region.record(id).image_properties) == (FAT.id, {})
    assert (await region.act(id, "rebuild", {"imageRef": OLD.id}, who="ann:blue")).status == 409
    await region.finish(id)
    refused = await region.act(id, "rebuild", {"imageRef": OLD.id}, who="ann:blue")
    assert refused.status == 400
    assert "16384 bytes at most" in refused.json["badRequest"]["message"]


async def test_an_image_from_before_there_was_a_limit_is_refused_by_name(region: RegionWorld) -> None:
    await usable(region)
    answer = await ask_for(region, imageRef=OLD.id, min_count=1000)
    assert answer.status == 400
    assert "16384 bytes at most" in answer.json["badRequest"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"imageRef": READ.id, "metadata": {f"k{n}": "v" * 250 for n in range(8)}, "min_count": 1000},
        {"metadata": {f"k{n}": "v" * 250 for n in range(128)}, "min_count": 1000},
    ],
)
async def test_a_thousand_servers_that_would_write_too_much_are_refused(
    region: RegionWorld, fields: dict[str, Any]
) -> None:
    """Nothing fits, so each of them would be a record in ERROR."""
    await usable(region)
    before = written(region)
    answer = await ask_for(region, **fields)
    assert answer.status == 413, answer.body
    error = answer.json["overLimit"]
    assert "8388608 bytes together, the limit of one request" in error["message"]
    assert written(region) == before
    assert list(region.engine.view.records.all(Server)) == []
    await region.create(who="ann:blue")


async def test_the_metadata_of_a_server_has_64_kib(region: RegionWorld) -> None:
    await usable(region)
    metadata = {f"k{n}": "é" * 255 for n in range(128)}
    answer = await ask_for(region, metadata=metadata)
    assert answer.status == 403
    assert "65536 bytes at most, and this would be 65" in answer.json["forbidden"]["message"]
    id = await region.create(who="ann:blue", metadata={"k": "v"})
    answer = await region.compute("POST", f"/servers/{id}/metadata", {"metadata": metadata}, who="ann:blue")
    assert answer.status == 403


async def test_the_extra_specs_of_a_flavor_have_16_kib(region: RegionWorld) -> None:
    await usable(region)
    specs = {f"aggregate_instance_extra_specs:k{n}": "v" * 255 for n in range(60)}
    path = f"/flavors/{SMALL.id}/os-extra_specs"
    answer = await region.compute("POST", path, {"extra_specs": specs})
    assert answer.status == 400
    assert "they may have 16384 at most" in answer.json["badRequest"]["message"]


async def test_a_server_does_not_keep_who_else_may_use_its_flavor(region: RegionWorld) -> None:
    await usable(region)
    projects = ("blue", *(f"project-{n}" for n in range(5000)))
    await region.put(Flavor(id="9", name="9", vcpus=1, memory_mb=1, is_public=False, projects=projects))
    id = await region.create(who="ann:blue", flavorRef="9")
    assert region.record(id).flavor.projects == ()
