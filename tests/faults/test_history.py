"""The checker of histories is right about histories made by hand, and about random ones that are right."""

import random

import pytest
from msgspec.structs import replace

from tests.faults.history import (
    Answered,
    ConsumerState,
    Operation,
    ProviderRules,
    TooHard,
    Violation,
    Word,
    check,
    check_consumer,
    check_provider,
)

pytestmark = pytest.mark.fast

CAPACITY = 10


def claim(
    asked: int,
    answered: int | None,
    answer: Word | None,
    generation: int | None,
    amount: int,
    consumer: int = 0,
) -> Operation:
    return Operation("claim", asked, answered, answer, consumer, generation, amount)


def delete(asked: int, answered: int | None, answer: Word | None, consumer: int = 0) -> Operation:
    return Operation("delete", asked, answered, answer, consumer)


def read(asked: int, answered: int, generation: int | None, amount: int, consumer: int = 0) -> Operation:
    return Operation("read", asked, answered, ConsumerState(generation, amount), consumer)


def usage(asked: int, answered: int, amount: int) -> Operation:
    return Operation("usage", asked, answered, amount)


GOOD = {
    "nothing": [],
    "one after the other": [
        read(1, 2, None, 0),
        claim(3, 4, "done", None, 4),
        read(5, 6, 1, 4),
        claim(7, 8, "done", 1, 6),
        usage(9, 10, 6),
        delete(11, 12, "done"),
        read(13, 14, None, 0),
        delete(15, 16, "absent"),
        claim(17, 18, "done", None, 1),
    ],
    "a read beside a claim sees it or not": [
        claim(1, 10, "done", None, 4),
        read(2, 3, None, 0),
        read(4, 5, 1, 4),
    ],
    "of two claims at the same generation one wins": [
        claim(1, 10, "done", None, 4),
        claim(2, 9, "conflict", None, 5),
    ],
    "answered in the other order": [
        claim(1, 10, "done", None, 4),
        claim(2, 5, "done", 1, 5),
        read(11, 12, 2, 5),
    ],
    "no room until somebody has left": [
        claim(1, 2, "done", None, 7, consumer=0),
        claim(3, 4, "full", None, 4, consumer=1),
        delete(5, 8, "done", consumer=0),
        claim(6, 9, "done", None, 4, consumer=1),
        usage(10, 11, 4),
    ],
    "what one gives up itself is room for it": [claim(1, 2, "done", None, 10), claim(3, 4, "done", 1, 9)],
    "lost and never done": [claim(1, None, None, None, 4), read(5, 6, None, 0), claim(7, 8, "done", None, 5)],
    "lost and done": [claim(1, None, None, None, 4), read(5, 6, 1, 4), claim(7, 8, "conflict", None, 5)],
    "lost and done late": [claim(1, None, None, None, 4), read(5, 6, None, 0), read(7, 8, 1, 4)],
    "a lost delete": [claim(1, 2, "done", None, 4), delete(3, None, None), read(4, 5, 1, 4), usage(6, 7, 0)],
    "answered in the moment the next is asked": [claim(1, 2, "done", None, 4), read(2, 3, None, 0)],
}

BAD = {
    "a stale read": [claim(1, 2, "done", None, 4), read(3, 4, None, 0)],
    "a stale sum": [claim(1, 2, "done", None, 4), claim(3, 4, "done", 1, 6), usage(5, 6, 4)],
    "an acknowledged claim is gone": [
        claim(1, 2, "done", None, 4),
        claim(3, 4, "done", 1, 6),
        read(5, 6, 1, 4),
    ],
    "accepted twice": [claim(1, 10, "done", None, 4), claim(2, 9, "done", None, 5)],
    "done twice": [claim(1, 2, "done", None, 4), read(3, 4, 2, 4)],
    "refused, and done all the same": [
        claim(1, 2, "done", None, 4),
        claim(3, 4, "conflict", 0, 6),
        read(5, 6, 2, 6),
    ],
    "seen, and then not": [claim(1, 20, "done", None, 4), read(2, 3, 1, 4), read(4, 5, None, 0)],
    "lost, seen, and then not": [claim(1, None, None, None, 4), read(2, 3, 1, 4), read(4, 5, None, 0)],
    "lost, and done before it was asked": [read(1, 2, 1, 4), claim(3, None, None, None, 4)],
    "lost, and done twice": [
        claim(1, None, None, None, 4),
        read(3, 4, 1, 4),
        delete(5, 6, "done"),
        read(7, 8, 1, 4),
    ],
    "overcommitted": [
        claim(1, 10, "done", None, 7, consumer=0),
        claim(2, 9, "done", None, 4, consumer=1),
    ],
    "no room although there is": [claim(1, 2, "done", None, 4), claim(3, 4, "full", None, 5, consumer=1)],
    "a sum that never was": [
        claim(1, 10, "done", None, 4, consumer=0),
        claim(11, 20, "done", None, 3, consumer=1),
        usage(12, 19, 3),
    ],
    "deleted twice": [claim(1, 2, "done", None, 4), delete(3, 9, "done"), delete(4, 8, "done")],
    "absent although it is there": [claim(1, 2, "done", None, 4), delete(3, 4, "absent"), read(5, 6, 1, 4)],
    "two readers see two orders": [
        claim(1, 20, "done", None, 4, consumer=0),
        claim(2, 19, "done", None, 3, consumer=1),
        read(3, 4, 1, 4, consumer=0),
        read(5, 6, None, 0, consumer=1),
        usage(7, 8, 3),
    ],
}

