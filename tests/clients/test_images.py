"""Images by the clients that people have: the guide, followed with the ``openstack`` command; the SDK; a
large file through the whole server; and a server that dies during an upload."""

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openstack
import pytest
from openstack.config import OpenStackConfig

from tests.clouds import Cloud, cloud_running, wait_for
from tests.servers import ROOT

pytestmark = [
    pytest.mark.clients,
    # The SDK warns of itself: it still calls what it has deprecated.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

GUIDE = ROOT / "docs" / "guides" / "images.md"
MIB = 1 << 20


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    options = "--hosts 1 --cells 1 --build-seconds 0 --seed 4"
    with cloud_running(tmp_path_factory.mktemp("images"), *options.split()) as cloud:
        yield cloud
        assert cloud.stop() == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


def connect(cloud: Cloud, name: str) -> Any:
    config = OpenStackConfig(config_files=[str(cloud.data / "clouds.yaml")], load_envvars=False)
    return openstack.connection.Connection(config=config.get_one(name))


def contents(cloud: Cloud) -> list[int]:
    """The sizes of all files that are kept, but for that of the image that ``berth up`` has made."""
    return sorted(size for file in (cloud.data / "images").iterdir() if (size := file.stat().st_size) != 512)


def test_the_guide_can_be_followed(cloud: Cloud) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    # One shell: what a block has set is there for the next.
    printed = cloud.shell("exec 2>&1\n" + "echo --next--\n".join(blocks), timeout_s=300)
    made, saved, changed, shared, ended = printed.split("--next--")
    assert hashlib.md5((cloud.directory / "disk.raw").read_bytes()).hexdigest() in made
    assert "active" in made
    assert (cloud.directory / "copy.raw").stat().st_size == 6_000_000
    assert "alpine" in changed
    assert "protected" in changed
    assert "accepted" in shared
    assert "alpine" in shared
    assert "rror" not in saved + ended
    assert contents(cloud) == []


def test_the_sdk_uploads_reads_shares_and_deletes(cloud: Cloud) -> None:
    demo, admin = connect(cloud, "berth-demo"), connect(cloud, "berth")
    content = os.urandom(5 * MIB)
    image = demo.image.create_image(
        "sdk", data=content, disk_format="raw", container_format="bare", wait=True, tags=["t"]
    )
    found = demo.image.get_image(image.id)
    assert (found.status, found.size, found.hash_algo) == ("active", len(content), "sha512")
    assert found.hash_value == hashlib.sha512(content).hexdigest()
    assert demo.image.download_image(found).content == content
    pieces = demo.image.download_image(found, stream=True).iter_content(chunk_size=MIB)
    assert b"".join(pieces) == content
    part = demo.image.get(f"/images/{image.id}/file", headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, content[1000:2000])
    updated = demo.image.update_image(found, name="renamed", os_distro="alpine")
    assert (updated.name, updated.os_distro) == ("renamed", "alpine")
    demo.image.add_tag(found, "more")
    assert [one.id for one in demo.image.images(tag="more", name="in:renamed,other")] == [image.id]
    member = demo.image.add_member(found, member_id="admin")
    assert member.status == "pending"
    assert admin.image.update_member("admin", found, status="accepted").status == "accepted"
    assert [one.member_id for one in demo.image.members(found)] == ["admin"]
    demo.image.remove_member("admin", found)
    demo.image.deactivate_image(image.id)
    assert demo.image.get(f"/images/{image.id}/file").status_code == 403
    demo.image.reactivate_image(image.id)
    schema = demo.image.get_image_schema()
    assert "os_hash_value" in schema.properties
    assert demo.image.get_member_schema().name == "member"
    demo.image.delete_image(image.id, ignore_missing=False)
    assert contents(cloud) == []


def start_upload(cloud: Cloud, token: str, id: str, length: int) -> socket.socket:
    parts = urlsplit(cloud.url)
    sock = socket.create_connection((parts.hostname, parts.port), timeout=60)
    head = (
        f"PUT /image/v2/images/{id}/file HTTP/1.1\r\nhost: x\r\nx-auth-token: {token}\r\n"
        f"content-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n"
    )
    sock.sendall(head.encode())
    return sock


def list_processes(pid: int) -> list[int]:
    """A process and all that it has started, and so on."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in list_processes(int(child)))]


def measure_memory(cloud: Cloud) -> int:
    """The most bytes of memory that any process has had at any time."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in list_processes(cloud.pid)]
    return max(int(text.partition("VmHWM:")[2].split()[0]) << 10 for text in texts)


def wait_for_status(sdk: Any, id: str, status: str) -> Any:
    end_s = time.monotonic() + 60
    while (image := sdk.image.get_image(id)).status != status:
        assert time.monotonic() < end_s, image
        time.sleep(0.05)
    return image


def test_a_large_image_passes_and_a_client_that_leaves_leaves_nothing(cloud: Cloud) -> None:
    demo = connect(cloud, "berth-demo")
    token = demo.auth_token
    image = demo.image.create_image("large", disk_format="raw", container_format="bare")
    before = measure_memory(cloud)
    block = os.urandom(MIB)
    size = 96 * MIB
    with start_upload(cloud, token, image.id, size) as sock:
        for _ in range(48):
            sock.sendall(block)
        wait_for_status(demo, image.id, "saving")
    # The client is gone.
    assert wait_for_status(demo, image.id, "queued").size is None
    assert contents(cloud) == []
    with start_upload(cloud, token, image.id, size) as sock:
        for _ in range(96):
            sock.sendall(block)
        assert sock.recv(1000).startswith(b"HTTP/1.1 204 ")
    found = demo.image.get_image(image.id)
    assert (found.status, found.size) == ("active", size)
    digest, taken = hashlib.md5(), 0
    for piece in demo.image.download_image(image.id, stream=True).iter_content(chunk_size=MIB):
        digest.update(piece)
        taken += len(piece)
    assert (taken, digest.hexdigest()) == (size, found.checksum)
    # Neither way was it in memory as a whole, nor half of it.
    assert measure_memory(cloud) - before < 48 * MIB
    demo.image.delete_image(image.id)
    assert contents(cloud) == []


def test_a_server_that_dies_during_an_upload_leaves_nothing(tmp_path: Path) -> None:
    """It is killed with a part of the content on its disk, and started again."""
    with cloud_running(tmp_path, "--hosts", "1", "--cells", "1", "--seed", "4") as cloud:
        demo = connect(cloud, "berth-demo")
        image = demo.image.create_image("half", disk_format="raw", container_format="bare")
        with start_upload(cloud, demo.auth_token, image.id, 100 * MIB) as sock:
            sock.sendall(os.urandom(8 * MIB))
            wait_for_status(demo, image.id, "saving")
            cloud.kill()
        assert [size > 0 for size in contents(cloud)] == [True]
        cloud.start()
        demo = connect(cloud, "berth-demo")
        wait_for_status(demo, image.id, "queued")
        wait_for(lambda: contents(cloud) == [], lambda: cloud.everything[-4000:])
        demo.image.put(
            f"/images/{image.id}/file", data=b"whole", headers={"content-type": "application/octet-stream"}
        )
        assert demo.image.download_image(image.id).content == b"whole"
