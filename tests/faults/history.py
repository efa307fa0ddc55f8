"""Whether what concurrent clients saw could have happened in one order: linearizability.

A history is a list of operations, each with the moment it was asked and the moment it was answered. It is
linearizable if every operation can be given one moment between the two at which it happened, so that one
after the other they explain every answer. An operation that was not answered may have happened at any time
after it was asked, or never.

The search is Wing and Gong's, with Lowe's memory: walk along the askings and answers in the order of time;
take any operation that was asked and fits the state; when an answer comes up whose operation was not taken
yet, that was a dead end: go back to the last choice. A set of operations taken that has led to the same
state before is not looked at twice. The memory is bounded; a history that needs more is not judged, and
said so. The alternative, to try all orders, dies of the first ten operations that overlap.

The object is a provider with its consumers: who holds how much, and at which generation. A consumer alone
is the same object with its own operations only, and no known capacity.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

CONFIGURATIONS_MAX: Final = 2_000_000


class ConsumerState(NamedTuple):
    """How a consumer stands. It has a generation if it exists."""

    generation: int | None
    amount: int


ABSENT: Final = ConsumerState(None, 0)

State = tuple[ConsumerState, ...]
"""By the number of the consumer."""


Word = Literal["done", "conflict", "full", "absent"]
Answered = Word | ConsumerState | int
"""What an operation is answered."""


class Operation(msgspec.Struct, frozen=True):
    """One thing a client did. Nobody waits for an answer that never came: ``answered_ns`` and ``answer`` are
    None, and the operation may have happened all the same.

    kind      asks                                answers
    claim     consumer, generation, amount        done, conflict (another generation), full
    delete    consumer                            done, absent
    read      consumer                            generation and amount
    usage                                         the sum
    """

    kind: Literal["claim", "delete", "read", "usage"]
    asked_ns: int
    answered_ns: int | None
    answer: Answered | None
    consumer: int = 0
    generation: int | None = None
    amount: int = 0


class Violation(AssertionError):
    """No order explains the history."""


class TooHard(Exception):
    """The memory is used up before there was a verdict."""


class ProviderRules(msgspec.Struct, frozen=True):
    """The rules: what an operation does to the state, if its answer can be given there at all."""

    consumers: int
    capacity: int | None

    @property
    def start(self) -> State:
        return (ABSENT,) * self.consumers

    def step(self, state: State, operation: Operation) -> State | None:
        entry = state[operation.consumer]
        match operation.kind:
            case "claim":
                return self._claim(state, entry, operation)
            case "delete":
                if entry == ABSENT:
                    return state if operation.answer == "absent" else None
                return _with(state, operation.consumer, ABSENT) if _is_done(operation) else None
            case "read":
                return state if operation.answer == entry else None
            case "usage":
                return state if operation.answer == _used(state) else None

    def _claim(self, state: State, entry: ConsumerState, operation: Operation) -> State | None:
        if entry.generation != operation.generation:
            return state if operation.answer == "conflict" else None
        if operation.answer == "full" and self.capacity is None:
            return state
        if self.capacity is not None and _used(state) - entry.amount + operation.amount > self.capacity:
            return state if operation.answer == "full" else None
        if not _is_done(operation):
            return None
        return _with(state, operation.consumer, ConsumerState((entry.generation or 0) + 1, operation.amount))


def _is_done(operation: Operation) -> bool:
    """Or may be: a lost operation that would change nothing need not be taken at all."""
    return operation.answer in ("done", None)


def _used(state: State) -> int:
    return sum(entry.amount for entry in state)


def _with(state: State, number: int, entry: ConsumerState) -> State:
    return (*state[:number], entry, *state[number + 1 :])


def check_provider(history: Sequence[Operation], consumers: int, capacity: int) -> None:
    """All operations on one provider and its consumers, together."""
    check(history, ProviderRules(consumers, capacity))


def check_consumer(history: Sequence[Operation], consumer: int) -> None:
    """The operations on one consumer, alone."""
    own = [
        msgspec.structs.replace(operation, consumer=0)
        for operation in history
        if operation.consumer == consumer and operation.kind != "usage"
    ]
    check(own, ProviderRules(1, None))


def check(
    history: Sequence[Operation], rules: ProviderRules, configurations_max: int = CONFIGURATIONS_MAX
) -> None:
    """``Violation`` if no order explains the history."""
    _HistorySearch(history, rules, configurations_max).run()


class _HistorySearch:
    """Moments stand in a list linked both ways: an operation that is taken is unlinked, and linked again, in
    the reverse order, when it is given back."""

    def __init__(self, history: Sequence[Operation], rules: ProviderRules, configurations_max: int) -> None:
        self._history = history
        self._rules = rules
        self._configurations_max = configurations_max
        # At the same moment, what is asked comes before what is answered: the two overlap.
        moments = [(operation.asked_ns, 0, number) for number, operation in enumerate(history)]
        moments += [
            (operation.answered_ns, 1, number)
            for number, operation in enumerate(history)
            if operation.answered_ns is not None
        ]
        moments.sort()
        # Moment 0 is the head of the list.
        self._number = [-1, *(number for _, _, number in moments)]
        self._is_answer = [False, *(bool(kind) for _, kind, _ in moments)]
        self._next = [*range(1, len(moments) + 1), 0]
        self._before = [len(moments), *range(len(moments))]
        self._asked_at, self._answered_at = [0] * len(history), [0] * len(history)
        for moment in range(1, len(moments) + 1):
            where = self._answered_at if self._is_answer[moment] else self._asked_at
            where[self._number[moment]] = moment
        self._unexplained = sum(operation.answered_ns is not None for operation in history)

    def run(self) -> None:
        state, taken = self._rules.start, 0
        path: list[tuple[int, State]] = []
        seen: set[tuple[int, State]] = set()
        furthest = -1
        why = ""
        moment = self._next[0]
        while self._unexplained:
            number = self._number[moment]
            if not self._is_answer[moment]:
                after = self._rules.step(state, self._history[number])
                configuration = (taken | 1 << number, after)
                if after is None or configuration in seen:
                    moment = self._next[moment]
                    continue
                if len(seen) >= self._configurations_max:
                    raise TooHard(
                        f"{len(seen)} configurations of {len(self._history)} operations, no verdict"
                    )
                seen.add((configuration[0], after))
                path.append((number, state))
                state, taken = after, configuration[0]
                self._take(number)
                moment = self._next[0]
                continue
            if len(path) > furthest:
                furthest, why = len(path), self._describe(path, state, number)
            if not path:
                raise Violation(why)
            last, state = path.pop()
            taken ^= 1 << last
            self._give_back(last)
            moment = self._next[self._asked_at[last]]

    def _describe(self, path: list[tuple[int, State]], state: State, number: int) -> str:
        before = "\n".join(f"  {self._history[one]} at {was}" for one, was in path[-10:])
        return (
            f"no order explains {self._history[number]}: at best it comes after {len(path)} operations, at "
            f"{state}; the last of them are\n{before}"
        )

    def _take(self, number: int) -> None:
        self._unlink(self._asked_at[number])
        if self._answered_at[number]:
            self._unlink(self._answered_at[number])
            self._unexplained -= 1

    def _give_back(self, number: int) -> None:
        if self._answered_at[number]:
            self._unexplained += 1
            self._link(self._answered_at[number])
        self._link(self._asked_at[number])

    def _unlink(self, moment: int) -> None:
        before, after = self._before[moment], self._next[moment]
        self._next[before], self._before[after] = after, before

    def _link(self, moment: int) -> None:
        self._next[self._before[moment]] = self._before[self._next[moment]] = moment
