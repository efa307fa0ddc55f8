"""Contents of images: kept in a folder, whole or not at all, within limits, however their uploads end."""

import asyncio
import fcntl
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.api.image.contents import sweep
from berth.api.kernel.image_store import FolderStore, StoreFull, StoreUnavailable
from berth.engine import Engine, Unavailable
from berth.engine.engine import Observer
from berth.journal import SqliteAddress, open_journal
from berth.model.servers import Image
from tests.unit.image.test_images import IMAGES, new, upload
from tests.worlds import HttpAnswer, RegionWorld, scope_of, uuid_of

pytestmark = pytest.mark.fast

MIB = 1 << 20


def files(region: RegionWorld) -> list[bytes]:
    folder = region.path / "images"
    return sorted(file.read_bytes() for file in folder.iterdir()) if folder.exists() else []


async def show(region: RegionWorld, id: str, who: str = "ann:blue") -> Any:
    return (await region.ask("GET", f"{IMAGES}/{id}", token=who)).json


async def download(region: RegionWorld, id: str, who: str = "ann:blue", **headers: str) -> HttpAnswer:
    return await region.ask("GET", f"{IMAGES}/{id}/file", token=who, headers=headers)


def upload_scope(id: str, length: int | None = None) -> dict[str, Any]:
    headers = {"x-auth-token": "ann:blue", "content-type": "application/octet-stream"}
    told = {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    return scope_of("PUT", f"{IMAGES}/{id}/file", headers | told)


async def send(region: RegionWorld, id: str, *pieces: bytes, **how: Any) -> HttpAnswer:
    length = how.pop("length", None)
    return await region.send_pieces(upload_scope(id, length), pieces, **how)


async def test_a_content_comes_back_as_it_was_sent(region: RegionWorld) -> None:
    pieces = [bytes([number]) * (700 << 10) for number in range(5)]
    content = b"".join(pieces)
    id = (await new(region))["id"]
    assert (await send(region, id, *pieces)).status == 204
    shown = await show(region, id)
    assert (shown["status"], shown["size"]) == ("active", len(content))
    assert shown["checksum"] == hashlib.md5(content).hexdigest()
    assert shown["os_hash_value"] == hashlib.sha512(content).hexdigest()
    answer = await download(region, id)
    assert (answer.status, answer.body) == (200, content)
    assert answer.headers["content-length"] == str(len(content))
    assert answer.headers["content-md5"] == shown["checksum"]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert files(region) == [content]
    [file] = (region.path / "images").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    head = await region.ask("HEAD", f"{IMAGES}/{id}/file", token="ann:blue")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(content)))


@pytest.mark.parametrize(
    ("asked", "part", "said"),
    [
        ("bytes=0-2", b"012", "bytes 0-2/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=5-100", b"56789", "bytes 5-9/10"),
        ("bytes=0-9", b"0123456789", "bytes 0-9/10"),
    ],
)
async def test_a_part_of_a_content(region: RegionWorld, asked: str, part: bytes, said: str) -> None:
    id = (await new(region))["id"]
    await upload(region, id, b"0123456789")
    answer = await download(region, id, range=asked)
    assert (answer.status, answer.body, answer.headers["content-range"]) == (206, part, said)
    assert "content-md5" not in answer.headers


@pytest.mark.parametrize(
    ("asked", "status"),
    [("bytes=10-", 416), ("bytes=5-2", 416), ("bytes=-0", 416), ("lines=1-2", 416), ("bytes=0-1,4-5", 400)],
)
async def test_a_part_that_there_is_not(region: RegionWorld, asked: str, status: int) -> None:
    id = (await new(region))["id"]
    await upload(region, id, b"0123456789")
    assert (await download(region, id, range=asked)).status == status


