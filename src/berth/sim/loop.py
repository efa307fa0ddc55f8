"""An event loop whose clock is virtual, and whose callbacks belong to processes that can die.

Nothing is waited for: when no callback is ready, the clock jumps to the next timer. A loop that has neither
would wait for ever, and says so. Threads there are none: what is given to one is done at once.

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
import weakref
from asyncio.tasks import _unregister_task
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Final


class Life:
    """Whether a process lives, and the tasks that it has begun and not ended. ``kept``: what has become due
    while it is frozen; None while it is not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.tasks: dict[SimTask, None] = {}
        self.kept: list[_Handle | _TimerHandle] | None = None

    def __repr__(self) -> str:
        return self.name


LIFE: Final[ContextVar[Life | None]] = ContextVar("life", default=None)
"""The process that a callback belongs to; None: the world around."""


class StandsStill(Exception):
    """Nothing will ever happen again, and somebody waits."""


class SimTask(asyncio.Task[Any]):
    """A task with a number."""

    def __init__(self, coro: Any, loop: "VirtualLoop", context: Context | None, number: int) -> None:
        # First: a task is put into a set as soon as it is made.
        self.number = number
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[Any]):
    """A future with a number."""

    def __init__(self, loop: "VirtualLoop", number: int) -> None:
        super().__init__(loop=loop)
        self.number = number

    def __hash__(self) -> int:
        return self.number


class _Handle(asyncio.Handle):
    __slots__ = ("life",)
    life: Life | None


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("life",)
    life: Life | None


class VirtualLoop(asyncio.BaseEventLoop):
    """``after_each`` is called after every callback."""

    _ready: deque[_Handle | _TimerHandle]
    _stopping: bool
    _asyncgens: weakref.WeakSet[Any]

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.events = 0
        """How many callbacks have run: a place in the history."""
        self.after_each: Callable[[], None] | None = None
        self._numbers = 0
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._cancelled = 0
        self._dead: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self.now_s

    # -- scheduling -----------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = _Handle(callback, args, self, context)
        handle.life = context.get(LIFE)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        timer = _TimerHandle(when, callback, args, self, context)
        timer.life = context.get(LIFE)
        heapq.heappush(self._timers, (when, self._next_number(), timer))
        return timer

    def create_future(self) -> SimFuture:
        return SimFuture(self, self._next_number())

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> SimFuture:  # type: ignore[override]
        """What would be done in a thread is done at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None
    ) -> SimTask:
        task = SimTask(coro, self, context, self._next_number())
        life = LIFE.get() if context is None else context.get(LIFE)
        if life is not None:
            life.tasks[task] = None
            task.add_done_callback(lambda task: life.tasks.pop(task, None))
        return task

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- running --------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            self._jump()
        while timers and timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            life = handle.life
            if handle.cancelled() or not (life is None or life.is_alive):
                continue
            if life is not None and life.kept is not None:
                life.kept.append(handle)
                continue
            handle._run()
            self.events += 1
            if self.after_each is not None:
                self.after_each()

    def _jump(self) -> None:
        """Let time pass until the next timer of somebody who lives."""
        timers = self._timers
        while timers:
            when_s, _, timer = timers[0]
            if not timer.cancelled() and (timer.life is None or timer.life.is_alive):
                self.now_s = max(self.now_s, when_s)
                return
            heapq.heappop(timers)
        raise StandsStill(f"nothing is left to happen after {self.now_s:.6f} s, and somebody waits")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Most deadlines are cancelled: they are thrown away when they are the greater part."""
        self._cancelled += 1
        if self._cancelled > 100 and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...

    # -- stopping for a while -------------------------------------------------------------------

    def freeze(self, life: Life) -> None:
        """Nothing of a process runs until it is thawed."""
        if life.kept is None:
            life.kept = []

    def thaw(self, life: Life) -> None:
        if life.kept is not None:
            self._ready.extend(life.kept)
            life.kept = None

    # -- ending ---------------------------------------------------------------------------------

    def kill(self, life: Life) -> None:
        """Nothing of a process runs any more, from now on."""
        life.is_alive = False
        for task in life.tasks:
            self._bury(task)
        life.tasks.clear()

    def _bury(self, task: asyncio.Task[Any]) -> None:
        _unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._dead.append(task)

    async def shutdown_asyncgens(self) -> None:
        """Generators that the dead have left are not ended."""
        self._asyncgens.clear()

    def close(self) -> None:
        """Everything ends where it is."""
        for task in asyncio.all_tasks(self):
            self._bury(task)
        super().close()
        self._timers.clear()
        # Whatever the dead would still do as they are thrown away fails, and is of no interest.
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            for task in self._dead:
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
            self._dead.clear()
        finally:
            sys.unraisablehook = hook
