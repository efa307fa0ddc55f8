"""/os-hypervisors, /limits and what else says how much there is."""

from typing import Any

import pytest

from berth.model.servers import Host
from berth.view.records import Records
from tests.unit.compute.fleets import hear, known_fleet
from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast


async def hypervisors(region: RegionWorld, path: str = "", **how: Any) -> Any:
    answer = await region.compute("GET", f"/os-hypervisors{path}", **how)
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_hypervisor_in_each_generation_of_the_api(region: RegionWorld) -> None:
    await known_fleet(region, 1)
    server = await region.active("web")
    await region.host_status(1, disabled=True, reason="broken fan")
    await hear(region, 1, is_down=True)
    old = (await hypervisors(region, "/1", version="2.1"))["hypervisor"]
    assert old == {
        "id": 1,
        "hypervisor_hostname": "host-1",
        "state": "down",
        "status": "disabled",
        "hypervisor_type": "sim",
        "hypervisor_version": 1,
        "host_ip": None,
        "service": {"id": 1, "host": "host-1", "disabled_reason": "broken fan"},
        "cpu_info": "{}",
        "vcpus": 8,
        "vcpus_used": 2,
        "memory_mb": 16384,
        "memory_mb_used": 2048,
        "free_ram_mb": 14336,
        "local_gb": 100,
        "local_gb_used": 10,
        "free_disk_gb": 90,
        "disk_available_least": 90,
        "running_vms": 1,
        "current_workload": 0,
    }
    path = f"/{uuid_of(1)}"
    newer = (await hypervisors(region, f"{path}?with_servers=true", version="2.87"))["hypervisor"]
    assert newer == old | {
        "id": uuid_of(1),
        "service": old["service"] | {"id": uuid_of(1)},
        "cpu_info": {},
        "servers": [{"name": "web", "uuid": server}],
    }
    newest = (await hypervisors(region, path))["hypervisor"]
    assert newest.keys() & {"vcpus", "running_vms", "servers", "cpu_info"} == set()
    assert newest["uptime"] is None
    assert (await region.compute("GET", "/os-hypervisors/1", version="2.53")).status == 404
    assert (await region.compute("GET", f"/os-hypervisors{path}", version="2.52")).status == 404
    assert (await region.compute("GET", f"/os-hypervisors{path}", who="ann")).status == 403


async def test_one_hypervisor_is_found_without_a_look_at_the_others(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await known_fleet(region, 3)

    def refuse(records: Records, kind: type[Any]) -> Any:
        assert kind is not Host, "all hosts are looked at"
        return every(records, kind)

    every = Records.all
    monkeypatch.setattr(Records, "all", refuse)
    for path, version in (("/3", "2.52"), (f"/{uuid_of(3)}", "2.53"), (f"/{uuid_of(3).upper()}", "2.53")):
        found = (await hypervisors(region, path, version=version))["hypervisor"]
        assert found["hypervisor_hostname"] == "host-3"
    for path, version in (("/4", "2.52"), ("/host-3", "2.52"), (f"/{uuid_of(4)}", "2.53"), ("/3", "2.53")):
        assert (await region.compute("GET", f"/os-hypervisors{path}", version=version)).status == 404


async def test_lists_patterns_and_pages(region: RegionWorld) -> None:
    await known_fleet(region, 12)

    async def names(path: str, **how: Any) -> list[str]:
        found = (await hypervisors(region, path, **how))["hypervisors"]
        return [one["hypervisor_hostname"] for one in found]

    assert await names("") == [f"host-{number}" for number in range(1, 13)]
    assert await names("?hypervisor_hostname_pattern=T-1") == ["host-1", "host-10", "host-11", "host-12"]
    assert await names("/t-12/search", version="2.52") == ["host-12"]
    assert await names("/t-12/servers", version="2.52") == ["host-12"]
    first = await hypervisors(region, "/detail?limit=5", headers={"host": "h"})
    marker = uuid_of(5)
    assert first["hypervisors_links"] == [
        {
            "rel": "next",
            "href": f"http://h/compute/v2.1/os-hypervisors/detail?limit=5&marker={marker}",
        }
    ]
    assert await names(f"?limit=2&marker={marker}") == ["host-6", "host-7"]
    for path, version in (
        ("?hypervisor_hostname_pattern=none", "2.53"),
        ("/host/search", "2.53"),
        ("/host/servers", "2.53"),
        ("/none/search", "2.52"),
        ("/statistics", "2.88"),
    ):
        answer = await region.compute("GET", f"/os-hypervisors{path}", version=version)
        assert answer.status == 404, path
    assert (await region.compute("GET", "/os-hypervisors?with_servers=x")).status == 400
    uptime = await region.compute("GET", "/os-hypervisors/1/uptime", version="2.1")
    assert uptime.status == 501


async def test_statistics_and_limits_count_what_is_used(region: RegionWorld) -> None:
    nothing = (await hypervisors(region, "/statistics", version="2.87"))["hypervisor_statistics"]
    assert set(nothing.values()) == {0}
    await known_fleet(region, 2)
    await region.active(who="ann:blue")
    await region.active(who="ann:blue")
    sums = (await hypervisors(region, "/statistics", version="2.87"))["hypervisor_statistics"]
    assert sums == nothing | {
        "count": 2,
        "vcpus": 16,
        "vcpus_used": 4,
        "memory_mb": 32768,
        "memory_mb_used": 4096,
        "free_ram_mb": 28672,
        "local_gb": 200,
        "local_gb_used": 20,
        "free_disk_gb": 180,
        "disk_available_least": 180,
        "running_vms": 2,
    }
    absolute = (await region.compute("GET", "/limits", who="ann:blue")).json["limits"]["absolute"]
    assert (absolute["totalCoresUsed"], absolute["totalInstancesUsed"], absolute["totalRAMUsed"]) == (
        4,
        2,
        4096,
    )
    assert absolute["maxTotalCores"] == -1
    # As the openstack client asks.
    same = await region.compute("GET", "/limits?reserved=False&tenant_id=blue")
    assert same.json["limits"]["absolute"] == absolute
    quotas = (await region.compute("GET", "/os-quota-sets/blue/detail")).json["quota_set"]
    assert quotas["cores"] == {"limit": -1, "in_use": 4, "reserved": 0}
    assert (await region.compute("GET", "/os-quota-sets/blue")).json["quota_set"]["ram"] == -1
    assert (await region.compute("GET", "/os-quota-sets/blue", who="bob:red")).status == 403
    assert (await region.compute("GET", "/limits?tenant_id=blue", who="bob:red")).status == 403


async def test_what_once_was_an_extension(region: RegionWorld) -> None:
    listed = (await region.compute("GET", "/extensions")).json["extensions"]
    assert {"os-keypairs", "os-hosts", "OS-EXT-IPS"} <= {one["alias"] for one in listed}
    assert (await region.compute("GET", "/extensions/os-hosts")).json["extension"]["name"] == "Hosts"
    assert (await region.compute("GET", "/extensions/os-floating-ips")).status == 404
