"""Pauses grow and start over; retries end at their deadline; loops survive what they meet."""

import logging
import random
import re

import pytest

from berth.runtime.backoff import Backoff, keep_running, retry
from tests.clocks import FakeClock


class Away(Exception):
    pass


def test_pauses_double_up_to_the_longest_and_start_over() -> None:
    backoff = Backoff(0.5, 3)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    assert backoff.is_longest
    backoff.reset()
    assert (backoff.is_longest, backoff.next_s()) == (False, 0.5)


def test_pauses_are_drawn_between_a_half_and_the_whole() -> None:
    backoff = Backoff(2, 2, random.Random(1))
    pauses = [backoff.next_s() for _ in range(100)]
    assert all(1 <= pause <= 2 for pause in pauses)
    assert len(set(pauses)) > 90


async def test_a_step_is_repeated_until_it_succeeds() -> None:
    failures = [Away("first"), Away("second")]
    noticed: list[tuple[str, float]] = []

    async def step() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    def notice(error: Exception, pause_s: float) -> None:
        noticed.append((str(error), pause_s))

    assert await retry(step, (Away,), Backoff(0.001, 1), notice=notice) == "done"
    assert noticed == [("first", 0.001), ("second", 0.002)]


async def test_a_retry_ends_at_its_deadline_and_at_what_it_does_not_expect() -> None:
    clock = FakeClock()

    async def step() -> None:
        clock.advance(4)
        raise Away("still")

    with pytest.raises(Away, match="still"):
        await retry(step, (Away,), Backoff(0, 0), clock=clock, within_s=10)
    assert clock.monotonic_ns() - FakeClock().monotonic_ns() == 12_000_000_000

    async def fail() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await retry(fail, (Away,), Backoff(0, 0))


async def test_a_loop_survives_outages_and_bugs_and_reports_its_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = Away("connection refused")
    steps: list[Exception | None] = [None, away, away, KeyError("a bug"), None, None]

    async def step() -> None:
        failure = steps.pop(0)
        if failure is not None:
            raise failure

    with caplog.at_level(logging.INFO):
        await keep_running(
            "status sync of cell1",
            step,
            is_stopping=lambda: not steps,
            outages=(Away,),
            log=logging.getLogger("test"),
            first_s=0.001,
        )
    said = [record.getMessage() for record in caplog.records if record.name == "test"]
    # How long it takes depends on who else is busy.
    assert [re.sub(r"after [0-9.]+ s$", "after a while", line) for line in said] == [
        "status sync of cell1: retrying in 0.001 s: connection refused",
        "status sync of cell1: unexpected error, retrying in 0.004 s",
        "status sync of cell1: works again after a while",
    ]
