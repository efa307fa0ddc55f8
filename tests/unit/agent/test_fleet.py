"""Fleets: made up, or read from a file, which is refused with the place and the reason."""

from pathlib import Path

import pytest

from berth.agent.fleet import (
    FleetError,
    SimHost,
    aggregate_id,
    provider_id,
    providers,
    read_fleet,
    read_pools,
    register,
    simulated_fleet,
)
from berth.cell.protocol import ReportedInventory

pytestmark = pytest.mark.fast


def test_a_simulated_fleet_is_the_same_each_time() -> None:
    fleet = simulated_fleet(8)
    assert [host.name for host in fleet] == [f"host-000{number}" for number in range(1, 9)]
    assert [host.name for host in fleet if host.children] == ["host-0004", "host-0008"]
    assert len({provider.id for host in fleet for provider in providers(host)}) == 8 + 4
    assert simulated_fleet(8) == fleet
    root, first, second = providers(fleet[3])
    assert root.inventories["VCPU"] == ReportedInventory(total=32, max_unit=32, allocation_ratio=4.0)
    assert root.inventories["MEMORY_MB"].reserved == 4096
    assert root.traits == ("COMPUTE_NODE", "HW_ARCH_X86_64", "HW_CPU_X86_AVX2")
    assert (first.name, second.name) == ("host-0004-gpu0", "host-0004-gpu1")
    assert first.parent == root.id == fleet[3].id == provider_id("host-0004")
    assert first.inventories["VGPU"].total == 4


def test_a_fleet_with_another_prefix_and_beginning() -> None:
    names = [host.name for host in simulated_fleet(2, prefix="web", first=11, cell="cell2")]
    assert names == ["web-0011", "web-0012"]
    with pytest.raises(ValueError, match="0 to 100000 hosts, not -1"):
        simulated_fleet(-1)


FLEET = """
[[host]]
name = "db-1"
cell = "cell1"
traits = ["COMPUTE_NODE", "CUSTOM_FAST"]
aggregates = ["rack-7", "d5189a73-2b38-4a3f-9b39-7a6f6a1a6a11"]
[host.inventories]
VCPU = { total = 8, reserved = 1, allocation_ratio = 2 }
MEMORY_MB = 4096
[[host.children]]
name = "numa0"
[[host.children.children]]
name = "pf0"
inventories = { SRIOV_NET_VF = 4 }
traits = ["CUSTOM_PHYSNET_A"]

[[host]]
count = 3
prefix = "web"
inventories = { VCPU = 4 }
"""


HOST = "[[host]]\nname = 'a'\naggregates = ['rack-7']\n"
POOL = "[[pool]]\nname = 'nas'\naggregates = ['rack-7']\ninventories = { DISK_GB = 9 }\n"


def written(directory: Path, text: str) -> Path:
    path = directory / "fleet.toml"
    path.write_text(text)
    return path


def test_a_fleet_in_a_file(tmp_path: Path) -> None:
    fleet = read_fleet(written(tmp_path, FLEET))
    assert [host.name for host in fleet] == ["db-1", "web-0001", "web-0002", "web-0003"]
    assert [host.cell for host in fleet] == ["cell1", None, None, None]
    assert all(type(host) is SimHost for host in fleet)
    registered = register(fleet[0], "sim")
    assert [(one.name, one.parent) for one in registered.providers] == [
        ("db-1", None),
        ("db-1-numa0", provider_id("db-1")),
        ("db-1-numa0-pf0", provider_id("db-1-numa0")),
    ]
    assert registered.providers[0].inventories["VCPU"].reserved == 1
    assert registered.providers[0].inventories["MEMORY_MB"].total == 4096
    assert registered.aggregates == (aggregate_id("rack-7"), "d5189a73-2b38-4a3f-9b39-7a6f6a1a6a11")