async def test_a_client_that_leaves_leaves_nothing(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    answer = await send(region, id, b"x" * MIB, b"y" * MIB, leaves=True)
    assert answer.status == 400
    shown = await show(region, id)
    assert (shown["status"], shown["size"], shown["checksum"]) == ("queued", None, None)
    assert files(region) == []
    # It can be tried again.
    assert (await send(region, id, b"whole")).status == 204
    assert files(region) == [b"whole"]


async def test_an_upload_can_be_seen_and_is_one_at_a_time(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    is_read, go_on = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if is_read.is_set():
            await go_on.wait()
            return {"type": "http.request", "body": b"", "more_body": False}
        is_read.set()
        return {"type": "http.request", "body": b"x" * MIB, "more_body": True}

    answers: list[Any] = []

    async def take(message: Any) -> None:
        answers.append(message)

    uploading = asyncio.create_task(region.application(upload_scope(id, MIB), receive, take))
    await is_read.wait()
    shown = await show(region, id)
    assert (shown["status"], shown["size"]) == ("saving", MIB)
    second = await upload(region, id)
    assert (second.status, second.json["message"]) == (
        409,
        f"Image {id} is saving: its content cannot be uploaded again.",
    )
    assert (await download(region, id)).status == 204
    assert (await region.ask("POST", f"{IMAGES}/{id}/actions/deactivate", token="ann:blue")).status == 403
    # No server is made from half an image.
    answer = await region.compute(
        "POST", "/servers", {"server": {"name": "n", "flavorRef": "1", "imageRef": id}}
    )
    assert answer.status == 400
    go_on.set()
    await uploading
    assert answers[0]["status"] == 204
    assert (await show(region, id))["status"] == "active"


async def test_an_image_that_is_deleted_meanwhile(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    is_gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not is_gone.is_set():
            assert (await region.ask("DELETE", f"{IMAGES}/{id}", token="ann:blue")).status == 204
            is_gone.set()
        return {"type": "http.request", "body": b"content", "more_body": False}

    answers: list[Any] = []

    async def take(message: Any) -> None:
        answers.append(message)

    await region.application(upload_scope(id, 7), receive, take)
    assert answers[0]["status"] == 410
    assert files(region) == []


async def test_a_deleted_image_has_no_file_and_its_readers_get_the_rest(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    content = b"x" * (3 * MIB)
    await send(region, id, content)
    received: list[bytes] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def take(message: Any) -> None:
        if received == [] and message["type"] == "http.response.body":
            assert (await region.ask("DELETE", f"{IMAGES}/{id}", token="ann:blue")).status == 204
            assert files(region) == []
        received.append(message.get("body", b""))

    scope = scope_of("GET", f"{IMAGES}/{id}/file", {"x-auth-token": "ann:blue"})
    await region.application(scope, receive, take)
    assert b"".join(received) == content


async def test_a_deactivated_image_is_for_administrators(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    await upload(region, id)
    assert (await region.ask("POST", f"{IMAGES}/{id}/actions/deactivate", token="admin")).status == 204
    assert (await download(region, id)).status == 403
    assert (await download(region, id, who="admin")).body == b"content"
    assert (await region.ask("POST", f"{IMAGES}/{id}/actions/reactivate", token="admin")).status == 204
    assert (await download(region, id)).body == b"content"


# -- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [None, 3 * MIB])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"image_bytes_max": 2 * MIB}, "the maximum of one image"),
        (
            {"images_bytes_max": 2 * MIB},
            "All images of the region ",
        ),
        ({"quota_image_size_total": 2}, "Resource image_size_total is over limit of 2 due to "),
    ],
)
async def test_there_is_an_end_to_an_image(
    tmp_path: Path, length: int | None, settings: dict[str, int], says: str
) -> None:
    async with RegionWorld(tmp_path, **settings).running() as region:
        id = (await new(region))["id"]
        answer = await send(region, id, *([b"x" * MIB] * 3), length=length)
        assert answer.status == 413
        assert says in answer.json["message"]
        assert ((await show(region, id))["status"], files(region)) == ("queued", [])
        assert (await send(region, id, *([b"x" * MIB] * 2))).status == 204
        other = (await new(region))["id"]
        expected = 204 if "image_bytes_max" in settings else 413
        assert (await send(region, other, b"x")).status == expected


async def test_what_is_told_is_reserved(tmp_path: Path) -> None:
    """Of two uploads that would fit one by one, the second is refused before it is read."""
    async with RegionWorld(tmp_path, images_bytes_max=3 * MIB, quota_image_size_total=3).running() as region:
        first, second = [(await new(region))["id"] for _ in range(2)]

        async def receive() -> dict[str, Any]:
            refused = await send(region, second, b"x", length=2 * MIB)
            assert refused.status == 413
            return {"type": "http.request", "body": b"x" * 2 * MIB, "more_body": False}

        answers: list[Any] = []

        async def take(message: Any) -> None:
            answers.append(message)

        await region.application(upload_scope(first, 2 * MIB), receive, take)
        assert answers[0]["status"] == 204


async def test_uploads_and_downloads_leave_room_for_others(region: RegionWorld) -> None:
    id = (await new(region, visibility="private"))["id"]
    await upload(region, id)
    store = region.parts.services.images
    assert store is not None
    ends = [store.transfers.begin("blue") for _ in range(16)]
    crowded = await download(region, id)
    assert (crowded.status, crowded.headers["retry-after"]) == (503, "1")
    assert (await download(region, id, who="admin")).status == 200
    for end in ends:
        end()
    assert (await download(region, id)).status == 200


@pytest.mark.parametrize(("error", "status"), [(StoreFull("full"), 413), (StoreUnavailable("lost"), 503)])
async def test_a_disk_that_is_full_or_broken(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    id = (await new(region))["id"]
    store = region.parts.services.images
    assert isinstance(store, FolderStore)
    begin = store.begin

    async def begin_badly(name: str) -> Any:
        upload = await begin(name)

        async def write(block: bytes) -> None:
            raise error

        monkeypatch.setattr(upload, "write", write)
        return upload

    monkeypatch.setattr(store, "begin", begin_badly)
    answer = await upload(region, id)
    assert answer.status == status
    assert "images" in answer.json["message"]
    assert str(region.path) not in answer.json["message"]
    assert ((await show(region, id))["status"], files(region)) == ("queued", [])


async def test_a_content_has_a_type(region: RegionWorld) -> None:
    id = (await new(region))["id"]
    answer = await region.ask("PUT", f"{IMAGES}/{id}/file", {"a": 1}, token="ann:blue")
    assert answer.status == 415


# -- crashes ------------------------------------------------------------------------------------


async def crash(region: RegionWorld, *, has_file: bool = True) -> str:
    """An image as it is left by a server that dies during its upload."""
    id: str = (await new(region))["id"]
    name = uuid_of(77)
    (region.path / "images").mkdir(exist_ok=True)
    if has_file:
        (region.path / "images" / name).write_bytes(b"half")
    before = region.engine.view.records.get(Image, id)
    assert before is not None
    await region.put(msgspec.structs.replace(before, status="saving", content=name, size=100))
    return id


@pytest.mark.parametrize("has_file", [True, False])
async def test_a_start_takes_back_what_a_crash_has_left(region: RegionWorld, has_file: bool) -> None:
    id = await crash(region, has_file=has_file)
    kept = (await new(region, "kept"))["id"]
    await upload(region, kept, b"kept")
    stray = region.path / "images" / uuid_of(78)
    stray.write_bytes(b"of an image that was deleted")
    other = region.path / "images" / "README"
    other.write_bytes(b"not ours")
    await region.parts.sweep_images()
    shown = await show(region, id)
    assert (shown["status"], shown["size"]) == ("queued", None)
    assert files(region) == [b"kept", b"not ours"]
    assert (await download(region, kept)).body == b"kept"
    assert (await upload(region, id, b"again")).status == 204


async def test_an_upload_of_another_server_is_left_alone(region: RegionWorld) -> None:
    """Its lock tells that it lives, before and after its record is written."""
    id = await crash(region)
    beginning = region.path / "images" / uuid_of(78)
    beginning.write_bytes(b"")
    with (region.path / "images" / uuid_of(77)).open("rb") as one, beginning.open("rb") as two:
        for held in (one, two):
            fcntl.flock(held, fcntl.LOCK_EX)
        await region.parts.sweep_images()
        assert (await show(region, id))["status"] == "saving"
        assert files(region) == [b"", b"half"]
    await region.parts.sweep_images()
    assert ((await show(region, id))["status"], files(region)) == ("queued", [])


async def test_an_outcome_that_is_not_known_removes_nothing(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database takes the change that makes the image active, and its answer is lost."""
    id = (await new(region))["id"]
    engine = region.engine
    submit = engine.submit
    count = 0

    async def submit_in_doubt(*rest: Any) -> Any:
        nonlocal count
        count += 1
        answer = await submit(*rest)
        if count == 2:
            raise Unavailable("the database does not answer")
        return answer

    monkeypatch.setattr(engine, "submit", submit_in_doubt)
    assert (await upload(region, id)).status == 503
    assert (await show(region, id))["status"] == "active"
    assert files(region) == [b"content"]
    assert (await download(region, id)).body == b"content"


async def test_a_database_that_is_away_leaves_an_upload_to_the_sweep(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = (await new(region))["id"]
    engine = region.engine
    submit = engine.submit
    count = 0

    async def submit_in_vain(*rest: Any) -> Any:
        nonlocal count
        count += 1
        if count > 1:
            raise Unavailable("the database does not answer")
        return await submit(*rest)

    monkeypatch.setattr(engine, "submit", submit_in_vain)
    assert (await upload(region, id)).status == 503
    monkeypatch.setattr(engine, "submit", submit)
    assert ((await show(region, id))["status"], files(region)) == ("saving", [b"content"])
    store = region.parts.services.images
    assert store is not None
    await sweep(engine, store)
    assert ((await show(region, id))["status"], files(region)) == ("queued", [])


class SharedWorld(RegionWorld):
    """A server of a region that has others, over the same journal and the same folder."""

    async def _open_engine(self, observer: Observer) -> Engine:
        journal = open_journal(SqliteAddress(self.path / "journal.db"), shared=True)
        return Engine(journal, self._clock, self.ids, observer, shared=True)


async def test_servers_share_a_folder(tmp_path: Path) -> None:
    """What one takes, all give out and delete; and none disturbs an upload of another that is under way."""
    async with SharedWorld(tmp_path).running() as one, SharedWorld(tmp_path).running() as two:
        two.ids = one.ids
        id = (await new(one))["id"]
        answers: list[Any] = []

        async def receive() -> dict[str, Any]:
            await two.parts.sweep_images()
            assert (await show(two, id))["status"] == "saving"
            return {"type": "http.request", "body": b"content", "more_body": False}

        async def take(message: Any) -> None:
            answers.append(message)

        await one.application(upload_scope(id, 7), receive, take)
        assert answers[0]["status"] == 204
        await two.parts.sweep_images()
        assert (await download(two, id)).body == b"content"
        assert (await upload(two, id)).status == 409
        assert (await two.ask("DELETE", f"{IMAGES}/{id}", token="ann:blue")).status == 204
        assert files(one) == []
        assert (await download(one, id)).status == 404


async def test_a_file_is_not_closed_under_a_thread_that_uses_it(tmp_path: Path) -> None:
    """Its number would soon be that of another file, and a block of an image would be written there."""
    store = FolderStore(tmp_path / "images")
    upload = await store.begin(uuid_of(1))
    await upload.write(b"first")
    await upload.close()
    with pytest.raises(StoreUnavailable):
        await upload.write(b"late")
    await upload.close()
    reader = await store.open(uuid_of(1))
    assert await reader.read(0, 100) == b"first"
    reader.close()
    store.close()


@pytest.mark.parametrize("damage", ["missing", "short"])
async def test_a_file_that_is_lost_or_damaged(region: RegionWorld, damage: str) -> None:
    id = (await new(region))["id"]
    await upload(region, id)
    [file] = (region.path / "images").iterdir()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"con")
    assert (await download(region, id)).status == 404
    assert (await region.ask("DELETE", f"{IMAGES}/{id}", token="ann:blue")).status == 204


async def test_an_upload_waits_for_the_end_of_an_upgrade(region: RegionWorld) -> None:
    """Servers of the release before would not understand the record, and nothing of it is left."""
    id = (await new(region))["id"]
    region.engine.view.format = 1
    refused = await upload(region, id)
    assert refused.status == 409
    assert "berth db upgrade --finish" in refused.json["message"]
    assert ((await show(region, id))["status"], files(region)) == ("queued", [])


async def test_an_image_of_an_earlier_release_has_no_content(region: RegionWorld) -> None:
    await region.put(Image(id=uuid_of(6), status="active", owner="blue", size=7, checksum="x"))
    answer = await download(region, uuid_of(6))
    assert (answer.status, answer.json["message"]) == (
        404,
        f"The content of image {uuid_of(6)} is not kept: only its size and its digests are.",
    )
    assert (await region.ask("DELETE", f"{IMAGES}/{uuid_of(6)}", token="ann:blue")).status == 204
