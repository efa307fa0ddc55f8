"""A process's heartbeat: a number that it counts up, in memory that it shares with its parent.

A process that hangs, is stopped or has deadlocked stops counting, and its parent notices; a process whose
parent is gone notices that too. In a process with an event loop, the loop counts: a thread would go on beside
a loop that hangs.
"""

import asyncio
import mmap
import os
import struct
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 1.0
LOOK_S: Final = 1.0
"""How often a parent looks."""
_FIRST_S: Final = 60.0
"""How long a child may take to its first heartbeat, at least: it has to load the program first."""

_COUNT: Final = struct.Struct("=Q")
_VARIABLE: Final = "_BERTH_HEARTBEAT"


class Heartbeat:
    """Of one child process. Made by the parent, before the child is started; a child that is forked uses the
    same object, and a program that is started finds it with ``inherited``, if it is given ``file`` and
    ``variables``."""

    def __init__(self, file: int | None = None, parent: int | None = None) -> None:
        self.file = _shared_file() if file is None else file
        self.parent = os.getpid() if parent is None else parent
        self._memory = mmap.mmap(self.file, _COUNT.size)
        weakref.finalize(self, os.close, self.file)

    @classmethod
    def inherited(cls) -> "Heartbeat | None":
        """The heartbeat that this program was started with, if its parent watches it."""
        told = os.environ.pop(_VARIABLE, None)
        if told is None:
            return None
        file, parent = map(int, told.split(":"))
        os.set_inheritable(file, False)
        return cls(file, parent)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a program that is to find it."""
        return {_VARIABLE: f"{self.file}:{self.parent}"}

    @property
    def count(self) -> int:
        count: int = _COUNT.unpack_from(self._memory)[0]
        return count

    def beat(self) -> None:
        _COUNT.pack_into(self._memory, 0, self.count + 1)

    @property
    def is_orphan(self) -> bool:
        """In the child: whether the parent is gone."""
        return os.getppid() != self.parent


class Watch:
    """In the parent: whether a child hangs. It has to be asked every ``LOOK_S``.

    If the parent was stopped itself, or got no time, its child may not have had any either: between two looks
    at most twice the usual time counts.
    """

    def __init__(self, heartbeat: Heartbeat, hung_after_s: float) -> None:
        self._heartbeat = heartbeat
        self._hung_after_s = hung_after_s
        self.begin()

    def begin(self) -> None:
        """Start over: the child has been replaced."""
        self._count = self._heartbeat.count
        self._limit_s = max(self._hung_after_s, _FIRST_S)
        self._silent_s = 0.0
        self._looked_s = time.monotonic()

    def is_hung(self) -> bool:
        count, now_s = self._heartbeat.count, time.monotonic()
        if count != self._count:
            self._limit_s, self._silent_s = self._hung_after_s, 0.0
        else:
            self._silent_s += min(now_s - self._looked_s, 2 * LOOK_S)
        self._count, self._looked_s = count, now_s
        return self._silent_s > self._limit_s

    @property
    def verdict(self) -> str:
        return f"no heartbeat for {self._limit_s:g} s"


def beat_from_loop(heartbeat: Heartbeat, on_orphan: Callable[[], None]) -> None:
    """Beat for as long as the running event loop runs. While the parent is gone, ``on_orphan`` is called at
    every beat."""
    heartbeat.beat()
    if heartbeat.is_orphan:
        on_orphan()
    asyncio.get_running_loop().call_later(BEAT_S, beat_from_loop, heartbeat, on_orphan)


def _shared_file() -> int:
    """A file without a name; in memory where the system can."""
    if sys.platform == "linux":
        file = os.memfd_create("heartbeat")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.truncate(file, _COUNT.size)
    return file
