"""The worlds that tests play in: an application or a whole region, composed as the server composes it, on a
journal of its own and without a network.

``ApplicationWorld`` has Placement and the native API. ``RegionWorld`` has a cell as well, with all APIs; its
agents execute commands at once. The sim cloud (``berth.sim.cloud``) has everything but hypervisors.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableMapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

import pytest

from berth.agent.drivers.sim import make_addresses
from berth.api.kernel.application import Application
from berth.api.kernel.auth.caller import Authenticator
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.http import Receive, Scope, Send
from berth.api.kernel.images import ImageSource
from berth.cell import protocol
from berth.cell.conductor import Conductor, Deadlines
from berth.cell.mailbox import CommandOutcome, Mailbox
from berth.cell.placement import VERSION, ClaimWriter
from berth.cell.protocol import AgentCommand
from berth.client import connect_directly
from berth.engine import Engine, Planned, Proposal
from berth.engine.engine import Observer
from berth.journal import SqliteAddress, open_journal
from berth.ledger import decide
from berth.main import Composition, compose
from berth.model.commands import Enact
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.rejections import Rejection
from berth.model.saga_runs import Agent, Outbox, SagaRun
from berth.model.servers import Flavor, Image, Migration, Server
from berth.region.cell_records import apply_progress
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas import runner
from berth.sim.cloud import NO_QUOTAS
from berth.view import View
from tests.clocks import FakeClock

T = TypeVar("T")


def uuid_of(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        [error] = self.json["errors"]
        return error


def propose_before_writing(engine: Engine, count: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Have the next ``count`` proposals made before any of them is carried out, as in as many processes that
    read the same view. Returns the list that they will be in."""
    submit, proposed, is_complete = engine.submit, list[object](), asyncio.Event()

    async def submit_late(proposal: Any, *rest: Any) -> Any:
        command = proposal(engine.view, 0)
        proposed.append(command)
        if len(proposed) == count:
            is_complete.set()
        await is_complete.wait()
        return await submit(command, *rest)

    monkeypatch.setattr(engine, "submit", submit_late)
    return proposed


@cache
def share_policy(defaults: Literal["legacy", "secure"]) -> Policy:
    """The default rules, read once: what they decide follows from what is asked alone."""
    return Policy(None, defaults, SystemClock())


