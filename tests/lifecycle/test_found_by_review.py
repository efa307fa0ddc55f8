"""What was wrong once. Each fault was seen, by a script of its own, before it was mended."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.agent.drivers.behaviour import Rule, SimBehaviour
from berth.cell.conductor import Deadlines
from berth.cell.protocol import ReportedProvider
from berth.client import Client, WireRequest
from berth.doctor.findings import examine
from berth.main import application
from berth.model.rejections import ConfirmBegun, NoFit, RevertBegun
from berth.model.saga_runs import Agent, Instance, Term
from berth.model.servers import Migration, Server
from berth.runtime.settings import Settings
from berth.sagas.conflicts import as_dict, held_now
from berth.sim.cloud import SimCloud
from berth.sim.faults import StepFault
from berth.sim.network import Mishap
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import beginning, brought_before, done, host_dies, new_server
from tests.lifecycle.test_moves import somebody_adds

HEADERS: Final = {"x-auth-token": "admin:project", "openstack-api-version": "placement 1.39"}


def running(**options: Any) -> AbstractAsyncContextManager[SimCloud]:
    return SimCloud(**{"seed": 5, "hosts": 3, **options}).running()


async def _at_rest(cloud: SimCloud, id: str) -> Server:
    found = await cloud.at_rest(id)
    assert found is not None
    return found


async def test_a_host_that_was_down_for_long_gets_rid_of_what_was_deleted() -> None:
    """The cell had forgotten the server, and with it that its command to destroy was the last."""
    async with running() as cloud:
        server = await brought_before(cloud, "delete")
        place = await host_dies(cloud, server)
        await done(cloud, "delete", server)
        other = await brought_before(cloud, "delete")
        await done(cloud, "delete", other)
        async with asyncio.timeout(3 * 3600):
            while await cloud.readers["cell1"].read(lambda view: view.records.get(Instance, other.id)):
                await asyncio.sleep(60)
        cloud.hosts[place.name].start()
        await cloud.until(lambda view: not len(view.down))
        assert cloud.hosts_with(server.id) == set()


async def test_nobody_is_placed_on_a_host_of_no_cell() -> None:
    async with running() as cloud:
        client = cloud.client(HEADERS)
        id = "aaaaaaaa-0000-4000-8000-000000000001"
        await client.ask("POST", "/resource_providers", {"uuid": id, "name": "vast"})
        inventories = {name: {"total": 10**6} for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
        body = {"inventories": inventories, "resource_provider_generation": 0}
        assert (await client.ask("PUT", f"/resource_providers/{id}/inventories", body)).status == 200
        server = await done(cloud, "create", new_server(cloud))
        assert server is not None
        assert server.place is not None
        assert server.place.id != id
        vast = msgspec.structs.replace(server.flavor, id="vast", vcpus=1000)
        refused = await cloud.begin(beginning(cloud, "create", new_server(cloud, flavor=vast)))
        assert isinstance(refused, NoFit), refused
        assert any(step.constraint == "cell" and step.removed == 1 for step in refused.steps), refused


async def test_a_lost_answer_and_somebody_elses_change_do_not_double_anything() -> None:
    async with running() as cloud:
        server = await brought_before(cloud, "migrate")
        before = await _at_rest(cloud, server.id)
        lost: list[asyncio.Task[None]] = []

        def lose(source: str, address: str, request: WireRequest) -> Mishap | None:
            is_claim = source == "cell1" and (request.method, request.path) == ("POST", "/allocations")
            if lost or not is_claim or len(msgspec.json.decode(request.content)) != 2:
                return None
            lost.append(asyncio.create_task(add_then()))
            return "answer lost"

        async def add_then() -> None:
            """When it is made, and before the conductor asks again."""
            await asyncio.sleep(1)
            await somebody_adds(cloud, server.id)

        cloud.network.decide = lose
        rule = Rule(outcome="fail", verb="prepare")
        cloud.behaviours.replace(SimBehaviour(build_seconds=0, other_seconds=0, rules=(rule,)))
        assert await cloud.begin(beginning(cloud, "migrate", server)) is None
        after = await _at_rest(cloud, server.id)
        assert lost, "the claim was never given back"
        (had,), (has,) = as_dict(before.held).values(), as_dict(after.held).values()
        assert has == {**had, "DISK_GB": had["DISK_GB"] + 7}
        assert after.held == await cloud.read(lambda view: held_now(view, server.id))
        assert _disk(after.kept) == 7, "it is known to be somebody else's"


def _disk(held: Any) -> int:
    return sum(amounts.get("DISK_GB", 0) for amounts in as_dict(held).values())


@pytest.mark.parametrize("name", ["stop", "delete", "migrate"])
async def test_a_run_that_waited_for_its_conductor_has_its_time(name: str) -> None:
    async with running() as cloud:
        server = await brought_before(cloud, name)
        cloud.cells["cell1"].kill()
        assert await cloud.begin(beginning(cloud, name, server)) is None
        await asyncio.sleep(2 * Deadlines().ordinary)
        cloud.cells["cell1"].start()
        after = await cloud.at_rest(server.id)
        assert after is None or after.fault is None, after


async def test_what_a_late_confirmation_has_cleaned_up_is_not_reverted_to() -> None:
    async with running() as cloud:
        server = await brought_before(cloud, "confirm")
        cloud.faults.add(StepFault(server.id, "confirm", 1, "forward", "late"))
        assert await cloud.begin(beginning(cloud, "confirm", server)) is None
        assert (await _at_rest(cloud, server.id)).state == "resized"
        assert isinstance(await cloud.begin(beginning(cloud, "revert", server)), ConfirmBegun)
        after = await done(cloud, "confirm", server)
        assert after is not None
        assert after.place is not None
        assert cloud.hosts_with(server.id) == {after.place.name}


async def test_a_revert_that_failed_can_be_asked_for_again() -> None:
    async with running() as cloud:
        server = await brought_before(cloud, "revert")
        cloud.faults.add(StepFault(server.id, "revert", 1, "forward", "fail"))
        assert await cloud.begin(beginning(cloud, "revert", server)) is None
        assert (await _at_rest(cloud, server.id)).state == "error"
        after = await done(cloud, "revert", server)
        assert after is not None
        assert after.state == "active"
        await cloud.all_at_rest()
        await check_at_rest(cloud)


async def test_what_was_half_deleted_is_not_confirmed() -> None:
    """Its only copy was gone, and it was said to be resized."""

    async with running() as cloud:
        server = await brought_before(cloud, "confirm")
        cloud.faults.add(StepFault(server.id, "delete", 2, "forward", "fail"))
        assert await cloud.begin(beginning(cloud, "delete", server)) is None
        assert (await _at_rest(cloud, server.id)).state == "error"
        assert isinstance(await cloud.begin(beginning(cloud, "confirm", server)), RevertBegun)
        assert await done(cloud, "delete", server) is None
        await cloud.all_at_rest()
        await check_at_rest(cloud)


async def test_what_was_held_is_given_back_though_its_units_have_shrunk() -> None:
    """It ended in ERROR, with both halves held, until somebody made the units larger again."""

    async with running() as cloud:
        server = await brought_before(cloud, "migrate")
        place = (await _at_rest(cloud, server.id)).place
        assert place is not None
        rule = Rule(outcome="fail", verb="send")
        cloud.behaviours.replace(SimBehaviour(build_seconds=0, other_seconds=0.3, rules=(rule,)))
        assert await cloud.begin(beginning(cloud, "migrate", server)) is None
        client = cloud.client(HEADERS)
        path = f"/resource_providers/{place.id}/inventories"
        found = (await client.ask("GET", path)).body
        found["inventories"]["MEMORY_MB"]["max_unit"] = 256
        assert (await client.ask("PUT", path, found)).status == 200
        after = await _at_rest(cloud, server.id)
        assert (after.state, after.place, after.migration) == ("active", place, None)
        assert await cloud.read(lambda view: len(view.consumers)) == 1
        await cloud.all_at_rest()
        await check_at_rest(cloud)


@pytest.mark.parametrize("operation", ["migrate", "revert"])
@pytest.mark.parametrize("source", ["full", "deleted"])
async def test_what_cannot_be_given_back_ends_in_error_and_leaks_nothing(operation: str, source: str) -> None:
    """Somebody has deleted the migration's allocations, and has filled or deleted the source."""

    async with running() as cloud:
        server = await brought_before(cloud, operation)
        rules = (Rule(outcome="fail", verb="send"),) if operation == "migrate" else ()
        cloud.behaviours.replace(SimBehaviour(build_seconds=0, other_seconds=0.5, rules=rules))
        assert await cloud.begin(beginning(cloud, operation, server)) is None
        moving = await cloud.server(server.id)
        assert moving is not None
        migration = await cloud.read(lambda view: view.records.get(Migration, moving.migration or ""))
        assert migration is not None
        place, dest = migration.source, migration.dest
        assert dest is not None
        client = cloud.client(HEADERS)
        assert (await client.ask("DELETE", f"/allocations/{migration.id}")).status == 204
        await _fill_or_delete(cloud, place.id, source)

        after = await _at_rest(cloud, server.id)
        assert (after.state, after.task) == ("error", None)
        assert after.fault is not None
        held = await cloud.read(lambda view: {id: as_dict(held_now(view, id)) for id in view.consumers})
        assert {id: list(there) for id, there in held.items()} == {server.id: [dest.id]}, "each half once"
        findings = await cloud.read(lambda view: examine(view, 10**10))
        assert ("migration_without_allocations", migration.id) in {
            (one.kind, one.subject) for one in findings
        }

        # Nothing is in the way of deleting it, and nothing is left then.
        cloud.behaviours.replace(SimBehaviour(build_seconds=0, other_seconds=0))
        assert await done(cloud, "delete", after) is None
        await cloud.all_at_rest()
        assert await cloud.read(lambda view: (len(view.consumers), view.records.count(Migration))) == (0, 0)
        assert cloud.hosts_with(server.id) == set()


