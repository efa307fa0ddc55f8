"""Fixed seeds of the profile of upgrades; and each of its checks finds the bug that is planted for it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from berth.cell.protocol import PollAnswer
from berth.journal import schema
from berth.sim.database import Database
from berth.sim.profiles import PROFILES, upgrades
from berth.sim.simulation import simulate
from tests.simulator.planting import find_failure

SEEDS = [(1, 8), (2, 8), (3, 8)]


@pytest.mark.parametrize(("seed", "minutes"), SEEDS)
def test_every_check_holds(seed: int, minutes: float) -> None:
    outcome = simulate(PROFILES["upgrades"], seed, minutes=minutes)
    assert outcome.failure is None, "\n".join((outcome.failure, *outcome.trace[-40:]))
    assert outcome.counts["under way at the change"]
    assert outcome.counts["region: rows of the release before"]
    assert outcome.counts["region: rows of format 1"] >= outcome.counts["region: rows of the release before"]


class ChattyAnswer(PollAnswer, frozen=True, kw_only=True):
    hint: int = 0


def _tell_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conductor tells agents of version 1 what they do not know."""
    monkeypatch.setattr("berth.cell.hosts.PollAnswer", lambda **fields: ChattyAnswer(**fields, hint=1))


def _forget_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upgrade of a database adds no columns."""
    monkeypatch.setattr(schema, "_ADDED", ())


def _damage_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that no start reads, because a snapshot comes behind it, is damaged by the upgrade."""
    write: Callable[..., int] = upgrades.write_as_before

    def write_and_damage(database: Database, hosts: set[str]) -> int:
        rows = write(database, hosts)
        connection: sqlite3.Connection
        with closing(database.connect()) as connection:
            connection.execute("UPDATE journal SET body = x'c1' WHERE idx = (SELECT min(idx) FROM journal)")
        return rows

    monkeypatch.setattr(upgrades, "write_as_before", write_and_damage)


_PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], Any], str, int]] = [
    (_tell_more, "an agent of version 1 is told ['hint']", 1),
    (_forget_a_column, "cannot be started", 1),
    (_damage_a_row, "cannot be read", 1),
]


@pytest.mark.parametrize(("plant", "found", "seed"), _PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], Any], found: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert found in find_failure("upgrades", 4, found, seed)
