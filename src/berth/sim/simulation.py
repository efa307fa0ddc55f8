"""One simulation: a profile played from a seed, with everything checked while it happens and when it rests.

    up -> actions, one after the other at times drawn before -> all faults stop -> rest -> last checks

What happens is a list of actions that is drawn from the seed before the first of them. So a history can be
cut short: the first N actions of a seed are played as they were, and the cloud comes to rest after them.
"""

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from berth.journal import JournalRow
from berth.model.events import Batch
from berth.sim.audit import Ledger, Runs
from berth.sim.cloud import SimCloud
from berth.sim.coverage import Crash, Crashes
from berth.sim.loop import NeverRests, StandsStill, VirtualLoop, throwing_away
from berth.sim.users import Users
from berth.sim.witness import Witness
from berth.sim.world import Process

REST_S: Final = 4 * 3600.0
"""How long a cloud without faults may take to come to rest; and how long each part of a simulation may take
before that: every wait ends."""
_TASKS_MAX: Final = 5_000
"""How many tasks one process may have: what it has queued, and more."""
_GARBAGE_MAX: Final = 500_000
"""How many objects a simulation may make before the garbage collector looks at them while it goes on."""


class Act(Protocol):
    """Something that happens. It may take long: the next does not wait for it."""

    def __call__(self, simulation: "Simulation", rng: random.Random) -> Awaitable[None]: ...


class PlannedAction(NamedTuple):
    """What happens at which second after the cloud is up, with a seed of its own."""

    at_s: float
    name: str
    act: Act
    seed: int


class Profile(Protocol):
    """What a kind of simulation consists of. ``every_s``: an action happens so often, on average.
    ``is_ours``: nobody but Berth writes allocations of servers."""

    name: str
    every_s: float
    is_ours: bool

    def cloud(self, seed: int) -> SimCloud: ...

    def choices(self) -> list[tuple[float, str, Act]]:
        """What can happen, and how often against the others."""

    async def prepare(self, simulation: "Simulation") -> None:
        """Make what everybody needs, in fine weather."""

    async def check_at_rest(self, simulation: "Simulation") -> None:
        """Fail, if something is not as it must be when nothing happens any more."""


@runtime_checkable
class Scripted(Profile, Protocol):
    """A profile that says itself what happens, however many minutes are given."""

    def actions(self, seed: int) -> list[PlannedAction]: ...


class CheckFailed(Exception):
    """Something that must hold does not."""


class SeedOutcome(NamedTuple):
    """``failure`` None: all checks held. ``crashes``: those that were aimed at a step, and have hit."""

    failure: str | None
    digest: str
    trace: list[str]
    actions: int
    virtual_s: float
    events: int
    counts: dict[str, int]
    crashes: tuple[Crash, ...]


def draw_actions(profile: Profile, seed: int, minutes: float) -> list[PlannedAction]:
    """All that is to happen."""
    if isinstance(profile, Scripted):
        return profile.actions(seed)
    rng = random.Random(f"{seed} actions of {profile.name}")
    choices = profile.choices()
    weights = [weight for weight, _, _ in choices]
    actions = []
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(1 / profile.every_s)) < minutes * 60:
        _, name, act = rng.choices(choices, weights)[0]
        actions.append(PlannedAction(at_s, name, act, rng.getrandbits(64)))
    return actions


