"""A simulation ends, and nothing is left of it that could still do something while another is played."""

import asyncio
import random
import weakref

import pytest

from berth.agent.host import HostAgent
from berth.sim.profiles import PROFILES
from berth.sim.profiles.claims import ClaimsProfile
from berth.sim.simulation import Act, Simulation, simulate


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


class Endless(ClaimsProfile):
    """One of its acts, or its preparation, does not end."""

    def __init__(self, *, act: Act | None = None, prepares: bool = True) -> None:
        self._act = act
        self._prepares = prepares

    async def prepare(self, simulation: Simulation) -> None:
        await super().prepare(simulation)
        while not self._prepares:
            await asyncio.sleep(60)

    def choices(self) -> list[tuple[float, str, Act]]:
        return [(1, "wait", self._act)] if self._act is not None else super().choices()


async def wait_for_ever(simulation: Simulation, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(60)


async def spin_for_ever(simulation: Simulation, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("profile", "failure"),
    [
        (Endless(prepares=False), "the profile has not prepared in time"),
        (Endless(act=wait_for_ever), "an action has not ended in time"),
        (Endless(act=spin_for_ever), "callbacks have run since"),
    ],
)
def test_a_simulation_that_would_not_end_fails(
    profile: Endless, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.sim.simulation.REST_S", 300)
    monkeypatch.setattr("berth.sim.loop.EVENTS_A_MINUTE_MAX", 50_000)
    outcome = simulate(profile, 1, minutes=0.5)
    assert outcome.failure is not None
    assert failure in outcome.failure
    assert sum("FAILED" in line for line in outcome.trace) == 1


def test_a_cloud_that_does_not_come_up_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no host registers."""

    async def do_nothing(self: HostAgent) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(HostAgent, "run", do_nothing)
    outcome = simulate(PROFILES["lifecycle"], 1, minutes=0.5)
    assert outcome.failure == "the cloud is not up in time"
