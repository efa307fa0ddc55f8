"""A worker's sign of life: a number that its event loop counts up, in memory that it shares with its parent.

A worker that hangs, is stopped or has deadlocked does not count any more, and the parent sees it; a worker
whose parent is gone sees that, too.
"""

import mmap
import os
import struct
from typing import Final

BEAT_S: Final = 1.0

_COUNT: Final = struct.Struct("=Q")


class Heartbeat:
    """Of one worker process. Made by the parent, before the fork."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _COUNT.size)
        self._parent = os.getpid()

    @property
    def count(self) -> int:
        count: int = _COUNT.unpack_from(self._memory)[0]
        return count

    def beat(self) -> None:
        _COUNT.pack_into(self._memory, 0, self.count + 1)

    @property
    def is_orphan(self) -> bool:
        """In the worker: whether the parent is gone."""
        return os.getppid() != self._parent