class Simulation:
    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile = profile
        self.cloud = profile.cloud(seed)
        self.world = self.cloud.world
        self.failed: asyncio.Future[str] = self.world.loop.create_future()
        self.ledger = Ledger(self.fail, is_ours=profile.is_ours)
        self.runs = {name: Runs(name, self.fail) for name in self.cloud.cells}
        self.witness = Witness(self.cloud, self.runs, self.fail)
        self.ledger.judges.append(self.witness.on_region)
        self._now_s = self.world.loop.time
        self.users = Users(self.cloud.client(), self.ledger, self._now_s, self.fail)
        self.waits_for = ""
        """What keeps the cloud from being at rest, where a check knows."""
        self.counts: dict[str, int] = {}
        self.crashes: Crashes | None = None
        """Those that the profile aims at single steps."""
        self.facts: dict[str, Any] = {}
        """What the profile remembers."""
        self.cloud.database.appended.append(self._on_region)
        for name, cell in self.cloud.cells.items():
            cell.database.appended.append(self._follow(name))
        self.cloud.network.fail = self.fail
        self.world.loop.set_exception_handler(self._on_exception)

    def fail(self, why: str) -> None:
        """Note the first thing that must not be; the simulation ends there."""
        if not self.failed.done():
            self.world.trace.note("checks", f"FAILED: {why}")
            self.failed.set_result(why)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _on_region(self, process: Process, row: JournalRow, batch: Batch) -> None:
        self.ledger.take(row.index, batch.entries)
        self._check_queues()

    def _follow(self, cell: str) -> Callable[[Process, JournalRow, Batch], None]:
        return lambda process, row, batch: self.runs[cell].take(row.index, batch.entries)

    def _check_queues(self) -> None:
        for part in self.cloud.parts():
            process = part.process
            if process is None or process.tasks_at_most <= _TASKS_MAX:
                continue
            if process.tasks > _TASKS_MAX:
                self.fail(f"{part.name} has {process.tasks} tasks")

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.fail(f"{context.get('message')}: {context.get('exception')!r}")

    # -- playing --------------------------------------------------------------------------------

    async def play(self, actions: list[PlannedAction]) -> None:
        """CheckFailed as soon as a check fails."""
        playing = asyncio.ensure_future(self._play(actions))
        await asyncio.wait((playing, self.failed), return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            playing.cancel()
            raise CheckFailed(self.failed.result())
        playing.result()

    async def _play(self, actions: list[PlannedAction]) -> None:
        otherwise = "the cloud is not up in time"
        try:
            async with asyncio.timeout(REST_S) as limit, self.cloud.running():
                otherwise = "the profile has not prepared in time"
                await self.profile.prepare(self)
                otherwise = "an action has not ended in time"
                limit.reschedule(self._now_s() + (actions[-1].at_s if actions else 0) + REST_S)
                await self._act(actions)
                self.heal()
                otherwise = f"not at rest {REST_S:g} s after all faults have stopped"
                limit.reschedule(self._now_s() + REST_S)
                await self.profile.check_at_rest(self)
        except TimeoutError:
            self.fail(f"{otherwise}: {self.waits_for}" if self.waits_for else otherwise)

    async def _act(self, actions: list[PlannedAction]) -> None:
        up_s = self._now_s()
        async with asyncio.TaskGroup() as group:
            for action in actions:
                await asyncio.sleep(max(0, up_s + action.at_s - self._now_s()))
                self.world.trace.note("actions", action.name)
                self.count(action.name)
                group.create_task(self._do(action))

    async def _do(self, action: PlannedAction) -> None:
        await action.act(self, random.Random(action.seed))

    def heal(self) -> None:
        """All faults stop, and everybody lives."""
        self.world.trace.note("actions", "all faults stop")
        self.cloud.heal()


def simulate(profile: Profile, seed: int, *, minutes: float, first: int | None = None) -> SeedOutcome:
    """Play the actions of a seed, or the ``first`` of them. Nothing is left of the simulation: what the dead
    would do as they are thrown away must not happen to whatever runs next."""
    with _collecting_at_the_end():
        return _simulate(profile, seed, draw_actions(profile, seed, minutes)[:first])


@contextlib.contextmanager
def _collecting_at_the_end() -> Iterator[None]:
    """Have the garbage collector look at what a simulation has made, once it is over, and at nothing else.
    Otherwise a fifth of the time goes into looking at what will stay."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_GARBAGE_MAX, *thresholds[1:])
    try:
        yield
    finally:
        with throwing_away():
            gc.collect()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _simulate(profile: Profile, seed: int, actions: list[PlannedAction]) -> SeedOutcome:
    loop = VirtualLoop()
    simulation: Simulation | None = None

    async def main() -> None:
        nonlocal simulation
        simulation = Simulation(profile, seed)
        await simulation.play(actions)

    failure = None
    try:
        with _bugs_reported(lambda why: simulation.fail(why) if simulation else None):
            loop.run_until_complete(main())
    except (CheckFailed, StandsStill, NeverRests, AssertionError) as failed:
        failure = str(failed) or repr(failed)
        if simulation is not None:
            simulation.fail(failure)
    finally:
        events, virtual_s = loop.events, loop.time()
        loop.close()
    assert simulation is not None
    trace = simulation.world.trace
    return SeedOutcome(
        failure,
        trace.digest,
        trace.lines,
        len(actions),
        virtual_s,
        events,
        dict(sorted(simulation.counts.items())),
        () if simulation.crashes is None else tuple(simulation.crashes.hit),
    )


class _BugHandler(logging.Handler):
    """What is logged with a traceback is a bug."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._fail = fail

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            formatted = logging.Formatter().formatException(record.exc_info)
            self._fail(f"{record.getMessage()}: {formatted}")


@contextlib.contextmanager
def _bugs_reported(fail: Callable[[str], Any]) -> Iterator[None]:
    handler = _BugHandler(fail)
    log = logging.getLogger("berth")
    propagates, level = log.propagate, log.level
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
        log.setLevel(level)