async def _fill_or_delete(cloud: SimCloud, host: str, how: str) -> None:
    """Leave no room on a host, or no provider of it."""
    client = cloud.client(HEADERS)
    if how == "full":
        path = f"/resource_providers/{host}/inventories"
        found = (await client.ask("GET", path)).body
        found["inventories"]["VCPU"]["reserved"] = found["inventories"]["VCPU"]["total"]
        assert (await client.ask("PUT", path, found)).status == 200
        return
    tree = (await client.ask("GET", f"/resource_providers?in_tree={host}")).body["resource_providers"]
    for id in sorted((row["uuid"] for row in tree), key=lambda id: id == host):
        assert (await client.ask("DELETE", f"/resource_providers/{id}")).status == 204


async def test_who_takes_a_cell_over_is_alone() -> None:
    """Two conductors marked each other's hosts down."""

    async with running() as cloud:
        cell, reader = cloud.cells["cell1"], cloud.readers["cell1"]
        first = await reader.read(lambda view: view.records.get(Term, "conductor"))
        before, cell.process = cell.process, None
        cell.start()
        assert before is not None
        await before.ended
        second = await reader.read(lambda view: view.records.get(Term, "conductor"))
        assert first is not None
        assert second is not None
        assert second.number == first.number + 1
        for _ in range(5):
            server = await done(cloud, "create", new_server(cloud))
            assert server is not None
        agents = await reader.read(lambda view: list(view.records.all(Agent)))
        assert not any(agent.is_down for agent in agents)


