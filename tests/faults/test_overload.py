"""Far more clients than a server takes: what it accepts is right, the rest it refuses, and it gets over it.

Every connection has a consumer of its own and writes it as fast as it is answered. The number of writes
accepted is the consumer's generation, so one that was done twice, or refused and done, is found.
"""

import asyncio
import contextlib
import json
import statistics
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.holdings import Holdings
from tests.faults.fleet import SOAK, fleet
from tests.faults.lines import UNAVAILABLE, line_to, resident_bytes, worker_of
from tests.faults.load import claim_body, make_providers
from tests.faults.verdict import assert_all_agree, assert_sums
from tests.servers import HOST, ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CONNECTIONS = 500
SECONDS = 60 if SOAK else 4
QUEUE_MAX = 64
CAPACITY = {"VCPU": 10 * CONNECTIONS}
GROWTH_BYTES_MAX = 64 << 20
"""What a server may take more in the thick of it than before: 128 KiB for every connection."""


class Seen(NamedTuple):
    """What one connection has seen."""

    accepted: int
    refused: int
    seconds: list[float]
    """That accepted writes took."""


async def write_on(server: ServerProcess, provider: str, consumer: str, until_s: float) -> Seen:
    """Claim repeatedly on one connection, and once however late it is, with the generation that must be
    right."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    accepted = refused = 0
    seconds = []
    while accepted + refused == 0 or time.monotonic() < until_s:
        body = claim_body({provider: {"VCPU": accepted % 10 + 1}}, accepted or None)
        started_s = time.monotonic()
        writer.write(request(f"/allocations/{consumer}", json.dumps(body)))
        status, headers, words = await answer(reader)
        if status == 204:
            accepted += 1
            seconds.append(time.monotonic() - started_s)
        else:
            assert status == UNAVAILABLE, (status, words)
            assert "retry-after" in headers, words
            assert "commands are queued already" in words
            refused += 1
    writer.close()
    await writer.wait_closed()
    return Seen(accepted, refused, seconds)


def request(path: str, body: str) -> bytes:
    lines = [
        f"PUT {path} HTTP/1.1",
        f"host: {HOST}",
        "x-auth-token: admin",
        "openstack-api-version: placement 1.39",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", body]).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(first.split()[1]), headers, body.decode()


async def overload(
    server: ServerProcess, provider: str, consumers: list[str], watched: int
) -> tuple[list[Seen], int]:
    """All connections at once; what they saw, and the most memory that the worker had meanwhile."""
    until_s = time.monotonic() + SECONDS
    largest = 0

    async def watch() -> None:
        nonlocal largest
        while True:
            largest = max(largest, resident_bytes(watched))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    seen = await asyncio.gather(*(write_on(server, provider, consumer, until_s) for consumer in consumers))
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return list(seen), largest


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_more_than_the_queue_holds_is_refused_and_the_rest_is_right(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = (
        f"sqlite:///{tmp_path / 'berth.db'}"
        if kind == "sqlite"
        else str(request.getfixturevalue("postgresql_url"))
    )
    provider = str(uuid.uuid4())
    consumers = [str(uuid.uuid4()) for _ in range(CONNECTIONS)]
    with fleet(tmp_path, [url], "--queue-commands-max", str(QUEUE_MAX)) as servers:
        (server,) = servers
        with line_to(server) as line:
            make_providers(line, [provider], CAPACITY)
        worker = worker_of(server)
        before = resident_bytes(worker)
        seen, largest = await overload(server, provider, consumers, worker)
        accepted, refused = sum(one.accepted for one in seen), sum(one.refused for one in seen)
        times_ms = [1000 * seconds for one in seen for seconds in one.seconds]
        p99_ms = statistics.quantiles(times_ms, n=100)[98]
        print(f"{accepted} accepted, p99 {p99_ms:.0f} ms; {refused} refused")
        print(f"resident: {before >> 20} MiB before, {largest >> 20} MiB at most")
        assert accepted > 0
        assert refused > 0
        assert largest - before < GROWTH_BYTES_MAX
        # At once, as if nothing had been.
        with line_to(server) as line:
            extra = str(uuid.uuid4())
            body = claim_body({provider: {"VCPU": 1}}, None)
            assert line.ask("PUT", f"/allocations/{extra}", body).status == 204
        state = assert_all_agree(servers, url)
    expected = {
        consumer: Holdings(one.accepted, {provider: {"VCPU": (one.accepted - 1) % 10 + 1}})
        for consumer, one in zip(consumers, seen, strict=True)
        if one.accepted
    }
    assert state.consumers == expected | {extra: Holdings(1, {provider: {"VCPU": 1}})}
    assert_sums(state, [provider], CAPACITY)
