"""The ``openstack`` command with osc-placement, through the life of a small fleet.

At the oldest version the program itself is run once, as an operator would run it; else it has been imported
before (``tests/warm_start.py``).
"""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.servers import ServerProcess
from tests.warm_start import WarmCommand

pytestmark = pytest.mark.clients

PROGRAM = str(Path(sys.executable).with_name("openstack"))
AGGREGATE = "14a5c8a3-5a99-4e8f-88be-00d85fcb1c17"
PROJECT, USER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


class Openstack:
    """Runs the command: imported before, or without ``command`` by starting the program."""

    def __init__(self, url: str, command: WarmCommand | None) -> None:
        self.command = command
        self.options = ["--os-auth-type", "admin_token", "--os-token", "admin", "--os-endpoint", url]
        # Whatever cloud the person who runs the tests uses, it is not this one.
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}

    def run(self, command: str, version: str) -> "subprocess.CompletedProcess[str]":
        words = [*self.options, "--os-placement-api-version", version, *command.split()]
        if self.command is not None:
            return self.command.run(words, self.env)
        return subprocess.run(
            [PROGRAM, *words], env=self.env, capture_output=True, text=True, timeout=60, check=False
        )

    def __call__(self, command: str, version: str = "1.39") -> Any:
        """The command's JSON output; None for a command that prints nothing."""
        quiet = " delete " in command or command.startswith(("trait create", "resource class create"))
        done = self.run(command if quiet else command + " -f json", version)
        assert done.returncode == 0, f"openstack {command}: {done.stderr}"
        return json.loads(done.stdout) if done.stdout else None

    def refused(self, command: str, version: str = "1.39") -> str:
        """What the command says when the server refuses."""
        done = self.run(command, version)
        assert done.returncode != 0, f"openstack {command} should have failed: {done.stdout}"
        return done.stderr


@pytest.fixture
def openstack(server: ServerProcess, command: WarmCommand) -> Openstack:
    return Openstack(server.url, command)


def usages(openstack: Openstack, provider: str) -> dict[str, int]:
    rows = openstack(f"resource provider usage show {provider}")
    return {row["resource_class"]: row["usage"] for row in rows}


def held(openstack: Openstack, consumer: str) -> dict[str, dict[str, int]]:
    """Amounts by resource class by provider."""
    rows = openstack(f"resource provider allocation show {consumer}")
    return {row["resource_provider"]: row["resources"] for row in rows}


def test_the_command_knows_classes_and_traits(openstack: Openstack) -> None:
    classes = [row["name"] for row in openstack("resource class list")]
    assert classes[:3] == ["VCPU", "MEMORY_MB", "DISK_GB"]
    openstack("resource class create CUSTOM_FPGA")
    assert openstack("resource class show CUSTOM_FPGA") == {"name": "CUSTOM_FPGA"}
    openstack("resource class delete CUSTOM_FPGA")
    assert "No such resource class CUSTOM_FPGA" in openstack.refused("resource class show CUSTOM_FPGA")
    assert "Cannot delete standard resource class VCPU" in openstack.refused("resource class delete VCPU")

    openstack("trait create CUSTOM_GOLD")
    assert openstack("trait show CUSTOM_GOLD") == {"name": "CUSTOM_GOLD"}
    assert {"name": "HW_CPU_X86_AVX2"} in openstack("trait list")
    openstack("trait delete CUSTOM_GOLD")
    assert {"name": "CUSTOM_GOLD"} not in openstack("trait list")


def test_providers_at_the_oldest_version(server: ServerProcess, openstack: Openstack) -> None:
    created = Openstack(server.url, None)("resource provider create old", "1.0")
    assert created == {"uuid": created["uuid"], "name": "old", "generation": 0}
    assert openstack("resource provider list", "1.0") == [created]
    renamed = openstack(f"resource provider set {created['uuid']} --name older", "1.0")
    assert renamed["name"] == "older"
    openstack(f"resource provider delete {created['uuid']}", "1.0")
    assert openstack("resource provider list", "1.0") == []


def test_a_fleet_from_its_creation_to_its_end(openstack: Openstack) -> None:
    fleet = create_tree(openstack)
    set_inventories(openstack, fleet)
    set_traits_and_aggregates(openstack, fleet)
    ask_for_candidates(openstack, fleet)
    consumer = claim(openstack, fleet)
    move(openstack, fleet, consumer)
    release(openstack, fleet, consumer)
    take_down(openstack, fleet)


class TwoHosts(NamedTuple):
    """Two hosts, the first with a graphics card below it."""

    host: str
    other: str
    card: str


def create_tree(openstack: Openstack) -> TwoHosts:
    host = openstack("resource provider create host-1")["uuid"]
    other = openstack("resource provider create host-2")["uuid"]
    card = openstack(f"resource provider create host-1-gpu --parent-provider {host}")
    assert card["parent_provider_uuid"] == host
    assert card["root_provider_uuid"] == host
    tree = openstack(f"resource provider list --in-tree {host}")
    assert {row["name"] for row in tree} == {"host-1", "host-1-gpu"}
    assert "already exists" in openstack.refused("resource provider create host-1")
    return TwoHosts(host, other, card["uuid"])


