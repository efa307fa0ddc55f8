"""The thread that waits for the database, so that the event loop need not.

All calls go through this one thread, in the order in which they were made: a journal is used by one thread at
a time. An executor of the standard library does the same with two futures and a lock more for each call,
which shows where every read has a look at the journal's tail.

    answering --(a call takes longer than it may)--> silent --(that call returns)--> answering

A call cannot be interrupted: SQLite waits for a disk that hangs without an end. So its caller is told that
there is no answer, and the call goes on. Until it has returned, every other call is refused at once; one that
is made after that is carried out after it, and reads what it has done.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from berth.journal import JournalFailure
from berth.runtime.dependency import Dependency

T = TypeVar("T")

_Call = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]

_log = logging.getLogger(__name__)


class NoAnswer(JournalFailure):
    """The database has not answered in time. What it was asked for may still be done, at any moment until
    it answers again."""


class JournalCalls(Protocol):
    """Whoever carries the calls of a journal out, one after the other."""

    @property
    def is_silent(self) -> bool: ...

    async def call(self, function: Callable[..., T], *arguments: Any, answer_s: float | None = None) -> T: ...

    def stop(self) -> None: ...


class JournalThread:
    """Begins with its first call; ends with ``stop``, or with the process. ``answer_s`` is how long a call
    may take, unless it says otherwise. ``name``: what the log calls the database."""

    def __init__(self, answer_s: float, name: str = "the database") -> None:
        self._answer_s = answer_s
        self._database = Dependency(
            name,
            _log,
            lost_as="does not answer; what needs it is refused until it answers",
            back_as="answers again",
        )
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Calls that have not returned and that nobody waits for any more.
        self._late: set[asyncio.Future[Any]] = set()

    @property
    def is_silent(self) -> bool:
        return bool(self._late)

    async def call(self, function: Callable[..., T], *arguments: Any, answer_s: float | None = None) -> T:
        """What the function returns. ``NoAnswer`` if it has not returned in time, or an earlier call has
        not."""
        if self._late:
            raise NoAnswer("the database does not answer")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        limit_s = answer_s or self._answer_s
        deadline = loop.call_later(limit_s, self._give_up, future, limit_s)
        self._calls.put((future, function, arguments))
        try:
            return await future
        finally:
            deadline.cancel()

    def call_unattended(self, function: Callable[[], None]) -> None:
        """Have a function carried out after the calls made so far; nobody waits for it."""
        self._calls.put((asyncio.get_running_loop().create_future(), function, ()))

    def stop(self) -> None:
        """End when the calls made so far have been carried out."""
        self._calls.put(None)

    def _give_up(self, future: asyncio.Future[Any], limit_s: float) -> None:
        if future.done():
            return
        waited_since_s = asyncio.get_running_loop().time() - limit_s
        self._database.lose(f"no answer for {limit_s:g} s", since_s=waited_since_s)
        self._late.add(future)
        future.set_exception(NoAnswer(f"the database has not answered for {limit_s:g} s"))

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            try:
                settle, outcome = future.set_result, function(*arguments)
            except BaseException as error:
                settle, outcome = future.set_exception, error
            # The loop may have ended while the database did not answer.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(self._settle, future, settle, outcome)

    def _settle(self, future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            settle(outcome)
        elif future in self._late:
            self._late.remove(future)
            if not self._late:
                self._database.regain()
