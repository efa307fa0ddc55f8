"""Many hosts in one process, controlled through a folder while they run."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from berth.agent.drivers.behaviour import SimBehaviour
from berth.agent.fleet import simulated_fleet
from berth.agent.process import (
    REGISTRATIONS_MAX,
    AgentSettings,
    ControlError,
    break_host,
    heal_host,
    run_agents,
)
from berth.agent.state import AgentState, StateError, state_path
from berth.cell.protocol import Poll
from tests.unit.agent.conductors import PACE, QUICK, FakeConductor, command, served, server_id
from tests.waiting import until


def settings(url: str, data: Path, hosts: int = 2, behaviour: SimBehaviour = QUICK) -> AgentSettings:
    return AgentSettings(
        conductor=url,
        data=data,
        hosts=tuple(simulated_fleet(hosts)),
        token="secret",
        behaviour=behaviour,
        seed=1,
        pace=PACE,
    )


@contextlib.asynccontextmanager
async def running(given: AgentSettings) -> AsyncIterator[None]:
    """Agents at work; in the end they are told to stop, and do."""
    stop = asyncio.Event()
    task = asyncio.create_task(run_agents(given, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def polls_of(conductor: FakeConductor, host: str) -> list[Poll]:
    """What a host says from now on, when it has said something."""
    before = len(conductor.polls)
    await until(lambda: any(poll.host == host for poll in conductor.polls[before:]))
    return [poll for poll in conductor.polls[before:] if poll.host == host]


async def test_five_hundred_hosts_register_a_few_at_a_time(tmp_path: Path) -> None:
    conductor = FakeConductor(heartbeat_timeout_s=6)
    async with served(conductor) as url:
        # They wait long for news: this is about how they register.
        pace = PACE._replace(poll_longest=2)
        given = msgspec.structs.replace(settings(url, tmp_path, hosts=500), pace=pace)
        async with running(given):
            await until(lambda: len(conductor.registered) == 500)
            assert await conductor.have(command("build"), given.hosts[499]) is None
    assert 1 < conductor.at_once_most <= REGISTRATIONS_MAX
    assert conductor.tokens == {"secret"}
    assert AgentState(state_path(tmp_path, "host-0500")).disk == {server_id(): "running"}


async def test_a_host_that_dies_is_silent_and_comes_back_with_what_it_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "berth.agent")

    conductor = FakeConductor(heartbeat_timeout_s=0.3)
    async with served(conductor) as url:
        given = settings(url, tmp_path, behaviour=SimBehaviour(build_seconds=0, other_seconds=3600))
        one, other = given.hosts
        async with running(given):
            assert await conductor.have(command("build"), one) is None
            stopping = asyncio.create_task(conductor.have(command("stop", fence=(2, 0)), one))
            await until(lambda: any(poll.busy for poll in conductor.polls))
            break_host(tmp_path, one.name)
            await until(lambda: "host-0001 is dead" in caplog.text)
            before = len(conductor.polls)
            await polls_of(conductor, other.id)
            await polls_of(conductor, other.id)
            assert all(poll.host == other.id for poll in conductor.polls[before:])
            conductor.registered.pop(one.id)
            heal_host(tmp_path, one.name)
            await until(lambda: one.id in conductor.registered)
            # The power was cut while it was being stopped: it was not, and that is to be done again.
            assert conductor.registered[one.id].servers == (server_id(),)
            assert AgentState(state_path(tmp_path, one.name)).disk == {server_id(): "running"}
            await until(lambda: any(poll.busy for poll in conductor.polls[-2:]))
            stopping.cancel()


async def test_a_host_that_was_broken_while_nobody_ran_it_starts_dead(tmp_path: Path) -> None:
    conductor = FakeConductor()
    async with served(conductor) as url:
        given = settings(url, tmp_path)
        one, other = given.hosts
        async with running(given):
            await until(lambda: len(conductor.registered) == 2)
        break_host(tmp_path, one.name)
        conductor.registered.clear()
        conductor.polls.clear()
        async with running(given):
            await polls_of(conductor, other.id)
            assert set(conductor.registered) == {other.id}
        assert {poll.host for poll in conductor.polls} == {other.id}


async def test_a_behaviour_is_followed_while_they_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "berth.agent")
    path = tmp_path / "control" / "behaviour.toml"

    conductor = FakeConductor(heartbeat_timeout_s=0.3)
    async with served(conductor) as url:
        given = settings(url, tmp_path)
        one, other = given.hosts
        async with running(given):
            assert await conductor.have(command("build", fence=(1, 0)), one) is None
            path.parent.mkdir()
            path.write_text('[[rules]]\noutcome = "fail"\nmessage = "out of luck"\n')
            await until(lambda: "behave as" in caplog.text)
            assert await conductor.have(command("build", fence=(2, 0)), one) == "out of luck"
            # What cannot be read changes nothing.
            path.write_text("failure_rate = 7")
            await until(lambda: "ignored, the behaviour is unchanged" in caplog.text)
            assert await conductor.have(command("build", fence=(3, 0)), one) == "out of luck"
            path.write_text(f'dead = ["{one.name}"]\n')
            await until(lambda: "host-0001 is dead" in caplog.text)
            assert await conductor.have(command("build", fence=(1, 0)), other) is None
            path.unlink()
            await polls_of(conductor, one.id)
            assert await conductor.have(command("build", fence=(4, 0)), one) is None


def test_a_host_that_is_not_there_cannot_be_broken(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match=r"no simulated host 'host-0001' in .*: no agent has kept"):
        break_host(tmp_path, "host-0001")
    (tmp_path / "hosts").mkdir()
    for number in range(7):
        state_path(tmp_path, f"host-000{number}").write_text("{}")
    known = "there are host-0000, host-0001, host-0002, host-0003, host-0004, ..."
    for name in ("host-0008", "../hosts/host-0001", ""):
        with pytest.raises(ControlError) as refusal:
            break_host(tmp_path, name)
        assert known in str(refusal.value)
        with pytest.raises(ControlError):
            heal_host(tmp_path, name)
    # To heal one that is well is no mistake.
    heal_host(tmp_path, "host-0001")


async def test_a_state_that_cannot_be_read_or_written_ends_the_start(tmp_path: Path) -> None:
    given = settings("http://127.0.0.1:1", tmp_path)
    path = state_path(tmp_path, "host-0002")
    path.parent.mkdir()
    path.write_text("no")
    with pytest.raises(StateError, match=r"host-0002\.json: this is not the state of a host"):
        await run_agents(given, asyncio.Event())
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"host-0001\.json: the host's state cannot be "):
        await run_agents(settings("http://127.0.0.1:1", tmp_path / "file"), asyncio.Event())


PROGRAM = """
import sys
from pathlib import Path
from berth.agent.fleet import simulated_fleet
from berth.agent.process import AgentSettings, serve_agents
url, data = sys.argv[1:]
sys.exit(serve_agents(AgentSettings(conductor=url, data=Path(data), hosts=tuple(simulated_fleet(3)))))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_of_agents_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    conductor = FakeConductor()
    async with served(conductor) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, url, str(tmp_path)), stderr=subprocess.PIPE
        )
        try:
            await until(lambda: len(conductor.registered) == 3)
            os.kill(process.pid, number)
            _, said = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert process.returncode == 0
        assert b"agents of 3 hosts" in said
        assert b'"message":"stopped"' in said
        assert b"ERROR" not in said
