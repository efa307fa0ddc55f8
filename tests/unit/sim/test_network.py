"""The simulator's network: every way in which a request can go wrong, and what the server has done then."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from berth.client import ClientError, Unreachable, WireRequest
from berth.client.client import StreamedEvent
from berth.sim.network import MISHAPS, Mishap, Network, Weather
from berth.sim.world import Process, World

TIMEOUT_S: Final = 30.0


class Server:
    """Counts what it serves. ``works_s``: how long that takes."""

    def __init__(self, world: World, network: Network, name: str = "server", address: str = "there") -> None:
        self.process: Process = world.process(name)
        self.works_s = 0.0
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gone: list[str] = []
        self.halves: list[bytes] = []
        self.refuses_halves = True
        network.listen(address, self.process, self)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        if message["more_body"] and self.refuses_halves:
            assert (await receive())["type"] == "http.disconnect"
            self.halves.append(message["body"])
            await send({"type": "http.response.start", "status": 413, "headers": []})
            return
        what = (
            f"{scope['method']} {scope['path']}?{scope['query_string'].decode()} {message['body'].decode()}"
        )
        self.begun.append(what)
        watching = asyncio.create_task(self._watch(receive, what))
        try:
            await asyncio.sleep(self.works_s)
            assert scope["path"] != "/bug", "the application fails"
            header = dict(scope["headers"]).get(b"x-colour", b"none")
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-colour", header)]})
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        finally:
            watching.cancel()
            self.ended.append(what)

    async def _watch(self, receive: Any, what: str) -> None:
        assert (await receive())["type"] == "http.disconnect"
        self.gone.append(what)


class Net:
    """A client and a server, and what is to happen to the next requests."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.server = Server(self.world, self.network)
        self.source = self.world.process("client")
        self.client = self.network.client(self.source, "there", {"x-colour": "green"})

    def have(self, *mishaps: Mishap | None) -> None:
        left = list(mishaps)
        self.network.decide = lambda source, address, request: left.pop(0) if left else None

    async def ask(self, method: str = "POST", path: str = "/x?a=1", timeout_s: float = TIMEOUT_S) -> int:
        return (await self.client.ask(method, path, {"n": 1}, timeout_s)).status

    async def fails(self, method: str = "POST") -> tuple[str, float]:
        """Why there is no answer, and when that is known."""
        start_s = self.world.loop.time()
        with pytest.raises(Unreachable) as failure:
            await self.ask(method)
        return str(failure.value), self.world.loop.time() - start_s


async def test_on_a_fine_day_a_request_is_served_once() -> None:
    net = Net()
    answer = await net.client.ask("POST", "/x%20y?a=1", {"n": 1})
    assert (answer.status, answer.headers["x-colour"]) == (200, "green")
    assert net.server.ended == ['POST /x y?a=1 {"n":1}']
    assert net.network.happened == {}


@pytest.mark.parametrize(
    ("mishap", "served", "waits"),
    [
        ("request lost", 0, True),
        ("answer lost", 1, True),
        ("request cut", 0, False),
        ("answer cut", 1, False),
    ],
)
async def test_without_an_answer_it_was_served_or_not(mishap: Mishap, served: int, waits: bool) -> None:
    net = Net()
    net.have(mishap)
    _, after_s = await net.fails()
    assert len(net.server.ended) == served
    assert (after_s == TIMEOUT_S) == waits
    assert net.network.happened == {mishap: 1}
    assert await net.ask() == 200, "the next request is fine"


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_server_gets_half_of_a_request_that_is_cut_and_must_refuse_it(refuses: bool) -> None:
    net, told = Net(), list[str]()
    net.network.fail = told.append
    net.server.refuses_halves = refuses
    net.have("request cut")
    failure, _ = await net.fails()
    assert "connection reset" in failure
    assert net.server.halves == ([b'{"n'] if refuses else [])
    assert told == ([] if refuses else ["POST /x?a=1 is answered 200, and only half of it has arrived"])


async def test_a_get_that_is_cut_is_sent_once_more_by_the_client() -> None:
    net = Net()
    net.have("answer cut", None)
    assert await net.ask("GET") == 200
    assert len(net.server.ended) == 2


async def test_a_request_that_is_sent_twice_is_served_twice() -> None:
    net = Net()
    net.have("sent twice")
    assert await net.ask() == 200
    assert len(net.server.ended) == 2


async def test_a_request_that_is_delayed_is_overtaken() -> None:
    net = Net()
    net.have("delayed")
    first = asyncio.create_task(net.ask(path="/first"))
    await asyncio.sleep(0)
    assert await net.ask(path="/second") == 200
    assert await first == 200
    assert [what.split()[1] for what in net.server.begun] == ["/second?", "/first?"]


async def test_requests_overtake_each_other_on_a_fine_day() -> None:
    net = Net()
    await asyncio.gather(*(net.ask(path=f"/{number}") for number in range(20)))
    order = [what.split()[1] for what in net.server.begun]
    assert sorted(order) == sorted(f"/{number}?" for number in range(20))
    assert order != [f"/{number}?" for number in range(20)]


