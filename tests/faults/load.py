"""Clients that claim, move and release at random while the servers, or what they stand on, fail.

Policy: each client keeps a record (``tests.crash.holdings``) of consumers that only it writes. As long as all
is well every answer is foreseeable, and so is every read, through whichever server. When an answer does not
come, or is a 503, the truth is one of two. To learn which, the client first makes a write of its own that is
acknowledged: that write takes the next index of the journal, and a late append of the lost request, which
waits for the same index, can never get in. Then it reads, and what it reads is final.
"""

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.crash.holdings import ClientRecord, Held, holdings_from
from tests.faults.lines import LOST, UNAVAILABLE, Line, line_to
from tests.placement import PlacementAnswer
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S

CAPACITY: Final = {"VCPU": 24, "MEMORY_MB": 4096}
"""So little that claims collide: a good part of them is refused."""

PROVIDERS: Final = 6
CONSUMERS: Final = 6
PAUSE_MAX_S: Final = 0.02
PATIENCE_S: Final = WITHIN_S
"""How long a client tries to find anybody who answers."""

PROJECT, USER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


class Unknown(Exception):
    """No answer, or one that does not say whether the request was carried out."""


class LoadClient(threading.Thread):
    """One client and its record. It has a server it prefers, and leaves it for a while when that fails."""

    def __init__(
        self,
        servers: Sequence[ServerProcess],
        home: int,
        providers: list[str],
        fence: str,
        dice: random.Random,
    ) -> None:
        super().__init__(daemon=True)
        self.servers = servers
        self.home = self.at = home
        self.providers = providers
        self.fence = fence
        self.dice = dice
        self.record = ClientRecord([_uuid(dice) for _ in range(CONSUMERS)])
        self.lines: dict[int, Line] = {}
        self.acknowledged: Counter[int] = Counter()
        """Writes acknowledged, by the number of the server."""
        self.events: Counter[str] = Counter()
        self.longest_s = 0.0
        self.ending = threading.Event()
        self.problem: str | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                if self.at != self.home and self.dice.random() < 0.1:
                    self.at = self.home
                self._do_something()
                # Servers that start again need some of the machine too.
                self.ending.wait(self.dice.uniform(0, PAUSE_MAX_S))
        except Exception as problem:
            self.problem = f"{type(problem).__name__}: {problem}"
        finally:
            for line in self.lines.values():
                line.close()

    def _do_something(self) -> None:
        kind = self.dice.choices(("claim", "delete", "several", "move", "read"), (5, 2, 2, 2, 4))[0]
        consumers = self.dice.sample(sorted(self.record.acknowledged), 3)
        first, second, _ = consumers
        held = self.record.acknowledged[first].held
        if kind == "read":
            self._read(first)
        elif kind == "move" and held:
            # As Nova does it: the second consumer takes over what the first held, which gets a new place.
            self._write("POST", {first: self._any_claim(), second: held})
        elif kind == "several":
            self._write("POST", {consumer: self._any_claim() for consumer in consumers})
        elif kind == "delete":
            self._write("DELETE", {first: {}})
        else:
            self._write("PUT", {first: self._any_claim()})

    def _any_claim(self) -> Held:
        on = self.dice.sample(self.providers, self.dice.choice((1, 1, 2)))
        return {
            provider: {"VCPU": self.dice.randint(1, 4), "MEMORY_MB": self.dice.randint(1, 512)}
            for provider in on
        }

    def _read(self, consumer: str) -> None:
        """Through whichever server: what was acknowledged is what is there."""
        number = self.dice.randrange(len(self.servers))
        try:
            answer = self._ask(number, "GET", f"/allocations/{consumer}")
        except Unknown:
            return
        assert answer.status == 200, answer
        found = holdings_from(answer.body)
        expected = self.record.acknowledged[consumer]
        assert found == expected, f"{consumer} through server {number}: found {found}, expected {expected}"
        self.events["read"] += 1

    def _write(self, method: str, wanted: dict[str, Held]) -> None:
        (first, *_) = wanted
        bodies = {consumer: self._body(consumer, held) for consumer, held in wanted.items()}
        self.record.ask(wanted)
        try:
            if method == "POST":
                answer = self._ask(self.at, method, "/allocations", bodies)
            else:
                body = bodies[first] if method == "PUT" else None
                answer = self._ask(self.at, method, f"/allocations/{first}", body)
        except Unknown:
            self._settle()
            return
        if answer.status == 204:
            self.record.confirm()
            self.acknowledged[self.at] += 1
        else:
            assert self._may_be_refused(first, method, answer), f"{method} {wanted}: {answer}"
            self.record.refuse()
            self.events["refused"] += 1

    def _may_be_refused(self, consumer: str, method: str, answer: PlacementAnswer) -> bool:
        if method == "DELETE":
            return answer.status == 404 and not self.record.acknowledged[consumer].held
        return answer.status == 409 and "Unable to allocate inventory" in str(answer.body)

    def _body(self, consumer: str, held: Held) -> dict[str, object]:
        generation = self.record.acknowledged[consumer].generation
        return claim_body(held, generation)

    def _ask(self, number: int, method: str, path: str, body: object = None) -> PlacementAnswer:
        """The answer of a server; ``Unknown`` if there is none that says anything."""
        started_s = time.monotonic()
        try:
            line = self.lines.get(number)
            if line is None:
                line = self.lines[number] = Line(self.servers[number])
            answer = line.ask(method, path, body)
        except LOST as lost:
            self.events["lost"] += 1
            self._leave(number)
            raise Unknown from lost
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - started_s)
        if answer.status == UNAVAILABLE:
            self.events["503"] += 1
            raise Unknown(str(answer.body))
        return answer

    def _leave(self, number: int) -> None:
        if number in self.lines:
            self.lines.pop(number).close()

    def _settle(self) -> None:
        """Make what is unknown known, through any server that answers."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            self.at = (self.at + 1) % len(self.servers)
            try:
                changed = self._ask(
                    self.at, "PUT", f"/resource_providers/{self.fence}", {"name": _uuid(self.dice)}
                )
                assert changed.status == 200, changed
                found = {
                    consumer: holdings_from(self._ask(self.at, "GET", f"/allocations/{consumer}").body)
                    for consumer in self.record.acknowledged
                }
            except Unknown as unknown:
                if time.monotonic() > deadline_s:
                    raise AssertionError(f"no server has recovered in {PATIENCE_S} s: {unknown}") from unknown
                time.sleep(0.05)
                continue
            self.record.settle(found)
            return


class ClientLoad:
    """Some clients over some servers.

    new --start--> running --stop--> quiet --start--> running ...
    """

    def __init__(self, servers: Sequence[ServerProcess], clients: int, dice: random.Random) -> None:
        self.servers = servers
        self.providers = [_uuid(dice) for _ in range(PROVIDERS)]
        fences = [_uuid(dice) for _ in range(clients)]
        with line_to(servers[0]) as line:
            make_providers(line, self.providers, CAPACITY)
            make_providers(line, fences, {})
        self.clients = [
            LoadClient(servers, number % len(servers), self.providers, fence, random.Random(dice.random()))
            for number, fence in enumerate(fences)
        ]

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def stop(self) -> None:
        """Let every client finish what it does, also the settling of what is unknown."""
        for client in self.clients:
            client.ending.set()
        for client in self.clients:
            client.join(2 * PATIENCE_S)
            assert not client.is_alive(), "a client hangs"
        self.check()
        print(self.summary())

    def check(self) -> None:
        problems = [client.problem for client in self.clients if client.problem]
        assert not problems, "\n".join(problems)

    def __enter__(self) -> "ClientLoad":
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
            return
        # The test has failed already; what the clients say must not hide why.
        for client in self.clients:
            client.ending.set()

    def acknowledged(self, server: int | None = None) -> int:
        """How many writes have been acknowledged, by one server or by all."""
        counts = [client.acknowledged for client in self.clients]
        return sum(count.total() if server is None else count[server] for count in counts)

    def go_on(self, writes: int, server: int | None = None) -> None:
        """Wait until so many more writes have been acknowledged."""
        goal = self.acknowledged(server) + writes
        deadline_s = time.monotonic() + PATIENCE_S
        while self.acknowledged(server) < goal:
            self.check()
            by = "" if server is None else f" by server {server}"
            assert time.monotonic() < deadline_s, f"no {writes} writes acknowledged{by} in {PATIENCE_S} s"
            time.sleep(0.01)

    def count(self, event: str) -> int:
        return sum(client.events[event] for client in self.clients)

    def summary(self) -> str:
        events: Counter[str] = Counter()
        for client in self.clients:
            events.update(client.events)
        longest_s = max(client.longest_s for client in self.clients)
        return f"{self.acknowledged()} acknowledged, {dict(events)}, longest {longest_s:.2f} s"


def make_providers(line: Line, ids: Sequence[str], capacity: dict[str, int]) -> None:
    for id in ids:
        line("POST", "/resource_providers", {"name": f"host-{id}", "uuid": id})
        if capacity:
            inventories = {name: {"total": total} for name, total in capacity.items()}
            body = {"resource_provider_generation": 0, "inventories": inventories}
            line("PUT", f"/resource_providers/{id}/inventories", body)


def claim_body(held: Held, generation: int | None) -> dict[str, object]:
    return {
        "allocations": {provider: {"resources": amounts} for provider, amounts in held.items()},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def _uuid(dice: random.Random) -> str:
    return str(uuid.UUID(int=dice.getrandbits(128)))
