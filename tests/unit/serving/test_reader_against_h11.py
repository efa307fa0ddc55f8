"""Our request reader and h11 are given the same bytes, well formed and not, and must see the same requests.

Two readers that disagree on where a request ends are how requests are smuggled past a proxy. So wherever both
accept a request, they must agree on all of it, and Berth accepts nothing that h11 refuses, but for the one
thing in ``ONLY_H11_REFUSES``. Berth is stricter in places (a bare LF, a length said twice); that is safe, and
the second test shows that it is not too strict: requests without a fault are all accepted.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import h11
import pytest

from berth.serving.asgi import Scope
from berth.serving.reader import Refused, RequestReader

CASES: Final = 3000
SEEDS: Final = range(3)

ONLY_H11_REFUSES: Final = ("no request line received",)
"""Empty lines before a request: RFC 9112, 2.2 asks a server to skip them."""


class Request(NamedTuple):
    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Reading(NamedTuple):
    """The requests that were read whole, and the reason if the next one was refused. ``is_over``: the reader
    closes the connection after the last of them."""

    requests: tuple[Request, ...]
    refused: str | None = None
    is_over: bool = False


# -- the two readers ------------------------------------------------------------------------------


def read_with_berth(pieces: list[bytes]) -> Reading:
    """As a connection does: a head, its body, and on with what is left."""
    reader = RequestReader(None)
    requests: list[Request] = []
    scope: Scope | None = None
    body = b""
    try:
        for piece in pieces:
            data = piece
            while data:
                if scope is None:
                    scope, body = reader.read_head(data), b""
                    if scope is None:
                        break
                else:
                    body += reader.read_body(data)
                if reader.complete:
                    requests.append(_of_scope(scope, body))
                    scope = None
                    if not reader.keeps_alive:
                        return Reading(tuple(requests), is_over=True)
                elif body == b"" and not reader.rest:
                    break
                data, reader.rest = reader.rest, b""
    except Refused as refused:
        return Reading(tuple(requests), refused.detail)
    return Reading(tuple(requests))


def _of_scope(scope: Scope, body: bytes) -> Request:
    query: bytes = scope["query_string"]
    target = scope["path"].encode() + (b"?" + query if query else b"")
    return Request(scope["method"].encode(), target, _normalise(scope["headers"]), body)


def _normalise(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """h11 gives the one transfer coding it knows in lower case."""
    return tuple((name, value.lower() if name == b"transfer-encoding" else value) for name, value in headers)


def read_with_h11(pieces: list[bytes]) -> Reading:
    connection = h11.Connection(h11.SERVER)
    requests: list[Request] = []
    head: h11.Request | None = None
    body = b""
    try:
        for piece in pieces:
            connection.receive_data(piece)
            for event in _events(connection):
                if isinstance(event, h11.Request):
                    head, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    requests.append(Request(head.method, head.target, _normalise(head.headers), body))
                    if not _answer(connection):
                        return Reading(tuple(requests), is_over=True)
    except h11.RemoteProtocolError as error:
        return Reading(tuple(requests), str(error))
    return Reading(tuple(requests))


def _events(connection: h11.Connection) -> Iterator[object]:
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        yield event


def _answer(connection: h11.Connection) -> bool:
    """Answer, so that the next request may be read; False if the connection ends here."""
    connection.send(h11.Response(status_code=204, headers=[]))
    connection.send(h11.EndOfMessage())
    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
        return False
    connection.start_next_cycle()
    return True


# -- requests, well formed and not ----------------------------------------------------------------

_METHODS: Final = (b"GET", b"PUT", b"POST", b"DELETE", b"OPTIONS", b"MOVE", b"G(T", b"", b"get")
_TARGETS: Final = (b"/", b"/a/b", b"/a?b=c&d", b"/a b", b"", b"/\x01", b"/\xff")
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 ", b"")
_HEADERS: Final = (
    b"X-One: 1",
    b"X-Two:two",
    b"X-Three:  three  ",
    b"X-Empty:",
    b"X Space: 1",
    b"X-Before : 1",
    b": nameless",
    b"no colon",
    b" folded",
    b"X-Null: a\x00b",
    b"X-Return: a\rb",
    b"X-High: \xe4",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Host: other",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
)
_FRAMES: Final = (
    b"Content-Length: %d",
    b"content-length:%d",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding:CHUNKED",
    b"Content-Length: +%d",
    b"Content-Length: %d, %d",
    b"Content-Length: 0x%d",
    b"Content-Length: %d_0",
    b"Content-Length: -%d",
    b"Content-Length: ",
    b"Content-Length : %d",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding : chunked",
)
_BODIES: Final = (b"", b"abc", b"\r\n\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
_SIZES: Final = (
    b"%x",
    b"%X;a=b",
    b"0%x",
    b"%x ",
    b" %x",
    b"0x%x",
    b"+%x",
    b"%x\n",
    b"%x;a=\x00",
    b"-%x",
    b"",
)
_LAST: Final = (
    b"0\r\n\r\n",
    b"0\r\nT: x\r\n\r\n",
    b"00\r\n\r\n",
    b"0\r\nbad\r\n\r\n",
    b"0\n\n",
    b"0\r\n",
    b"",
)


FAULTS: Final = 0.07
NO_FAULTS: Final = 0.0


def make_request(rng: random.Random, faults: float) -> bytes:
    """Mostly right, with a fault here and there: what is all wrong is refused before it is interesting."""

    def pick(values: tuple[bytes, ...], right: int) -> bytes:
        """One of the first ``right`` values, which are faultless, or now and then any."""
        return rng.choice(values) if rng.random() < faults else rng.choice(values[:right])

    line = b" ".join((pick(_METHODS, 6), pick(_TARGETS, 3), pick(_VERSIONS, 1)))
    headers = [b"Host: a"] if rng.random() >= faults else []
    headers += [pick(_HEADERS, 4) for _ in range(rng.randrange(3))]
    body = rng.choice(_BODIES)
    frames = [pick(_FRAMES, 4) for _ in range(2 if rng.random() < faults else 1)]
    if rng.random() < 0.2:
        frames, body = [], b""
    headers += [frame % ((len(body),) * frame.count(b"%d")) if b"%d" in frame else frame for frame in frames]
    if any(b"chunked" in frame.lower() for frame in frames) and rng.random() >= faults:
        body = _chunk(rng, body, pick)
    rng.shuffle(headers)
    text = b"\r\n".join((line, *headers, b"", b"")) + body
    if rng.random() < faults:
        at = rng.randrange(1, len(text))
        text = text[:at] + rng.choice((b"\n", b"\r", b" ", b"\x00", b":", b"")) + text[at + 1 :]
    return text


def _chunk(rng: random.Random, body: bytes, pick: Callable[[tuple[bytes, ...], int], bytes]) -> bytes:
    pieces = []
    while body:
        size = rng.randint(1, len(body))
        line = pick(_SIZES, 3)
        pieces.append((line % size if b"%" in line else line) + b"\r\n" + body[:size] + b"\r\n")
        body = body[size:]
    return b"".join(pieces) + pick(_LAST, 3)


def cut(rng: random.Random, stream: bytes) -> list[bytes]:
    at = sorted(rng.sample(range(1, len(stream)), min(rng.randrange(4), len(stream) - 1)))
    return [stream[begin:end] for begin, end in zip([0, *at], [*at, len(stream)], strict=True)]


# -- the comparison -------------------------------------------------------------------------------


def find_difference(ours: Reading, theirs: Reading) -> str | None:
    both = min(len(ours.requests), len(theirs.requests))
    if ours.requests[:both] != theirs.requests[:both]:
        return f"read differently: {ours.requests[:both]} and {theirs.requests[:both]}"
    if theirs.is_over:
        # h11 closes where Berth may go on: after a request of HTTP/1.0 that asks to be kept alive.
        return None
    if len(ours.requests) > both and theirs.refused not in ONLY_H11_REFUSES:
        return f"only h11 refuses: {theirs.refused}"
    return None


def make_stream(rng: random.Random, faults: float) -> list[bytes]:
    return [make_request(rng, faults) for _ in range(rng.randint(1, 3))]


@pytest.mark.parametrize("seed", SEEDS)
def test_both_readers_see_the_same_requests(seed: int) -> None:
    rng = random.Random(seed)
    whole = refused = 0
    for case in range(CASES):
        stream = b"".join(make_stream(rng, FAULTS))
        pieces = cut(rng, stream)
        ours, theirs = read_with_berth(pieces), read_with_h11(pieces)
        difference = find_difference(ours, theirs)
        assert difference is None, f"seed {seed}, case {case}: {difference}\n{stream!r}"
        whole += len(ours.requests)
        refused += ours.refused is not None
    assert min(whole, refused) > CASES // 4, "both requests and faults must be common, or nothing is compared"


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_without_a_fault_are_accepted(seed: int) -> None:
    rng = random.Random(seed)
    for case in range(CASES // 4):
        requests = make_stream(rng, NO_FAULTS)
        reading = read_with_berth(cut(rng, b"".join(requests)))
        assert len(reading.requests) == len(requests), f"seed {seed}, case {case}: {reading}\n{requests}"