# Wrong only together: each consumer by itself behaves.
ONLY_TOGETHER = {
    "a stale sum",
    "overcommitted",
    "no room although there is",
    "a sum that never was",
    "two readers see two orders",
}


@pytest.mark.parametrize("name", GOOD)
def test_what_can_have_happened_is_accepted(name: str) -> None:
    check_provider(GOOD[name], 2, CAPACITY)
    check_consumer(GOOD[name], 0)
    check_consumer(GOOD[name], 1)


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_have_happened_is_not(name: str) -> None:
    with pytest.raises(Violation, match="no order explains"):
        check_provider(BAD[name], 2, CAPACITY)


@pytest.mark.parametrize("name", sorted(BAD.keys() - ONLY_TOGETHER))
def test_a_consumer_is_judged_alone_too(name: str) -> None:
    with pytest.raises(Violation):
        check_consumer(BAD[name], 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_history_of_one_order_is_accepted_and_a_made_up_answer_is_not(seed: int) -> None:
    dice = random.Random(seed)
    history = made_up(dice, operations=400, clients=6)
    check_provider(history, 3, CAPACITY)
    number = dice.choice([n for n, operation in enumerate(history) if operation.kind == "usage"])
    history[number] = replace(history[number], answer=CAPACITY + 1)
    with pytest.raises(Violation):
        check_provider(history, 3, CAPACITY)


def test_a_history_that_is_too_hard_is_not_judged() -> None:
    together = [claim(1, 100, "done", None, 1, consumer=number) for number in range(12)]
    impossible = [*together, usage(101, 102, 5)]
    with pytest.raises(TooHard):
        check(impossible, ProviderRules(12, None), configurations_max=1000)


def made_up(dice: random.Random, operations: int, clients: int) -> list[Operation]:
    """What clients would see of a provider that does one thing after the other: each operation happens at its
    number, is asked some time before and answered some time after, and some answers are lost."""
    rules = ProviderRules(3, CAPACITY)
    state = rules.start
    history: list[Operation] = []
    free_at = [0] * clients
    for now in range(10, 10 * operations, 10):
        client = dice.choice([number for number in range(clients) if free_at[number] < now])
        asked = dice.randint(max(free_at[client], now - 30) + 1, now)
        answered = free_at[client] = now + dice.randint(0, 30 if min(free_at) < now else 0)
        consumer = dice.randrange(3)
        wanted = [
            claim(
                asked, None, None, dice.choice((state[consumer].generation, 7)), dice.randint(1, 6), consumer
            ),
            delete(asked, None, None, consumer),
            Operation("read", asked, None, None, consumer),
            Operation("usage", asked, None, None),
        ][dice.randrange(4)]
        used = sum(entry.amount for entry in state)
        answers: list[Answered] = ["done", "conflict", "full", "absent", state[consumer], used]
        steps = (
            (done, rules.step(state, done))
            for done in (replace(wanted, answered_ns=answered, answer=answer) for answer in answers)
        )
        done, state = next((done, after) for done, after in steps if after is not None)
        is_lost = wanted.kind in ("claim", "delete") and dice.random() < 0.03
        history.append(wanted if is_lost else done)
    return history
