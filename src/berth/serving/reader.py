"""Where a request begins and ends in a stream of bytes, and which requests are refused unread.

llhttp judges what is well formed, strictly. It would also go on from one request into the next, as far as the
bytes reach, and cannot be told to stop; so it is given one request at a time. That is easy to do: a head ends
with an empty line, a chunked body with the first one behind its last chunk; everything else has a length.
Where chunks are is found here, and must be where llhttp finds them.

    no head yet --(the empty line)--> body, or complete --(its end)--> complete --(next head)--> ...

The same bytes give the same requests and refusals, however they are cut into pieces. Nothing here waits for
anything or writes anywhere; a reader that has refused is not to be used again.
"""

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from berth.serving.asgi import Headers, Scope
from berth.serving.limits import (
    CHUNK_FRAMING_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    METHOD_BYTES_MAX,
    REQUEST_LINE_BYTES_MAX,
)

_EMPTY_LINE: Final = b"\r\n\r\n"
_BREAKS: Final = b"\r\n"

_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
"""llhttp knows more methods and treats some of them specially; here those are names like any other."""

_STAND_IN: Final = b"PUT"
"""What llhttp is given instead of a method that is not among these: it refuses methods that it does not know,
and which methods there are is for the application to decide."""

_TOKEN: Final = re.compile(rb"[!#$%%&'*+\-.^_`|~0-9A-Za-z]{1,%d}" % METHOD_BYTES_MAX)
_UPGRADE: Final = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]+)[^\r\n]*\r\n")
_HOST: Final = re.compile(rb"[A-Za-z0-9.\-_~!$&'()*+,;=%:\[\]]*")
_VERSION: Final = re.compile(rb" HTTP/[0-9]\.[0-9]")

_NO_METHOD: Final = "The request is malformed: it does not begin with a method."
_UNCLEAR_CHUNKS: Final = "The request is malformed: the end of its chunks is ambiguous."
_LENGTH_UNCLEAR: Final = frozenset(("Invalid character in Content-Length", "Empty Content-Length"))