class ApplicationWorld:
    """An application with Placement and the native API. Without quotas, unless ``settings`` have some."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        authenticator: Authenticator | None = None,
        policy: Policy | None = None,
        **settings: Any,
    ) -> None:
        self.path = path
        own = {"log_level": "error", "image_folder": str(path / "images")}
        self.settings = Settings(**own | NO_QUOTAS | settings)
        self.ids = Ids(seed=1)
        self._clock = clock or SystemClock()
        self._authenticator = authenticator
        if policy is None and self.settings.policy_file is None:
            policy = share_policy(self.settings.policy_defaults)
        self._policy = policy
        self.glance: ImageSource | None = None
        self.parts: Composition

    @property
    def engine(self) -> Engine:
        return self.parts.services.engine

    @property
    def application(self) -> Application:
        return self.parts.application

    async def start(self) -> None:
        """As a process starts: on its journal, with nothing remembered."""
        self.parts = await compose(
            self.settings,
            self._open_engine,
            self._clock,
            self.ids,
            authenticator=self._authenticator,
            policy=self._policy,
            glance=self.glance,
        )

    async def _open_engine(self, observer: Observer) -> Engine:
        journal = open_journal(SqliteAddress(self.path / "journal.db"), shared=False)
        return Engine(journal, self._clock, self.ids, observer)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        await self.start()
        try:
            yield self
        finally:
            await self.parts.stop()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "admin",
        version: str = "1.39",
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        content = None if body is None else json.dumps(body).encode()
        return await self.ask_raw(method, path, content, token=token, version=version, headers=headers)

    async def ask_raw(
        self,
        method: str,
        path: str,
        content: bytes | None,
        *,
        token: str | None = "admin",
        version: str = "1.39",
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        sent = {"openstack-api-version": f"placement {version}"}
        if content:
            sent |= {"content-length": str(len(content)), "content-type": "application/json"}
        sent |= headers or {}
        if token is not None:
            sent["x-auth-token"] = token
        return await self.send(scope_of(method, path, sent), content or b"")

    async def send(self, scope: MutableMapping[str, Any], body: bytes) -> HttpAnswer:
        """The answer to a request, exactly as it stands."""
        return await self.send_pieces(scope, (body,))

    async def send_pieces(
        self, scope: MutableMapping[str, Any], pieces: Iterable[bytes], *, leaves: bool = False
    ) -> HttpAnswer:
        """The answer to a request whose body comes in pieces. ``leaves``: the client is gone after the last
        of them, and there would have been more."""
        messages: list[MutableMapping[str, Any]] = []
        *some, last = pieces
        coming = [*((piece, True) for piece in some), (last, leaves)]

        async def receive() -> MutableMapping[str, Any]:
            if not coming:
                if not leaves:
                    await asyncio.Event().wait()
                return {"type": "http.disconnect"}
            body, has_more = coming.pop(0)
            return {"type": "http.request", "body": body, "more_body": has_more}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        await self.application(scope, receive, send)
        start, *rest = messages
        received = {name.decode(): value.decode() for name, value in start["headers"]}
        return HttpAnswer(start["status"], received, b"".join(message["body"] for message in rest))

    async def get(self, path: str, **headers: str) -> HttpAnswer:
        return await self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    # -- filling --------------------------------------------------------------------------------

    async def change(self, method: str, path: str, body: object = None, version: str = "1.39") -> Any:
        answer = await self.ask(method, path, body, version=version)
        assert answer.status < 300, answer.body
        return answer.json if answer.body else None

    async def host(
        self, number: int, inventories: Mapping[str, int] | None = None, parent: int | None = None
    ) -> str:
        """A provider with these totals, below the given one."""
        id = uuid_of(number)
        body = {"name": f"host-{number}", "uuid": id}
        if parent is not None:
            body["parent_provider_uuid"] = uuid_of(parent)
        await self.change("POST", "/resource_providers", body)
        await self.change(
            "PUT",
            f"/resource_providers/{id}/inventories",
            {
                "resource_provider_generation": 0,
                "inventories": {
                    name: {"total": total} for name, total in (inventories or {"VCPU": 8}).items()
                },
            },
        )
        return id

    async def join(self, number: int, *aggregates: str) -> None:
        path = f"/resource_providers/{uuid_of(number)}/aggregates"
        await self.change("PUT", path, aggregates, version="1.18")

    async def claim(
        self,
        number: int,
        held: Mapping[int, Mapping[str, int]],
        *,
        project: str = "p",
        user: str = "u",
        type: str | None = "INSTANCE",
    ) -> str:
        """A consumer that holds these amounts, by the numbers of hosts."""
        body: dict[str, object] = {
            "allocations": {uuid_of(host): {"resources": amounts} for host, amounts in held.items()},
            "project_id": project,
            "user_id": user,
            "consumer_generation": None,
        }
        if type is not None:
            body["consumer_type"] = type
        version = "1.39" if type is not None else "1.37"
        await self.change("PUT", f"/allocations/{uuid_of(number)}", body, version=version)
        return uuid_of(number)


def scope_of(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.1", 5),
    }


# -- regions --

SMALL = Flavor(id="1", name="small", vcpus=2, memory_mb=2048, disk_gb=10)
LARGE = Flavor(id="2", name="large", vcpus=4, memory_mb=4096, disk_gb=20, extra_specs={"site:note": "x"})
HUGE = Flavor(id="3", name="huge", vcpus=64, memory_mb=4096, disk_gb=20)
SECRET = Flavor(id="4", name="secret", vcpus=1, memory_mb=1024, is_public=False, projects=("blue",))
CIRROS = Image(id=uuid_of(900), name="cirros", status="active", visibility="public")
AVX = Image(
    id=uuid_of(901),
    name="avx",
    status="active",
    visibility="public",
    properties={"trait:HW_CPU_X86_AVX2": "required"},
)
QUEUED = Image(id=uuid_of(902), name="queued", visibility="public")
PRIVATE = Image(id=uuid_of(903), name="private", status="active", visibility="private", owner="blue")
WIDE = Image(id=uuid_of(904), name="wide", status="active", visibility="public", min_disk_gb=15)
INVENTORY = {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100}
ORIGIN = Origin("req-test", None, None, "test")


class Refusing(Exception):
    """A change that a test makes was refused."""


class RegionWorld(ApplicationWorld):
    """A region with a cell, all APIs and a clock that stands still. With ``tokens``, the text of a tokens
    file, callers are known by that; without, all are believed."""

    def __init__(self, path: Path, tokens: str | None = None, /, **settings: Any) -> None:
        self.tokens_file = path / "tokens.toml"
        if tokens is not None:
            self.write_tokens(tokens)
            settings |= {"auth": "tokens", "tokens_file": str(self.tokens_file)}
        self.clock = FakeClock()
        settings = {"cells": ("cell-1=sqlite:///cell-1.db",)} | settings
        super().__init__(path, clock=self.clock, **settings)

    def write_tokens(self, text: str) -> None:
        self.tokens_file.write_text(text)
        self.tokens_file.chmod(0o600)

    # -- asking ---------------------------------------------------------------------------------

    async def compute(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        who: str = "admin",
        version: str = "2.94",
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        spoken = {"openstack-api-version": f"compute {version}", **(headers or {})}
        return await self.ask(method, f"/compute/v2.1{path}", body, token=who, headers=spoken)

    async def server(self, id: str, **how: Any) -> Any:
        return (await self.compute("GET", f"/servers/{id}", **how)).json["server"]

    async def act(self, id: str, name: str, body: object = None, **how: Any) -> HttpAnswer:
        return await self.compute("POST", f"/servers/{id}/action", {name: body}, **how)

    async def create(self, name: str = "one", hints: object = None, **fields: Any) -> str:
        """A server, on its way; the id of the first one."""
        how = {key: fields.pop(key) for key in ("who", "version", "headers") if key in fields}
        body: dict[str, object] = {"server": {"name": name, "flavorRef": SMALL.id, **fields}}
        if hints is not None:
            body["OS-SCH-HNT:scheduler_hints"] = hints
        answer = await self.compute("POST", "/servers", body, **how)
        assert answer.status == 202, answer.body
        id: str = answer.json["server"]["id"]
        return id

    async def active(self, name: str = "one", **fields: Any) -> str:
        """A server that is built."""
        id = await self.create(name, **fields)
        await self.finish(id)
        return id

    async def held(self, consumer: str) -> Any:
        """What a consumer holds, by the names of hosts."""
        found = (await self.change("GET", f"/allocations/{consumer}"))["allocations"]
        names = {
            one["uuid"]: one["name"]
            for one in (await self.change("GET", "/resource_providers"))["resource_providers"]
        }
        return {names[id]: there["resources"] for id, there in found.items()}

    # -- filling --------------------------------------------------------------------------------

    async def fleet(self, count: int = 3, cells: int = 1) -> None:
        """Hosts host-1.. in cells cell-1.., flavors and images."""
        for number in range(1, count + 1):
            await self.host(number, INVENTORY)
            await self.join(number, uuid_of(500 + number % cells))
        for number in range(cells):
            path = f"/berth/v1/aggregates/{uuid_of(500 + number)}"
            await self.change(
                "PUT", path, {"aggregate": {"kind": "cell", "name": f"cell-{number + 1}", "metadata": {}}}
            )
        await self.put(SMALL, LARGE, HUGE, SECRET, CIRROS, AVX, QUEUED, PRIVATE, WIDE)

    async def put(self, *records: AnyRecord) -> None:
        await self.enact(
            lambda view, now_s: Enact(
                tuple(RecordChanged(view.records.current(record), record) for record in records)
            )
        )

    async def group(self, policy: str = "anti-affinity", who: str = "admin") -> str:
        body = {"group": {"name": "g", "policy": policy}}
        answer = await self.ask("POST", "/berth/v1/groups", body, token=who, headers={"x-roles": "admin"})
        assert answer.status == 201, answer.body
        id: str = answer.json["group"]["uuid"]
        return id

    async def host_status(self, number: int, **status: Any) -> None:
        await self.change("PUT", f"/berth/v1/hosts/{uuid_of(number)}", {"host": status})

    async def enact(self, propose: Callable[[View, int], Enact | Rejection]) -> None:
        outcome = await self.engine.submit(propose, ORIGIN, lambda view, changed: None)
        if outcome is not None:
            raise Refusing(repr(outcome))

    # -- carrying out ---------------------------------------------------------------------------

    def record(self, id: str) -> Server:
        server = self.engine.view.records.get(Server, id)
        assert server is not None
        return server

    def migrations(self, id: str) -> list[Migration]:
        return self.engine.view.records.find(Migration, "server", id)

    def saga_run(self, id: str) -> SagaRun:
        """The saga run of a server that waits in the outbox."""
        outbox = self.engine.view.records.get(Outbox, self.record(id).run or "")
        assert outbox is not None
        assert outbox.run is not None
        return outbox.run

    async def finish(self, id: str, error: str | None = None) -> None:
        """Execute the saga run of a server to its end; with an error, its first step at an agent fails
        wherever it is tried."""
        await self.carry_out(self.saga_run(id), error)

    async def carry_out(self, run: SagaRun, error: str | None = None) -> None:
        def fault(run: SagaRun) -> str | None:
            is_agents = isinstance(runner.task_of(run), runner.AgentTask)
            return error if is_agents and run.phase == "forward" else None

        cell = ViewEngine(View(), self.clock)
        known = self.engine.view.providers.values()
        agents = (
            Agent(id=one.id, name=one.name, driver="sim", protocol=protocol.VERSION)
            for one in known
            if one.root is one
        )
        records: list[AnyRecord] = [run, *agents]
        await cell.submit(Enact(tuple(RecordChanged(None, one) for one in records)), ORIGIN, lambda *_: None)
        conductor = SteppedConductor(cell, self.call, self.clock)
        conductor.fault = fault
        while not runner.is_finished(run):
            await conductor.step(run)
            [run] = cell.view.records.all(SagaRun)
        await self.bring_up(run)

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, whichever serves now."""
        await self.application(scope, receive, send)

    async def bring_up(self, run: SagaRun) -> None:
        """Apply the progress of a saga run to the region, however far it has come."""
        await self.enact(lambda view, now_s: apply_progress(view, run, now_s) or Enact(()))


