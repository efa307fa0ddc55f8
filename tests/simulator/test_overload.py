"""Far more requests than can be served: what must hold does; and planted bugs are found."""

import asyncio
from typing import Any

import pytest

from berth.engine.engine import Engine, Overloaded
from berth.main import make_engine
from berth.sim.profiles import PROFILES
from berth.sim.simulation import SeedOutcome, simulate

MINUTES = 3
SEEDS = (1, 2)


def play(seed: int) -> SeedOutcome:
    return simulate(PROFILES["overload"], seed, minutes=MINUTES)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_too_much_is_refused_and_served_later(seed: int) -> None:
    outcome = play(seed)
    assert outcome.failure is None, "\n".join((outcome.failure, *outcome.trace[-40:]))
    assert outcome.counts["refused: commands"] > 50
    assert outcome.counts["refused: bytes"] > 0


# -- planted bugs -------------------------------------------------------------------------------


def test_a_queue_without_a_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_patient(*arguments: Any, **options: Any) -> Engine:
        engine = make_engine(*arguments, **options)
        engine._queue_max = engine._queue_bytes_max = 1 << 40
        return engine

    monkeypatch.setattr("berth.sim.cloud.make_engine", make_patient)
    assert "bytes in its queue" in str(play(1).failure)


def test_a_refusal_that_comes_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Engine.submit

    async def submit_slowly(self: Engine, *arguments: Any) -> Any:
        try:
            return await submit(self, *arguments)
        except Overloaded:
            await asyncio.sleep(1)
            raise

    monkeypatch.setattr(Engine, "submit", submit_slowly)
    assert "was refused after 1." in str(play(1).failure)


def test_a_refusal_that_does_not_say_when_to_come_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.api.kernel.problem.RETRY_SOON", ())
    assert "not told when to come again" in str(play(1).failure)


def test_an_engine_that_refuses_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Engine.submit
    sulking: list[Engine] = []

    async def submit_once(self: Engine, *arguments: Any) -> Any:
        if self in sulking:
            raise Overloaded("16 commands are queued already")
        try:
            return await submit(self, *arguments)
        except Overloaded:
            sulking.append(self)
            raise

    monkeypatch.setattr(Engine, "submit", submit_once)
    monkeypatch.setattr("berth.sim.profiles.overload.SERVED_S", 60.0)
    assert "was sent away for 60 s" in str(play(1).failure)


def test_commands_that_are_put_off_and_forgotten_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Engine, waiting: list[Any], number: int) -> None:
        del waiting[number:]

    monkeypatch.setattr(Engine, "_put_off", forget)
    # Those who asked are gone, and what waits for their answers is not.
    assert "tasks" in str(play(1).failure)


def test_a_command_that_is_answered_and_not_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drop(self: Engine, batch: Any, tried: dict[str, list[Any]]) -> list[Any]:
        self._take_back(batch)
        return tried[batch.id]

    monkeypatch.setattr(Engine, "_append", drop)
    assert "and it is not in the journal" in str(play(1).failure)
