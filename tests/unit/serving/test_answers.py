"""How answers are written: their framing, what HEAD and 204 leave out, and what a failure becomes."""

import asyncio
import logging
from email.utils import parsedate_to_datetime

import pytest

from berth.serving.asgi import Message, Receive, Scope, Send
from tests.unit.serving.sockets import echo, respond, serving


def pieces(*bodies: bytes, headers: tuple[tuple[bytes, bytes], ...] = (), status: int = 200) -> list[Message]:
    """The messages of an answer in pieces; the last one ends it."""
    start: Message = {"type": "http.response.start", "status": status, "headers": list(headers)}
    return [
        start,
        *({"type": "http.response.body", "body": body, "more_body": True} for body in bodies[:-1]),
        {"type": "http.response.body", "body": bodies[-1]},
    ]


async def test_a_date_and_a_length() -> None:
    async with serving(echo) as world:
        answer = await world.ask("GET / HTTP/1.1")
        assert set(answer.headers) == {"date", "content-length"}
        assert parsedate_to_datetime(answer.headers["date"]).year > 2000


@pytest.mark.parametrize("has_length", [True, False])
async def test_head_is_get_without_its_body(has_length: bool) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, b"hello", *([(b"content-length", b"5")] if has_length else []))

    async with serving(application) as world:
        client = await world.connect()
        client.send("HEAD / HTTP/1.1")
        assert (await client.answer(to_head=True)).headers["content-length"] == "5"
        client.send("GET / HTTP/1.1")
        assert (await client.answer()).body == b"hello"


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("body", [b"", b"not sent"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_statuses_without_a_body_have_none(status: int, body: bytes, streamed: bool) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if streamed:
            for message in pieces(body, b"", status=status):
                await send(message)
        else:
            await respond(send, status, body)

    async with serving(application) as world:
        client = await world.connect()
        for _ in range(2):
            client.send("GET / HTTP/1.1")
            answer = await client.answer()
            assert answer.status == status
            assert not answer.headers.keys() & {"content-length", "transfer-encoding"}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("headers", [(), ((b"content-length", b"10"),)])
async def test_an_answer_is_sent_in_pieces(
    method: str, version: str, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        for message in pieces(b"one", b"", b"two", b"last", headers=headers):
            await send(message)
            await asyncio.sleep(0)

    async with serving(application) as world:
        client = await world.connect()
        client.send(f"{method} / HTTP/{version}", "connection: keep-alive")
        answer = await client.answer(to_head=method == "HEAD")
        assert answer.body == (b"onetwolast" if method == "GET" else b"")
        endless = version == "1.0" and not headers and method == "GET"
        expected = "close" if endless else "keep-alive" if version == "1.0" else None
        assert answer.headers.get("connection") == expected
        if not endless:
            client.send("GET / HTTP/1.1")
            assert (await client.answer()).body == b"onetwolast"


async def test_a_large_answer_arrives_whole() -> None:
    body = bytes(range(256)) * (1 << 14)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, body)

    async with serving(application) as world:
        client = await world.connect()
        for _ in range(3):
            client.send("GET / HTTP/1.1")
            assert (await client.answer()).body == body


async def test_a_status_without_a_name() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 499, b"")

    async with serving(application) as world:
        assert (await world.ask("GET / HTTP/1.1")).status == 499


# -- failures -----------------------------------------------------------------------------------

UNFIT = {
    "nothing": [],
    "no body": pieces(b"")[:1],
    "a line break": pieces(b"", headers=((b"x", b"a\r\nset-cookie: b"),)),
    "half a line break": pieces(b"", headers=((b"x", b"a\nb"),)),
    "two heads": [*pieces(b"")[:1], *pieces(b"")],
    "a body without a head": pieces(b"")[1:],
    "a length that is not its": pieces(b"abc", headers=((b"content-length", b"4"),)),
}


@pytest.mark.parametrize("name", UNFIT)
async def test_an_unfit_answer_is_a_500(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        for message in UNFIT[name]:
            await send(message)

    async with serving(application) as world:
        client = await world.connect()
        client.send("GET / HTTP/1.1")
        answer = await client.answer()
        assert answer.status == 500
        assert "Internal error" in answer.detail
        assert "set-cookie" not in answer.headers
        assert await client.rest() == b""


async def test_an_exception_is_logged_and_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret")

    with caplog.at_level(logging.ERROR):
        async with serving(application) as world:
            answer = await world.ask("GET /path HTTP/1.1")
    assert answer.status == 500
    assert b"secret" not in answer.body
    [record] = caplog.records
    assert record.getMessage() == "GET '/path' failed"
    assert "secret" in (record.exc_text or "")


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("headers", [(), ((b"content-length", b"10"),)])
async def test_an_answer_that_breaks_off_does_not_look_whole(
    fails: bool, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        for message in pieces(b"half", b"", headers=headers)[:2]:
            await send(message)
        if fails:
            raise RuntimeError

    async with serving(application) as world:
        client = await world.connect()
        client.send("GET / HTTP/1.1")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await client.answer()
