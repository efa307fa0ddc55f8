"""Who may speak for a host: its own agent, and nobody else, whatever they know of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from berth.agent.fleet import provider_id
from berth.cell import agents
from berth.client import Answer
from berth.model.saga_runs import Agent, SagaRun
from berth.model.servers import Host, Migration
from berth.runtime.ids import Ids
from berth.sagas.hosts import cell_aggregate
from berth.sim.cloud import SimCloud
from tests.lifecycle.stories import beginning, done, host_dies, new_server

HEADERS: Final = {"x-auth-token": "admin:project", "openstack-api-version": "placement 1.39"}
MADE_UP: Final = "aaaaaaaa-0000-4000-8000-000000000001"
SECRET: Final = "s" * 43
PATIENCE_S: Final = 120
TOKEN: Final = "the-join-token-of-the-cells"


@contextlib.asynccontextmanager
async def running(**options: Any) -> AsyncIterator[SimCloud]:
    async with SimCloud(**{"seed": 5, "hosts": 4, "cells": 2, **options}).running() as cloud:
        # A host whose report is still being written says so.
        await cloud.until(lambda view: not any(host.complaints for host in view.records.all(Host)))
        yield cloud


async def call(
    cloud: SimCloud,
    cell: str,
    what: str,
    body: object,
    host: str | None = MADE_UP,
    secret: str = SECRET,
    token: str | None = None,
) -> Answer:
    """Call a conductor as the agent of a host, with a credential, unless the host is None."""
    headers = {"x-agent-version": "2"}
    if host is not None:
        headers["x-agent-credential"] = f"{host}:{secret}"
    if token is not None:
        headers["x-agent-token"] = token
    return await cloud.network.client(cloud.outside, cell, headers).ask("POST", f"/agent/v1/{what}", body)


def provider(id: str, name: str, parent: str | None = None) -> dict[str, Any]:
    return {"id": id, "name": name, "parent": parent, "inventories": {"VCPU": {"total": 1}}, "traits": []}


def register(host: str, name: str, *more: dict[str, Any]) -> dict[str, Any]:
    return {"host": host, "name": name, "driver": "sim", "providers": [provider(host, name), *more]}


async def whole(cloud: SimCloud, id: str) -> list[Any]:
    """All that Placement says of a provider."""
    client = cloud.client(HEADERS)
    parts = ("", "/inventories", "/traits", "/aggregates")
    return [(await client.ask("GET", f"/resource_providers/{id}{part}")).body for part in parts]


async def until_complaint(cloud: SimCloud, cell: str, host: str, word: str) -> None:
    """Wait until a host's complaints have a word in them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            agent = await cloud.readers[cell].read(lambda view: view.records.get(Agent, host))
            if agent is not None and word in " ".join(agent.complaints):
                return
            await asyncio.sleep(0.2)


def cell_of(cloud: SimCloud, name: str) -> str:
    return cloud.hosts[name].host.cell or ""


# -- attacks ------------------------------------------------------------------------------------


async def test_a_made_up_host_cannot_write_another_hosts_providers() -> None:
    async with running() as cloud:
        for victim in ("host-0004", "host-0004-gpu0", "host-0003"):
            id = provider_id(victim)
            before = await whole(cloud, id)
            for cell in cloud.cells:
                host = Ids().uuid()
                body = register(host, f"evil-{cell}-{victim}", provider(id, victim, host))
                answer = await call(cloud, cell, "register", body, host)
                # The host that joins is as good as any, but for what is not its own.
                assert answer.status == 200, answer.body
                await until_complaint(cloud, cell, host, victim)
            assert await whole(cloud, id) == before


