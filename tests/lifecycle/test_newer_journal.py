"""A newer release has finished the upgrade of a cell's journal while an older one is still at work. Whatever
meets it says who has written it and stops there: nothing is written behind it, all else goes on, and once the
journal can be read again the cell does too."""

import asyncio
from contextlib import closing

import pytest

from berth.model.events import Origin
from berth.model.formats import FORMAT, Program
from berth.model.saga_runs import Outbox
from berth.model.servers import CellStatus, Server
from berth.sim.cloud import SimCloud
from berth.view import View
from tests.lifecycle.stories import beginning, done, new_server

NEXT = Program("99.1", FORMAT + 1)
SENTENCE = f"was written by {NEXT}"


def finish_upgrade(cloud: SimCloud, cell: str) -> int:
    """As ``berth db upgrade --finish`` of the next release does it. The index of the row."""
    with closing(cloud.cells[cell].database.open(cloud.outside)) as journal:
        journal.program = NEXT
        journal.raise_format(Origin("req", "operator", None, "db upgrade"), "raise", 7)
        return journal.tail()


def take_back(cloud: SimCloud, cell: str, index: int) -> None:
    """As if the journal had been restored from a backup of before."""
    database = cloud.cells[cell].database
    with closing(database.connect()) as connection:
        connection.execute("DELETE FROM journal WHERE idx >= ?", (index,))
    database.changes += 1


def tail_of(cloud: SimCloud, cell: str) -> int:
    with closing(cloud.cells[cell].database.connect()) as connection:
        return int(connection.execute("SELECT max(idx) FROM journal").fetchone()[0])


async def test_a_conductor_and_a_region_stop_at_a_journal_of_the_next_release(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SimCloud(seed=12, hosts=4, cells=2).running() as cloud:
        first, second = new_server(cloud), new_server(cloud)
        for server in (first, second):
            await done(cloud, "create", server)
        places = {server.id: await find_cell(cloud, server) for server in (first, second)}
        here, there = sorted((first, second), key=lambda server: places[server.id] != "cell1")
        assert places[here.id] == "cell1"
        conductor = cloud.cells["cell1"].process
        assert conductor is not None

        index = finish_upgrade(cloud, "cell1")
        assert await cloud.begin(beginning(cloud, "stop", here)) is None
        await asyncio.sleep(300)

        assert not conductor.is_alive
        assert "cell cell1: its journal: cannot be used, retrying: The journal was written by a newer" in (
            caplog.text
        )
        assert SENTENCE in caplog.text
        assert "unexpected" not in caplog.text
        # It is told when it happens, and not again and again.
        told = [text for text in caplog.messages if "its journal: cannot be used" in text]
        assert len(told) == 1
        status = await cloud.read(lambda view: view.records.get(CellStatus, "cell1"))
        assert status is not None
        assert not status.is_reachable
        assert SENTENCE in (status.text or "")
        # Nothing was written behind it, what was asked for waits, and the other cell goes on.
        assert tail_of(cloud, "cell1") == index
        assert await cloud.read(lambda view: view.records.count(Outbox)) == 1
        if places[there.id] == "cell2":
            assert await done(cloud, "stop", there) is not None

        take_back(cloud, "cell1", index)
        await cloud.until(lambda view: is_stopped(view, here))
        assert tail_of(cloud, "cell1") > index
        status = await cloud.read(lambda view: view.records.get(CellStatus, "cell1"))
        assert status is not None
        assert status.is_reachable


async def find_cell(cloud: SimCloud, server: Server) -> str:
    found = await cloud.server(server.id)
    assert found is not None
    assert found.place is not None
    return found.place.cell


def is_stopped(view: View, server: Server) -> bool:
    found = view.records.get(Server, server.id)
    return found is not None and found.run is None and found.state == "stopped"
