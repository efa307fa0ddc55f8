"""Far more requests than can be served, small ones and large ones, from clients that come again when they are
sent away.

The queues are short and the database is slow. All the time:

* a queue has no more commands and no more bytes than its limits allow, and no process more tasks than it has
  requests;
* a request for which there is no room is refused at once, and told when to come again;
* what is acknowledged is in the journal, and what is refused is not (``linear``).

Every client gets its answer in the end, and when the load is gone nothing is left of it.
"""

import asyncio
import random
from typing import Any, Final

from berth.client import Answer
from berth.sim.cloud import SimCloud
from berth.sim.database import Condition
from berth.sim.nemesis import fill_disk, kill_worker, take_database_away, trouble_database
from berth.sim.profiles.claims import make_claim, watch
from berth.sim.simulation import Act, Simulation
from berth.sim.users import Asked

WORKERS: Final = 2
QUEUE_COMMANDS_MAX: Final = 16
BATCH_COMMANDS_MAX: Final = 8
QUEUE_BYTES_MAX: Final = 64 << 10
COMMAND_BYTES_MAX: Final = 64 << 10
ROW_BYTES_MAX: Final = 24 << 10
"""What the database takes in one row: less than a batch may have, and less than a command."""
BODY_BYTES_MAX: Final = 256 << 10

AT_ONCE_S: Final = 0.01
"""There, back, and no wait in between."""
SERVED_S: Final = 600.0
"""A client that has retried for this long without success has starved."""
IDLE_S: Final = 60.0
IDLE_TASKS_MAX: Final = 5
TASKS_PER_REQUEST: Final = 4

PROVIDERS: Final = tuple(f"aaaaaaaa-0000-4000-8000-{number:012x}" for number in range(50))
_AMOUNT_MAX: Final = 2_000_000_000
_OUTCOME: Final = "outcome is unknown"


class OverloadProfile:
    name = "overload"
    every_s = 15.0
    is_ours = False

    def cloud(self, seed: int) -> SimCloud:
        cloud = SimCloud(
            seed=seed,
            cells=0,
            hosts=0,
            workers=WORKERS,
            queue_commands_max=QUEUE_COMMANDS_MAX,
            queue_bytes_max=QUEUE_BYTES_MAX,
            batch_commands_max=BATCH_COMMANDS_MAX,
            command_bytes_max=COMMAND_BYTES_MAX,
            body_bytes_max=BODY_BYTES_MAX,
        )
        cloud.database.row_bytes_max = ROW_BYTES_MAX
        # The clients are many, and each of them waits as long as it is told to.
        cloud.network.crowds.add(cloud.outside.name)
        return cloud

    async def prepare(self, simulation: Simulation) -> None:
        # Of thousands of consumers no naive model is kept: only whether what is said to be written is.
        watch(simulation, judges_content=False)
        users = simulation.users
        body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": _AMOUNT_MAX}}}
        for provider in PROVIDERS:
            await users.must("POST", "/resource_providers", {"uuid": provider, "name": provider})
            await users.must("PUT", f"/resource_providers/{provider}/inventories", body)
        users.asked.append(lambda asked: judge_refusal(simulation, asked))
        # What is refused is refused when the queue is full.
        users.asked.append(lambda asked: check_queues(simulation))

    def choices(self) -> list[tuple[float, str, Act]]:
        return [
            (10, "flood", flood),
            (5, "flood of large writes", flood_with_large),
            (4, "flood of reads", flood_with_reads),
            (8, "slow database", slow_database),
            (1, "kill a worker", kill_worker),
            (1, "trouble a database", trouble_database),
            (1, "take a database away", take_database_away),
            (1, "fill a disk", fill_disk),
        ]

    async def check_at_rest(self, simulation: Simulation) -> None:
        for number in range(2 * WORKERS):
            await simulation.users.ask_until_served("PUT", *_claim(f"eeeeeeee-0000-4000-8000-{number:012x}"))
        await asyncio.sleep(IDLE_S)
        for worker in simulation.cloud.workers:
            assert worker.process is not None, "a worker was started"
            tasks = worker.process.tasks
            if tasks > IDLE_TASKS_MAX:
                simulation.fail(f"{worker.name} has {tasks} tasks, {IDLE_S:g} s after its last request")
            if worker.parts is not None and worker.parts.services.engine.queued != (0, 0):
                simulation.fail(f"{worker.name} has commands in its queue, and nobody asks")


