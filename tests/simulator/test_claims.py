"""Clients of Placement: their answers fit the journal's history, and those of planted bugs do not."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from berth.engine import engine as engines
from berth.engine.engine import Engine
from berth.journal import Journal, Pruned
from berth.ledger import allocations
from berth.ledger.providers import advance_generation, find_at_generation
from berth.model.events import Batch
from berth.model.ids import Index
from berth.model.rejections import ProviderNotFound
from berth.sim.cloud import HousePace, SimCloud
from berth.sim.database import Trouble
from berth.sim.nemesis import trouble_database
from berth.sim.profiles import PROFILES, claims
from berth.sim.profiles.claims import ACTS, ClaimsProfile
from berth.sim.simulation import Act, Profile, SeedOutcome, Simulation, simulate

MINUTES = 3
SEEDS = (1, 2, 3)


def play(seed: int) -> SeedOutcome:
    return simulate(PROFILES["claims"], seed, minutes=MINUTES)


class OneFault(ClaimsProfile):
    """Clients, one kind of fault alone, and a journal that is kept short."""

    def __init__(self, fault: Act) -> None:
        self._fault = fault

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(seed=seed, cells=0, hosts=0, workers=2, housekeeping=HousePace(2, 2, 1))

    def choices(self) -> list[tuple[float, str, Act]]:
        return [*ACTS, (5, "fault", self._fault)]


async def hang_next_append(simulation: Simulation, rng: random.Random) -> None:
    left: list[Trouble] = ["hangs"]
    simulation.cloud.database.decide = lambda process, name, arguments: (
        left.pop() if name == "append" and left else None
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_fits_the_history(seed: int) -> None:
    outcome = play(seed)
    assert outcome.failure is None, "\n".join((outcome.failure, *outcome.trace[-40:]))


def failure(profile: Profile = PROFILES["claims"]) -> str:
    """What the first of a few seeds says that fails."""
    for seed in range(1, 11):
        found = simulate(profile, seed, minutes=MINUTES).failure
        if found is not None:
            return found
    pytest.fail("no seed finds it")


async def freeze_long(simulation: Simulation, rng: random.Random) -> None:
    """Until what comes next for it is pruned."""
    worker = rng.choice(simulation.cloud.workers)
    worker.freeze()
    await asyncio.sleep(20)
    worker.thaw()


# -- planted bugs -------------------------------------------------------------------------------


def test_a_read_without_a_look_at_the_journal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check_nothing(simulation: Simulation) -> None: ...

    monkeypatch.setattr(Engine, "_must_look", lambda self: False)
    # The event stream's client would find it before any answer is judged.
    monkeypatch.setattr(claims, "watch_events", lambda simulation: None)
    monkeypatch.setattr(claims, "check_events", check_nothing)
    assert "which nothing was at the time" in failure()


def test_a_read_of_what_is_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(self: Engine, answer: Any) -> Any:
        await self.look()
        return answer(self.view)

    monkeypatch.setattr(Engine, "read", read)
    assert "which nothing was at the time" in failure()


def test_an_answer_before_the_append_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Engine._decide

    async def decide_and_answer(self: Engine, waiting: Any, *, may_put_off: bool) -> Batch | None:
        batch = await decide(self, waiting, may_put_off=may_put_off)
        for pending in waiting:
            engines._settle(pending.future, pending.outcome)
        return batch

    monkeypatch.setattr(Engine, "_decide", decide_and_answer)
    # The append comes after the answer, if it comes at all.
    assert "and it is not in the journal" in failure()


def test_an_unknown_outcome_that_is_called_a_refusal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_UNKNOWN", engines._AWAY)
    monkeypatch.setattr(engines, "_LOST", engines._AWAY)
    assert "is in the journal, and was refused" in failure(OneFault(hang_next_append))


def test_a_batch_that_is_written_a_second_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    catch_up = Engine._catch_up
    monkeypatch.setattr(Engine, "_catch_up", lambda self, tried: catch_up(self, {}))
    found = failure(OneFault(trouble_database))
    # Or refused, because it is there already.
    assert "is in the journal twice" in found or "and it has written at" in found, found


def test_a_sleeper_that_does_not_notice_what_was_pruned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Journal.read

    def read_on(self: Journal, after: Index, count_max: int | None = None) -> Iterator[Batch]:
        try:
            yield from read(self, after, count_max)
        except Pruned:
            return

    monkeypatch.setattr(Journal, "read", read_on)
    assert "which nothing was at the time" in failure(OneFault(freeze_long))


def test_a_claim_with_an_old_generation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations, "_generation_conflict", lambda view, claim: None)
    assert "speaking against it were ['ConsumerGenerationConflict']" in failure()


def test_a_generation_that_advances_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        allocations,
        "advance_generation",
        lambda record, now_s, steps=1: advance_generation(record, now_s, steps + 1),
    )
    assert "it has not done what it asked for" in failure()


def test_a_refusal_without_a_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_or_not(view: Any, id: Any, generation: Any) -> Any:
        return ProviderNotFound(id) if generation == 1 else find_at_generation(view, id, generation)

    monkeypatch.setattr("berth.ledger.inventories.find_at_generation", find_or_not)
    assert "and nothing was against it" in failure()
