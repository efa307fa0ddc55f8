"""However a stream of requests is cut into pieces, the answers are the same."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.serving.sockets import ServingWorld, SocketAnswer, echo, serving

REQUESTS = (
    b"GET /plain?q=1 HTTP/1.1\r\nhost: a\r\n\r\n",
    b"\r\nGET /after-a-line HTTP/1.1\r\nhost: a\r\n\r\n",
    b"PUT /counted HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n\r\n\r\nab\r\n\r",
    b"PUT /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    b"POST /chunked HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\n\r\n\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: x\r\n\r\n",
    b"POST /empty HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"PATCH /upgraded HTTP/1.1\r\nhost: a\r\n"
    b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 4\r\n\r\nGET ",
    b"MOVE /unusual HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok",
)


async def answers_to(world: ServingWorld, pieces: list[bytes]) -> list[SocketAnswer]:
    client = await world.connect()
    for piece in pieces:
        client.send_raw(piece)
        await client.writer.drain()
        # Twice round the loop: the server has seen this piece before it sees the next.
        for _ in range(3):
            await asyncio.sleep(0)
    client.writer.write_eof()
    answers = await client.answers()
    client.writer.close()
    return answers


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    chosen = draw(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=6))
    if draw(st.booleans()):
        chosen.append(b"G(T / HTTP/1.1\r\nhost: a\r\n\r\n")
    data = b"".join(chosen)
    cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=30)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@settings(max_examples=300, deadline=None)
@given(streams())
async def test_requests_cut_anywhere_are_answered_alike(pieces: list[bytes]) -> None:
    async with serving(echo) as world:
        expected = await answers_to(world, [b"".join(pieces)])
        got = await answers_to(world, pieces)
        assert [essence(answer) for answer in got] == [essence(answer) for answer in expected]
        await world.until_empty()


async def test_requests_that_come_byte_by_byte_are_answered_alike() -> None:
    data = b"".join(REQUESTS)

    async with serving(echo) as world:
        answers = await answers_to(world, [data[at : at + 1] for at in range(len(data))])
        assert [answer.json["path"] for answer in answers] == [
            "/plain",
            "/after-a-line",
            "/counted",
            "/nothing",
            "/chunked",
            "/empty",
            "/upgraded",
            "/unusual",
        ]
        bodies = ["", "", "\r\n\r\nab\r\n\r", "", "\r\n\r\nabc", "", "GET ", "ok"]
        assert [answer.json["body"] for answer in answers] == bodies


def essence(answer: SocketAnswer) -> tuple[int, dict[str, str], object]:
    # That the connection ends is said once the client is known to send no more, and that is a race.
    kept = {name: value for name, value in answer.headers.items() if name not in ("date", "connection")}
    return answer.status, kept, json.loads(answer.body)
