"""A conductor for tests, on a real socket, and what one would hand out.

Its mailbox is the real one. It knows who has registered, keeps what it has received, and can be made to fail.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from berth.agent.conductor import ConductorClient
from berth.agent.credentials import Credential
from berth.agent.drivers.behaviour import Behaviours, SimBehaviour
from berth.agent.drivers.sim import SimDriver
from berth.agent.fleet import SimHost, register
from berth.agent.host import HostAgent, Pace
from berth.agent.state import AgentState, state_path
from berth.cell import protocol
from berth.cell.mailbox import Mailbox
from berth.cell.protocol import AgentCommand, Leftover, Poll, PollAnswer, Register, Report
from berth.client import Client
from berth.model.saga_runs import Spec
from berth.model.servers import Flavor
from berth.runtime.ids import Ids
from berth.sagas.saga import Verb
from berth.serving.asgi import Application, Receive, Scope, Send
from berth.serving.connections import Connections

HOST = "127.0.0.1"
PATIENCE_S = 120
"""Nobody waits so long but on a machine that is very busy, or for something that never comes."""
FLAVOR = Flavor(id="1", name="m1.small", vcpus=1, memory_mb=512)
QUICK = SimBehaviour(build_seconds=0, live_migrate_seconds=0, other_seconds=0)
PACE = Pace(first=0.01, longest=0.05, refused=0.02, report_within=PATIENCE_S, poll_longest=0.3)
THE_HOST = SimHost(name="host-0001")


def server_id(number: int = 1) -> str:
    return str(uuid.UUID(int=number))


def command(
    verb: Verb,
    id: str | None = None,
    fence: tuple[int, int] = (1, 0),
    server: str | None = None,
    name: str = "web-1",
    runs: bool = True,
) -> AgentCommand:
    return AgentCommand(
        id=id or f"{verb} {fence}",
        fence=fence,
        verb=verb,
        server=server or server_id(),
        spec=Spec(name, "project", "user", FLAVOR),
        runs=runs,
    )


class FakeConductor:
    """``answers``: statuses to refuse with, for each path, before it is answered properly again."""

    def __init__(self, heartbeat_timeout_s: float = 1.0) -> None:
        self.mailbox = Mailbox()
        self.registered: dict[str, Register] = {}
        self.polls: list[Poll] = []
        self.reports: list[Report] = []
        self.tokens: set[str] = set()
        self.answers: dict[str, list[int]] = {}
        self.leftovers: tuple[Leftover, ...] = ()
        self.at_once = 0
        self.at_once_most = 0
        """Hosts that were registering at the same time."""
        self._heartbeat_timeout_s = heartbeat_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        body = await _read(receive)
        headers = dict(scope["headers"])
        self.tokens.add(headers.get(protocol.TOKEN_HEADER.encode(), b"").decode())
        refusals = self.answers.get(path)
        if refusals:
            await _respond(send, refusals.pop(0), {"errors": [{"detail": "as the test wants it"}]})
            return
        match path:
            case protocol.REGISTER:
                await self._register(msgspec.json.decode(body, type=Register))
                answer = protocol.Registered(
                    cell="cell1", heartbeat_timeout_seconds=self._heartbeat_timeout_s
                )
                await _respond(send, 200, answer)
            case protocol.POLL:
                await self._poll(msgspec.json.decode(body, type=Poll), send)
            case protocol.REPORT:
                report = msgspec.json.decode(body, type=Report)
                self.reports.append(report)
                awaited = self.mailbox.settle(report.host, report.command, report.error)
                await _respond(send, 200, {"awaited": awaited})

    async def _register(self, host: Register) -> None:
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        self.registered[host.host] = host

    async def _poll(self, poll: Poll, send: Send) -> None:
        self.polls.append(poll)
        if poll.host not in self.registered:
            await _respond(send, 404, {"errors": [{"detail": "unknown host"}]})
            return
        leftovers = tuple(leftover for leftover in self.leftovers if leftover.server in poll.servers)
        commands, aborts = self.mailbox.find_commands(poll.host, poll.busy)
        if not (leftovers or commands or set(aborts) & set(poll.busy)):
            await self.mailbox.wait(poll.host, poll.wait_seconds)
            commands, aborts = self.mailbox.find_commands(poll.host, poll.busy)
        await _respond(send, 200, PollAnswer(commands=commands, aborts=aborts, leftovers=leftovers))

    async def have(self, command: AgentCommand, host: SimHost = THE_HOST) -> str | None:
        """Have a host carry a command out."""
        return (await self.mailbox.deliver(host.id, command, PATIENCE_S)).error


@contextlib.asynccontextmanager
async def served(application: Application, port: int = 0) -> AsyncIterator[str]:
    """An application on a socket: its address."""
    loop = asyncio.get_running_loop()
    connections = Connections(application, loop)
    server = await loop.create_server(connections.make, HOST, port)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await connections.drain(10)


class AgentHost:
    """A host with a disk, whose agent can be started and killed."""

    def __init__(self, data: Path, url: str, behaviour: SimBehaviour = QUICK, pace: Pace = PACE) -> None:
        self.behaviours = Behaviours(behaviour)
        self._data = data
        self._path = state_path(data, THE_HOST.name)
        self._url = url
        self._pace = pace
        self._task: asyncio.Task[None] | None = None
        self.state = AgentState(self._path)

    def start(self) -> None:
        """Start the agent, with what is in the file."""
        self.state = AgentState(self._path)
        rng = Ids(1).rng
        driver = SimDriver(THE_HOST.name, self.state.disk, self.behaviours, rng)
        conductor = ConductorClient(Client(self._url), "secret")
        turns = asyncio.Semaphore(1)
        credential = Credential(self._data, THE_HOST.name, THE_HOST.id)
        agent = HostAgent(
            register(THE_HOST, driver.name),
            driver,
            self.state,
            credential,
            conductor,
            rng,
            turns,
            self._pace,
        )
        self._task = asyncio.create_task(agent.run())

    async def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def world(
    data: Path, behaviour: SimBehaviour = QUICK
) -> AsyncIterator[tuple[FakeConductor, AgentHost]]:
    """A conductor and a host whose agent runs."""
    conductor = FakeConductor()
    async with served(conductor) as url:
        host = AgentHost(data, url, behaviour)
        host.start()
        try:
            yield conductor, host
        finally:
            await host.kill()


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def _respond(send: Send, status: int, body: object) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(body)})
