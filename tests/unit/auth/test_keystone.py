"""Keystone as the judge of tokens: its answers, its absence, and how seldom it is asked."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from berth.api.kernel.auth.caller import AuthUnavailable, Caller
from berth.api.kernel.auth.keystone import DENIED_SECONDS, THREADS, Keystone
from berth.runtime.settings import Settings
from tests.clocks import FakeClock
from tests.keystone import PASSWORD, FakeKeystone, running

HOUR_NS = 3600 * 1_000_000_000


@pytest.fixture
def keystone() -> Iterator[FakeKeystone]:
    with running() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def authenticator(keystone: FakeKeystone, clock: FakeClock) -> Iterator[Keystone]:
    yield from connected(keystone.url, clock)


def connected(url: str, clock: FakeClock, password: str = PASSWORD, timeout_s: int = 5) -> Iterator[Keystone]:
    settings = Settings(
        auth="keystone",
        keystone_auth_url=url,
        keystone_username="berth",
        keystone_password=password,
        keystone_project_name="service",
        keystone_cache_seconds=300,
        keystone_timeout_seconds=timeout_s,
    )
    authenticator = Keystone(settings, clock)
    yield authenticator
    authenticator.close()


def identify(authenticator: Keystone, token: str) -> Caller | None:
    return asyncio.run(authenticator.identify({"x-auth-token": token}))


# -- answers ------------------------------------------------------------------------------------


def test_a_token_of_a_project(keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock) -> None:
    roles = [{"id": "r1", "name": "admin"}, {"id": "r2", "name": "reader"}]
    keystone.add("t", clock.now_ns() + HOUR_NS, project={"id": "p-1", "name": "x"}, roles=roles)
    assert identify(authenticator, "t") == Caller("u-1", "p-1", ("admin", "reader"))


def test_a_token_of_the_system(keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS, system={"all": True}, roles=[{"name": "admin"}])
    assert identify(authenticator, "t") == Caller("u-1", None, ("admin",), system_scope="all")


def test_a_token_of_a_domain(keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS, domain={"id": "d-1"}, roles=[{"name": "admin"}])
    assert identify(authenticator, "t") == Caller("u-1", None, ("admin",), domain_id="d-1")


def test_no_token_and_an_unknown_one(keystone: FakeKeystone, authenticator: Keystone) -> None:
    assert asyncio.run(authenticator.identify({})) is None
    assert identify(authenticator, "") is None
    assert keystone.validations == 0
    assert identify(authenticator, "unknown") is None


def test_where_a_token_can_be_had(keystone: FakeKeystone, authenticator: Keystone) -> None:
    assert authenticator.challenge == f'Keystone uri="{keystone.url}"'


def test_an_expired_token(keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock) -> None:
    keystone.add("t", clock.now_ns() - HOUR_NS, project={"id": "p-1"})
    assert identify(authenticator, "t") is None


def test_a_url_with_version_is_the_same(keystone: FakeKeystone, clock: FakeClock) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    for authenticator in connected(keystone.url + "/v3/", clock):
        assert identify(authenticator, "t") is not None


# -- absence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 503, 403])
def test_an_answer_that_is_none_is_not_remembered(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock, status: int
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    keystone.status = status
    with pytest.raises(AuthUnavailable, match=str(status)):
        identify(authenticator, "t")
    keystone.status = None
    assert identify(authenticator, "t") is not None


def test_nobody_listens(clock: FakeClock) -> None:
    with running() as gone:
        url = gone.url
    for authenticator in connected(url, clock):
        with pytest.raises(AuthUnavailable, match="Keystone is unreachable: ConnectFailure"):
            identify(authenticator, "t")


def test_too_slow(keystone: FakeKeystone, clock: FakeClock) -> None:
    keystone.gate.clear()
    for authenticator in connected(keystone.url, clock, timeout_s=1):
        with pytest.raises(AuthUnavailable, match="Keystone is unreachable"):
            identify(authenticator, "t")
        keystone.gate.set()


def test_wrong_password_of_our_own(keystone: FakeKeystone, clock: FakeClock) -> None:
    for authenticator in connected(keystone.url, clock, password="wrong"):
        with pytest.raises(AuthUnavailable, match="rejects Berth's own user and password"):
            identify(authenticator, "t")


def test_unreadable_answer(keystone: FakeKeystone, authenticator: Keystone) -> None:
    keystone.tokens["t"] = {"user": "not a user"}
    with pytest.raises(AuthUnavailable, match="cannot decode the answer"):
        identify(authenticator, "t")


def test_our_own_token_is_renewed(keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock) -> None:
    keystone.add("a", clock.now_ns() + HOUR_NS)
    keystone.add("b", clock.now_ns() + HOUR_NS)
    assert identify(authenticator, "a") is not None
    keystone.revoke_service_tokens()
    assert identify(authenticator, "b") is not None
    assert keystone.logins == 2


# -- how seldom ---------------------------------------------------------------------------------


def test_a_confirmed_token_is_believed_for_a_while(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    identify(authenticator, "t")
    del keystone.tokens["t"]
    clock.advance(299)
    assert identify(authenticator, "t") is not None
    assert keystone.validations == 1
    clock.advance(1)
    assert identify(authenticator, "t") is None
    assert keystone.validations == 2


def test_not_beyond_its_expiry(keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock) -> None:
    keystone.add("t", clock.now_ns() + 60 * 1_000_000_000)
    assert identify(authenticator, "t") is not None
    clock.advance(60)
    assert identify(authenticator, "t") is None


def test_a_denied_token_stays_denied_briefly(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    assert identify(authenticator, "t") is None
    keystone.add("t", clock.now_ns() + HOUR_NS)
    assert identify(authenticator, "t") is None
    assert keystone.validations == 1
    clock.advance(DENIED_SECONDS)
    assert identify(authenticator, "t") is not None


def test_questions_that_arrive_together_are_asked_once(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    keystone.gate.clear()

    async def ask_together() -> list[Caller | None]:
        asking = [asyncio.create_task(authenticator.identify({"x-auth-token": "t"})) for _ in range(20)]
        await asyncio.sleep(0)
        # One who hangs up does not take the answer from the others.
        asking[0].cancel()
        threading.Timer(0.05, keystone.gate.set).start()
        return list(await asyncio.gather(*asking[1:]))

    assert asyncio.run(ask_together()) == [Caller("u-1", None, ())] * 19
    assert keystone.validations == 1


# -- floods -------------------------------------------------------------------------------------

BOGUS = 300
VALID = 14


@pytest.mark.parametrize("valid_peer", ["192.0.2.1", "192.0.2.66"])
def test_a_flood_of_bogus_tokens_locks_nobody_out(
    keystone: FakeKeystone, clock: FakeClock, valid_peer: str
) -> None:
    """Three hundred clients that ask about one bad token after the other, from one address. Those who have
    good tokens come from another, or from the same: behind a proxy all are one."""
    for number in range(VALID):
        keystone.add(f"valid-{number}", clock.now_ns() + HOUR_NS)

    async def ask_for_ever(authenticator: Keystone, client: int) -> None:
        number = 0
        while True:
            number += 1
            headers = {"x-auth-token": f"bogus-{client}-{number}"}
            with contextlib.suppress(AuthUnavailable):
                assert await authenticator.identify(headers, "192.0.2.66") is None
            await asyncio.sleep(0)

    async def story(authenticator: Keystone) -> list[Caller | None]:
        flood = [asyncio.create_task(ask_for_ever(authenticator, number)) for number in range(BOGUS)]
        while keystone.validations < 50:
            await asyncio.sleep(0.01)
        answers = await asyncio.gather(
            *(
                authenticator.identify({"x-auth-token": f"valid-{number}"}, valid_peer)
                for number in range(VALID)
            )
        )
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        return answers

    for authenticator in connected(keystone.url, clock, timeout_s=60):
        assert asyncio.run(story(authenticator)) == [Caller("u-1", None, ())] * VALID


def test_many_questions_are_under_way_at_once(keystone: FakeKeystone, authenticator: Keystone) -> None:
    keystone.gate.clear()

    async def story() -> int:
        asking = [
            asyncio.create_task(authenticator.identify({"x-auth-token": f"t-{number}"}))
            for number in range(2 * THREADS)
        ]
        while keystone.validations < THREADS:
            await asyncio.sleep(0.01)
        under_way = keystone.validations
        keystone.gate.set()
        assert set(await asyncio.gather(*asking)) == {None}
        return under_way

    assert asyncio.run(story()) == THREADS
    assert keystone.validations == 2 * THREADS


@pytest.mark.parametrize("token", ["with space", "t\u00e9", "<script>", "a,b", "x" * 8193, "new\nline", "t "])
def test_what_cannot_be_a_token_is_refused_without_asking(
    keystone: FakeKeystone, authenticator: Keystone, token: str
) -> None:
    assert identify(authenticator, token) is None
    assert keystone.validations == 0


def test_waiting_questions_are_bounded(
    keystone: FakeKeystone, authenticator: Keystone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.api.kernel.auth.waiting_room.PEER_MAX", 2)
    keystone.gate.clear()

    async def story() -> list[Caller | BaseException | None]:
        threading.Timer(0.2, keystone.gate.set).start()
        numbers = range(THREADS + 3)
        asking = (authenticator.identify({"x-auth-token": str(number)}, "p") for number in numbers)
        return await asyncio.gather(*asking, return_exceptions=True)

    answers = asyncio.run(story())
    assert answers[:-1] == [None] * (THREADS + 2)
    assert isinstance(answers[-1], AuthUnavailable)


def test_a_question_does_not_wait_for_ever(keystone: FakeKeystone, authenticator: Keystone) -> None:
    keystone.gate.clear()
    authenticator._wait_s = 0

    async def story() -> None:
        asking = [
            asyncio.create_task(authenticator.identify({"x-auth-token": str(number)}))
            for number in range(THREADS + 1)
        ]
        with pytest.raises(AuthUnavailable, match="too many tokens are waiting"):
            await asking.pop()
        keystone.gate.set()
        assert set(await asyncio.gather(*asking)) == {None}

    asyncio.run(story())
