"""/berth/v1/hosts: which hosts a list has, what is said of one, and how its status is changed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from berth.api.native import hosts
from berth.model.servers import Host
from tests.worlds import ApplicationWorld, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

RACK = uuid_of(800)
NUMA = uuid_of(21)


async def fill(region: RegionWorld) -> None:
    """host-1 to host-3 in cell-1 and cell-2, host-1 with a NUMA cell and in a rack; host-2 is disabled and
    host-3 down; host-4 has an agent and no provider yet."""
    await region.fleet(3, cells=2)
    await region.host(21, {"PCPU": 4}, parent=1)
    await region.join(1, uuid_of(501), RACK)
    label = {"aggregate": {"kind": "rack", "name": "r1", "metadata": {}}}
    await region.change("PUT", f"/berth/v1/aggregates/{RACK}", label)
    await region.host_status(2, disabled=True, reason="new disks")
    await region.host_status(3, down=True)
    await region.put(
        Host(id=uuid_of(1), number=1, name="host-1", cell="cell-2", driver="libvirt"),
        Host(id=uuid_of(4), number=4, name="host-4", cell="cell-1", complaints=("no disk",)),
    )


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[RegionWorld]:
    async with RegionWorld(tmp_path).running() as region:
        await fill(region)
        yield region


@pytest.fixture(scope="module")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RegionWorld]:
    """Filled once, for tests that only read."""
    async with RegionWorld(tmp_path_factory.mktemp("filled")).running() as region:
        await fill(region)
        yield region


async def names(world: ApplicationWorld, query: str) -> list[str]:
    return [host["name"] for host in (await world.get(f"/berth/v1/hosts{query}")).json["hosts"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 2, 3, 4]),
        ("?name=host-2", [2]),
        ("?name=host-?", [1, 2, 3, 4]),
        ("?name=*-3", [3]),
        ("?name=HOST-1", []),
        ("?name=[h]ost-1", []),
        ("?state=up", [1, 4]),
        ("?state=disabled", [2]),
        ("?state=down", [3]),
        ("?cell=cell-1", [2, 4]),
        ("?cell=cell-2", [1, 3]),
        ("?driver=libvirt", [1]),
        ("?driver=sim", [4]),
        ("?domain=rack:r1", [1]),
        (f"?domain={RACK}", [1]),
        ("?domain=cell:cell-2&state=up", [1]),
        ("?state=up&cell=cell-1&name=host-*", [4]),
        (f"?state=up&marker={uuid_of(1)}", [4]),
    ],
)
async def test_hosts_are_filtered(filled: RegionWorld, query: str, expected: list[int]) -> None:
    assert await names(filled, query) == [f"host-{number}" for number in expected]


async def test_pages_of_a_filtered_list_are_the_whole_list(filled: RegionWorld) -> None:
    first = (await filled.get("/berth/v1/hosts?name=host*&limit=3")).json
    assert len(first["hosts"]) == 3
    assert [host["name"] for host in (await filled.get(first["next"])).json["hosts"]] == ["host-4"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?state=asleep", "state: it must be one of disabled, down, up"),
        ("?domain=rack:r9", "there is no domain 'rack:r9'"),
        ("?cell=cell-9", "cell: no host has the cell 'cell-9'; known are: cell-1, cell-2."),
        ("?driver=magic", "driver: no host has the driver 'magic'; known are: libvirt, sim."),
        (f"?domain={uuid_of(77)}", "give the uuid of an aggregate with a kind, or KIND:NAME"),
        ("?name=", "name: it must be a text of 1 to 255 characters"),
        ("?rack=r1", "There is no parameter 'rack' here"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(filled: RegionWorld, query: str, words: str) -> None:
    answer = await filled.ask("GET", f"/berth/v1/hosts{query}")
    assert answer.status == 400
    assert words in answer.error["detail"]


async def test_a_driver_is_not_refused_before_hosts_have_joined_nor_after_they_have_left(
    tmp_path: Path, filled: RegionWorld
) -> None:
    async with RegionWorld(tmp_path).running() as empty:
        assert await names(empty, "?driver=libvirt") == []
    assert await names(filled, f"?driver=gone&marker={uuid_of(1)}") == []


async def test_a_host_is_shown_with_its_tree_and_who_holds_it(region: RegionWorld) -> None:
    server = await region.active("db")
    [held] = [host for host in (await region.get("/berth/v1/hosts")).json["hosts"] if host["servers"]]
    assert held["usage"]["VCPU"] == {"capacity": 8, "used": 2}
    await region.claim(50, {21: {"PCPU": 3}, 2: {"VCPU": 1}}, project="a")
    host = (await region.get("/berth/v1/hosts/host-1")).json["host"]
    assert host == (await region.get(f"/berth/v1/hosts/{uuid_of(1).upper()}")).json["host"]
    assert (host["cell"], host["driver"], host["state"]) == ("cell-2", "libvirt", "up")
    assert host["usage"]["PCPU"] == {"capacity": 4, "used": 3}
    root, numa = host["providers"]
    assert (numa["name"], numa["parent"]) == ("host-21", root["uuid"])
    assert numa["inventories"]["PCPU"] == {
        "total": 4,
        "reserved": 0,
        "allocation_ratio": 1.0,
        "min_unit": 1,
        "max_unit": 2147483647,
        "step_size": 1,
        "used": 3,
    }
    assert set(root["aggregates"]) == {uuid_of(501), RACK}
    by_uuid = {consumer["uuid"]: consumer for consumer in host["consumers"]}
    assert by_uuid[server]["name"] == "db"
    assert by_uuid[server]["allocations"][uuid_of(1)]["VCPU"] == 2
    other = by_uuid[uuid_of(50)]
    assert other["allocations"] == {NUMA: {"PCPU": 3}}, "what it holds elsewhere is not of this host"
    assert (other["name"], other["project_id"], other["type"]) == (None, "a", "INSTANCE")
    assert (host["providers_total"], host["consumers_total"]) == (2, 2)


async def test_a_host_with_more_than_is_shown_says_so(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "PROVIDERS_MAX", 1)
    monkeypatch.setattr(hosts, "CONSUMERS_MAX", 1)
    for number in (50, 51):
        await region.claim(number, {1: {"VCPU": 1}})
    host = (await region.get("/berth/v1/hosts/host-1")).json["host"]
    assert (len(host["providers"]), host["providers_total"]) == (1, 2)
    assert (len(host["consumers"]), host["consumers_total"]) == (1, 2)


async def test_a_host_without_a_provider_is_shown_by_its_name(filled: RegionWorld) -> None:
    host = (await filled.get("/berth/v1/hosts/host-4")).json["host"]
    assert (host["uuid"], host["complaints"], host["usage"]) == (uuid_of(4), ["no disk"], {})
    assert (host["providers"], host["consumers"]) == ([], [])


async def test_a_host_is_disabled_and_enabled_by_its_name(region: RegionWorld) -> None:
    """A change of the status leaves the rest of it: a host that is down is not up because it is disabled."""
    path = "/berth/v1/hosts/host-3"
    changed = await region.change("PATCH", path, {"host": {"disabled": True, "reason": "fan"}})
    host = changed["host"]
    assert (host["disabled"], host["down"], host["reason"], host["state"]) == (True, True, "fan", "down")
    host = (await region.change("PATCH", path, {"host": {"build_failures": 2}}))["host"]
    assert (host["disabled"], host["reason"], host["build_failures"]) == (True, "fan", 2)
    host = (await region.change("PATCH", path, {"host": {"disabled": False}}))["host"]
    assert (host["disabled"], host["reason"], host["build_failures"]) == (False, None, 2)
    assert (await region.change("PUT", path, {"host": {}}))["host"]["state"] == "up"


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("host-9", {"host": {}}, 404, "No host has the name or uuid host-9."),
        ("host-21", {"host": {}}, 409, f"use {uuid_of(1)}, the root of its tree"),
        ("host-1", {"host": {"down": True}}, 400, "unknown field `down`"),
    ],
)
async def test_a_change_that_cannot_be_is_refused(
    region: RegionWorld, path: str, body: object, status: int, words: str
) -> None:
    answer = await region.ask("PATCH", f"/berth/v1/hosts/{path}", body)
    assert answer.status == status
    assert words in answer.error["detail"]


async def test_allocations_and_usage_are_found_by_the_name_of_a_host(region: RegionWorld) -> None:
    await region.claim(50, {1: {"VCPU": 1}, 21: {"PCPU": 1}})
    for query, count in (("provider=host-1", 1), ("tree=host-21", 2), ("provider=host-9", 0)):
        rows = (await region.get(f"/berth/v1/allocations?{query}")).json["allocations"]
        assert len(rows) == count, query
    usage = (await region.get("/berth/v1/usage?by=root&tree=host-1")).json["usage"]
    assert [row["name"] for row in usage] == ["host-1"]


async def test_sums_of_vast_capacities_are_exact(world: ApplicationWorld) -> None:
    await world.host(1)
    await world.host(2, parent=1)
    vast = {"total": 2147483647, "allocation_ratio": 2147483649.0}
    for number in (1, 2):
        generation = (await world.get(f"/resource_providers/{uuid_of(number)}")).json["generation"]
        body = {"resource_provider_generation": generation, "inventories": {"VCPU": vast}}
        await world.change("PUT", f"/resource_providers/{uuid_of(number)}/inventories", body)
    [host] = (await world.get("/berth/v1/hosts")).json["hosts"]
    assert host["usage"]["VCPU"]["capacity"] == 2 * int(2147483647 * 2147483649.0)
