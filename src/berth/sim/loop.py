"""An event loop whose clock is virtual, and whose callbacks belong to processes that can die.

Nothing is waited for: when no callback is ready, the clock jumps to the next timer. A loop that has neither
would wait for ever, and says so; and so does one in which callbacks run without end. Threads there are none:
what is given to one is done at once.

Every callback belongs to the process in whose context it was scheduled. A process that is killed stops there
and then, as under ``kill -9``: none of its callbacks runs any more, not even what a ``finally`` would do.
Its tasks are kept until the loop is closed, so that the garbage collector does not run them either. A process
that is frozen is as under ``kill -STOP``: what becomes due is kept, and runs when the process goes on.

Tasks and futures are hashed by a number that is counted, not by their address: a set of them has the same
order in every run.
"""

import asyncio
import contextlib
import contextvars
import heapq
import sys
from asyncio.tasks import _unregister_task
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from typing import Any, Final

EVENTS_A_MINUTE_MAX: Final = 500_000
"""How many callbacks may run in one virtual minute: ten times what the busiest profile needs."""
_TIDY_AT: Final = 256


class Life:
    """Whether a process lives, and the tasks that it has begun and not ended. ``kept``: what has become due
    while it is frozen; None while it is not. ``last_steps``: how many callbacks it still runs, and what is
    told then, which is to kill it; None while it is not counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.kept: list[_Handle] | None = None
        self.last_steps: tuple[int, Callable[[], None]] | None = None
        self.runs_on = True
        """Whether it lives, is not frozen, and is not counted: one question for each callback."""
        self._tasks: list[SimTask] = []
        self._tidy_at = _TIDY_AT

    def __repr__(self) -> str:
        return self.name

    def begin(self, task: "SimTask") -> None:
        self._tasks.append(task)
        if len(self._tasks) > self._tidy_at:
            self._tidy_at = 2 * len(self.tasks) + _TIDY_AT

    def end(self) -> "list[SimTask]":
        """The process lives no more; what it had not ended."""
        tasks, self._tasks = self.tasks, []
        self.is_alive = self.runs_on = False
        return tasks

    def keep(self, kept: "list[_Handle] | None") -> None:
        self.kept = kept
        self._judge()

    def count(self, last_steps: tuple[int, Callable[[], None]] | None) -> None:
        self.last_steps = last_steps
        self._judge()

    def _judge(self) -> None:
        self.runs_on = self.is_alive and self.kept is None and self.last_steps is None

    @property
    def tasks(self) -> "list[SimTask]":
        """Those that have not ended."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks

    @property
    def tasks_at_most(self) -> int:
        """No fewer than there are: counting them each time would take long."""
        return len(self._tasks)


LIFE: Final[ContextVar[Life | None]] = ContextVar("life", default=None)
"""The process that a callback belongs to; None: the world around."""


class StandsStill(Exception):
    """Nothing will ever happen again, and somebody waits."""


class NeverRests(Exception):
    """Callbacks run without end, and hardly any time passes."""


class SimTask(asyncio.Task[Any]):
    """A task with a number, which it gets as soon as it is put into a set."""

    number = 0

    def __hash__(self) -> int:
        return self.number or _give_number(self)


class SimFuture(asyncio.Future[Any]):
    """A future with a number, if it is ever put into a set."""

    number = 0

    def __hash__(self) -> int:
        return self.number or _give_number(self)


def _give_number(future: SimTask | SimFuture) -> int:
    loop = future.get_loop()
    assert isinstance(loop, VirtualLoop), "tasks and futures of the simulator belong to its loop"
    future.number = loop.next_number()
    return future.number


class _Handle:
    """A callback, as ``asyncio.Handle`` and ``asyncio.TimerHandle`` are, and no more than is needed of them:
    hundreds of thousands are made in one run. So the loop makes them without a constructor. One that was
    cancelled has no callback any more."""

    __slots__ = ("_args", "_callback", "_context", "_when", "life")
    _args: Any
    _callback: Any
    _context: Context
    _when: float
    life: Life | None

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self._callback = self._args = None

    def cancelled(self) -> bool:
        return self._callback is None

    @property
    def is_due(self) -> bool:
        """Whether somebody who lives still wants it."""
        return self._callback is not None and (self.life is None or self.life.is_alive)


_new_handle: Final = object.__new__


