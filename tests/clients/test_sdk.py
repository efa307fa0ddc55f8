"""openstacksdk's placement proxy, through the life of a small fleet."""

import uuid
from collections.abc import Iterator
from typing import Any

import openstack
import pytest
from openstack.exceptions import ConflictException, NotFoundException

from tests.servers import ServerProcess

pytestmark = [
    pytest.mark.clients,
    # The SDK warns of itself: it still calls what it has deprecated.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

AGGREGATE = "14a5c8a3-5a99-4e8f-88be-00d85fcb1c17"
PROJECT, USER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Any]:
    """``Connection.placement``; its type depends on what the endpoint answers."""
    connection = openstack.connect(
        auth_type="admin_token",
        auth={"endpoint": server.url, "token": "admin"},
        placement_endpoint_override=server.url,
        placement_default_microversion="1.39",
        load_yaml_config=False,
        load_envvars=False,
    )
    yield connection.placement
    connection.close()


def owned(allocations: object, generation: int | None, consumer_type: str = "INSTANCE") -> dict[str, Any]:
    return {
        "allocations": allocations,
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": generation,
        "consumer_type": consumer_type,
    }


def test_the_sdk_knows_classes_and_traits(proxy: Any) -> None:
    assert [row.name for row in proxy.resource_classes()][:3] == ["VCPU", "MEMORY_MB", "DISK_GB"]
    proxy.create_resource_class(name="CUSTOM_FPGA")
    assert proxy.get_resource_class("CUSTOM_FPGA").name == "CUSTOM_FPGA"
    proxy.delete_resource_class("CUSTOM_FPGA", ignore_missing=False)
    with pytest.raises(NotFoundException):
        proxy.get_resource_class("CUSTOM_FPGA")

    assert proxy.create_trait("CUSTOM_GOLD").name == "CUSTOM_GOLD"
    assert [row.name for row in proxy.traits(name="startswith:CUSTOM_")] == ["CUSTOM_GOLD"]
    proxy.delete_trait("CUSTOM_GOLD", ignore_missing=False)
    with pytest.raises(NotFoundException):
        proxy.get_trait("CUSTOM_GOLD")


def test_the_sdk_makes_a_tree_of_providers(proxy: Any) -> None:
    host = proxy.create_resource_provider(name="host-1")
    numa = proxy.create_resource_provider(name="numa-0", parent_provider_uuid=host.id)
    assert (numa.parent_provider_id, numa.root_provider_id) == (host.id, host.id)
    assert [row.id for row in proxy.resource_providers(name="numa-0")] == [numa.id]
    assert {row.id for row in proxy.resource_providers(in_tree=numa.id)} == {host.id, numa.id}
    assert proxy.find_resource_provider("host-1", ignore_missing=False).id == host.id
    assert proxy.update_resource_provider(numa, name="numa-a").name == "numa-a"
    with pytest.raises(ConflictException):
        proxy.create_resource_provider(name="host-1")
    with pytest.raises(ConflictException):
        proxy.delete_resource_provider(host)
    proxy.delete_resource_provider(numa, ignore_missing=False)
    proxy.delete_resource_provider(host, ignore_missing=False)
    assert list(proxy.resource_providers()) == []


