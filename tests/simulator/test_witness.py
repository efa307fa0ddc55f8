"""Each check of the witness, and of what users are shown, finds the bug that is planted for it."""

import random
from typing import Any

import msgspec
import pytest

from berth.agent.commands import CommandRunner
from berth.agent.state import AgentState
from berth.cell import saga_runs
from berth.cell.hosts import Heartbeats
from berth.cell.protocol import REPORT, AgentCommand
from berth.cell.units import choose_units
from berth.client import WireAnswer, WireRequest
from berth.engine.engine import Engine
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.saga_runs import Instance, SagaRun
from berth.model.servers import Server
from berth.sim.cloud import SimCloud
from berth.sim.nemesis import kill_host, outlive_conductor, outlive_worker
from berth.sim.profiles.lifecycle import (
    OPERATIONS,
    LifecycleProfile,
    abort,
    create,
    evacuate,
    look,
    make_fleet,
)
from berth.sim.simulation import Act, Simulation
from berth.sim.world import Process
from berth.view import View
from tests.simulator.planting import find_failure

MINUTES = 5


class OneFault(LifecycleProfile):
    """Users, and one kind of fault alone, often."""

    def __init__(self, *faults: Act) -> None:
        self._faults = faults

    def choices(self) -> list[tuple[float, str, Act]]:
        users: list[tuple[float, str, Act]] = [
            (20, "create", create),
            (10, "evacuate", evacuate),
            *OPERATIONS,
        ]
        return [*users, (5, "look", look), *((20, "fault", fault) for fault in self._faults)]


class FewHosts(OneFault):
    """Two hosts, and both have devices."""

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(seed=seed, fleet=make_fleet(2, every=1))


async def kill_at_report(simulation: Simulation, rng: random.Random) -> None:
    """A conductor dies when it is told of a command's outcome, and has not written it down."""
    cloud = simulation.cloud
    left = [True]

    def kill(source: str, request: WireRequest, response: WireAnswer, server: Process) -> None:
        cell = cloud.cells.get(server.name)
        if request.path == REPORT and cell is not None and cell.process is server and left:
            left.clear()
            simulation.world.call_later(0, cell.crash)

    cloud.network.answered.append(kill)


def test_a_command_that_is_carried_out_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = CommandRunner.take

    def take_again(self: CommandRunner, command: AgentCommand) -> bool:
        if command.id not in self._jobs:
            self._state.results.pop(command.id, None)
        return take(self, command)

    monkeypatch.setattr(CommandRunner, "take", take_again)
    expected = "which it has reported already"
    assert expected in find_failure(OneFault(kill_at_report), MINUTES, expected)


def test_a_command_that_comes_after_a_later_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentState, "fence_of", lambda self, server: (-1, 0))
    expected = "after a later command for server"
    assert expected in find_failure(OneFault(outlive_conductor), MINUTES, expected)


def test_what_is_released_while_it_is_on_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what a host is destroying is not listed any more, though its disk still has it."""
    monkeypatch.setattr("berth.sim.nemesis._BACK_FULL", 1)
    monkeypatch.setattr(CommandRunner, "being_destroyed", ())
    expected = "and is still on its disk"
    # Several are killed, evacuated, and back.
    assert expected in find_failure(OneFault(kill_host), 3 * MINUTES, expected)


def test_a_result_that_is_reported_before_it_is_on_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def save_nothing(self: CommandRunner) -> None: ...

    monkeypatch.setattr(CommandRunner, "_save", save_nothing)
    expected = "and its result is not on the disk"
    assert expected in find_failure(OneFault(), MINUTES, expected)


def test_a_host_that_is_marked_down_too_soon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a host is down that was not heard of between two of its polls."""

    def is_overdue(self: Heartbeats, host: str) -> bool:
        return self._clock.monotonic_ns() - self._heard_ns.get(host, self._hears_since_ns) > 5e9

    monkeypatch.setattr(Heartbeats, "_is_overdue", is_overdue)
    expected = "is marked down, and was heard of"
    assert expected in find_failure(OneFault(), MINUTES, expected)


def test_an_abort_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a cell does not note that a run is to be aborted."""
    monkeypatch.setattr(saga_runs, "abort_run", lambda view, id: None)
    expected = "is forgotten, and it goes on"
    assert expected in find_failure(OneFault(abort), MINUTES, expected)


def test_a_unit_that_two_servers_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: units that others have count as free, and no rule is against that."""

    def choose_any(provider: Any, kind: str, amount: int, taken: set[str], *arguments: Any) -> Any:
        return choose_units(provider, kind, amount, set(), *arguments)

    monkeypatch.setattr("berth.cell.assignments.choose_units", choose_any)
    monkeypatch.setattr("berth.ledger.assignments.judge", lambda view, command: None)
    expected = "is in two assignments"
    assert expected in find_failure(FewHosts(), MINUTES, expected)


def test_a_run_that_begins_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: with a run, a cell forgets the number of the last run that it has had for the server."""
    remove_finished = saga_runs.remove_finished

    def remove_and_forget(view: View, id: str) -> Enact | None:
        removed, run = remove_finished(view, id), view.records.get(SagaRun, id)
        instance = None if run is None else view.records.get(Instance, run.server)
        if removed is None or run is None or instance is None:
            return removed
        forgotten = msgspec.structs.replace(instance, last=run.number - 1)
        return Enact((*removed.changes, RecordChanged(instance, forgotten)))

    monkeypatch.setattr(saga_runs, "remove_finished", remove_and_forget)
    expected = "begins again after its end"
    assert expected in find_failure(OneFault(outlive_worker), MINUTES, expected)


def test_a_server_that_is_shown_as_it_was_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a worker answers without looking for what others have written."""
    read = Engine.read

    async def read_at_once(self: Engine, answer: Any) -> Any:
        is_region = self.view.records.count(Server) > 0
        return answer(self.view) if is_region else await read(self, answer)

    monkeypatch.setattr(Engine, "read", read_at_once)
    expected = "is shown as"
    # The first seed finds no rest, and waits for it for hours.
    assert expected in find_failure(OneFault(), MINUTES, expected, 2)
