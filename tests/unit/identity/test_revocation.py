"""A revoked token is nobody's: at once, in every worker, after a restart; and is kept until it expires."""

import asyncio
from pathlib import Path

import pytest

from berth.api.identity.tokens import Revocations, revoke_token
from berth.api.kernel.auth.tokens import Grant
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.model.events import Origin
from berth.model.servers import RevokedToken
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.runtime.telemetry import Telemetry
from tests.clocks import FakeClock
from tests.unit.identity.test_identity import ADMIN, ANN, FILE, TOKENS, by_token, issued, log_in
from tests.worlds import HttpAnswer, RegionWorld

pytestmark = pytest.mark.fast

SERVERS = "/compute/v2.1/servers"


async def revoke(region: RegionWorld, who: str, subject: str) -> HttpAnswer:
    return await region.ask("DELETE", TOKENS, token=who, headers={"x-subject-token": subject})


async def status(region: RegionWorld, token: str, path: str = SERVERS) -> int:
    return (await region.ask("GET", path, token=token)).status


async def test_a_revoked_token_is_nobodys(region: RegionWorld) -> None:
    token, other = await issued(region), await issued(region)
    assert await status(region, token) == 200
    assert (await revoke(region, token, token)).status == 204
    paths = (SERVERS, "/image/v2/images", "/identity/v3/projects", "/berth/v1/clusters", "/usages")
    assert {await status(region, token, path) for path in paths} == {401}
    # Not for another token either, and nobody can look at it any more.
    assert (await log_in(region, by_token(token))).status == 401
    shown = await region.ask("GET", TOKENS, token=ADMIN, headers={"x-subject-token": token})
    assert shown.status == 404
    assert (await revoke(region, ADMIN, token)).status == 404
    # Others of the same user are as good as before.
    assert (await status(region, other), await status(region, ANN)) == (200, 200)


async def test_a_token_is_revoked_by_its_user_and_by_admins(region: RegionWorld) -> None:
    hers, his = await issued(region), await issued(region, "admin", ADMIN)
    assert (await revoke(region, hers, his)).status == 403
    assert (await revoke(region, his, hers)).status == 204
    assert (await status(region, hers), await status(region, his)) == (401, 200)


async def test_an_exchanged_token_is_revoked_apart_from_the_first_as_by_keystone(region: RegionWorld) -> None:
    first = await issued(region)
    exchanged = (await log_in(region, by_token(first))).headers["x-subject-token"]
    assert (await revoke(region, first, first)).status == 204
    assert (await status(region, first), await status(region, exchanged)) == (401, 200)
    # A revoked token is not exchanged, and the other one is revoked by itself.
    assert (await log_in(region, by_token(first))).status == 401
    assert (await revoke(region, exchanged, exchanged)).status == 204
    assert await status(region, exchanged) == 401


async def test_two_who_revoke_it_at_once_are_both_right(region: RegionWorld) -> None:
    token = await issued(region)
    answers = await asyncio.gather(revoke(region, token, token), revoke(region, ADMIN, token))
    assert [answer.status for answer in answers] == [204, 204]
    assert await status(region, token) == 401


async def test_an_entry_of_the_file_is_not_revoked_here(region: RegionWorld) -> None:
    answer = await revoke(region, ANN, ANN)
    assert (answer.status, "tokens file" in answer.json["error"]["message"]) == (403, True)
    assert await status(region, ANN) == 200


async def test_it_stays_revoked_after_a_restart(tmp_path: Path) -> None:
    region = RegionWorld(tmp_path, FILE)
    async with region.running():
        token = await issued(region)
        assert (await revoke(region, token, token)).status == 204
    async with region.running():
        assert await status(region, token) == 401


async def test_every_worker_honours_it_at_once(tmp_path: Path) -> None:
    grant = Grant("ann", "blue", ("password",), 0, 4_000_000_000, "audit-1")

    def worker() -> Engine:
        clock, settings = FakeClock(), Settings(log_level="error")
        journal = open_journal(SqliteAddress(tmp_path / "journal.db"), shared=True)
        return Engine(journal, clock, Ids(seed=1), Telemetry(settings, clock), shared=True)

    one, other = worker(), worker()
    await one.start()
    await other.start()
    try:
        assert not await Revocations(other).has(grant)
        origin = Origin("req", "ann", "blue", "test")
        await one.submit(lambda view, now_s: revoke_token(view, now_s, grant), origin, lambda view, _: None)
        assert await Revocations(other).has(grant)
    finally:
        await other.stop()
        await one.stop()


async def test_what_has_expired_is_not_kept(region: RegionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> int:
        return region.engine.view.records.count(RevokedToken)

    for _ in range(5):
        token = await issued(region)
        assert (await revoke(region, token, token)).status == 204
    assert kept() == 5
    region.clock.advance(12 * 3600)
    token = await issued(region)
    assert (await revoke(region, token, token)).status == 204
    assert kept() == 1
    monkeypatch.setattr("berth.api.identity.tokens.OF_USER_MAX", 1)
    token = await issued(region)
    answer = await revoke(region, token, token)
    assert (answer.status, kept()) == (403, 1)
    # Another user's are counted apart.
    token = await issued(region, "admin", ADMIN)
    assert (await revoke(region, token, token)).status == 204