async def test_a_registration_is_of_the_hosts_own_tree() -> None:
    victim = provider_id("host-0004")

    async with running() as cloud:
        before = await whole(cloud, victim)
        good = register(MADE_UP, "evil")
        for providers, why in (
            ([provider(victim, "host-0004")], "providers must begin with the host itself"),
            ([provider(MADE_UP, "evil", victim)], "providers must begin with the host itself"),
            ([provider(MADE_UP, "host-0004")], "providers must begin with the host itself"),
            ([provider(MADE_UP, "evil"), provider(victim, "host-0004")], "does not come before it"),
            ([provider(MADE_UP, "evil"), provider(GPU, "g", victim)], "does not come before it"),
            ([provider(MADE_UP, "evil"), provider(MADE_UP, "evil2", MADE_UP)], "is there twice"),
        ):
            answer = await call(cloud, "cell1", "register", good | {"providers": providers})
            assert answer.status == 400, (providers, answer.body)
            assert why in answer.detail
        assert await whole(cloud, victim) == before
        assert (await call(cloud, "cell1", "poll", {"host": MADE_UP})).status == 404


GPU: Final = provider_id("host-0004-gpu0")


async def test_a_host_or_a_name_that_is_there_is_not_taken_over() -> None:
    async with running() as cloud:
        for name in ("host-0003", "host-0004"):
            id = provider_id(name)
            before = await whole(cloud, id)
            for cell in cloud.cells:
                is_its_own = cell == cell_of(cloud, name)
                taken = await call(cloud, cell, "register", register(id, name), id)
                assert taken.status == (401 if is_its_own else 409), taken.body
                nobody = await call(cloud, cell, "register", register(id, name), None)
                assert nobody.status == 401, nobody.body
                namesake = await call(cloud, cell, "register", register(MADE_UP, name))
                assert namesake.status == 409, namesake.body
                assert "taken" in namesake.detail
            assert await whole(cloud, id) == before
        # A part of a host is no host.
        part = await call(cloud, "cell1", "register", register(GPU, "gpu"), GPU)
        assert part.status == 409
        assert "is part of the host" in part.detail


async def test_no_host_hangs_a_provider_below_anothers() -> None:
    """A parent that is another's is left out, and so is what the report has below it."""
    graft, own = Ids(seed=1).uuid(), Ids(seed=2).uuid()

    async with running() as cloud:
        client = cloud.client(HEADERS)
        for victim in ("host-0004", "host-0004-gpu0"):
            id = provider_id(victim)
            first = register(MADE_UP, "evil", provider(own, "evil-own", MADE_UP))
            assert (await call(cloud, "cell1", "register", first)).status == 200
            body = register(
                MADE_UP,
                "evil",
                provider(id, victim, MADE_UP),
                provider(graft, "evil-graft", id),
                provider(own, "evil-own", id),
            )
            assert (await call(cloud, "cell1", "register", body)).status == 200
            await until_complaint(cloud, "cell1", MADE_UP, "evil-graft")
            tree = (await client.ask("GET", f"/resource_providers?in_tree={id}")).body["resource_providers"]
            assert [row["name"] for row in tree if row["name"].startswith("evil")] == []


async def test_no_host_shares_what_it_has_with_the_others() -> None:
    """It is in the aggregate of its cell: all hosts of the cell would use it for a pool."""

    async with running() as cloud:
        body = register(MADE_UP, "evil")
        body["providers"][0] |= {"traits": ["MISC_SHARES_VIA_AGGREGATE", "CUSTOM_FAST"]}
        assert (await call(cloud, "cell1", "register", body)).status == 200
        await until_complaint(cloud, "cell1", MADE_UP, "MISC_SHARES_VIA_AGGREGATE")
        _, _, traits, _ = await whole(cloud, MADE_UP)
        assert traits["traits"] == ["CUSTOM_FAST"]


