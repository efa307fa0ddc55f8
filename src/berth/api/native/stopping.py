"""When this process is told to stop, as soon as it is told.

The server waits for what is in flight before it tells the application that it stops; a stream would keep
it waiting until its patience ends. So, while somebody wants to know, the signals that stop a process are
listened to here as well, and passed on to whoever had them before.
"""

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Calls ``on_stop`` in the event loop when a signal to stop arrives, between ``listen`` and ``leave``.

    Where signals cannot be had (they are the main thread's), nothing is called.
    """

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        loop = asyncio.get_running_loop()

        def tell(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._on_stop)
            before = self._before.get(signal.Signals(number))
            if callable(before):
                before(number, frame)
            elif before == signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        for number in _SIGNALS:
            before = signal.getsignal(number)
            try:
                signal.signal(number, tell)
            except ValueError:
                return  # not the main thread
            self._before[number] = before

    def leave(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
