"""A region with OpenStack's own Keystone and Glance: servers are made from the images of the Glance, and
Berth steps aside for both. ``make test-keystone``."""

import http.client
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.keystone_regions import region_behind
from tests.package_folders import PackagesMissing, package_folder
from tests.real_keystone import PASSWORD, RealKeystone, ask, running_keystone
from tests.servers import HOST, ROOT, ServerProcess, running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

START_S = 240


@pytest.fixture(scope="module")
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKeystone]:
    with running_keystone(tmp_path_factory.mktemp("keystone")) as keystone:
        yield keystone


@pytest.fixture(scope="module")
def glance(keystone: RealKeystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    try:
        packages = package_folder("glance")
    except PackagesMissing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("glance")
    own = keystone.add_person("service")
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    words = [str(python), "-P", "-W", "ignore", str(ROOT / "tests" / "glance_program.py"), str(folder)]
    user = [keystone.url, own.name, PASSWORD, own.name.replace("person", "project")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "BERTH_"))}
    env |= {"PYTHONPATH": str(packages)}
    process = ServerProcess(lambda port: [*words, str(port), *user], folder / "output.log", env)
    with running(process, START_S):
        yield process


def test_servers_are_made_from_the_images_of_a_glance(
    keystone: RealKeystone, glance: ServerProcess, tmp_path: Path
) -> None:
    owner, other = (keystone.log_in(keystone.add_person("member")) for _ in range(2))
    image = {"name": "cirros", "disk_format": "raw", "container_format": "bare", "visibility": "private"}
    made = ask("POST", f"{glance.url}/v2/images", owner, image)
    assert made.status == 201, made
    admin = keystone.log_in(keystone.add_person("admin"))
    with region_behind(keystone, tmp_path, "--image-endpoint", glance.url) as region:
        compute = f"{region.url}/compute/v2.1"
        flavor = {"flavor": {"name": "tiny", "ram": 64, "vcpus": 1, "disk": 1, "id": "1"}}
        assert ask("POST", f"{compute}/flavors", admin, flavor).status == 200

        def create(token: str, image: str) -> tuple[int, str]:
            server = {"name": "s", "flavorRef": "1", "imageRef": image, "networks": "none"}
            answer = ask(
                "POST", f"{compute}/servers", token, {"server": server}, openstack_api_version="compute 2.90"
            )
            return answer.status, str(answer.body)

        # Its contents are not there yet, and then they are.
        status, words = create(owner, made.body["id"])
        assert (status, "active" in words) == (400, True), words
        uploaded = _upload(glance, owner, made.body["id"], b"x" * 1000)
        assert uploaded == 204
        # There is no host: it is the image that is found, or is not.
        status, words = create(owner, made.body["id"])
        assert status == 202, words
        status, words = create(other, made.body["id"])
        assert (status, made.body["id"] in words) == (400, True), words
        # Berth steps aside: it keeps no images, and says nothing of users.
        assert ask("GET", f"{region.url}/image/v2/images", owner).status == 404
        assert ask("GET", f"{region.url}/identity/v3", owner).status == 404
        glance.kill()
        status, words = create(owner, made.body["id"])
        assert status == 503, words
        assert ask("GET", f"{compute}/servers", owner).status == 200
    glance.start(START_S)


def _upload(glance: ServerProcess, token: str, image: str, content: bytes) -> int:
    connection = http.client.HTTPConnection(HOST, glance.port, timeout=120)
    headers = {"x-auth-token": token, "content-type": "application/octet-stream"}
    connection.request("PUT", f"/v2/images/{image}/file", content, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status
