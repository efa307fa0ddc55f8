"""One request and its answer: ``receive`` and ``send`` for the application, and how the answer is written.

    waiting --(start)--> begun --(first piece of the body)--> sent --(last piece)--> done

The head is written with the first piece of the body, so that a small answer is one write. A client that
disconnects does not end the application's work, which may be half done: the application is told by
``http.disconnect``, and what it sends is dropped.

What always holds: a head is well formed (a header that contains another line is refused), and the client can
tell where the body ends: by its length, by chunks, or, for HTTP/1.0, by the end of the connection.
"""

import asyncio
import json
import logging
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from berth.serving.asgi import RESPONSE_START, Application, Headers, Message, Scope
from berth.serving.limits import FREE_BODY_BYTES, JOINED_BODY_BYTES_MAX

_log = logging.getLogger(__name__)

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"

CLOSES: Final = b"connection: close\r\n"
KEEPS: Final = b"connection: keep-alive\r\n"
"""For HTTP/1.0, where closing is the default."""

CHUNKED: Final = b"transfer-encoding: chunked\r\n"

_DISCONNECT: Final = "http.disconnect"
_WITHOUT_BODY: Final = frozenset((204, 304))
_STATUS_AND_DATE_LINES: Final = 2
_LENGTH: Final = b"\ncontent-length: "


class UnfitAnswer(Exception):
    """The application's answer cannot be written as HTTP. It is a bug of the application."""


class StatusLines(dict[int, bytes]):
    """By status, the first two lines of an answer: the status line and the date, made once a second."""

    def __init__(self, now_s: float) -> None:
        super().__init__()
        self.set_time(now_s)

    def set_time(self, now_s: float) -> None:
        self._date = formatdate(now_s, usegmt=True).encode()
        self.clear()

    def __missing__(self, status: int) -> bytes:
        lines = b"HTTP/1.1 %d %b\r\ndate: %b\r\n" % (status, _phrase(status).encode(), self._date)
        self[status] = lines
        return lines


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def head_of(first_lines: bytes, headers: Headers) -> bytes:
    """A head without the empty line at its end: more headers may follow."""
    head = b"".join([first_lines, *[b"%b: %b\r\n" % pair for pair in headers]])
    lines = len(headers) + _STATUS_AND_DATE_LINES
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        raise UnfitAnswer("a header holds a line break")
    return head


def with_length(head: bytes, status: int, body: bytes, to_head: bool) -> tuple[bytes, bytes]:
    """The head and the body of a complete answer, with the length unless there can be no body.

    The answer to HEAD is that to GET without its body, so it may have any length.
    """
    if status in _WITHOUT_BODY:
        return head, b""
    if b"%b%d\r\n" % (_LENGTH, len(body)) in head:
        return head, b"" if to_head else body
    if _LENGTH not in head:
        return b"%bcontent-length: %d\r\n" % (head, len(body)), b"" if to_head else body
    if to_head:
        return head, b""
    raise UnfitAnswer(f"the body has {len(body)} bytes, and content-length differs")


def length_in(head: bytes) -> int | None:
    """The length in a head, if it has one."""
    _, found, behind = head.partition(_LENGTH)
    return int(behind.partition(b"\r")[0]) if found else None


def has_body(status: int) -> bool:
    return status not in _WITHOUT_BODY


def refusal(first_lines: bytes, status: int, detail: str) -> bytes:
    """An answer of the server's own, in the shape that the API's errors have. The connection ends with it."""
    error = {"status": status, "title": _phrase(status), "detail": detail}
    body = json.dumps({"errors": [error]}).encode()
    retry = b"retry-after: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else b""
    return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        first_lines,
        len(body),
        retry,
        CLOSES,
        body,
    )


if TYPE_CHECKING:
    from berth.serving.connection import Connection


