"""A body is read only for those who may send it, and only as much of it as may be sent."""

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from berth.api.kernel.application import OPEN_BODY_BYTES_MAX
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast

TOKENS = '[[token]]\ntoken = "good-token-of-ann"\nuser = "ann"\nproject = "blue"\nroles = ["admin"]\n'
GOOD = "good-token-of-ann"
PIECE = 4096


class ReadOutcome(NamedTuple):
    status: int
    read_bytes: int


async def send_endless_body(
    region: RegionWorld, method: str, path: str, *, token: str | None, length: int | None = None
) -> ReadOutcome:
    """Ask with a body that goes on as long as it is read: the status, and how much was read."""
    read = 0
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        nonlocal read
        read += PIECE
        assert read < 64 << 20, "nobody stops reading"
        return {"type": "http.request", "body": b"x" * PIECE, "more_body": True}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    framing = {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    headers = {"host": "c", "content-type": "application/json", **framing}
    if token is not None:
        headers["x-auth-token"] = token
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.1", 1),
    }
    async with asyncio.timeout(30):
        await region.application(scope, receive, send)
    return ReadOutcome(statuses[0], read)


def house_with_tokens(path: Path) -> RegionWorld:
    return RegionWorld(path, TOKENS, body_bytes_max=1 << 20)


UPLOAD = ("PUT", "/image/v2/images/x/file")
PATHS = [
    ("PUT", "/resource_providers"),
    ("POST", "/nothing/is/here"),
    ("POST", "/berth/v1/schedule"),
    ("POST", "/berth/v1/nothing"),
    ("POST", "/compute/v2.1/servers"),
    ("POST", "/compute/nothing"),
    ("POST", "/image/v2/images"),
    UPLOAD,
    ("POST", "/image/nothing"),
    ("GET", "/identity/v3/auth/tokens"),
    ("POST", "/identity/v3/users"),
    ("POST", "/identity/nothing"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("token", [None, "a-token-that-nobody-has"])
async def test_who_has_no_token_is_not_listened_to(
    tmp_path: Path, method: str, path: str, token: str | None
) -> None:
    async with house_with_tokens(tmp_path).running() as region:
        assert await send_endless_body(region, method, path, token=token) == ReadOutcome(401, 0)


@pytest.mark.parametrize(("method", "path"), [one for one in PATHS if one != UPLOAD])
async def test_a_length_above_the_limit_is_refused_unread(tmp_path: Path, method: str, path: str) -> None:
    async with house_with_tokens(tmp_path).running() as region:
        outcome = await send_endless_body(region, method, path, token=GOOD, length=(1 << 20) + 1)
        assert outcome == ReadOutcome(413, 0)


@pytest.mark.parametrize("path", ["/identity/v3/auth/tokens", "/identity/v3", "/compute", "/image", "/"])
async def test_what_anybody_may_send_is_small(tmp_path: Path, path: str) -> None:
    async with house_with_tokens(tmp_path).running() as region:
        outcome = await send_endless_body(region, "POST", path, token=None, length=OPEN_BODY_BYTES_MAX + 1)
        assert outcome == ReadOutcome(413, 0)
        untold = await send_endless_body(region, "POST", path, token=None)
        assert untold == ReadOutcome(413, OPEN_BODY_BYTES_MAX + PIECE)


async def test_the_content_of_an_image_is_not_read_before_it_can_be_taken(tmp_path: Path) -> None:
    """It has limits of its own, and here neither a type nor an image."""
    async with house_with_tokens(tmp_path).running() as region:
        outcome = await send_endless_body(region, *UPLOAD, token=GOOD, length=(1 << 20) + 1)
        assert outcome == ReadOutcome(415, 0)


async def test_a_login_is_no_larger_with_a_token(tmp_path: Path) -> None:
    async with house_with_tokens(tmp_path).running() as region:
        outcome = await send_endless_body(
            region, "POST", "/identity/v3/auth/tokens", token=GOOD, length=20_000
        )
        assert outcome == ReadOutcome(413, 0)
