"""HTTP between simulated processes: late, lost, cut, sent twice, or not let through.

A request has two ways to make, there and back, each with a delay of its own: requests overtake each other. In
between the application of the other process serves it, in that process: with it, it dies.

    sent -> (delay) -> arrives -> served -> (delay) -> answered
      |                  |          |
      black hole         |          process dies: connection reset
                         no process: refused

What goes wrong is drawn from ``Weather``. On a fine day nothing does but small delays.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, MutableMapping
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import unquote

import httpx
import msgspec

from berth.client import Client, Transport, WireAnswer, WireRequest, WireStream
from berth.sim.world import Process, World

Application = Callable[..., Coroutine[Any, Any, None]]
Chance = Literal["request lost", "answer lost", "request cut", "answer cut", "sent twice", "delayed"]
Mishap = Chance | Literal["refused", "changed"]
Edge = Literal["before", "after"]
MISHAPS: Final[tuple[Chance, ...]] = get_args(Chance)
"""What happens to messages by chance; the others are asked for by name."""


_JSON: Final = {"content-type": "application/json"}
_DIED: Final = "connection reset: the server died"
_UNREAD_MAX: Final = 16
"""How many pieces of a stream are on their way before the sender has to wait."""
_WINDOW_S: Final = 10.0
_REQUESTS_MAX: Final = 1_000
"""How many requests one process may send in that time: whoever sends more does not wait for anything."""


class Weather(NamedTuple):
    """``mishaps``: how likely something goes wrong with one request. ``delay_s``: the longest delay of one
    way, when nothing does; ``delayed_s``: when it is delayed."""

    mishaps: float = 0.0
    delay_s: float = 0.002
    delayed_s: float = 20.0


FINE: Final = Weather()


class Network:
    """``decide``: may choose the mishap of a request in place of luck; None leaves it to luck."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("network")
        self._listening: dict[str, list[tuple[Process, Application]]] = {}
        self._blocked: set[tuple[str, str]] = set()
        self.weather = FINE
        self.decide: Callable[[str, str, WireRequest], Mishap | None] | None = None
        self.happened: dict[str, int] = {}
        self.fail: Callable[[str], None] | None = None
        """Told of who asks without a pause, and of who takes half a request for a whole one."""
        self.served: Callable[[Process, Process, WireRequest, Edge], None] | None = None
        """Told of each request by whom it is sent, and by whom it is about to be served, or was. The latter
        may be killed there."""
        self.sent: list[Callable[[str, WireRequest], None]] = []
        """Told of every request, and by whom it is sent."""
        self.answered: list[Callable[[str, WireRequest, WireAnswer, Process], None]] = []
        """Told of every answer when it leaves, by whom its request was sent, and who has served it."""
        self._sent: dict[str, tuple[int, int]] = {}
        self.crowds: set[str] = set()
        """Processes that stand for many clients, which may ask as often as they like."""

    def listen(self, address: str, process: Process, application: Application) -> None:
        """Serve an address, for as long as the process lives. Of several that do, luck chooses."""
        alive = [entry for entry in self._listening.get(address, ()) if entry[0].is_alive]
        self._listening[address] = [*alive, (process, application)]

    def leave(self, address: str, process: Process) -> Application | None:
        """Have a process that lives serve an address no more; what it has served it with."""
        left = {entry[0]: entry[1] for entry in self._listening.get(address, ())}
        application = left.pop(process, None)
        self._listening[address] = list(left.items())
        return application

    def client(self, source: Process, address: str, headers: dict[str, str] | None = None) -> Client:
        """A client in a process, of whoever serves an address at the time of a request."""
        return Client(f"http://{address}", headers, transport=self.connect(source, address))

    def connect(self, source: Process, address: str) -> Transport:
        """The way from a process to an address."""
        return SimTransport(self, source, address)

    def block(self, source: str, address: str) -> None:
        """Let nothing through from one to the other; answers the other way still are."""
        self._blocked.add((source, address))

    def unblock(self, source: str, address: str) -> None:
        self._blocked.discard((source, address))

    def unblock_all(self) -> None:
        self._blocked.clear()

    def is_blocked(self, source: str, address: str) -> bool:
        return (source, address) in self._blocked

    # -- one exchange ---------------------------------------------------------------------------

    async def exchange(self, client: Process, address: str, request: WireRequest) -> WireAnswer:
        source = client.name
        self._count(source)
        for told in self.sent:
            told(source, request)
        mishap = self.decide(source, address, request) if self.decide is not None else None
        if mishap is None and self.weather.mishaps and self._rng.random() < self.weather.mishaps:
            mishap = self._rng.choice(MISHAPS)
        what = f"{request.method} {request.path} at {address}"
        if mishap is not None:
            self.happened[mishap] = self.happened.get(mishap, 0) + 1
            self._world.trace.note(source, f"{what}: {mishap}")
        exchange = _Exchange(self, client, address, request, mishap)
        exchange.start()
        try:
            answer = await exchange.answered
        finally:
            exchange.end()
        said = "" if answer.status < 400 or answer.status == 503 else f" {answer.content.decode()}"
        self._world.trace.note(source, f"{what}: {answer.status}{said}")
        return answer

    def _count(self, source: str) -> None:
        window = int(self._world.loop.time() / _WINDOW_S)
        last, count = self._sent.get(source, (window, 0))
        count = count + 1 if last == window else 1
        self._sent[source] = window, count
        if count > _REQUESTS_MAX and source not in self.crowds and self.fail is not None:
            self.fail(f"{source} has sent {count} requests in {_WINDOW_S:g} s")

    def draw_delay(self, source: str, target: str, *, delayed: bool = False) -> float | None:
        """How long a message is on its way; None: it never arrives."""
        if (source, target) in self._blocked:
            return None
        return self._rng.uniform(0, self.weather.delayed_s if delayed else self.weather.delay_s)

    async def _travel(self, source: str, target: str) -> None:
        delay_s = self.draw_delay(source, target)
        if delay_s is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(delay_s)

    def choose(self, address: str) -> tuple[Process, Application]:
        """One of those who serve an address."""
        alive = [entry for entry in self._listening.get(address, ()) if entry[0].is_alive]
        if not alive:
            raise httpx.ConnectError("connection refused")
        return self._rng.choice(alive)

    async def stream(
        self, client: Process, address: str, request: WireRequest
    ) -> AsyncGenerator[MutableMapping[str, Any], None]:
        """What is sent in answer to a request, piece by piece as it arrives, until its end. ReadError where
        the connection is cut."""
        source = client.name
        self._count(source)
        await self._travel(source, address)
        process, application = self.choose(address)
        sent: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue(_UNREAD_MAX)
        receiver = _Receiver(request.content, client)
        process.spawn(application(_scope(request, source), receiver.receive, sent.put))
        try:
            is_over = False
            while not is_over:
                arriving = asyncio.ensure_future(sent.get())
                await asyncio.wait((arriving, process.ended), return_when=asyncio.FIRST_COMPLETED)
                is_cut = self._rng.random() < self.weather.mishaps
                if is_cut or not arriving.done():
                    arriving.cancel()
                    self._world.trace.note(source, f"{request.method} {request.path}: cut")
                    raise httpx.ReadError("connection reset")
                await self._travel(address, source)
                message = arriving.result()
                is_over = message["type"] == "http.response.body" and not message.get("more_body", False)
                yield message
        finally:
            receiver.leave()


