"""One HTTP/1.1 connection: bytes in, requests one after the other, bytes out.

    HEAD --(head)--> BODY --(its end)--> ANSWER --(answer sent)--> HEAD ...
      any of these --(refused, or answered too early)--> LINGERING --(client has read, or time is up)--> lost
      any of these --(last answer sent, idle too long, stop)--> CLOSING --(all written)--> lost

At most one request is in progress; what the client sends meanwhile is kept, up to one read of the socket, and
reading pauses. While nothing arrives, reading goes on, so that a disconnect is noticed.

Closing at once while the client still sends would make its kernel drop the answer. So the connection lingers:
its writing side is shut, and what arrives is dropped for a moment.
"""

import asyncio
import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

from berth.serving.asgi import Scope
from berth.serving.exchange import CONTINUE, Exchange, refusal
from berth.serving.limits import (
    BODY_BYTES_PER_S,
    BODY_S,
    FREE_BODY_BYTES,
    HEAD_S,
    IDLE_S,
    LINGER_S,
    STALLED_BODY_S,
    UNREAD_BODY_BYTES_MAX,
    UNTAKEN_BODY_BYTES_MAX,
    UNWANTED_BODY_S,
    WRITE_S,
)
from berth.serving.reader import Refused, RequestReader

if TYPE_CHECKING:
    from berth.serving.connections import Connections

_log = logging.getLogger(__name__)


class Stage(IntEnum):
    HEAD = 0
    BODY = 1
    ANSWER = 2
    LINGERING = 3
    CLOSING = 4


_BODIES: Final = "The bodies of other requests use all of bodies_bytes_max. Retry later."

# Read for every request: a name of the module is found faster than one of a class.
_HEAD: Final = Stage.HEAD
_BODY: Final = Stage.BODY
_ANSWER: Final = Stage.ANSWER


