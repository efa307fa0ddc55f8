"""``berth pool``, against the region's API."""

import json
from pathlib import Path

import pytest

from berth.agent.fleet import aggregate_id, provider_id
from berth.cli import main, pool
from berth.cli.command import CommandError
from berth.cli.parser import CommandParser
from berth.client import connect_directly
from tests.worlds import ApplicationWorld, uuid_of

pytestmark = pytest.mark.fast

RACK = uuid_of(70)
FLEET = """
[[pool]]
name = "nas"
aggregates = ["storage"]
traits = ["CUSTOM_FAST"]
inventories = { DISK_GB = 100 }

[[pool]]
name = "net"
aggregates = ["storage"]
inventories = { IPV4_ADDRESS = { total = 10, reserved = 2 } }
"""


async def berth_pool(world: ApplicationWorld, *words: str) -> None:
    parser = CommandParser(prog="berth pool")
    pool.add_arguments(parser)
    client = connect_directly(world.application, {"x-auth-token": "admin"})
    assert await pool.act(parser.parse_args(words), client) == 0


async def fleet(world: ApplicationWorld) -> None:
    for number in (1, 2):
        await world.host(number)
        await world.join(number, RACK, aggregate_id("storage"))
    label = {"aggregate": {"kind": "rack", "name": "rack-7"}}
    await world.change("PUT", f"/berth/v1/aggregates/{RACK}", label)


async def test_a_pool_from_its_creation_to_its_end(
    world: ApplicationWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await fleet(world)
    resources = ["--resource", "DISK_GB=100", "--resource", "DISK_GB:reserved=10"]
    await berth_pool(world, "create", "nas", *resources, "--aggregate", "rack-7", "--trait", "CUSTOM_FAST")
    said = capsys.readouterr().out
    assert "DISK_GB: 0 of 90 used, 90 free" in said
    assert f"aggregates: {RACK} (rack-7); 2 hosts can use it" in said

    await berth_pool(world, "set", "nas", "--resource", "DISK_GB=200", "--resource", "IPV4_ADDRESS=3")
    said = capsys.readouterr().out
    assert "DISK_GB: 0 of 190 used" in said
    assert "IPV4_ADDRESS: 0 of 3 used" in said
    assert "traits: CUSTOM_FAST" in said

    await berth_pool(world, "set", "nas", "--name", "san", "--without", "IPV4_ADDRESS")
    assert "IPV4_ADDRESS" not in capsys.readouterr().out
    await berth_pool(world, "list")
    [row] = capsys.readouterr().out.splitlines()[1:]
    assert row.split()[:-1] == ["san", "DISK_GB", "0", "190", "2"]
    await berth_pool(world, "show", "san", "--json")
    assert json.loads(capsys.readouterr().out)["hosts"] == ["host-1", "host-2"]
    await berth_pool(world, "show", "san")
    assert "hosts: host-1, host-2" in capsys.readouterr().out

    await berth_pool(world, "delete", "san")
    with pytest.raises(CommandError, match="there is no pool san"):
        await berth_pool(world, "show", "san")


async def test_pools_become_what_a_fleet_file_says(
    world: ApplicationWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fleet(world)
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET)
    await berth_pool(world, "apply", "--fleet", str(file))
    assert capsys.readouterr().out.splitlines() == [f"{provider_id(name)}  {name}" for name in ("nas", "net")]
    there = (await world.get("/berth/v1/pools")).json["pools"]
    await berth_pool(world, "apply", "--fleet", str(file))
    assert (await world.get("/berth/v1/pools")).json["pools"] == there
    by_name = {one["name"]: one for one in there}
    assert by_name["net"]["inventories"]["IPV4_ADDRESS"]["capacity"] == 8
    assert (by_name["nas"]["hosts"], by_name["nas"]["traits"]) == (2, ["CUSTOM_FAST"])

    file.write_text(FLEET.replace("DISK_GB = 100", "DISK_GB = 150"))
    await berth_pool(world, "apply", "--fleet", str(file))
    nas = (await world.get(f"/berth/v1/pools/{provider_id('nas')}")).json["pool"]
    assert nas["inventories"]["DISK_GB"]["total"] == 150


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["create", "a", "--resource", "DISK_GB=1", "--aggregate", "rack-8"],
            "no aggregate is called rack-8",
        ),
        (["create", "a", "--resource", "DISK_GB:reserved=1"], "DISK_GB has no total"),
        (["create", "a", "--resource", "VCPU=1"], "VCPU is what hosts have"),
        (["set", "b", "--name", "c"], "there is no pool b"),
        (["apply", "--fleet", "nowhere.toml"], "cannot be read"),
    ],
)
async def test_what_is_refused(words: list[str], why: str, world: ApplicationWorld) -> None:
    await fleet(world)
    with pytest.raises(CommandError, match=why):
        await berth_pool(world, *words)


@pytest.mark.parametrize(
    "resource", ["disk=1", "DISK_GB", "DISK_GB=1.5", "DISK_GB:size=1", "DISK_GB=9999999999"]
)
def test_a_resource_that_cannot_be_read(resource: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pool", "create", "nas", "--resource", resource])
    assert resource in capsys.readouterr().err
