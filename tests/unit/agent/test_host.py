"""An agent and its conductor over a real socket: commands, fences, aborts, leftovers, and the death of
either."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from berth.agent import state
from berth.agent.commands import SUPERSEDED
from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.agent.state import AgentState, StateError
from berth.cell import protocol
from berth.cell.protocol import Leftover, Poll
from berth.serving.asgi import Send
from tests.servers import free_port
from tests.unit.agent.conductors import (
    THE_HOST,
    AgentHost,
    FakeConductor,
    command,
    served,
    server_id,
    world,
)
from tests.waiting import until

LAST = 1 << 62
HANGING = SimBehaviour(build_seconds=0, other_seconds=0, rules=(Rule(outcome="hang", server="slow-*"),))


async def test_a_command_is_carried_out_and_reported(tmp_path: Path) -> None:
    async with world(tmp_path) as (conductor, host):
        assert await conductor.have(command("build", fence=(1, 0))) is None
        assert host.state.disk == {server_id(): "running"}
        assert await conductor.have(command("stop", fence=(2, 0))) is None
        assert host.state.disk == {server_id(): "stopped"}
        error = await conductor.have(command("live_migrate", fence=(3, 0)))
        assert error is not None
        assert "is stopped on host-0001" in error
        assert conductor.registered[THE_HOST.id].providers[0].name == "host-0001"
        assert conductor.tokens == {"secret"}
        await until(lambda: conductor.polls[-1].servers == (server_id(),))


async def test_commands_of_several_servers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with world(tmp_path, HANGING) as (conductor, _):
        stuck = asyncio.create_task(conductor.have(command("build", "a", name="slow-1")))
        await until(lambda: any("a" in poll.busy for poll in conductor.polls))
        assert await conductor.have(command("build", "b", server=server_id(2))) is None
        assert not stuck.done()
        stuck.cancel()


async def test_a_later_command_stops_an_earlier_one(tmp_path: Path) -> None:
    async with world(tmp_path, HANGING) as (conductor, host):
        hanging = asyncio.create_task(conductor.have(command("build", name="slow-1", fence=(1, 2))))
        await until(lambda: any(poll.busy for poll in conductor.polls))
        assert await conductor.have(command("destroy", fence=(1, 5))) is None
        assert await hanging == SUPERSEDED
        assert host.state.disk == {}


async def test_an_earlier_command_that_comes_late_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as (conductor, host):
        assert await conductor.have(command("destroy", fence=(2, 0))) is None
        assert await conductor.have(command("build", fence=(1, 9))) == SUPERSEDED
        assert host.state.disk == {}
        # Other servers have fences of their own.
        assert await conductor.have(command("build", "other", fence=(1, 0), server=server_id(2))) is None


async def test_commands_in_one_answer_are_judged_by_their_fences(tmp_path: Path) -> None:
    conductor = FakeConductor()
    async with served(conductor) as url:
        waiting = [
            asyncio.create_task(conductor.have(command("build", fence=(1, 7)))),
            asyncio.create_task(conductor.have(command("prepare", fence=(1, 3)))),
        ]
        await asyncio.sleep(0)
        host = AgentHost(tmp_path, url)
        host.start()
        assert await asyncio.gather(*waiting) == [None, SUPERSEDED]
        assert host.state.disk == {server_id(): "running"}
        await host.kill()


async def test_a_command_that_is_aborted_is_given_up(tmp_path: Path) -> None:
    behaviour = SimBehaviour(build_seconds=0, live_migrate_seconds=3600)

    async with world(tmp_path, behaviour) as (conductor, host):
        await conductor.have(command("build", fence=(1, 0)))
        moving = asyncio.create_task(conductor.have(command("live_migrate", "move", fence=(2, 0))))
        await until(lambda: any("move" in poll.busy for poll in conductor.polls))
        conductor.mailbox.abort(THE_HOST.id, "move")
        assert await moving == "aborted"
        assert host.state.disk == {server_id(): "running"}


async def test_a_command_is_not_carried_out_twice(tmp_path: Path) -> None:
    async with world(tmp_path) as (conductor, host):
        assert await conductor.have(command("build", "first", fence=(1, 0))) is None
        assert await conductor.have(command("destroy", "second", fence=(1, 1))) is None
        assert await conductor.have(command("build", "first", fence=(1, 0))) is None
        assert host.state.disk == {}
        assert [report.command for report in conductor.reports] == ["first", "second", "first"]


async def test_a_restart_keeps_what_is_there_and_what_was_done(tmp_path: Path) -> None:
    async with world(tmp_path, HANGING) as (conductor, host):
        await conductor.have(command("build", "build", fence=(3, 0)))
        refused = await conductor.have(command("receive", "gone", fence=(1, 0), server=server_id(2)))
        await host.kill()
        host.start()
        assert host.state.disk == {server_id(): "running"}
        assert await conductor.have(command("build", "build", fence=(3, 0))) is None
        assert await conductor.have(command("receive", "gone", fence=(1, 0), server=server_id(2))) == refused
        assert await conductor.have(command("destroy", "old", fence=(2, 9))) == SUPERSEDED
        assert host.state.disk == {server_id(): "running"}
        assert conductor.registered[THE_HOST.id].servers == (server_id(),)


async def test_a_command_that_the_agent_died_over_is_handed_out_and_done_again(tmp_path: Path) -> None:
    async with world(tmp_path, HANGING) as (conductor, host):
        waiting = asyncio.create_task(conductor.have(command("build", name="slow-1")))
        await until(lambda: any(poll.busy for poll in conductor.polls))
        await host.kill()
        assert conductor.reports == []
        host.behaviours.replace(SimBehaviour(build_seconds=0))
        host.start()
        assert await waiting is None
        assert host.state.disk == {server_id(): "running"}


async def test_a_result_is_durable_before_it_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path) as (conductor, host):
        conductor.answers[protocol.REPORT] = [500] * 10_000
        waiting = asyncio.create_task(conductor.have(command("build", "build")))
        await until(lambda: len(conductor.answers[protocol.REPORT]) < 10_000)
        await host.kill()
        kept = AgentState(state.state_path(tmp_path, THE_HOST.name))
        assert kept.results == {"build": None}
        assert kept.disk == {server_id(): "running"}
        conductor.answers.clear()
        # What it would do now would fail: it is reported as done because it was.
        host.behaviours.replace(SimBehaviour(failure_rate=1))
        host.start()
        assert await waiting is None


async def test_a_result_is_reported_until_it_is_taken_and_not_handed_out_meanwhile(tmp_path: Path) -> None:
    async with world(tmp_path) as (conductor, _):
        conductor.answers[protocol.REPORT] = [503, 500, 401, 503]
        assert await conductor.have(command("build", "build")) is None
        assert conductor.answers[protocol.REPORT] == []
        assert [report.command for report in conductor.reports] == ["build"]


async def test_leftovers_are_destroyed_unless_there_was_a_later_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as (conductor, host):
        await conductor.have(command("build", "a", fence=(1, 3)))
        await conductor.have(command("build", "b", fence=(3, 0), server=server_id(2)))
        conductor.leftovers = (
            Leftover(server=server_id(1), fence=(2, LAST)),
            Leftover(server=server_id(2), fence=(2, LAST)),
        )
        await until(lambda: host.state.disk == {server_id(2): "running"})
        conductor.leftovers = ()
        polls = len(conductor.polls)
        await until(lambda: len(conductor.polls) > polls + 1)
        assert host.state.disk == {server_id(2): "running"}
        assert "could not be destroyed" not in caplog.text
        # What was destroyed is not built by an earlier command.
        assert await conductor.have(command("build", "late", fence=(2, 1))) == SUPERSEDED


async def test_a_leftover_that_cannot_be_destroyed_is_tried_again(tmp_path: Path) -> None:
    failing = SimBehaviour(
        build_seconds=0, other_seconds=0, rules=(Rule(outcome="fail", verb="destroy", times=2),)
    )

    async with world(tmp_path, failing) as (conductor, host):
        await conductor.have(command("build"))
        conductor.leftovers = (Leftover(server=server_id(), fence=(2, LAST)),)
        await until(lambda: host.state.disk == {})
        # Known by the polls alone: nobody waits for a report of it.
        assert [report.command for report in conductor.reports] == ["build (1, 0)"]


class DistantConductor(FakeConductor):
    """Its answers take longer than it takes to destroy a server."""

    async def _poll(self, poll: Poll, send: Send) -> None:
        await asyncio.sleep(0.05)
        await super()._poll(poll, send)


async def test_a_leftover_is_destroyed_once_though_answers_that_name_it_come_later(tmp_path: Path) -> None:
    """Each answer was about a poll from before the server was gone, and began to destroy it once more: the
    host polled without a pause and was never clean."""
    conductor = DistantConductor()
    async with served(conductor) as url:
        host = AgentHost(tmp_path, url)
        host.start()
        await conductor.have(command("build"))
        conductor.leftovers = (Leftover(server=server_id(), fence=(2, LAST)),)
        await until(lambda: host.state.disk == {})
        polls = len(conductor.polls)
        await until(lambda: len(conductor.polls) > polls + 3)
        assert conductor.polls[-1].servers == ()
        await host.kill()


async def test_a_leftover_is_destroyed_once_though_the_result_of_its_command_is_not_reported_yet(
    tmp_path: Path,
) -> None:
    """The command was taken for one that may yet bring the server: each late answer began to destroy it once
    more."""
    conductor = DistantConductor()
    conductor.answers = {protocol.REPORT: [503] * 10_000}
    async with served(conductor) as url:
        host = AgentHost(tmp_path, url)
        host.start()
        building = asyncio.create_task(conductor.have(command("build")))
        await until(lambda: host.state.results)
        conductor.leftovers = (Leftover(server=server_id(), fence=(2, LAST)),)
        await until(lambda: host.state.disk == {})
        polls = len(conductor.polls)
        await until(lambda: len(conductor.polls) > polls + 3)
        assert conductor.polls[-1].servers == ()
        building.cancel()
        await host.kill()


async def test_polls_that_are_answered_at_once_do_not_follow_one_another_at_once(tmp_path: Path) -> None:
    behaviour = SimBehaviour(build_seconds=0, rules=(Rule(outcome="hang", verb="destroy"),))

    async with world(tmp_path, behaviour) as (conductor, _):
        await conductor.have(command("build"))
        conductor.leftovers = (Leftover(server=server_id(), fence=(2, LAST)),)
        before, started_s = len(conductor.polls), asyncio.get_running_loop().time()
        await until(lambda: len(conductor.polls) >= before + 6)
        # Each pause is twice the one before, from 0.02 s on.
        assert asyncio.get_running_loop().time() - started_s > 0.02 + 0.04 + 0.08 + 0.16


async def test_a_host_that_is_not_known_registers_again(tmp_path: Path) -> None:
    async with world(tmp_path) as (conductor, _):
        await conductor.have(command("build"))
        conductor.registered.clear()
        await until(lambda: THE_HOST.id in conductor.registered)
        assert conductor.registered[THE_HOST.id].servers == (server_id(),)


async def test_a_conductor_that_refuses_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conductor = FakeConductor()
    conductor.answers = {protocol.REGISTER: [503, 401, 404], protocol.POLL: [500, 409]}
    async with served(conductor) as url:
        host = AgentHost(tmp_path, url)
        host.start()
        assert await conductor.have(command("build")) is None
        await host.kill()
    assert "host-0001: registration refused: /agent/v1/register: 401: as the test wants it" in caplog.text
    assert "host-0001: poll refused: /agent/v1/poll: 409" in caplog.text
    assert "503" not in caplog.text


async def test_a_conductor_may_come_late_go_and_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    host = AgentHost(tmp_path, f"http://127.0.0.1:{port}")
    host.start()
    await until(lambda: "the conductor: unreachable, retrying: " in caplog.text)
    first = FakeConductor(heartbeat_timeout_s=0.3)
    async with served(first, port):
        assert await first.have(command("build", "build")) is None
    # Its successor knows nobody.
    second = FakeConductor()
    async with served(second, port):
        assert await second.have(command("stop", "stop", fence=(2, 0))) is None
        assert await second.have(command("build", "build")) is None
        assert host.state.disk == {server_id(): "stopped"}
        await host.kill()


async def test_results_and_fences_are_bounded(tmp_path: Path) -> None:
    path = state.state_path(tmp_path, "host-0001")
    kept = AgentState(path)
    kept.disk[server_id(0)] = "running"
    count = max(state.RESULTS_MAX, state.FENCES_MAX) + 10
    for number in range(count):
        kept.note_result(str(number), None)
        kept.note_fence(server_id(number), (1, number))
    await kept.save()
    again = AgentState(path)
    assert len(again.results) == state.RESULTS_MAX
    assert str(count - 1) in again.results
    # That of a server that is here stays, however old it is.
    assert again.fence_of(server_id(0)) == (1, 0)
    assert again.fence_of(server_id(1)) == (-1, 0)
    assert again.fence_of(server_id(count - 1)) == (1, count - 1)


async def test_saves_that_come_together_are_one_and_none_is_lost(tmp_path: Path) -> None:
    path = state.state_path(tmp_path, "host-0001")
    kept = AgentState(path)

    async def note(number: int) -> None:
        kept.note_result(str(number), None)
        await kept.save()
        assert str(number) in AgentState(path).results

    await asyncio.gather(*(note(number) for number in range(20)))
    # One that is cancelled half-way leaves a whole file behind.
    task = asyncio.create_task(note(100))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await note(101)
    assert set(AgentState(path).results) == {*map(str, range(20)), "100", "101"}


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 2}', b'{"servers": {"x": "flying"}}'])
def test_a_state_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "host-0001.json"
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"host-0001\.json: this is not the state of a host"):
        AgentState(path)