class Refused(Exception):
    """The request cannot be taken, and what follows it in the stream cannot be understood."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class RequestReader:
    """Reads the requests of one connection, one after the other.

    After a head, and until the next one: ``keeps_alive`` and ``is_old`` (HTTP/1.0) tell how to answer,
    ``complete`` whether the request has come whole, ``rest`` what came behind it. ``body_left`` is how much
    of the body is to come, None if only its end will tell.
    """

    __slots__ = (
        "_chunk_left",
        "_client",
        "_framing_bytes",
        "_has_last_chunk",
        "_headers",
        "_parser",
        "_partial",
        "_pieces",
        "_tail",
        "_url",
        "body_left",
        "complete",
        "expects_continue",
        "is_old",
        "keeps_alive",
        "rest",
    )

    def __init__(self, client: tuple[str, int] | None) -> None:
        self._client = client
        self._parser = HttpRequestParser(self)
        self._partial: bytearray | None = None
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._url = b""
        # Of a chunked body: what llhttp has seen, but not whole, and how much is to come of a chunk.
        self._tail = b""
        self._chunk_left = 0
        self._has_last_chunk = False
        self._framing_bytes = 0
        self.body_left: int | None = 0
        self.complete = False
        self.expects_continue = False
        self.is_old = False
        self.keeps_alive = True
        self.rest = b""

    @property
    def has_begun(self) -> bool:
        """Whether there is a part of a head, and the rest of it has not come yet."""
        return self._partial is not None

    # -- a head ---------------------------------------------------------------------------------

    def read_head(self, data: bytes) -> Scope | None:
        """The scope of a request whose head is complete with these bytes; None if there is more to come."""
        partial = self._partial
        if partial is None:
            if data[0] in _BREAKS:
                # Some clients send an extra line break after a body. It is not part of a request.
                data = data.lstrip(_BREAKS)
                if not data:
                    return None
            end = data.find(_EMPTY_LINE)
            if end < 0:
                self._partial = bytearray(data)
                _refuse_early(data, 0)
                return None
        else:
            seen = max(len(partial) - 3, 0)
            partial += data
            end = partial.find(_EMPTY_LINE, seen)
            if end < 0:
                _refuse_early(partial, seen)
                return None
            data = bytes(partial)
            self._partial = None
        end += 4
        if end == len(data):
            self.rest = b""
            return self._scope(data)
        self.rest = data[end:]
        return self._scope(data[:end])

    def _scope(self, head: bytes) -> Scope:
        if len(head) > REQUEST_LINE_BYTES_MAX:
            _refuse_long(head)
        line_end = head.find(b"\r\n")
        version = head[line_end - 9 : line_end]
        if version != b" HTTP/1.1":
            _refuse_version(version)
        if head.count(b" ", 0, line_end) != 2:
            raise Refused(400, "The request is malformed: its first line is not METHOD TARGET VERSION.")
        self.is_old = version == b" HTTP/1.0"
        token = head[: head.find(b" ")]
        method = _METHODS.get(token)
        if method is None:
            method, head = _unusual(token, head)
        headers: Headers = []
        self._headers = headers
        self.complete = False
        self._parse_head(head)
        if len(headers) > HEADERS_MAX:
            raise Refused(431, f"The request has more than {HEADERS_MAX} headers.")
        _refuse_hosts([value for name, value in headers if name == b"host"], self.is_old)
        if not self.complete:
            self._expect_body(headers)
        if b" \r\n" in head or b"\t\r\n" in head:
            headers[:] = [(name, value.rstrip(b" \t")) for name, value in headers]
        path, query_string = _split(self._url)
        return {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query_string,
            "headers": headers,
            "client": self._client,
        }

    def _parse_head(self, head: bytes) -> None:
        try:
            self._parser.feed_data(head)
        except HttpParserUpgrade:
            # An upgrade may be ignored, and we support none. But llhttp took what follows, a body included,
            # for the other protocol; without the header it reads the request as what it is.
            self._headers.clear()
            self.complete = False
            self._parser = HttpRequestParser(self)
            self._parse_head(_UPGRADE.sub(b"", head))
        except HttpParserError as error:
            raise _malformed(error) from error

    def _expect_body(self, all_headers: Headers) -> None:
        """Find out how the body ends. llhttp has made sure that there is either one length, or chunks."""
        headers = dict(all_headers)
        self.expects_continue = headers.get(b"expect", b"").lower() == b"100-continue" and not self.is_old
        length = headers.get(b"content-length")
        if length is not None:
            self.body_left = int(length)
            return
        coding = headers.get(b"transfer-encoding")
        if coding is None or self.is_old:
            raise Refused(400, "The request does not give the length of its body.")
        if sum(name == b"transfer-encoding" for name, _ in all_headers) > 1:
            raise Refused(400, "The request has more than one Transfer-Encoding header.")
        if coding.strip().lower() != b"chunked":
            raise Refused(501, "The only supported transfer coding is chunked.")
        self.body_left = None
        self._tail = b""
        self._chunk_left = 0
        self._has_last_chunk = False
        self._framing_bytes = 0
        # llhttp reports trailers as headers. They go into a list that is not read.
        self._headers = []

    # -- a body ---------------------------------------------------------------------------------

    def read_body(self, data: bytes) -> bytes:
        """What these bytes hold of the body."""
        try:
            if self.body_left is None:
                self._feed_chunks(data)
            else:
                self._feed_counted(data, self.body_left)
        except HttpParserError as error:
            raise _malformed(error) from error
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def _feed_counted(self, data: bytes, left: int) -> None:
        self.rest = data[left:]
        self.body_left = max(left - len(data), 0)
        self._parser.feed_data(data[:left] if self.rest else data)

    def _feed_chunks(self, data: bytes) -> None:
        seen = len(self._tail)
        try:
            end = self._end_of_chunks(self._tail + data)
        except Refused:
            # llhttp's error comes first: it may have found it in fewer bytes.
            self._parser.feed_data(data)
            raise
        if end is None:
            self._parser.feed_data(data)
            is_understood = not self.complete
        else:
            # The last byte on its own: if llhttp sees another end than we do, it shows.
            end -= seen
            self.rest = data[end:]
            self._parser.feed_data(data[: end - 1])
            is_understood = not self.complete
            self._parser.feed_data(data[end - 1 : end])
            is_understood = is_understood and self.complete
        if not is_understood:
            raise Refused(400, _UNCLEAR_CHUNKS)

    def _end_of_chunks(self, text: bytes) -> int | None:
        """Where the body ends, if it does: from chunk to chunk, without reading their content."""
        at = 0
        size = len(text)
        framing_bytes = self._framing_bytes
        counted_bytes = len(self._tail) if self._has_last_chunk else 0
        while not self._has_last_chunk:
            at += self._chunk_left
            if at >= size:
                self._chunk_left = at - size
                self._framing_bytes = framing_bytes
                self._tail = b""
                return None
            self._chunk_left = 0
            line = _CHUNK.match(text, at)
            if line is None:
                if text.find(b"\r\n", at) >= 0:
                    raise Refused(400, _UNCLEAR_CHUNKS)
                _refuse_framing(framing_bytes + size - at)
                self._framing_bytes = framing_bytes
                self._tail = text[at:]
                return None
            line_end = line.end()
            framing_bytes += line_end - at + 2
            if framing_bytes > CHUNK_FRAMING_BYTES_MAX:
                _refuse_framing(framing_bytes)
            at = line_end
            chunk_bytes = int(line[1], 16)
            if chunk_bytes:
                self._chunk_left = chunk_bytes + 2
                framing_bytes = framing_bytes - chunk_bytes if framing_bytes > chunk_bytes else 0
            else:
                self._has_last_chunk = True
                framing_bytes = 0
                # The empty line that ends the body may follow at once.
                at -= 2
        found = text.find(_EMPTY_LINE, at)
        end = found + len(_EMPTY_LINE) if found >= 0 else size
        self._framing_bytes = framing_bytes + end - at - counted_bytes
        _refuse_framing(self._framing_bytes)
        # An empty line may have been cut in two.
        self._tail = text[max(size - 3, at) :]
        return end if found >= 0 else None

    # -- what llhttp calls ----------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        # llhttp does not know it any more when the message is complete.
        self.keeps_alive = self._parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = True

    def forget(self) -> None:
        """Drop the parser, which refers to this reader: in a cycle neither would be freed at once."""
        del self._parser


def _refuse_framing(framing_bytes: int) -> None:
    if framing_bytes > CHUNK_FRAMING_BYTES_MAX:
        raise Refused(
            431,
            f"The chunk lines and trailers exceed the body by more than {CHUNK_FRAMING_BYTES_MAX} bytes.",
        )


def _refuse_early(partial: bytes | bytearray, seen: int) -> None:
    """Refuse what cannot become a request: its sender may wait for an answer, and send no empty line."""
    _refuse_long(partial)
    if not _TOKEN.match(partial):
        raise Refused(400, _NO_METHOD)
    if partial.find(b"\n\n", seen) >= 0:
        raise Refused(400, "The request is malformed: lines must end with CR and LF.")


def _refuse_long(head: bytes | bytearray) -> None:
    line_end = head.find(b"\r\n", 0, REQUEST_LINE_BYTES_MAX + 2)
    if line_end < 0:
        if len(head) > REQUEST_LINE_BYTES_MAX + 1:
            raise Refused(414, f"The request line has more than {REQUEST_LINE_BYTES_MAX} bytes.")
    elif len(head) - line_end > HEADER_BYTES_MAX + len(_EMPTY_LINE):
        raise Refused(431, f"The headers have more than {HEADER_BYTES_MAX} bytes.")


def _refuse_version(version: bytes) -> None:
    if version == b" HTTP/1.0":
        return
    if _VERSION.fullmatch(version):
        raise Refused(505, "The server supports HTTP/1.1 and HTTP/1.0.")
    raise Refused(400, "The request is malformed: its first line does not end with an HTTP version.")


def _refuse_hosts(hosts: list[bytes], is_old: bool) -> None:
    """RFC 9112, 3.2: HTTP/1.1 has one Host, HTTP/1.0 one at most. It goes into links, so it must be one."""
    if len(hosts) == 1:
        if _HOST.fullmatch(hosts[0].rstrip(b" \t")) is None:
            raise Refused(400, "The request is malformed: its Host header is not a host.")
    elif hosts:
        raise Refused(400, "The request is malformed: it has more than one Host header.")
    elif not is_old:
        raise Refused(400, "The request is malformed: it has no Host header.")


def _unusual(token: bytes, head: bytes) -> tuple[str, bytes]:
    """The name of a method that is not HTTP's own, and a head that llhttp takes."""
    if not _TOKEN.fullmatch(token):
        raise Refused(400, _NO_METHOD)
    if token == b"CONNECT":
        raise Refused(501, "The server is not a proxy.")
    return token.decode("ascii"), _STAND_IN + head[len(token) :]


def _malformed(error: HttpParserError) -> Refused:
    reason = str(error)
    if reason in _LENGTH_UNCLEAR:
        # Placement's own words, which its clients know.
        return Refused(HTTPStatus.BAD_REQUEST, "content-length header must be an integer")
    return Refused(HTTPStatus.BAD_REQUEST, f"The request is malformed: {reason}.")


def _split(url: bytes) -> tuple[str, bytes]:
    """The path, decoded, and the query as it is."""
    if url[:1] != b"/" and url != b"*":
        # The form that is sent to proxies: http://host/path.
        try:
            parsed = parse_url(url)
        except HttpParserError as error:
            raise _malformed(error) from error
        path, query = parsed.path or b"/", parsed.query or b""
    else:
        path, _, query = url.partition(b"#")[0].partition(b"?")
    if b"%" in path:
        path = unquote_to_bytes(path)
    return path.decode("utf-8", "replace"), query
