"""Thousands of random operations with everything breaking: the allocations balance at every checkpoint."""

import asyncio
import os
from pathlib import Path

import pytest

from berth.agent.drivers.behaviour import SimBehaviour
from berth.cell.conductor import Deadlines
from berth.sim.cloud import SimCloud
from tests.lifecycle.chaos import Chaos, check_at_rest
from tests.lifecycle.stories import BEGINNINGS, kept_apart

SEED = int(os.environ.get("BERTH_TEST_SEED", "20261115"))
OPERATIONS = int(os.environ.get("BERTH_TEST_OPERATIONS", "10000"))
CHECKPOINT = 1_000
EVERYTHING = {*BEGINNINGS, "create", "abort", "need", "force delete"}

BEHAVIOUR = SimBehaviour(
    build_seconds=0.01, live_migrate_seconds=0.03, other_seconds=0.002, failure_rate=0.05
)


@pytest.mark.timeout(900)
def test_the_allocations_balance_at_every_checkpoint(tmp_path: Path) -> None:
    async def tell() -> None:
        cloud = SimCloud(
            tmp_path,
            seed=SEED,
            cells=2,
            hosts=200,
            behaviour=BEHAVIOUR,
            deadlines=Deadlines(2.0, 2.0, 2.0),
            heartbeat_timeout_s=1.0,
        )
        async with cloud.running():
            groups = [await kept_apart(cloud, name) for name in ("red", "green")]
            chaos = Chaos(cloud, SEED, groups)
            for done in range(0, OPERATIONS, CHECKPOINT):
                await chaos.run(min(CHECKPOINT, OPERATIONS - done))
                await check_at_rest(cloud)
                print(f"{done + CHECKPOINT} of {OPERATIONS}: begun {sum(chaos.begun.values())}")
            print(f"begun {dict(chaos.begun)}, refused {dict(chaos.refused)}")
            assert set(chaos.begun) >= {
                "create",
                "delete",
                "resize",
                "confirm",
                "revert",
                "evacuate",
                "abort",
                "need",
            }

    print(f"seed {SEED}")
    asyncio.run(tell())