class _Exchange:
    """One request and its answer. It is carried on by callbacks of the client's, and its client awaits only
    ``answered``: to wake it at each step would take longer than the step."""

    def __init__(
        self, network: Network, client: Process, address: str, request: WireRequest, mishap: Mishap | None
    ) -> None:
        self._network = network
        self._client = client
        self._address = address
        self._request = request
        self._mishap = mishap
        self._loop = asyncio.get_running_loop()
        self._times = 2 if mishap == "sent twice" else 1
        self._serving: _Serving | None = None
        self.answered: asyncio.Future[WireAnswer] = self._loop.create_future()

    def start(self) -> None:
        delayed = self._mishap == "delayed"
        delay_s = self._network.draw_delay(self._client.name, self._address, delayed=delayed)
        if delay_s is not None:
            self._loop.call_later(delay_s, self._arrive)

    def end(self) -> None:
        """Nobody waits for the answer any more."""
        self._leave()
        self.answered.cancel()

    def _arrive(self) -> None:
        match self._mishap:
            case _ if self.answered.done():
                return
            case "request lost":
                return
            case "refused":
                # By a gateway in between.
                refusal = {"errors": [{"detail": "injected"}]}
                self.answered.set_result(WireAnswer(403, _JSON, msgspec.json.encode(refusal)))
            case "request cut" if not self._request.content:
                self._cut("connection reset")
            case _:
                self._serve()

    def _serve(self) -> None:
        try:
            process, application = self._network.choose(self._address)
        except httpx.ConnectError as refused:
            self.answered.set_exception(refused)
            return
        if not self._tell(process, "before"):
            return
        receiver = _Receiver(self._request.content, self._client, is_cut=self._mishap == "request cut")
        sent = _SentAnswer()
        scope = _scope(self._request, self._client.name)
        task = process.spawn(application(scope, receiver.receive, sent.take))
        self._serving = _Serving(process, task, sent, receiver)
        task.add_done_callback(self._take)
        process.ended.add_done_callback(self._take)

    def _take(self, done: "asyncio.Future[None]") -> None:
        """The application has ended, or its process: whichever comes first."""
        serving = self._leave()
        if serving is None:
            return
        if not serving.task.done() or serving.task.exception() is not None:
            self._cut(_DIED)
            return
        if not self._tell(serving.process, "after"):
            return
        answer = serving.sent.answer()
        if self._mishap == "request cut":
            if answer.status < 400 and self._network.fail is not None:
                what = f"{self._request.method} {self._request.path}"
                self._network.fail(f"{what} is answered {answer.status}, and only half of it has arrived")
            self._cut("connection reset")
            return
        for told in self._network.answered:
            told(self._client.name, self._request, answer, serving.process)
        if self._mishap == "changed" and answer.status == 200:
            answer = _add_allocation(answer)
        self._times -= 1
        if self._times:
            self._serve()
            return
        delay_s = self._network.draw_delay(self._address, self._client.name)
        if delay_s is not None and self._mishap != "answer lost":
            self._loop.call_later(delay_s, self._return, answer)

    def _return(self, answer: WireAnswer) -> None:
        if self._mishap == "answer cut":
            self._cut("connection reset")
        elif not self.answered.done():
            self.answered.set_result(answer)

    def _tell(self, server: Process, edge: Edge) -> bool:
        """Whether the server still lives then."""
        if self._network.served is not None:
            self._network.served(self._client, server, self._request, edge)
            if not server.is_alive:
                self._cut(_DIED)
        return server.is_alive

    def _cut(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(httpx.ReadError(why))

    def _leave(self) -> "_Serving | None":
        """Nobody reads any more what the server sends, if it was reached. References to it are dropped:
        otherwise each exchange would stay until the garbage collector runs."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.task.remove_done_callback(self._take)
            serving.process.ended.remove_done_callback(self._take)
            serving.receiver.leave()
        return serving


class _Serving(NamedTuple):
    """A request at its server's."""

    process: Process
    task: "asyncio.Future[None]"
    sent: "_SentAnswer"
    receiver: "_Receiver"


class SimTransport:
    """The way from a process to an address."""

    def __init__(self, network: Network, source: Process, address: str) -> None:
        self._network = network
        self._source = source
        self._address = address

    async def exchange(self, request: WireRequest) -> WireAnswer:
        return await self._network.exchange(self._source, self._address, request)

    @contextlib.asynccontextmanager
    async def stream(self, request: WireRequest) -> AsyncGenerator[WireStream, None]:
        async with contextlib.aclosing(
            self._network.stream(self._source, self._address, request)
        ) as messages:
            start = await anext(messages)
            pieces = (message.get("body", b"") async for message in messages)
            yield WireStream(start["status"], _decode_headers(start["headers"]), pieces)

    async def close(self) -> None: ...


class _SentAnswer:
    """What an application sends."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()

    async def take(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = list(message["headers"])
        else:
            self._body += message.get("body", b"")

    def answer(self) -> WireAnswer:
        return WireAnswer(self._status, _decode_headers(self._headers), bytes(self._body))


class _Receiver:
    """What an application reads of a request: its body, and then that nobody waits for the answer any
    more. ``is_cut``: half of the body alone."""

    def __init__(self, body: bytes, client: Process, *, is_cut: bool = False) -> None:
        self._body: bytes | None = body[: len(body) // 2] if is_cut else body
        self._client = client
        self._is_cut = self._is_gone = is_cut
        self._gone: asyncio.Future[None] | None = None

    async def receive(self) -> MutableMapping[str, Any]:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": self._is_cut}
        if not self._is_gone:
            self._gone = self._gone or asyncio.get_running_loop().create_future()
            await asyncio.wait((self._gone, self._client.ended), return_when=asyncio.FIRST_COMPLETED)
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        """The client does not wait any more."""
        self._is_gone = True
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)


def _decode_headers(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def _add_allocation(answer: WireAnswer) -> WireAnswer:
    """Allocations as they are read while another client has added something, for a moment."""
    body = msgspec.json.decode(answer.content)
    body["allocations"]["00000000-0000-4000-8000-000000000000"] = {"resources": {"VCPU": 1}}
    return answer._replace(content=msgspec.json.encode(body))


def _scope(request: WireRequest, source: str) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    return {
        "type": "http",
        "method": request.method,
        "path": unquote(path) if "%" in path else path,
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": request.headers,
        "client": (source, 0),
        "scheme": "http",
    }
