"""Thousands of random operations with everything breaking: the allocations balance at every checkpoint."""

import os

import pytest

from berth.agent.drivers.behaviour import SimBehaviour
from berth.sim.cloud import SimCloud
from tests.lifecycle.chaos import SNAPSHOTS, Chaos, check_at_rest
from tests.lifecycle.stories import BEGINNINGS, kept_apart

SEED = int(os.environ.get("BERTH_TEST_SEED", "20261115"))
OPERATIONS = int(os.environ.get("BERTH_TEST_OPERATIONS", "2000"))
CHECKPOINT = 500
EVERYTHING = {*BEGINNINGS, "create", "abort", "need", "force delete"}

BEHAVIOUR = SimBehaviour(failure_rate=0.05)


@pytest.mark.timeout(900)
async def test_the_allocations_balance_at_every_checkpoint() -> None:
    print(f"seed {SEED}")
    cloud = SimCloud(seed=SEED, cells=2, hosts=200, workers=2, behaviour=BEHAVIOUR, housekeeping=SNAPSHOTS)
    async with cloud.running():
        groups = [await kept_apart(cloud, name) for name in ("red", "green")]
        chaos = Chaos(cloud, SEED, groups)
        for done in range(0, OPERATIONS, CHECKPOINT):
            await chaos.run(min(CHECKPOINT, OPERATIONS - done))
            await check_at_rest(cloud)
            print(f"{min(done + CHECKPOINT, OPERATIONS)} of {OPERATIONS}: begun {sum(chaos.begun.values())}")
        print(f"begun {dict(chaos.begun)}, refused {dict(chaos.refused)}, killed {dict(chaos.killed)}")
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
        assert set(chaos.killed) >= {"host", "conductor", "region-1", "region-2"}