class Connection(asyncio.Protocol):
    """Calls the application for every request, and writes its answers."""

    __slots__ = (
        "_body_bytes",
        "_body_s",
        "_exchange",
        "_has_eof",
        "_held",
        "_is_fresh",
        "_is_paused",
        "_reader",
        "_since",
        "_stage",
        "_transport",
        "_unclogging",
        "_unsent_bytes",
        "_unsent_since",
        "crowd",
        "is_clogged",
        "peer",
        "shared",
    )

    def __init__(self, shared: "Connections") -> None:
        self.shared = shared
        self.peer = ""
        # Why there is no room for this connection, if so: its first request is then refused with this.
        self.crowd = ""
        self._stage = _HEAD
        self._exchange: Exchange | None = None
        # What arrived after a request that is not answered yet.
        self._held = b""
        self._has_eof = False
        self._is_fresh = True
        self._is_paused = False
        self.is_clogged = False
        self._unclogging: asyncio.Future[None] | None = None
        # How much of the present body has arrived, and how long the application has waited for it.
        self._body_bytes = 0
        self._body_s = 0
        # When the present stage began, the last piece of a wanted body arrived, or a body became unwanted.
        self._since = shared.tick
        self._unsent_bytes = 0
        self._unsent_since = 0

    # -- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        self._reader = RequestReader((self.peer, int(peer[1])) if peer else None)
        self.shared.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._stage = Stage.CLOSING
        self._held = b""
        self._reader.forget()
        self.resume_writing()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._abandon(exchange)
        self.shared.remove(self)

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage is _HEAD:
            self._read_head(data)
        elif stage is _BODY:
            self._read_body(data)
        elif stage is _ANSWER:
            self._held += data
            self._pause()

    def eof_received(self) -> bool:
        """The client sends no more. It may still read: a request that has arrived whole is answered."""
        self._has_eof = True
        exchange = self._exchange
        if self._stage is not _ANSWER or exchange is None:
            return False
        exchange.tell_disconnect()
        return True

    def pause_writing(self) -> None:
        self.is_clogged = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._unsent_since = self.shared.tick

    def resume_writing(self) -> None:
        self.is_clogged = False
        if self._unclogging is not None and not self._unclogging.done():
            self._unclogging.set_result(None)

    # -- requests -------------------------------------------------------------------------------

    def _read_head(self, data: bytes) -> None:
        begun = self._reader.has_begun
        try:
            scope = self._reader.read_head(data)
        except Refused as refused:
            self._refuse(refused.status, refused.detail)
            return
        if scope is not None:
            self._begin(scope)
        elif not begun and self._reader.has_begun:
            self._since = self.shared.tick

    def _begin(self, scope: Scope) -> None:
        reader = self._reader
        shared = self.shared
        shared.note_busy(self)
        if self.crowd and scope["path"] not in shared.limits.always_answered:
            self._refuse(503, f"The server has {self.crowd}.")
            return
        is_streamed = shared.limits.streams_body(scope["method"], scope["path"])
        told = 0 if reader.complete or is_streamed else reader.body_left or 0
        if told > FREE_BODY_BYTES and not shared.has_room_for(told - FREE_BODY_BYTES):
            self._refuse(503, _BODIES)
            return
        exchange = self._exchange = Exchange(self, scope, reader.keeps_alive, reader.is_old, is_streamed)
        # It runs after this callback has returned, and finds what has arrived of the body by then.
        exchange.task = asyncio.Task(exchange.run(shared.application), loop=shared.loop)
        if reader.complete:
            exchange.add_body(b"", True)
            self._stage = _ANSWER
            self._hold(reader.rest)
        else:
            self._stage = _BODY
            self._since = shared.tick
            self._body_bytes = 0
            self._body_s = 0
            if reader.rest:
                self._read_body(reader.rest)

    def _read_body(self, data: bytes) -> None:
        reader = self._reader
        try:
            body = reader.read_body(data)
        except Refused as refused:
            self._refuse(refused.status, refused.detail)
            return
        exchange = self._exchange
        if exchange is not None:
            shared = self.shared
            shared.note_busy(self)
            self._since = shared.tick
            self._body_bytes += len(data)
            if not exchange.add_body(body, reader.complete):
                self._refuse(503, _BODIES)
                return
            if reader.complete:
                self._stage = _ANSWER
                self._hold(reader.rest)
            elif exchange.untaken_bytes > UNTAKEN_BODY_BYTES_MAX:
                self._pause()
        elif reader.complete:
            # The request was answered before its body had arrived; the rest was dropped.
            self._hold(reader.rest)
            self._next()

    def _hold(self, rest: bytes) -> None:
        if rest:
            self._held = rest
            self._pause()

    def _next(self) -> None:
        """Go on to the next request, which may have arrived already."""
        if self.shared.is_draining:
            self._end()
            return
        self._stage = _HEAD
        self._since = self.shared.tick
        self._is_fresh = False
        self.shared.note_kept(self)
        if self._held:
            held, self._held = self._held, b""
            self._read_head(held)
        if not self._held:
            self._resume()

    # -- what an exchange calls -----------------------------------------------------------------

    def await_body(self) -> None:
        """The application waits for the body. A client that expects it gets 100 Continue."""
        reader = self._reader
        self._since = self.shared.tick
        if reader.expects_continue and self._stage is _BODY:
            reader.expects_continue = False
            self._transport.write(CONTINUE)

    def take_more(self) -> None:
        self._resume()

    def can_go_on(self) -> bool:
        """Whether there can be another request after the one that is being answered."""
        if self.shared.is_draining or self._has_eof:
            return False
        if self._stage is not _BODY:
            return True
        left = self._reader.body_left
        return left is not None and left <= UNREAD_BODY_BYTES_MAX and not self._reader.expects_continue

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def write_all(self, pieces: tuple[bytes, ...]) -> None:
        self._transport.writelines(pieces)

    async def unclogged(self) -> None:
        """Wait until the client has read some of what was written, or has disconnected."""
        while self.is_clogged:
            # A new future each time: cancelling the waiting task cancels the future too.
            self._unclogging = self.shared.loop.create_future()
            await self._unclogging

    def answered(self, exchange: Exchange) -> None:
        if exchange is not self._exchange:
            return
        self._exchange = None
        if not (exchange.keeps_alive and self.can_go_on()):
            self._end()
        elif self._stage is _ANSWER:
            self._next()
        else:
            # The rest of the body is read, and dropped.
            self._since = self.shared.tick
            self.shared.note_kept(self)
            self._resume()

    def left(self, exchange: Exchange) -> None:
        """The application has returned or failed. If it has not answered, this does."""
        self.shared.release(exchange)
        if exchange.done or exchange is not self._exchange:
            return
        if exchange.sent or self._has_eof:
            # It has ended: the connection must not leave it to be finished.
            self._exchange = None
            self._abort()
        else:
            self._refuse(500, "Internal error. The log of the server has the details.")

    # -- ending ---------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether the client waits for no answer."""
        return self._stage is _HEAD or (self._stage is _BODY and self._exchange is None)

    def drop(self) -> None:
        self._abort()

    def evict(self, *, at_once: bool) -> None:
        """Make room for another connection. Only idle connections are evicted."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._abandon(exchange)
            self._transport.write(
                refusal(self.shared.status_lines[408], 408, "Timeout: the body did not arrive.")
            )
        if at_once:
            self._abort()
        else:
            self.close()

    def close(self) -> None:
        """Close after what has been written is sent."""
        self._stage = Stage.CLOSING
        self._since = self.shared.tick
        self._transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer in place of the application, unless its answer has begun, and end the connection."""
        _log.debug("refused with %d: %s", status, detail)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._abandon(exchange)
            if exchange.sent:
                self._abort()
                return
        self._transport.write(refusal(self.shared.status_lines[status], status, detail))
        self._linger()

    def _abandon(self, exchange: Exchange) -> None:
        exchange.leave()
        self.shared.adopt(exchange)

    def _end(self) -> None:
        """After the last answer."""
        if self._has_eof or (self._stage is _ANSWER and not self._held):
            self.close()
        else:
            self._linger()

    def _linger(self) -> None:
        self._stage = Stage.LINGERING
        self._since = self.shared.tick
        self._unsent_bytes = 0
        self._held = b""
        if self._has_eof or self._transport.is_closing():
            self._transport.close()
            return
        self._transport.write_eof()
        self._resume()

    def _abort(self) -> None:
        self._stage = Stage.CLOSING
        self._transport.abort()

    # -- reading or not -------------------------------------------------------------------------

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    # -- time -----------------------------------------------------------------------------------

    def check_deadlines(self, tick: int) -> None:
        """Called once a second."""
        waited_s = tick - self._since
        if self.is_clogged or self._stage >= Stage.LINGERING:
            self._check_writing(tick, waited_s)
        elif self._stage is _HEAD:
            if self._reader.has_begun:
                if waited_s > HEAD_S:
                    self._refuse(408, f"Timeout: the request did not arrive within {HEAD_S} seconds.")
            elif waited_s > (HEAD_S if self._is_fresh else IDLE_S):
                self.close()
        elif self._stage is _BODY:
            self._check_body(waited_s)

    def _check_body(self, waited_s: int) -> None:
        exchange = self._exchange
        if exchange is None:
            if waited_s > UNWANTED_BODY_S:
                # The client has its answer and must not get a second one.
                self._end()
        elif exchange.waiting is not None:
            # Only seconds in which the application waits count: the others are not the client's fault.
            self._body_s += 1
            if waited_s >= STALLED_BODY_S:
                self.shared.note_stalled(self)
            if waited_s > BODY_S:
                self._refuse(408, f"Timeout: nothing of the body arrived for {BODY_S} seconds.")
            elif self._body_s > BODY_S + self._body_bytes // BODY_BYTES_PER_S:
                self._refuse(408, f"Timeout: the body arrived too slowly, {self._body_bytes} bytes so far.")

    def _check_writing(self, tick: int, waited_s: int) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._unsent_since = tick
        elif unsent_bytes and tick - self._unsent_since > WRITE_S:
            _log.debug("client disconnected: it read nothing of its response for %d seconds", WRITE_S)
            self._abort()
        elif not unsent_bytes and waited_s > LINGER_S and self._stage >= Stage.LINGERING:
            self._abort()
