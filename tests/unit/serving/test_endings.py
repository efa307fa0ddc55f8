"""Clients that leave, dawdle or do not listen, and a server that is told to end: nothing is left behind."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from berth.serving.asgi import Message, Receive, Scope, Send
from berth.serving.connection import Connection
from berth.serving.limits import (
    BODY_BYTES_PER_S,
    BODY_S,
    HEAD_S,
    IDLE_S,
    LINGER_S,
    UNWANTED_BODY_S,
    WRITE_S,
)
from tests.unit.serving.sockets import echo, respond, serving
from tests.waiting import until


class Slow:
    """An application that answers when it is let, and remembers what it was told."""

    def __init__(self) -> None:
        self.asked = 0
        self.finished = 0
        self.heard: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        if scope["path"] == "/listen":
            while not self.heard or self.heard[-1] != "http.disconnect":
                self.heard.append((await receive())["type"])
        else:
            await self.go_on.wait()
        await respond(send, 200, b"done")
        self.finished += 1


class EndlessStream:
    """An application that sends without end, until its client has left."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        leaving = asyncio.create_task(self._leave(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            self.sent_bytes += 10_000
            await asyncio.sleep(0)
        self.has_ended = True

    async def _leave(self, receive: Receive) -> None:
        message: Message = await receive()
        assert message["type"] == "http.disconnect"


# -- clients that leave -------------------------------------------------------------------------

