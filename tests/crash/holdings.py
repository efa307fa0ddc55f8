"""What a client knows of the consumers it writes: the last acknowledged state, and what is in flight.

Policy: a consumer has one writer. Its writer notes what it is about to ask for, sends it, and on the answer
moves the note over into what is acknowledged, or drops it if the server refused. When the server dies,
the truth is one of two: every consumer of the note holds what is acknowledged, or every one what is noted.
"""

from typing import Any, NamedTuple

Amounts = dict[str, int]
Held = dict[str, Amounts]
"""Amounts by resource class, by provider."""


class Holdings(NamedTuple):
    """What one consumer holds, and its generation. A consumer that holds nothing does not exist."""

    generation: int | None
    held: Held


NOTHING = Holdings(None, {})


def holdings_from(body: Any) -> Holdings:
    """The holdings in an answer to ``GET /allocations/{consumer}``."""
    held = {provider: dict(part["resources"]) for provider, part in body["allocations"].items()}
    return Holdings(body["consumer_generation"], held) if held else NOTHING


class ClientRecord:
    """What one client knows of its consumers.

    settled --ask--> in flight --acknowledged or refused--> settled
                     in flight --the server dies--> doubtful --settle--> settled
    """

    def __init__(self, consumers: list[str]) -> None:
        self.acknowledged = dict.fromkeys(consumers, NOTHING)
        self.in_flight: dict[str, Holdings] = {}
        self.acknowledgements = 0

    def ask(self, wanted: dict[str, Held]) -> None:
        """Note what the next request wants its consumers to hold."""
        assert not self.in_flight, "one request at a time"
        for consumer, held in wanted.items():
            generation = self.acknowledged[consumer].generation
            self.in_flight[consumer] = Holdings((generation or 0) + 1, held) if held else NOTHING

    def confirm(self) -> None:
        self.acknowledged |= self.in_flight
        self.in_flight = {}
        self.acknowledgements += 1

    def refuse(self) -> None:
        self.in_flight = {}

    def settle(self, found: dict[str, Holdings]) -> None:
        """Compare with what a restarted server says, and go on from there."""
        noted = self.acknowledged | self.in_flight
        done = bool(self.in_flight) and all(found[consumer] == noted[consumer] for consumer in self.in_flight)
        expected = noted if done else self.acknowledged
        wrong = {
            consumer: f"found {found[consumer]}, acknowledged {self.acknowledged[consumer]}, "
            f"in flight {self.in_flight.get(consumer)}"
            for consumer in expected
            if found[consumer] != expected[consumer]
        }
        assert not wrong, wrong
        self.acknowledged = dict(expected)
        self.in_flight = {}
