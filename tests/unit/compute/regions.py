"""A region without a network: hosts in cells, the compute API, and somebody who carries out orders.

Agents are believed to do what they are told, at once; books are written the way a conductor writes them,
through the Placement API.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from berth.api.compute.api import ComputeApi
from berth.api.kernel.application import Application
from berth.api.kernel.auth.noauth import NoAuth
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.call import Services
from berth.api.kernel.cors import Cors
from berth.api.kernel.health import Health
from berth.api.native.api import NativeApi
from berth.api.placement.api import PlacementApi
from berth.cell.placement import VERSION, ClaimRefused, ClaimWriter
from berth.client import Answer as ClientAnswer
from berth.client import Client
from berth.engine import Engine
from berth.journal import SqliteAddress, open_journal
from berth.model.batches import Origin
from berth.model.commands import Enact
from berth.model.events import AnyRecord, RecordChanged
from berth.model.rejections import Rejection
from berth.model.saga_runs import Outbox, SagaRun
from berth.model.servers import Flavor, Image, Migration, Server
from berth.region.status_sync import apply_progress
from berth.runtime.ids import Ids
from berth.runtime.telemetry import Telemetry
from berth.sagas import runner
from berth.scheduler.options import scheduler_options
from berth.view import View
from tests.clocks import FakeClock
from tests.unit.native.worlds import Answer, World, uuid_of

T = TypeVar("T")

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
IDS_SEED = 7


class Refusing(Exception):
    """A change that a test makes was refused."""


class Region(World):
    """``ids`` are those that the compute API draws."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **{"cells": ("cell-1=sqlite:///cell-1.db",)} | settings)
        self.clock = FakeClock()
        self.claims = ClaimWriter(cast(Client, _InProcess(self)))

    def run(self, story: Callable[["Region"], Awaitable[T]]) -> T:
        async def told() -> T:
            clock, ids = self.clock, Ids(seed=1)
            telemetry = Telemetry(self.settings, clock)
            journal = open_journal(SqliteAddress(self.path / "journal.db"), shared=False)
            self.engine = Engine(journal, clock, ids, telemetry)
            await self.engine.start()
            policy = Policy(None, "legacy", clock)
            options = scheduler_options()
            services = Services(self.engine, Ids(seed=IDS_SEED), clock, options, self.settings, policy)
            self.application = Application(
                (PlacementApi(services), NativeApi(services), ComputeApi(services)),
                Health(self.engine, telemetry.exposition),
                NoAuth(),
                Cors((), ()),
                clock,
                ids,
                telemetry,
                body_bytes_max=self.settings.body_bytes_max,
            )
            try:
                return await story(self)
            finally:
                await self.engine.stop()

        return asyncio.run(told())

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
    ) -> Answer:
        spoken = {"openstack-api-version": f"compute {version}", **(headers or {})}
        return await self.ask(method, f"/compute/v2.1{path}", body, token=who, headers=spoken)

    async def server(self, id: str, **how: Any) -> Any:
        return (await self.compute("GET", f"/servers/{id}", **how)).json["server"]

    async def act(self, id: str, name: str, body: object = None, **how: Any) -> Answer:
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

    def order(self, id: str) -> SagaRun:
        """The order on its way for a server."""
        outbox = self.engine.view.records.get(Outbox, self.record(id).run or "")
        assert outbox is not None
        assert outbox.run is not None
        return outbox.run

    async def finish(self, id: str, error: str | None = None) -> None:
        """Carry the order of a server out to its end; with an error, its first step at an agent fails
        wherever it is tried."""
        await self.carry_out(self.order(id), error)

    async def carry_out(self, run: SagaRun, error: str | None = None) -> None:
        while not runner.is_finished(run):
            run = await self._stepped(run, error)
        await self.tell(run)

    async def tell(self, run: SagaRun) -> None:
        """Bring an order up, however far it has come."""
        await self.enact(lambda view, now_s: apply_progress(view, run, now_s) or Enact(()))

    async def _stepped(self, run: SagaRun, error: str | None) -> SagaRun:
        now_ns = self.clock.now_ns()
        task = runner.task_of(run)
        match task:
            case runner.ClaimTask(entry):
                claim, of_migration = await self.claims.write(run, entry)
                return runner.record_success(run, now_ns, claim, of_migration)
            case runner.MoveClaim(way):
                try:
                    return runner.record_claim_moved(run, now_ns, *await self.claims.move(run, way))
                except ClaimRefused as refused:
                    return runner.record_claim_refused(run, now_ns, str(refused))
            case runner.AgentTask() if error is not None and run.phase == "forward":
                return runner.record_failure(run, now_ns, error)
        return runner.record_success(run, now_ns)


class _InProcess:
    """As a conductor's client: asks the Placement API of the same process."""

    def __init__(self, region: Region) -> None:
        self._region = region

    async def ask(self, method: str, path: str, body: object, timeout_s: float) -> ClientAnswer:
        version = VERSION.removeprefix("placement ")
        answer = await self._region.ask(method, path, body, version=version)
        return ClientAnswer(answer.status, answer.headers, answer.json if answer.body else None)
