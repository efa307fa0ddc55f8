"""How simulated hypervisors behave: how long things take, what fails, what hangs, which hosts are dead.

A behaviour is a value; ``Behaviours`` is the one in force, which can be replaced at any time. Rules come
before rates, and the first rule that matches decides. How often a rule has been applied is kept for as long
as the rule is there.
"""

import random
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from berth.sagas.saga import Verb

SECONDS_MAX: Final = 86_400

_Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
_Rate = Annotated[float, Meta(ge=0, le=1)]
_Pattern = Annotated[str, Meta(min_length=1, max_length=200)]


class BehaviourError(Exception):
    """This is no behaviour. The message says where and why."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of commands for which all that is named here matches. ``hang``: the command never ends.
    ``late``: it is done, after so many ``seconds`` more than it takes."""

    outcome: Literal["fail", "hang", "late"]
    verb: Verb | None = None
    server: _Pattern | None = None
    """A pattern of the server's name, or of its id."""
    host: _Pattern | None = None
    message: Annotated[str, Meta(min_length=1, max_length=1000)] = "refused by a rule of the simulation"
    seconds: _Seconds = 60
    times: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """How often the rule applies; None: always."""


class SimBehaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    build_seconds: _Seconds = 0.5
    """How long builds and rebuilds take."""
    live_migrate_seconds: _Seconds = 3.0
    other_seconds: _Seconds = 0.1
    failure_rate: _Rate = 0.0
    failure_rates: dict[Verb, _Rate] = {}
    """The rates of single verbs, in place of ``failure_rate``."""
    rules: Annotated[tuple[Rule, ...], Meta(max_length=1000)] = ()
    dead: Annotated[tuple[_Pattern, ...], Meta(max_length=1000)] = ()
    """Hosts that send and execute nothing."""

    def seconds_of(self, verb: Verb) -> float:
        if verb in ("build", "rebuild"):
            return self.build_seconds
        return self.live_migrate_seconds if verb == "live_migrate" else self.other_seconds

    def is_dead(self, host: str) -> bool:
        return any(fnmatchcase(host, pattern) for pattern in self.dead)


class CommandFate(NamedTuple):
    """The outcome of one command. ``seconds`` None: it hangs. ``error`` None: it is done."""

    seconds: float | None
    error: str | None = None


class Behaviours:
    """The behaviour in force, for all simulated hosts of a process."""

    def __init__(self, behaviour: SimBehaviour) -> None:
        self.now = behaviour
        self._applied: dict[Rule, int] = {}

    def replace(self, behaviour: SimBehaviour) -> None:
        self.now = behaviour
        self._applied = {rule: count for rule, count in self._applied.items() if rule in behaviour.rules}

    def fate(self, verb: Verb, names: tuple[str, str], host: str, rng: random.Random) -> CommandFate:
        """The outcome of a command; ``names`` are the server's name and its id."""
        # Drawn for every command, so that a rule does not change the outcomes of those after it.
        drawn = rng.random()
        seconds = self.now.seconds_of(verb)
        rule = self._find_rule(verb, names, host)
        if rule is not None:
            return _apply_rule(rule, seconds)
        rate = self.now.failure_rates.get(verb, self.now.failure_rate)
        error = f"the simulated {verb} failed, as {rate:.3g} of them do" if drawn < rate else None
        return CommandFate(seconds, error)

    def _find_rule(self, verb: Verb, names: tuple[str, str], host: str) -> Rule | None:
        for rule in self.now.rules:
            applied = self._applied.get(rule, 0)
            if _matches(rule, verb, names, host) and (rule.times is None or applied < rule.times):
                self._applied[rule] = applied + 1
                return rule
        return None


def _matches(rule: Rule, verb: Verb, names: tuple[str, str], host: str) -> bool:
    if rule.verb is not None and rule.verb != verb:
        return False
    if rule.host is not None and not fnmatchcase(host, rule.host):
        return False
    return rule.server is None or any(fnmatchcase(name, rule.server) for name in names)


def _apply_rule(rule: Rule, seconds: float) -> CommandFate:
    match rule.outcome:
        case "fail":
            return CommandFate(seconds, rule.message)
        case "hang":
            return CommandFate(None)
        case "late":
            return CommandFate(seconds + rule.seconds)


def read_behaviour(text: bytes) -> SimBehaviour:
    """The behaviour that a TOML text describes, or BehaviourError."""
    try:
        given: Any = msgspec.toml.decode(text)
        return msgspec.convert(given, SimBehaviour)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BehaviourError(str(error)) from error