# -- cells --------------------------------------------------------------------------------------


class ViewEngine:
    """An engine without a journal: what is decided is applied to the view at once."""

    def __init__(self, view: View, clock: Clock) -> None:
        self.view = view
        self._clock = clock

    async def start(self) -> None: ...

    async def read(self, answer: Callable[[View], T]) -> T:
        return answer(self.view)

    read_recent = read

    async def submit(
        self, proposal: Proposal, origin: Origin, answer: Callable[[View, bool], T], size: int = 0
    ) -> T | Rejection:
        now_s = self._clock.now_ns() // 10**9
        command = proposal(self.view, now_s) if callable(proposal) else proposal
        if command is None:
            return answer(self.view, False)
        assert not isinstance(command, Planned)
        events = command if isinstance(command, Rejection) else decide(self.view, command, now_s)
        if isinstance(events, Rejection):
            return events
        for event in events:
            self.view.apply(event)
        return answer(self.view, True)


class SteppedConductor(Conductor):
    """The conductor of a cell whose agents execute commands at once, to be driven step by step. A step
    for which ``fault`` has an error fails with it."""

    def __init__(self, cell: ViewEngine, placement: Callable[..., Any], clock: Clock) -> None:
        client = connect_directly(placement, {"x-auth-token": "admin", "openstack-api-version": VERSION})
        super().__init__(cast(Engine, cell), ClaimWriter(client), _ReadyMailbox(), clock, Deadlines())
        self.fault: Callable[[SagaRun], str | None] = lambda run: None

    async def _step(self, run: SagaRun) -> Callable[[SagaRun], SagaRun]:
        task, now_ns = runner.task_of(run), self._clock.now_ns()
        error = None if isinstance(task, runner.Skip) else self.fault(run)
        if error is None:
            return await super()._step(run)
        match task:
            case runner.MoveClaim():
                return partial(runner.record_claim_refused, now_ns=now_ns, error=error)
            case runner.ClaimTask() if run.phase == "back":
                # What undoes a change in Placement must succeed: it is repeated until it does.
                return await super()._step(run)
        return partial(runner.record_failure, now_ns=now_ns, error=error)

    def _may_retry_refused(self, run: SagaRun) -> bool:
        raise AssertionError("Placement refuses a change that must be made")


class _ReadyMailbox(Mailbox):
    async def deliver(self, host: str, command: AgentCommand, within_s: float) -> CommandOutcome:
        # Some tests call their servers by words.
        is_uuid = len(command.server) == len(uuid_of(0))
        return CommandOutcome(None, make_addresses(command.server) if is_uuid else ())
