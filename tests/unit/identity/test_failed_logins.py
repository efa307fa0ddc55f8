"""Logins that fail are slowed down, by user and address; those that are right are not."""

from pathlib import Path
from typing import Any

import pytest

from berth.api.identity import tokens
from berth.api.identity.tokens import FREE, WAIT_MAX_S, FailedLogins
from tests.clocks import FakeClock
from tests.unit.identity.test_identity import ADMIN, ANN, FILE, by_password, by_token, log_in
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast

WRONG = "wrong-password-0123"


async def statuses(region: RegionWorld, body: Any, count: int) -> list[int]:
    return [(await log_in(region, body)).status for _ in range(count)]


async def test_guessing_a_password_is_slowed_down(region: RegionWorld) -> None:
    assert await statuses(region, by_password("ann", WRONG), FREE) == [401] * FREE
    answer = await log_in(region, by_password("ann", WRONG))
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert "wait 1 s" in answer.json["error"]["message"]
    # Not even the right one is tried until then, or guessing would go on.
    assert (await log_in(region, by_password("ann", ANN))).status == 429
    # Nobody else is harmed.
    assert (await log_in(region, by_password("admin", ADMIN))).status == 201
    region.clock.advance(1)
    assert await statuses(region, by_password("ann", WRONG), 2) == [429, 429]
    region.clock.advance(1)
    assert (await log_in(region, by_password("ann", ANN))).status == 429
    region.clock.advance(1)
    assert (await log_in(region, by_password("ann", ANN))).status == 201
    # Her failures are forgotten then; whoever fails at the address is still told to wait.
    assert await statuses(region, by_password("ann", WRONG), FREE - 1) == [429] * (FREE - 1)
    assert (await log_in(region, by_password("ann", ANN))).status == 201


async def test_guessing_names_and_tokens_harms_nobody_at_the_same_address(region: RegionWorld) -> None:
    for number in range(FREE):
        assert (await log_in(region, by_password(f"user-{number}", WRONG))).status == 401
    assert (await log_in(region, by_password("another", WRONG))).status == 429
    assert (await log_in(region, by_token("no-token"))).status == 429
    for user, password in (("ann", ANN), ("admin", ADMIN)):
        assert (await log_in(region, by_password(user, password))).status == 201
    assert (await log_in(region, by_token(ANN))).status == 201


async def guess(region: RegionWorld, name: str) -> list[tuple[int, str | None]]:
    """What wrong passwords of this name are answered, among those of names that there are not."""
    answers = []
    for guesses, wait_s in ((FREE, 0), (3, 60), (3, 1), (2, 600), (FREE + 3, 0)):
        for number in range(guesses):
            await log_in(region, by_password(f"nobody-{number}", WRONG))
            answer = await log_in(region, by_password(name, WRONG))
            answers.append((answer.status, answer.headers.get("retry-after")))
        region.clock.advance(wait_s)
    return answers


async def test_the_answers_do_not_tell_which_users_there_are(tmp_path: Path) -> None:
    """After a few names that there are not, 401 meant: there is such a user, and 429: there is not."""
    answers = []
    for name in ("ann", "another"):
        folder = tmp_path / name
        folder.mkdir()
        async with RegionWorld(folder, FILE).running() as region:
            answers.append(await guess(region, name))
    assert answers[0] == answers[1]
    assert {status for status, _ in answers[0]} == {401, 429}


def test_the_wait_grows_to_its_end_and_is_forgotten() -> None:
    clock = FakeClock()
    failed = FailedLogins(clock)
    waits = []
    for _ in range(FREE + 8):
        failed.record_failure("ann", "192.0.2.1")
        waits.append(failed.wait_s("192.0.2.1"))
        assert failed.must_wait("ann", "192.0.2.1") == (waits[-1] > 0)
    assert waits == [0] * (FREE - 1) + [1, 2, 4, 8, 16, 32, WAIT_MAX_S, WAIT_MAX_S, WAIT_MAX_S]
    assert not failed.must_wait("ann", "192.0.2.2")
    assert not failed.must_wait("bob", "192.0.2.1")
    clock.advance(3600)
    failed.record_failure("ann", "192.0.2.1")
    assert failed.wait_s("192.0.2.1") == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_KEYS_MAX", 4)
    failed = FailedLogins(FakeClock())
    for number in range(100):
        for _ in range(FREE):
            failed.record_failure("ann", f"192.0.2.{number}")
    assert len(failed._failures) == 4
    assert failed.wait_s("192.0.2.99") == 1