# -- what is checked all the time ---------------------------------------------------------------


def check_queues(simulation: Simulation) -> None:
    # A batch that is put off goes back to the head of a queue that has filled up meanwhile.
    commands_max = QUEUE_COMMANDS_MAX + BATCH_COMMANDS_MAX
    bytes_max = QUEUE_BYTES_MAX + BATCH_COMMANDS_MAX * BODY_BYTES_MAX
    tasks_max = TASKS_PER_REQUEST * simulation.facts.get("waiting", 0) + IDLE_TASKS_MAX
    for worker in simulation.cloud.workers:
        if worker.parts is None or worker.process is None:
            continue
        commands, size = worker.parts.services.engine.queued
        if commands > commands_max or size > bytes_max or size < 0:
            simulation.fail(f"{worker.name} has {commands} commands of {size} bytes in its queue")
        if worker.process.tasks > tasks_max:
            simulation.fail(f"{worker.name} has {worker.process.tasks} tasks")


def judge_refusal(simulation: Simulation, asked: Asked) -> None:
    answer = asked.answer
    if answer is None or answer.status != 503:
        return
    if "retry-after" not in answer.headers:
        simulation.fail(f"{asked.method} {asked.path} was sent away, and not told when to come again")
    if "Overloaded" in answer.detail:
        simulation.count("refused: bytes" if "bytes" in answer.detail else "refused: commands")
        waited_s = asked.to_s - asked.from_s
        if waited_s > AT_ONCE_S:
            simulation.fail(f"{asked.method} {asked.path} was refused after {waited_s:g} s: {answer.detail}")


# -- clients ------------------------------------------------------------------------------------


async def flood(simulation: Simulation, rng: random.Random) -> None:
    """Many small writes at once."""
    consumers = [_uuid(rng) for _ in range(rng.randint(20, 100))]
    await asyncio.gather(*(_write(simulation, rng, *_claim(consumer)) for consumer in consumers))


async def flood_with_large(simulation: Simulation, rng: random.Random) -> None:
    """Some of them larger than a row of the database may be, or than one command."""
    clients = []
    for _ in range(rng.randint(3, 10)):
        consumers = [_uuid(rng) for _ in range(rng.choice((20, 100, 100, 200, 400, 1000)))]
        body = {consumer: _claim(consumer)[1] for consumer in consumers}
        clients.append(_write(simulation, rng, "/allocations", body, method="POST"))
    await asyncio.gather(*clients)


async def flood_with_reads(simulation: Simulation, rng: random.Random) -> None:
    paths = [f"/resource_providers/{rng.choice(PROVIDERS)}/usages" for _ in range(rng.randint(20, 100))]
    await asyncio.gather(*(_ask(simulation, "GET", path) for path in paths))


async def slow_database(simulation: Simulation, rng: random.Random) -> None:
    database = simulation.cloud.database
    database.condition = Condition(delay_s=rng.choice((0.1, 1.0, 3.0)))
    await asyncio.sleep(rng.uniform(5, 60))
    database.condition = Condition()


async def _write(
    simulation: Simulation, rng: random.Random, path: str, body: Any, method: str = "PUT"
) -> None:
    """Come again for as long as one is sent away."""
    loop = simulation.world.loop
    began_s = loop.time()
    while True:
        answer = await _ask(simulation, method, path, body)
        if answer is None or answer.status != 503 or _OUTCOME in answer.detail:
            return
        if loop.time() - began_s > SERVED_S:
            simulation.fail(f"{method} {path} was sent away for {SERVED_S:g} s: {answer.detail}")
            return
        await asyncio.sleep(float(answer.headers.get("retry-after", 1)) * rng.uniform(1, 4))


async def _ask(simulation: Simulation, method: str, path: str, body: Any = None) -> Answer | None:
    facts = simulation.facts
    facts["waiting"] = facts.get("waiting", 0) + 1
    try:
        return await simulation.users.ask(method, path, body)
    finally:
        facts["waiting"] -= 1


def _uuid(rng: random.Random) -> str:
    return f"cccccccc-0000-4000-8000-{rng.getrandbits(48):012x}"


def _claim(consumer: str) -> tuple[str, dict[str, Any]]:
    provider = PROVIDERS[int(consumer[-2:], 16) % len(PROVIDERS)]
    body = make_claim({provider: {"resources": {"VCPU": 1}}}, None, "project")
    return f"/allocations/{consumer}", body
