"""Who is next, where more ask than can be served at once: nobody who floods the room keeps others out of it.

Those who wait are sorted by their peer (an address) into two lanes: peers that have shown a good token
lately, and all others. Of four places that become free, three go to the first lane, if anybody waits there;
within a lane peers take turns, and the questions of one peer keep their order. Each lane has a bound, and so
has each peer: a flood from one address fills that address's share and no more.
"""

import asyncio
from collections import deque
from typing import Final

LANE_MAX: Final = 2048
PEER_MAX: Final = 1024

_KNOWN_TURNS: Final = 3
"""So many places go to known peers before one goes to the others."""


class RoomFull(Exception):
    """No more can wait, of this peer or of its kind."""


class WaitingRoom:
    """``places``: how many may be inside at once. ``enter`` waits for a place, ``leave`` gives it on."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._known = _Lane()
        self._others = _Lane()
        self._turns = 0

    async def enter(self, peer: str, *, is_known: bool) -> None:
        """Wait for a place; RoomFull if there is not even one to wait."""
        if self._free:
            self._free -= 1
            return
        lane = self._known if is_known else self._others
        called = lane.add(peer)
        try:
            await called
        except asyncio.CancelledError:
            if called.cancelled():
                lane.remove(peer, called)
            else:
                # It was called in the same moment.
                self.leave()
            raise

    def leave(self) -> None:
        """Give the place to whoever is next."""
        for lane in self._next_lanes():
            called = lane.next()
            if called is not None:
                called.set_result(None)
                return
        self._free += 1

    def _next_lanes(self) -> "tuple[_Lane, _Lane]":
        self._turns += 1
        if self._turns % (_KNOWN_TURNS + 1):
            return self._known, self._others
        return self._others, self._known


class _Lane:
    """Those who wait, by peer. The peer whose turn it is comes first."""

    def __init__(self) -> None:
        self._peers: dict[str, deque[asyncio.Future[None]]] = {}
        self._waiting = 0

    def add(self, peer: str) -> "asyncio.Future[None]":
        waiting = self._peers.get(peer)
        if self._waiting >= LANE_MAX or (waiting is not None and len(waiting) >= PEER_MAX):
            raise RoomFull
        if waiting is None:
            waiting = self._peers[peer] = deque()
        called = asyncio.get_running_loop().create_future()
        waiting.append(called)
        self._waiting += 1
        return called

    def next(self) -> "asyncio.Future[None] | None":
        while self._peers:
            peer = next(iter(self._peers))
            waiting = self._peers.pop(peer)
            called = waiting.popleft()
            self._waiting -= 1
            if waiting:
                # Behind the other peers.
                self._peers[peer] = waiting
            if not called.done():
                return called
        return None

    def remove(self, peer: str, called: "asyncio.Future[None]") -> None:
        """One who has stopped waiting."""
        waiting = self._peers.get(peer)
        if waiting is None or called not in waiting:
            return
        waiting.remove(called)
        self._waiting -= 1
        if not waiting:
            del self._peers[peer]
