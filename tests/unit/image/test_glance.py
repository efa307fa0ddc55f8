"""A region whose images are those of a Glance: what servers are made from, who may use it, and what happens
while the Glance is away or answers nonsense.

The Glance is a fake with images, owners and members, which knows its callers by their tokens, and which can
be told to fail."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from berth.api.kernel.images import ImageSource
from berth.client.transport import WireAnswer, WireRequest, WireStream
from berth.model.servers import Server
from berth.runtime.settings import Settings, conflicts
from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast

ENDPOINT = "http://glance.test:9292"
ALPINE, SECRET, HALF, WIDE, PINNED = (uuid_of(number) for number in range(1, 6))
PATH = "/v2/images"


class FakeGlance:
    """``trouble`` is what happens to the next requests in place of an answer: a status, an exception, a
    body."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.trouble: list[Any] = []
        self.asked: list[tuple[str, str]] = []
        self.closed = False
        self.add(ALPINE, "alpine", os_distro="alpine")
        self.add(SECRET, "secret", owner="red", visibility="private")
        self.add(HALF, "half", status="importing")
        self.add(WIDE, "wide", min_disk=15, min_ram=3000)
        self.add(PINNED, "pinned", **{"trait:HW_CPU_X86_AVX2": "required"})

    def add(self, id: str, name: str, **fields: Any) -> None:
        self.images[id] = {
            "id": id,
            "name": name,
            "status": "active",
            "visibility": "public",
            "owner": "blue",
            "min_disk": 0,
            "min_ram": 0,
            "disk_format": "qcow2",
            "container_format": "bare",
            "size": 7,
            "tags": [],
            "stores": "fast",
            "self": f"/v2/images/{id}",
            "os_hidden": False,
            **fields,
        }

    async def exchange(self, request: WireRequest) -> WireAnswer:
        token = dict(request.headers)[b"x-auth-token"].decode()
        self.asked.append((request.path, token))
        if self.trouble:
            trouble = self.trouble.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            if trouble == "silence":
                await asyncio.Event().wait()
            status, body = trouble
            return _answer(status, body)
        project = token.partition(":")[2]
        parts = urlsplit(request.path)
        seen = [
            one for one in self.images.values() if one["visibility"] == "public" or one["owner"] == project
        ]
        if parts.path == PATH:
            [name] = parse_qs(parts.query)["name"]
            return _answer(200, {"images": [one for one in seen if one["name"] == name]})
        found = [one for one in seen if parts.path == f"{PATH}/{one['id']}"]
        return _answer(200, found[0]) if found else _answer(404, {"message": "No image found"})

    def stream(self, request: WireRequest) -> AbstractAsyncContextManager[WireStream]:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed = True


def _answer(status: int, body: Any) -> WireAnswer:
    return WireAnswer(status, {"content-type": "application/json"}, json.dumps(body).encode())


class GlanceWorld(RegionWorld):
    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, image_endpoint=ENDPOINT, **settings)
        self.fake = FakeGlance()
        self.glance = ImageSource(self.settings, self.fake)


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[GlanceWorld]:
    async with GlanceWorld(tmp_path).running() as region:
        await region.fleet()
        yield region
    assert region.fake.closed


async def create(region: GlanceWorld, image: str, who: str = "ann:blue") -> tuple[int, str]:
    server = {"name": "one", "flavorRef": "1", "imageRef": image}
    answer = await region.compute("POST", "/servers", {"server": server}, who=who)
    return answer.status, answer.body.decode()


async def test_a_server_is_made_from_an_image_of_glance(region: GlanceWorld) -> None:
    status, body = await create(region, ALPINE)
    assert status == 202, body
    server = region.engine.view.records.get(Server, json.loads(body)["server"]["id"])
    assert server is not None
    assert server.image == ALPINE
    # The caller's own token: Glance decides what it sees.
    assert region.fake.asked == [(f"{PATH}/{ALPINE}", "ann:blue")]


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (SECRET, f"Image {SECRET} could not be found."),
        (uuid_of(99), f"Image {uuid_of(99)} could not be found."),
        ("not-an-id", "Image not-an-id could not be found."),
        ("../../v3/users", "Image users could not be found."),
        (HALF, f"Image {HALF} is saving: it must be active."),
        (WIDE, "memory"),
    ],
)
async def test_what_no_server_is_made_from(region: GlanceWorld, image: str, why: str) -> None:
    status, body = await create(region, image)
    assert status == 400
    assert why in body
    assert all(path.startswith(f"{PATH}/{uuid_of(0)[:8]}") for path, _ in region.fake.asked)
    if image == SECRET:
        assert (await create(region, image, "bob:red"))[0] == 202