async def test_a_gateway_that_refuses_lets_nothing_through() -> None:
    net = Net()
    net.have("refused")
    assert await net.ask() == 403
    assert net.server.begun == []


async def test_all_mishaps_happen_by_luck_and_only_as_often_as_they_are_to() -> None:
    net = Net()
    net.network.weather = Weather(mishaps=0.5, delayed_s=1)
    outcomes = await asyncio.gather(*(net.ask() for _ in range(200)), return_exceptions=True)
    assert set(net.network.happened) == set(MISHAPS)
    assert 60 < sum(net.network.happened.values()) < 140
    assert {type(outcome) for outcome in outcomes} == {int, Unreachable}


# -- who dies -----------------------------------------------------------------------------------


async def test_where_nobody_listens_a_connection_is_refused() -> None:
    net = Net()
    net.server.process.kill()
    why, after_s = await net.fails()
    assert "connection refused" in why
    assert after_s < 1


@pytest.mark.parametrize("dies_after_s", [0, 0.001, 2])
async def test_a_server_that_dies_in_the_middle_resets_the_connection(dies_after_s: float) -> None:
    net = Net()
    net.server.works_s = 5
    net.world.call_later(dies_after_s, net.server.process.kill)
    why, after_s = await net.fails()
    assert "connection" in why
    assert after_s < 3
    assert net.server.ended == [], "it does nothing any more"
    again = Server(net.world, net.network)
    assert await net.ask() == 200
    assert len(again.ended) == 1


async def test_a_request_on_its_way_reaches_whoever_has_taken_over() -> None:
    net = Net()
    net.have("delayed")
    asking = asyncio.create_task(net.ask())
    await asyncio.sleep(0)
    net.server.process.kill()
    again = Server(net.world, net.network)
    assert await asking == 200
    assert (len(net.server.begun), len(again.begun)) == (0, 1)


async def test_an_application_that_fails_cuts_the_connection() -> None:
    net = Net()
    with pytest.raises(Unreachable):
        await net.ask(path="/bug")
    assert net.server.process.is_alive
    assert await net.ask() == 200


async def test_a_server_learns_that_its_client_has_given_up_or_died() -> None:
    net = Net()
    net.server.works_s = 100
    with pytest.raises(Unreachable):
        await net.ask(path="/gives-up", timeout_s=10)
    await asyncio.sleep(1)
    assert [what.split()[1] for what in net.server.gone] == ["/gives-up?"]
    net.source.spawn(net.ask(path="/dies"))
    await asyncio.sleep(5)
    net.source.kill()
    await asyncio.sleep(1)
    assert [what.split()[1] for what in net.server.gone] == ["/gives-up?", "/dies?"]


async def test_of_several_that_listen_at_an_address_luck_chooses() -> None:
    net = Net()
    other = Server(net.world, net.network, "other")
    for _ in range(20):
        assert await net.ask() == 200
    assert len(net.server.ended) + len(other.ended) == 20
    assert net.server.ended
    assert other.ended
    other.process.kill()
    before = len(net.server.ended)
    for _ in range(5):
        assert await net.ask() == 200
    assert len(net.server.ended) == before + 5


async def test_a_client_follows_a_stream() -> None:
    net = Net()
    status = 200

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = b'id: 7\ndata: {"n":1}\n\n' if status == 200 else b'{"errors": [{"detail": "not now"}]}'
        for piece in (body[:9], body[9:]):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    net.network.listen("stream", net.server.process, stream)
    client = net.network.client(net.source, "stream")
    assert [event async for event in client.follow("/events")] == [StreamedEvent("message", "7", {"n": 1})]
    status = 503
    with pytest.raises(ClientError, match="not now"):
        await anext(client.follow("/events"))
    net.server.process.kill()
    with pytest.raises(Unreachable, match="connection refused"):
        await anext(client.follow("/events"))


# -- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "served"),
    [
        (lambda network: network.block("client", "there"), 0),
        (lambda network: network.block("there", "client"), 1),
    ],
    ids=["there", "back"],
)
async def test_a_partition_one_way(block: Callable[[Network], None], served: int) -> None:
    net = Net()
    block(net.network)
    _, after_s = await net.fails()
    assert after_s == TIMEOUT_S, "nothing is heard, not even a refusal"
    assert len(net.server.ended) == served
    bystander = net.network.client(net.world.process("bystander"), "there")
    assert (await bystander.ask("GET", "/x")).status == 200
    net.network.unblock_all()
    assert await net.ask() == 200


async def test_who_is_asked_what_is_in_the_history() -> None:
    net = Net()
    net.have("answer lost")
    await net.fails()
    await net.ask()
    said = [line.split(None, 2)[1:] for line in net.world.trace.lines]
    assert ["client", "POST /x?a=1 at there: answer lost"] in said
    assert ["client", "POST /x?a=1 at there: 200"] in said


async def test_a_test_may_choose_mishaps_by_request() -> None:
    net = Net()

    def decide(source: str, address: str, request: WireRequest) -> Mishap | None:
        assert (source, address) == ("client", "there")
        return "refused" if request.path == "/secret" else None

    net.network.decide = decide
    assert await net.ask(path="/secret") == 403
    assert await net.ask(path="/public") == 200
