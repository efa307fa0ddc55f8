"""Tokens that Keystone confirms: its answers, its absence, and how seldom it is asked."""

import asyncio
import contextlib
import io
import logging
from collections.abc import Iterator

import pytest

from berth.api.kernel.auth.caller import AuthUnavailable, Caller
from berth.api.kernel.auth.keystone import DENIED_SECONDS, EXPIRED_SECONDS, THREADS, Keystone
from berth.client import keystone_token
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging
from tests.clocks import FakeClock
from tests.keystone import PASSWORD, FakeKeystone, running
from tests.waiting import until

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
    with connected(keystone.url, clock) as authenticator:
        yield authenticator


@contextlib.contextmanager
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


async def identify(authenticator: Keystone, token: str) -> Caller | None:
    return await authenticator.identify({"x-auth-token": token})


# -- answers ------------------------------------------------------------------------------------


async def test_a_token_of_a_project_has_its_roles(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    roles = [{"id": "r1", "name": "admin"}, {"id": "r2", "name": "reader"}]
    keystone.add("t", clock.now_ns() + HOUR_NS, project={"id": "p-1", "name": "x"}, roles=roles)
    assert await identify(authenticator, "t") == Caller("u-1", "p-1", ("admin", "reader"))


async def test_a_token_of_the_system_has_its_scope(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS, system={"all": True}, roles=[{"name": "admin"}])
    assert await identify(authenticator, "t") == Caller("u-1", None, ("admin",), system_scope="all")


async def test_a_token_of_a_domain_has_its_domain(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS, domain={"id": "d-1"}, roles=[{"name": "admin"}])
    assert await identify(authenticator, "t") == Caller("u-1", None, ("admin",), domain_id="d-1")


async def test_no_token_and_an_unknown_one_are_refused(
    keystone: FakeKeystone, authenticator: Keystone
) -> None:
    assert await authenticator.identify({}) is None
    assert await identify(authenticator, "") is None
    assert keystone.validations == 0
    assert await identify(authenticator, "unknown") is None


def test_the_challenge_says_where_a_token_can_be_had(keystone: FakeKeystone, authenticator: Keystone) -> None:
    assert authenticator.challenge == f'Keystone uri="{keystone.url}"'


async def test_an_expired_token_is_refused(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() - HOUR_NS, project={"id": "p-1"})
    assert await identify(authenticator, "t") is None


async def test_a_url_with_version_is_the_same(keystone: FakeKeystone, clock: FakeClock) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    with connected(keystone.url + "/v3/", clock) as authenticator:
        assert await identify(authenticator, "t") is not None


# -- absence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 503, 403])
async def test_a_failure_is_not_remembered(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock, status: int
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    keystone.status = status
    with pytest.raises(AuthUnavailable, match=str(status)):
        await identify(authenticator, "t")
    keystone.status = None
    assert await identify(authenticator, "t") is not None


async def test_a_keystone_that_does_not_listen_is_unreachable(clock: FakeClock) -> None:
    with running() as gone:
        url = gone.url
    unreachable = pytest.raises(AuthUnavailable, match="Keystone is unreachable: ConnectFailure")
    with connected(url, clock) as authenticator, unreachable:
        await identify(authenticator, "t")


async def test_a_keystone_that_is_too_slow_is_unreachable(keystone: FakeKeystone, clock: FakeClock) -> None:
    keystone.gate.clear()
    with connected(keystone.url, clock, timeout_s=1) as authenticator:
        with pytest.raises(AuthUnavailable, match="Keystone is unreachable"):
            await identify(authenticator, "t")
        keystone.gate.set()


async def test_a_wrong_password_of_our_own_is_named(keystone: FakeKeystone, clock: FakeClock) -> None:
    rejected = pytest.raises(AuthUnavailable, match="rejects Berth's own user and password")
    with connected(keystone.url, clock, password="wrong") as authenticator, rejected:
        await identify(authenticator, "t")


async def test_our_own_password_is_checked_before_anybody_asks(
    keystone: FakeKeystone, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(keystone.url, clock, password="wrong") as authenticator:
        await authenticator.check()
        assert [record.getMessage() for record in caplog.records] == [
            "Keystone: unavailable: Keystone rejects Berth's own user and password"
        ]
    caplog.clear()
    with connected(keystone.url, clock) as authenticator:
        await authenticator.check()
        assert keystone.logins == 1
        assert not caplog.records


async def test_an_outage_is_logged_once_and_when_it_is_over(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "berth")
    keystone.add("t", clock.now_ns() + HOUR_NS)
    keystone.status = 500
    for token in ("t", "u", "v"):
        with pytest.raises(AuthUnavailable):
            await identify(authenticator, token)
    keystone.status = None
    await identify(authenticator, "t")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0] == "Keystone: unavailable: Keystone answered 500"
    assert lines[1].startswith("Keystone: available again after ")


@pytest.mark.parametrize(
    ("service", "is_let_in"), [(None, False), ("service", True), ("member", False), ("nobody", False)]
)
async def test_an_expired_token_is_believed_where_a_service_sends_it(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock, service: str | None, is_let_in: bool
) -> None:
    keystone.add("expired", clock.now_ns() - HOUR_NS, project={"id": "p"}, roles=[{"name": "member"}])
    keystone.expired.add("expired")
    for role in ("service", "member"):
        keystone.add(role, clock.now_ns() + HOUR_NS, project={"id": "s"}, roles=[{"name": role}])
    headers = {"x-auth-token": "expired"} | ({} if service is None else {"x-service-token": service})
    for _ in range(2):
        caller = await authenticator.identify(headers)
        assert (caller is not None and caller.project_id == "p") == is_let_in
    # For a while, and for requests of services alone.
    assert await identify(authenticator, "expired") is None
    asked = keystone.validations
    clock.advance(EXPIRED_SECONDS + 1)
    await authenticator.identify(headers)
    assert keystone.validations > asked


async def test_a_bad_service_token_is_refused_with_the_request(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS, project={"id": "p"}, roles=[{"name": "member"}])
    assert await authenticator.identify({"x-auth-token": "t", "x-service-token": "nobody"}) is None
    assert await authenticator.identify({"x-auth-token": "t", "x-service-token": "no such form!"}) is None
    assert await identify(authenticator, "t") is not None


async def test_an_answer_that_cannot_be_read_is_named(
    keystone: FakeKeystone, authenticator: Keystone
) -> None:
    keystone.tokens["t"] = {"user": "not a user"}
    with pytest.raises(AuthUnavailable, match="cannot decode the answer"):
        await identify(authenticator, "t")


async def test_our_own_token_is_renewed(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("a", clock.now_ns() + HOUR_NS)
    keystone.add("b", clock.now_ns() + HOUR_NS)
    assert await identify(authenticator, "a") is not None
    keystone.revoke_service_tokens()
    assert await identify(authenticator, "b") is not None
    assert keystone.logins == 2


# -- how seldom ---------------------------------------------------------------------------------


async def test_a_confirmed_token_is_believed_for_a_while(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    await identify(authenticator, "t")
    del keystone.tokens["t"]
    clock.advance(299)
    assert await identify(authenticator, "t") is not None
    assert keystone.validations == 1
    clock.advance(1)
    assert await identify(authenticator, "t") is None
    assert keystone.validations == 2


async def test_a_confirmed_token_is_not_believed_beyond_its_expiry(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + 60 * 1_000_000_000)
    assert await identify(authenticator, "t") is not None
    clock.advance(60)
    assert await identify(authenticator, "t") is None


async def test_a_denied_token_stays_denied_briefly(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    assert await identify(authenticator, "t") is None
    keystone.add("t", clock.now_ns() + HOUR_NS)
    assert await identify(authenticator, "t") is None
    assert keystone.validations == 1
    clock.advance(DENIED_SECONDS)
    assert await identify(authenticator, "t") is not None


async def test_questions_that_arrive_together_are_asked_once(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    keystone.add("t", clock.now_ns() + HOUR_NS)
    keystone.gate.clear()

    asking = [asyncio.create_task(identify(authenticator, "t")) for _ in range(20)]
    await until(lambda: keystone.validations)
    # One who hangs up does not take the answer from the others.
    asking[0].cancel()
    keystone.gate.set()
    assert await asyncio.gather(*asking[1:]) == [Caller("u-1", None, ())] * 19
    assert keystone.validations == 1


# -- floods -------------------------------------------------------------------------------------

BOGUS = 300
VALID = 14


@pytest.mark.parametrize("valid_peer", ["192.0.2.1", "192.0.2.66"])
async def test_a_flood_of_bogus_tokens_locks_nobody_out(
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

    with connected(keystone.url, clock, timeout_s=60) as authenticator:
        flood = [asyncio.create_task(ask_for_ever(authenticator, number)) for number in range(BOGUS)]
        await until(lambda: keystone.validations >= 50)
        answers = await asyncio.gather(
            *(
                authenticator.identify({"x-auth-token": f"valid-{number}"}, valid_peer)
                for number in range(VALID)
            )
        )
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
    assert answers == [Caller("u-1", None, ())] * VALID


async def test_many_questions_are_under_way_at_once(keystone: FakeKeystone, authenticator: Keystone) -> None:
    keystone.gate.clear()

    numbers = range(2 * THREADS)
    asking = [asyncio.create_task(identify(authenticator, f"t-{number}")) for number in numbers]
    await until(lambda: keystone.validations >= THREADS)
    assert keystone.validations == THREADS
    keystone.gate.set()
    assert set(await asyncio.gather(*asking)) == {None}
    assert keystone.validations == 2 * THREADS


@pytest.mark.parametrize("token", ["with space", "t\u00e9", "<script>", "a,b", "x" * 8193, "new\nline", "t "])
async def test_what_cannot_be_a_token_is_refused_without_asking(
    keystone: FakeKeystone, authenticator: Keystone, token: str
) -> None:
    assert await identify(authenticator, token) is None
    assert keystone.validations == 0


async def test_waiting_questions_are_bounded(
    keystone: FakeKeystone, authenticator: Keystone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.api.kernel.auth.keystone.PEER_MAX", 2)
    keystone.gate.clear()
    *asking, one_more = [
        asyncio.create_task(authenticator.identify({"x-auth-token": str(number)}, "p"))
        for number in range(THREADS + 3)
    ]
    with pytest.raises(AuthUnavailable):
        await one_more
    keystone.gate.set()
    assert await asyncio.gather(*asking) == [None] * (THREADS + 2)


async def test_a_question_does_not_wait_for_ever(keystone: FakeKeystone, authenticator: Keystone) -> None:
    keystone.gate.clear()
    authenticator._wait_s = 0
    numbers = range(THREADS + 1)
    *asking, one_more = [asyncio.create_task(identify(authenticator, str(number))) for number in numbers]
    with pytest.raises(AuthUnavailable, match="too many tokens are waiting"):
        await one_more
    keystone.gate.set()
    assert set(await asyncio.gather(*asking)) == {None}


# -- logs ---------------------------------------------------------------------------------------


async def test_no_secret_is_logged_at_level_debug(
    keystone: FakeKeystone, authenticator: Keystone, clock: FakeClock
) -> None:
    """Neither a caller's token, nor our password, nor the token that we get for it."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(Settings(log_level="debug"), stream)
    try:
        keystone.add("gAAAAA-secret-token", clock.now_ns() + HOUR_NS, project={"id": "p-1"}, roles=[])
        assert await identify(authenticator, "gAAAAA-secret-token") is not None
        issued = await asyncio.to_thread(keystone_token(keystone.url, "berth", PASSWORD, "service"))
    finally:
        # Libraries have levels of their own.
        configure_logging(Settings(), io.StringIO())
        root.handlers[:], level = before
        root.setLevel(level)
    assert "DEBUG" in stream.getvalue()
    for secret in ("gAAAAA-secret-token", PASSWORD, issued):
        assert secret not in stream.getvalue()
