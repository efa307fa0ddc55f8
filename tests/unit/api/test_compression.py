"""Large texts come compressed for clients that ask for it, from every API; and nothing else does."""

import gzip
import json
from pathlib import Path

import pytest

from berth.api.kernel import compression
from berth.api.kernel.compression import accepts_gzip
from tests.unit.native.streams import listening
from tests.worlds import ApplicationWorld, HttpAnswer

pytestmark = pytest.mark.fast

ASKS = {"accept-encoding": "gzip, deflate"}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("x-gzip", True),
        ("", False),
        ("identity", False),
        ("deflate, br", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
    ],
)
def test_whether_gzip_is_asked_for(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected


async def ask(world: ApplicationWorld, path: str, **headers: str) -> HttpAnswer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await world.ask("GET", path, headers=sent)


@pytest.mark.parametrize("path", ["/berth/v1/openapi.json", "/traits"])
async def test_a_large_answer_is_the_same_in_less(world: ApplicationWorld, path: str) -> None:
    plain = await ask(world, path)
    packed = await ask(world, path, **ASKS)
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert int(packed.headers["content-length"]) == len(packed.body) < len(plain.body) / 3
    assert "accept-encoding" in plain.headers["vary"]
    assert "accept-encoding" in packed.headers["vary"]


async def test_the_tag_of_a_compressed_answer_is_its_own_and_is_known(world: ApplicationWorld) -> None:
    path = "/berth/v1/openapi.json"
    plain, packed = await ask(world, path), await ask(world, path, **ASKS)
    assert packed.headers["etag"] == plain.headers["etag"][:-1] + '-gzip"'
    for tag in (plain.headers["etag"], packed.headers["etag"]):
        for asks in ({}, ASKS):
            answer = await ask(world, path, if_none_match=tag, **asks)
            assert (answer.status, answer.body) == (304, b"")


async def test_a_small_answer_is_sent_as_it_is(world: ApplicationWorld) -> None:
    answer = await ask(world, "/berth/v1/hosts", **ASKS)
    assert ("content-encoding" in answer.headers, answer.json["hosts"]) == (False, [])


async def test_a_body_of_many_pieces_is_whole(
    world: ApplicationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_PIECE_BYTES", 1000)
    plain = await ask(world, "/berth/v1/openapi.json")
    packed = await ask(world, "/berth/v1/openapi.json", **ASKS)
    assert json.loads(gzip.decompress(packed.body)) == plain.json


async def test_a_stream_is_not_compressed(tmp_path: Path) -> None:
    async with ApplicationWorld(tmp_path).running() as world:
        for number in range(1, 40):
            await world.host(number)
        async with listening(world.application, "?after=0", accept_encoding="gzip") as (stream, _):
            await stream.until(lambda stream: len(stream.ids) > 30)
            assert "content-encoding" not in stream.headers