def test_the_sdk_writes_inventories_traits_and_aggregates(proxy: Any) -> None:
    host = proxy.create_resource_provider(name="host-1")
    made = proxy.create_resource_provider_inventory(host, "VCPU", total=8, allocation_ratio=2.0)
    assert (made.total, made.max_unit, made.resource_provider_generation) == (8, 2147483647, 1)
    changed = proxy.update_resource_provider_inventory("VCPU", host, total=16, resource_provider_generation=1)
    assert changed.total == 16
    with pytest.raises(ConflictException):
        proxy.update_resource_provider_inventory("VCPU", host, total=4, resource_provider_generation=1)
    inventories = {"VCPU": {"total": 16}, "MEMORY_MB": {"total": 4096, "reserved": 512}}
    proxy.set_resource_provider_inventories(host, inventories, resource_provider_generation=2)
    assert {row.resource_class: row.total for row in proxy.resource_provider_inventories(host)} == {
        "VCPU": 16,
        "MEMORY_MB": 4096,
    }
    assert proxy.get_resource_provider_inventory("MEMORY_MB", host).reserved == 512
    proxy.delete_resource_provider_inventory("MEMORY_MB", host, ignore_missing=False)
    with pytest.raises(NotFoundException):
        proxy.get_resource_provider_inventory("MEMORY_MB", host)

    traits = proxy.get_resource_provider_trait(host)
    assert traits.traits == []
    traits = proxy.set_resource_provider_trait(
        traits,
        traits=["HW_CPU_X86_AVX2"],
        resource_provider_generation=traits.resource_provider_generation,
    )
    assert traits.traits == ["HW_CPU_X86_AVX2"]
    assert [row.id for row in proxy.resource_providers(required="HW_CPU_X86_AVX2")] == [host.id]
    proxy.delete_resource_provider_trait(host, ignore_missing=False)
    assert proxy.get_resource_provider_trait(host).traits == []

    host = proxy.get_resource_provider(host.id)
    assert proxy.set_resource_provider_aggregates(host, AGGREGATE).aggregates == [AGGREGATE]
    assert proxy.fetch_resource_provider_aggregates(host.id).aggregates == [AGGREGATE]
    assert [row.id for row in proxy.resource_providers(member_of=AGGREGATE)] == [host.id]


def used(proxy: Any, provider: Any) -> dict[str, int]:
    usages: dict[str, int] = proxy.fetch_resource_provider_usages(provider).usages
    return usages


def test_the_sdk_claims_moves_and_releases(proxy: Any) -> None:
    hosts = [proxy.create_resource_provider(name=f"host-{n}") for n in (1, 2)]
    for host in hosts:
        proxy.set_resource_provider_inventories(host, {"VCPU": {"total": 4}}, host.generation)
    source, target = hosts

    answer = proxy.get("/allocation_candidates?resources=VCPU:2&limit=10", microversion="1.39").json()
    assert set(answer["provider_summaries"]) == {source.id, target.id}
    candidates = list(proxy.allocation_candidates(resources="VCPU:2"))
    chosen = next(row for row in candidates if source.id in row.allocations)
    assert chosen.mappings == {"": [source.id]}
    assert chosen.provider_summaries[source.id]["resources"]["VCPU"] == {"capacity": 4, "used": 0}

    server, migration = str(uuid.uuid4()), str(uuid.uuid4())
    proxy.update_allocation(server, **owned(chosen.allocations, None))
    assert used(proxy, source) == {"VCPU": 2}
    held = proxy.get_allocation(server)
    assert held.allocations[source.id]["resources"] == {"VCPU": 2}
    assert (held.consumer_generation, held.consumer_type) == (1, "INSTANCE")

    # What Nova does for a move: the source becomes the migration's, the target the server's, at once.
    source_half = {source.id: {"resources": {"VCPU": 2}}}
    target_half = {target.id: {"resources": {"VCPU": 2}}}
    proxy.create_allocations(
        {migration: owned(source_half, None, "MIGRATION"), server: owned(target_half, 1)}
    )
    assert used(proxy, source) == {"VCPU": 2}
    assert used(proxy, target) == {"VCPU": 2}
    usages = {row.consumer_type: row for row in proxy.usages(PROJECT)}
    assert set(usages) == {"INSTANCE", "MIGRATION"}
    with pytest.raises(ConflictException):
        proxy.create_allocations({server: owned(source_half, 1)})
    with pytest.raises(ConflictException):
        proxy.update_allocation(server, **owned({target.id: {"resources": {"VCPU": 5}}}, 2))

    proxy.delete_allocation(migration, ignore_missing=False)
    assert used(proxy, source) == {"VCPU": 0}
    assert [row.id for row in proxy.resource_provider_allocations(target)] == [server]
    proxy.delete_allocation(server, ignore_missing=False)
    with pytest.raises(NotFoundException):
        proxy.delete_allocation(server, ignore_missing=False)
    assert used(proxy, target) == {"VCPU": 0}
    for host in hosts:
        proxy.delete_resource_provider(host, ignore_missing=False)