class Exchange:
    """Lives from the head of a request to the end of its answer, or of the connection.

    ``gone`` says that the client will not take an answer, or has got one from the connection itself;
    ``waiting`` is set while the application waits to receive something. A body that is streamed is not kept
    by the application: what it has taken is not held any more.
    """

    __slots__ = (
        "_body_bytes",
        "_body_taken",
        "_chunked",
        "_client_left",
        "_connection",
        "_counted_bytes",
        "_headers",
        "_is_old",
        "_is_streamed",
        "_left",
        "_pieces",
        "_scope",
        "_status",
        "_whole",
        "done",
        "gone",
        "keeps_alive",
        "sent",
        "task",
        "waiting",
    )

    def __init__(
        self,
        connection: "Connection",
        scope: Scope,
        keeps_alive: bool,
        is_old: bool,
        is_streamed: bool = False,
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._is_streamed = is_streamed
        self._is_old = is_old
        self._status = 0
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._whole = False
        # What has come of the body, also where the application has taken it, unless it is streamed; and what
        # of that is counted.
        self._body_bytes = 0
        self._counted_bytes = 0
        self._body_taken = False
        self._client_left = False
        self._chunked = False
        # How much of a body with a content-length is still to be sent.
        self._left: int | None = None
        self.keeps_alive = keeps_alive
        self.waiting: asyncio.Future[None] | None = None
        self.sent = False
        self.done = False
        self.gone = False
        # The event loop holds tasks weakly: this reference keeps the task alive.
        self.task: asyncio.Task[None] | None = None

    async def run(self, application: Application) -> None:
        try:
            await application(self._scope, self.receive, self.send)
        except Exception:
            _log.exception("%s %r failed", self._scope["method"], self._scope["path"])
        finally:
            self._release()
            self._connection.left(self)

    # -- what the connection reports --------------------------------------------------------------

    def add_body(self, piece: bytes, whole: bool) -> bool:
        """Take a piece of the body; False if there is no room for it beside those of other requests."""
        if piece:
            self._body_bytes += len(piece)
            if self._body_bytes > FREE_BODY_BYTES and not self._count():
                return False
            self._pieces.append(piece)
        self._whole = whole
        self._wake()
        return True

    def _count(self) -> bool:
        more = self._body_bytes - FREE_BODY_BYTES - self._counted_bytes
        shared = self._connection.shared
        if not shared.has_room_for(more):
            return False
        self._counted_bytes += more
        shared.body_bytes += more
        return True

    def _release(self) -> None:
        self._connection.shared.body_bytes -= self._counted_bytes
        self._counted_bytes = self._body_bytes = 0

    def tell_disconnect(self) -> None:
        """The client has stopped sending, and has probably gone. If not, it still gets its answer."""
        self._client_left = True
        self._wake()

    def leave(self) -> None:
        """The client cannot get anything any more."""
        self.gone = True
        self.tell_disconnect()

    @property
    def untaken_bytes(self) -> int:
        return sum(map(len, self._pieces))

    def _wake(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    # -- what the application calls -------------------------------------------------------------

    async def receive(self) -> Message:
        while True:
            if not self._body_taken and (self._pieces or self._whole):
                return self._next_of_body()
            if self._client_left or self.done:
                return {"type": _DISCONNECT}
            self.waiting = asyncio.get_running_loop().create_future()
            if not self._whole:
                self._connection.await_body()
            try:
                await self.waiting
            finally:
                self.waiting = None

    def _next_of_body(self) -> Message:
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._is_streamed:
            self._release()
        self._body_taken = self._whole
        if not self._whole:
            self._connection.take_more()
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    async def send(self, message: Message) -> None:
        if message["type"] == RESPONSE_START:
            if self._status:
                raise UnfitAnswer("a second response was started")
            self._status = message["status"]
            self._headers = message["headers"]
            return
        if not self._status or self.done:
            raise UnfitAnswer("a body was sent before its headers, or after its end")
        more = message.get("more_body", False)
        if not self.gone:
            body = message.get("body", b"")
            if not (more or self.sent):
                self._send_whole(body)
            else:
                self._send_piece(body, more)
            if self._connection.is_clogged:
                await self._connection.unclogged()
        if not more:
            self.done = True
            self._connection.answered(self)

    # -- writing --------------------------------------------------------------------------------

    def _send_whole(self, body: bytes) -> None:
        connection = self._connection
        head, body = with_length(self._head(), self._status, body, self._scope["method"] == "HEAD")
        self.sent = True
        if len(body) > JOINED_BODY_BYTES_MAX:
            connection.write_all((b"%b%b\r\n" % (head, self._persistence()), body))
        else:
            connection.write(b"%b%b\r\n%b" % (head, self._persistence(), body))

    def _send_piece(self, body: bytes, more: bool) -> None:
        """A piece of an answer whose end is not there yet."""
        text = b"" if self.sent else self._stream_head()
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise UnfitAnswer("the body is not as long as content-length")
        if self._chunked:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if not more:
                body += LAST_CHUNK
        elif self._scope["method"] == "HEAD" or not has_body(self._status):
            body = b""
        self.sent = True
        if text or body:
            self._connection.write(text + body)

    def _stream_head(self) -> bytes:
        head = self._head()
        if self._scope["method"] == "HEAD" or not has_body(self._status):
            return b"%b%b\r\n" % (head, self._persistence())
        self._left = length_in(head)
        if self._left is None:
            if self._is_old:
                self.keeps_alive = False
            else:
                self._chunked = True
                head += CHUNKED
        return b"%b%b\r\n" % (head, self._persistence())

    def _head(self) -> bytes:
        return head_of(self._connection.shared.status_lines[self._status], self._headers)

    def _persistence(self) -> bytes:
        """The header about the connection: none if it stays open, which is the default."""
        self.keeps_alive = self.keeps_alive and self._connection.can_go_on()
        if not self.keeps_alive:
            return CLOSES
        return KEEPS if self._is_old else b""
