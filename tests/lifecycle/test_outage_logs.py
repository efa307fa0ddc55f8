"""What a part loses and regains is in its log, at both ends and with how long it took."""

import asyncio
import logging
import re

import pytest

from berth.model.servers import SILENT_AFTER_S
from berth.sim.cloud import SimCloud


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def find(caplog: pytest.LogCaptureFixture, pattern: str) -> list[re.Match[str]]:
    return [found for text in caplog.messages if (found := re.fullmatch(pattern, text)) is not None]


async def test_the_database_of_a_cell_goes_away(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCloud(seed=7, hosts=2, cells=2).running() as cloud:
        await asyncio.sleep(120)
        assert not find(caplog, ".*unavailable.*")
        cloud.cells["cell1"].database.is_away = True
        await asyncio.sleep(60)
        lost = find(caplog, "the database of cell1: unavailable: .*")
        assert lost, caplog.text
        assert not find(caplog, "the database of cell2: .*")
        cloud.cells["cell1"].database.is_away = False
        await asyncio.sleep(60)
        back = find(caplog, r"the database of cell1: available again after ([0-9.]+) s")
        assert len(back) == len(lost)
        assert all(40 < float(line[1]) < 80 for line in back)


async def test_a_conductor_dies(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCloud(seed=7, hosts=2).running() as cloud:
        await asyncio.sleep(120)
        cloud.cells["cell1"].kill()
        await asyncio.sleep(SILENT_AFTER_S + 120)
        assert len(find(caplog, "cell cell1: the conductor: silent: last heard of [0-9]+ s ago")) == 1
        # Each simulated host is a process of its own.
        assert len(find(caplog, "the conductor: unreachable, retrying: .*")) == 2
        cloud.cells["cell1"].start()
        await asyncio.sleep(180)
        [heard] = find(caplog, r"cell cell1: the conductor: heard again after ([0-9.]+) s")
        assert float(heard[1]) > SILENT_AFTER_S
        reached = find(caplog, r"the conductor: reachable again after ([0-9.]+) s")
        assert len(reached) == 2
        assert all(250 < float(line[1]) < 400 for line in reached)


async def test_a_host_dies(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCloud(seed=7, hosts=2).running() as cloud:
        assert len(find(caplog, "host-[0-9]+: up for the first time")) == 2
        name, host = next(iter(cloud.hosts.items()))
        host.kill()
        await asyncio.sleep(300)
        assert len(find(caplog, f"{name}: down, no heartbeat within 30 s")) == 1
        host.start()
        await asyncio.sleep(60)
        [up] = find(caplog, f"{name}: up again after ([0-9]+) s")
        assert 200 < int(up[1]) < 330