def set_inventories(openstack: Openstack, fleet: TwoHosts) -> None:
    for provider in (fleet.host, fleet.other):
        command = f"resource provider inventory set {provider} --resource VCPU=8"
        rows = openstack(f"{command} --resource VCPU:allocation_ratio=2.0 --resource MEMORY_MB=4096")
        assert {row["resource_class"]: row["total"] for row in rows} == {"VCPU": 8, "MEMORY_MB": 4096}
    openstack(f"resource provider inventory set {fleet.card} --resource VGPU=4")
    memory = f"resource provider inventory class set {fleet.host} MEMORY_MB --total 8192 --reserved 1024"
    assert openstack(memory)["reserved"] == 1024
    assert openstack(f"resource provider inventory show {fleet.host} MEMORY_MB")["total"] == 8192


def set_traits_and_aggregates(openstack: Openstack, fleet: TwoHosts) -> None:
    command = f"resource provider trait set {fleet.host} --trait HW_CPU_X86_AVX2 --trait COMPUTE_NODE"
    assert {row["name"] for row in openstack(command)} == {"HW_CPU_X86_AVX2", "COMPUTE_NODE"}
    generation = openstack(f"resource provider show {fleet.host}")["generation"]
    command = (
        f"resource provider aggregate set {fleet.host} --aggregate {AGGREGATE} --generation {generation}"
    )
    assert openstack(command) == [{"uuid": AGGREGATE}]
    assert openstack(f"resource provider aggregate list {fleet.host}") == [{"uuid": AGGREGATE}]
    assert "generation already changed" in openstack.refused(command)
    members = openstack(f"resource provider list --member-of {AGGREGATE} --required HW_CPU_X86_AVX2")
    assert [row["uuid"] for row in members] == [fleet.host]


def ask_for_candidates(openstack: Openstack, fleet: TwoHosts) -> None:
    ask = "allocation candidate list"
    rows = openstack(f"{ask} --resource VCPU=2 --resource MEMORY_MB=512")
    assert {row["resource provider"] for row in rows} == {fleet.host, fleet.other}
    rows = openstack(f"{ask} --group 1 --resource VCPU=2 --group 2 --resource VGPU=1 --group-policy none")
    assert {row["resource provider"]: row["allocation"] for row in rows} == {
        fleet.host: "VCPU=2",
        fleet.card: "VGPU=1",
    }
    assert openstack(f"{ask} --resource VCPU=17") == []


OWNER = f"--project-id {PROJECT} --user-id {USER} --consumer-type INSTANCE"


def claim(openstack: Openstack, fleet: TwoHosts) -> str:
    consumer = str(uuid.uuid4())
    command = f"resource provider allocation set {consumer} {OWNER}"
    on_host = f"--allocation rp={fleet.host},VCPU=2 --allocation rp={fleet.host},MEMORY_MB=512"
    openstack(f"{command} {on_host} --allocation rp={fleet.card},VGPU=1")
    assert held(openstack, consumer) == {fleet.host: {"VCPU": 2, "MEMORY_MB": 512}, fleet.card: {"VGPU": 1}}
    assert usages(openstack, fleet.host) == {"VCPU": 2, "MEMORY_MB": 512}
    assert usages(openstack, fleet.card) == {"VGPU": 1}
    rows = openstack(f"resource usage show {PROJECT} --user-id {USER}", "1.37")
    assert {row["resource_class"]: row["usage"] for row in rows} == {"VCPU": 2, "MEMORY_MB": 512, "VGPU": 1}
    assert "provider has allocations" in openstack.refused(f"resource provider delete {fleet.card}")
    return consumer


def move(openstack: Openstack, fleet: TwoHosts, consumer: str) -> None:
    command = f"resource provider allocation set {consumer} {OWNER}"
    too_much = openstack.refused(f"{command} --allocation rp={fleet.other},VCPU=17")
    assert "Unable to allocate inventory" in too_much
    openstack(f"{command} --allocation rp={fleet.other},VCPU=2 --allocation rp={fleet.other},MEMORY_MB=512")
    assert held(openstack, consumer) == {fleet.other: {"VCPU": 2, "MEMORY_MB": 512}}
    assert usages(openstack, fleet.host) == {"VCPU": 0, "MEMORY_MB": 0}
    assert usages(openstack, fleet.card) == {"VGPU": 0}
    assert usages(openstack, fleet.other) == {"VCPU": 2, "MEMORY_MB": 512}


def release(openstack: Openstack, fleet: TwoHosts, consumer: str) -> None:
    openstack(f"resource provider allocation unset {consumer} --resource-class MEMORY_MB")
    assert held(openstack, consumer) == {fleet.other: {"VCPU": 2}}
    openstack(f"resource provider allocation delete {consumer}")
    assert openstack(f"resource provider allocation show {consumer}") == []
    assert usages(openstack, fleet.other) == {"VCPU": 0, "MEMORY_MB": 0}


def take_down(openstack: Openstack, fleet: TwoHosts) -> None:
    openstack(f"resource provider trait delete {fleet.host}")
    assert openstack(f"resource provider trait list {fleet.host}") == []
    openstack(f"resource provider inventory delete {fleet.host} --resource-class VCPU")
    rows = openstack(f"resource provider inventory list {fleet.host}")
    assert [row["resource_class"] for row in rows] == ["MEMORY_MB"]
    assert "child" in openstack.refused(f"resource provider delete {fleet.host}")
    for provider in (fleet.card, fleet.host, fleet.other):
        openstack(f"resource provider delete {provider}")
    assert openstack("resource provider list") == []
