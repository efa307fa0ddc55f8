"""Linearizability: every answer is one that the journal's history has room for.

The history is kept as the facts after each command that got into the journal, and the time at which it did.
Requests of clients take effect at one moment between their beginning and their end:

* a read shows the facts of one such moment: nothing older than what was there when it was asked, nothing that
  is not in the journal, nothing between two commands that were written together;
* a write that was acknowledged is in the journal, got in between its beginning and its end, was allowed by
  what was there just before it, and has done what it asked for and nothing else;
* one that was acknowledged and has written nothing had nothing to change at one such moment;
* one that was refused was not allowed at one such moment, and is never in the journal, not later either;
* one whose outcome is unknown is in the journal at most once; no request ever is there twice.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from berth.client import Answer
from berth.model.commands import LedgerCommand
from berth.oracle.ledger import Oracle
from berth.sim.audit import Fail
from berth.sim.placement import (
    UNKNOWN,
    answer_of,
    apply,
    command_of,
    comparable,
    content,
    is_right_about_candidates,
)
from berth.sim.users import READS, REQUEST_ID, Asked

_CANDIDATES: Final = "/allocation_candidates"
_IS_UNKNOWN: Final = "outcome is unknown"
"""What a refusal says of which it is not known whether it is one."""


class StateAt(NamedTuple):
    """The facts after one command, and when it got in. ``is_last``: of those that were written together."""

    at_s: float
    facts: Oracle
    is_last: bool


class Linear:
    """Told of every row that gets into the journal, and of every request that has ended. ``judges_content``:
    whether what is written and read is compared with the facts; if not, only whether it was written, and
    every write must change something."""

    def __init__(self, fail: Fail, *, judges_content: bool = True) -> None:
        self._fail = fail
        self._judges_content = judges_content
        self._moments = [StateAt(0.0, Oracle(), is_last=True)]
        self._written: dict[str, int] = {}
        self._refused: dict[str, str] = {}

    @property
    def facts(self) -> Oracle:
        """What is so now."""
        return self._moments[-1].facts

    # -- the history ----------------------------------------------------------------------------

    def take(self, at_s: float, entries: Iterable[Any]) -> None:
        """One row."""
        taken = list(entries)
        for number, entry in enumerate(taken, 1):
            facts = self.facts.copy()
            if self._judges_content:
                for event in entry.events:
                    apply(facts, event)
            id = entry.origin.request_id
            if id in self._written:
                self._fail(f"request {id} is in the journal twice")
            if id in self._refused:
                self._fail(f"request {id} is in the journal, and was refused: {self._refused[id]}")
            self._written[id] = len(self._moments)
            self._moments.append(StateAt(at_s, facts, number == len(taken)))

    def _between(self, asked: Asked) -> Iterator[StateAt]:
        """The moments at which a request may have taken effect, the newest first."""
        for moment in reversed(self._moments):
            if moment.at_s <= asked.to_s:
                yield moment
                if moment.at_s < asked.from_s and moment.is_last:
                    return

    # -- answers --------------------------------------------------------------------------------

    def judge(self, asked: Asked) -> None:
        """A request that has ended."""
        answer = asked.answer
        if answer is None:
            return
        if asked.method in READS:
            if answer.status in (200, 204, 404) and self._judges_content:
                self._judge_read(asked, answer)
            return
        id = str(answer.headers.get(REQUEST_ID))
        if answer.status >= 400:
            self._judge_refusal(asked, answer, id)
        elif id in self._written:
            self._judge_written(asked, answer, self._written[id])
        else:
            self._judge_unchanged(asked, answer)

    def _judge_read(self, asked: Asked, answer: Answer) -> None:
        moments = (moment.facts for moment in self._between(asked) if moment.is_last)
        if not any(_shows(facts, asked.path, answer) for facts in moments):
            expected = answer_of(self.facts, asked.path)
            self._say(asked, answer, f"which nothing was at the time; now it is {expected}")

    def _judge_written(self, asked: Asked, answer: Answer, number: int) -> None:
        before, after = self._moments[number - 1], self._moments[number]
        if not asked.from_s <= after.at_s <= asked.to_s:
            self._say(asked, answer, f"and it got in at {after.at_s:.6f}")
        command = self._command(asked)
        if command is None:
            return
        trial = before.facts.copy()
        against = trial.carry_out(command, 0)
        if against:
            self._say(asked, answer, f"and speaking against it were {sorted(against)}")
        elif content(trial) != content(after.facts):
            changed = _difference(content(after.facts), content(trial))
            self._say(asked, answer, f"and it has not done what it asked for: {changed}")
        if asked.method in ("PUT", "POST") and answer.status == 200 and answer.body is not None:
            path = asked.path
            if path == "/resource_providers" and isinstance(asked.body, dict):
                path = f"{path}/{asked.body['uuid']}"
            if not _shows(after.facts, path, answer):
                expected = answer_of(after.facts, path)
                self._say(asked, answer, f"and it has made {expected}")

    def _judge_unchanged(self, asked: Asked, answer: Answer) -> None:
        command = self._command(asked)
        if command is None or not any(_changes_nothing(one.facts, command) for one in self._between(asked)):
            self._say(asked, answer, "and it is not in the journal")

    def _judge_refusal(self, asked: Asked, answer: Answer, id: str) -> None:
        about = f"{asked.method} {asked.path}: {answer.status} {answer.detail}"
        if _IS_UNKNOWN in answer.detail:
            return
        self._refused[id] = about
        if id in self._written:
            self._say(asked, answer, "and it is in the journal")
        if answer.status >= 500 or answer.status == 413:
            return
        command = self._command(asked)
        if command is not None and not any(
            moment.facts.copy().carry_out(command, 0) for moment in self._between(asked)
        ):
            self._say(asked, answer, "and nothing was against it")

    def _command(self, asked: Asked) -> LedgerCommand | None:
        return command_of(asked.method, asked.path, asked.body) if self._judges_content else None

    def _say(self, asked: Asked, answer: Answer, what: str) -> None:
        said = answer.body if answer.status < 400 else answer.detail
        self._fail(
            f"{asked.method} {asked.path} {asked.body or ''} from {asked.from_s:.6f} to {asked.to_s:.6f} was "
            f"answered {answer.status} {said}, {what}"
        )


def _shows(facts: Oracle, path: str, answer: Answer) -> bool:
    if answer.status != 404 and path.startswith(_CANDIDATES):
        return is_right_about_candidates(facts, path, answer.body)
    expected = answer_of(facts, path)
    if expected is UNKNOWN:
        return True
    return bool(expected == (None if answer.status == 404 else comparable(path, answer.body)))


def _changes_nothing(facts: Oracle, command: LedgerCommand) -> bool:
    trial = facts.copy()
    return not trial.carry_out(command, 0) and content(trial) == content(facts)


def _difference(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> str:
    pairs = [(one - other, other - one) for one, other in zip(found, wanted, strict=True)]
    return "; ".join(f"{set(more)} in place of {set(less)}" for more, less in pairs if more or less)
