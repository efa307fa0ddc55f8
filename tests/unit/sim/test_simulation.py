"""What is left of a simulation: nothing that could still do something while another is played."""

import weakref

import pytest

from berth.sim.profiles import PROFILES
from berth.sim.simulation import Simulation, simulate


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_a_simulation(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[weakref.ref[object]] = []
    play = Simulation.play

    async def play_watched(self: Simulation, actions: list[object]) -> None:
        left.extend((weakref.ref(self), weakref.ref(self.cloud), weakref.ref(self.world.loop)))
        if fails:
            self.world.call_later(20, lambda: self.fail("planted"))
        await play(self, actions)  # type: ignore[arg-type]

    monkeypatch.setattr(Simulation, "play", play_watched)
    outcome = simulate(PROFILES["claims"], 1, minutes=1)
    assert (outcome.failure is not None) == fails, outcome.failure
    assert [alive for ref in left if (alive := ref()) is not None] == []