async def test_a_rebuild_asks_again(region: GlanceWorld) -> None:
    id = await region.create(imageRef=ALPINE, who="ann:blue")
    await region.finish(id)
    refused = await region.act(id, "rebuild", {"imageRef": SECRET}, who="ann:blue")
    assert refused.status == 400
    region.fake.images[ALPINE]["status"] = "deactivated"
    assert (await region.act(id, "rebuild", {"imageRef": ALPINE}, who="ann:blue")).status == 400
    region.fake.images[ALPINE]["status"] = "active"
    assert (await region.act(id, "rebuild", {"imageRef": ALPINE}, who="ann:blue")).status == 202


async def test_schedules_and_clusters_find_images_by_name(region: GlanceWorld) -> None:
    body = {"flavor": "1", "image": "alpine", "count": 1}
    answer = await region.ask("POST", "/berth/v1/explain", body, token="admin")
    assert answer.status == 200, answer.body
    unknown = body | {"image": "none"}
    assert (await region.ask("POST", "/berth/v1/explain", unknown, token="admin")).status == 404
    group = {"name": "w", "flavor": "1", "image": "alpine", "count": 1}
    cluster = {"cluster": {"name": "c", "node_groups": [group]}}
    made = await region.ask("POST", "/berth/v1/clusters", cluster, token="ann:blue")
    assert made.status == 202, made.body
    region.fake.add(uuid_of(6), "alpine")
    twice = await region.ask("POST", "/berth/v1/clusters", cluster, token="ann:blue")
    assert twice.status == 400
    assert "alpine" in twice.body.decode()


# -- trouble ------------------------------------------------------------------------------------


async def test_a_glance_that_comes_back_soon_is_waited_for(region: GlanceWorld) -> None:
    region.fake.trouble = [httpx.ConnectError("refused"), (503, {})]
    assert (await create(region, ALPINE))[0] == 202


@pytest.mark.parametrize(
    "trouble",
    [
        (401, {}),
        (302, {}),
        (200, {"image": "no"}),
        (200, {"id": uuid_of(9), "status": "active"}),
        (200, {"id": ALPINE, "status": "melted"}),
        (200, {"id": ALPINE, "status": "active", "min_ram": -1}),
        (200, ["x" * (1 << 10)]),
    ],
)
async def test_an_answer_that_is_none_is_an_outage_and_asked_for_once(
    region: GlanceWorld, trouble: Any
) -> None:
    region.fake.trouble = [trouble]
    status, body = await create(region, ALPINE)
    assert (status, len(region.fake.asked)) == (503, 1)
    assert "the image service is not available. Nothing was claimed." in body
    assert "glance.test" not in body
    assert region.engine.view.records.count(Server) == 0


async def test_a_glance_that_stays_away_is_an_outage(region: GlanceWorld) -> None:
    region.fake.trouble = [httpx.ConnectError("refused")] * 9
    assert (await create(region, ALPINE))[0] == 503
    assert len(region.fake.asked) == 3


async def test_a_glance_that_is_silent_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with GlanceWorld(tmp_path).running() as region:
        await region.fleet()
        monkeypatch.setattr(region.glance, "_timeout_s", 0.01)
        region.fake.trouble = ["silence"]
        assert (await create(region, ALPINE))[0] == 503


# -- stepping aside -----------------------------------------------------------------------------


async def test_the_region_steps_aside(region: GlanceWorld) -> None:
    """Nothing is kept here: the paths of images are not there, and the catalog names the Glance."""
    assert (await region.ask("GET", "/image/v2/images", token="ann:blue")).status == 404
    assert region.parts.services.images is None
    await region.parts.sweep_images()
    listed = (await region.ask("GET", "/identity/v3/auth/catalog", token="ann:blue")).json["catalog"]
    urls = {one["type"]: {endpoint["url"] for endpoint in one["endpoints"]} for one in listed}
    assert urls["image"] == {ENDPOINT}
    assert urls["compute"] != {ENDPOINT}
    endpoints = (await region.ask("GET", "/identity/v3/endpoints", token="admin")).json["endpoints"]
    assert ENDPOINT in {one["url"] for one in endpoints}
    password = {"user": {"name": "ann", "password": "x", "domain": {"id": "default"}}}
    auth = {"auth": {"identity": {"methods": ["password"], "password": password}}}
    token = (await region.ask("POST", "/identity/v3/auth/tokens", auth, token=None)).json["token"]
    assert [one["endpoints"][0]["url"] for one in token["catalog"] if one["type"] == "image"] == [ENDPOINT]


async def test_a_path_of_the_endpoint_is_kept(tmp_path: Path) -> None:
    fake = FakeGlance()
    source = ImageSource(Settings(image_endpoint="http://cloud.test/image"), fake)
    assert await source.find(ALPINE, "t", by_name=False) == ()
    assert fake.asked == [(f"/image/v2/images/{ALPINE}", "t")]


def test_settings_that_do_not_go_together() -> None:
    assert conflicts(Settings(image_endpoint_cafile="x")) == (
        "image_endpoint_cafile: it has no meaning without image_endpoint"
    )
