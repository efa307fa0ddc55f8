"""Logins that fail are slowed down, by user and address; those that are right are not."""

from pathlib import Path
from typing import Any

import pytest

from berth.api.identity import failed_logins
from berth.api.identity.failed_logins import FREE, WAIT_MAX_S, FailedLogins
from tests.clocks import FakeClock
from tests.unit.identity.houses import House
from tests.unit.identity.test_identity import ADMIN, ANN, FILE, by_password, by_token, log_in

pytestmark = pytest.mark.fast

WRONG = "wrong-password-0123"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, FILE)


async def statuses(house: House, body: Any, count: int) -> list[int]:
    return [(await log_in(house, body)).status for _ in range(count)]


def test_guessing_a_password_is_slowed_down(house: House) -> None:
    async def story(house: House) -> None:
        assert await statuses(house, by_password("ann", WRONG), FREE) == [401] * FREE
        answer = await log_in(house, by_password("ann", WRONG))
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert "wait 1 s" in answer.json["error"]["message"]
        # Not even the right one is tried until then, or guessing would go on.
        assert (await log_in(house, by_password("ann", ANN))).status == 429
        # Nobody else is harmed.
        assert (await log_in(house, by_password("admin", ADMIN))).status == 201
        house.clock.advance(1)
        assert await statuses(house, by_password("ann", WRONG), 2) == [401, 429]
        house.clock.advance(1)
        assert (await log_in(house, by_password("ann", ANN))).status == 429
        house.clock.advance(1)
        assert (await log_in(house, by_password("ann", ANN))).status == 201
        assert await statuses(house, by_password("ann", WRONG), FREE) == [401] * FREE

    house.run(story)


def test_guessing_names_and_tokens_harms_nobody_at_the_same_address(house: House) -> None:
    async def story(house: House) -> None:
        for number in range(FREE):
            assert (await log_in(house, by_password(f"user-{number}", WRONG))).status == 401
        assert (await log_in(house, by_password("another", WRONG))).status == 429
        assert (await log_in(house, by_token("no-token"))).status == 429
        for user, password in (("ann", ANN), ("admin", ADMIN)):
            assert (await log_in(house, by_password(user, password))).status == 201
        assert (await log_in(house, by_token(ANN))).status == 201

    house.run(story)


def test_the_wait_grows_to_its_end_and_is_forgotten() -> None:
    clock = FakeClock()
    failed = FailedLogins(clock)
    waits = []
    for _ in range(FREE + 8):
        failed.failed("ann", "192.0.2.1")
        waits.append(failed.wait_s("ann", "192.0.2.1"))
    assert waits == [0] * (FREE - 1) + [1, 2, 4, 8, 16, 32, WAIT_MAX_S, WAIT_MAX_S, WAIT_MAX_S]
    assert failed.wait_s("ann", "192.0.2.2") == failed.wait_s("bob", "192.0.2.1") == 0
    clock.advance(3600)
    failed.failed("ann", "192.0.2.1")
    assert failed.wait_s("ann", "192.0.2.1") == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "_KEYS_MAX", 3)
    failed = FailedLogins(FakeClock())
    for number in range(100):
        for _ in range(FREE):
            failed.failed("ann", f"192.0.2.{number}")
    assert len(failed._failures) == 3
    assert failed.wait_s("ann", "192.0.2.99") == 1