async def test_no_host_takes_a_pool_of_its_cell_over() -> None:
    pool = Ids(seed=3).uuid()

    async with running() as cloud:
        client = cloud.client(HEADERS)
        made = await client.ask("POST", "/resource_providers", {"uuid": pool, "name": "pool"})
        assert made.status == 200
        for part, key, value in (
            ("traits", "traits", ["MISC_SHARES_VIA_AGGREGATE"]),
            ("aggregates", "aggregates", [cell_aggregate("cell1")]),
        ):
            path = f"/resource_providers/{pool}/{part}"
            generation = (await client.ask("GET", path)).body["resource_provider_generation"]
            written = await client.ask("PUT", path, {key: value, "resource_provider_generation": generation})
            assert written.status == 200
        before = await whole(cloud, pool)
        answer = await call(cloud, "cell1", "register", register(pool, "pool"), pool)
        assert answer.status == 409, answer.body
        assert "is a sharing provider" in answer.detail
        assert await whole(cloud, pool) == before


COMPUTE: Final = {"x-auth-token": "admin:project", "openstack-api-version": "compute 2.94"}
POOLED: Final = "bbbbbbbb-0000-4000-8000-000000000001"
RACKS: Final = ("bbbbbbbb-0000-4000-8000-000000000002", "bbbbbbbb-0000-4000-8000-000000000003")
GOLD: Final = "bbbbbbbb-0000-4000-8000-000000000004"


async def os_aggregate(cloud: SimCloud, name: str, zone: str | None = None) -> str:
    """An aggregate that an operator makes; its uuid."""
    client = cloud.client(COMPUTE)
    context = {"aggregate": {"name": name} | ({} if zone is None else {"availability_zone": zone})}
    made = await client.ask("POST", "/compute/v2.1/os-aggregates", context)
    assert made.status == 200, made.body
    return str(made.body["aggregate"]["uuid"])


async def labelled(cloud: SimCloud, id: str, **label: Any) -> None:
    client = cloud.client(HEADERS)
    assert (await client.ask("PUT", f"/berth/v1/aggregates/{id}", {"aggregate": label})).status == 200


async def zone_called(cloud: SimCloud, name: str) -> str:
    client = cloud.client(HEADERS)
    found = (await client.ask("GET", "/berth/v1/aggregates?kind=zone")).body["aggregates"]
    return str(next(one["uuid"] for one in found if one["name"] == name))


async def test_no_host_puts_itself_where_operators_put_hosts() -> None:
    """It drew servers of a project that has hosts of its own, and those of another cell and zone."""

    async with running() as cloud:
        vip = await os_aggregate(cloud, "vip")
        await os_aggregate(cloud, "east", "east")
        east = await zone_called(cloud, "east")
        await labelled(cloud, GOLD, metadata={"filter_tenant_id": "project"})
        for number, id in enumerate(RACKS):
            await labelled(cloud, id, kind="rack", name=f"r{number}")
        cell2 = cell_aggregate("cell2")
        refused = [vip, east, GOLD, cell2, RACKS[1]]
        body = register(MADE_UP, "evil") | {"aggregates": [POOLED, *RACKS, vip, east, GOLD, cell2]}
        assert (await call(cloud, "cell1", "register", body)).status == 200
        for id in refused:
            await until_complaint(cloud, "cell1", MADE_UP, id)
        inventories, aggregates = (await whole(cloud, MADE_UP))[1::2]
        assert inventories["inventories"]["VCPU"]["total"] == 1, "all else is written"
        assert set(aggregates["aggregates"]) == {cell_aggregate("cell1"), POOLED, RACKS[0]}
        await cloud.until(
            lambda view: (host := view.records.get(Host, MADE_UP)) is not None and len(host.complaints) == 5
        )
        # What an operator does stays, and is no complaint any more.
        client = cloud.client(COMPUTE)
        added = await client.ask(
            "POST", "/compute/v2.1/os-aggregates/1/action", {"add_host": {"host": "evil"}}
        )
        assert added.status == 200, added.body
        assert (await call(cloud, "cell1", "register", body)).status == 200
        await cloud.until(
            lambda view: (host := view.records.get(Host, MADE_UP)) is not None and len(host.complaints) == 4
        )
        assert vip in (await whole(cloud, MADE_UP))[3]["aggregates"]


