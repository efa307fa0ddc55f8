"""The HTTP client against servers that answer in every way that HTTP allows, and in some that it does not."""

import asyncio
import contextlib
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from berth.cli import main
from berth.client import Client, ClientError, Unreachable
from berth.client.client import StreamedEvent

JSON = b"content-type: application/json\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that deals with each connection as the test says."""

    visits: list[asyncio.Task[object] | None] = []

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0, ssl=tls)
    try:
        async with server:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await asyncio.gather(*(visit for visit in visits if visit is not None))


def answering(*answers: bytes) -> Serve:
    """Each connection gets these answers, one for each request, and is then closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return serve


async def ask(*answers: bytes, answer_bytes_max: int = 1 << 20) -> object:
    """The body that the client reads out of a server's first answer."""
    async with serving(answering(*answers)) as url:
        client = Client(url, answer_bytes_max=answer_bytes_max)
        try:
            return (await client.ask("GET", "/", timeout_s=5)).body
        finally:
            await client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + JSON + b'content-length: 7\r\n\r\n{"a":1}',
        b"HTTP/1.0 200 OK\r\n" + JSON + b'\r\n{"a":1}',
        b"HTTP/1.1 200 OK\r\n"
        + JSON
        + b'transfer-encoding: chunked\r\n\r\n4\r\n{"a"\r\n3;x=y\r\n:1}\r\n0\r\n\r\n',
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n" + JSON + b'content-length: 7\r\n\r\n{"a":1}',
    ],
    ids=["counted", "ended by the connection", "chunked", "after early hints"],
)
async def test_a_body_is_read_however_it_ends(answer: bytes) -> None:
    assert await ask(answer) == {"a": 1}


async def test_a_body_that_is_compressed_is_read_though_nobody_has_asked_for_that() -> None:
    body = gzip.compress(b'{"a":1}')
    headers = JSON + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert await ask(b"HTTP/1.1 200 OK\r\n" + headers + body) == {"a": 1}


@pytest.mark.parametrize(
    ("method", "body", "ending"),
    [
        ("GET", None, b""),
        ("DELETE", None, b""),
        ("POST", None, b"content-length: 0\r\n"),
        ("PUT", {"a": 1}, b"content-type: application/json\r\ncontent-length: 7\r\n"),
    ],
)
async def test_what_a_server_gets(method: str, body: object, ending: bytes) -> None:
    got = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        got = await reader.readuntil(b"\r\n\r\n")
        if body is not None:
            assert await reader.readexactly(7) == b'{"a":1}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with serving(serve) as url:
        client = Client(url + "/", {"X-Own": "one"})
        client.set_header("x-own", "two")
        assert (await client.ask(method, "/a?b=c", body, timeout_s=5)).status == 200
        await client.close()
    host = url.removeprefix("http://").encode()
    assert got.startswith(b"%s /a?b=c HTTP/1.1\r\nhost: %s\r\n" % (method.encode(), host))
    own = b"accept: application/json\r\nuser-agent: berth\r\nx-own: two\r\n"
    assert got.endswith(own + ending + b"\r\n")


async def test_a_length_that_is_no_number_is_refused() -> None:
    with pytest.raises(Unreachable, match="no answer from"):
        await ask(*[b"HTTP/1.1 200 OK\r\n" + JSON + b'content-length: 0_7\r\n\r\n{"a":1}'] * 2)


async def test_a_get_is_sent_again_where_its_connection_was_closed_and_nothing_else_is() -> None:
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(good)(reader, writer)
        # The next request is read, and the connection closed without an answer.
        await reader.readuntil(b"\r\n\r\n")

    async with serving(serve) as url:
        client = Client(url)
        for _ in range(3):
            assert (await client.ask("GET", "/", timeout_s=5)).status == 200
        assert connections == 3
        with pytest.raises(Unreachable, match="POST /: no answer from"):
            await client.ask("POST", "/", {}, timeout_s=5)
        await client.close()


async def test_an_answer_has_a_largest_size() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n" + b"x" * 101
    with pytest.raises(Unreachable, match="more than 100 bytes"):
        await ask(answer, answer, answer_bytes_max=100)


async def test_an_answer_has_a_deadline() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(serve) as url:
        client = Client(url)
        with pytest.raises(Unreachable, match=r"GET /x: no answer from .* in 0.05 s"):
            await client.ask("GET", "/x", timeout_s=0.05)
        await client.close()


async def test_an_answer_that_is_not_a_regions_is_named() -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nhtml"
    async with serving(answering(page)) as url:
        client = Client(url)
        with pytest.raises(ClientError, match=r"the answer is not JSON; is .* a Berth region\?"):
            await client.fetch("GET", "/berth/v1/clusters")
        await client.close()


# -- streams ------------------------------------------------------------------------------------

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


async def follow(*answers: bytes) -> list[StreamedEvent]:
    async with serving(answering(*answers)) as url:
        client = Client(url)
        try:
            return [event async for event in client.follow("/events")]
        finally:
            await client.close()


async def test_a_stream_is_read_until_it_ends() -> None:
    sent = b': hello\n\nevent: change\ndata: {"a":\ndata: 1}\n\n'
    sent += b"event: change\r\ndata: 2\r\nid: 7\r\n\r\nid: 9\n\n"
    assert await follow(STREAM + sent + b"data: cut") == [
        StreamedEvent("change", None, {"a": 1}),
        StreamedEvent("change", "7", 2),
        StreamedEvent("message", "9", None),
    ]


async def test_a_stream_that_is_refused_or_ended_says_why() -> None:
    body = b'{"errors":[{"detail":"too many"}]}'
    head = b"HTTP/1.1 503 No\r\n" + JSON + b"content-length: %d\r\n\r\n" % len(body)
    with pytest.raises(ClientError, match=r"GET /events: http.* answered 503: too many"):
        await follow(head + body)
    with pytest.raises(ClientError, match="ended the stream: stopping"):
        await follow(STREAM + b'event: error\ndata: "stopping"\n\n')


# -- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that nobody has signed but itself, with its key in one file."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=berth -addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.crt"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


async def test_a_server_is_trusted_by_its_ca_file_and_not_without(certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    answer = b"HTTP/1.1 200 OK\r\n" + JSON + b"content-length: 2\r\n\r\n{}"
    async with serving(answering(answer), tls) as url:
        client = Client(url, ca_file=certificate)
        assert await client.fetch("GET", "/") == {}
        await client.close()
        stranger = Client(url)
        with pytest.raises(Unreachable, match="certificate verify failed: self-signed certificate"):
            await stranger.ask("GET", "/", timeout_s=5)
        await stranger.close()


def test_a_ca_file_must_have_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for file, reason in ((empty, "it has no certificate in PEM format"), (tmp_path / "none", "No such file")):
        with pytest.raises(SystemExit) as exit:
            main(["doctor", "--url", "https://127.0.0.1:1", "--ca-file", str(file)])
        assert exit.value.code == 2
        assert reason in capsys.readouterr().err


async def test_what_keeps_it_from_a_server_is_said_as_the_system_says_it() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(refuse) as url:
        client = Client(url.replace("http:", "https:"))
        with pytest.raises(Unreachable, match="it does not speak TLS"):
            await client.ask("GET", "/")
        await client.close()
    client = Client(url)
    with pytest.raises(Unreachable, match="Connection refused"):
        await client.ask("GET", "/")
    await client.close()
