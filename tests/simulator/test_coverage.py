"""Each step of each saga is crashed, for each process that takes part in it, by the fixed seeds here."""

import pytest

from berth.agent.drivers import sim as sim_driver
from berth.ledger import remove_record
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.saga_runs import Outbox
from berth.region.cell_links import Dispatcher
from berth.sagas.saga import PLACEMENT, Saga, all_sagas
from berth.sim.coverage import Crash, Role, all_crashes
from berth.sim.profiles.steps import StepsProfile, list_crashes, list_seeds
from berth.sim.simulation import SeedOutcome, simulate


def play(seed: int, first: int | None = None) -> SeedOutcome:
    return simulate(StepsProfile(), seed, minutes=0, first=first)


@pytest.mark.parametrize("seed", list_seeds())
def test_every_crash_of_a_seed_happens_and_changes_no_ending(seed: int) -> None:
    outcome = play(seed)
    assert outcome.failure is None, "\n".join((outcome.failure, *outcome.trace[-40:]))
    missing = [str(crash) for crash in list_crashes(seed) if crash not in outcome.crashes]
    assert not missing, "\n".join(("did not happen:", *missing))


def test_the_seeds_play_the_whole_table() -> None:
    played = [crash for seed in list_seeds() for crash in list_crashes(seed)]
    assert sorted(played) == sorted(all_crashes())
    assert list_crashes(len(list_seeds())) == list_crashes(0)


def test_only_crashes_that_have_happened_are_told() -> None:
    none, one = play(0, first=0), play(0, first=1)
    assert none.failure is one.failure is None
    assert none.crashes == ()
    assert len(one.crashes) == 1
    assert f"crashes      {one.crashes[0]}" in "\n".join(one.trace)


# -- the table ----------------------------------------------------------------------------------

PHASES = {
    "create": "forward back alternate",
    "evacuate": "forward back alternate",
    "unshelve": "forward back alternate",
    "live_migrate": "forward back alternate",
    "migrate": "forward back alternate",
    "resize": "forward back alternate",
    "shelve": "forward back",
    "shelve_away": "forward back",
}
"""Of the steps of each saga; forward for those that are not named."""


def crashes_of(saga: str, role: Role) -> list[Crash]:
    return [crash for crash in all_crashes() if crash.saga == saga and crash.role == role]


def test_the_table_has_each_crash_once() -> None:
    assert len(set(all_crashes())) == len(all_crashes()) > 600


@pytest.mark.parametrize("saga", all_sagas(), ids=lambda saga: saga.name)
def test_a_conductor_dies_around_every_step(saga: Saga) -> None:
    found = crashes_of(saga.name, "conductor")
    names = [step.name for step in saga.steps]
    at_steps = [crash for crash in found if crash.step in names]
    assert {crash.phase for crash in at_steps} == set(PHASES.get(saga.name, "forward").split())
    for when in ("before", "after"):
        forward = [crash.step for crash in at_steps if (crash.phase, crash.when) == ("forward", when)]
        assert forward == names


@pytest.mark.parametrize("saga", all_sagas(), ids=lambda saga: saga.name)
def test_an_agent_and_a_worker_die_at_the_steps_that_are_theirs(saga: Saga) -> None:
    agents = {crash.step for crash in crashes_of(saga.name, "agent") if crash.phase == "forward"}
    workers = {crash.step for crash in crashes_of(saga.name, "region worker") if crash.phase == "forward"}
    assert agents == {step.name for step in saga.steps if step.at != PLACEMENT}
    at_placement = {step.name for step in saga.steps if step.at == PLACEMENT and step.do != "claimed"}
    assert workers - {"begin"} == at_placement
    assert ("begin" in workers) == (saga.task is not None)


# -- planted bugs -------------------------------------------------------------------------------


def test_a_command_that_cannot_be_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a hypervisor that refuses to send a server that it has sent."""
    monkeypatch.setitem(sim_driver._EFFECTS, "live_migrate", {"running": "outgoing"})
    seed = seed_of(Crash("agent", "live_migrate", "live migrate", "forward", "after"))
    failure = play(seed).failure
    assert failure is not None
    assert "agent dies after: live_migrate, live migrate, forward: expected" in failure


def test_a_run_that_is_lost_with_its_dispatcher_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the outbox is cleared before the cell has the run."""
    hand_over = Dispatcher._hand_over
    origin = Origin("", "dispatcher", None, "dispatcher")

    async def clear_first(self: Dispatcher, outbox: Outbox) -> None:
        await self._region.submit(
            lambda view, now_s: Enact((remove_record(view, outbox),)), origin, lambda view, changed: None
        )
        await hand_over(self, outbox)

    monkeypatch.setattr(Dispatcher, "_hand_over", clear_first)
    seed = seed_of(Crash("dispatcher", "stop", "hand over", "forward", "before"))
    failure = play(seed).failure
    assert failure is not None
    assert "never had it" in failure or "no end within" in failure


def seed_of(crash: Crash) -> int:
    """The seed that plays a crash."""
    return next(seed for seed in list_seeds() if crash in list_crashes(seed))