async def test_a_cell_that_is_away_does_not_hold_up_the_others() -> None:
    async with running(cells=2, hosts=6) as cloud:
        servers = [await brought_before(cloud, "stop") for _ in range(6)]
        cells = {s.id: (await _at_rest(cloud, s.id)).place for s in servers}
        here = next(s for s in servers if (place := cells[s.id]) and place.cell == "cell1")
        there = next(s for s in servers if (place := cells[s.id]) and place.cell == "cell2")
        cloud.unreachable.add("cell2")
        cloud.workers[0].restart()
        assert await cloud.begin(beginning(cloud, "stop", there)) is None
        assert (await done(cloud, "stop", here)) is not None
        waiting = await cloud.server(there.id)
        assert waiting is not None
        assert waiting.run is not None
        cloud.unreachable.clear()
        assert (await _at_rest(cloud, there.id)).state == "stopped"


# -- HTTP ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trait", ["CUSTOM_A HTTP/1.1\r\n\r\nDELETE /x", "CUSTOM_A\n", "custom_a", "A" * 300])
def test_an_agent_cannot_smuggle_a_request_in_a_name(trait: str) -> None:
    id = "aaaaaaaa-0000-4000-8000-000000000000"
    body = msgspec.json.encode({"id": id, "name": "h", "traits": [trait]})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=ReportedProvider)


@pytest.mark.parametrize("path", ["/a b", "/a\r\nx: y", "a", "/\x00"])
def test_a_path_that_is_more_than_a_path_is_not_asked_for(path: str) -> None:
    with pytest.raises(ValueError, match="cannot be asked for"):
        asyncio.run(Client("http://127.0.0.1:1").ask("GET", path))
    with pytest.raises(ValueError, match="cannot be sent"):
        Client("http://127.0.0.1:1", {"x": "a\r\nb: c"})


def test_answers_in_pieces_are_understood() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer + b'4\r\n{"a"\r\n3;x=y\r\n:1}\r\n0\r\n\r\n')
            await writer.drain()
        writer.close()

    async def tell() -> list[Any]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server:
            bodies = [(await client.ask("GET", "/x", timeout_s=5)).body for _ in range(2)]
            await client.close()
        return bodies

    assert asyncio.run(tell()) == [{"a": 1}, {"a": 1}]


def test_a_region_starts_though_a_cell_is_away(tmp_path: Path) -> None:
    settings = Settings(
        database=f"sqlite:///{tmp_path}/region.db", cells=("away=postgresql://u:p@127.0.0.1:1/nothing",)
    )

    async def tell() -> list[str]:
        told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def send(message: Any) -> None:
            heard.put_nowait(message["type"])

        life = asyncio.create_task(application(settings)({"type": "lifespan"}, told.get, send))
        told.put_nowait({"type": "lifespan.startup"})
        async with asyncio.timeout(20):
            first = await heard.get()
            told.put_nowait({"type": "lifespan.shutdown"})
            second = await heard.get()
            await life
        return [first, second]

    assert asyncio.run(tell()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