async def test_no_host_waits_in_an_aggregate_that_is_not_made_yet() -> None:
    """The uuids of aggregates and zones follow from numbers and names: they can be known before."""

    async with running() as cloud:
        first = await os_aggregate(cloud, "first", "east")
        east = await zone_called(cloud, "east")
        client = cloud.client(COMPUTE)
        assert (await client.ask("DELETE", "/compute/v2.1/os-aggregates/1")).status == 200
        body = register(MADE_UP, "evil") | {"aggregates": [first, east]}
        assert (await call(cloud, "cell1", "register", body)).status == 200
        await cloud.until(lambda view: view.records.get(Host, MADE_UP) is not None)
        assert await os_aggregate(cloud, "again", "east") == first
        shown = (await client.ask("GET", "/compute/v2.1/os-aggregates/1")).body["aggregate"]
        assert shown["hosts"] == []
        assert (await whole(cloud, MADE_UP))[3]["aggregates"] == [cell_aggregate("cell1")]


async def test_no_host_waits_in_a_cell_that_has_no_hosts_yet() -> None:
    async with running(hosts=1) as cloud:
        cell2 = cell_aggregate("cell2")
        body = register(MADE_UP, "evil") | {"aggregates": [cell2]}
        assert (await call(cloud, "cell1", "register", body)).status == 200
        await cloud.until(lambda view: view.records.get(Host, MADE_UP) is not None)
        assert cell2 in (await whole(cloud, MADE_UP))[3]["aggregates"]
        other = Ids().uuid()
        assert (await call(cloud, "cell2", "register", register(other, "first"), other)).status == 200
        await cloud.until(lambda view: view.records.get(Host, other) is not None)
        assert (await whole(cloud, MADE_UP))[3]["aggregates"] == [cell_aggregate("cell1")]
        assert (await whole(cloud, other))[3]["aggregates"] == [cell2]


async def test_no_host_is_shown_under_the_name_of_a_host_of_another_cell() -> None:
    async with running() as cloud:
        victim = next(name for name in cloud.hosts if cell_of(cloud, name) != "cell1")
        assert (await call(cloud, "cell1", "register", register(MADE_UP, "evil"))).status == 200
        await call(cloud, "cell1", "register", register(MADE_UP, victim))
        await until_complaint(cloud, "cell1", MADE_UP, "cannot be changed")
        async with asyncio.timeout(PATIENCE_S):
            while not (host := await cloud.read(lambda view: view.records.get(Host, MADE_UP))):
                await asyncio.sleep(0.2)
            while not host.complaints:
                await asyncio.sleep(0.2)
                host = await cloud.read(lambda view: view.records.get(Host, MADE_UP))
                assert host is not None
        assert host.name == "evil"
        assert len(await cloud.read(lambda view: view.records.find(Host, "name", victim))) == 1


async def test_nobody_else_brings_a_dead_host_back() -> None:
    """The migration was completed, and its source released, while the old server was still on its disk."""

    async with running(cells=1) as cloud:
        assert (await call(cloud, "cell1", "register", register(MADE_UP, "evil"))).status == 200
        server = await done(cloud, "create", new_server(cloud))
        assert server is not None
        place = await host_dies(cloud, server)
        await done(cloud, "evacuate", server)
        await cloud.all_at_rest()
        poll = {"host": place.id, "servers": []}
        for shown in (None, MADE_UP, place.id):
            assert (await call(cloud, place.cell, "poll", poll, shown)).status == 401, shown
        assert (await call(cloud, place.cell, "register", register(place.id, place.name), None)).status == 401
        await asyncio.sleep(0.3)
        down, migrations = await cloud.read(
            lambda view: (
                [view.record(row).id for row in view.down],
                [one.status for one in view.records.all(Migration)],
            )
        )
        assert place.id in down
        assert migrations == ["done"], "it waits for its source to come back"


