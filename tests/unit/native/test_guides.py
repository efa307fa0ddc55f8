"""The requests in the guides are sent as they stand, and are answered as the guides say."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ROOT
from tests.worlds import ApplicationWorld, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

HOSTS = 3


class Guide:
    """Requests of a guide in their order, with what earlier answers said put in."""

    def __init__(self, name: str) -> None:
        text = (ROOT / "docs" / "guides" / name).read_text()
        self.requests = re.findall(
            r"^```http\n([A-Z]+) (\S+) -> (\d+) ?(\S*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
        )
        self.known = {f"host-{number}": uuid_of(number) for number in range(1, HOSTS + 1)}

    def filled(self, text: str) -> str:
        return re.sub(r"{([a-z][a-z0-9-]*)}", lambda match: str(self.known[match[1]]), text)

    def learn(self, answer: Any) -> None:
        if isinstance(answer, dict):
            if "group" in answer:
                self.known["group"] = answer["group"]["uuid"]
            if "token" in answer:
                self.known["token"] = answer["token"]


async def test_a_host_with_cells_does_what_the_guide_to_devices_says(world: ApplicationWorld) -> None:
    guide = Guide("devices.md")
    assert len(guide.requests) == 3
    await world.host(1, {"DISK_GB": 100})
    for cell in (11, 12):
        id = await world.host(cell, {"PCPU": 8, "VCPU": 8, "MEMORY_MB": 8192}, parent=1)
        generation = (await world.get(f"/resource_providers/{id}")).json["generation"]
        traits = {"resource_provider_generation": generation, "traits": ["HW_NUMA_ROOT"]}
        await world.change("PUT", f"/resource_providers/{id}/traits", traits)
    for method, path, status, code, body in guide.requests:
        answer = await world.ask_raw(method, path, body.encode())
        assert answer.status == int(status), (method, path, answer.body)
        assert not code or answer.json["errors"][0]["code"] == code
        if code == "berth.no_fit":
            assert "host-11 comes closest: 8 of 10 PCPU." in answer.json["errors"][0]["detail"]


@pytest.mark.parametrize("name", ["native-api.md", "drain-a-host.md"])
async def test_a_guide_to_a_region_can_be_followed(tmp_path: Path, name: str) -> None:
    guide = Guide(name)
    assert len(guide.requests) >= 4
    async with RegionWorld(tmp_path).running() as region:
        await region.fleet(HOSTS)
        await region.active("db")
        for method, path, status, code, body in guide.requests:
            answer = await region.ask_raw(method, guide.filled(path), body.encode() if body.strip() else None)
            assert answer.status == int(status), (method, path, answer.body)
            assert not code or answer.error["code"] == code


@pytest.mark.parametrize("name", ["groups.md", "schedule.md"])
async def test_a_guide_can_be_followed(name: str, world: ApplicationWorld) -> None:
    guide = Guide(name)
    assert len(guide.requests) >= 8

    for number in range(1, HOSTS + 1):
        await world.host(number)
    for method, path, status, code, body in guide.requests:
        provider = await world.get(f"/resource_providers/{uuid_of(1)}")
        guide.known["generation"] = provider.json["generation"]
        sent = guide.filled(body).encode() if body.strip() else None
        answer = await world.ask_raw(method, guide.filled(path), sent)
        assert answer.status == int(status), (method, path, answer.body)
        if code:
            assert answer.error["code"] == code
        elif answer.body:
            guide.learn(answer.json)
