"""The thread that waits for the database, so that the event loop need not.

All calls go through this one thread, in the order in which they were made: a journal is used by one thread at
a time. An executor of the standard library does the same with two futures and a lock more for each call,
which shows where every read has a look at the journal's tail.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class JournalThread:
    """Begins with its first call; ends with ``stop``, or with the process."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((future, function, arguments))
        return await future

    def stop(self) -> None:
        """End when the calls made so far have been carried out."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            try:
                settle, outcome = future.set_result, function(*arguments)
            except BaseException as error:
                settle, outcome = future.set_exception, error
            future.get_loop().call_soon_threadsafe(_settle, future, settle, outcome)


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():
        settle(outcome)