async def test_nobody_else_reports_a_command_done() -> None:
    """A server was ACTIVE and ran nowhere."""

    async with running(cells=1) as cloud:
        assert (await call(cloud, "cell1", "register", register(MADE_UP, "evil"))).status == 200
        server = await done(cloud, "create", new_server(cloud))
        assert server is not None
        assert server.place is not None
        host = server.place
        cloud.hosts[host.name].kill()
        assert await cloud.begin(beginning(cloud, "stop", server)) is None
        cell = cloud.readers["cell1"]
        async with asyncio.timeout(PATIENCE_S):
            while not await cell.read(lambda view: view.records.count(SagaRun)):
                await asyncio.sleep(0.1)
        run = f"{(await cell.read(lambda view: list(view.records.all(SagaRun))))[0].id}"
        for shown in (None, MADE_UP, host.id):
            for id in (run, f"{run} 0", f"{run}/0/1"):
                answer = await call(cloud, "cell1", "report", {"host": host.id, "order": id}, shown)
                assert answer.status == 401, (shown, answer.body)
        # Under its own name a host settles nothing that was not given to it.
        ours = await call(cloud, "cell1", "report", {"host": MADE_UP, "order": run})
        assert (ours.status, ours.body) == (200, {"awaited": False})
        after = await cloud.at_rest(server.id)
        assert after is not None
        assert after.fault is not None, "the host that was to do it is dead"


# -- bodies -------------------------------------------------------------------------------------


async def told_status(cloud: SimCloud, headers: dict[str, str], is_read: list[bool]) -> int:
    """The status that a request gets whose body is not looked at; ``is_read`` says that it was."""
    sent: list[Any] = []

    async def receive() -> Any:
        is_read.append(True)
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/agent/v1/register",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("test", 0),
    }
    application = cloud.cells["cell1"].application
    assert application is not None
    await application(scope, receive, send)
    return int(sent[0]["status"])


async def test_no_body_is_read_of_a_caller_who_may_not_be_heard() -> None:
    known, length = provider_id("host-0001"), {"content-length": "2"}

    async with running(cells=1, hosts=1, join_token=TOKEN) as cloud:
        is_read: list[bool] = []
        for shown in (
            {},
            {"x-agent-token": "wrong"},
            {"x-agent-token": TOKEN, "x-agent-credential": f"{known}:{SECRET}"},
            {"x-agent-token": TOKEN, "x-agent-credential": "nonsense"},
            {"x-agent-token": TOKEN, "x-agent-version": "-1"},
            {"x-agent-credential": f"{MADE_UP}:{SECRET}"},
        ):
            assert await told_status(cloud, {**length, **shown}, is_read) == 401, shown
        for told_length in (str((8 << 20) + 1), "9" * 5000, "many"):
            shown = {"content-length": told_length, "x-agent-token": TOKEN}
            assert await told_status(cloud, shown, is_read) == 413, told_length
        assert not is_read
        assert await told_status(cloud, {**length, "x-agent-token": TOKEN}, is_read) == 400
        assert is_read


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"inventories": {"VCPU": {}}}, "missing required field `total`"),
        ({"inventories": {"VCPU": {"total": 1, "allocation_ratio": "much"}}}, "Expected `float`"),
        ({"inventories": {"VCPU": {"total": 1, "allocation_ratio": 0}}}, "Expected `float` > 0.0"),
        ({"inventories": {"VCPU": {"total": 2**31}}}, "Expected `int` <= 2147483647"),
        ({"inventories": {"VCPU": {"total": 0}}}, "Expected `int` >= 1"),
        ({"inventories": {"VCPU": {"total": 1, "reserved": -1}}}, "Expected `int` >= 0"),
        ({"inventories": {"vcpu": {"total": 1}}}, "matching regex"),
        ({"inventories": {f"CUSTOM_{n}": {"total": 1} for n in range(2001)}}, "length <= 2000"),
        ({"traits": [f"CUSTOM_{n}" for n in range(5001)]}, "length <= 5000"),
        ({"name": "n" * 201}, "length <= 200"),
    ],
)
async def test_what_a_host_cannot_have_is_refused_with_words(change: dict[str, Any], why: str) -> None:
    async with running(cells=1, hosts=0) as cloud:
        body = register(MADE_UP, "odd", provider(GPU[:-1] + "0", "odd-1", MADE_UP) | change)
        answer = await call(cloud, "cell1", "register", body)
        assert answer.status == 400, answer.body
        assert why in answer.detail


