"""How an answer is written: its head, whether and how its body follows, and the server's own refusals.

What always holds: a head is well formed (a header that would smuggle in another line is refused), and the
client can tell where the body ends: by its length, by chunks, or, for HTTP/1.0, by the end of the connection.
"""

import json
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from berth.serving.asgi import Headers

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"

CLOSES: Final = b"connection: close\r\n"
KEEPS: Final = b"connection: keep-alive\r\n"
"""For HTTP/1.0, where closing is what is not said."""

CHUNKED: Final = b"transfer-encoding: chunked\r\n"

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
    """A head but for the empty line at its end: there may be more to say."""
    head = b"".join([first_lines, *[b"%b: %b\r\n" % pair for pair in headers]])
    lines = len(headers) + _STATUS_AND_DATE_LINES
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        raise UnfitAnswer("a header holds a line break")
    return head


def with_length(head: bytes, status: int, body: bytes, to_head: bool) -> tuple[bytes, bytes]:
    """The head and the body of an answer that is there whole, the length told unless there can be no body.

    The answer to HEAD is that to GET without its body, so it may tell any length.
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


def told_length(head: bytes) -> int | None:
    """The length that a head tells, if it tells one."""
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
