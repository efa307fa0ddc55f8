"""The ground that everything simulated stands on: virtual time, one generator of luck, and processes."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from berth.runtime.ids import Ids
from berth.sim.loop import LIFE, Life, SimTask, VirtualLoop
from berth.sim.trace import Trace

_EPOCH_NS: Final = 1_700_000_000 * 10**9


class World:
    """Everything that one seed decides. Its event loop must be running."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "the simulator runs on virtual time"
        self.loop = loop
        self.seed = seed
        self.trace = Trace(loop.time)
        self._context = contextvars.copy_context()
        self._started: dict[str, int] = {}

    def rng(self, name: str) -> random.Random:
        """A generator for one purpose: what is drawn from it does not change what others draw."""
        return random.Random(f"{self.seed} {name}")

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Have something happen whoever dies until then."""
        self.loop.call_later(delay_s, callback, context=self._context)

    def process(self, name: str, *, drift: float = 0.0, ahead_s: float = 0.0) -> "Process":
        """A new process; of one that is started again, its luck is another. ``drift`` and ``ahead_s`` are how
        much faster its host's clock goes, and how much it is ahead."""
        count = self._started[name] = self._started.get(name, 0) + 1
        self.trace.note(name, "starts")
        return Process(self, name, count, SimClock(self.loop.time, drift, ahead_s))


class SimClock:
    """The clock of a host. Wall time may be changed by ``jump``; the other kind only drifts."""

    def __init__(self, time_s: Callable[[], float], drift: float, ahead_s: float) -> None:
        self._time_s = time_s
        self._rate = 1 + drift
        self._ahead_ns = int(ahead_s * 1e9)

    def now_ns(self) -> int:
        return _EPOCH_NS + self._ahead_ns + self.monotonic_ns()

    def monotonic_ns(self) -> int:
        return int(self._time_s() * self._rate * 1e9)

    def jump(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * 1e9)


class Process:
    """What lives and dies as one."""

    def __init__(self, world: World, name: str, number: int, clock: SimClock) -> None:
        self.name = name
        self.clock = clock
        self.ids = Ids(world.rng(f"ids of {name} {number}").getrandbits(64))
        self.ended: asyncio.Future[None] = world.loop.create_future()
        """Resolved when the process has died, for those who wait for that."""
        self._world = world
        self._life = Life(name)
        self._context = contextvars.copy_context()
        self._context.run(LIFE.set, self._life)

    @property
    def is_alive(self) -> bool:
        return self._life.is_alive

    @property
    def tasks_at_most(self) -> int:
        """No fewer tasks than it has begun and not ended."""
        return self._life.tasks_at_most

    @property
    def tasks(self) -> int:
        """How many tasks it has begun and not ended."""
        return len(self._life.tasks)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> SimTask:
        """A task of this process."""
        return self._world.loop.create_task(work, context=self._context.copy())

    def freeze(self) -> None:
        """The process stops between two of its steps, as under ``kill -STOP``, until it is thawed."""
        self._world.trace.note(self.name, "is frozen")
        self._world.loop.freeze(self._life)

    def thaw(self) -> None:
        if self._life.kept is not None:
            self._world.trace.note(self.name, "is thawed")
            self._world.loop.thaw(self._life)

    def die_after(self, steps: int, kill: Callable[[], None]) -> None:
        """Have somebody ``kill`` the process at an await: when it has gone on so many times."""
        self._life.count((steps, kill))

    def live_on(self) -> None:
        """The process does not die by itself."""
        self._life.count(None)

    def kill(self) -> None:
        """The process ends between two of its steps, as under ``kill -9``."""
        if self._life.is_alive:
            self._world.trace.note(self.name, "is killed")
            self._world.loop.kill(self._life)
            self.ended.set_result(None)
