"""Servers that move from one cell to another: a saga run goes through both, and each has its part of the end.

What happens when a step fails is in ``test_every_step``; here it is what lies between the cells, the region
included."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest

from berth.doctor.findings import examine
from berth.model.rejections import HostInAnotherCell, NoFit
from berth.model.saga_runs import Assignment, Instance, SagaRun
from berth.model.servers import Action, CellStatus, Migration, Server
from berth.sagas import live_migrate, migrate
from berth.sagas.proposals import Context, CrossCell
from berth.sim.cloud import SimCloud
from berth.sim.rest import find_wrong_units
from tests.lifecycle.chaos import check_at_rest
from tests.lifecycle.stories import DEVICES_SMALL, beginning, cells_ready, done, new_server
from tests.lifecycle.test_devices import QUICK, make_fleet

ADMIN: Final = {"x-auth-token": "admin", "openstack-api-version": "compute 2.90"}
LONE: Final = "dev-2"
"""The one host of the second cell."""


@contextlib.asynccontextmanager
async def running(**options: Any) -> AsyncIterator[SimCloud]:
    """Two hosts in one cell, and one in the other."""
    cloud = SimCloud(**{"seed": 41, "fleet": make_fleet(3), "behaviour": QUICK, "cells": 2, **options})
    async with cloud.running():
        await cells_ready(cloud)
        yield cloud


def crossing(cloud: SimCloud, crosses: CrossCell = "on") -> Context:
    return cloud.context()._replace(resizes_in_place=False, crosses_cells=crosses)


async def created(cloud: SimCloud) -> Server:
    after = await done(cloud, "create", new_server(cloud, flavor=DEVICES_SMALL), host=LONE)
    assert after is not None
    return after


async def moved(cloud: SimCloud) -> Server:
    server = await created(cloud)
    after = await done(cloud, "resize", server, crossing(cloud))
    assert after is not None
    assert after.state == "resized"
    assert after.place is not None
    assert after.place.cell == "cell1"
    return after


async def assigned(cloud: SimCloud, cell: str, server: Server) -> dict[str, tuple[str, ...]]:
    """The units of a server in a cell, by who holds them."""
    found = await cloud.readers[cell].read(lambda view: view.records.find(Assignment, "server", server.id))
    return {"server" if one.holder == server.id else "migration": one.unit_names() for one in found}


async def settled(cloud: SimCloud) -> None:
    """Nothing is under way, all units are where they should be, and the doctor finds nothing."""
    await cloud.all_at_rest()
    async with asyncio.timeout(300):
        while await find_wrong_units(cloud):
            await asyncio.sleep(0.5)
    await check_at_rest(cloud)


async def hosts_known(cloud: SimCloud, cell: str, server: Server) -> tuple[str, ...]:
    instance = await cloud.readers[cell].read(lambda view: view.records.get(Instance, server.id))
    return () if instance is None else instance.hosts


async def test_units_of_both_cells_follow_a_move_that_is_confirmed() -> None:
    async with running() as cloud:
        server = await moved(cloud)
        await settled(cloud)
        assert set(await assigned(cloud, "cell2", server)) == {"migration"}
        assert set(await assigned(cloud, "cell1", server)) == {"server"}
        await done(cloud, "confirm", server)
        await settled(cloud)
        assert await assigned(cloud, "cell2", server) == {}
        assert set(await assigned(cloud, "cell1", server)) == {"server"}
        assert await hosts_known(cloud, "cell2", server) == ()
        after = await cloud.server(server.id)
        assert after is not None
        assert after.place is not None
        assert await hosts_known(cloud, "cell1", server) == (after.place.id,)
        # It is a server of that cell like any other.
        for name in ("stop", "start", "migrate", "confirm", "delete"):
            await done(cloud, name, server)
        await settled(cloud)
        assert cloud.hosts_with(server.id) == set()


async def test_a_revert_gives_the_same_units_back() -> None:
    async with running() as cloud:
        server = await created(cloud)
        before = await assigned(cloud, "cell2", server)
        for name in ("resize", "revert"):
            await done(cloud, name, server, crossing(cloud))
        await settled(cloud)
        assert await assigned(cloud, "cell2", server) == before
        assert await assigned(cloud, "cell1", server) == {}
        assert await hosts_known(cloud, "cell1", server) == ()


async def test_a_need_that_is_added_after_a_move_reaches_the_cell_that_the_server_is_in() -> None:
    """That cell did nothing for the confirmation, and must know its number all the same."""
    async with running() as cloud:
        server = await moved(cloud)
        await done(cloud, "confirm", server)
        await cloud.all_at_rest()
        refused = await cloud.begin(beginning(cloud, "need", server))
        assert refused is None
        await settled(cloud)
        known = await cloud.readers["cell1"].read(lambda view: view.records.get(Instance, server.id))
        after = await cloud.server(server.id)
        assert known is not None
        assert after is not None
        assert known.last == after.run_count


@pytest.mark.parametrize("edge", ["before", "after"])
@pytest.mark.parametrize("end", ["confirm", "revert", "delete"])
async def test_a_region_that_dies_at_every_write_loses_no_run(edge: str, end: str) -> None:
    async with running(workers=1) as cloud:
        server = await created(cloud)
        for name in ("resize", end):
            refused = await cloud.begin(beginning(cloud, name, server, crossing(cloud)))
            assert refused is None, refused
            for _ in range(12):
                cloud.faults.doomed["region-1"] = "before" if edge == "before" else "after"
                await asyncio.sleep(5)
            cloud.faults.doomed.clear()
            after = await cloud.at_rest(server.id)
            assert after is None or after.fault is None
        await settled(cloud)
        assert (after is None) == (end == "delete")


async def test_a_run_waits_for_the_conductor_of_the_other_cell() -> None:
    async with running() as cloud:
        server = await created(cloud)
        cloud.cells["cell1"].kill()
        refused = await cloud.begin(beginning(cloud, "resize", server, crossing(cloud)))
        assert refused is None
        await asyncio.sleep(120)
        waiting = await cloud.server(server.id)
        assert waiting is not None
        assert waiting.task is not None
        # It runs where it is until the other cell has prepared its place.
        assert cloud.hosts_with(server.id) == {LONE}
        now_s = await cloud.read(lambda view: max(one.updated_at_s for one in view.records.all(Action)))
        found = await cloud.read(lambda view: examine(view, now_s + 100 * 3600))
        assert [one.kind for one in found if one.subject == waiting.run] == ["order_without_end"]
        cloud.cells["cell1"].revive()
        after = await cloud.at_rest(server.id)
        assert after is not None
        assert after.state in ("resized", "active")
        await settled(cloud)


async def test_no_run_is_left_in_either_cell() -> None:
    async with running() as cloud:
        server = await moved(cloud)
        await cloud.all_at_rest()
        for reader in cloud.readers.values():
            assert await reader.read(lambda view: view.records.count(SagaRun)) == 0
            instance = await reader.read(lambda view: view.records.get(Instance, server.id))
            assert instance is not None
            # Only the cell that it runs in can say what it is.
            assert bool(instance.sheet) == (reader is cloud.readers["cell1"])


# -- where it is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("crosses", "words"), [("off", "cross_cell_moves"), ("denied", "compute:servers:resize:cross_cell")]
)
async def test_a_refusal_names_both_cells_and_why(crosses: CrossCell, words: str) -> None:
    async with running() as cloud:
        server = await created(cloud)
        context = crossing(cloud, crosses)
        refused = await cloud.begin(
            lambda view, now_s: migrate.propose(view, now_s, context, server.id, "dev-1")
        )
        assert isinstance(refused, HostInAnotherCell)
        assert (refused.cell, refused.host_cell, refused.host) == ("cell2", "cell1", "dev-1")
        assert words in refused.why
        # Without a host, the plan stays in the cell.
        refused = await cloud.begin(beginning(cloud, "migrate", server, context))
        assert isinstance(refused, NoFit)
        assert any("cell2" in step.asked for step in refused.steps)


async def test_a_live_migration_stays_in_its_cell() -> None:
    async with running() as cloud:
        server = await created(cloud)
        refused = await cloud.begin(
            lambda view, now_s: live_migrate.propose(view, now_s, crossing(cloud), server.id, "dev-1")
        )
        assert isinstance(refused, HostInAnotherCell)
        assert "cold migration" in refused.why


async def test_a_cell_that_cannot_take_part_is_left_out() -> None:
    """One that is out of reach, or whose journal is not upgraded: a run could not be handed over to it."""
    for change in ({"is_reachable": False}, {"format": 1}):
        async with running() as cloud:
            server = await created(cloud)
            with _shown_as(cloud, "cell1", **change):
                refused = await cloud.begin(
                    lambda view, now_s, id=server.id: migrate.propose(  # type: ignore[misc]
                        view, now_s, crossing(cloud), id, "dev-1"
                    )
                )
                assert isinstance(refused, HostInAnotherCell)
                assert "the cell cell1 cannot take part" in refused.why
                refused = await cloud.begin(beginning(cloud, "migrate", server, crossing(cloud)))
                assert isinstance(refused, NoFit)


@contextlib.contextmanager
def _shown_as(cloud: SimCloud, cell: str, **change: Any) -> Any:
    """Have the region's record of a cell say something else."""
    records = cloud.region.view.records
    status = records.get(CellStatus, cell)
    assert status is not None
    shown = msgspec.structs.replace(status, **change)
    records.change(status, shown)
    yield
    records.change(shown, status)


async def test_the_api_moves_across_cells_where_the_setting_says_so() -> None:
    for allowed in (False, True):
        async with running(cross_cell_moves=allowed) as cloud:
            server = await created(cloud)
            path = f"/compute/v2.1/servers/{server.id}/action"
            answer = await cloud.client(ADMIN).ask("POST", path, {"migrate": {"host": "dev-3"}}, 10)
            if not allowed:
                assert answer.status == 400
                words = answer.body["badRequest"]["message"]
                assert "cell2" in words
                assert "cell1" in words
                assert "cross_cell_moves" in words
                continue
            assert answer.status == 202
            after = await cloud.at_rest(server.id)
            assert after is not None
            assert after.place is not None
            assert (after.state, after.place.name) == ("resized", "dev-3")
            [migration] = await cloud.read(lambda view: list(view.records.all(Migration)))
            assert (migration.source.cell, migration.dest.cell) == ("cell2", "cell1")
