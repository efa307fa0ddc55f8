"""Bodies of requests: as they come, no more than is wanted, and not at all if nobody wants them."""

import asyncio

import pytest

from berth.serving.asgi import Message, Receive, Scope, Send
from berth.serving.limits import (
    CHUNK_FRAMING_BYTES_MAX,
    UNREAD_BODY_BYTES_MAX,
    UNTAKEN_BODY_BYTES_MAX,
    Limits,
)
from berth.serving.reader import RequestReader
from tests.unit.serving.sockets import SocketClient, echo, read, respond, serving

CHUNKED = ("PUT / HTTP/1.1", "transfer-encoding: chunked")
ONE_READ_BYTES = 256 << 10


async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without having read the body."""
    await respond(send, 200, scope["path"].encode())


async def test_chunks_and_trailers_are_read() -> None:
    async with serving(echo) as world:
        body = b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nx-trailer: 1\r\n\r\n"
        seen = (await world.ask(*CHUNKED, body=body)).json
        assert seen["body"] == "hello!"
        assert "x-trailer" not in seen["headers"]


@pytest.mark.parametrize(
    "body", [b"z\r\n", b"3\nabc\r\n", b"3\r\nabcd\r\n", b"-1\r\n", b"fffffffffffffffff\r\n"]
)
async def test_malformed_chunks_are_refused(body: bytes) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send(*CHUNKED, body=body)
        answer = await client.answer()
        assert answer.status == 400
        assert "malformed" in answer.detail
        assert await client.rest() == b""


@pytest.mark.parametrize("begin", [b"1;", b"0\r\nx: ", b"0\r\n"])
async def test_there_is_an_end_to_what_is_between_chunks(begin: bytes) -> None:
    more = b"a: b\r\n" * CHUNK_FRAMING_BYTES_MAX if begin == b"0\r\n" else b"x" * 6 * CHUNK_FRAMING_BYTES_MAX

    async with serving(echo) as world:
        client = await world.connect()
        client.send(*CHUNKED, body=begin)
        client.send_raw(more)
        assert (await client.answer()).status == 431


async def test_trailers_have_no_more_room_behind_a_large_body() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        size = 4 * CHUNK_FRAMING_BYTES_MAX
        client.send(*CHUNKED, body=b"%x\r\n%b\r\n0\r\n" % (size, b"x" * size))
        client.send_raw(b"a: b\r\n" * (CHUNK_FRAMING_BYTES_MAX // 6 + 1))
        assert (await client.answer()).status == 431


@pytest.mark.parametrize("trailer_bytes", [CHUNK_FRAMING_BYTES_MAX - 4, CHUNK_FRAMING_BYTES_MAX - 3])
@pytest.mark.parametrize("step", [100, CHUNK_FRAMING_BYTES_MAX * 2])
async def test_trailers_may_be_so_long(trailer_bytes: int, step: int) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        trailer = b"a: " + b"x" * (trailer_bytes - 3 - 2) + b"\r\n"
        data = b"1\r\nx\r\n0\r\n" + trailer + b"\r\n"
        client.send(*CHUNKED)
        for at in range(0, len(data), step):
            client.send_raw(data[at : at + step])
            await asyncio.sleep(0)
        assert (await client.answer()).status == (
            200 if trailer_bytes + 4 <= CHUNK_FRAMING_BYTES_MAX else 431
        )


@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"2\r\n\r\n\r\n", b"1;" + b"e" * 50 + b"\r\nx\r\n"])
async def test_a_body_of_tiny_chunks_is_not_read_to_its_end(chunk: bytes) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        many = CHUNK_FRAMING_BYTES_MAX
        client.send(*CHUNKED, body=chunk * 1000 + b"0\r\n\r\n")
        assert (await client.answer()).status == 200
        client.send(*CHUNKED, body=chunk * many + b"0\r\n\r\n")
        answer = await client.answer()
        assert answer.status == 431
        assert "chunk" in answer.detail


@pytest.mark.parametrize("content", [b"\r\n", b"0\r\n\r\n"])
async def test_what_is_in_a_chunk_costs_nothing(content: bytes) -> None:
    """It may look like the end of a body, over and over: llhttp is not asked about it each time."""
    size = 4 << 20
    body = content * (size // len(content))
    reader = RequestReader(None)
    reader.read_head(b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    parser = reader._parser
    feeds = []

    class Counting:
        def feed_data(self, data: bytes) -> None:
            feeds.append(len(data))
            parser.feed_data(data)

    reader._parser = Counting()  # type: ignore[assignment]
    data = b"%x\r\n%b\r\n0\r\n\r\nGET" % (len(body), body)
    step = 256 << 10
    found = b"".join(reader.read_body(data[at : at + step]) for at in range(0, len(data), step))
    assert found == body
    assert reader.complete
    assert reader.rest == b"GET"
    assert len(feeds) <= len(data) // step + 2

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, b"%d" % len(await read(receive)))

    async with serving(count) as world:
        client = await world.connect()
        for _ in range(2):
            client.send(*CHUNKED, body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            assert (await client.answer()).body == b"%d" % len(body)


# -- when it is asked for -----------------------------------------------------------------------


async def test_a_client_that_waits_to_be_asked() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        for _ in range(2):
            client.send("PUT / HTTP/1.1", "expect: 100-continue", "content-length: 5")
            assert (await client.answer()).status == 100
            client.send_raw(b"hello")
            assert (await client.answer()).json["body"] == "hello"


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_one_that_does_not_wait_after_all_is_not_asked(version: str) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send(f"PUT / HTTP/{version}", "expect: 100-continue", "content-length: 5", body=b"hello")
        assert (await client.answer()).json["body"] == "hello"


async def test_one_whose_body_is_not_wanted_is_not_asked_and_cannot_go_on() -> None:
    """Nobody knows whether its body will come."""

    async with serving(deaf) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", "expect: 100-continue", "content-length: 5")
        answer = await client.answer()
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


# -- when it is not wanted ----------------------------------------------------------------------


@pytest.mark.parametrize("late", [True, False])
async def test_a_short_body_that_nobody_reads_is_dropped(late: bool) -> None:
    async with serving(deaf) as world:
        client = await world.connect()
        body = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
        for path in ("/a", "/b"):
            client.send(f"PUT {path} HTTP/1.1", f"content-length: {len(body)}", body=b"" if late else body)
            answer = await client.answer()
            assert answer.body.decode() == path
            assert "connection" not in answer.headers
            client.send_raw(body if late else b"")


@pytest.mark.parametrize("lines", [CHUNKED, ("PUT / HTTP/1.1", f"content-length: {8 << 20}")])
async def test_after_a_413_the_answer_reaches_a_client_that_still_sends(lines: tuple[str, ...]) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await respond(send, 413, b"too large")

    async with serving(application) as world:
        client = await world.connect()
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n" if lines is CHUNKED else b"x" * 0x10000
        client.send(*lines, body=piece)
        for _ in range(63):
            client.send_raw(piece)
            await client.writer.drain()
        answer = await client.answer()
        assert answer.status == 413
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_who_goes_on_sending_is_not_listened_to_for_long() -> None:
    async with serving(deaf) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", f"content-length: {UNREAD_BODY_BYTES_MAX + 1}")
        assert (await client.answer()).headers["connection"] == "close"
        assert len(world.connections) == 1
        await world.pass_seconds(5)
        await world.until_empty()


# -- no more than is wanted ---------------------------------------------------------------------


async def test_a_body_is_not_read_faster_than_it_is_taken() -> None:
    taken: list[int] = []
    go_on = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = {"more_body": True}
        await go_on.wait()
        while message["more_body"]:
            message = await receive()
            taken.append(len(message["body"]))
        await respond(send, 200, b"%d" % sum(taken))

    async with serving(application) as world:
        client = await world.connect()
        size = 32 << 20
        client.send("PUT / HTTP/1.1", f"content-length: {size}", body=b"x" * size)
        unsent_bytes = -1
        while unsent_bytes != client.writer.transport.get_write_buffer_size():
            unsent_bytes = client.writer.transport.get_write_buffer_size()
            await asyncio.sleep(0.1)
        assert unsent_bytes > 0, "all of it was read, and nobody had asked for it"
        await world.pass_seconds(100)
        go_on.set()
        assert (await client.answer()).body == b"%d" % size
        assert max(taken) <= UNTAKEN_BODY_BYTES_MAX + ONE_READ_BYTES


async def test_requests_that_come_early_wait_their_turn() -> None:
    """One is in work; of the others no more is read than fits one read."""
    running = 0
    most = 0

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        await respond(send, 200, scope["path"].encode())

    async with serving(application) as world:
        client = await world.connect()
        numbers = range(5000)
        asking = asyncio.create_task(ask_all(client, numbers))
        for number in numbers:
            assert (await client.answer()).body == b"/%d" % number
        await asking
        assert most == 1


async def ask_all(client: SocketClient, numbers: range) -> None:
    for number in numbers:
        client.send(f"GET /{number} HTTP/1.1", "x: " + "y" * 200)
        await client.writer.drain()


async def test_a_body_that_is_streamed_may_be_longer_than_all_bodies_together() -> None:
    """What was taken is not held any more, and does not count."""
    seen = 0

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal seen
        has_more = True
        while has_more:
            message = await receive()
            seen += len(message["body"])
            has_more = message["more_body"]
        await respond(send, 200, b"%d" % seen)

    limits = Limits(bodies_bytes=2 << 20, streams_body=lambda method, path: path == "/file")
    size = 8 << 20
    async with serving(count, limits) as world:
        for lines in (("PUT /file HTTP/1.1", f"content-length: {size}"), ("PUT /file HTTP/1.1", CHUNKED[1])):
            client = await world.connect()
            client.send(*lines)
            framed = lines[1] == CHUNKED[1]
            for _ in range(size >> 16):
                piece = bytes(1 << 16)
                client.send_raw(b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece)
                await client.writer.drain()
            client.send_raw(b"0\r\n\r\n" if framed else b"")
            assert (await client.answer()).status == 200
            assert world.connections.body_bytes == 0
        assert seen == 2 * size
        refused = await world.ask("PUT /other HTTP/1.1", f"content-length: {size}")
        assert refused.status == 503


async def test_a_streamed_body_waits_in_the_socket_until_it_is_taken() -> None:
    take, is_left = asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await take.wait()
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        ends.append(message["type"])
        is_left.set()

    limits = Limits(streams_body=lambda method, path: True)
    async with serving(slow, limits) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", f"content-length: {1 << 30}")
        for _ in range(64):
            client.send_raw(bytes(1 << 16))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.connections.body_bytes <= UNTAKEN_BODY_BYTES_MAX + ONE_READ_BYTES
        client.reset()
        take.set()
        await is_left.wait()
        assert ends == ["http.disconnect"]
