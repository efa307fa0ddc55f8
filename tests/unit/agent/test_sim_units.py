"""The simulated hypervisor and units: it gives a server what the command says, refuses what is not there or
taken, and remembers."""

import asyncio

import msgspec
import pytest

from berth.agent.drivers import DriverError
from berth.agent.drivers.behaviour import Behaviours, SimBehaviour
from berth.agent.drivers.sim import Disk, SimDriver, UnitsOnDisk
from berth.cell.protocol import AgentCommand, ReportedInventory, ReportedProvider
from berth.model.saga_runs import Units
from berth.runtime.ids import Ids
from berth.sagas.saga import Verb
from tests.unit.agent.conductors import QUICK, command, server_id

pytestmark = pytest.mark.fast

CELL = "7d0a8e2b-3a53-4a1c-9d0c-000000000001"
TREE = (
    ReportedProvider(
        id=CELL,
        name="host-0001-numa0",
        inventories={"PCPU": ReportedInventory(total=4)},
        units={"PCPU": ("0", "1", "2", "3")},
    ),
)


def cpus(*names: str) -> Units:
    return {CELL: {"PCPU": names}}


def told(verb: Verb, units: Units, server: int = 1) -> AgentCommand:
    return msgspec.structs.replace(command(verb), server=server_id(server), units=units)


def driver(disk: Disk, units: UnitsOnDisk, behaviour: SimBehaviour = QUICK) -> SimDriver:
    return SimDriver("host-0001", disk, Behaviours(behaviour), Ids(1).rng, units, lambda: TREE)


async def test_units_stay_with_a_server_until_it_is_destroyed() -> None:
    disk: Disk = {}
    units: UnitsOnDisk = {}
    sim = driver(disk, units)
    await sim.carry_out(told("build", cpus("0", "1")))
    assert units == {server_id(): cpus("0", "1")}
    assert sim.units() == {server_id(): ("0", "1")}
    await sim.carry_out(told("stop", {}))
    await sim.carry_out(told("send", {}))
    assert units == {server_id(): cpus("0", "1")}
    # A resize that stays runs the server again, with other units.
    await sim.carry_out(told("resume", cpus("2", "3")))
    assert units == {server_id(): cpus("2", "3")}
    await sim.carry_out(told("destroy", {}))
    assert (disk, units) == ({}, {})


async def test_units_that_another_server_has_are_refused() -> None:
    units: UnitsOnDisk = {}
    sim = driver({}, units)
    await sim.carry_out(told("prepare", cpus("0", "1"), server=2))
    with pytest.raises(DriverError, match="the unit 1 of PCPU on host-0001 is taken"):
        await sim.carry_out(told("build", cpus("1", "2")))
    assert server_id() not in sim.servers()
    await sim.carry_out(told("build", cpus("2", "3")))
    assert len(units) == 2


@pytest.mark.parametrize(
    ("units", "why"),
    [
        (cpus("4"), "the host host-0001 has no unit 4 of PCPU"),
        ({CELL: {"VGPU": ("0",)}}, "has no unit 0 of VGPU"),
        ({"elsewhere": {"PCPU": ("0",)}}, "has no unit 0 of PCPU in elsewhere"),
    ],
)
async def test_units_that_do_not_exist_are_refused(units: Units, why: str) -> None:
    sim = driver({}, {})
    with pytest.raises(DriverError, match=why):
        await sim.carry_out(told("build", units))
    assert not sim.servers()


async def test_of_two_builds_at_once_one_gets_the_unit() -> None:
    units: UnitsOnDisk = {}
    sim = driver({}, units, SimBehaviour(build_seconds=0.02))
    both = [sim.carry_out(told("build", cpus("0"), server=number)) for number in (2, 3)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert [isinstance(outcome, DriverError) for outcome in outcomes] == [False, True]
    assert list(units) == [server_id(2)]
