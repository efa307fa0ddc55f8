"""A server killed at any moment has lost nothing it acknowledged, and has done nothing by halves."""

import http.client
import os
import random
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.holdings import ClientRecord, Held, Holdings, holdings_from
from tests.crash.replay import assert_replay_equals_server
from tests.placement import PlacementAnswer, PlacementClient
from tests.servers import ServerProcess, berth, running
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.crash

ROUNDS = 15
CLIENTS = 4
CONSUMERS = 8
PROVIDERS = 6
CAPACITY = {"VCPU": 24, "MEMORY_MB": 4096}
"""So little that claims collide: a good part of them is refused."""

PROJECT, USER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


class Writer(threading.Thread):
    """A client that claims, moves and releases at random until its server is gone."""

    def __init__(self, url: str, record: ClientRecord, providers: list[str], dice: random.Random) -> None:
        super().__init__()
        self.client = PlacementClient(url)
        self.record = record
        self.providers = providers
        self.dice = dice
        self.server_is_dying = threading.Event()
        self.problem: str | None = None

    def run(self) -> None:
        try:
            while self.problem is None:
                self._write_once()
        except (OSError, http.client.HTTPException) as gone:
            if not self.server_is_dying.is_set():
                self.problem = f"the server hung up: {gone!r}"
        finally:
            self.client.close()

    def _write_once(self) -> None:
        kind = self.dice.choices(("claim", "delete", "several", "move"), (5, 2, 2, 2))[0]
        consumers = self.dice.sample(sorted(self.record.acknowledged), 3)
        first, second, _ = consumers
        held = self.record.acknowledged[first].held
        if kind == "move" and held:
            # As Nova does it: the second consumer takes over what the first held, which gets a new place.
            self._send("POST", {first: self._any_claim(), second: held})
        elif kind == "several":
            self._send("POST", {consumer: self._any_claim() for consumer in consumers})
        elif kind == "delete":
            self._send("DELETE", {first: {}})
        else:
            self._send("PUT", {first: self._any_claim()})

    def _any_claim(self) -> Held:
        on = self.dice.sample(self.providers, self.dice.choice((1, 1, 2)))
        return {
            provider: {"VCPU": self.dice.randint(1, 4), "MEMORY_MB": self.dice.randint(1, 512)}
            for provider in on
        }

    def _send(self, method: str, wanted: dict[str, Held]) -> None:
        (first, *_) = wanted
        bodies = {consumer: self._body(consumer, held) for consumer, held in wanted.items()}
        self.record.ask(wanted)
        if method == "POST":
            answer = self.client.ask(method, "/allocations", bodies)
        else:
            body = bodies[first] if method == "PUT" else None
            answer = self.client.ask(method, f"/allocations/{first}", body)
        if answer.status == 204:
            self.record.confirm()
        elif self._may_be_refused(first, method, answer):
            self.record.refuse()
        else:
            self.problem = f"{method} {wanted}: {answer}"

    def _may_be_refused(self, consumer: str, method: str, answer: PlacementAnswer) -> bool:
        if method == "DELETE":
            return answer.status == 404 and not self.record.acknowledged[consumer].held
        return answer.status == 409 and "Unable to allocate inventory" in str(answer.body)

    def _body(self, consumer: str, held: Held) -> dict[str, object]:
        return {
            "allocations": {provider: {"resources": amounts} for provider, amounts in held.items()},
            "project_id": PROJECT,
            "user_id": USER,
            "consumer_generation": self.record.acknowledged[consumer].generation,
            "consumer_type": "INSTANCE",
        }


def make_providers(url: str) -> list[str]:
    client = PlacementClient(url)
    providers = [str(uuid.uuid4()) for _ in range(PROVIDERS)]
    for number, provider in enumerate(providers):
        client("POST", "/resource_providers", {"name": f"host-{number}", "uuid": provider})
        inventories = {name: {"total": total} for name, total in CAPACITY.items()}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        client("PUT", f"/resource_providers/{provider}/inventories", body)
    client.close()
    return providers


def write_until_killed(
    server: ServerProcess, records: list[ClientRecord], providers: list[str], dice: random.Random
) -> None:
    writers = [Writer(server.url, record, providers, random.Random(dice.random())) for record in records]
    for writer in writers:
        writer.start()
    threading.Event().wait(dice.uniform(0.02, 0.4))
    for writer in writers:
        writer.server_is_dying.set()
    server.kill()
    for writer in writers:
        writer.join(30)
        assert not writer.is_alive()
    assert [writer.problem for writer in writers if writer.problem] == []


def check(url: str, records: list[ClientRecord], providers: list[str]) -> None:
    """Every consumer holds what it must, and providers hold the sum of what consumers do."""
    client = PlacementClient(url)
    found: dict[str, Holdings] = {}
    for record in records:
        for consumer in record.acknowledged:
            found[consumer] = holdings_from(client("GET", f"/allocations/{consumer}"))
        record.settle(found)
    for provider in providers:
        path = f"/resource_providers/{provider}"
        held = {id: one.held[provider] for id, one in found.items() if provider in one.held}
        rows = client("GET", f"{path}/allocations")["allocations"]
        assert {id: row["resources"] for id, row in rows.items()} == held
        used: Counter[str] = Counter(dict.fromkeys(CAPACITY, 0))
        for amounts in held.values():
            used.update(amounts)
        assert client("GET", f"{path}/usages")["usages"] == dict(used)
        assert all(used[name] <= capacity for name, capacity in CAPACITY.items()), used
    client.close()


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_nothing_is_half_done(tmp_path: Path) -> None:
    seed = int(os.environ.get("BERTH_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"to choose the same writes and moments again: BERTH_TEST_SEED={seed}")
    dice = random.Random(seed)
    server = berth(tmp_path)
    records = [ClientRecord([str(uuid.uuid4()) for _ in range(CONSUMERS)]) for _ in range(CLIENTS)]
    with running(server):
        providers = make_providers(server.url)
        interrupted = 0
        for number in range(ROUNDS):
            write_until_killed(server, records, providers, dice)
            interrupted += any(record.in_flight for record in records)
            server.start()
            print(f"round {number}: {sum(record.acknowledgements for record in records)} acknowledged so far")
            check(server.url, records, providers)
            assert_replay_equals_server(tmp_path / "berth.db", server.url)
        assert server.stop(WITHIN_S) == 0
    # Without these the test would have shown nothing.
    assert sum(record.acknowledgements for record in records) > 10 * ROUNDS
    assert interrupted > ROUNDS // 2
    assert server.complaints() == []
