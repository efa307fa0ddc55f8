"""The workers of one server take turns to write.

Of two workers that append at the same time one loses, takes its commands back and decides them again. Under
load that is every other append. So the workers pass a token around, through a pipe: the holder reads what the
others have written, decides, appends, and passes it on. With the token goes shared memory, in which each
worker leaves what it has appended, so that the next need not ask the database for it.

Correctness does not depend on the token: the journal's key still decides which append was first, and other
servers on the same journal know nothing of it. A worker that has waited too long, because the holder is
stopped or its database does not answer, continues without the token, and does not wait again until it has
seen it, or for a second.
"""

import asyncio
import mmap
import os
import struct
from typing import Final

PATIENCE_S: Final = 0.05
IMPATIENCE_S: Final = 1.0

_TOKEN: Final = struct.Struct("=q")
"""The process that had it last. A message this short is written and read whole."""

_NOBODY: Final = 0

_LEFT_BYTES_MAX: Final = 64 << 10
"""Enough for a few turns: all of it is read in every turn."""
_HOLDER: Final = struct.Struct("=q")
"""The process whose turn it is, so that a turn which dies with it can be given to another."""
_LENGTH_AT: Final = _HOLDER.size
_LENGTH: Final = struct.Struct("=q")
_CONTENT_AT: Final = _LENGTH_AT + _LENGTH.size
_ENTRY: Final = struct.Struct("=qq")
"""Before each entry: its index, and how many bytes follow."""


class Turns:
    """Made before the processes that share it are forked."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._impatient_until_s = 0.0
        self._mine = False
        # Read and written by the holder of the token alone.
        self._memory = mmap.mmap(-1, _LEFT_BYTES_MAX)
        self._pass_on(_NOBODY)

    async def take(self) -> bool:
        """Wait for the turn, within limits. Whether another process may have written since our last one."""
        last = self._last_holder()
        now_s = asyncio.get_running_loop().time()
        if last is None and now_s >= self._impatient_until_s:
            last = await self._wait()
            if last is None:
                self._impatient_until_s = now_s + PATIENCE_S + IMPATIENCE_S
        self._mine = last is not None
        if self._mine:
            self._impatient_until_s = 0.0
        return last is not None and last != os.getpid()

    def give(self) -> None:
        """Pass the turn on, if this process has it."""
        if self._mine:
            self._mine = False
            _HOLDER.pack_into(self._memory, 0, _NOBODY)
            self._pass_on(os.getpid())

    def recover(self, dead: int) -> None:
        """Pass the turn on for a process that has died while it had the turn. What it left in the shared
        memory may be half written and is dropped: the journal has it."""
        if _HOLDER.unpack_from(self._memory)[0] == dead:
            _LENGTH.pack_into(self._memory, _LENGTH_AT, _CONTENT_AT)
            _HOLDER.pack_into(self._memory, 0, _NOBODY)
            self._pass_on(dead)

    def leave(self, index: int, content: bytes) -> None:
        """Leave what was appended at an index in our turn for the other workers. When there is no room, it
        replaces what was left earlier."""
        if not self._mine:
            return
        (end,) = _LENGTH.unpack_from(self._memory, _LENGTH_AT)
        start = max(end, _CONTENT_AT)
        size = _ENTRY.size + len(content)
        if start + size > _LEFT_BYTES_MAX:
            start = _CONTENT_AT
        if start + size > _LEFT_BYTES_MAX:
            size = 0
        else:
            _ENTRY.pack_into(self._memory, start, index, len(content))
            self._memory[start + _ENTRY.size : start + size] = content
        _LENGTH.pack_into(self._memory, _LENGTH_AT, start + size)

    def left_behind(self, index: int) -> list[bytes]:
        """What others left for the indices after this one, without a gap. The journal may have more."""
        found: list[bytes] = []
        if not self._mine:
            return found
        (end,) = _LENGTH.unpack_from(self._memory, _LENGTH_AT)
        start = _CONTENT_AT
        while start < end:
            at, length = _ENTRY.unpack_from(self._memory, start)
            start += _ENTRY.size
            if at == index + len(found) + 1:
                found.append(self._memory[start : start + length])
            start += length
        return found

    def _pass_on(self, holder: int) -> None:
        os.write(self._writing, _TOKEN.pack(holder))

    def _last_holder(self) -> int | None:
        """Take the token if it is there; the process that had it last. If this process dies now, the token is
        lost until ``recover``."""
        try:
            holder: int = _TOKEN.unpack(os.read(self._reading, _TOKEN.size))[0]
        except BlockingIOError:
            return None
        _HOLDER.pack_into(self._memory, 0, os.getpid())
        return holder

    async def _wait(self) -> int | None:
        loop = asyncio.get_running_loop()
        came: asyncio.Future[int] = loop.create_future()

        def look() -> None:
            # All waiting processes wake up, and one of them gets the token.
            if not came.done() and (holder := self._last_holder()) is not None:
                came.set_result(holder)

        loop.add_reader(self._reading, look)
        try:
            await asyncio.wait((came,), timeout=PATIENCE_S)
            return came.result() if came.done() else None
        finally:
            loop.remove_reader(self._reading)