PHASES = {
    "before a word": b"",
    "in a line": b"GET / HT",
    "in a header": b"GET / HTTP/1.1\r\nhost: ",
    "in a body": b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf",
    "in a chunk": b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha",
    "in a trailer": b"PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
    "before the answer": b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "with more to come": b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\nGET",
    "refused": b"G(T / HTTP/1.1\r\nhost: a\r\n\r\n",
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("abruptly", [True, False])
@pytest.mark.usefixtures("only_new_objects")
async def test_a_client_that_leaves_leaves_nothing(phase: str, abruptly: bool) -> None:
    application = Slow()

    async with serving(application) as world:
        before = connections_in_memory()
        for _ in range(5):
            client = await world.connect()
            client.send_raw(PHASES[phase])
            await asyncio.sleep(0.005)
            if abruptly:
                client.reset()
            else:
                client.writer.close()
        application.go_on.set()
        await world.until_empty()
        await until(lambda: application.finished == application.asked)
        del client
        await until(lambda: connections_in_memory() == before)


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """The garbage collector looks through what a test makes, and not each time through everything."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def connections_in_memory() -> int:
    """Of those that the test has made."""
    gc.collect()
    return sum(isinstance(thing, Connection) for thing in gc.get_objects())


async def test_a_finished_connection_is_freed_without_the_garbage_collector() -> None:
    made: list[weakref.ref[object]] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        made.append(weakref.ref(task))
        await respond(send, 200, b"")

    gc.disable()
    try:
        async with serving(application) as world:
            for _ in range(3):
                await world.ask("GET / HTTP/1.1")
            await world.until_empty()
            await asyncio.sleep(0.01)
            assert [task() for task in made] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("half", [True, False])
async def test_the_application_receives_a_disconnect_when_the_client_has_left(half: bool) -> None:
    application = Slow()

    async with serving(application) as world:
        client = await world.connect()
        client.send("PUT /listen HTTP/1.1", "content-length: 2", body=b"hi")
        await until(lambda: application.heard == ["http.request"])
        if half:
            client.writer.write_eof()
            assert (await client.answer()).body == b"done"
            assert await client.rest() == b""
        else:
            client.writer.close()
        await until(lambda: application.finished == 1)
        assert application.heard == ["http.request", "http.disconnect"]
        await world.until_empty()


async def test_half_a_body_is_not_taken_for_a_whole_one() -> None:
    application = Slow()

    async with serving(application) as world:
        client = await world.connect()
        client.send("PUT /listen HTTP/1.1", "content-length: 10", body=b"half")
        await until(lambda: application.heard == ["http.request"])
        client.writer.close()
        await until(lambda: application.finished == 1)
        assert application.heard == ["http.request", "http.disconnect"]


@pytest.mark.parametrize("abruptly", [True, False])
async def test_a_stream_ends_with_its_client(abruptly: bool) -> None:
    application = EndlessStream()

    async with serving(application) as world:
        client = await world.connect()
        client.send("GET / HTTP/1.1")
        await client.reader.readexactly(100_000)
        if abruptly:
            client.reset()
        else:
            client.writer.close()
        await until(lambda: application.has_ended)
        await world.until_empty()


# -- clients that dawdle ------------------------------------------------------------------------


@pytest.mark.parametrize("trickle", [True, False])
async def test_a_head_that_does_not_come(trickle: bool) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send_raw(b"GET / HTTP/1.1\r\nhost: a\r\n")
        for second in range(HEAD_S):
            await world.pass_seconds(1)
            if trickle:
                client.send_raw(b"a%d: b\r\n" % second)
                await asyncio.sleep(0.001)
        assert len(world.connections) == 1
        await world.pass_seconds(2)
        answer = await client.answer()
        assert answer.status == 408
        assert answer.detail


async def test_a_client_that_says_nothing() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        await until(lambda: len(world.connections) == 1)
        await world.pass_seconds(HEAD_S)
        assert len(world.connections) == 1
        await world.pass_seconds(2)
        assert await client.rest() == b""


async def test_a_connection_is_kept_for_a_while() -> None:
    async with serving(echo) as world:
        client = await world.connect()
        for _ in range(3):
            client.send("GET / HTTP/1.1")
            assert (await client.answer()).status == 200
            await world.pass_seconds(IDLE_S - 1)
            # Not the beginning of anything.
            client.send_raw(b"\r\n")
            await asyncio.sleep(0.005)
        await world.pass_seconds(3)
        assert await client.rest() == b""


@pytest.mark.parametrize("lines", [("content-length: 100",), ("transfer-encoding: chunked",)])
async def test_a_body_that_does_not_come_is_refused(lines: tuple[str, ...]) -> None:
    async with serving(echo) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", *lines, body=b"5;" if "chunked" in lines[0] else b"half")
        await asyncio.sleep(0.005)
        await world.pass_seconds(BODY_S)
        assert len(world.connections) == 1
        await world.pass_seconds(1)
        answer = await client.answer()
        assert answer.status == 408
        assert "body" in answer.detail


@pytest.mark.parametrize("lines", [("content-length: 100",), ("transfer-encoding: chunked",)])
async def test_a_body_that_trickles_is_refused(lines: tuple[str, ...]) -> None:
    """Each byte comes in time, and all of them would hold the connection for as long as the client likes."""

    async with serving(echo) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", *lines, body=b"5;" if "chunked" in lines[0] else b"half")
        for _ in range(BODY_S - 1):
            client.send_raw(b"x")
            await asyncio.sleep(0.002)
            await world.pass_seconds(1)
        assert client.reader._buffer == b""  # type: ignore[attr-defined]
        await world.pass_seconds(2)
        answer = await client.answer()
        assert answer.status == 408
        assert "too slowly" in answer.detail


async def test_a_body_earns_time_by_coming_and_no_right_to_stop() -> None:
    seconds = 3 * BODY_S

    async with serving(echo) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", f"content-length: {(seconds + 1) * BODY_BYTES_PER_S}")
        for _ in range(seconds):
            client.send_raw(b"x" * BODY_BYTES_PER_S)
            await client.writer.drain()
            await asyncio.sleep(0.005)
            await world.pass_seconds(1)
        await world.pass_seconds(BODY_S - 2)
        assert client.reader._buffer == b""  # type: ignore[attr-defined]
        await world.pass_seconds(3)
        answer = await client.answer()
        assert answer.status == 408
        assert "nothing of the body arrived" in answer.detail


@pytest.mark.parametrize("trickle", [True, False])
async def test_a_body_that_nobody_wants_is_not_awaited_for_long(trickle: bool) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 401, b"")

    async with serving(application) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", "content-length: 100", body=b"half")
        answer = await client.answer()
        assert answer.status == 401
        assert "connection" not in answer.headers
        for _ in range(UNWANTED_BODY_S):
            if trickle:
                client.send_raw(b"x")
                await asyncio.sleep(0.002)
            await world.pass_seconds(1)
        assert not client.reader.at_eof()
        await world.pass_seconds(1)
        assert await client.rest() == b"", "one request has one answer"
        await world.pass_seconds(LINGER_S + 1)
        await world.until_empty()


async def test_an_application_may_take_its_time() -> None:
    application = Slow()

    async with serving(application) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", "content-length: 3", body=b"ab")
        await until(lambda: application.asked == 1)
        await world.pass_seconds(1000)
        application.go_on.set()
        assert (await client.answer()).body == b"done"


# -- clients that do not listen -----------------------------------------------------------------


async def test_a_client_that_does_not_read_is_dropped_and_little_is_kept_for_it() -> None:
    application = EndlessStream()

    async with serving(application) as world:
        client = await world.connect(limit=1)
        client.send("GET / HTTP/1.1")
        sent_bytes = -1
        while sent_bytes != application.sent_bytes:
            sent_bytes = application.sent_bytes
            await asyncio.sleep(0.1)
        assert sent_bytes < 16 << 20, "as much as the kernel takes, and no more"
        await world.pass_seconds(WRITE_S - 1)
        assert len(world.connections) == 1
        await world.pass_seconds(3)
        await world.until_empty()
        await until(lambda: application.has_ended)


async def test_one_that_reads_slowly_is_not() -> None:
    body = b"x" * (32 << 20)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, body)

    async with serving(application) as world:
        client = await world.connect(limit=1 << 16)
        client.send("GET / HTTP/1.1")
        read = 0
        while read < len(body):
            read += len(await client.reader.read(1 << 20))
            await asyncio.sleep(0.001)
            await world.pass_seconds(1)
        assert len(world.connections) == 1


# -- a server that ends -------------------------------------------------------------------------


async def test_draining_finishes_what_is_in_work_and_closes_the_rest() -> None:
    application = Slow()

    async with serving(application) as world:
        idle, half, busy, gone = [await world.connect() for _ in range(4)]
        half.send_raw(b"GET / HT")
        busy.send("GET / HTTP/1.1")
        busy.send("GET / HTTP/1.1")
        gone.send("GET / HTTP/1.1")
        await until(lambda: application.asked == 2)
        gone.reset()
        await until(lambda: len(world.connections) == 3)
        draining = asyncio.create_task(world.connections.drain(10))
        assert await idle.rest() == b""
        assert await half.rest() == b""
        await asyncio.sleep(0.01)
        assert not draining.done()
        application.go_on.set()
        answer = await busy.answer()
        assert answer.body == b"done"
        assert answer.headers["connection"] == "close"
        assert await busy.rest() == b"", "the second one is for another server"
        busy.writer.close()
        async with asyncio.timeout(5):
            await draining
        assert application.finished == 2


async def test_draining_does_not_wait_for_a_body_that_nobody_wants() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, b"")

    async with serving(application) as world:
        client = await world.connect()
        client.send("PUT / HTTP/1.1", "content-length: 5")
        assert (await client.answer()).status == 200
        async with asyncio.timeout(LINGER_S):
            await world.connections.drain(10)


async def test_draining_has_a_deadline() -> None:
    application = Slow()

    async with serving(application) as world:
        upload, answered = await world.connect(), await world.connect()
        upload.send("PUT /listen HTTP/1.1", "content-length: 100", body=b"x")
        answered.send("GET / HTTP/1.1")
        await until(lambda: application.asked == 2)
        async with asyncio.timeout(5):
            await world.connections.drain(0.05)
        await world.until_empty()
        assert application.heard[-1] == "http.disconnect"
        application.go_on.set()


async def test_draining_does_not_wait_for_a_quiet_stream_whose_client_has_left() -> None:
    """The application has returned: nothing of it is left to wait for, or to keep."""
    has_ended = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        has_ended.set()

    async with serving(application) as world:
        client = await world.connect()
        client.send("GET / HTTP/1.1")
        await client.reader.readuntil(b"hello")
        client.writer.close()
        await has_ended.wait()
        await world.until_empty()
        async with asyncio.timeout(5):
            await world.connections.drain(10)
