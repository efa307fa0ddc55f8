"""Which requests are taken, how they reach the application, and which are refused without it."""

import asyncio

import pytest

from berth.serving.limits import HEADER_BYTES_MAX, HEADERS_MAX, REQUEST_LINE_BYTES_MAX
from tests.unit.serving.sockets import echo, serving

# -- taken --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/a%20b%2Fc%C3%A9?x=%20&y", "/a b/cé", "x=%20&y"),
        ("/%ff", "/�", ""),
        ("/a/../b;c", "/a/../b;c", ""),
        ("/a?b?c#d", "/a", "b?c"),
        ("//double", "//double", ""),
        ("http://host:80/x%41?y", "/xA", "y"),
        ("http://host", "/", ""),
        ("*", "*", ""),
    ],
)
async def test_a_target_is_taken_apart(target: str, path: str, query: str) -> None:
    async with serving(echo) as world:
        seen = (await world.ask(f"GET {target} HTTP/1.1", "host: a")).json
        assert (seen["path"], seen["query"]) == (path, query)


@pytest.mark.parametrize(
    "method", ["GET", "OPTIONS", "FOO", "get", "PROPFIND", "DESCRIBE", "M-SEARCH", "QUERY"]
)
async def test_any_method_reaches_the_application(method: str) -> None:
    async with serving(echo) as world:
        answer = await world.ask(f"{method} / HTTP/1.1", "content-length: 3", body=b"abc")
        assert answer.json["method"] == method
        assert answer.json["body"] == "abc"


async def test_headers_are_lower_case_and_trimmed() -> None:
    async with serving(echo) as world:
        answer = await world.ask("GET / HTTP/1.1", "X-One:  a b \t ", "X-TWO:", "x-three: \xe9")
        assert answer.json["headers"] == {"x-one": "a b", "x-two": "", "x-three": "\xe9", "host": "a"}


