"""The ``openstack`` command and openstacksdk through the lives of servers on a simulated fleet, and what the
allocations say after each step: who holds what, as what."""

import contextlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import openstack
import pytest
from openstack.config import OpenStackConfig

from tests.clouds import Cloud, cloud_running, wait_for
from tests.servers import ROOT
from tests.waiting import WITHIN_S
from tests.warm_start import WarmCommand

pytestmark = [
    pytest.mark.clients,
    # The SDK warns of itself: it still calls what it has deprecated.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

SMALL = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
MEDIUM = {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 40}
CELLS = 2
CHANGED = "simulated hosts behave as"
"""What the agents of a cell log when their behaviour is changed."""
NOTHING = {"VCPU": 0, "MEMORY_MB": 0, "DISK_GB": 0}


class Held(NamedTuple):
    """What a consumer holds: as what, and how much on which host."""

    type: str
    amounts: dict[str, dict[str, int]]


def connection(cloud: Cloud, name: str) -> openstack.connection.Connection:
    """The SDK, by the clouds.yaml that ``berth up`` has written."""
    config = OpenStackConfig(config_files=[str(cloud.data / "clouds.yaml")], load_envvars=False)
    return openstack.connection.Connection(config=config.get_one(name))


class CloudClient:
    """The command and the SDK, both by the clouds.yaml that ``berth up`` has written."""

    def __init__(self, cloud: Cloud, command: WarmCommand) -> None:
        self.cloud = cloud
        self.command = command
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        self.env |= {"OS_CLIENT_CONFIG_FILE": str(cloud.data / "clouds.yaml"), "OS_CLOUD": "berth"}
        # osc-placement does not look into the file for this.
        self.env["OS_PLACEMENT_API_VERSION"] = "1.39"
        self.sdk = connection(cloud, "berth")
        providers = self.sdk.placement.get("/resource_providers", microversion="1.39").json()
        self.hosts = {row["uuid"]: row["name"] for row in providers["resource_providers"]}

    def __call__(self, command: str) -> Any:
        """The command's JSON output; None for one that prints nothing."""
        prints = re.search(r"\b(list|show|create|issue)\b", command) is not None
        words = [*command.split(), *(["-f", "json"] if prints else [])]
        done = self.command.run(words, self.env, timeout_s=90)
        assert done.returncode == 0, f"openstack {command}: {done.stderr}\n{self.cloud.everything[-4000:]}"
        return json.loads(done.stdout) if prints else None

    def batch(self, commands: Iterable[str]) -> None:
        """Run commands in one process, which reads them as it would from a terminal. It ends with status 1
        whatever they do, and writes what went wrong to stderr."""
        done = self.command.run([], self.env, timeout_s=300, stdin="".join(f"{line}\n" for line in commands))
        assert (done.returncode, done.stderr) == (1, ""), f"{done}\n{self.cloud.everything[-4000:]}"

    # -- servers --------------------------------------------------------------------------------

    def create(self, name: str, **more: Any) -> Any:
        """A server of flavor m1.small that is ACTIVE."""
        compute = self.sdk.compute
        image = self.sdk.image.find_image("cirros", ignore_missing=False)
        flavor = compute.find_flavor("m1.small", ignore_missing=False)
        made = compute.create_server(
            name=name, flavor_id=flavor.id, image_id=image.id, networks="none", **more
        )
        return self.wait(made.id, "ACTIVE")

    def wait(self, id: str, status: str) -> Any:
        """The server, when it is in a state and nothing is under way."""
        seen = None

        def is_so() -> bool:
            nonlocal seen
            seen = self.sdk.compute.get_server(id)
            assert seen.status == status or seen.status != "ERROR", seen.fault
            return bool(seen.status == status and seen.task_state is None)

        wait_for(is_so, lambda: f"{seen}\n{self.cloud.everything[-4000:]}", self.cloud, 60)
        return seen

    def migration(self, server: Any, kind: str) -> Any:
        """The server's newest migration of a kind."""
        rows = list(self.sdk.compute.migrations(instance_uuid=server.id))
        return max((row for row in rows if row.migration_type == kind), key=lambda row: row.id)

    # -- allocations ----------------------------------------------------------------------------

    def held(self, consumer: str) -> Held:
        """What a consumer holds, as the SDK reads it."""
        answer = self.sdk.placement.get(f"/allocations/{consumer}", microversion="1.39").json()
        amounts = {self.hosts[id]: there["resources"] for id, there in answer["allocations"].items()}
        return Held(answer.get("consumer_type", ""), amounts)

    def shown(self, consumer: str) -> Held:
        """What a consumer holds, as the command shows it."""
        rows = self(f"resource provider allocation show {consumer}")
        types = {row["consumer_type"] for row in rows}
        return Held("".join(types), {self.hosts[row["resource_provider"]]: row["resources"] for row in rows})

    def used(self, host: str) -> dict[str, int]:
        """What is used on a host, as the command shows it."""
        (id,) = (id for id, name in self.hosts.items() if name == host)
        rows = self(f"resource provider usage show {id}")
        return {row["resource_class"]: row["usage"] for row in rows}

    def nothing_is_held(self) -> None:
        """All hosts are as empty as they were."""
        for id, name in self.hosts.items():
            usages = self.sdk.placement.get(f"/resource_providers/{id}/usages", microversion="1.39").json()
            assert not any(usages["usages"].values()), name

    def until_released(self, consumer: str) -> None:
        wait_for(lambda: not self.held(consumer).amounts, lambda: self.cloud.everything[-4000:])

    @contextlib.contextmanager
    def behaving(self, settings: str) -> Iterator[None]:
        """The simulated hosts behave like this for a while."""
        file = self.cloud.data / "agents" / "control" / "behaviour.toml"
        file.parent.mkdir(exist_ok=True)
        changed = self.cloud.everything.count(CHANGED)
        draft = file.with_suffix(".draft")
        draft.write_text(settings)
        draft.replace(file)
        try:
            self._until_changed(changed + CELLS)
            yield
        finally:
            file.unlink()
            self._until_changed(changed + 2 * CELLS)

    def _until_changed(self, times: int) -> None:
        wait_for(
            lambda: self.cloud.everything.count(CHANGED) >= times, lambda: self.cloud.everything, self.cloud
        )


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    options = f"--hosts 6 --cells {CELLS} --build-seconds 0.2 --live-migrate-seconds 1 --heartbeat-timeout 2"
    with cloud_running(
        tmp_path_factory.mktemp("cloud"), *options.split(), "--seed", "5", "--log-level", "info"
    ) as cloud:
        yield cloud
        assert cloud.stop(WITHIN_S) == 0, cloud.everything
    assert '"ERROR"' not in cloud.everything


@pytest.fixture(scope="module")
def client(cloud: Cloud, command: WarmCommand) -> Iterator[CloudClient]:
    client = CloudClient(cloud, command)
    yield client
    client.sdk.close()


@pytest.fixture
def server(client: CloudClient, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A small server for one test, and in the end nothing of it is left."""
    server = client.create(request.node.name.replace("test_", "").replace("_", "-"))
    yield server
    client.sdk.compute.delete_server(server.id, ignore_missing=True)
    client.sdk.compute.wait_for_delete(server, interval=0.2, wait=60)
    client.until_released(server.id)
    client.nothing_is_held()


def test_what_it_writes_is_for_its_owner_alone(cloud: Cloud) -> None:
    """Under the umask that most systems have."""
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (cloud.data, *cloud.data.rglob("*"))}
    assert {path.name for path in found} >= {"region.db", "region.db-wal", "cell1.db", "region.log", "hosts"}
    assert {path: mode for path, mode in found.items() if mode & 0o077} == {}


def test_the_readme_can_be_followed(cloud: Cloud) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "server create" in block)
    printed = cloud.shell(block)
    assert "nothing" in printed.splitlines()[-1]


def test_a_need_goes_with_its_server(client: CloudClient) -> None:
    image = client.sdk.image.find_image("cirros", ignore_missing=False)
    flavor = client.sdk.compute.find_flavor("m1.small", ignore_missing=False)
    body = {
        "name": "needy",
        "flavorRef": flavor.id,
        "imageRef": image.id,
        "networks": "none",
        "berth:needs": [{"name": "scratch", "resources": {"DISK_GB": 3}}],
    }
    made = client.sdk.compute.post("/servers", json={"server": body}, microversion="2.94").json()
    server = client.wait(made["server"]["id"], "ACTIVE")
    wanted = SMALL | {"DISK_GB": SMALL["DISK_GB"] + 3}
    assert client.held(server.id).amounts == {server.compute_host: wanted}
    client(f"server migrate --wait {server.id}")
    client(f"server migration confirm {server.id}")
    moved = client.wait(server.id, "ACTIVE")
    assert moved.compute_host != server.compute_host
    assert client.held(server.id).amounts == {moved.compute_host: wanted}
    shown = client.sdk.compute.get(f"/servers/{server.id}", microversion="2.94").json()["server"]
    [need] = shown["berth:needs"]
    assert list(need["allocations"].values()) == [{"DISK_GB": 3}]
    assert client(f"server show {server.id}")["status"] == "ACTIVE", "the command reads it, too"
    client(f"server delete --wait {server.id}")
    client.until_released(server.id)


# The SDK takes its own warnings, where these are errors, for a server that has not appeared yet.
@pytest.mark.filterwarnings("ignore::openstack.warnings.OpenStackDeprecationWarning")
@pytest.mark.filterwarnings("ignore::openstack.warnings.ConfigurationWarning")
def test_the_sdk_waits_for_a_server_and_finds_its_address(client: CloudClient) -> None:
    """Where a server has no address the SDK deletes it again."""
    made = client.sdk.create_server("waited", image="cirros", flavor="m1.small", wait=True, timeout=60)
    assert made.status == "ACTIVE"
    found = {name: addresses[0]["addr"] for name, addresses in made.addresses.items()}
    assert found == {"public": made.public_v4, "public-v6": made.public_v6}
    rows = client(f"server list --ip ^{made.public_v4}$")
    assert [row["ID"] for row in rows] == [made.id]
    assert client.sdk.delete_server(made.id, wait=True)
    client.until_released(made.id)


def test_the_command_sends_no_port_without_a_network_service(client: CloudClient) -> None:
    """It would ask Neutron for the port first; here the catalog has none."""
    words = f"server create --flavor m1.small --image cirros --port {uuid.uuid4()} with-port"
    done = client.command.run(words.split(), client.env, timeout_s=90)
    assert done.returncode != 0
    assert "network endpoint not enabled" in done.stderr


def test_a_flavor_a_group_and_three_to_five_servers(client: CloudClient) -> None:
    made = client("flavor create --vcpus 3 --ram 1024 --disk 5 --property quota:cpu_shares=100 three")
    assert (made["vcpus"], made["ram"], made["disk"]) == (3, 1024, 5)
    group = client("server group create --policy anti-affinity --rule max_server_per_host=1 five")
    client(
        f"server create --flavor three --image cirros --hint group={group['id']} --min 3 --max 5 --wait many"
    )
    servers = [
        client.wait(row.id, "ACTIVE") for row in client.sdk.compute.servers() if row.name.startswith("many-")
    ]
    assert sorted(server.name for server in servers) == [f"many-{number}" for number in range(1, 6)]
    assert len({server.compute_host for server in servers}) == 5
    for server in servers:
        assert client.held(server.id) == Held(
            "INSTANCE", {server.compute_host: {"VCPU": 3, "MEMORY_MB": 1024, "DISK_GB": 5}}
        )
    shown = client(f"server group show {group['id']}")
    assert all(server.id in str(shown["members"]) for server in servers)
    assert client.used(servers[0].compute_host) == {"VCPU": 3, "MEMORY_MB": 1024, "DISK_GB": 5}

    client("server delete --wait " + " ".join(server.id for server in servers))
    for server in servers:
        client.until_released(server.id)
    client.nothing_is_held()
    client(f"server group delete {group['id']}")
    client("flavor delete three")


def test_a_server_is_resized_and_confirmed(client: CloudClient, server: Any) -> None:
    client(f"server resize --flavor m1.medium {server.id}")
    resized = client.wait(server.id, "VERIFY_RESIZE")
    migration = client.migration(server, "resize")
    assert client.shown(server.id) == Held("INSTANCE", {resized.compute_host: MEDIUM})
    assert client.shown(migration.uuid) == Held("MIGRATION", {server.compute_host: SMALL})

    client(f"server resize confirm {server.id}")
    settled = client.wait(server.id, "ACTIVE")
    assert settled.compute_host == resized.compute_host
    client.until_released(migration.uuid)
    assert client.held(server.id) == Held("INSTANCE", {resized.compute_host: MEDIUM})
    assert client.used(resized.compute_host) == MEDIUM


def test_a_server_is_resized_and_reverted(client: CloudClient, server: Any) -> None:
    medium = client.sdk.compute.find_flavor("m1.medium", ignore_missing=False)
    client.sdk.compute.resize_server(server.id, medium.id)
    client.wait(server.id, "VERIFY_RESIZE")
    migration = client.migration(server, "resize")
    client(f"server resize revert {server.id}")
    settled = client.wait(server.id, "ACTIVE")
    assert (settled.compute_host, settled.flavor.name) == (server.compute_host, "m1.small")
    assert client.shown(server.id) == Held("INSTANCE", {server.compute_host: SMALL})
    assert client.held(migration.uuid).amounts == {}
    assert client.used(server.compute_host) == SMALL


def test_a_server_is_migrated(client: CloudClient, server: Any) -> None:
    client(f"server migrate {server.id}")
    moved = client.wait(server.id, "VERIFY_RESIZE")
    assert moved.compute_host != server.compute_host
    migration = client.migration(server, "migration")
    assert client.shown(migration.uuid) == Held("MIGRATION", {server.compute_host: SMALL})
    client(f"server migrate confirm {server.id}")
    client.wait(server.id, "ACTIVE")
    client.until_released(migration.uuid)
    assert client.shown(server.id) == Held("INSTANCE", {moved.compute_host: SMALL})


def test_a_server_is_migrated_to_a_host(client: CloudClient, server: Any) -> None:
    cell_of = {host: number % 2 for number, host in enumerate(sorted(_roots(client)))}
    others = [host for host in cell_of if host != server.compute_host]
    host = next(host for host in others if cell_of[host] == cell_of[server.compute_host])
    client.sdk.compute.migrate_server(server.id, host=host)
    assert client.wait(server.id, "VERIFY_RESIZE").compute_host == host
    assert client.held(server.id) == Held("INSTANCE", {host: SMALL})
    client.sdk.compute.confirm_server_resize(server.id)
    client.wait(server.id, "ACTIVE")


def _roots(client: CloudClient) -> list[str]:
    return [name for name in client.hosts.values() if re.fullmatch(r"host-\d+", name)]


def test_a_server_is_live_migrated(client: CloudClient, server: Any) -> None:
    client(f"server migrate --live-migration {server.id}")
    moved = client.wait(server.id, "ACTIVE")
    assert moved.compute_host != server.compute_host
    client.until_released(client.migration(server, "live-migration").uuid)
    assert client.shown(server.id) == Held("INSTANCE", {moved.compute_host: SMALL})


def test_a_live_migration_is_aborted(client: CloudClient, server: Any) -> None:
    with client.behaving("build_seconds = 0.2\nlive_migrate_seconds = 600.0\n"):
        client.sdk.compute.live_migrate_server(server.id)
        running = _wait_running(client, server)
        assert client.shown(running.uuid) == Held("MIGRATION", {server.compute_host: SMALL})
        under_way = client.held(server.id)
        assert under_way.type == "INSTANCE"
        assert set(under_way.amounts) & {server.compute_host} == set()

        client(f"server migration abort {server.id} {running.id}")
        stayed = client.wait(server.id, "ACTIVE")
    assert stayed.compute_host == server.compute_host
    assert client.shown(server.id) == Held("INSTANCE", {server.compute_host: SMALL})
    assert client.held(running.uuid).amounts == {}
    assert client.migration(server, "live-migration").status == "cancelled"


def _wait_running(client: CloudClient, server: Any) -> Any:
    found: list[Any] = []

    def is_so() -> bool:
        found[:] = [row for row in client.sdk.compute.server_migrations(server.id) if row.status == "running"]
        return bool(found)

    wait_for(is_so, lambda: client.cloud.everything[-4000:])
    return client.migration(server, "live-migration")


def test_evacuate_after_the_host_has_died(client: CloudClient, server: Any) -> None:
    client.cloud.shell(f"berth sim break {server.compute_host}")
    try:
        _wait_service(client, server.compute_host, "down")
        # Without --wait: the command compares the state in the wrong case, and would wait for ever.
        client(f"server evacuate {server.id}")
        moved = client.wait(server.id, "ACTIVE")
        assert moved.compute_host != server.compute_host
        migration = client.migration(server, "evacuation")
        assert client.shown(server.id) == Held("INSTANCE", {moved.compute_host: SMALL})
        # The dead host may still have it: that is held until it says that it has not.
        assert client.shown(migration.uuid) == Held("MIGRATION", {server.compute_host: SMALL})
    finally:
        client.cloud.shell(f"berth sim heal {server.compute_host}")
    _wait_service(client, server.compute_host, "up")
    client.until_released(migration.uuid)
    assert client.used(server.compute_host) == NOTHING
    assert client.migration(server, "evacuation").status == "completed"


def _wait_service(client: CloudClient, host: str, state: str) -> None:
    def is_so() -> bool:
        (service,) = client.sdk.compute.services(host=host)
        return bool(service.state == state)

    wait_for(is_so, lambda: client.cloud.everything[-4000:])


def test_a_server_is_shelved_and_unshelved(client: CloudClient, server: Any) -> None:
    client(f"server shelve {server.id}")
    shelved = client.wait(server.id, "SHELVED_OFFLOADED")
    assert shelved.compute_host is None
    assert client.held(server.id).amounts == {}
    assert client.used(server.compute_host) == NOTHING
    client(f"server unshelve {server.id}")
    back = client.wait(server.id, "ACTIVE")
    assert client.shown(server.id) == Held("INSTANCE", {back.compute_host: SMALL})


def test_a_server_is_rebuilt_with_another_image(client: CloudClient, server: Any, tmp_path: Path) -> None:
    content = tmp_path / "image"
    content.write_bytes(b"simulated")
    traits = "--property trait:HW_CPU_X86_AVX2=required"
    image = client(f"image create --disk-format raw --container-format bare --file {content} {traits} other")
    client(f"server rebuild --image {image['id']} {server.id}")
    rebuilt = client.wait(server.id, "ACTIVE")
    assert (rebuilt.image.id, rebuilt.compute_host) == (image["id"], server.compute_host)
    assert client.shown(server.id) == Held("INSTANCE", {server.compute_host: SMALL})

    # An image whose traits the host has not is refused, and nothing changes.
    client(f"image set --property trait:HW_CPU_X86_SGX=required {image['id']}")
    with pytest.raises(openstack.exceptions.HttpException) as caught:
        client.sdk.compute.rebuild_server(server.id, image=image["id"])
    assert caught.value.status_code in (400, 409)
    assert client.held(server.id) == Held("INSTANCE", {server.compute_host: SMALL})
    client.sdk.compute.rebuild_server(server.id, image=server.image.id)
    client.wait(server.id, "ACTIVE")
    client(f"image delete {image['id']}")


def test_a_server_is_stopped_and_started(client: CloudClient, server: Any) -> None:
    client(f"server stop {server.id}")
    client.wait(server.id, "SHUTOFF")
    assert client.held(server.id) == Held("INSTANCE", {server.compute_host: SMALL})
    client(f"server start {server.id}")
    client.wait(server.id, "ACTIVE")


def test_a_server_is_deleted(client: CloudClient) -> None:
    server = client.create("short-lived")
    assert client.shown(server.id) == Held("INSTANCE", {server.compute_host: SMALL})
    client(f"server delete --wait {server.id}")
    client.until_released(server.id)
    assert client("server list --all-projects") == []
    assert client.used(server.compute_host) == NOTHING


def test_a_build_that_fails_goes_on_elsewhere(client: CloudClient) -> None:
    rule = '[[rules]]\noutcome = "fail"\nverb = "build"\nserver = "{}"\nmessage = "no loop device"\n'
    with client.behaving("build_seconds = 0.2\n" + rule.format("second-*") + "times = 1\n"):
        server = client.create("second-try")
    (action,) = client.sdk.compute.server_actions(server.id)
    shown = client.sdk.compute.get_server_action(action.request_id, server.id)
    assert "no loop device" in str([event.to_dict() for event in shown.events])
    assert client.held(server.id) == Held("INSTANCE", {server.compute_host: SMALL})
    client("server delete --wait second-try")
    client.nothing_is_held()


def test_another_project_sees_nothing_of_it(client: CloudClient, server: Any) -> None:
    demo = connection(client.cloud, "berth-demo")
    with contextlib.closing(demo):
        assert list(demo.compute.servers()) == []
        with pytest.raises(openstack.exceptions.NotFoundException):
            demo.compute.get_server(server.id)
        assert "m1.small" in [flavor.name for flavor in demo.compute.flavors()]


def test_an_administrator_locks_a_server_with_a_reason(client: CloudClient, server: Any) -> None:
    client(f"--os-compute-api-version 2.73 server lock --reason maintenance {server.id}")
    shown = client(f"--os-compute-api-version 2.73 server show {server.id}")
    assert (shown["locked"], shown["locked_reason"]) == (True, "maintenance")
    client(f"server unlock {server.id}")


def test_a_token_that_is_revoked_opens_nothing(client: CloudClient) -> None:
    token = client("token issue")["id"]

    def status() -> int:
        headers = {"X-Auth-Token": token}
        answer = client.sdk.session.get(
            f"{client.cloud.url}/compute/v2.1/servers", headers=headers, authenticated=False, raise_exc=False
        )
        return int(answer.status_code)

    assert status() == 200
    client(f"token revoke {token}")
    assert status() == 401


def test_a_server_that_is_not_there(client: CloudClient) -> None:
    with pytest.raises(openstack.exceptions.NotFoundException):
        client.sdk.compute.get_server(str(uuid.UUID(int=7)))


def test_the_doctor_finds_nothing(client: CloudClient) -> None:
    client.cloud.shell("berth doctor --data data")
