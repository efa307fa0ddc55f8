"""Two machines whose agents discover them, in a whole cloud: each VF and each whole PF goes to one server,
and no more than there are."""

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clouds import Cloud, MachineAgent, cloud_running, wait_for
from tests.sysroots import two_pfs, whole_pf

pytestmark = pytest.mark.clients


class Region:
    """What an administrator asks of it."""

    def __init__(self, cloud: Cloud) -> None:
        token = json.loads((cloud.data / "secrets.json").read_text())["admin"]
        versions = {"openstack-api-version": "placement 1.39", "x-openstack-nova-api-version": "2.90"}
        self._http = httpx.Client(
            base_url=cloud.url, headers={"x-auth-token": token, **versions}, timeout=60, trust_env=False
        )
        self._cloud = cloud
        self._image = self.ask("GET", "/image/v2/images")["images"][0]["id"]

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def wait_for_host(self, name: str, classes: set[str]) -> None:
        """Wait until a host is up, and these classes are somewhere in its tree."""

        def is_there() -> bool:
            found = self.ask("GET", "/compute/v2.1/os-hypervisors")["hypervisors"]
            if not any(one["hypervisor_hostname"] == name and one["state"] == "up" for one in found):
                return False
            (host,) = self.ask("GET", f"/resource_providers?name={name}")["resource_providers"]
            tree = self.ask("GET", f"/resource_providers?in_tree={host['uuid']}")["resource_providers"]
            ids = (provider["uuid"] for provider in tree)
            there = (self.ask("GET", f"/resource_providers/{id}/inventories")["inventories"] for id in ids)
            return classes <= {kind for inventories in there for kind in inventories}

        wait_for(is_there, lambda: self._cloud.everything, self._cloud)

    def make_flavor(self, name: str, **specs: str) -> None:
        flavor = {"id": name, "name": name, "vcpus": 1, "ram": 512, "disk": 1}
        self.ask("POST", "/compute/v2.1/flavors", {"flavor": flavor})
        self.ask("POST", f"/compute/v2.1/flavors/{name}/os-extra_specs", {"extra_specs": specs})

    def create(self, flavor: str, count: int = 1) -> list[dict[str, Any]]:
        """Servers one after the other, as they are when they are built, or not."""
        wanted = {"name": flavor, "imageRef": self._image, "flavorRef": flavor, "networks": "none"}
        created = [
            self.ask("POST", "/compute/v2.1/servers", {"server": wanted})["server"]["id"]
            for _ in range(count)
        ]
        return [self._wait_until_built(id) for id in created]

    def _wait_until_built(self, id: str) -> dict[str, Any]:
        def find() -> dict[str, Any]:
            found: dict[str, Any] = self.ask("GET", f"/compute/v2.1/servers/{id}")["server"]
            return found

        wait_for(lambda: find()["status"] != "BUILD", lambda: self._cloud.everything, self._cloud)
        return find()

    def units_of(self, server: dict[str, Any]) -> list[str]:
        devices = self.ask("GET", f"/berth/v1/servers/{server['id']}/devices")["devices"]
        return [f"{device['host']} {unit}" for device in devices for unit in device.get("units", ())]


def host_of(server: dict[str, Any]) -> str | None:
    assert server["status"] == "ACTIVE", server.get("fault")
    host: str | None = server["OS-EXT-SRV-ATTR:hypervisor_hostname"]
    return host


def test_every_vf_and_every_whole_pf_is_given_to_one_server(tmp_path: Path) -> None:
    options = "--hosts 1 --cells 1 --build-seconds 0 --log-level info"
    with contextlib.ExitStack() as stack:
        cloud = stack.enter_context(cloud_running(tmp_path, *options.split()))
        stack.enter_context(MachineAgent(cloud, "first", two_pfs).running())
        stack.enter_context(MachineAgent(cloud, "second", whole_pf).running())
        region = Region(cloud)
        stack.callback(region.close)
        region.wait_for_host("first", {"SRIOV_NET_VF", "MEMORY_MB", "DISK_GB"})
        region.wait_for_host("second", {"SRIOV_NET_VF", "CUSTOM_PCI_15B3_1017", "MEMORY_MB", "DISK_GB"})
        region.make_flavor("vf", **{"resources:SRIOV_NET_VF": "1"})
        region.make_flavor("whole", **{"resources:CUSTOM_PCI_15B3_1017": "1"})

        whole, none = region.create("whole", 2)
        assert host_of(whole) == "second"
        assert region.units_of(whole) == ["second 0000:af:00.0"]
        assert none["status"] == "ERROR"
        assert "CUSTOM_PCI_15B3_1017" in none["fault"]["message"]

        servers = region.create("vf", 24)
        assert Counter(map(host_of, servers)) == {"first": 16, "second": 8}
        units = [unit for server in servers for unit in region.units_of(server)]
        assert len(units) == len(set(units)) == 24
        (none,) = region.create("vf")
        assert none["status"] == "ERROR"
        assert "SRIOV_NET_VF" in none["fault"]["message"]