async def test_lines_before_a_request_are_nothing() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        for _ in range(2):
            client.send_raw(b"\r\n\r\n\r\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await client.answer()).json["path"] == "/a"


async def test_http_1_0_closes_unless_asked_to_keep_alive() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send("GET / HTTP/1.0", "connection: keep-alive")
        assert (await client.answer()).headers["connection"] == "keep-alive"
        client.send("GET / HTTP/1.0")
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.rest() == b""


@pytest.mark.parametrize("length", [0, 3])
async def test_the_client_may_close(length: int) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", f"content-length: {length}", body=b"x" * length)
        assert "connection" not in (await client.answer()).headers
        client.send("PUT / HTTP/1.1", "Connection: Close", f"content-length: {length}", body=b"x" * length)
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.rest() == b""


@pytest.mark.parametrize("connection", ["upgrade, HTTP2-Settings", "Upgrade", "keep-alive"])
async def test_an_upgrade_is_not_taken_and_its_body_is_no_request(connection: str) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        smuggled = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
        lines = (f"connection: {connection}", "UPGRADE: h2c", f"content-length: {len(smuggled)}")
        for _ in range(2):
            client.send("POST /a HTTP/1.1", *lines, body=smuggled)
            answer = await client.answer()
            assert answer.status == 200
            assert answer.json["path"] == "/a"
            assert answer.json["body"] == smuggled.decode()


async def test_as_many_and_as_long_headers_as_may_be() -> None:
    async with serving(echo) as world:
        target = "/" + "x" * (REQUEST_LINE_BYTES_MAX - len("GET / HTTP/1.1"))
        headers = ["host: a", *(f"h{number}: 1" for number in range(HEADERS_MAX - 2))]
        left = HEADER_BYTES_MAX - sum(len(line) + 2 for line in headers)
        headers.append("x: " + "y" * (left - 5))
        answer = await world.ask(f"GET {target} HTTP/1.1", *headers)
        assert answer.status == 200
        assert len(answer.json["headers"]) == HEADERS_MAX


# -- refused ------------------------------------------------------------------------------------

LONG = "x" * REQUEST_LINE_BYTES_MAX

REFUSED = {
    "no Host": (400, b"GET / HTTP/1.1\r\naccept: a\r\n\r\n"),
    "two Hosts": (400, b"GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n"),
    "a Host that is none": (400, b'GET / HTTP/1.1\r\nhost: a/"><script>\r\n\r\n'),
    "two Hosts in HTTP/1.0": (400, b"GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n"),
    "two spaces before the target": (400, b"GET  / HTTP/1.1\r\nhost: a\r\n\r\n"),
    "two spaces before the version": (400, b"GET /  HTTP/1.1\r\nhost: a\r\n\r\n"),
    "no method": (400, b"/ HTTP/1.1\r\nhost: a\r\n\r\n"),
    "no token": (400, b"G(T / HTTP/1.1\r\nhost: a\r\n\r\n"),
    "a long method": (400, b"G" * 100 + b" / HTTP/1.1\r\nhost: a\r\n\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "HTTP/0.9": (400, b"GET /\r\n\r\n"),
    "no version": (400, b"GET / HTTP/x.1\r\n\r\n"),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/1.2": (505, b"GET / HTTP/1.2\r\n\r\n"),
    "bare LF": (400, b"GET / HTTP/1.1\nhost: a\n\n"),
    "not a path": (400, b"GET foo HTTP/1.1\r\nhost: a\r\n\r\n"),
    "space in the path": (400, b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n"),
    "raw bytes in the path": (400, b"GET /\xc3\xa9 HTTP/1.1\r\nhost: a\r\n\r\n"),
    "CONNECT": (501, b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n"),
    "folded header": (400, b"GET / HTTP/1.1\r\nhost: a\r\na: b\r\n c\r\n\r\n"),
    "space before the colon": (400, b"GET / HTTP/1.1\r\nhost: a\r\na : b\r\n\r\n"),
    "no colon": (400, b"GET / HTTP/1.1\r\nhost: a\r\na\r\n\r\n"),
    "NUL": (400, b"GET / HTTP/1.1\r\nhost: a\r\na: b\0c\r\n\r\n"),
    "CR in a header": (400, b"GET / HTTP/1.1\r\nhost: a\r\na: b\rc\r\n\r\n"),
    "length and chunks": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "chunks and length": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    ),
    "two lengths": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
    ),
    "a list of lengths": (400, b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\nabcde"),
    "no length": (400, b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: hi mom\r\n\r\n"),
    "a negative length": (400, b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n"),
    "an endless length": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    ),
    "chunks in HTTP/1.0": (400, b"PUT / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a coding that does not end": (400, b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n"),
    "a coding we do not know": (
        501,
        b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
    ),
    "two codings": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\n"
        b"transfer-encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "chunked twice": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\n"
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "a coding behind chunked": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\n"
        b"transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n\r\n0\r\n\r\n",
    ),
    "a coding that is empty": (
        400,
        b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "a long line": (414, f"GET /{LONG} HTTP/1.1\r\nhost: a\r\n\r\n".encode()),
    "a line without end": (414, f"GET /{LONG}".encode()),
    "long headers": (431, f"GET / HTTP/1.1\r\nhost: a\r\na: {LONG}\r\n\r\n".encode()),
    "headers without end": (431, f"GET / HTTP/1.1\r\nhost: a\r\na: {LONG}xxxxxxxx".encode()),
    "many headers": (431, b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a: b\r\n" * (HEADERS_MAX + 1) + b"\r\n"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("cut", [0, 1, 20])
async def test_malformed_requests_are_refused(name: str, cut: int) -> None:
    status, data = REFUSED[name]
    asked = []

    async def application(*exchange: object) -> None:
        asked.append(exchange)

    async with serving(application) as world:
        client = await world.connect()
        client.send_raw(data[:cut])
        await asyncio.sleep(0.002)
        client.send_raw(data[cut:])
        answer = await client.answer()
        assert answer.status == status
        assert answer.detail
        assert len(answer.body) < 300
        assert await client.rest() == b""
        client.writer.close()
        await world.until_empty()
        assert not asked


async def test_a_length_that_is_no_number_is_refused_in_the_words_of_placement() -> None:
    async with serving(echo) as world:
        answer = await world.ask("POST / HTTP/1.1", "content-length: hi mom", body=b"{}")
        assert answer.status == 400
        assert answer.detail == "content-length header must be an integer"


async def test_what_follows_a_refused_request_is_not_read() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send_raw(
            b"GET /a HTTP/1.1\r\nhost: a\r\n"
            b"\r\nG(T / HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n"
        )
        assert [answer.status for answer in await client.answers()] == [200, 400]
