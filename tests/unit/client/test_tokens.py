"""A client that shows tokens: from a file that changes, from Keystone, and what if there is none."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.client import Client, Unreachable, keystone_token
from tests.keystone import PASSWORD, FakeKeystone, running


class TokenServer:
    """A server that knows one token at a time, and counts those it did not know."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.refused = 0
        self.url = ""
        self._visits: list[asyncio.Task[Any]] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["TokenServer"]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with listener:
            yield self
        await asyncio.gather(*self._visits)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        assert visit is not None
        self._visits.append(visit)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                is_known = f"x-auth-token: {self.token}\r\n".encode() in head
                self.refused += not is_known
                status = b"200 OK" if is_known else b"401 Unauthorized"
                writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[TokenServer]:
    async with TokenServer("first").open() as server:
        yield server


@pytest.fixture
def keystone() -> Iterator[FakeKeystone]:
    with running() as keystone:
        yield keystone


async def test_a_file_is_read_again_when_its_token_is_not_good_any_more(
    server: TokenServer, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    client = Client(server.url, token=path.read_text)
    assert (await client.ask("GET", "/")).status == 200
    server.token = "second"
    assert (await client.ask("GET", "/")).status == 401, "the file has not changed yet"
    path.write_text("second")
    answers = await asyncio.gather(*(client.ask("GET", "/") for _ in range(5)))
    assert [answer.status for answer in answers] == [200] * 5
    await client.close()


async def test_a_token_of_keystones_is_renewed(server: TokenServer, keystone: FakeKeystone) -> None:
    client = Client(server.url, token=keystone_token(keystone.url + "/v3", "berth", PASSWORD, "service"))
    server.token = "service-token-1"
    assert (await client.ask("GET", "/")).status == 200
    server.token = "service-token-2"
    assert (await client.ask("GET", "/")).status == 200
    assert (keystone.logins, server.refused) == (2, 1)
    await client.close()


async def test_without_a_token_nothing_is_asked(server: TokenServer, keystone: FakeKeystone) -> None:
    client = Client(server.url, token=keystone_token(keystone.url + "/v3", "berth", "wrong", "service"))
    with pytest.raises(Unreachable, match=r"no token for .*: Keystone: signing in as berth .* was refused"):
        await client.ask("GET", "/")
    assert server.refused == 0


async def test_a_token_that_is_no_header_is_not_sent(server: TokenServer) -> None:
    client = Client(server.url, token=lambda: "a\r\nx: y")
    with pytest.raises(Unreachable, match="cannot be sent"):
        await client.ask("GET", "/")
    assert server.refused == 0
