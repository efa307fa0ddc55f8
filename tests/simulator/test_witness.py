"""A check of the witness finds the bug that is planted for it."""

import pytest

from berth.agent.commands import CommandRunner
from berth.cell.protocol import AgentCommand
from berth.sim.nemesis import kill_at_write
from berth.sim.profiles.lifecycle import OPERATIONS, LifecycleProfile, create, evacuate, look
from berth.sim.simulation import Act
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


def test_a_command_that_is_carried_out_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = CommandRunner.take

    def take_again(self: CommandRunner, command: AgentCommand) -> bool:
        if command.id not in self._jobs:
            self._state.results.pop(command.id, None)
        return take(self, command)

    monkeypatch.setattr(CommandRunner, "take", take_again)
    expected = "which it has reported already"
    assert expected in find_failure(OneFault(kill_at_write), MINUTES, expected)
