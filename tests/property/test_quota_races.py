"""Quotas hold between processes too: what lost the race for the journal is judged again, on a newer view."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.quotas import Quotas
from berth.model.rejections import QuotaExceeded
from berth.model.servers import Flavor, Server
from tests.property.test_engine import ORIGIN, EngineWorld, replayed, saw

LIMIT = 10
TRIED = 32
FLAVOR = Flavor(id="f", name="f", vcpus=1, memory_mb=1)
QUOTAS = Quotas(instances=LIMIT, cores=-1, ram=-1)


def create(id: str) -> Enact:
    server = Server(id=id, name=id, project="blue", user="u", flavor=FLAVOR)
    return Enact((RecordChanged(None, server),), quotas=QUOTAS)


@pytest.mark.parametrize("is_proposed", [False, True])
async def test_two_writers_together_stay_within_a_quota(tmp_path: Path, is_proposed: bool) -> None:
    """``is_proposed``: the command is made by a function of the view, and kept when the race is lost."""

    def submit(world: EngineWorld, id: str) -> Any:
        command = create(id)
        proposal = (lambda view, now_s: command) if is_proposed else command
        return world.engine.submit(proposal, ORIGIN, saw)

    worlds = [EngineWorld(tmp_path / "db", shared=True, seed=seed, batch_commands_max=3) for seed in (1, 2)]
    for world in worlds:
        await world.engine.start()
    try:
        outcomes = await asyncio.gather(
            *(
                submit(world, f"{name}-{n}")
                for n in range(TRIED)
                for world, name in zip(worlds, "ab", strict=True)
            )
        )
    finally:
        for world in worlds:
            await world.engine.stop()
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert len(outcomes) - len(refused) == LIMIT
    assert all(refusal.over == (("instances", 1, LIMIT, LIMIT),) for refusal in refused)
    view = replayed(tmp_path / "db")
    assert len(list(view.records.all(Server))) == LIMIT
    assert view.project_counts.of("blue") == {"instances": LIMIT, "cores": LIMIT, "ram": LIMIT}