async def test_a_registration_has_bounds() -> None:
    async with running(cells=1, hosts=0) as cloud:
        many = [provider(Ids().uuid(), f"p{number}", MADE_UP) for number in range(1000)]
        answer = await call(cloud, "cell1", "register", register(MADE_UP, "wide", *many))
        assert answer.status == 400
        assert "length <= 1000" in answer.detail
        kinds = {f"CUSTOM_{number}": {"total": 1} for number in range(500)}
        fat = [one | {"inventories": kinds} for one in many[:4]]
        answer = await call(cloud, "cell1", "register", register(MADE_UP, "fat", *fat))
        assert answer.status == 400
        assert "2001 inventories are more than 2000" in answer.detail
        traits = [f"CUSTOM_{number}" for number in range(2000)]
        fat = [one | {"traits": traits} for one in many[:3]]
        answer = await call(cloud, "cell1", "register", register(MADE_UP, "fat", *fat))
        assert "6000 traits are more than 5000" in answer.detail


# -- joining ------------------------------------------------------------------------------------


async def test_the_join_token_is_for_the_first_registration_alone() -> None:
    async with running(cells=1, hosts=1, join_token=TOKEN) as cloud:
        body, poll = register(MADE_UP, "new"), {"host": MADE_UP}
        assert (await call(cloud, "cell1", "register", body)).status == 401
        assert (await call(cloud, "cell1", "register", body, token="wrong")).status == 401
        assert (await call(cloud, "cell1", "register", body, None, token=TOKEN)).status == 401
        assert (await call(cloud, "cell1", "register", body, token=TOKEN)).status == 200
        # The answer may be lost: the same is asked again, and from now on without the token.
        assert (await call(cloud, "cell1", "register", body, token=TOKEN)).status == 200
        assert (await call(cloud, "cell1", "register", body)).status == 200
        assert (await call(cloud, "cell1", "poll", poll)).status == 200
        # The token alone is nobody, and does not make another credential good.
        for what, sent in (("register", body), ("poll", poll), ("report", poll | {"order": "x"})):
            assert (await call(cloud, "cell1", what, sent, None, token=TOKEN)).status == 401, what
            assert (await call(cloud, "cell1", what, sent, secret="t" * 43, token=TOKEN)).status == 401, what
        agent = await cloud.readers["cell1"].read(lambda view: view.records.get(Agent, MADE_UP))
        assert agent is not None
        assert agent.credential is not None
        assert SECRET not in agent.credential


async def test_a_cell_has_so_many_hosts_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(cells=1, hosts=1) as cloud:
        monkeypatch.setattr(agents, "HOSTS_MAX", 1)
        answer = await call(cloud, "cell1", "register", register(MADE_UP, "one-more"))
        assert (answer.status, answer.detail) == (409, "The cell has 1 hosts, which is the limit.")
        assert (await whole(cloud, MADE_UP))[0]["errors"][0]["status"] == 404, "nothing was written"


async def test_agents_keep_their_credentials_to_themselves() -> None:
    async with running(join_token=TOKEN) as cloud:
        known: set[str | None] = set()
        for reader in cloud.readers.values():
            known |= await reader.read(lambda view: {one.credential for one in view.records.all(Agent)})
        assert len(known - {None}) == 4, "each has its own"
        # An agent that starts again is known by it, without the join token.
        cloud.join_token = None
        cloud.hosts["host-0001"].kill()
        await cloud.until(lambda view: len(view.down) == 1)
        cloud.hosts["host-0001"].start()
        await cloud.until(lambda view: not len(view.down))