class VirtualLoop(asyncio.BaseEventLoop):
    _ready: deque[_Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.events = 0
        """How many callbacks have run: a place in the history."""
        self._minute_from_s = 0.0
        self._events_max = EVENTS_A_MINUTE_MAX
        self._numbers = 0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._tidy_at = _TIDY_AT
        self._dead: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.now_s

    get_debug = staticmethod(bool)
    """False. It is asked for each task and each future, and this is the fastest way to say so."""

    # -- scheduling -----------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = _new_handle(_Handle)
        handle._callback = callback
        handle._args = args
        handle._context = context = contextvars.copy_context() if context is None else context
        handle.life = context.get(LIFE)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        timer = _new_handle(_Handle)
        timer._callback = callback
        timer._args = args
        timer._context = context = contextvars.copy_context() if context is None else context
        timer._when = when
        timer.life = context.get(LIFE)
        timers = self._timers
        self._numbers = number = self._numbers + 1
        heapq.heappush(timers, (when, number, timer))
        if len(timers) > self._tidy_at:
            # Most deadlines are cancelled.
            self._timers = [entry for entry in self._timers if entry[2].is_due]
            heapq.heapify(self._timers)
            self._tidy_at = 2 * len(self._timers) + _TIDY_AT
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def create_future(self) -> SimFuture:
        return SimFuture(loop=self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> SimFuture:  # type: ignore[override]
        """What would be done in a thread is done at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> SimTask:
        task = SimTask(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]
        life: Life | None = LIFE.get() if context is None else context.get(LIFE)
        if life is not None:
            life.begin(task)
        return task

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- running --------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run until the loop is to stop: there is nothing to look for in between."""
        ready = self._ready
        while True:
            if not ready and not self._stopping:
                self._jump()
            if self.events > self._events_max:
                raise NeverRests(
                    f"more than {EVENTS_A_MINUTE_MAX} callbacks have run since {self._minute_from_s:.6f} s: "
                    "somebody does not wait for anything"
                )
            timers, now_s = self._timers, self.now_s
            while timers and timers[0][0] <= now_s:
                ready.append(heapq.heappop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                # What ``is_due`` says, without asking: this is the innermost of all loops.
                callback = handle._callback
                if callback is None:
                    continue
                life = handle.life
                if life is not None and not life.runs_on and not _may_run(life, handle):
                    continue
                self.events += 1
                try:
                    handle._context.run(callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "a callback failed", "exception": error})
            if self._stopping:
                return

    def _jump(self) -> None:
        """Let time pass until the next timer of somebody who lives."""
        timers = self._timers
        while timers:
            when_s, _, timer = timers[0]
            if timer.is_due:
                self.now_s = max(self.now_s, when_s)
                if self.now_s >= self._minute_from_s + 60:
                    self._minute_from_s = self.now_s
                    self._events_max = self.events + EVENTS_A_MINUTE_MAX
                return
            heapq.heappop(timers)
        raise StandsStill(f"nothing is left to happen after {self.now_s:.6f} s, and somebody waits")

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...

    # -- stopping for a while -------------------------------------------------------------------

    def freeze(self, life: Life) -> None:
        """Nothing of a process runs until it is thawed."""
        if life.kept is None:
            life.keep([])

    def thaw(self, life: Life) -> None:
        self._ready.extend(life.kept or ())
        life.keep(None)

    # -- ending ---------------------------------------------------------------------------------

    def kill(self, life: Life) -> None:
        """Nothing of a process runs any more, from now on."""
        for task in life.end():
            self._bury(task)

    def _bury(self, task: asyncio.Task[Any]) -> None:
        _unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._dead.append(task)

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Nothing is kept of generators: those that the dead have left are not ended."""

    def close(self) -> None:
        """Everything ends where it is."""
        for task in asyncio.all_tasks(self):
            self._bury(task)
        super().close()
        self._timers.clear()
        with throwing_away():
            for task in self._dead:
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
            self._dead.clear()


def _may_run(life: Life, handle: _Handle) -> bool:
    """Whether a callback runs that belongs to a process of which not all do."""
    if not life.is_alive:
        return False
    if life.kept is not None:
        life.kept.append(handle)
        return False
    if life.last_steps is not None:
        left, told = life.last_steps
        life.count((left - 1, told) if left else None)
        if not left:
            told()
    return life.is_alive


@contextlib.contextmanager
def throwing_away() -> Iterator[None]:
    """Whatever the dead would still do as they are thrown away fails, and is of no interest. What they ask of
    an event loop, they ask of one that never runs: where none does, asyncio makes one that nobody closes."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    running, idle = asyncio._get_running_loop(), asyncio.BaseEventLoop()
    asyncio._set_running_loop(idle)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        idle.close()
        sys.unraisablehook = hook
