"""The simulated hypervisor: what each verb makes of a server, once or twice, and how it misbehaves."""

import asyncio
from typing import get_args

import pytest
from anyio import wait_all_tasks_blocked

from berth.agent.drivers import DriverError
from berth.agent.drivers.behaviour import BehaviourError, Behaviours, Rule, SimBehaviour, read_behaviour
from berth.agent.drivers.sim import Disk, ServerState, SimDriver
from berth.runtime.ids import Ids
from berth.sagas.saga import Verb
from tests.unit.agent.conductors import QUICK, command, server_id

pytestmark = pytest.mark.fast

HOST = "host-0001"
LONG = SimBehaviour(build_seconds=3600, live_migrate_seconds=3600, other_seconds=3600)


def driver(disk: Disk, behaviour: SimBehaviour = QUICK, seed: int = 1) -> SimDriver:
    return SimDriver(HOST, disk, Behaviours(behaviour), Ids(seed).rng)


async def after(verb: Verb, before: ServerState | None, runs: bool = True) -> ServerState | None:
    """What a verb makes of a server; the same, if it is repeated."""
    disk: Disk = {} if before is None else {server_id(): before}
    sim = driver(disk)

    await sim.carry_out(command(verb, runs=runs))
    once = disk.get(server_id())
    await sim.carry_out(command(verb, runs=runs))
    assert disk.get(server_id()) == once
    assert set(sim.servers()) == set(disk)
    return disk.get(server_id())


@pytest.mark.parametrize(
    ("verb", "before", "expected"),
    [
        ("build", None, "running"),
        ("build", "incoming", "running"),
        ("destroy", None, None),
        ("destroy", "running", None),
        ("destroy", "incoming", None),
        ("destroy", "outgoing", None),
        ("prepare", None, "incoming"),
        ("prepare", "running", "running"),
        ("receive", "incoming", "running"),
        ("receive", "stopped", "stopped"),
        ("receive", "outgoing", "running"),
        ("send", "running", "outgoing"),
        ("send", "stopped", "outgoing"),
        ("resume", "outgoing", "running"),
        ("resume", "running", "running"),
        ("live_migrate", "running", "outgoing"),
        ("rebuild", "stopped", "running"),
        ("snapshot", "stopped", "stopped"),
        ("start", "stopped", "running"),
        ("stop", "running", "stopped"),
    ],
)
async def test_what_a_verb_makes_of_a_server(
    verb: Verb, before: ServerState | None, expected: ServerState | None
) -> None:
    assert await after(verb, before) == expected


@pytest.mark.parametrize(
    ("verb", "before"),
    [("build", None), ("receive", "incoming"), ("resume", "outgoing"), ("rebuild", "running")],
)
async def test_a_server_that_is_not_to_run_is_stopped(verb: Verb, before: ServerState | None) -> None:
    assert await after(verb, before, runs=False) == "stopped"


@pytest.mark.parametrize("verb", sorted(set(get_args(Verb)) - {"build", "destroy", "prepare"}))
async def test_what_is_not_there_cannot_be_worked_on(verb: Verb) -> None:
    disk: Disk = {}
    with pytest.raises(DriverError) as refusal:
        await driver(disk).carry_out(command(verb))
    assert str(refusal.value) == f"{verb} cannot be done: the server {server_id()} is not on the host {HOST}"
    assert disk == {}


async def test_what_is_in_the_wrong_state_is_refused_by_it() -> None:
    with pytest.raises(DriverError, match=r"live_migrate cannot be done: the server .* is stopped on host"):
        await driver({server_id(): "stopped"}).carry_out(command("live_migrate"))


@pytest.mark.parametrize("verb", ["build", "live_migrate", "stop"])
async def test_what_takes_long_can_be_aborted_and_has_done_nothing(verb: Verb) -> None:
    disk: Disk = {server_id(): "running"} if verb != "build" else {}
    before = dict(disk)
    sim = driver(disk, LONG)

    task = asyncio.create_task(sim.carry_out(command(verb)))
    await asyncio.sleep(0)
    sim.abort(server_id(2))
    await asyncio.sleep(0)
    assert not task.done()
    sim.abort(server_id())
    with pytest.raises(DriverError, match="aborted"):
        await task
    assert disk == before


async def carried_out(behaviour: SimBehaviour, count: int, seed: int = 1) -> list[bool]:
    """Which of so many builds succeed."""
    sim = driver({}, behaviour, seed)
    return [await builds(sim) for _ in range(count)]


