"""More clients than there is room for: who gets in, who has to leave, and how much is kept of what they
send."""

import asyncio

import pytest

from berth.serving.asgi import Receive, Scope, Send
from berth.serving.limits import FREE_BODY_BYTES, HEAD_S, REFUSALS_MAX, STALLED_BODY_S, Limits
from tests.unit.serving.sockets import ServingWorld, SocketClient, read, respond, serving
from tests.waiting import until

FEW = Limits(connections=3, connections_per_peer=0)


class Waiting:
    """Answers /slow when it is let, /body when it has one, and everything else at once."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        if scope["path"] == "/slow":
            await self.go_on.wait()
        elif scope["path"] == "/body":
            await read(receive)
        await respond(send, 200, scope["path"].encode())


async def is_open(client: SocketClient) -> bool:
    client.send("GET /open HTTP/1.1")
    return (await client.answer()).status == 200


async def connect_in_order(world: ServingWorld, count: int) -> list[SocketClient]:
    clients = []
    for number in range(count):
        clients.append(await world.connect())
        await until(lambda number=number: len(world.connections) > number)  # type: ignore[misc]
    return clients


# -- connections --------------------------------------------------------------------------------


async def test_a_silent_connection_makes_room_the_oldest_first() -> None:
    async with serving(Waiting(), FEW) as world:
        clients = await connect_in_order(world, 3)
        assert (await world.ask("GET /new HTTP/1.1")).status == 200
        assert await clients[0].rest() == b""
        await until(lambda: len(world.connections) == 2)
        assert await is_open(clients[1])
        assert await is_open(clients[2])


async def test_silent_ones_go_before_those_that_were_of_use() -> None:
    async with serving(Waiting(), FEW) as world:
        kept, silent, half = await connect_in_order(world, 3)
        assert await is_open(kept)
        half.send_raw(b"GET / HTTP/1.1\r\nhos")
        await asyncio.sleep(0.01)
        await world.connect()
        assert await silent.rest() == b""
        await world.connect()
        assert await half.rest() == b"", "a head that does not come is not a request in progress"
        assert await is_open(kept)


async def test_kept_ones_go_by_how_long_they_have_been_idle() -> None:
    async with serving(Waiting(), FEW) as world:
        clients = await connect_in_order(world, 3)
        for number in (1, 2, 0):
            assert await is_open(clients[number])
        await world.connect()
        assert await clients[1].rest() == b""
        assert await is_open(clients[2])
        assert await is_open(clients[0])


async def test_a_request_in_progress_is_never_evicted_and_health_is_answered() -> None:
    application = Waiting()

    async with serving(application, FEW) as world:
        busy = await connect_in_order(world, 3)
        for client in busy:
            client.send("GET /slow HTTP/1.1")
        await until(lambda: application.asked == 3)
        answer = await world.ask("GET /new HTTP/1.1")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert "too many connections" in answer.detail
        assert (await world.ask("GET /healthz HTTP/1.1")).body == b"/healthz"
        application.go_on.set()
        for client in busy:
            assert (await client.answer()).status == 200


async def test_a_flood_of_silent_connections_shuts_nobody_out() -> None:
    async with serving(Waiting(), FEW) as world:
        flood = [await world.connect() for _ in range(40)]
        for _ in range(5):
            assert (await world.ask("GET /new HTTP/1.1")).status == 200
            flood.append(await world.connect())
        await until(lambda: len(world.connections) <= FEW.connections)


async def test_there_is_an_end_to_those_who_are_refused() -> None:
    application = Waiting()

    async with serving(application, FEW) as world:
        for client in await connect_in_order(world, 3):
            client.send("GET /slow HTTP/1.1")
        await until(lambda: application.asked == 3)
        for _ in range(REFUSALS_MAX + 40):
            (await world.connect()).send_raw(b"GET /half HT")
        await asyncio.sleep(0.05)
        assert len(world.connections) <= FEW.connections + REFUSALS_MAX
        application.go_on.set()


async def test_a_body_that_does_not_come_makes_room_too() -> None:
    application = Waiting()

    async with serving(application, FEW) as world:
        clients = await connect_in_order(world, 3)
        for number, client in enumerate(clients, 1):
            client.send("POST /body HTTP/1.1", "content-length: 4", body=b"x")
            await until(lambda number=number: application.asked == number)  # type: ignore[misc]
        assert (await world.ask("GET /new HTTP/1.1")).status == 503, "they may be on their way"
        await world.pass_seconds(STALLED_BODY_S + 1)
        assert len(world.connections._stalled) == 3
        clients[0].send_raw(b"y")
        await until(lambda: len(world.connections._stalled) == 2)
        assert (await world.ask("GET /new HTTP/1.1")).status == 200
        assert (await clients[1].answer()).status == 408
        clients[0].send_raw(b"yz")
        assert (await clients[0].answer()).status == 200


@pytest.mark.parametrize("is_loopback_capped", [True, False])
async def test_one_address_has_its_share(is_loopback_capped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_loopback_capped:
        monkeypatch.setattr("berth.serving.connections.is_local", lambda peer: False)
    application = Waiting()

    async with serving(application, Limits(connections=100, connections_per_peer=2)) as world:
        clients = await connect_in_order(world, 2)
        clients[0].send("GET /slow HTTP/1.1")
        await until(lambda: application.asked == 1)
        clients.append(await world.connect())
        if not is_loopback_capped:
            await until(lambda: len(world.connections) == 3)
            return
        await until(lambda: len(world.connections) == 2)
        assert await clients[1].rest() == b"", "the one of them that was idle longest"
        clients[2].send("GET /slow HTTP/1.1")
        await until(lambda: application.asked == 2)
        answer = await world.ask("GET /new HTTP/1.1")
        assert answer.status == 503
        assert "from this address" in answer.detail


async def test_clients_that_are_asked_to_leave_are_not_kept() -> None:
    async with serving(Waiting(), FEW) as world:
        await connect_in_order(world, 3)
        await world.pass_seconds(HEAD_S + 1)
        await world.until_empty()


# -- bodies -------------------------------------------------------------------------------------

BUDGET = 100_000
BODIES = Limits(bodies_bytes=BUDGET)


async def send_part(client: SocketClient, length: int, sent: int) -> None:
    client.send("POST /body HTTP/1.1", f"content-length: {length}", body=b"x" * sent)
    await client.writer.drain()


async def test_bodies_share_a_budget_and_what_they_took_is_given_back() -> None:
    async with serving(Waiting(), BODIES) as world:
        first = await world.connect()
        await send_part(first, 80_000, 79_999)
        await until(lambda: world.connections.body_bytes == 79_999 - FREE_BODY_BYTES)
        second = await world.connect()
        await send_part(second, 60_000, 0)
        refused = await second.answer()
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert "bodies" in refused.detail
        first.send_raw(b"x")
        assert (await first.answer()).status == 200
        await until(lambda: world.connections.body_bytes == 0)
        third = await world.connect()
        await send_part(third, 80_000, 80_000)
        assert (await third.answer()).status == 200


async def test_a_small_body_always_fits() -> None:
    async with serving(Waiting(), BODIES) as world:
        first = await world.connect()
        await send_part(first, BUDGET + FREE_BODY_BYTES, BUDGET + FREE_BODY_BYTES - 1)
        await until(lambda: world.connections.body_bytes == BUDGET - 1)
        body = b"y" * FREE_BODY_BYTES
        answer = await world.ask("POST /body HTTP/1.1", f"content-length: {len(body)}", body=body)
        assert answer.status == 200


@pytest.mark.parametrize("leaves", ["resets", "is too slow", "is malformed"])
async def test_what_a_client_that_leaves_took_is_given_back(leaves: str) -> None:
    async with serving(Waiting(), BODIES) as world:
        client = await world.connect()
        client.send("POST /body HTTP/1.1", "transfer-encoding: chunked", body=b"c350\r\n" + b"x" * 50_000)
        await until(lambda: world.connections.body_bytes == 50_000 - FREE_BODY_BYTES)
        if leaves == "resets":
            client.reset()
        elif leaves == "is too slow":
            await world.pass_seconds(100)
        else:
            client.send_raw(b"no chunk")
        await until(lambda: world.connections.body_bytes == 0)


async def test_chunks_are_counted_as_they_come() -> None:
    async with serving(Waiting(), BODIES) as world:
        client = await world.connect()
        client.send("POST /body HTTP/1.1", "transfer-encoding: chunked")
        for _ in range(4):
            client.send_raw(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
            await asyncio.sleep(0.005)
        answer = await client.answer()
        assert answer.status == 503
        await until(lambda: world.connections.body_bytes == 0)


async def test_many_bodies_at_once_never_take_more_than_the_budget() -> None:
    """Nobody takes what they send: it is kept by the server alone."""
    most = 0
    application = Waiting()

    async with serving(application, BODIES) as world:
        clients = [await world.connect() for _ in range(20)]
        for client in clients:
            client.send("POST /slow HTTP/1.1", "content-length: 90000", body=b"x" * 90_000)
        for _ in range(100):
            await asyncio.sleep(0.001)
            most = max(most, world.connections.body_bytes)
        application.go_on.set()
        statuses = [(await client.answer()).status for client in clients]
        assert set(statuses) == {200, 503}
        assert 0 < most <= BUDGET
