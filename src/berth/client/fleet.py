"""A made-up fleet, written through the API: something to look at on an empty server.

Every host has cpus, memory and disk; every fourth carries two GPUs as providers below it. Hosts stand in
racks (an aggregate each). Writing it twice changes nothing: a host that is there is left alone.
"""

import uuid
from typing import Any, Final

from berth.client.placement import PlacementClient

HOSTS_PER_RACK: Final = 10
GPU_EVERY: Final = 4
GPUS_PER_HOST: Final = 2
_NAMESPACE: Final = uuid.UUID("0b5f3c1e-7d0f-4e1b-9a58-6f6d7c1a2b90")


def rack_id(rack: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"rack-{rack}"))


def host_id(host: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"host-{host}"))


def write_fleet(client: PlacementClient, hosts: int) -> int:
    """Create the hosts that are missing; how many that were."""
    present = {provider["name"] for provider in client.get("/resource_providers")["resource_providers"]}
    missing = [host for host in range(hosts) if _host_name(host) not in present]
    for host in missing:
        _write_host(client, host)
    return len(missing)


def _host_name(host: int) -> str:
    return f"host-{host:04d}"


def _write_host(client: PlacementClient, host: int) -> None:
    id, name = host_id(host), _host_name(host)
    provider = client.post("/resource_providers", {"name": name, "uuid": id})
    has_gpus = host % GPU_EVERY == 0
    generation = _write_content(
        client,
        provider,
        {
            "VCPU": {"total": 32, "allocation_ratio": 4.0},
            "MEMORY_MB": {"total": 131072, "reserved": 4096},
            "DISK_GB": {"total": 2000},
        },
        ["COMPUTE_NODE", "HW_CPU_X86_AVX2"],
    )
    client.put(
        f"/resource_providers/{id}/aggregates",
        {"aggregates": [rack_id(host // HOSTS_PER_RACK)], "resource_provider_generation": generation},
    )
    for number in range(GPUS_PER_HOST if has_gpus else 0):
        child = {"name": f"{name}-gpu{number}", "parent_provider_uuid": id}
        gpu = client.post(
            "/resource_providers", {**child, "uuid": str(uuid.uuid5(_NAMESPACE, child["name"]))}
        )
        _write_content(client, gpu, {"VGPU": {"total": 4}}, ["HW_GPU_API_VULKAN"])


def _write_content(
    client: PlacementClient, provider: dict[str, Any], inventories: dict[str, object], traits: list[str]
) -> int:
    path = f"/resource_providers/{provider['uuid']}"
    written = client.put(
        f"{path}/inventories",
        {"resource_provider_generation": provider["generation"], "inventories": inventories},
    )
    tagged = client.put(
        f"{path}/traits",
        {"resource_provider_generation": written["resource_provider_generation"], "traits": traits},
    )
    generation: int = tagged["resource_provider_generation"]
    return generation
