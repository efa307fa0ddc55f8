"""What concurrent clients see of two servers over one database, one of which is killed, is one history.

Clients share consumers and race for them with generations they have seen, perhaps not the newest. A history
that no order explains is kept beside the test's other files, to be looked at again.
"""

import random
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.faults.fleet import fleet, rounds, seeded
from tests.faults.history import Answered, ConsumerState, Operation, check_consumer, check_provider
from tests.faults.lines import LOST, UNAVAILABLE, Line, kill_worker, line_to, worker_of
from tests.faults.load import claim_body, make_providers
from tests.faults.verdict import assert_all_agree, assert_sums
from tests.placement import PlacementAnswer
from tests.servers import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CLIENTS = 6
PROVIDERS = 3
CONSUMERS = 4
"""Of each provider. A consumer claims of one provider only, so that the two are one object."""
CAPACITY = 10
KILLS = 2
OPERATIONS = 150
"""Of all clients, before and after each kill, at least."""


class HistoryClient(threading.Thread):
    """A client that writes down what it asks and what it is answered, by provider."""

    def __init__(
        self, servers: list[ServerProcess], home: int, consumers: dict[str, list[str]], seed: float
    ) -> None:
        super().__init__(daemon=True)
        self.servers = servers
        self.at = home
        self.consumers = consumers
        self.dice = random.Random(seed)
        self.known: dict[str, int | None] = {}
        self.histories: dict[str, list[Operation]] = {provider: [] for provider in consumers}
        self.line: Line | None = None
        self.ending = threading.Event()
        self.problem: str | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self._do_something()
                self.ending.wait(self.dice.uniform(0, 0.01))
        except Exception as problem:
            self.problem = f"{type(problem).__name__}: {problem}"
        finally:
            self._hang_up()

    def _do_something(self) -> None:
        provider = self.dice.choice(list(self.consumers))
        number = self.dice.randrange(CONSUMERS)
        consumer = self.consumers[provider][number]
        generation, amount = self.known.get(consumer), self.dice.randint(1, 5)
        kind = self.dice.choices(("claim", "delete", "read", "usage"), (6, 1, 3, 2))[0]
        asked_ns = time.monotonic_ns()
        match kind:
            case "claim":
                body = claim_body({provider: {"VCPU": amount}}, generation)
                answer = self._ask("PUT", f"/allocations/{consumer}", body)
                answered = None if answer is None else _read_claim_answer(answer)
                operation = Operation("claim", asked_ns, None, answered, number, generation, amount)
            case "delete":
                answer = self._ask("DELETE", f"/allocations/{consumer}")
                answered = None if answer is None else _read_delete_answer(answer)
                operation = Operation("delete", asked_ns, None, answered, number)
            case "read":
                answer = self._ask("GET", f"/allocations/{consumer}")
                answered = None if answer is None else _read_holdings(answer, provider)
                operation = Operation("read", asked_ns, None, answered, number)
            case _:
                answer = self._ask("GET", f"/resource_providers/{provider}/usages")
                answered = None if answer is None else int(answer.body["usages"]["VCPU"])
                operation = Operation("usage", asked_ns, None, answered)
        if answered is not None:
            operation = msgspec.structs.replace(operation, answered_ns=time.monotonic_ns())
            self._learn(consumer, operation)
        elif kind in ("read", "usage"):
            return  # what was neither answered nor could change anything says nothing
        self.histories[provider].append(operation)

    def _learn(self, consumer: str, operation: Operation) -> None:
        match operation.answer:
            case ConsumerState(generation, _):
                self.known[consumer] = generation
            case "done":
                is_claim = operation.kind == "claim"
                self.known[consumer] = (operation.generation or 0) + 1 if is_claim else None
            case "absent":
                self.known[consumer] = None

    def _ask(self, method: str, path: str, body: object = None) -> PlacementAnswer | None:
        """None if nobody knows whether it was done."""
        try:
            if self.line is None:
                self.line = Line(self.servers[self.at])
            answer = self.line.ask(method, path, body)
        except LOST:
            self._hang_up()
            self.at = (self.at + 1) % len(self.servers)
            return None
        return None if answer.status == UNAVAILABLE else answer

    def _hang_up(self) -> None:
        if self.line is not None:
            self.line.close()
        self.line = None


def _read_claim_answer(answer: PlacementAnswer) -> Answered:
    if answer.status == 204:
        return "done"
    assert answer.status == 409, answer
    if "Unable to allocate inventory" in str(answer.body):
        return "full"
    assert answer.body["errors"][0]["code"] == "placement.concurrent_update", answer
    return "conflict"


def _read_delete_answer(answer: PlacementAnswer) -> Answered:
    assert answer.status in (204, 404), answer
    return "done" if answer.status == 204 else "absent"


def _read_holdings(answer: PlacementAnswer, provider: str) -> Answered:
    assert answer.status == 200, answer
    held = answer.body["allocations"]
    if not held:
        return ConsumerState(None, 0)
    return ConsumerState(answer.body["consumer_generation"], held[provider]["resources"]["VCPU"])


def go_on(clients: list[HistoryClient], operations: int) -> None:
    """Wait until so many more operations are recorded."""

    def recorded() -> int:
        return sum(len(history) for client in clients for history in client.histories.values())

    goal = recorded() + operations
    deadline_s = time.monotonic() + 60
    while recorded() < goal:
        assert [client.problem for client in clients if client.problem] == []
        assert time.monotonic() < deadline_s, f"no {operations} operations in 60 s"
        time.sleep(0.01)


def test_answers_of_servers_that_die_are_explained_by_one_order(postgresql_url: str, tmp_path: Path) -> None:
    dice = seeded()
    ids = [str(uuid.UUID(int=dice.getrandbits(128))) for _ in range(PROVIDERS * (1 + CONSUMERS))]
    consumers = {ids.pop(): [ids.pop() for _ in range(CONSUMERS)] for _ in range(PROVIDERS)}
    with fleet(tmp_path, [postgresql_url] * 2) as servers:
        with line_to(servers[0]) as line:
            make_providers(line, list(consumers), {"VCPU": CAPACITY})
        clients = [HistoryClient(servers, number % 2, consumers, dice.random()) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        go_on(clients, OPERATIONS)
        for _ in range(rounds(KILLS)):
            server = dice.choice(servers)
            worker = worker_of(server)
            go_on(clients, dice.randint(1, 30))
            kill_worker(server, worker)
            go_on(clients, OPERATIONS)
            server.kill()
            go_on(clients, OPERATIONS)
            server.start()
            go_on(clients, OPERATIONS)
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join(60)
        assert [client.problem for client in clients if client.problem] == []
        state = assert_all_agree(servers, postgresql_url)
        assert_sums(state, consumers, {"VCPU": CAPACITY})
    seen: Counter[str] = Counter()
    for number, provider in enumerate(consumers):
        history = [operation for client in clients for operation in client.histories[provider]]
        (tmp_path / f"history-{number}.json").write_bytes(msgspec.json.encode(history))
        print(f"{len(history)} operations are kept in {tmp_path / f'history-{number}.json'}")
        seen.update(f"{operation.kind} {_word(operation.answer)}" for operation in history)
        for consumer in range(CONSUMERS):
            check_consumer(history, consumer)
        check_provider(history, CONSUMERS, CAPACITY)
    print(seen)
    # Without these the test would have shown little.
    assert {
        "claim done",
        "claim conflict",
        "claim full",
        "delete done",
        "read answered",
        "usage answered",
    } <= set(seen)


def _word(answer: Answered | None) -> str:
    if answer is None:
        return "lost"
    return answer if isinstance(answer, str) else "answered"
