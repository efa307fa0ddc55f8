"""Shared pools through ``berth up``, ``berth pool`` and the ``openstack`` command: the guide as it stands,
and every move of servers whose pool is nearly full and whose addresses are all taken."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.clients.test_servers import CloudClient
from tests.clouds import Cloud, cloud_running, wait_for
from tests.servers import ROOT
from tests.waiting import WITHIN_S
from tests.warm_start import WarmCommand

pytestmark = [
    pytest.mark.clients,
    # The SDK warns of itself: it still calls what it has deprecated.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

GUIDE: Final = (ROOT / "docs" / "guides" / "shared-pools.md").read_text()
BLOCKS: Final = re.findall(r"^```(sh|text)\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
FULL: Final = {"nas": ("DISK_GB", 80), "segment": ("IPV4_ADDRESS", 3)}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """The fleet of the guide."""
    directory = tmp_path_factory.mktemp("pools")
    _, start = BLOCKS[0]
    text = re.search(r"<<END\n(.*)^END$", start, re.DOTALL | re.MULTILINE)
    assert text is not None
    fleet = directory / "pools.toml"
    fleet.write_text(text[1])
    options = f"--fleet {fleet} --cells 1 --build-seconds 0.2 --live-migrate-seconds 1 --heartbeat-timeout 2"
    with cloud_running(directory, *options.split(), "--seed", "5") as cloud:
        yield cloud
        assert cloud.stop(WITHIN_S) == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


@pytest.fixture(scope="module")
def client(cloud: Cloud, command: WarmCommand) -> Iterator[CloudClient]:
    client = CloudClient(cloud, command)
    yield client
    client.sdk.close()


def test_the_guide_can_be_followed(cloud: Cloud, client: CloudClient) -> None:
    assert BLOCKS[0][1].rstrip().endswith("--data pools --listen 127.0.0.1:8778")
    (cloud.directory / "pools").symlink_to(cloud.data)
    printed = ""
    for kind, text in BLOCKS[1:]:
        if kind == "sh":
            printed = cloud.shell(text, timeout_s=300)
        else:
            assert all(line in printed for line in text.splitlines()), printed
    client("server delete --wait one two three")
    hosts = {f"node-000{number}" for number in (1, 2, 3)}
    assert {hypervisor.name for hypervisor in client.sdk.compute.hypervisors()} == hosts
    answer = client.sdk.session.get(f"{cloud.url}/berth/v1/hosts").json()
    assert {host["name"] for host in answer["hosts"]} == hosts


class Watched:
    """The pools must have in use what they had, whenever one looks."""

    def __init__(self, client: CloudClient) -> None:
        self._client = client
        self._compute = client.sdk.compute

    def check(self) -> None:
        answer = self._client.sdk.session.get(f"{self._client.cloud.url}/berth/v1/pools").json()
        pools = {pool["name"]: pool["inventories"] for pool in answer["pools"]}
        assert {name: (kind, pools[name][kind]["used"]) for name, (kind, _) in FULL.items()} == FULL

    def wait(self, id: str, status: str) -> Any:
        """The server, when it is in a state and nothing is under way."""
        seen = None

        def is_so() -> bool:
            nonlocal seen
            self.check()
            seen = self._compute.get_server(id)
            assert seen.status == status or seen.status != "ERROR", seen.fault
            return bool(seen.status == status and seen.task_state is None)

        wait_for(is_so, lambda: f"{seen}\n{self._client.cloud.everything[-4000:]}", self._client.cloud, 60)
        return seen


def test_every_move_in_a_pool_that_is_nearly_full(client: CloudClient) -> None:
    """A pool of 100 with servers of 40 and 40, and all of three addresses taken."""
    sdk, compute = client.sdk, client.sdk.compute
    image = sdk.image.find_image("cirros", ignore_missing=False)
    flavors = {}
    for name, vcpus, disk in (("a40", 1, 40), ("b40", 2, 40), ("no-disk", 1, 0)):
        flavor = compute.create_flavor(name=name, vcpus=vcpus, ram=512, disk=disk)
        specs = {"resources:IPV4_ADDRESS": "1", "berth:disk": "pool"}
        compute.create_flavor_extra_specs(flavor, specs)
        flavors[name] = flavor.id
    servers = [
        compute.create_server(name=f"s{number}", flavor_id=flavors[name], image_id=image.id, networks="none")
        for number, name in enumerate(("a40", "a40", "no-disk"))
    ]
    server, *others = [client.wait(made.id, "ACTIVE") for made in servers]
    watched = Watched(client)
    watched.check()

    for begin, settle in (
        (f"server resize --flavor b40 {server.id}", f"server resize revert {server.id}"),
        (f"server resize --flavor b40 {server.id}", f"server resize confirm {server.id}"),
        (f"server migrate {server.id}", f"server migrate revert {server.id}"),
        (f"server migrate {server.id}", f"server migrate confirm {server.id}"),
    ):
        client(begin)
        watched.wait(server.id, "VERIFY_RESIZE")
        client(settle)
        watched.wait(server.id, "ACTIVE")
    client(f"server migrate --live-migration {server.id}")
    before = watched.wait(server.id, "ACTIVE").compute_host
    compute.rebuild_server(server.id, image=image.id)
    watched.wait(server.id, "ACTIVE")

    cloud = client.cloud
    cloud.shell(f"berth sim break {before}")
    try:
        wait_for(lambda: _state(client, before) == "down", lambda: cloud.everything[-4000:])
        client(f"server evacuate {server.id}")
        assert watched.wait(server.id, "ACTIVE").compute_host != before
    finally:
        cloud.shell(f"berth sim heal {before}")
    wait_for(lambda: _state(client, before) == "up", lambda: cloud.everything[-4000:])
    client.until_released(client.migration(server, "evacuation").uuid)
    watched.check()
    cloud.shell("berth doctor --data data")

    # Nobody else can have an address, and any of the three can move.
    for other in others:
        compute.migrate_server(other.id)
        watched.wait(other.id, "VERIFY_RESIZE")
        compute.confirm_server_resize(other.id)
        watched.wait(other.id, "ACTIVE")
    client("server delete --wait " + " ".join(one.id for one in servers))
    client.nothing_is_held()


def _state(client: CloudClient, host: str) -> str:
    (service,) = client.sdk.compute.services(host=host)
    return str(service.state)
