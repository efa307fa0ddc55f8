"""A revoked token is nobody's: at once, in every worker, after a restart; and is kept until it expires."""

import asyncio
from pathlib import Path

import pytest

from berth.api.identity import revocations
from berth.api.identity.revocations import Revocations
from berth.api.kernel.auth.issued import Grant
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.model.batches import Origin
from berth.model.servers import RevokedToken
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry
from tests.clocks import FakeClock
from tests.unit.identity.houses import House
from tests.unit.identity.test_identity import ADMIN, ANN, FILE, TOKENS, by_token, issued, log_in
from tests.unit.native.worlds import Answer

pytestmark = pytest.mark.fast

SERVERS = "/compute/v2.1/servers"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, FILE)


async def revoke(house: House, who: str, subject: str) -> Answer:
    return await house.ask("DELETE", TOKENS, token=who, headers={"x-subject-token": subject})


async def status(house: House, token: str, path: str = SERVERS) -> int:
    return (await house.ask("GET", path, token=token)).status


def test_a_revoked_token_is_nobodys(house: House) -> None:
    async def story(house: House) -> None:
        token, other = await issued(house), await issued(house)
        assert await status(house, token) == 200
        assert (await revoke(house, token, token)).status == 204
        paths = (SERVERS, "/image/v2/images", "/identity/v3/projects", "/berth/v1/clusters", "/usages")
        assert {await status(house, token, path) for path in paths} == {401}
        # Not for another token either, and nobody can look at it any more.
        assert (await log_in(house, by_token(token))).status == 401
        shown = await house.ask("GET", TOKENS, token=ADMIN, headers={"x-subject-token": token})
        assert shown.status == 404
        assert (await revoke(house, ADMIN, token)).status == 404
        # Others of the same user are as good as before.
        assert (await status(house, other), await status(house, ANN)) == (200, 200)

    house.run(story)


def test_a_token_is_revoked_by_its_user_and_by_admins(house: House) -> None:
    async def story(house: House) -> None:
        hers, his = await issued(house), await issued(house, "admin", ADMIN)
        assert (await revoke(house, hers, his)).status == 403
        assert (await revoke(house, his, hers)).status == 204
        assert (await status(house, hers), await status(house, his)) == (401, 200)

    house.run(story)


def test_an_exchanged_token_is_revoked_apart_from_the_first_as_by_keystone(house: House) -> None:
    async def story(house: House) -> None:
        first = await issued(house)
        exchanged = (await log_in(house, by_token(first))).headers["x-subject-token"]
        assert (await revoke(house, first, first)).status == 204
        assert (await status(house, first), await status(house, exchanged)) == (401, 200)
        # A revoked token is not exchanged, and the other one is revoked by itself.
        assert (await log_in(house, by_token(first))).status == 401
        assert (await revoke(house, exchanged, exchanged)).status == 204
        assert await status(house, exchanged) == 401

    house.run(story)


def test_two_who_revoke_it_at_once_are_both_right(house: House) -> None:
    async def story(house: House) -> None:
        token = await issued(house)
        answers = await asyncio.gather(revoke(house, token, token), revoke(house, ADMIN, token))
        assert [answer.status for answer in answers] == [204, 204]
        assert await status(house, token) == 401

    house.run(story)


def test_an_entry_of_the_file_is_not_revoked_here(house: House) -> None:
    async def story(house: House) -> None:
        answer = await revoke(house, ANN, ANN)
        assert (answer.status, "tokens file" in answer.json["error"]["message"]) == (403, True)
        assert await status(house, ANN) == 200

    house.run(story)


def test_it_stays_revoked_after_a_restart(house: House) -> None:
    async def revoked(house: House) -> str:
        token = await issued(house)
        assert (await revoke(house, token, token)).status == 204
        return token

    token = house.run(revoked)
    assert house.run(lambda house: status(house, token)) == 401


def test_every_worker_honours_it_at_once(tmp_path: Path) -> None:
    grant = Grant("ann", "blue", ("password",), 0, 4_000_000_000, "audit-1")

    def worker() -> Engine:
        clock, settings = FakeClock(), Settings(log_level="error")
        journal = open_journal(SqliteAddress(tmp_path / "journal.db"), shared=True)
        return Engine(journal, clock, Ids(seed=1), Telemetry(settings, clock), shared=True)

    async def story() -> None:
        one, other = worker(), worker()
        await one.start()
        await other.start()
        try:
            assert not await Revocations(other).has(grant)
            origin = Origin("req", "ann", "blue", "test")
            await one.submit(
                lambda view, now_s: revocations.revoke(view, now_s, grant), origin, lambda view, _: None
            )
            assert await Revocations(other).has(grant)
        finally:
            await other.stop()
            await one.stop()

    asyncio.run(story())


def test_what_has_expired_is_not_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(house: House) -> None:
        def kept() -> int:
            return house.engine.view.records.count(RevokedToken)

        for _ in range(5):
            token = await issued(house)
            assert (await revoke(house, token, token)).status == 204
        assert kept() == 5
        house.clock.advance(12 * 3600)
        token = await issued(house)
        assert (await revoke(house, token, token)).status == 204
        assert kept() == 1
        monkeypatch.setattr("berth.api.identity.revocations.OF_USER_MAX", 1)
        token = await issued(house)
        answer = await revoke(house, token, token)
        assert (answer.status, kept()) == (403, 1)
        # Another user's are counted apart.
        token = await issued(house, "admin", ADMIN)
        assert (await revoke(house, token, token)).status == 204

    house.run(story)
