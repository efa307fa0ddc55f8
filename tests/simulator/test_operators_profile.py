"""Fixed seeds of the profile of operators; and each of its checks finds the bug that is planted for it."""

from collections.abc import Callable

import pytest

from berth.cell import providers
from berth.doctor import repairs
from berth.model.commands import Enact
from berth.sim.profiles import PROFILES
from berth.sim.simulation import simulate
from tests.simulator.planting import find_failure

SEEDS = [(1, 8), (2, 8), (3, 8)]


@pytest.mark.parametrize(("seed", "minutes"), SEEDS)
def test_every_check_holds(seed: int, minutes: float) -> None:
    outcome = simulate(PROFILES["operators"], seed, minutes=minutes)
    assert outcome.failure is None, "\n".join((outcome.failure, *outcome.trace[-40:]))
    assert outcome.counts["create"]
    assert outcome.counts["settings that stayed"]


def _take_over_inventories(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent writes its ratios and reserved amounts over those of operators."""
    monkeypatch.setattr(
        providers,
        "_merge_inventory",
        lambda kind, there, said, before: providers._format_inventory(said.inventories[kind]),
    )


def _repair_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "_REPAIRS", dict.fromkeys(repairs._REPAIRS, lambda *_: Enact(())))


def _overlook_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor takes whatever a server holds for what it should hold."""
    monkeypatch.setattr("berth.doctor.findings.same", lambda now, held: True)
    monkeypatch.setattr("berth.doctor.findings.holdings_elsewhere", lambda view, server, now: ())


def _overlook_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor takes no consumer for a server."""
    monkeypatch.setattr("berth.doctor.findings.INSTANCE", "ANOTHER")


_PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = [
    (_take_over_inventories, "an operator has set", 1),
    (_repair_nothing, "the doctor finds, after its repairs", 1),
    (_overlook_differences, "and its record says", 1),
    (_overlook_orphans, "has no record, and holds something", 2),
]


@pytest.mark.parametrize(("plant", "found", "seed"), _PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], found: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert found in find_failure("operators", 6, found, seed)
