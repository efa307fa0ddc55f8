"""One seed, one history: two runs have the same trace, byte for byte, also where hashes are other ones."""

import asyncio
import logging
import os
import subprocess
import sys

from berth.agent.drivers.behaviour import SimBehaviour
from berth.sim.cloud import SimCloud
from berth.sim.database import Condition
from berth.sim.loop import VirtualLoop
from berth.sim.network import Weather
from tests.lifecycle.chaos import Chaos, check_at_rest
from tests.lifecycle.stories import kept_apart
from tests.servers import ROOT

SEED = 20261101


async def play(seed: int) -> SimCloud:
    """Operations, kills and mishaps on a small cloud, until it is at rest again."""
    cloud = SimCloud(seed=seed, cells=2, hosts=8, workers=2, behaviour=SimBehaviour(failure_rate=0.1))
    async with cloud.running():
        group = await kept_apart(cloud, "apart")
        cloud.network.weather = Weather(mishaps=0.02)
        for database in cloud.databases():
            database.condition = Condition(troubles=0.01)
        chaos = Chaos(cloud, seed, [group], hands=6)
        await chaos.run(60)
        assert chaos.killed["host"], "nobody died while all this was done"
        assert len(chaos.killed) > 1, "only hosts died"
        cloud.heal()
        await cloud.all_at_rest()
        await check_at_rest(cloud)
    return cloud


def history(seed: int) -> tuple[list[str], str]:
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            cloud = runner.run(play(seed))
    finally:
        logging.disable(logging.NOTSET)
    return cloud.world.trace.lines, cloud.world.trace.digest


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    """The digest of a run in a process of its own."""
    program = f"from tests.unit.sim.test_history import history; print(history({seed})[1])"
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", program]
    ran = subprocess.run(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return ran.stdout.strip()


def test_two_runs_of_one_seed_have_the_same_history() -> None:
    lines, digest = history(SEED)
    kept = [bytearray(1000 + number) for number in range(1000)]
    again, digest_again = history(SEED)
    assert len(kept) == 1000, "things lie elsewhere in memory the second time"
    assert again == lines
    assert digest_again == digest
    text = "\n".join(lines)
    for what in ("is killed", "answer lost", "unknown", "writes region", "writes cell2", "/agent/v1/report"):
        assert what in text, f"the history has nothing of: {what}"
    assert digest_elsewhere(SEED, "1") == digest


def test_another_seed_has_another_history() -> None:
    assert history(SEED + 1)[1] != history(SEED)[1]