def test_pools_in_a_file(tmp_path: Path) -> None:
    for text in (POOL, HOST + POOL, HOST + POOL.replace("rack-7", "d5189a73-2b38-4a3f-9b39-7a6f6a1a6a11")):
        [pool] = read_pools(written(tmp_path, text))
        assert (pool.id, pool.inventories["DISK_GB"].total) == (provider_id("nas"), 9)
    assert read_pools(written(tmp_path, HOST)) == []
    assert [host.name for host in read_fleet(written(tmp_path, HOST + POOL))] == ["a"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "fleet.toml: there is no [[host]] entry in it"),
        ("host = 1", "fleet.toml: host is not written as [[host]] entries"),
        ("hosts = 1", "fleet.toml: unknown key hosts; a fleet is made of [[host]] and [[pool]] entries"),
        ("pool = 1", "fleet.toml: pool is not written as [[pool]] entries"),
        (f"{POOL}", "fleet.toml: there is no [[host]] entry in it"),
        (f"{HOST}{POOL}colour = 1", "pool 1 (nas): unknown key `colour`"),
        (f"{HOST}[[pool]]\nname = 'nas'", "pool 1 (nas): Object missing required field `inventories`"),
        (f"{HOST}{POOL}{POOL}", "pool 2 (nas): the name nas is taken by pool 1; names are unique"),
        (f"{HOST}{POOL.replace('nas', 'a')}", "pool 1 (a): the name a is taken by host 1; names are unique"),
        (f"{HOST}{POOL.replace('DISK_GB', 'VCPU')}", "pool 1 (nas): VCPU is what hosts have"),
        (f"{HOST}{POOL.replace('DISK_GB', 'DISC_GB')}", "pool 1 (nas): DISC_GB is no resource class"),
        (f"{HOST}{POOL}traits = ['FAST']", "pool 1 (nas): FAST is no trait"),
        (
            f"{HOST}{POOL.replace('rack-7', 'rack7')}",
            "pool 1 (nas): no host of this file is in the aggregate rack7",
        ),
        ("[[host]\n", "fleet.toml: this is not TOML"),
        ('[[host]]\nname = "a"\n[[host]]\ncolour = 1', "fleet.toml: host 2: unknown key `colour`"),
        ('[[host]]\nname = "a"\ncell = 1', "host 1 (a): Expected `str | null`, got `int`, at `cell`"),
        ('[[host]]\nname = "a b"', "host 1 (a b): Expected `str` matching regex"),
        ('[[host]]\nname = "../a"', "host 1 (../a): Expected `str` matching regex"),
        ("[[host]]\ncell = 'x'", "host 1: either name, or count and prefix, are needed"),
        ("[[host]]\nname = 'x'\ncount = 2", "host 1 (x): either name, or count and prefix, are needed"),
        ("[[host]]\nprefix = 'x'\ncount = 0", "host 1 (x): Expected `int` >= 1, at `count`"),
        (
            "[[host]]\nprefix = 'a'\ncount = 2\n[[host]]\nname = 'a-0002'",
            "host 2 (a-0002): the name a-0002 is taken by host 1; names are unique",
        ),
        (
            "[[host]]\nname = 'a'\nchildren = [{ name = 'x' }, { name = 'x' }]",
            "host 1 (a): the name a-x is taken by host 1; names are unique",
        ),
        ("[[host]]\nname = 'a'\ninventories = { CPU = 1 }", "host 1 (a): CPU is no resource class"),
        (
            "[[host]]\nname = 'a'\ninventories = { VCPU = { total = 1, reserved = 2 } }",
            "host 1 (a): VCPU: 2 cannot be reserved of 1",
        ),
        ("[[host]]\nname = 'a'\ninventories = { VCPU = 0 }", "Expected `int` >= 1, at `inventories"),
        ("[[host]]\nname = 'a'\ninventories = { VCPU = { totl = 1 } }", "unknown key `totl`"),
        ("[[host]]\nname = 'a'\ntraits = ['FAST']", "host 1 (a): FAST is no trait"),
        (
            "[[host]]\nname = 'a'\nchildren = [{ name = 'x', traits = ['FAST'] }]",
            "host 1 (a): x: FAST is no trait",
        ),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(FleetError) as refusal:
        read_fleet(written(tmp_path, text))
    assert str(refusal.value).startswith(str(tmp_path / "fleet.toml"))
    assert why in str(refusal.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="the fleet cannot be read: No such file"):
        read_fleet(tmp_path / "fleet.toml")
