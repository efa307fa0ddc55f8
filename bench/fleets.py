"""The fleets of the workloads, as requests that make them."""

import json
import uuid
from typing import Final

from bench.client import request_bytes
from bench.workload import Flat, Fleet

# What OpenStack's placeload gives its hosts: the first aggregate and the first trait are everybody's.
AGGREGATES: Final = [
    "14a5c8a3-5a99-4e8f-88be-00d85fcb1c17",
    "66d98e7c-3c25-485d-a0dc-1cea651884de",
    "a59dbb28-fd98-4c6e-9ec5-ae5f3d04b0aa",
]
TRAITS: Final = ["HW_CPU_X86_AVX2", "HW_CPU_X86_SSE2", "STORAGE_DISK_SSD"]

# Its inventories too, but for the ratio: no run shall end because a host is full.
INVENTORIES: Final = {
    "MEMORY_MB": {"total": 8192, "min_unit": 128, "max_unit": 8192, "allocation_ratio": 10000.0},
    "DISK_GB": {"total": 8192, "min_unit": 5, "max_unit": 8192, "allocation_ratio": 10000.0},
    "VCPU": {"total": 32, "min_unit": 1, "max_unit": 16, "allocation_ratio": 10000.0},
}
DEVICES: Final = {"VGPU": {"total": 8}}

_NAMESPACE: Final = uuid.UUID(int=0)


def host_uuid(number: int) -> str:
    """The same on every server, so that the same requests fit."""
    return str(uuid.uuid5(_NAMESPACE, f"host-{number}"))


def fleet_requests(fleet: Fleet) -> list[list[bytes]]:
    """One list for each host; a list is to be sent in order, the lists in any."""
    if isinstance(fleet, Flat):
        return [_flat_host(number) for number in range(fleet.hosts)]
    return [_wide_host(number, fleet.children) for number in range(fleet.hosts)]


def _flat_host(number: int) -> list[bytes]:
    return _provider(
        host_uuid(number),
        f"host-{number}",
        inventories=INVENTORIES,
        aggregates=AGGREGATES[: number % 3 + 1],
        traits=TRAITS[: number % 3 + 1],
    )


def _wide_host(number: int, children: int) -> list[bytes]:
    host = host_uuid(number)
    requests = _provider(host, f"host-{number}", inventories={"VCPU": {"total": 32}})
    for child in range(children):
        name = f"host-{number}-gpu-{child}"
        requests += _provider(str(uuid.uuid5(_NAMESPACE, name)), name, parent=host, inventories=DEVICES)
    return requests


def _provider(
    id: str,
    name: str,
    *,
    inventories: object,
    parent: str | None = None,
    aggregates: list[str] | None = None,
    traits: list[str] | None = None,
) -> list[bytes]:
    path = f"/resource_providers/{id}"
    requests = [
        _json("POST", "/resource_providers", {"uuid": id, "name": name, "parent_provider_uuid": parent}),
        _json("PUT", f"{path}/inventories", {"resource_provider_generation": 0, "inventories": inventories}),
    ]
    if aggregates:
        body = {"resource_provider_generation": 1, "aggregates": aggregates}
        requests.append(_json("PUT", f"{path}/aggregates", body))
    if traits:
        requests.append(_json("PUT", f"{path}/traits", {"resource_provider_generation": 2, "traits": traits}))
    return requests


def _json(method: str, path: str, body: object) -> bytes:
    return request_bytes(method, path, json.dumps(body).encode())