async def builds(sim: SimDriver) -> bool:
    try:
        await sim.carry_out(command("build"))
    except DriverError:
        return False
    return True


async def test_failures_come_by_rate_and_the_same_with_the_same_seed() -> None:
    behaviour = SimBehaviour(build_seconds=0, failure_rate=0.3)
    luck = await carried_out(behaviour, 200)
    assert 90 < sum(luck) < 190
    assert await carried_out(behaviour, 200) == luck
    assert await carried_out(behaviour, 200, seed=2) != luck


async def test_the_rate_of_a_verb_is_in_place_of_the_overall_one() -> None:
    spared = SimBehaviour(build_seconds=0, failure_rate=1, failure_rates={"build": 0})
    assert await carried_out(spared, 20) == [True] * 20
    struck = SimBehaviour(build_seconds=0, failure_rate=0, failure_rates={"build": 1, "stop": 0})
    assert await carried_out(struck, 20) == [False] * 20


async def outcome(rule: Rule, verb: Verb = "build", name: str = "web-1") -> str | None:
    sim = driver({}, SimBehaviour(build_seconds=0, other_seconds=0, rules=(rule,)))
    try:
        await sim.carry_out(command(verb, name=name))
    except DriverError as error:
        return str(error)
    return None


async def test_a_rule_fails_what_it_matches_and_nothing_else() -> None:
    rule = Rule(outcome="fail", verb="build", server="web-*", host="host-*", message="no disk left")
    assert await outcome(rule) == "no disk left"
    assert await outcome(rule, name="db-1") is None
    assert await outcome(rule, verb="prepare") is None
    assert await outcome(Rule(outcome="fail", host="other-*")) is None
    assert await outcome(Rule(outcome="fail", server=server_id(), message="by its id")) == "by its id"


async def test_a_rule_with_a_count_applies_so_often_and_the_count_survives_a_change() -> None:
    rule = Rule(outcome="fail", message="as ruled", times=3)
    behaviours = Behaviours(SimBehaviour(build_seconds=0, rules=(rule,)))
    sim = SimDriver(HOST, {}, behaviours, Ids(1).rng)

    assert [await builds(sim), await builds(sim)] == [False, False]
    behaviours.replace(SimBehaviour(build_seconds=0, rules=(Rule(outcome="fail", verb="stop"), rule)))
    assert [await builds(sim), await builds(sim)] == [False, True]
    behaviours.replace(SimBehaviour(build_seconds=0))
    behaviours.replace(SimBehaviour(build_seconds=0, rules=(rule,)))
    assert not await builds(sim)


async def test_what_hangs_never_ends_until_it_is_aborted() -> None:
    disk: Disk = {}
    sim = driver(disk, SimBehaviour(build_seconds=0, rules=(Rule(outcome="hang"),)))

    task = asyncio.create_task(sim.carry_out(command("build")))
    await wait_all_tasks_blocked()
    assert not task.done()
    sim.abort(server_id())
    with pytest.raises(DriverError, match="aborted"):
        await task
    assert disk == {}


async def test_what_is_late_is_done_all_the_same() -> None:
    disk: Disk = {}
    sim = driver(disk, SimBehaviour(build_seconds=0, rules=(Rule(outcome="late", seconds=0.05),)))

    task = asyncio.create_task(sim.carry_out(command("build")))
    await asyncio.sleep(0)
    assert disk == {}
    await task
    assert disk == {server_id(): "running"}


def test_a_behaviour_is_read_from_toml() -> None:
    text = b"""
        build_seconds = 2
        dead = ["host-9*"]
        [failure_rates]
        build = 0.05
        [[rules]]
        verb = "stop"
        outcome = "late"
        seconds = 5
    """
    behaviour = read_behaviour(text)
    assert behaviour == SimBehaviour(
        build_seconds=2,
        dead=("host-9*",),
        failure_rates={"build": 0.05},
        rules=(Rule(outcome="late", verb="stop", seconds=5),),
    )
    assert behaviour.is_dead("host-91")
    assert not behaviour.is_dead("host-81")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"build_second = 1", "unknown field `build_second`"),
        (b"failure_rate = 1.5", "<= 1"),
        (b"build_seconds = -1", ">= 0"),
        (b"[failure_rates]\nbiuld = 0.1", "biuld"),
        (b'[[rules]]\noutcome = "explode"', "explode"),
        (b"build_seconds = ", "Invalid"),
        (b"\xff", "codec"),
    ],
)
def test_what_is_no_behaviour_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(BehaviourError, match=why):
        read_behaviour(text)
